"""Graph, features and labels loaded into anonymous memory once; sampling and gathering overlap training."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from systems.engine.io.gather import gather
from systems.engine.io.topology import DatasetFiles, indptr_item, sampling_items
from systems.engine.loading.gather_loader import BETWEEN, GatherLoader, Tables, fill_by, plan_tables
from systems.interface import Batch, Counters, Forecast, Options, Plan, PlanItem, System, SystemInfo, Trace, auto
from workloads.sampling.bounds import batch_bounds
from workloads.sampling.make import make_sampler, make_seed_plan


class InMemoryOptions(Options):
    """Options of `in-memory`."""

    prefetch: int = auto(2, most=64, description="sampled mini-batches that may wait for each sampler")
    sampling_workers: int = auto(most=256, description="threads that sample")
    gather_threads: int = Field(0, ge=0, le=256, description="threads that gather one mini-batch; 0: one for each core")


class InMemory(System):
    """Training with all data in RAM.

    Under a cap that is too small the plan does not fit, and the run ends as `oom`, as in the papers' tables.
    """

    info: ClassVar[SystemInfo] = SystemInfo(
        name="in-memory",
        paper="–",
        summary="topology and features in RAM; the oracle and the upper bound",
        devices=("cpu", "cuda", "emulated"),
        faithful=True,
        options=InMemoryOptions,
    )
    options: InMemoryOptions

    _rows = 0
    _loader: GatherLoader | None = None
    _features: npt.NDArray[Any] | None = None

    @property
    def _workers(self) -> int:
        return self.options.sampling_workers or self.runtime.cores

    @property
    def _waiting(self) -> int:
        return self.options.prefetch * self._workers

    @cached_property
    def _tables(self) -> Tables:
        dataset = self.workload.dataset
        return plan_tables(
            self.info.name,
            self.runtime.accelerator,
            rows=batch_bounds(self.workload).max_nodes,
            dim=dataset.dim,
            dtype=dataset.feature_dtype,
            host=2,
            device=2,
            device_budget=self.budget.device,
        )

    @classmethod
    def loads_everything(cls, options: Options) -> bool:
        """Return True: the whole feature table is in host memory."""
        return True

    def plan(self) -> Plan:
        """Plan the graph, the features and the tables into which mini-batches are gathered."""
        return self.fit(self._plan)

    def _plan(self) -> Plan:
        dataset = self.workload.dataset
        bounds = batch_bounds(self.workload)
        items = (
            indptr_item(self.workload),
            PlanItem("indices", dataset.topology_bytes),
            PlanItem("labels", 8 * dataset.num_nodes),
            *sampling_items(bounds, workers=self._workers, waiting=self._waiting + BETWEEN),
        )
        if self.runtime.stages != "sample":
            items += (PlanItem("features", dataset.feature_bytes), *self._tables.items())
        return Plan(items).require(self.info.name, self.budget, "raise memory, or use a system that reads from disk")

    def prepare(self) -> None:
        """Load graph, labels and features."""
        dataset = self.workload.dataset
        DatasetFiles(self.workload, ["indices", "labels", "features"]).check()
        sampler = make_sampler(
            self.workload, indptr=dataset.load("indptr"), indices=dataset.load("indices"), labels=dataset.load("labels")
        )
        if self.runtime.stages != "sample":
            self._features = dataset.load("features")
        self._loader = GatherLoader(
            self.info.name,
            sampler,
            self.runtime,
            self.clock,
            self._tables,
            fill_by(self._gather),
            workers=self._workers,
            waiting=self._waiting,
        )

    def _gather(self, nodes: npt.NDArray[np.int64], out: npt.NDArray[np.generic]) -> None:
        assert self._features is not None
        gather(self._features, nodes, out, self.options.gather_threads or self.runtime.cores)
        self._rows += len(nodes)

    def epoch(self, k: int) -> Iterator[Batch]:
        """Return the mini-batches of epoch `k`, in the seed plan's order."""
        if self._loader is None:
            raise RuntimeError("prepare() comes before epoch()")
        self._rows = 0
        return self._loader.epoch(k, make_seed_plan(self.workload).batches(k))

    def counters(self) -> Counters:
        """Return the counters: every row is a hit in host memory."""
        return Counters(rows=self._rows, hits={"host": self._rows})

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast one load of everything."""
        return trace.resident()

    def close(self) -> None:
        """End the threads and free the arrays."""
        loader, self._loader = self._loader, None
        if loader is not None:
            loader.close()
        self._features = None
