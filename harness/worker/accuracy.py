"""Test accuracy of a run's model after each epoch, computed by the worker once the system is closed.

The model of each epoch is saved to the run's scratch folder, outside the clock, so evaluation touches neither the
system's memory nor its page cache. Mini-batches of test nodes are sampled like training mini-batches, with draws of
their own; feature rows are read through the page cache, inside the run's cap, one mini-batch at a time.
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

# The highest valid epoch number: no run trains as many epochs, so test draws equal no training draws.
TEST_EPOCH = (1 << 16) - 1


class Snapshots:
    """Model files of a run, one for each trained epoch, in its scratch folder."""

    def __init__(self, folder: Path, trainer: Trainer) -> None:
        self._folder = folder
        self._trainer = trainer
        self._files: list[Path] = []

    def keep(self) -> None:
        """Save the model's present state.

        Raises:
            OSError: the file cannot be written.
        """
        if self._trainer.model is None:
            return
        target = self._folder / f"model-{len(self._files)}.npz"
        state = self._trainer.model.state_dict()
        np.savez(target, **{name: value.detach().cpu().numpy() for name, value in state.items()})
        self._files.append(target)

    def accuracies(self, workload: Workload, nodes: int) -> list[float]:
        """Return the accuracy of each saved model over the first `nodes` test nodes, by epoch.

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
