"""A share of an epoch: some mini-batches of two epochs, sampled as in a run, with the rows and pages of each.

The first epoch's mini-batches warm the simulated caches, the second's are counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from harness.advise.implied import ImpliedGraph
    from systems.interface import DiskProfile
    from workloads.accelerator import Accelerator
    from workloads.sampling.batch import SampledBatch
    from workloads.workload import Workload

Ids = npt.NDArray[np.int64]

#: Most row and page accesses that are held in memory, 4 bytes each.
MOST_ACCESSES = 1 << 27
# Assumed ratio of a sampler's working memory to its largest mini-batch, where no real sampler exists.
_SCRATCH_OF_BATCH = 2


@dataclass
class Share:
    """Mini-batches of the first two epochs.

    Attributes:
        workload, whole: workload cut to the sampled mini-batches, and the complete one.
        num_batches: mini-batches of a whole epoch.
        nodes: uint32, unique nodes of each mini-batch, the first epoch's before the second's.
        pages: uint32, unique pages of `indices` that sampling each mini-batch touches.
        hop_pages: uint32, the same pages by hop in the order of the blocks, the seed nodes' hop last.
        train_s: seconds of each mini-batch's training step alone.
        edges, nbytes: edges of each mini-batch's blocks, and bytes of its arrays.
        sample_s: mean processor seconds of sampling a mini-batch.
        graph_bytes: mean bytes of a sampled mini-batch.
        hot: function from a count to the ids of the most popular nodes, where popularity is known; else None.
    """

    workload: Workload
    whole: Workload
    num_batches: int
    nodes: list[npt.NDArray[np.uint32]] = field(default_factory=list)
    pages: list[npt.NDArray[np.uint32]] = field(default_factory=list)
    hop_pages: list[list[npt.NDArray[np.uint32]]] = field(default_factory=list)
    train_s: list[float] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    sample_s: float = 0.0
    graph_bytes: float = 0.0
    hot: Callable[[int], Ids] | None = None

    @property
    def sampled(self) -> int:
        """Mini-batches of one epoch that were sampled."""
        return len(self.nodes) // 2

    @property
    def scale(self) -> float:
        """Factor from the sampled mini-batches of an epoch to the whole epoch."""
        return self.num_batches / max(1, self.sampled)

    @property
    def rows(self) -> float:
        """Feature rows accessed in an epoch."""
        return self.scale * sum(len(nodes) for nodes in self.nodes[self.sampled :])

    def epoch_s(self) -> float:
        """Return the seconds of an epoch's training steps."""
        return self.scale * sum(self.train_s[self.sampled :])


def take_share(
    workload: Workload, accelerator: Accelerator, batches: int, progress: Callable[[str], None] = lambda text: None
) -> Share:
    """Sample up to `batches` mini-batches of each of two epochs; read `indptr` and the lists drawn from, no features.

    Args:
        batches: greatest number of mini-batches to sample of an epoch.

    Raises:
        InputError: the mini-batches make more accesses than `MOST_ACCESSES`.
    """
    from systems.engine.io.topology import mapped_sampler

    indptr = workload.dataset.load("indptr")
    cut, num_batches = _cut(workload, batches)
    sampler = mapped_sampler(cut, indptr=indptr)
    share = _filled(Share(cut, workload, num_batches), sampler, indptr, _Steps(cut, accelerator), progress)
    if share.sampled < num_batches:
        _keep_bounds(share, sampler.scratch_bytes)
    return share


def implied_share(
    workload: Workload,
    graph: ImpliedGraph,
    accelerator: Accelerator,
    batches: int,
    progress: Callable[[str], None] = lambda text: None,
) -> Share:
    """Sample an implied graph as `take_share` does a stored one; its sampling time is unknown and set to 0.

    Args:
        graph: implied graph, from which `share.hot` comes.
        batches: greatest number of mini-batches to sample of an epoch.

    Raises:
        InputError: the mini-batches make more accesses than `MOST_ACCESSES`.
    """
    cut, num_batches = _cut(workload, batches)
    share = _filled(Share(cut, workload, num_batches), graph, graph.indptr, _Steps(cut, accelerator), progress)
    share.sample_s, share.hot = 0.0, graph.hottest
    _keep_bounds(share, _SCRATCH_OF_BATCH * max(share.nbytes))
    return share


def _keep_bounds(share: Share, scratch_bytes: int) -> None:
    """Keep bounds for the whole epoch, on which systems plan, by repeating the sampled mini-batches."""
    from workloads.sampling.make import BatchBounds, keep_bounds

    times = -(-share.num_batches // share.sampled)
    nodes, edges = (
        np.tile(np.array(sizes, dtype=np.int64).reshape(2, -1), times)[:, : share.num_batches]
        for sizes in ([len(part) for part in share.nodes], share.edges)
    )
    first = int(nodes.argmax())
    bounds = BatchBounds(
        int(nodes.max()),
        int(edges.max()),
        max(share.nbytes),
        divmod(first, share.num_batches),
        nodes,
        edges,
        scratch_bytes,
    )
    keep_bounds(share.whole, bounds)


def _cut(workload: Workload, batches: int) -> tuple[Workload, int]:
    """Cut a workload to at most `batches` mini-batches an epoch; return it with an epoch's number of mini-batches."""
    from workloads.sampling.make import make_seed_plan

    num_batches = make_seed_plan(workload).num_batches
    count = min(batches, num_batches)
    return replace(workload, sampler=replace(workload.sampler, max_batches=count)), num_batches


class Sampler(Protocol):
    """Interface of samplers of mini-batches."""

    def sample(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """Sample one mini-batch."""


def _filled(share: Share, sampler: Sampler, indptr: Any, steps: _Steps, progress: Callable[[str], None]) -> Share:
    from systems.engine.cache.split_tuner import touched_pages
    from workloads.sampling.make import make_seed_plan

    cut = share.workload
    plan, count = make_seed_plan(cut), cut.sampler.max_batches
    sizes: list[int] = []
    held, started = 0, time.thread_time()
    spent = 0.0
    for epoch in range(2):
        for index, seeds in enumerate(plan.batches(epoch)):
            progress(f"sampling mini-batch {epoch * count + index + 1} of {2 * count}")
            started = time.thread_time()
            batch = sampler.sample(epoch, index, seeds)
            spent += time.thread_time() - started
            share.nodes.append(batch.nodes.astype(np.uint32))
            share.hop_pages.append(
                [
                    np.unique(touched_pages(cut, replace(batch, blocks=(block,)), indptr)[1]).astype(np.uint32)
                    for block in batch.blocks
                ]
            )
            share.pages.append(np.unique(np.concatenate(share.hop_pages[-1])))
            share.train_s.append(steps.seconds(batch))
            sizes.append(sum(block.indptr.nbytes + block.indices.nbytes for block in batch.blocks) + batch.nodes.nbytes)
            share.edges.append(batch.num_edges)
            share.nbytes.append(batch.nbytes)
            held += len(share.nodes[-1]) + len(share.pages[-1]) + sum(len(pages) for pages in share.hop_pages[-1])
        if epoch == 0 and held > MOST_ACCESSES // 2:
            raise _too_large(count, held)
    share.sample_s = spent / max(1, len(share.nodes))
    share.graph_bytes = float(np.mean(sizes)) if sizes else 0.0
    return share


def _too_large(count: int, held: int) -> Exception:
    from workloads.errors import InputError

    fewer = max(1, count * MOST_ACCESSES // 2 // held)
    return InputError(
        f"{count} mini-batches make {held:,} accesses an epoch, more than are held", f"use --batches {fewer}"
    )


class _Steps:
    """Seconds of training steps: modelled on an emulated device, measured on a few mini-batches on a real one."""

    _MEASURED = 3

    def __init__(self, workload: Workload, accelerator: Accelerator) -> None:
        from workloads.training import Trainer

        dataset = workload.dataset
        self._accelerator = accelerator
        self._trainer = Trainer(workload.model, dataset.dim, dataset.num_classes, accelerator, workload.seed)
        self._dtype, self._dim = dataset.feature_dtype, dataset.dim
        self._rates: list[float] = []

    def seconds(self, batch: SampledBatch) -> float:
        modelled = self._trainer.modelled_seconds(batch)
        if modelled is not None:
            return modelled
        work = batch.num_nodes + sum(block.num_edges for block in batch.blocks)
        if len(self._rates) <= self._MEASURED:
            self._rates.append(self._measured(batch) / work)
        # The first step includes one-off costs.
        return work * float(np.median(self._rates[1:] or self._rates))

    def _measured(self, batch: SampledBatch) -> float:
        import torch

        kind = getattr(torch, str(self._dtype))
        table: Any = torch.zeros((batch.num_nodes, self._dim), dtype=kind, device=self._accelerator.torch_device)
        start = time.perf_counter()
        self._trainer.step(batch, table)
        self._accelerator.synchronize()
        return time.perf_counter() - start


def row_misses(policy: str, share: Share, capacity: int) -> int:
    """Count the misses of the share's rows; where popularity is known the cache starts with the most popular rows."""
    nodes = share.workload.dataset.num_nodes
    hot = [] if share.hot is None else [share.hot(min(capacity, nodes)).astype(np.uint32)]
    return misses(policy, [*hot, *share.nodes], nodes, capacity, warm=len(hot) + share.sampled)


def misses(
    policy: str, parts: list[npt.NDArray[np.uint32]], ids: int, capacity: int, *, warm: int | None = None
) -> int:
    """Count the misses of a cache of `capacity` ids over the later `parts`, after the first `warm` parts warmed it.

    Args:
        policy: name in `systems.engine.cache.policies.DYNAMIC`.
        parts: ids below `ids`, unique in each part.
        warm: number of warming parts; None: half of the parts.
    """
    from systems import _native

    half = len(parts) // 2 if warm is None else warm
    size = np.array([max(0, capacity)], dtype=np.int64)
    begins = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    every = np.concatenate(parts).astype(np.uint32) if parts else np.empty(0, dtype=np.uint32)
    before = begins[: half + 1]
    first = _native.policy_misses(policy, every[: before[-1]], before, ids, size, 1)
    return int(_native.policy_misses(policy, every, begins, ids, size, 1)[0] - first[0])


def device_seconds(reads: dict[int, float], profile: DiskProfile) -> float:
    """Return the device's seconds for reads given as request bytes -> number of requests."""
    return profile.seconds(reads)
