"""Offline work of single epochs: have the system do it when an epoch needs it, and time
it (rule 14)."""

from __future__ import annotations

import math
import time

from harness.records.record import OfflineWork
from systems.engine.store import artefacts
from systems.interface import System
from systems.loading.epoch_work import EpochWork


class EpisodeTimer:
    """Timer of `System.prepare_epochs`, which calls it for the first epoch that no
    earlier call serves."""

    def __init__(self, system: System, epochs: int) -> None:
        self._system = system
        self._work = EpochWork(system)
        self._epochs = epochs

    def prepare(self, epoch: int) -> OfflineWork | None:
        """Do the offline work of `epoch` and of those that share it; None: earlier work
        serves it, or it needs none.

        Epochs beyond the run's end are not counted: nothing proves that the work serves
        them.
        """
        if not self._work.needed(epoch):
            return None
        reused_before = artefacts.reused()
        read_before, written_before = artefacts.process_io()
        start = time.monotonic()
        served = self._work.do(epoch)
        seconds = time.monotonic() - start
        read, written = artefacts.process_io()
        if served == 0:
            return None
        shared_s = self._system.shared_s()
        if not math.isfinite(shared_s) or shared_s < 0:
            raise ValueError(
                f"shared_s() returned {shared_s!r}: return seconds, 0 where epochs "
                "share no work"
            )
        reused = [
            cost
            for path, cost in artefacts.reused().items()
            if path not in reused_before
        ]
        made_s = sum(cost.seconds for cost in reused)
        return OfflineWork(
            epochs=min(served, self._epochs - epoch),
            shared_s=min(shared_s, seconds + made_s),
            seconds=seconds,
            bytes_read=read - read_before,
            bytes_written=written - written_before,
            made_s=made_s,
            made_bytes_read=sum(cost.bytes_read for cost in reused),
            made_bytes_written=sum(cost.bytes_written for cost in reused),
        )
