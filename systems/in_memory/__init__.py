"""`in-memory`: graph, features and labels loaded into memory once; the oracle and the upper bound of speed."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from pydantic import Field

from systems.engine.io.arrays import gather
from systems.engine.io.topology import DatasetFiles, indptr_item, sampling_items
from systems.engine.loading.gather_loader import BETWEEN, GatherSystem, Tables, plan_tables
from systems.engine.loading.sized import SamplingOptions
from systems.interface import Counters, Forecast, Options, Plan, PlanItem, SystemInfo, Trace
from workloads.sampling.bounds import batch_bounds
from workloads.sampling.make import make_sampler


class InMemoryOptions(SamplingOptions):
    """Options of `in-memory`."""

    gather_threads: int = Field(0, ge=0, le=256, description="threads that gather one mini-batch; 0: one for each core")


class InMemory(GatherSystem):
    """Training with all data in RAM.

    Under a cap that is too small the plan does not fit, and the run ends as `oom`, as in the papers' tables.
    """

    info = SystemInfo(
        name="in-memory",
        summary="topology and features in RAM; the oracle and the upper bound",
        options=InMemoryOptions,
    )
    options: InMemoryOptions

    @cached_property
    def _tables(self) -> Tables:
        rows = batch_bounds(self.workload).max_nodes
        return plan_tables(self.info.name, self.workload, self.runtime, self.budget, rows=rows, host=2, device=2)

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
        self._allocate()
        self._draw = sampler.sample

    def _gather(self, nodes: npt.NDArray[np.int64], out: npt.NDArray[np.generic]) -> None:
        assert self._features is not None
        gather(self._features, nodes, out, self.options.gather_threads or self.runtime.cores)
        self._rows += len(nodes)

    def counters(self) -> Counters:
        """Return the counters: every row is a hit in host memory."""
        return Counters(rows=self._rows, hits={"host": self._rows})

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast one load of everything."""
        return trace.resident()


SYSTEM = InMemory
