"""First-layer preprocessing (`+pp`): the first layer's aggregates, made once, replace the features.

The first layer's sums over the neighbours depend on the features alone, not on learned weights, so they are computed
beforehand, over all in-neighbours of every node (PaGraph's baselines, Section 5.1). A mini-batch then needs one hop
less. The mini-batches differ from the workload's; the system's own oracle defines them.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from systems.engine.io.row_reads import RowTable
from systems.engine.loading.aggregate import AggregateFacts, aggregate_first_layer
from systems.engine.loading.cached_system import CachedSystem
from systems.engine.loading.sized import Sample
from systems.engine.store.artefacts import identity, prepare
from systems.interface import Expectation, Options, PlanItem
from workloads.errors import InputError
from workloads.models import aggregated_width, first_layer_rows
from workloads.npyfile import read_header
from workloads.sampling.batch import SampledBatch
from workloads.sampling.bounds import Bounds, batch_bounds
from workloads.sampling.listing import find
from workloads.sampling.make import make_sampler
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]
_FILE = "first_layer.npy"
_DATA_OFFSET = 4096


def seeds_only(labels: npt.NDArray[np.int64]) -> Sample:
    """Make the sampler of an aggregated one-layer model: seed nodes with their labels, without a hop."""

    def sample(epoch: int, index: int, nodes: Ids) -> SampledBatch:
        own = np.asarray(labels[nodes], dtype=np.int64)
        return SampledBatch(epoch=epoch, index=index, nodes=nodes, num_seeds=len(nodes), blocks=(), labels=own)

    return sample


class FirstLayerSystem(CachedSystem):
    """Mixin for a cached system over first-layer aggregates; put it before the base system."""

    aggregated: ClassVar[bool] = True

    _table: Path | None = None

    @property
    def _hops(self) -> int:
        return len(self.workload.sampler.fanout) - 1

    @cached_property
    def _bounds(self) -> Bounds:
        return shorter_bounds(self.workload)

    @property
    def _rows(self) -> RowTable:
        dataset = self.workload.dataset
        width = aggregated_width(self.workload.model, dataset.dim)
        path = self._table or self.runtime.artefacts / _FILE  # placeholder until `prepare` makes the table
        dtype = dataset.feature_dtype
        return RowTable(path, _DATA_OFFSET, dataset.num_nodes, width * dtype.itemsize, dtype)

    def _check_workload(self) -> None:
        super()._check_workload()
        aggregated_width(self.workload.model, self.workload.dataset.dim)
        if find(self.workload.sampler.name).one_subgraph:
            raise InputError(
                f"{self.info.name}: the hop of the first layer is left out, and all layers of sampler "
                f"{self.workload.sampler.name} share one subgraph",
                "use sampler neighbor or layerwise",
            )

    def _prepared_items(self) -> tuple[PlanItem, ...]:
        return (PlanItem("first-layer aggregates", self._rows.nbytes + _DATA_OFFSET, "disk"),)

    def _prepare_rows(self) -> None:
        """Aggregate, out of core within the host budget, unless an earlier run did."""
        workload, budget = self.workload, self.budget

        def make(folder: Path) -> dict[str, Any]:
            facts = AggregateFacts()
            aggregate_first_layer(
                workload,
                folder / _FILE,
                threads=self.runtime.cores,
                dtype=workload.dataset.feature_dtype.name,
                budget_bytes=budget.host,
                facts=facts,
                progress=self.runtime.progress,
            )
            return asdict(facts)

        key = identity(workload, layer=workload.model.name, dtype=workload.dataset.feature_dtype.name)
        made = prepare(self.runtime.artefacts, "first-layer", key, make, disk_budget=budget.disk)
        self._prepared += (made,)
        self._table = made.path / _FILE
        with self._table.open("rb") as file:
            read_header(file)
            assert file.tell() == _DATA_OFFSET

    def _sample_of(
        self, indptr: npt.NDArray[np.int64], indices: npt.NDArray[Any], labels: npt.NDArray[np.int64]
    ) -> Sample:
        return super()._sample_of(indptr, indices, labels) if self._hops else seeds_only(labels)

    @classmethod
    def oracle(cls, workload: Workload, options: Options) -> Expectation | None:
        """Return the first hops of the workload's mini-batches, and every node's aggregate by the simplest code."""
        dataset = workload.dataset
        indptr, indices, labels = dataset.load("indptr"), dataset.load("indices"), dataset.load("labels")
        hops = len(workload.sampler.fanout) - 1
        sample = seeds_only(labels)
        if hops:
            sample = make_sampler(workload, indptr=indptr, indices=indices, labels=labels, hops=hops).sample
        nodes = np.arange(dataset.num_nodes)
        rows = first_layer_rows(workload.model, indptr, indices, dataset.load("features"), nodes)
        return Expectation(sample, rows, first_layer_aggregated=True)

    def notes(self) -> dict[str, str]:
        """Return the base's notes, and that the first layer is aggregated beforehand."""
        return {**super().notes(), "first_layer": "aggregated beforehand over all in-neighbours: not faithful"}


def shorter_bounds(workload: Workload) -> Bounds:
    """Return the bounds of the workload's mini-batches without their last hop."""
    sampler = workload.sampler
    if len(sampler.fanout) > 1:
        return batch_bounds(replace(workload, sampler=replace(sampler, fanout=sampler.fanout[:-1])))
    whole = batch_bounds(workload)
    seeds = min(workload.dataset.num_nodes, sampler.batch_size)
    return Bounds(seeds, 0, 16 * seeds, 0, whole.num_batches, whole.seed_bytes)
