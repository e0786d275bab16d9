"""Bases of systems: one whose buffers a planner sizes, one that samples ahead, one that fills a table a mini-batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from systems.engine.loading.gather_loader import Fill, GatherLoader, Tables
from systems.interface import Batch, Options, Plan, System, auto
from workloads.sampling.make import make_seed_plan
from workloads.sampling.neighbor import NeighborSampler


class SamplingOptions(Options):
    """Options of sampling ahead of training."""

    prefetch: int = auto(2, most=64, description="sampled mini-batches that may wait for each sampler")
    sampling_workers: int = auto(most=256, description="threads that sample")


class SizedSystem(System):
    """System whose planner sizes every buffer: `_sizes`, with the `plan`."""

    _sizes: Any

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
