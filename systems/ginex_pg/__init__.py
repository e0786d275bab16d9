"""`ginex-pg`: Ginex with PaGraph's static feature cache in place of Belady's (Park et
al., VLDB 2022, Section 5.3).

The superbatches of `ginex`, with the rows of highest out-degree cached throughout,
which isolates the gain of Ginex's optimal cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from pydantic import Field

from systems.ginex.options import GinexOptions, Policy
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


class GinexPgOptions(GinexOptions):
    """Options of `ginex-pg`: those of `ginex`."""

    policy: Policy = Field(
        "static",
        description="what the feature cache holds: the rows of highest out-degree",
    )


class GinexPg(System):
    """Ginex-PG of the Ginex paper."""

    info = SystemInfo(
        name="ginex-pg",
        paper="ginex",
        summary="ginex with a static cache by out-degree, which isolates its "
        "optimal one",
        options=GinexPgOptions,
    )
    options: GinexPgOptions

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
        """Load `indptr`, rank the rows, make or find the neighbour cache, and open the
        readers."""
        self._superbatches.prepare()

    def epoch(self, k: int) -> Iterator[Batch]:
        """Yield the mini-batches of epoch `k` in the seed plan's order, a superbatch
        after the other."""
        return self._superbatches.epoch(k)

    def counters(self) -> Counters:
        """Return hits and misses, and fills and runtime files as `observed`."""
        return self._superbatches.counters()

    def files(self) -> list[Path]:
        """List the neighbour cache's files."""
        return self._superbatches.files()

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast the misses of the static cache, and the runtime files."""
        return self._superbatches.forecast(trace, host_bytes, self.unplanned_bytes())

    def data_path(self) -> list[PartUse]:
        """List graph, superbatches, feature cache, reads and tables."""
        return self._superbatches.data_path()

    def facts(self) -> Facts:
        """Return the read mode, the reading stages, and whether the neighbour cache was
        found."""
        return self._superbatches.facts()

    def notes(self) -> dict[str, str]:
        """Return the read mode and the sizes of superbatch and cache."""
        return {**super().notes(), **self._superbatches.notes()}

    def close(self) -> None:
        """End the threads, close the files and free the buffers."""
        self._superbatches.close()


SYSTEM = GinexPg
