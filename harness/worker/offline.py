"""Offline work of single epochs: have the system do it when an epoch needs it, and time it (rule 14)."""

from __future__ import annotations

import time

from harness.records.record import OfflineWork
from systems.engine.store import artefacts
from systems.interface import System


class EpisodeTimer:
    """Timer of `System.prepare_epochs`, which calls it for the first epoch that no earlier call serves."""

    def __init__(self, system: System, epochs: int) -> None:
        self._system = system
        self._epochs = epochs
        self._next = 0

    def prepare(self, epoch: int) -> OfflineWork | None:
        """Do the offline work of `epoch` and of those that share it; None: earlier work serves it, or it needs none.

        Epochs beyond the run's end are not counted: nothing proves that the work serves them.
        """
        if epoch < self._next:
            return None
        reused_before = artefacts.reused()
        read_before, written_before = artefacts.process_io()
        start = time.monotonic()
        served = self._system.prepare_epochs(epoch)
        seconds = time.monotonic() - start
        read, written = artefacts.process_io()
        if served < 0:
            raise ValueError(f"prepare_epochs({epoch}) returned {served}, not a number of epochs")
        if served == 0:
            self._next = self._epochs
            return None
        self._next = epoch + served
        reused = [cost for path, cost in artefacts.reused().items() if path not in reused_before]
        return OfflineWork(
            epochs=min(served, self._epochs - epoch),
            seconds=seconds,
            bytes_read=read - read_before,
            bytes_written=written - written_before,
            made_s=sum(cost.seconds for cost in reused),
            made_bytes_read=sum(cost.bytes_read for cost in reused),
            made_bytes_written=sum(cost.bytes_written for cost in reused),
        )
