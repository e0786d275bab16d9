"""`ginex`: superbatches sampled ahead, then a feature cache that follows Belady's rule
(Park et al., VLDB 2022).

The data path of a superbatch, in `superbatches.py`:

1. sample all of its mini-batches to runtime files; neighbour lists come from a cache or
   through the page cache;
2. plan its changesets from these files: for each mini-batch, the rows that enter the
   feature cache, and their slots;
3. fill the feature cache with the rows used first, by direct reads;
4. for each mini-batch, read the missing rows by direct I/O, copy the others from the
   cache, update the cache by its changeset, and copy the rows to the device
   (`loop.py`).

It is no `PathSystem`: stages 1 and 2 end before 3 and 4 begin and share their memory,
and a superbatch may outlast an epoch, so one chain of threads for an epoch cannot hold
it. Buffers are sized by `systems/parts/sizes.py` as others are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from systems.ginex.options import GinexOptions
from systems.ginex.superbatches import Superbatches
from systems.interface import (
    Batch,
    Counters,
    Facts,
    Forecast,
    PartUse,
    Plan,
    System,
    SystemInfo,
    Trace,
)


class Ginex(System):
    """Ginex of Park et al., VLDB 2022."""

    info = SystemInfo(
        name="ginex",
        paper="ginex",
        summary="superbatches sampled ahead, then a provably optimal feature cache",
        options=GinexOptions,
    )
    options: GinexOptions

    @cached_property
    def _superbatches(self) -> Superbatches:
        return Superbatches(self, self.options)

    def plan(self) -> Plan:
        """Plan the buffers of both phases, sampling and main loop."""
        return self._superbatches.sizes.plan

    def chosen(self) -> dict[str, int | str]:
        """Return the sizes of superbatch and caches, and the threads."""
        return {**super().chosen(), **self._superbatches.chosen()}

    def prepare(self) -> None:
        """Load `indptr`, make or find the neighbour cache, allocate batch inputs and
        open the readers."""
        self._superbatches.prepare()

    def epoch(self, k: int) -> Iterator[Batch]:
        """Yield the mini-batches of epoch `k` in the seed plan's order, a superbatch
        after the other."""
        return self._superbatches.epoch(k)

    def counters(self) -> Counters:
        """Return hits and misses, which equal the plan's; `observed` has fills, updates
        and runtime files."""
        return self._superbatches.counters()

    def files(self) -> list[Path]:
        """List the neighbour cache's files."""
        return self._superbatches.files()

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast the misses of Belady's rule over superbatches, and the runtime
        files."""
        return self._superbatches.forecast(trace, host_bytes, self.unplanned_bytes())

    def data_path(self) -> list[PartUse]:
        """List graph, superbatches, feature cache, reads and tables."""
        return self._superbatches.data_path()

    def facts(self) -> Facts:
        """Return the read mode, the reading stages, and whether the neighbour cache was
        found."""
        return self._superbatches.facts()

    def notes(self) -> dict[str, str]:
        """Return the read mode and the sizes of superbatch and caches."""
        return {**super().notes(), **self._superbatches.notes()}

    def close(self) -> None:
        """End the threads, close the files and free the buffers."""
        self._superbatches.close()


SYSTEM = Ginex
