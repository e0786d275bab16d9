"""DGL 1.1.3 as a peer: import beside current packages, conversions, and its DataLoader
driven a mini-batch at a time.

DGL's DataLoader drives, and its gather fetches the rows. By default it runs our
sampler, so mini-batches equal the workload's; DGL's own sampler is an option. DGL is
optional: without it its systems end as unsupported, with the command that installs it.
Its graphs always get 64-bit ids, since its 32-bit ones make blocks whose edges point
past their sources.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from workloads.errors import HostError, require
from workloads.sampling.batch import Block, SampledBatch
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]
Fetch = Callable[[torch.Tensor], torch.Tensor]
_PIECE = 1 << 20
INSTALL = "install it with `pip install dgl==1.1.3 setuptools`"


def import_dgl() -> Any:
    """Import DGL with its PyTorch backend and one OpenMP thread, unless OMP_NUM_THREADS
    is set.

    DGL requires `setuptools.extern.packaging`, which setuptools dropped; the original
    `packaging` replaces it.

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
        raise HostError(
            f"{system} loads through DGL, which cannot be imported here ({error})",
            INSTALL,
        ) from error


def int64_of(ids: npt.NDArray[Any]) -> Ids:
    """Convert memory-mapped ids to int64 in memory, piece by piece, without a second
    full copy."""
    found = np.empty(len(ids), dtype=np.int64)
    for start in range(0, len(ids), _PIECE):
        found[start : start + _PIECE] = ids[start : start + _PIECE]
    return found


def dgl_graph(
    dgl: Any, indptr: npt.NDArray[np.int64], indices: npt.NDArray[Any]
) -> Any:
    """Make a DGL graph in CSC with int64 ids; shares int64 arrays, converts others.

    Raises:
        InputError: `indptr` is not int64.
    """
    require(indptr.dtype == np.int64, f"indptr is {indptr.dtype}", "give DGL int64")
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # torch warns of read-only maps; DGL does not write
        parts = (
            torch.from_numpy(indptr),
            torch.from_numpy(indices.astype(np.int64, copy=False)),
        )
    return dgl.graph(
        ("csc", (*parts, torch.empty(0, dtype=torch.int64))), num_nodes=len(indptr) - 1
    )


def to_dgl_blocks(dgl: Any, sampled: SampledBatch) -> list[Any]:
    """Convert the mini-batch's blocks to DGL's (message-flow graphs), input layer
    first."""
    found = []
    for block in sampled.blocks:
        indices = torch.from_numpy(block.indices.astype(np.int64))
        csc = (
            torch.from_numpy(block.indptr),
            indices,
            torch.empty(0, dtype=torch.int64),
        )
        found.append(
            dgl.create_block(
                ("csc", csc), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst
            )
        )
    return found


def from_dgl_blocks(
    blocks: list[Any],
    nodes: torch.Tensor,
    epoch: int,
    index: int,
    labels: npt.NDArray[np.int64],
) -> SampledBatch:
    """Convert a mini-batch sampled by DGL to ours; in both, the sources begin with the
    destinations.

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
    ids = nodes.numpy()
    seeds = ours[-1].num_dst
    own = np.asarray(labels[ids[:seeds]], dtype=np.int64)
    edges = sum(block.num_edges for block in ours)
    lists = sum(block.num_dst for block in ours)
    return SampledBatch(epoch, index, ids, seeds, tuple(ours), own, edges, lists)


@dataclass(frozen=True)
class Drawn:
    """A mini-batch in DGL's form.

    Attributes:
        nodes: int64 [n], the input nodes.
        seeds: int64 [s], the output nodes.
        blocks: DGL's blocks, input layer first.
    """

    nodes: torch.Tensor
    seeds: torch.Tensor
    blocks: list[Any]

    def batch(
        self, epoch: int, index: int, labels: npt.NDArray[np.int64]
    ) -> SampledBatch:
        """Return the mini-batch in our form; `labels`: int64 [N]."""
        return from_dgl_blocks(self.blocks, self.nodes, epoch, index, labels)


class NeighborDraw:
    """DGL's own neighbour sampler; its one generator is seeded here, on the thread that
    draws.

    Args:
        workload: provides the sampler's settings and the seed.
    """

    def __init__(self, dgl: Any, workload: Workload, epoch: int) -> None:
        spec = workload.sampler
        # DGL lists fan-outs input layer first.
        fanout = list(reversed(spec.fanout))
        self._sampler = dgl.dataloading.NeighborSampler(fanout, replace=spec.replace)
        dgl.seed((workload.seed * 1_000_003 + epoch) % 2**31)

    def __call__(self, graph: Any, seeds: npt.NDArray[np.int64]) -> Drawn:
        """Draw the next mini-batch from its seed nodes (int64 [n])."""
        return Drawn(*self._sampler.sample(graph, torch.from_numpy(seeds)))


class MiniBatchSampler:
    """Sampler for DGL's DataLoader that hands out the mini-batch that was set last.

    Attributes:
        next: the mini-batch.
        ids: int64 [m], rows that DGL must gather for it.
    """

    def __init__(self, dgl: Any) -> None:
        self._dgl = dgl
        self.next: Drawn | None = None
        self.ids = torch.empty(0, dtype=torch.int64)

    def sample(self, graph: Any, seeds: torch.Tensor) -> Any:
        """Return DGL's tuple: input nodes, seed nodes, blocks, and a placeholder for
        the rows."""
        drawn = self.next
        if drawn is None or not torch.equal(drawn.seeds, seeds):
            raise RuntimeError(
                "DGL asks for other seed nodes than those of the next mini-batch"
            )
        return (
            drawn.nodes,
            drawn.seeds,
            drawn.blocks,
            self._dgl.frame.LazyFeature("rows", self.ids),
        )


def data_loader(
    dgl: Any, graph: Any, seeds: Sequence[Ids], sampler: Any, rows: torch.Tensor | Fetch
) -> Iterator[torch.Tensor]:
    """Yield the rows that DGL's DataLoader gathers for each mini-batch that `sampler`
    hands out.

    Args:
        seeds: seed nodes of each mini-batch, in order; all but the last of equal
            length.
        rows: a tensor [N, dim], or a function that returns the rows of given ids.
    """
    if not seeds:
        return
    own: dict[str, Any] = {
        "device": "cpu",
        "shuffle": False,
        "drop_last": False,
        "num_workers": 0,
    }
    every = torch.from_numpy(np.concatenate(seeds))
    loader = dgl.dataloading.DataLoader(
        graph, every, sampler, batch_size=len(seeds[0]), **own
    )
    loader.attach_data(
        "rows", rows if isinstance(rows, torch.Tensor) else _storage(dgl, rows)
    )
    # Suppresses DGL's warning in every epoch; there are no worker processes to bind to
    # cores.
    loader.cpu_affinity_enabled = True
    for _, _, _, gathered in loader:
        yield gathered


def _storage(dgl: Any, fetch: Fetch) -> Any:
    """Wrap `fetch` in a DGL `FeatureStorage`; the base class exists only once DGL is
    imported."""

    def of_dgl(
        self: Any,
        indices: torch.Tensor,
        device: Any,
        pin_memory: bool = False,
        **kwargs: Any,
    ) -> torch.Tensor:
        return fetch(indices)

    return type("FetchedRows", (dgl.storages.FeatureStorage,), {"fetch": of_dgl})()
