"""Test accuracy of the model that a run trained, after each epoch, found by the worker once the system is closed.

What the model was after an epoch is kept in the run's scratch folder, outside the clock, so that judging it touches
neither the system's memory nor its page cache. The test nodes' mini-batches are sampled as the training nodes' are,
from draws of their own, and their rows are read through the page cache, inside the run's cap; one mini-batch is held at
a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from workloads.sampling.make import advise_random, make_sampler

if TYPE_CHECKING:
    import numpy.typing as npt

    from workloads.sampling.batch import SampledBatch
    from workloads.training import Trainer
    from workloads.workload import Workload

# The last epoch that can be named: no run trains as many, so test draws are nobody's training draws.
TEST_EPOCH = (1 << 16) - 1


def accuracy_on_test_nodes(workload: Workload, trainer: Trainer, nodes: int) -> float:
    """Share of the first `nodes` test nodes whose class the model finds; nan for a dataset without test nodes."""
    dataset = workload.dataset
    test = np.asarray(dataset.memmap("test")[:nodes], dtype=np.int64)
    return trainer.evaluate(_batches(workload, trainer.accelerator.torch_device, test))


class Snapshots:
    """The models that a run had, one after each epoch, as files.

    Args:
        folder: where they lie; the run's scratch folder.
        trainer: whose model it is.
    """

    def __init__(self, folder: Path, trainer: Trainer) -> None:
        self._folder = folder
        self._trainer = trainer
        self._files: list[Path] = []

    def keep(self) -> None:
        """Keep the model as it is now.

        Raises:
            OSError: it cannot be written.
        """
        if self._trainer.model is None:
            return
        target = self._folder / f"model-{len(self._files)}.npz"
        state = self._trainer.model.state_dict()
        np.savez(target, **{name: value.detach().cpu().numpy() for name, value in state.items()})
        self._files.append(target)

    def accuracies(self, workload: Workload, nodes: int) -> list[float]:
        """Each kept model's share of right classes over the first `nodes` test nodes, by epoch.

        All models see the same mini-batches, each sampled and read once. The trainer is left with the last model.
        """
        model = self._trainer.model
        if model is None or not self._files:
            return []
        device = self._trainer.accelerator.torch_device
        states = [self._state(file, device) for file in self._files]
        right, seen = [0.0] * len(states), 0
        test = np.asarray(workload.dataset.memmap("test")[:nodes], dtype=np.int64)
        for batch in _batches(workload, device, test):
            for index, state in enumerate(states):
                model.load_state_dict(state)
                right[index] += self._trainer.evaluate([batch]) * batch[0].num_seeds
            seen += batch[0].num_seeds
        return [share / seen if seen else math.nan for share in right]

    @staticmethod
    def _state(file: Path, device: torch.device) -> dict[str, torch.Tensor]:
        with np.load(file, allow_pickle=False) as content:
            return {name: torch.from_numpy(content[name]).to(device) for name in content.files}


def _batches(
    workload: Workload, device: torch.device, nodes: npt.NDArray[np.int64]
) -> Iterator[tuple[SampledBatch, torch.Tensor, None]]:
    sampler = make_sampler(workload)
    features = workload.dataset.memmap("features")
    advise_random(features)
    size = workload.sampler.batch_size
    for index, first in enumerate(range(0, len(nodes), size)):
        sampled = sampler.sample(TEST_EPOCH, index, nodes[first : first + size])
        yield sampled, torch.from_numpy(np.ascontiguousarray(features[sampled.nodes])).to(device), None
