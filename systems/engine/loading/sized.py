"""Base of systems whose buffers a planner of their own sizes, and options of sampling
ahead of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.interface import Options, Plan, PlanItem, System, auto
from workloads.sampling.batch import SampledBatch
from workloads.sampling.bounds import batch_bounds

Ids = npt.NDArray[np.int64]
Sample = Callable[[int, int, Ids], SampledBatch]


class SamplingOptions(Options):
    """Options of sampling ahead of training."""

    prefetch: int = auto(
        2, most=64, description="sampled mini-batches that may wait for each sampler"
    )
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
        self.name = system.info.name
        self.workload = system.workload
        self.runtime = system.runtime
        self.budget = system.budget
        self.options = system.options
        self.bounds = batch_bounds(self.workload)
        self.row = self.workload.dataset.row_bytes
        self.num_nodes = self.workload.dataset.num_nodes
        self.sampling_only = self.runtime.stages == "sample"
        self.on_device = self.runtime.accelerator.kind != "cpu"

    def left(self, items: Sequence[PlanItem]) -> int | None:
        """Return the bytes of the host budget beside these buffers, below 0 if they do
        not fit; None: unlimited."""
        return (
            None
            if self.budget.host is None
            else self.budget.host - Plan(tuple(items)).total("host")
        )

    def require(self, items: Sequence[PlanItem], fix: str) -> Plan:
        """Return the plan of these buffers.

        Raises:
            BudgetError: they do not fit the budget; names the first that does not.
        """
        return Plan(tuple(items)).require(self.name, self.budget, fix)

    def chosen(self) -> dict[str, int | str]:
        """Return the values of options that these sizes decide where they are left at
        `auto`."""
        return {}


class SizedSystem(System):
    """System whose planner sizes every buffer: `_sizes`, with the `plan`."""

    _sizes: Any  # a `Sizes`, or another object with a `plan`

    def plan(self) -> Plan:
        """Return all buffers, as the system's planner sizes them."""
        plan: Plan = self._sizes.plan
        return plan

    def chosen(self) -> dict[str, int | str]:
        """Return the base's values, and those of the system's sizes."""
        found = super().chosen()
        sizes = vars(self).get("_sizes")
        return {**found, **sizes.chosen()} if isinstance(sizes, Sizes) else found

    def _close(self, *names: str) -> None:
        """Close the objects that these attributes hold, in order, and set the
        attributes to None; skip None."""
        for name in names:
            held = getattr(self, name)
            setattr(self, name, None)
            if held is not None:
                held.close()
