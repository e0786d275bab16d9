"""The base of the systems that load through DGL: its DataLoader drives, its gather fetches the rows.

By default DGL's DataLoader runs our sampler, so mini-batches equal the workload's; DGL's own sampler is an option.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field

from systems.engine.dgl.bridge import (
    DglSampled,
    TakesSampled,
    data_loader,
    dgl_graph,
    int64_of,
    nodes_only,
    require_dgl,
)
from systems.engine.loading.cache_loader import GatheredBatch, Gatherer, Sample
from systems.engine.loading.cached_system import CachedSystem
from systems.engine.loading.device_cache import DeviceCache
from systems.engine.loading.host_features import HostFeatures
from systems.engine.loading.pipeline import Pipeline
from systems.engine.loading.row_ring import RowRing
from systems.interface import Counters, Options, PlanItem, StageClock
from workloads.errors import BudgetError, InputError
from workloads.sampling.batch import SampledBatch
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]
SamplerName = Literal["outcore", "dgl"]


class SamplerOption(Options):
    """Option that selects the sampler of DGL's DataLoader."""

    sampler: SamplerName = Field(
        "outcore",
        description="`outcore`: the workload's mini-batches, drawn by our sampler; `dgl`: DGL's own neighbour sampler, "
        "whose draws are others: the run is then not faithful",
    )


def _dgl_samples(options: Options) -> bool:
    return isinstance(options, SamplerOption) and options.sampler == "dgl"


class RowStorage(Protocol):
    """Source of rows for DGL's DataLoader that is not a tensor, with its read counts."""

    def fetch(self, ids: torch.Tensor) -> torch.Tensor:
        """Return rows `ids` (int64 [n]) as [n, dim] on the host."""

    def counts(self, counters: Counters) -> None:
        """Add the reads since the epoch began to `counters`."""

    def begin(self) -> None:
        """Start an epoch."""

    def close(self) -> None:
        """Close the files."""


class DglGatherer(Gatherer):
    """Gatherer of mini-batches through DGL's DataLoader.

    Args:
        rows: a tensor [N, dim], or a storage.
        labels: int64 [N] if DGL samples; None if our sampler does.
        max_nodes: nodes of the largest mini-batch in the plan.
    """

    def __init__(
        self,
        system: str,
        workload: Workload,
        cache: DeviceCache,
        clock: StageClock,
        graph: Any,
        rows: torch.Tensor | RowStorage,
        *,
        labels: npt.NDArray[np.int64] | None,
        hops: int,
        max_nodes: int,
    ) -> None:
        self._system = system
        self._dgl = require_dgl(system)
        self._workload = workload
        self._cache = cache
        self._clock = clock
        self._graph = graph
        self._storage = rows
        self._labels = labels
        self._hops = hops
        self._max_nodes = max_nodes
        self.samples = labels is not None
        self._begun: tuple[int, Sequence[Ids], int] = (0, (), 0)

    def begin(self, epoch: int, seeds: Sequence[Ids], start: int) -> None:
        """Note the seed nodes for the DataLoader, and start the storage's epoch."""
        self._begun = (epoch, seeds, start)
        if start == 0 and not isinstance(self._storage, torch.Tensor):
            self._storage.begin()

    def gathered(
        self, pipe: Pipeline, sampled: Iterator[SampledBatch], take: Callable[[], object], ring: RowRing
    ) -> Iterator[GatheredBatch]:
        """Yield every mini-batch with the rows that DGL gathered."""
        epoch, seeds, start = self._begun
        found = []

        def wanted(structure: SampledBatch) -> Ids:
            if structure.num_nodes > self._max_nodes:
                raise BudgetError(
                    f"{self._system}: DGL sampled {structure.num_nodes} nodes, the plan holds {self._max_nodes}",
                    "use sampler=outcore, whose largest mini-batch is known, or lower the batch size",
                )
            found.append(self._cache.lookup(structure.nodes))
            return structure.nodes[found[-1].misses]

        sampler: DglSampled | TakesSampled
        if self._labels is not None:
            sampler = DglSampled(self._dgl, self._workload, self._labels, self._hops, epoch, start, wanted, self._clock)
        else:
            sampler = TakesSampled(self._dgl, sampled, wanted, self._clock)
        storage = self._storage
        rows = data_loader(
            self._dgl, self._graph, seeds, sampler, storage if isinstance(storage, torch.Tensor) else storage.fetch
        )
        while True:
            # DGL loads the next mini-batch only after the previous one was trained.
            take()
            gathered = next(rows, None)
            if gathered is None:
                return
            assert sampler.last is not None
            self._clock.add("extract", sampler.last.index, sampler.ready_at, time.monotonic())
            yield GatheredBatch(sampler.last, found.pop(), gathered)

    def counts(self, counters: Counters) -> None:
        """Add the storage's reads to `counters`."""
        if not isinstance(self._storage, torch.Tensor):
            self._storage.counts(counters)

    def close(self) -> None:
        """Close the storage and drop the graph."""
        if not isinstance(self._storage, torch.Tensor):
            self._storage.close()
        self._storage = torch.empty(0)
        self._graph = None


class DglSystem(CachedSystem):
    """System that loads through DGL. A wheel of DGL from PyPI has no CUDA, so there is none here either."""

    _graph: Any = None
    _labels: npt.NDArray[np.int64] | None = None

    @classmethod
    def load_libraries(cls) -> None:
        """Import DGL."""
        require_dgl(cls.info.name)

    @classmethod
    def is_faithful(cls, options: Options) -> bool:
        """Return whether our sampler draws the mini-batches."""
        return cls.info.faithful and not _dgl_samples(options)

    @property
    def _dgl_samples(self) -> bool:
        return _dgl_samples(self.options)

    @property
    def _largest_on_device(self) -> int:
        """0 on the processor without a cache: DGL's gathered tensor is the mini-batch's table."""
        return 0 if self.runtime.accelerator.kind == "cpu" and not self._caches else super()._largest_on_device

    @property
    def _index_bytes(self) -> int:
        """Bytes of the int64 ids that DGL needs."""
        return 8 * self.workload.dataset.num_edges

    @property
    def _converted(self) -> bool:
        """Whether DGL samples from a mapped graph of 32-bit ids, which must be converted."""
        return self._dgl_samples and self._mapped and self.workload.dataset.index_dtype != np.int64

    def _topology_items(self) -> tuple[PlanItem, ...]:
        items = (*super()._topology_items(), PlanItem("seed nodes of DGL", self._dgl_seed_bytes))
        if self._mapped and self._dgl_samples:
            items += (PlanItem("indptr of DGL", 8 * (self.workload.dataset.num_nodes + 1)),)
        return (*items, PlanItem("indices of DGL", self._index_bytes)) if self._converted else items

    @property
    def _dgl_seed_bytes(self) -> int:
        """Bytes of an epoch's seed nodes in DGL's DataLoader: the nodes, their positions, and the nodes by position."""
        wanted = self._bounds.num_batches * self.workload.sampler.batch_size
        return 24 * min(wanted, len(self.workload.dataset.memmap("train")))

    def _check_workload(self) -> None:
        super()._check_workload()
        if self._dgl_samples and self.workload.sampler.name != "neighbor":
            raise InputError(
                f"{self.info.name}: sampler=dgl is DGL's neighbour sampler, and the workload's is "
                f"{self.workload.sampler.name}",
                "use sampler=outcore",
            )
        if self._dgl_samples and self.runtime.stages == "sample":
            raise InputError(
                f"{self.info.name}: sampling alone times our sampler, and sampler is dgl", "use sampler=outcore"
            )

    def _staging_items(self) -> tuple[PlanItem, ...]:
        """Plan DGL's tensor of gathered rows: torch may hold the previous one, and the heap a hole of the same size."""
        return (PlanItem("rows gathered by DGL", 3 * self._bounds.max_nodes * self._rows.row_bytes),)

    def _make_sample(self) -> Sample:
        dgl = require_dgl(self.info.name)
        dataset, mapped = self.workload.dataset, self._mapped
        if mapped:
            sample = super()._make_sample()
            # Our sampler reads the map; DGL asks its graph only for the number of nodes.
            self._graph = nodes_only(dgl, dataset.num_nodes)
            if self._dgl_samples:
                indices = int64_of(dataset.memmap("indices")) if self._converted else dataset.memmap("indices")
                self._graph = dgl_graph(dgl, dataset.load("indptr"), indices)
                self._labels = dataset.memmap("labels")
            return sample
        self._check_files()
        indptr, labels = dataset.load("indptr"), dataset.load("labels")
        indices = int64_of(dataset.memmap("indices"))
        self._graph = dgl_graph(dgl, indptr, indices)
        self._labels = labels if self._dgl_samples else None
        return self._sample_of(indptr, indices, labels)

    def _make_gatherer(self, features: HostFeatures | None, cache: DeviceCache) -> Gatherer:
        return DglGatherer(
            self.info.name,
            self.workload,
            cache,
            self.clock,
            self._graph,
            self._storage(features),
            labels=self._labels,
            hops=self._hops,
            max_nodes=self._bounds.max_nodes,
        )

    def _storage(self, features: HostFeatures | None) -> torch.Tensor | RowStorage:
        assert features is not None
        return features.tensor

    def notes(self) -> dict[str, str]:
        """Return the base's notes, and the sampler used."""
        by = "DGL's own sampler: not faithful" if self._dgl_samples else "our sampler behind DGL's DataLoader"
        return {**super().notes(), "sampled_by": by}

    def close(self) -> None:
        """Close the base, and drop the graph."""
        super().close()
        self._graph = self._labels = None
