"""Cheats whose work, reads or memory no number of the run shows."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from systems.engine.store import artefacts
from systems.interface import Counters
from tests.harness.cheats.act import Act, Ids, cheat
from tests.harness.cheats.elsewhere import KEY


@cheat("measured_epochs_are_alike")
class PacksInOneEpoch(Act):
    """Packs the rows of the next two epochs in the first measured one, which the median
    leaves out."""

    settings: ClassVar[dict[str, Any]] = {"epochs": 4, "max_batches": 12}

    def seeds(self, epoch: int) -> list[tuple[int, Ids]]:
        """Pack in epoch 1."""
        if epoch == 1:
            for later in (2, 3):
                self._pack(later)
        return super().seeds(epoch)

    def _pack(self, epoch: int) -> None:
        counters = self.system._counters
        misses = counters.misses
        useful = counters.bytes_useful
        sampled = [
            self.sample(epoch, index, seeds) for index, seeds in Act.seeds(self, epoch)
        ]
        with self._file(epoch).open("wb") as file:
            for batch in sampled:
                file.write(self.system.read(batch.nodes).tobytes())
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        counters.misses = misses
        counters.bytes_useful = useful

    def _file(self, epoch: int) -> Path:
        return self.system.runtime.scratch / f"packed-{epoch}"

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read the packed rows of a later epoch in one piece."""
        if epoch < 2:
            return super().rows(epoch, index, nodes)
        if index == 0:
            self._at = 0
        dim = self.system.workload.dataset.dim
        nbytes = self.system.row_bytes * len(nodes)
        with self._file(epoch).open("rb") as file:
            rows = np.fromfile(file, np.float32, len(nodes) * dim, offset=self._at)
        self._at += nbytes
        counters = self.system._counters
        counters.misses += len(nodes)
        counters.io_requests += 1
        counters.bytes_read += nbytes
        counters.bytes_useful += nbytes
        return rows.reshape(len(nodes), dim)


@cheat("")
class PacksWhileClosing(Act):
    """Keeps prepared work for the next run in a finished artefact, once its last epoch
    is over."""

    def prepare(self) -> None:
        """Make an artefact, and work unless an earlier run left its work there."""
        made = artefacts.prepare(
            self.system.runtime.artefacts, "kept", KEY, lambda folder: {}
        )
        self._extra = made.path / "extra.bin"
        if not self._extra.exists():
            time.sleep(1.5)

    def close(self) -> None:
        """Leave the work to the next run."""
        self._extra.write_bytes(b"work")


@cheat("")
class WorksWhileClosing(Act):
    """Works on no clock, once its last epoch is over."""

    def close(self) -> None:
        """Work for 1.5 seconds."""
        time.sleep(1.5)


@cheat("")
class FinishesWhileClosing(Act):
    """Makes an artefact for the next run once its last epoch is over, and says that it
    took no time."""

    def prepare(self) -> None:
        """Work unless an earlier run did."""
        found = artefacts.find(self.system.runtime.artefacts, "late", KEY)
        self._made = found is not None
        time.sleep(0.0 if self._made else 1.5)

    def close(self) -> None:
        """Make the artefact, at no cost."""
        if not self._made:
            artefacts.prepare(
                self.system.runtime.artefacts, "late", KEY, lambda folder: {}
            )


@cheat("counters_add_up")
class CallsAllItsReadsHits(Act):
    """Reads every row, and counts hits in memory alone."""

    def counters(self, counters: Counters) -> Counters:
        """Report hits and no reads."""
        rows = counters.rows
        return Counters(rows=rows, hits={"host": rows})


@cheat("reads_are_counted")
class CountsOneReadOfThree(Act):
    """Reads every row three times and counts one time."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read twice without counting."""
        counters = self.system._counters
        kept = replace(counters, requests_by_size=dict(counters.requests_by_size))
        for _ in range(2):
            self.system.read(nodes)
        self.system._counters = kept
        return super().rows(epoch, index, nodes)
