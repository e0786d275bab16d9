"""Test accuracy of a run's model after each epoch, computed by the worker once the system is closed. The model of each
epoch is saved to the run's scratch folder, outside the clock, so evaluation touches neither the system's memory nor its
page cache. Mini-batches of test nodes are sampled like training mini-batches, with draws of their own; feature rows are
read through the page cache, inside the run's cap, one mini-batch at a time."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch

from workloads.sampling.make import advise_random, make_sampler
from workloads.training import Trainer
from workloads.workload import Workload

# The highest valid epoch number: no run trains as many epochs, so test draws equal no training draws.
TEST_EPOCH = (1 << 16) - 1


class Snapshots:
    """Model files of a run, one for each trained epoch, in its scratch folder."""

    def __init__(self, folder: Path, trainer: Trainer) -> None:
        self._folder, self._trainer = folder, trainer
        self._files: list[Path] = []

    def keep(self) -> None:
        """Save the model's present state. Raises OSError if the file cannot be written."""
        if self._trainer.model is not None:
            target = self._folder / f"model-{len(self._files)}.npz"
            state = self._trainer.model.state_dict()
            np.savez(target, **{name: value.detach().cpu().numpy() for name, value in state.items()})
            self._files.append(target)

    def accuracies(self, workload: Workload, nodes: int) -> list[float]:
        """Return the accuracy of each saved model over the first `nodes` test nodes, by epoch. All models see the same
        mini-batches, each sampled and read once. The trainer is left with the last model."""
        model, device = self._trainer.model, self._trainer.accelerator.torch_device
        if model is None or not self._files:
            return []
        states = []
        for file in self._files:
            with np.load(file, allow_pickle=False) as content:
                states.append({name: torch.from_numpy(content[name]).to(device) for name in content.files})
        test = np.asarray(workload.dataset.memmap("test")[:nodes], dtype=np.int64)
        sampler, features = make_sampler(workload), workload.dataset.memmap("features")
        advise_random(features)
        right, size = [0.0] * len(states), workload.sampler.batch_size
        for number, first in enumerate(range(0, len(test), size)):
            sampled = sampler.sample(TEST_EPOCH, number, test[first : first + size])
            table = torch.from_numpy(np.ascontiguousarray(features[sampled.nodes])).to(device)
            for index, state in enumerate(states):
                model.load_state_dict(state)
                right[index] += self._trainer.evaluate([(sampled, table, None)]) * sampled.num_seeds
        return [share / len(test) if len(test) else math.nan for share in right]
