"""DGL 1.1.3 as a peer: import beside current packages, and loading of mini-batches through its DataLoader.

DGL is optional: without it its systems end as unsupported, with the command that installs it. Its graphs always get
64-bit ids, since its 32-bit ones make blocks whose edges point past their sources.
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
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from systems.interface import StageClock
from workloads.errors import HostError, InputError
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


def nodes_only(dgl: Any, num_nodes: int) -> Any:
    """Make a graph without edges, for a DataLoader whose sampler never asks DGL for edges."""
    nothing = torch.empty(0, dtype=torch.int64)
    return dgl.graph((nothing, nothing), num_nodes=num_nodes)


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
    if indptr.dtype != np.int64:
        raise InputError(f"indptr is {indptr.dtype}", "give DGL int64")
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
        ours.append(
            Block(
                indptr.numpy(), indices.numpy().astype(np.int32), int(block.num_src_nodes()), int(block.num_dst_nodes())
            )
        )
    ids = nodes.numpy()
    seeds = ours[-1].num_dst
    edges = sum(block.num_edges for block in ours)
    lists = sum(block.num_dst for block in ours)
    return SampledBatch(
        epoch=epoch,
        index=index,
        nodes=ids,
        num_seeds=seeds,
        blocks=tuple(ours),
        labels=np.asarray(labels[ids[:seeds]], dtype=np.int64),
        edge_reads=edges,
        list_reads=lists,
    )


class LoaderSampler:
    """Sampler for DGL's DataLoader.

    Args:
        draw: returns the next mini-batch and DGL's form of it, given graph and seed nodes.
        wanted: returns the ids of a mini-batch whose rows DGL must gather.
        clock: records the time of looking those up (`assemble`).

    Attributes:
        last, ready_at: last mini-batch handed out, and its time in monotonic seconds.
    """

    def __init__(self, dgl: Any, draw: Draw, wanted: Callable[[SampledBatch], Ids], clock: StageClock) -> None:
        self._dgl = dgl
        self._draw = draw
        self._wanted = wanted
        self._clock = clock
        self.last: SampledBatch | None = None
        self.ready_at = 0.0

    def sample(self, graph: Any, seeds: torch.Tensor) -> Any:
        """Return DGL's tuple: input nodes, seed nodes, blocks, and a placeholder for the rows."""
        structure, *drawn = self._draw(graph, seeds)
        with self._clock.stage("assemble", structure.index):
            ids = torch.from_numpy(self._wanted(structure))
        self.last, self.ready_at = structure, time.monotonic()
        return (*drawn, self._dgl.frame.LazyFeature("rows", ids))


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
    loader = dgl.dataloading.DataLoader(
        graph,
        torch.from_numpy(np.concatenate(seeds)),
        sampler,
        device="cpu",
        batch_size=len(seeds[0]),
        shuffle=False,
        drop_last=False,
        num_workers=0,
    )
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
