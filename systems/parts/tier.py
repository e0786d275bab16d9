"""The interface of a cache whose rows change, and the chain of such caches in front of
a path's rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.io.reader import ReadStats
from systems.engine.pipeline import Pipeline, Turnstile
from systems.forecast import Forecast, Trace, sequential
from systems.parts.part import Part
from systems.parts.rows import Ids, Rows

Places = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Found:
    """Look-up of some rows of a mini-batch in a cache whose rows change.

    The hits are copied out of the cache before the admitted rows are copied into it,
    since a hit's slot may be given to an admitted row.

    Attributes:
        hits: int32 [h], places of the cached rows in the mini-batch's memory.
        hit_slots: int32 [h], slot of each.
        misses: int64 [m], positions of the others in the ids looked up, ascending.
        admitted: int32 [a], places of the missed rows that the cache holds after the
            mini-batch.
        into: int32 [a], slot of each.
    """

    hits: Places
    hit_slots: Places
    misses: Ids
    admitted: Places
    into: Places


@dataclass(eq=False)
class ChangingCache(Part):
    """A cache in host memory that is filled by misses, with memory of its own. Hits are
    copied to the mini-batch.

    No slot has to be kept for a mini-batch in flight, so the order of mini-batches
    alone decides what is cached, and counters are exact.

    Attributes:
        name: name of the cache in the plan and in notes.
    """

    name: str = "feature cache"

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes planned for the rows."""

    @abstractmethod
    def look_up(self, ids: Ids, places: Places | None) -> Found:
        """Use rows, and decide which missed rows to hold. The base calls it in the
        order of the mini-batches.

        Args:
            ids: int64 [n], each row once.
            places: int32 [n], their places in the mini-batch's memory; None: their
                positions.
        """

    @abstractmethod
    def settle(self, found: Found, rows: torch.Tensor) -> None:
        """Copy hits to `rows` [any, dim], then admitted rows from there; called in the
        order of the mini-batches."""

    @abstractmethod
    def forecast_misses(self, trace: Trace) -> int:
        """Return the rows of the trace's second epoch that the cache misses."""

    @abstractmethod
    def clear(self) -> None:
        """Empty the cache, because some look-ups were never settled."""


@dataclass
class Chain:
    """Caches one behind the other, the nearest first.

    Mini-batches are looked up in their order; their misses are read side by side; then,
    in their order again, hits are copied to the mini-batch and missed rows to the
    caches. A row that an earlier mini-batch still reads is a hit.

    Attributes:
        looked_up, settled: mini-batches of the run so far, each count changed in its
            own turn only. They differ after a run that was stopped.
    """

    tiers: Sequence[ChangingCache]
    rows: Rows
    looked_up: int = 0
    settled: int = 0
    _looking: Turnstile = field(init=False, repr=False)
    _settling: Turnstile = field(init=False, repr=False)

    def start(self, pipe: Pipeline) -> None:
        """Get ready for another run of mini-batches; caches that a stopped run left
        half filled are emptied."""
        self._looking = pipe.turnstile()
        self._settling = pipe.turnstile()
        if self.looked_up != self.settled:
            for tier in self.tiers:
                tier.clear()
        self.looked_up = 0
        self.settled = 0

    def read(
        self, number: int, ids: Ids, out: torch.Tensor
    ) -> tuple[ReadStats | None, dict[str, int], int]:
        """Fetch the rows of mini-batch `number` of the run: `ids` (int64 [n]) to `out`
        [n, dim].

        Returns:
            the reads, the hits of each cache, and the rows that no cache holds.
        """
        with self._looking.turn(number):
            self.looked_up += 1
            found, left, places = self._look_up(ids)
        reads = self.rows.read_places(left, out, places)
        with self._settling.turn(number):
            for tier, one in zip(reversed(self.tiers), reversed(found), strict=True):
                tier.settle(one, out)
            self.settled += 1
        hits: dict[str, int] = {}
        for tier, one in zip(self.tiers, found, strict=True):
            hits[f"hits of {tier.name}"] = len(one.hits)
        return reads, hits, len(left)

    def forecast(self, trace: Trace, page_cache_bytes: int | None) -> Forecast:
        """Forecast the misses of the cache that misses least.

        Args:
            page_cache_bytes: bytes of page cache for sampling; None: the graph is in
                memory.
        """
        missed = min(tier.forecast_misses(trace) for tier in self.tiers)
        reads = self.rows.reads_of(trace, missed)
        why = f"caches {trace.hit_rate(missed)} of the accesses"
        if page_cache_bytes is not None:
            return trace.with_sampling(reads, page_cache_bytes, why, trace.accesses)
        graph = sequential(trace.workload.dataset.topology_bytes)
        return Forecast(reads, why, trace.accesses, prepare_reads=graph)

    def _look_up(self, ids: Ids) -> tuple[list[Found], Ids, Ids]:
        """Look all caches up; return what each found, the rows left to be read, and
        their places."""
        places: Ids | None = None
        found = []
        for tier in self.tiers:
            one = tier.look_up(ids, None if places is None else places.astype(np.int32))
            ids = ids[one.misses]
            places = one.misses if places is None else places[one.misses]
            found.append(one)
        assert places is not None
        return found, ids, places
