"""DGL 1.1.3 as a peer: import beside current packages, and the base of the systems that load through its DataLoader.

DGL's DataLoader drives, and its gather fetches the rows. By default it runs our sampler, so mini-batches equal the
workload's; DGL's own sampler is an option. DGL is optional: without it its systems end as unsupported, with the command
that installs it. Its graphs always get 64-bit ids, since its 32-bit ones make blocks whose edges point past their
sources.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field

from systems.engine.loading.cached_system import CachedSystem, GatheredBatch
from systems.engine.loading.pipeline import Channel
from systems.engine.loading.sized import LoadingRun, Sample
from systems.interface import Options, PlanItem, StageClock
from workloads.errors import BudgetError, HostError, require
from workloads.sampling.batch import Block, SampledBatch
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]
Fetch = Callable[[torch.Tensor], torch.Tensor]
#: A mini-batch, and DGL's input nodes, output nodes and blocks of it.
Drawn = tuple[SampledBatch, torch.Tensor, torch.Tensor, list[Any]]
Draw = Callable[[Any, torch.Tensor], Drawn]
_PIECE = 1 << 20
INSTALL = "install it with `pip install dgl==1.1.3 setuptools`"


def import_dgl() -> Any:
    """Import DGL with its PyTorch backend and one OpenMP thread, unless OMP_NUM_THREADS is set.

    DGL requires `setuptools.extern.packaging`, which setuptools dropped; the original `packaging` replaces it.

    Raises:
        ImportError: DGL is not installed (`pip install dgl==1.1.3`).
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import packaging
    import packaging.version

    importlib.import_module("setuptools")
    extern = types.ModuleType("setuptools.extern")
    extern.packaging = packaging  # type: ignore[attr-defined]
    sys.modules.setdefault("setuptools.extern", extern)
    sys.modules.setdefault("setuptools.extern.packaging", packaging)
    import dgl

    return dgl


def require_dgl(system: str) -> Any:
    """Import DGL for a system that depends on it.

    Raises:
        HostError: DGL cannot be imported; the run ends as unsupported.
    """
    try:
        return import_dgl()
    except ImportError as error:
        raise HostError(f"{system} loads through DGL, which cannot be imported here ({error})", INSTALL) from error


def int64_of(ids: npt.NDArray[Any]) -> Ids:
    """Convert memory-mapped ids to int64 in memory, piece by piece, without a second full copy."""
    found = np.empty(len(ids), dtype=np.int64)
    for start in range(0, len(ids), _PIECE):
        found[start : start + _PIECE] = ids[start : start + _PIECE]
    return found


def dgl_graph(dgl: Any, indptr: npt.NDArray[np.int64], indices: npt.NDArray[Any]) -> Any:
    """Make a DGL graph in CSC with int64 ids; shares int64 arrays, converts others.

    Raises:
        InputError: `indptr` is not int64.
    """
    require(indptr.dtype == np.int64, f"indptr is {indptr.dtype}", "give DGL int64")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of read-only maps; DGL does not write
        parts = (torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64, copy=False)))
    return dgl.graph(("csc", (*parts, torch.empty(0, dtype=torch.int64))), num_nodes=len(indptr) - 1)


def to_dgl_blocks(dgl: Any, sampled: SampledBatch) -> list[Any]:
    """Convert the mini-batch's blocks to DGL's (message-flow graphs), input layer first."""
    found = []
    for block in sampled.blocks:
        indices = torch.from_numpy(block.indices.astype(np.int64))
        csc = (torch.from_numpy(block.indptr), indices, torch.empty(0, dtype=torch.int64))
        found.append(dgl.create_block(("csc", csc), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst))
    return found


def from_dgl_blocks(
    blocks: list[Any], nodes: torch.Tensor, epoch: int, index: int, labels: npt.NDArray[np.int64]
) -> SampledBatch:
    """Convert a mini-batch sampled by DGL to ours; in both, the sources begin with the destinations.

    Args:
        blocks: input layer first.
        nodes: int64 [n], the input nodes.
        labels: int64 [N], of all nodes.
    """
    ours = []
    for block in blocks:
        indptr, indices, _ = block.adj_tensors("csc")
        shape = int(block.num_src_nodes()), int(block.num_dst_nodes())
        ours.append(Block(indptr.numpy(), indices.numpy().astype(np.int32), *shape))
    ids, seeds = nodes.numpy(), ours[-1].num_dst
    own = np.asarray(labels[ids[:seeds]], dtype=np.int64)
    edges, lists = sum(block.num_edges for block in ours), sum(block.num_dst for block in ours)
    return SampledBatch(epoch, index, ids, seeds, tuple(ours), own, edges, lists)


@dataclass(eq=False)
class LoaderSampler:
    """Sampler for DGL's DataLoader.

    Attributes:
        draw: returns the next mini-batch and DGL's form of it, given graph and seed nodes.
        wanted: returns the ids of a mini-batch whose rows DGL must gather.
        clock: records the time of finding these ids (`assemble`).
        last, ready_at: last mini-batch handed out, and its time in monotonic seconds.
    """

    dgl: Any
    draw: Draw
    wanted: Callable[[SampledBatch], Ids]
    clock: StageClock
    last: SampledBatch | None = None
    ready_at: float = 0.0

    def sample(self, graph: Any, seeds: torch.Tensor) -> Any:
        """Return DGL's tuple: input nodes, seed nodes, blocks, and a placeholder for the rows."""
        structure, *drawn = self.draw(graph, seeds)
        with self.clock.stage("assemble", structure.index):
            ids = torch.from_numpy(self.wanted(structure))
        self.last, self.ready_at = structure, time.monotonic()
        return (*drawn, self.dgl.frame.LazyFeature("rows", ids))


def sampled_by_us(dgl: Any, sampled: Iterator[SampledBatch], clock: StageClock) -> Draw:
    """Draw mini-batches of our samplers, in the same order.

    DGL samples in parallel by worker processes; ours are threads, since our sampler releases the GIL.
    """

    def draw(graph: Any, seeds: torch.Tensor) -> Drawn:
        structure = next(sampled, None)
        if structure is None or not np.array_equal(structure.nodes[: structure.num_seeds], seeds.numpy()):
            raise RuntimeError("DGL asks for other seed nodes than those of the next mini-batch")
        with clock.stage("assemble", structure.index):
            blocks = to_dgl_blocks(dgl, structure)
        return structure, torch.from_numpy(structure.nodes), seeds, blocks

    return draw


def sampled_by_dgl(
    dgl: Any, workload: Workload, labels: npt.NDArray[np.int64], hops: int, epoch: int, start: int, clock: StageClock
) -> Draw:
    """Draw mini-batches by DGL's own neighbour sampler: draws differ from the workload's, so not faithful.

    Args:
        workload: provides the sampler's settings and the seed.
        labels: int64 [N].
        hops: number of hops, nearest the seed nodes first.
        epoch, start: epoch and number of the first mini-batch; DGL's one generator is seeded for each epoch.
    """
    spec, numbers = workload.sampler, itertools.count(start)
    # DGL lists fan-outs input layer first.
    sampler = dgl.dataloading.NeighborSampler(list(reversed(spec.fanout[:hops])), replace=spec.replace)
    dgl.seed((workload.seed * 1_000_003 + epoch) % 2**31)

    def draw(graph: Any, seeds: torch.Tensor) -> Drawn:
        index = next(numbers)
        with clock.stage("sample", index):
            nodes, outputs, blocks = sampler.sample(graph, seeds)
        with clock.stage("assemble", index):
            structure = from_dgl_blocks(blocks, nodes, epoch, index, labels)
        return structure, nodes, outputs, blocks

    return draw


def data_loader(
    dgl: Any, graph: Any, seeds: Sequence[Ids], sampler: Any, rows: torch.Tensor | Fetch
) -> Iterator[torch.Tensor]:
    """Yield the rows that DGL's DataLoader gathers for each mini-batch; `sampler.last` is the mini-batch.

    Args:
        seeds: seed nodes of each mini-batch, in order; all but the last of equal length.
        rows: a tensor [N, dim], or a function that returns the rows of given ids.
    """
    if not seeds:
        return
    own: dict[str, Any] = {"device": "cpu", "shuffle": False, "drop_last": False, "num_workers": 0}
    every = torch.from_numpy(np.concatenate(seeds))
    loader = dgl.dataloading.DataLoader(graph, every, sampler, batch_size=len(seeds[0]), **own)
    loader.attach_data("rows", rows if isinstance(rows, torch.Tensor) else _storage(dgl, rows))
    # Suppresses DGL's warning in every epoch; there are no worker processes to bind to cores.
    loader.cpu_affinity_enabled = True
    for _, _, _, gathered in loader:
        yield gathered


def _storage(dgl: Any, fetch: Fetch) -> Any:
    """Wrap `fetch` in a DGL `FeatureStorage`; the base class exists only once DGL is imported."""

    def of_dgl(self: Any, indices: torch.Tensor, device: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        return fetch(indices)

    return type("FetchedRows", (dgl.storages.FeatureStorage,), {"fetch": of_dgl})()


class SamplerOption(Options):
    """Option that selects the sampler of DGL's DataLoader."""

    sampler: Literal["outcore", "dgl"] = Field(
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
        if self._dgl_samples:
            name, own = self.info.name, self.workload.sampler.name
            said = f"{name}: sampler=dgl is DGL's neighbour sampler, and the workload's is {own}"
            require(own == "neighbor", said, "use sampler=outcore")
            said = f"{name}: sampling alone times our sampler, and sampler is dgl"
            require(self.runtime.stages != "sample", said, "use sampler=outcore")

    def _staging_items(self) -> tuple[PlanItem, ...]:
        """Plan DGL's tensor of gathered rows: torch may hold the previous one, and the heap a hole of the same size."""
        return (PlanItem("rows gathered by DGL", 3 * self._bounds.max_nodes * self._rows.row_bytes),)

    def _make_sample(self) -> Sample:
        dgl = require_dgl(self.info.name)
        dataset, mapped = self.workload.dataset, self._mapped
        if mapped:
            sample = super()._make_sample()
            # Our sampler reads the map; DGL asks its graph only for the number of nodes.
            nothing = torch.empty(0, dtype=torch.int64)
            self._graph = dgl.graph((nothing, nothing), num_nodes=dataset.num_nodes)
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
