"""Bases of systems: whose buffers are sized first, that sample ahead, that fill a table for each mini-batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt

from systems.engine.io.topology import row_bytes
from systems.engine.loading.gather_loader import Fill, GatherLoader, Tables
from systems.interface import Batch, Options, Plan, PlanItem, System, auto
from workloads.sampling.bounds import batch_bounds
from workloads.sampling.make import make_seed_plan
from workloads.sampling.neighbor import NeighborSampler


class SamplingOptions(Options):
    """Options of sampling ahead of training."""

    prefetch: int = auto(2, most=64, description="sampled mini-batches that may wait for each sampler")
    sampling_workers: int = auto(most=256, description="threads that sample")


class Sizes:
    """Sizes of a system's buffers; the class of each system plans them.

    Attributes:
        name: name of the system.
        bounds: bounds of the workload's mini-batches.
        row: bytes of a feature row.
        sampling_only: whether a run only samples.
        on_device: whether the training device has memory of its own.
        plan: all buffers.
    """

    options: Any
    plan: Plan

    def __init__(self, system: System) -> None:
        self.name, self.workload, self.runtime = system.info.name, system.workload, system.runtime
        self.budget, self.options = system.budget, system.options
        self.bounds, self.row = batch_bounds(self.workload), row_bytes(self.workload)
        self.num_nodes = self.workload.dataset.num_nodes
        self.sampling_only = self.runtime.stages == "sample"
        self.on_device = self.runtime.accelerator.kind != "cpu"

    def left(self, items: Sequence[PlanItem]) -> int | None:
        """Return the bytes of the host budget beside these buffers, below 0 if they do not fit; None: unlimited."""
        return None if self.budget.host is None else self.budget.host - Plan(tuple(items)).total("host")

    def require(self, items: Sequence[PlanItem], fix: str) -> Plan:
        """Return the plan of these buffers.

        Raises:
            BudgetError: they do not fit the budget; names the first that does not.
        """
        return Plan(tuple(items)).require(self.name, self.budget, fix)


class SizedSystem(System):
    """System whose planner sizes every buffer: `_sizes`, with the `plan`."""

    _sizes: Any  # a `Sizes`, or what else has a `plan`

    def plan(self) -> Plan:
        """Return all buffers, as the system's planner sizes them."""
        plan: Plan = self._sizes.plan
        return plan

    def _close(self, *names: str) -> None:
        """Close what these attributes hold, in order, and set them to None; skip those that are None."""
        for name in names:
            held = getattr(self, name)
            setattr(self, name, None)
            if held is not None:
                held.close()


class SamplingSystem(SizedSystem):
    """System whose threads sample mini-batches ahead of their extraction."""

    options: SamplingOptions

    @property
    def _workers(self) -> int:
        """Threads that sample, a mini-batch each."""
        return self.options.sampling_workers or self.runtime.cores

    @property
    def _waiting(self) -> int:
        """Sampled mini-batches that may wait for extraction."""
        return self.options.prefetch * self._workers


class GatherSystem(SamplingSystem):
    """System that fills a table with the rows of each mini-batch."""

    _loader: GatherLoader | None = None
    _features: npt.NDArray[Any] | None = None  # rows in memory or in a map
    _rows = 0

    def _make_loader(self, sampler: NeighborSampler, tables: Tables, fill: Fill, **more: Any) -> GatherLoader:
        """Return the system's loader; `more` has other arguments of `GatherLoader`."""
        made = GatherLoader(
            self.info.name,
            sampler,
            self.runtime,
            self.clock,
            tables,
            fill,
            workers=self._workers,
            waiting=self._waiting,
            **more,
        )
        self._loader = made
        return made

    def _begin(self) -> None:
        """Reset the counts for another epoch."""
        self._rows = 0

    def epoch(self, k: int) -> Iterator[Batch]:
        """Return the mini-batches of epoch `k`, in the seed plan's order."""
        if self._loader is None:
            raise RuntimeError("prepare() comes before epoch()")
        self._begin()
        return self._loader.epoch(k, make_seed_plan(self.workload).batches(k))

    def close(self) -> None:
        """End the threads and drop the rows."""
        self._close("_loader")
        self._features = None
