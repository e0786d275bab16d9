"""Rows that hold the first layer's aggregates, computed once and out of core (`+pp`): a
mini-batch needs a hop less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from systems.engine.io.row_reads import RowTable
from systems.engine.store.artefacts import identity, prepare
from systems.engine.store.first_layer import (
    DATA_OFFSET,
    FILE,
    AggregateFacts,
    aggregate_first_layer,
    seeds_only,
)
from systems.interface import Expectation
from systems.parts.sizes import Follower, Need
from systems.parts.source import Source
from workloads.errors import InputError
from workloads.models import aggregated_width, first_layer_rows
from workloads.npyfile import read_header
from workloads.sampling.listing import find
from workloads.sampling.make import make_sampler
from workloads.workload import Workload


@dataclass(eq=False)
class FirstLayer(Source):
    """Aggregates of every node over all its in-neighbours, of the dtype of the
    features."""

    title = "first-layer aggregates as rows"
    aggregated = True
    _file: FilePath | None = field(init=False, repr=False, default=None)

    @property
    def table(self) -> RowTable:
        """The table of the aggregates; its file exists after `prepare`."""
        workload = self.site.workload
        dataset = workload.dataset
        path = self._file or self.site.runtime.artefacts / FILE
        row_bytes = (
            aggregated_width(workload.model, dataset.dim)
            * dataset.feature_dtype.itemsize
        )
        return RowTable(
            path, DATA_OFFSET, dataset.num_nodes, row_bytes, dataset.feature_dtype
        )

    def check(self) -> None:
        """Refuse models whose first layer cannot be aggregated, and samplers that
        cannot leave out its hop."""
        workload = self.site.workload
        aggregated_width(workload.model, workload.dataset.dim)
        if find(workload.sampler.name).one_subgraph:
            raise InputError(
                f"{self.site.name}: the hop of the first layer is left out, and all "
                f"layers of sampler {workload.sampler.name} share one subgraph",
                "use sampler neighbor or layerwise",
            )

    def needs(self) -> Sequence[Need | Follower]:
        """List the aggregates on disk."""
        return [Need("first-layer aggregates", self.table.nbytes + DATA_OFFSET, "disk")]

    def prepare(self) -> None:
        """Aggregate, out of core within the host budget, unless an earlier run did."""
        site = self.site
        workload = site.workload
        runtime = site.runtime
        dtype = workload.dataset.feature_dtype.name

        def make(folder: FilePath) -> dict[str, Any]:
            facts = AggregateFacts()
            aggregate_first_layer(
                workload,
                folder / FILE,
                budget_bytes=site.budget.host,
                threads=runtime.cores,
                dtype=dtype,
                facts=facts,
                progress=runtime.progress,
            )
            return asdict(facts)

        key = identity(workload, layer=workload.model.name, dtype=dtype)
        made = prepare(
            runtime.artefacts, "first-layer", key, make, disk_budget=site.budget.disk
        )
        self.prepared.append(made)
        self._file = made.path / FILE
        with self._file.open("rb") as file:
            read_header(file)
            assert file.tell() == DATA_OFFSET

    def notes(self) -> dict[str, str]:
        """Return that the rows are aggregates."""
        return {
            "first_layer": "aggregated beforehand over all in-neighbours: not faithful"
        }


def first_layer_oracle(workload: Workload) -> Expectation:
    """Return the first hops of the workload's mini-batches, and every node's aggregate
    by the simplest code."""
    dataset = workload.dataset
    indptr = dataset.load("indptr")
    indices = dataset.load("indices")
    labels = dataset.load("labels")
    hops = len(workload.sampler.fanout) - 1
    sample = seeds_only(labels)
    if hops:
        sample = make_sampler(
            workload, indptr=indptr, indices=indices, labels=labels, hops=hops
        ).sample
    nodes = np.arange(dataset.num_nodes)
    rows = first_layer_rows(
        workload.model, indptr, indices, dataset.load("features"), nodes
    )
    return Expectation(sample, rows, first_layer_aggregated=True)
