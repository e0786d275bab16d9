"""Other mini-batches than the workload's: fewer, smaller, the same again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from systems.interface import Batch
from tests.harness.cheats.act import Act, Ids, cheat
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_sampler

RULE = "digests_equal_the_workload"


@cheat("every_batch_once")
class FewerMiniBatches(Act):
    """Leaves the last one out, as drivers in public do."""

    def seeds(self, epoch: int) -> list[tuple[int, Ids]]:
        """All but one."""
        return super().seeds(epoch)[:-1]


@cheat("dataset_stayed_the_same", unconfined=True)
class RewritesTheGraph(Act):
    """Makes every neighbour node 0, so that mini-batches are small, and so is what they are compared with."""

    def prepare(self) -> None:
        """Write to the dataset, and sample from what is there then."""
        workload = self.system.workload
        indices = np.load(workload.dataset.file("indices"), mmap_mode="r+")
        indices[:] = 0
        indices.flush()
        self.system.sampler = make_sampler(workload)


class _Shrinking(Batch):
    """The whole mini-batch at the first looks, one without neighbours later."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        """Count the looks at the structure."""
        found = super().__getattribute__(name)
        if name != "sampled":
            return found
        _Shrinking.looks += 1
        return found if _Shrinking.looks % 8 < 4 else replace(found, blocks=())


@cheat("")
class ShrinksForTraining(Act):
    """Shows the training step less than the digest."""

    def batch(self, sampled: SampledBatch, rows: npt.NDArray[Any]) -> Batch:
        """As a class of its own."""
        return _Shrinking(sampled, torch.from_numpy(np.ascontiguousarray(rows)))


@cheat(RULE)
class RepeatedSeeds(Act):
    """Trains one mini-batch twice, the second time for nothing."""

    def seeds(self, epoch: int) -> list[tuple[int, Ids]]:
        """The first in the place of the second."""
        found = super().seeds(epoch)
        return [found[0], (1, found[0][1]), *found[2:]]


@cheat(RULE)
class SmallerFanOut(Act):
    """Draws one neighbour fewer in the last hop."""

    def sample(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """With another fan-out."""
        workload = self.system.workload
        if not hasattr(self, "_sampler"):
            fanout = (*workload.sampler.fanout[:-1], workload.sampler.fanout[-1] - 1)
            self._sampler = make_sampler(replace(workload, sampler=replace(workload.sampler, fanout=fanout)))
        return self._sampler.sample(epoch, index, seeds)


@cheat(RULE)
class SameEveryEpoch(Act):
    """Trains the first epoch's mini-batches again and calls them the next one's."""

    def seeds(self, epoch: int) -> list[tuple[int, Ids]]:
        """Of epoch 0."""
        return super().seeds(0)

    def sample(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """Of epoch 0, under this one's number."""
        return replace(super().sample(0, index, seeds), epoch=epoch)


@cheat(RULE)
class OtherSeed(Act):
    """Draws with a generator of its own."""

    def sample(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """With another seed."""
        if not hasattr(self, "_sampler"):
            self._sampler = make_sampler(replace(self.system.workload, seed=self.system.workload.seed + 1))
        return self._sampler.sample(epoch, index, seeds)


@cheat(RULE)
class NoLabels(Act):
    """Does not look labels up."""

    def sample(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """All of class 0."""
        batch = super().sample(epoch, index, seeds)
        return replace(batch, labels=np.zeros_like(batch.labels))
