"""Cheats that train other mini-batches than the workload's: fewer, smaller or repeated
ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from systems.interface import Batch
from tests.harness.cheats.act import Act, Ids, cheat, on_device
from workloads.sampling.batch import Block, SampledBatch
from workloads.sampling.make import make_sampler

RULE = "digests_equal_the_workload"
READ_ONLY = "Read-only file system"


@cheat("every_batch_once")
class FewerMiniBatches(Act):
    """Leaves out the last mini-batch, as published drivers do."""

    def seeds(self, epoch: int) -> list[tuple[int, Ids]]:
        """Return all but the last."""
        return super().seeds(epoch)[:-1]


@cheat("", wall=READ_ONLY)
class RewritesTheGraph(Act):
    """Makes every neighbour node 0, so that mini-batches and the reference they are
    compared with are small."""

    def prepare(self) -> None:
        """Overwrite the dataset's neighbours and sample from the result."""
        super().prepare()
        workload = self.system.workload
        indices = np.load(workload.dataset.file("indices"), mmap_mode="r+")
        indices[:] = 0
        indices.flush()
        self.system.sampler = make_sampler(workload)


class _EqualToAll(type):
    """Class of classes that say they equal any other."""

    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return hash(Batch)


class _Shrinking(Batch, metaclass=_EqualToAll):
    """Batch that is complete at the first accesses and has no blocks later."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        """Count accesses to the structure."""
        found = super().__getattribute__(name)
        if name != "sampled":
            return found
        _Shrinking.looks += 1
        return found if _Shrinking.looks % 8 < 4 else replace(found, blocks=())


@cheat("")
class ShrinksForTraining(Act):
    """Shows the training step a smaller mini-batch than the digest."""

    def batch(self, sampled: SampledBatch, rows: npt.NDArray[Any]) -> Batch:
        """Return an instance of a subclass."""
        return _Shrinking(sampled, torch.from_numpy(np.ascontiguousarray(rows)))


@cheat(RULE)
class RepeatedSeeds(Act):
    """Trains the first mini-batch twice, the second time at no cost."""

    def seeds(self, epoch: int) -> list[tuple[int, Ids]]:
        """Return the first mini-batch's seed nodes in place of the second's."""
        found = super().seeds(epoch)
        return [found[0], (1, found[0][1]), *found[2:]]


@cheat(RULE)
class SmallerFanOut(Act):
    """Draws one neighbour fewer in the last hop."""

    def sample(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """Sample with a smaller fan-out."""
        workload = self.system.workload
        if not hasattr(self, "_sampler"):
            fanout = (*workload.sampler.fanout[:-1], workload.sampler.fanout[-1] - 1)
            self._sampler = make_sampler(
                replace(workload, sampler=replace(workload.sampler, fanout=fanout))
            )
        return self._sampler.sample(epoch, index, seeds)


@cheat(RULE)
class SameEveryEpoch(Act):
    """Trains the first epoch's mini-batches in every epoch."""

    def seeds(self, epoch: int) -> list[tuple[int, Ids]]:
        """Return the seed nodes of epoch 0."""
        return super().seeds(0)

    def sample(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """Return the mini-batch of epoch 0 under this epoch's number."""
        return replace(super().sample(0, index, seeds), epoch=epoch)


@cheat(RULE)
class OtherSeed(Act):
    """Samples with another random seed."""

    def sample(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """Sample with another seed."""
        if not hasattr(self, "_sampler"):
            self._sampler = make_sampler(
                replace(self.system.workload, seed=self.system.workload.seed + 1)
            )
        return self._sampler.sample(epoch, index, seeds)


@cheat(RULE)
class NoLabels(Act):
    """Skips the look-up of labels."""

    def sample(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """Label every seed node as class 0."""
        batch = super().sample(epoch, index, seeds)
        return replace(batch, labels=np.zeros_like(batch.labels))


@cheat("mini_batches_came_in_order")
class IgnoresTheOrder(Act):
    """Trains in an order of its own although it was asked to keep the seed plan's."""

    settings: ClassVar[dict[str, Any]] = {"keep_order": True}

    def seeds(self, epoch: int) -> list[tuple[int, Ids]]:
        """Return the mini-batches of even numbers first."""
        return sorted(super().seeds(epoch), key=lambda entry: entry[0] % 2)


@cheat("every_batch_once")
class OneSeedNode(Act):
    """Says that it draws its own mini-batches, and trains one seed node of each."""

    faithful = False

    def seeds(self, epoch: int) -> list[tuple[int, Ids]]:
        """Return the first seed node of each mini-batch."""
        return [(index, seeds[:1]) for index, seeds in super().seeds(epoch)]


@cheat("")
class SmallerAndUnfaithful(SmallerFanOut):
    """Says that it draws its own mini-batches, which are smaller."""

    faithful = False


def _nothing(sampled: SampledBatch) -> SampledBatch:
    """Return a mini-batch of the same hops without edges, on one seed node."""
    block = Block(np.zeros(2, np.int64), np.zeros(0, np.int32), 1, 1)
    blocks = (block,) * len(sampled.blocks)
    return replace(
        sampled,
        nodes=sampled.nodes[:1],
        num_seeds=1,
        blocks=blocks,
        labels=sampled.labels[:1],
    )


@cheat("")
class ShrinksAfterTheDigest(Act):
    """Replaces the mini-batch when the harness's clock enters the training step."""

    settings: ClassVar[dict[str, Any]] = {"device": "emulated:a10g"}

    def prepare(self) -> None:
        """Listen to the clock."""
        stage = self.system.clock.stage

        def listening(name: str, batch: int = -1) -> Any:
            if name == "train":
                self._batch.sampled = _nothing(self._batch.sampled)
            return stage(name, batch)

        self.system.clock.stage = listening  # type: ignore[method-assign]

    def batch(self, sampled: SampledBatch, rows: npt.NDArray[Any]) -> Batch:
        """Keep the mini-batch that was yielded."""
        self._batch = on_device(self, sampled, rows)
        return self._batch
