"""The base of the systems that load through DGL: its DataLoader drives, its gather fetches the rows.

By default DGL's DataLoader runs our sampler, so mini-batches equal the workload's; DGL's own sampler is an option.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field

from systems.engine.dgl.bridge import (
    Fetch,
    LoaderSampler,
    data_loader,
    dgl_graph,
    int64_of,
    nodes_only,
    require_dgl,
    sampled_by_dgl,
    sampled_by_us,
)
from systems.engine.loading.cached_system import CachedSystem, GatheredBatch
from systems.engine.loading.pipeline import Channel
from systems.engine.loading.sized import LoadingRun, Sample
from systems.interface import Options, PlanItem
from workloads.errors import BudgetError, InputError
from workloads.sampling.batch import SampledBatch

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

    def _prepare_gathering(self) -> None:
        """Allocate nothing: DGL allocates the rows of each mini-batch."""

    def _source(self) -> torch.Tensor | Fetch:
        """Return the rows for DGL's DataLoader: a tensor [N, dim], or a function that returns those of given ids."""
        assert self._features is not None
        return self._features.tensor

    @property
    def _loading_samples(self) -> bool:
        return self._dgl_samples

    def _gathered(
        self, run: LoadingRun, sampled: Iterator[SampledBatch], turns: Channel[int]
    ) -> Iterator[GatheredBatch]:
        """Yield every mini-batch with the rows that DGL gathered."""
        cache, dgl = self._cache, require_dgl(self.info.name)
        assert cache is not None
        found = []

        def wanted(structure: SampledBatch) -> Ids:
            if structure.num_nodes > self._bounds.max_nodes:
                raise BudgetError(
                    f"{self.info.name}: DGL sampled {structure.num_nodes} nodes, the plan holds "
                    f"{self._bounds.max_nodes}",
                    "use sampler=outcore, whose largest mini-batch is known, or lower the batch size",
                )
            found.append(cache.lookup(structure.nodes))
            return structure.nodes[found[-1].misses]

        draw = sampled_by_us(dgl, sampled, self.clock)
        if self._labels is not None:
            draw = sampled_by_dgl(dgl, self.workload, self._labels, self._hops, run.epoch, run.start, self.clock)
        sampler = LoaderSampler(dgl, draw, wanted, self.clock)
        rows = data_loader(dgl, self._graph, run.seeds, sampler, self._source())
        while True:
            # DGL loads the next mini-batch only after the previous one was trained.
            turns.get()
            gathered = next(rows, None)
            if gathered is None:
                return
            assert sampler.last is not None
            self.clock.add("extract", sampler.last.index, sampler.ready_at, time.monotonic())
            yield GatheredBatch(sampler.last, found.pop(), gathered)

    def notes(self) -> dict[str, str]:
        """Return the base's notes, and the sampler used."""
        by = "DGL's own sampler: not faithful" if self._dgl_samples else "our sampler behind DGL's DataLoader"
        return {**super().notes(), "sampled_by": by}

    def close(self) -> None:
        """Close the base, and drop the graph."""
        super().close()
        self._graph = self._labels = None
