"""The split of `ali+pg`'s memory between neighbour cache and feature cache: given, or
the best by simulation.

The candidates are those that the Ginex paper tried (Section 4.1, Comparison Baselines).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.cache import neighbour_cache, split_tuner
from systems.engine.cache.neighbour_cache import (
    NeighbourCachePlan,
    plan_neighbour_cache,
)
from systems.engine.cache.static_cache import StaticCache
from systems.engine.io.row_reads import RowReadOptions, feature_reader, reader_arguments
from systems.engine.io.topology import DatasetFiles, mapped_sampler
from systems.engine.rank.ranking import out_degrees
from systems.engine.store.artefacts import identity, prepare
from systems.parts.kinds.graphs import ListShare
from systems.parts.kinds.static_host import RowShare, ranking_bytes
from systems.parts.sizes import PAGE_CACHE, Follower, Need, Sizes
from workloads.sampling.make import make_seed_plan
from workloads.units import parse_bytes
from workloads.workload import Workload

SPLITS = (0, 25, 50, 75, 100)
_UNLIMITED_SHARE = 4  # without a budget the caches hold a fourth of graph and features
_CACHES = "neighbour and feature caches"


@dataclass(frozen=True)
class Shares:
    """One split of the caches' memory.

    Attributes:
        split: per cent of the memory for the neighbour cache.
        neighbours, rows: plan of the neighbour cache, and rows of the feature cache.
    """

    split: int
    neighbours: NeighbourCachePlan
    rows: int


def shares(
    workload: Workload, cache_bytes: int, split: int, *, sampling_only: bool = False
) -> Shares:
    """Split `cache_bytes`: `split` per cent for neighbour lists, the rest for rows
    (none where only sampling runs)."""
    for_lists = cache_bytes * split // 100
    neighbours = plan_neighbour_cache(workload, for_lists)
    rows = (
        0
        if sampling_only
        else StaticCache.capacity_of(workload, cache_bytes - for_lists)
    )
    return Shares(split, neighbours, rows)


@dataclass(eq=False)
class Split(ListShare, RowShare):
    """Memory of both caches, and its split.

    Attributes:
        wanted: per cent for the neighbour cache, or `auto`: the best by simulation,
            kept as an artefact.
        cache: bytes of both caches, or `auto`: all that is left of the host budget.
        batches: mini-batches of the first epoch that are simulated; 0: all.
        reads: how missing rows are read.
        list_threads: threads that share a mini-batch's lists.
    """

    title = "memory for lists and rows, split"
    wanted: str = "auto"
    cache: str = "auto"
    batches: int = 0
    reads: RowReadOptions = field(kw_only=True)
    list_threads: int = 1
    _indptr: npt.NDArray[np.int64] | None = field(init=False, repr=False, default=None)
    _shares: Shares | None = field(init=False, repr=False, default=None)
    _tuned: str = field(init=False, repr=False, default="given")

    @property
    def indptr(self) -> npt.NDArray[np.int64]:
        """Index pointers, int64 [N + 1]."""
        assert self._indptr is not None
        return self._indptr

    @property
    def lists(self) -> NeighbourCachePlan:
        """Size of the neighbour cache."""
        assert self._shares is not None
        return self._shares.neighbours

    @property
    def rows(self) -> int:
        """Rows of the feature cache."""
        assert self._shares is not None
        return self._shares.rows

    @property
    def cache_bytes(self) -> int:
        """Bytes of both caches together."""
        return self.site.granted(_CACHES)

    @property
    def page_cache_bytes(self) -> int:
        """Bytes left for pages of uncached lists, which sampling reads through the page
        cache."""
        topology = self.site.workload.dataset.topology_bytes
        host = self.site.budget.host
        return topology if host is None else min(topology, host // 8)

    def needs(self) -> Sequence[Need | Follower]:
        """List the pages of uncached lists, both caches, and preparation's excess over
        buffers allocated after it."""
        return [
            Need(PAGE_CACHE, self.page_cache_bytes),
            self._caches(),
            Follower("preparation", self._preparation_bytes, cuts=_CACHES),
        ]

    def _caches(self) -> Need:
        dataset = self.site.workload.dataset
        unlimited = self.site.budget.host is None
        whole = dataset.topology_bytes + dataset.feature_bytes + 12 * dataset.num_nodes
        if self.cache != "auto":
            least = min(parse_bytes(self.cache, "cache"), whole)
            return Need(_CACHES, least, best=least, fix="lower cache or raise memory")
        return Need(_CACHES, 0, best=whole // _UNLIMITED_SHARE if unlimited else whole)

    def _preparation_bytes(self, sizes: Sizes) -> int:
        peak = _scratch(self.site.workload)
        return max(
            0, peak - sizes.granted[_CACHES] - sizes.plan.bytes_of("feature tables")
        )

    def chosen(self) -> dict[str, int | str]:
        """Return the bytes of both caches; the split between them is tuned in
        preparation."""
        return {"cache": self.cache_bytes}

    def prepare(self) -> None:
        """Load the index pointers and choose the split."""
        workload = self.site.workload
        sampling_only = self.site.sampling_only
        DatasetFiles(workload, ["indices", "labels"]).check()
        self._indptr = workload.dataset.load("indptr")
        self._shares = shares(
            workload, self.cache_bytes, self._percent(), sampling_only=sampling_only
        )

    def _percent(self) -> int:
        """Return the neighbour cache's per cent."""
        if self.wanted != "auto":
            return int(self.wanted)
        if self.site.sampling_only:
            self._tuned = "sampling only"
            return 100
        workload = self.site.workload
        runtime = self.site.runtime
        key = identity(
            workload,
            caches=self.cache_bytes,
            page_cache=self.page_cache_bytes,
            reads=reader_arguments(workload, self.reads),
            batches=self.batches,
            disk=split_tuner.disk_class(runtime.disk),
        )
        found = prepare(runtime.artefacts, "split", key, lambda folder: self._tune())
        self.prepared.append(found)
        costs = ", ".join(
            f"{split}:{100 - int(split)} {cost}"
            for split, cost in found.facts["costs"].items()
        )
        self._tuned = f"auto; predicted {costs}"
        return int(found.facts["split"])

    def _tune(self) -> dict[str, Any]:
        """Simulate the candidates on the first epoch's mini-batches."""
        workload = self.site.workload
        runtime = self.site.runtime
        sampler = mapped_sampler(
            workload, indptr=self.indptr, threads=self.list_threads
        )
        seeds = make_seed_plan(workload).batches(0)[: self.batches or None]
        with feature_reader(workload, self.reads) as reader:
            forecasts = split_tuner.forecast(
                workload,
                [self._candidate(split) for split in SPLITS],
                (sampler.sample(0, index, nodes) for index, nodes in enumerate(seeds)),
                indptr=self.indptr,
                degrees=out_degrees(
                    workload, ranking_bytes(workload.dataset.num_nodes)
                ),
                reader=reader,
                disk=runtime.disk,
                most_accesses=max(1 << 16, self.cache_bytes // 32),
            )
        chosen = forecasts[split_tuner.best(forecasts)]
        unit = "s" if chosen.seconds is not None else "reads"
        return {
            "split": int(chosen.name),
            "costs": {entry.name: f"{entry.cost:.4g} {unit}" for entry in forecasts},
            "forecasts": [entry.as_dict() for entry in forecasts],
        }

    def _candidate(self, split: int) -> split_tuner.Candidate:
        workload = self.site.workload
        part = shares(workload, self.cache_bytes, split)
        entries = part.neighbours.list_bytes // workload.dataset.index_dtype.itemsize
        unused = (
            self.cache_bytes
            - part.neighbours.nbytes
            - StaticCache.plan_bytes(workload, part.rows)
        )
        return split_tuner.Candidate(
            str(split), entries, part.rows, self.page_cache_bytes + unused
        )

    def notes(self) -> dict[str, str]:
        """Return the split and its origin."""
        if self._shares is None:
            return {}
        split = self._shares.split
        return {"split": f"{split}:{100 - split} ({self._tuned})"}

    def close(self) -> None:
        """Drop the index pointers."""
        self._indptr = None


def _scratch(workload: Workload) -> int:
    """Return the peak bytes of preparation beside `indptr`: ranking degrees, tuning the
    split or filling a cache."""
    ranking = 12 * workload.dataset.num_nodes + (4 << 20)
    tuning = split_tuner.scratch_bytes(workload, 0)
    return max(
        ranking,
        tuning,
        neighbour_cache.building_bytes(workload),
        StaticCache.scratch_bytes(workload),
    )
