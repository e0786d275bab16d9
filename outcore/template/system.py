"""`new-system`: rows read from disk when a mini-batch needs them; graph and labels in
memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

import outcore


class Options(outcore.RowReadOptions):
    """Options, given as `-o io_depth=64`; add your own as fields with a default and a
    description."""


class NewSystem(outcore.System):
    """One mini-batch at a time: sampled, its rows read directly at full queue depth,
    copied to the device, trained."""

    info = outcore.SystemInfo(
        name="new-system",
        summary="rows read from disk, no cache",
        devices=("cpu", "emulated"),
        options=Options,
    )
    options: Options
    _reader: outcore.RowReader | None = None

    def plan(self) -> outcore.Plan:
        """List every buffer before it is allocated; BudgetError names the first that
        does not fit."""
        dataset = self.workload.dataset
        bounds = outcore.batch_bounds(self.workload)
        table = bounds.max_nodes * dataset.row_bytes
        items = [
            outcore.PlanItem(
                "graph and labels", dataset.total_bytes - dataset.feature_bytes
            ),
            outcore.PlanItem(
                "sampling",
                bounds.scratch_bytes + 2 * bounds.sampled_bytes + bounds.seed_bytes,
            ),
            outcore.PlanItem(
                "reader",
                outcore.feature_reader_bytes(
                    self.workload, self.options, bounds.max_nodes
                ),
            ),
            outcore.PlanItem("rows", table),
            outcore.PlanItem("rows on the device", table, "device"),
        ]
        return outcore.Plan(tuple(items)).require(self.info.name, self.budget)

    def prepare(self) -> None:
        """Load the graph, open the feature file, allocate the tables."""
        dataset = self.workload.dataset
        rows = outcore.batch_bounds(self.workload).max_nodes
        indptr = dataset.load("indptr")
        indices = dataset.load("indices")
        labels = dataset.load("labels")
        self._sampler = outcore.make_sampler(
            self.workload, indptr=indptr, indices=indices, labels=labels
        )
        self._reader = outcore.feature_reader(self.workload, self.options)
        self._rows = torch.empty(
            rows, dataset.dim, dtype=getattr(torch, dataset.feature_dtype.name)
        )
        self._device_rows = self._rows
        if self.runtime.accelerator.kind != "cpu":
            self._device_rows = self.runtime.accelerator.allocate(
                rows, dataset.dim, self._rows.dtype
            )

    def epoch(self, k: int) -> Iterator[outcore.Batch]:
        """Yield every mini-batch of the seed plan once; the harness trains on it and
        releases it."""
        self._reads = outcore.ReadStats()
        for index, seeds in enumerate(outcore.make_seed_plan(self.workload).batches(k)):
            with self.clock.stage("sample", index):
                sampled = self._sampler.sample(k, index, seeds)
            if self.runtime.stages == "sample":
                yield outcore.Batch(sampled, None)
                continue
            rows = self._rows[: sampled.num_nodes]
            with self.clock.stage("extract", index):
                self._fill(sampled.nodes, rows)
            if self._device_rows is not self._rows:
                with self.clock.stage("transfer", index):
                    self.runtime.accelerator.copy(
                        self._device_rows, rows, batch=index
                    ).wait()
            yield outcore.Batch(sampled, self._device_rows)

    def _fill(self, nodes: npt.NDArray[np.int64], rows: torch.Tensor) -> None:
        """Fill `rows` [n, dim] with the feature rows of `nodes` [n]: the place for an
        idea of your own."""
        assert self._reader is not None
        self._reads.add(self._reader.read(nodes, rows))

    def counters(self) -> outcore.Counters:
        """Return the counts of the last epoch: every row is a miss."""
        return outcore.counters_of(
            self._reads,
            self.options.io_depth,
            rows=self._reads.rows,
            misses=self._reads.rows,
        )

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()


SYSTEM = NewSystem
