"""Making of a trace (`systems/forecast.py`): some mini-batches of two epochs, sampled
as in a run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.advise.implied import ImpliedGraph
from harness.advise.steps import Steps, spread_of
from harness.progress import stages
from systems.engine.cache.split_tuner import touched_pages
from systems.engine.io.topology import mapped_sampler
from systems.forecast import Trace
from workloads.accelerator import Accelerator
from workloads.errors import InputError
from workloads.sampling.bounds import BatchBounds, keep_bounds
from workloads.sampling.distinct import distinct
from workloads.sampling.make import make_seed_plan
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]

#: Most row and page accesses that are held in memory, 4 bytes each.
MOST_ACCESSES = 1 << 27
# Mini-batches whose training step is measured; parts of the sampled mini-batches whose
# sampling times are compared.
_MEASURED = 3
_PARTS = 4
# Assumed ratio of a sampler's working memory to its largest mini-batch, where no real
# sampler exists.
_SCRATCH_OF_BATCH = 2


def take_trace(
    workload: Workload,
    accelerator: Accelerator,
    batches: int,
    progress: Callable[[str], None] = lambda text: None,
    graph: ImpliedGraph | None = None,
) -> Trace:
    """Sample some mini-batches of each of two epochs; read `indptr` and the lists drawn
    from, no features.

    Args:
        batches: greatest number of mini-batches to sample of an epoch.
        graph: implied graph to sample in place of the stored one; the time of sampling
            it is set to 0.

    Raises:
        InputError: the mini-batches make more accesses than `MOST_ACCESSES`.
    """
    num_batches = make_seed_plan(workload).num_batches
    cut = replace(
        workload,
        sampler=replace(workload.sampler, max_batches=min(batches, num_batches)),
    )
    trace = Trace(cut, workload, num_batches)
    indptr: Any = workload.dataset.load("indptr") if graph is None else graph.indptr
    sampler = graph or mapped_sampler(cut, indptr=indptr)
    plan = make_seed_plan(cut)
    steps = Steps(cut, accelerator)
    count = cut.sampler.max_batches
    sizes: list[int] = []
    spent: list[float] = []
    held = 0
    busy = _Others()
    reported = stages(progress)
    for epoch in range(2):
        for index, seeds in enumerate(plan.batches(epoch)):
            reported("sampling mini-batches", (epoch * count + index) / (2 * count))
            started = time.thread_time()
            batch = sampler.sample(epoch, index, seeds)
            spent.append(time.thread_time() - started)
            hops = [
                touched_pages(cut, replace(batch, blocks=(block,)), indptr)[1]
                for block in batch.blocks
            ]
            trace.nodes.append(batch.nodes.astype(np.uint32))
            trace.hop_pages.append(
                [distinct(pages).astype(np.uint32) for pages in hops]
            )
            trace.pages.append(distinct(np.concatenate(trace.hop_pages[-1])))
            trace.train_s.append(steps.modelled(batch) or 0.0)
            sizes.append(
                sum(
                    block.indptr.nbytes + block.indices.nbytes for block in batch.blocks
                )
                + batch.nodes.nbytes
            )
            trace.edges.append(batch.num_edges)
            trace.nbytes.append(batch.nbytes)
            held += (
                len(trace.nodes[-1])
                + len(trace.pages[-1])
                + sum(len(pages) for pages in trace.hop_pages[-1])
            )
        if epoch == 0 and held > MOST_ACCESSES // 2:
            message = (
                f"{count} mini-batches make {held:,} accesses an epoch, more than are "
                "held"
            )
            raise InputError(
                message, f"use --batches {max(1, count * MOST_ACCESSES // 2 // held)}"
            )
    trace.sample_s = sum(spent) / max(1, len(trace.nodes))
    if accelerator.kind != "emulated":
        progress("measuring the training step")
        chosen = sorted(
            {round(at) for at in np.linspace(0, count - 1, min(_MEASURED, count))}
        )
        rates = steps.measured(
            [sampler.sample(1, index, plan.batches(1)[index]) for index in chosen]
        )
        work = [
            len(nodes) + edges
            for nodes, edges in zip(trace.nodes, trace.edges, strict=True)
        ]
        trace.train_s = [float(np.median(rates)) * one for one in work]
        trace.train_spread = spread_of(rates)
        trace.rounds = len(rates)
    trace.others_cpu = busy.share()
    trace.graph_bytes = float(np.mean(sizes)) if sizes else 0.0
    if isinstance(sampler, ImpliedGraph):
        trace.sample_s = 0.0
        trace.hot = sampler.hottest
        _keep_bounds(trace, _SCRATCH_OF_BATCH * max(trace.nbytes))
    else:
        parts = zip(
            np.array_split(spent, _PARTS),
            np.array_split(trace.edges, _PARTS),
            strict=True,
        )
        rates = [
            float(seconds.sum() / max(1, edges.sum()))
            for seconds, edges in parts
            if len(seconds)
        ]
        trace.sample_spread = spread_of(rates)
        if trace.sampled < num_batches:
            _keep_bounds(trace, sampler.scratch_bytes)
    return trace


class _Others:
    """Share of all processors' time that other processes took since this object was
    made."""

    def __init__(self) -> None:
        self._before = self._read()

    def share(self) -> float:
        seconds, busy, own = (
            now - then for now, then in zip(self._read(), self._before, strict=True)
        )
        return max(0.0, busy - own) / max(1e-9, seconds * (os.cpu_count() or 1))

    @staticmethod
    def _read() -> tuple[float, float, float]:
        import psutil

        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0)
        return time.monotonic(), sum(times) - idle, time.process_time()


def _keep_bounds(trace: Trace, scratch_bytes: int) -> None:
    """Keep bounds for the whole epoch, on which systems plan, by repeating the sampled
    mini-batches."""
    times = -(-trace.num_batches // trace.sampled)
    nodes, edges = (
        np.tile(np.array(sizes, dtype=np.int64).reshape(2, -1), times)[
            :, : trace.num_batches
        ]
        for sizes in ([len(part) for part in trace.nodes], trace.edges)
    )
    largest = divmod(int(nodes.argmax()), trace.num_batches)
    bounds = BatchBounds(
        int(nodes.max()),
        int(edges.max()),
        max(trace.nbytes),
        largest,
        nodes,
        edges,
        scratch_bytes,
    )
    keep_bounds(trace.whole, bounds)
