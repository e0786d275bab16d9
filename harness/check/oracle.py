"""What every epoch of a workload must be: sampled and gathered by the simplest code, no system involved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from workloads.accelerator import CpuAccelerator
from workloads.sampling.batch import SampledBatch
from workloads.sampling.digest import EpochDigest, feature_digest, structure_digest
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.training import Trainer
from workloads.workload import Workload


@dataclass(frozen=True)
class Expected:
    """Digests and size of one epoch."""

    structure: str
    features: str
    batches: int


class Oracle:
    """Reads the dataset's arrays once; make it before anything happens to the files."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        dataset = workload.dataset
        self.indptr, self.indices = dataset.load("indptr"), dataset.load("indices")
        self._sampler = make_sampler(workload, indptr=self.indptr, indices=self.indices, labels=dataset.load("labels"))
        self._plan = make_seed_plan(workload)
        self.features = dataset.load("features")
        self.train = set(dataset.load("train").tolist())

    @cached_property
    def largest_nodes(self) -> int:
        """Rows of the largest mini-batch of the first two epochs."""
        return max(batch.num_nodes for epoch in range(2) for batch in self.batches(epoch))

    def batches(self, epoch: int) -> Iterator[SampledBatch]:
        """In the seed plan's order."""
        for index, seeds in enumerate(self._plan.batches(epoch)):
            yield self._sampler.sample(epoch, index, seeds)

    def expected(self, epoch: int) -> Expected:
        """Digests of an epoch."""
        structure, features = EpochDigest(), EpochDigest()
        for batch in self.batches(epoch):
            structure.add(structure_digest(batch))
            features.add(feature_digest(batch, self.features, batch.nodes))
        return Expected(structure.hexdigest(), features.hexdigest(), structure.count)

    def losses(self, epochs: int) -> list[list[float]]:
        """Loss of each training step, trained for real."""
        trainer = make_trainer(self._workload)
        table = torch.from_numpy(self.features)
        return [
            [trainer.step(batch, table, torch.from_numpy(batch.nodes)).loss for batch in self.batches(epoch)]
            for epoch in range(epochs)
        ]


def make_trainer(workload: Workload) -> Trainer:
    """The harness's training step on the processor."""
    dataset = workload.dataset
    return Trainer(workload.model, dataset.dim, dataset.num_classes, CpuAccelerator(), workload.seed)
