"""Expected epochs, sampled and gathered by the simplest code, and the checks of
mini-batches without an oracle."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from harness.check.case import CheckedEpoch
from systems.interface import Batch, Expectation
from workloads.accelerator import Accelerator, CpuAccelerator
from workloads.feature_table import SplitTable, batch_feature_digest
from workloads.sampling.batch import SampledBatch
from workloads.sampling.digest import EpochDigest, feature_digest, structure_digest
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.training import Trainer
from workloads.workload import Workload


class Oracle:
    """Expected mini-batches. Reads the dataset's arrays once, so it has to be made
    before files are damaged.

    Args:
        own: expectation of an unfaithful system; None: the workload's mini-batches are
            expected.

    Attributes:
        features: [N, width], each node's row.
        own: whether the system's own mini-batches are expected.
    """

    def __init__(self, workload: Workload, own: Expectation | None = None) -> None:
        self._workload = workload
        self.own = own is not None
        self._aggregated = own is not None and own.first_layer_aggregated
        dataset = workload.dataset
        self.indptr = dataset.load("indptr")
        self.indices = dataset.load("indices")
        sampler = make_sampler(
            workload,
            indptr=self.indptr,
            indices=self.indices,
            labels=dataset.load("labels"),
        )
        self._sample = own.sample if own is not None else sampler.sample
        self._plan = make_seed_plan(workload)
        self.features = own.rows if own is not None else dataset.load("features")
        self.train = set(dataset.load("train").tolist())

    @cached_property
    def largest_nodes(self) -> int:
        """Number of nodes of the largest mini-batch of the first two epochs."""
        return max(
            batch.num_nodes for epoch in range(2) for batch in self.batches(epoch)
        )

    def batches(self, epoch: int) -> Iterator[SampledBatch]:
        """Sample the mini-batches of an epoch, in the seed plan's order."""
        for index, seeds in enumerate(self._plan.batches(epoch)):
            yield self._sample(epoch, index, seeds)

    def expected(self, epoch: int) -> CheckedEpoch:
        """Return an epoch that holds only its expected digests and number of
        mini-batches."""
        structure = EpochDigest()
        features = EpochDigest()
        for batch in self.batches(epoch):
            structure.add(structure_digest(batch))
            features.add(feature_digest(batch, self.features, batch.nodes))
        found = CheckedEpoch(expected_batches=structure.count)
        found.expected_structure = structure.hexdigest()
        found.expected_features = features.hexdigest()
        return found

    def losses(self, epochs: int) -> list[list[float]]:
        """Train for `epochs` epochs; return the loss of each step, by epoch."""
        trainer = make_trainer(self._workload)
        table = torch.from_numpy(self.features)

        def loss(batch: SampledBatch) -> float:
            return trainer.step(
                batch, table, torch.from_numpy(batch.nodes), self._aggregated
            ).loss

        return [
            [loss(batch) for batch in self.batches(epoch)] for epoch in range(epochs)
        ]

    def digest(self, batch: Batch) -> int:
        """Return the digest of a mini-batch's rows; aggregates within float tolerance
        get the oracle's digest."""
        assert batch.table is not None
        sampled = batch.sampled
        if self._aggregated and batch.first_layer_aggregated:
            rows = (
                torch.arange(sampled.num_nodes)
                if batch.rows is None
                else batch.rows.cpu()
            )
            table = batch.table
            found = (
                table.take(rows)
                if isinstance(table, SplitTable)
                else table[rows.to(table.device)].cpu()
            )
            wanted = torch.from_numpy(self.features[sampled.nodes])
            tolerance = 2e-3 if found.dtype == torch.float16 else 1e-5
            if found.shape == wanted.shape and torch.allclose(
                found.float(), wanted, rtol=tolerance, atol=tolerance
            ):
                return feature_digest(sampled, self.features, sampled.nodes)
        return batch_feature_digest(sampled, batch.table, batch.rows)


def make_trainer(workload: Workload, accelerator: Accelerator | None = None) -> Trainer:
    """Make the harness's training step, on the processor without an `accelerator`."""
    dataset = workload.dataset
    device = accelerator or CpuAccelerator()
    return Trainer(
        workload.model, dataset.dim, dataset.num_classes, device, workload.seed
    )


class OwnBatches:
    """Checks of an unfaithful system's mini-batches: feature rows of their own nodes,
    and edges of the graph.

    Args:
        features: [N, D], the dataset's feature rows.
        indptr: int64 [N + 1], offsets of the in-neighbours of each node in `indices`.
        indices: [E], in-neighbours.

    Attributes:
        features: digest of the dataset's feature rows of the mini-batches' nodes.
        foreign_edges: number of block edges whose source is neither in-neighbour nor
            the destination itself.
    """

    def __init__(
        self,
        features: npt.NDArray[Any],
        indptr: npt.NDArray[np.int64],
        indices: npt.NDArray[np.integer[Any]],
    ) -> None:
        self._table = features
        self._num_nodes = len(indptr) - 1
        heads = np.repeat(np.arange(self._num_nodes, dtype=np.int64), np.diff(indptr))
        # Sorted, with a sentinel larger than every edge, so that every search returns a
        # valid index.
        self._edges = np.append(
            np.sort(heads * self._num_nodes + indices), self._num_nodes**2
        )
        self.features = EpochDigest()
        self.foreign_edges = 0

    def add(self, sampled: SampledBatch, *, rows: bool) -> None:
        """Check one mini-batch; `rows`: whether it has the feature rows of its
        nodes."""
        if rows:
            self.features.add(feature_digest(sampled, self._table, sampled.nodes))
        for block in sampled.blocks:
            heads = np.repeat(sampled.nodes[: block.num_dst], np.diff(block.indptr))
            tails = sampled.nodes[block.indices]
            edges = heads * self._num_nodes + tails
            known = self._edges[np.searchsorted(self._edges, edges)] == edges
            self.foreign_edges += int((~known & (heads != tails)).sum())
