"""Mini-batches of the workload's sampler, drawn by many threads ahead of their
extraction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from systems.engine.io.faults import FaultMeter
from systems.engine.io.topology import sampling_items
from systems.engine.store.first_layer import seeds_only
from systems.parts.sample import Ids, Sample
from systems.parts.sizes import Follower, Need, fixed
from systems.parts.topology import Graph
from workloads.sampling.batch import SampledBatch
from workloads.sampling.bounds import Bounds, batch_bounds
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

Draw = Callable[..., SampledBatch]
_BUDGET_SHARE = 8


@dataclass(eq=False)
class Neighbours(Sample):
    """The workload's mini-batches.

    Attributes:
        rather: workers that the path would rather have where an eighth of the memory
            holds them; 0: no more.
        first_hops: leave out the hop of the first layer, whose aggregates are the rows.
        meter: meter of the page faults of sampling, or None.
    """

    title = "neighbour sampler"
    rather: int = 0
    first_hops: bool = False
    meter: FaultMeter | None = None
    _draw: Draw | None = field(init=False, repr=False, default=None)
    _local_seeds: Sequence[Ids] | None = field(init=False, repr=False, default=None)

    def bounds(self, workload: Workload) -> Bounds:
        """Return the bounds of whole mini-batches, or of those without the first
        layer's hop."""
        return (
            bounds_without_hop(workload) if self.first_hops else batch_bounds(workload)
        )

    def needs(self) -> Sequence[Need | Follower]:
        """List workspace, sampled mini-batches in flight and seed nodes."""
        waiting = self.waiting + self.site.in_flight
        threads = self.topology.list_threads
        return fixed(
            sampling_items(
                self.site.bounds,
                workers=self.workers,
                waiting=waiting,
                list_threads=threads,
            )
        )

    def more_workers(self) -> int:
        """Return `rather`, or as many workers as an eighth of the host budget holds."""
        host = self.site.budget.host
        bounds = self.site.bounds
        if host is None:
            return self.rather
        each = bounds.scratch_bytes + (1 + self.prefetch) * bounds.sampled_bytes
        return min(self.rather, host // _BUDGET_SHARE // each)

    def open(self) -> None:
        """Make the sampler of the opened graph."""
        self._draw = self._sampler(self.topology.graph())

    def _sampler(self, graph: Graph) -> Draw:
        workload = self.site.workload
        hops = len(workload.sampler.fanout) - self.first_hops
        if not hops:
            return seeds_only(graph.labels)
        sampler = make_sampler(
            workload,
            indptr=graph.indptr,
            indices=graph.indices,
            labels=graph.labels,
            cached=graph.cached,
            threads=self.topology.list_threads,
            names=self.topology.source.names,
            hops=hops,
        )
        return sampler.sample

    def begin(self, epoch: int) -> None:
        """Restart the meter, and find the epoch's seed nodes in a reordered graph."""
        if self.meter is not None:
            self.meter.restart()
        source = self.topology.source
        if source.names is not None:
            plan = make_seed_plan(replace(self.site.workload, dataset=source.dataset))
            self._local_seeds = plan.batches(epoch)

    def draw(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """Sample one mini-batch."""
        self.topology.check_files()
        assert self._draw is not None
        work = partial(self._draw, epoch, index, seeds)
        if self._local_seeds is not None:
            work = partial(work, local_seeds=self._local_seeds[index])
        sampled = work() if self.meter is None else self.meter.sample(work)
        self.topology.count(sampled)
        return sampled

    def observed(self) -> dict[str, float]:
        """Return the page faults of the epoch."""
        return {} if self.meter is None else self.meter.observed()

    def close(self) -> None:
        """Drop the graph."""
        self._draw = None


def bounds_without_hop(workload: Workload) -> Bounds:
    """Return the bounds of mini-batches without the first layer's hop, the last that is
    drawn."""
    sampler = workload.sampler
    if len(sampler.fanout) > 1:
        return batch_bounds(
            replace(workload, sampler=replace(sampler, fanout=sampler.fanout[:-1]))
        )
    whole = batch_bounds(workload)
    seeds = min(workload.dataset.num_nodes, sampler.batch_size)
    seed_nodes = 2 * np.dtype(np.int64).itemsize * seeds
    return Bounds(seeds, 0, seed_nodes, 0, whole.num_batches, whole.seed_bytes)
