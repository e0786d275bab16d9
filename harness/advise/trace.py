"""Making of a trace (`systems/forecast.py`): some mini-batches of two epochs, sampled as in a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.advise.implied import ImpliedGraph
from harness.progress import stages
from systems.engine.cache.split_tuner import touched_pages
from systems.engine.io.topology import mapped_sampler
from systems.forecast import Trace
from workloads.accelerator import Accelerator
from workloads.errors import InputError
from workloads.sampling.batch import SampledBatch
from workloads.sampling.bounds import BatchBounds, keep_bounds
from workloads.sampling.make import make_seed_plan
from workloads.training import Trainer
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]

#: Most row and page accesses that are held in memory, 4 bytes each.
MOST_ACCESSES = 1 << 27
# Assumed ratio of a sampler's working memory to its largest mini-batch, where no real sampler exists.
_SCRATCH_OF_BATCH = 2


def take_trace(
    workload: Workload,
    accelerator: Accelerator,
    batches: int,
    progress: Callable[[str], None] = lambda text: None,
    graph: ImpliedGraph | None = None,
) -> Trace:
    """Sample some mini-batches of each of two epochs; read `indptr` and the lists drawn from, no features.

    Args:
        batches: greatest number of mini-batches to sample of an epoch.
        graph: implied graph to sample in place of the stored one; the time of sampling it is set to 0.

    Raises:
        InputError: the mini-batches make more accesses than `MOST_ACCESSES`.
    """
    num_batches = make_seed_plan(workload).num_batches
    cut = replace(workload, sampler=replace(workload.sampler, max_batches=min(batches, num_batches)))
    trace = Trace(cut, workload, num_batches)
    indptr: Any = workload.dataset.load("indptr") if graph is None else graph.indptr
    sampler = graph or mapped_sampler(cut, indptr=indptr)
    plan, steps = make_seed_plan(cut), _Steps(cut, accelerator)
    count = cut.sampler.max_batches
    sizes: list[int] = []
    held, spent, told = 0, 0.0, stages(progress)
    for epoch in range(2):
        for index, seeds in enumerate(plan.batches(epoch)):
            told("sampling mini-batches", (epoch * count + index) / (2 * count))
            started = time.thread_time()
            batch = sampler.sample(epoch, index, seeds)
            spent += time.thread_time() - started
            hops = [touched_pages(cut, replace(batch, blocks=(block,)), indptr)[1] for block in batch.blocks]
            trace.nodes.append(batch.nodes.astype(np.uint32))
            trace.hop_pages.append([np.unique(pages).astype(np.uint32) for pages in hops])
            trace.pages.append(np.unique(np.concatenate(trace.hop_pages[-1])))
            trace.train_s.append(steps.seconds(batch))
            sizes.append(sum(block.indptr.nbytes + block.indices.nbytes for block in batch.blocks) + batch.nodes.nbytes)
            trace.edges.append(batch.num_edges)
            trace.nbytes.append(batch.nbytes)
            held += len(trace.nodes[-1]) + len(trace.pages[-1]) + sum(len(pages) for pages in trace.hop_pages[-1])
        if epoch == 0 and held > MOST_ACCESSES // 2:
            said = f"{count} mini-batches make {held:,} accesses an epoch, more than are held"
            raise InputError(said, f"use --batches {max(1, count * MOST_ACCESSES // 2 // held)}")
    trace.sample_s = spent / max(1, len(trace.nodes))
    trace.graph_bytes = float(np.mean(sizes)) if sizes else 0.0
    if isinstance(sampler, ImpliedGraph):
        trace.sample_s, trace.hot = 0.0, sampler.hottest
        _keep_bounds(trace, _SCRATCH_OF_BATCH * max(trace.nbytes))
    elif trace.sampled < num_batches:
        _keep_bounds(trace, sampler.scratch_bytes)
    return trace


def _keep_bounds(trace: Trace, scratch_bytes: int) -> None:
    """Keep bounds for the whole epoch, on which systems plan, by repeating the sampled mini-batches."""
    times = -(-trace.num_batches // trace.sampled)
    nodes, edges = (
        np.tile(np.array(sizes, dtype=np.int64).reshape(2, -1), times)[:, : trace.num_batches]
        for sizes in ([len(part) for part in trace.nodes], trace.edges)
    )
    largest = divmod(int(nodes.argmax()), trace.num_batches)
    bounds = BatchBounds(int(nodes.max()), int(edges.max()), max(trace.nbytes), largest, nodes, edges, scratch_bytes)
    keep_bounds(trace.whole, bounds)


class _Steps:
    """Seconds of training steps: modelled on an emulated device, measured on a few mini-batches on a real one."""

    _MEASURED = 3

    def __init__(self, workload: Workload, accelerator: Accelerator) -> None:
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
