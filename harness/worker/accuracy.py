"""Test accuracy of a run's model after each epoch, computed by a process of its own
once the run has ended.

The run's worker saves the model of each epoch to the run's scratch folder, outside the
clock. The evaluation is in no cap: its memory, that of a mini-batch of test nodes and
its rows, is neither the system's nor the training's, so no run ends for want of it.
Mini-batches of test nodes are sampled like training mini-batches, with draws of their
own.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch

from harness.wire.protocol import Done, RankChannel, WorkerSpec
from harness.worker.build import workload_of
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.sampling.make import advise_random, make_sampler
from workloads.training import Trainer
from workloads.workload import Workload

# The highest valid epoch number: no run trains as many epochs, so test draws equal no
# training draws.
TEST_EPOCH = (1 << 16) - 1


class Snapshots:
    """Model files of a run, one for each trained epoch, in its scratch folder."""

    def __init__(self, folder: Path, trainer: Trainer) -> None:
        self._folder = folder
        self._trainer = trainer
        self._files: list[Path] = []

    @classmethod
    def kept(cls, folder: Path, trainer: Trainer, epochs: int) -> Snapshots:
        """Return the models that a run of `epochs` epochs has kept in a folder."""
        found = cls(folder, trainer)
        files = (found._file(epoch) for epoch in range(epochs))
        found._files = [file for file in files if file.exists()]
        return found

    def _file(self, epoch: int) -> Path:
        return self._folder / f"model-{epoch}.npz"

    def keep(self) -> None:
        """Save the model's present state. Raises OSError if the file cannot be
        written."""
        if self._trainer.model is not None:
            target = self._file(len(self._files))
            state = self._trainer.model.state_dict()
            np.savez(
                target,
                **{name: value.detach().cpu().numpy() for name, value in state.items()},
            )
            self._files.append(target)

    def accuracies(self, workload: Workload, nodes: int) -> list[float]:
        """Return the accuracy of each saved model over the first `nodes` test nodes, by
        epoch. All models see the same mini-batches, each sampled and read once. The
        trainer is left with the last model."""
        model = self._trainer.model
        device = self._trainer.accelerator.torch_device
        if model is None or not self._files:
            return []
        states = []
        for file in self._files:
            with np.load(file, allow_pickle=False) as content:
                states.append(
                    {
                        name: torch.from_numpy(content[name]).to(device)
                        for name in content.files
                    }
                )
        test = np.asarray(workload.dataset.memmap("test")[:nodes], dtype=np.int64)
        sampler = make_sampler(workload)
        features = workload.dataset.memmap("features")
        advise_random(features)
        right = [0.0] * len(states)
        size = workload.sampler.batch_size
        for number, first in enumerate(range(0, len(test), size)):
            sampled = sampler.sample(TEST_EPOCH, number, test[first : first + size])
            table = torch.from_numpy(np.ascontiguousarray(features[sampled.nodes])).to(
                device
            )
            for index, state in enumerate(states):
                model.load_state_dict(state)
                right[index] += (
                    self._trainer.evaluate([(sampled, table, None)]) * sampled.num_seeds
                )
        return [share / len(test) if len(test) else math.nan for share in right]


def evaluate(spec: WorkerSpec, joint: RankChannel) -> None:
    """Report the test accuracy of each model that a run has kept in the spec's scratch
    folder."""
    config = spec.config
    dataset = Dataset.open(Path(spec.dataset))
    workload = workload_of(config, dataset)
    accelerator = make_accelerator(config.device)
    try:
        trainer = Trainer(
            workload.model, dataset.dim, dataset.num_classes, accelerator, config.seed
        )
        models = Snapshots.kept(Path(spec.scratch), trainer, config.epochs)
        joint.send(
            Done(notes={}, test_accuracy=models.accuracies(workload, config.test_nodes))
        )
    finally:
        accelerator.close()
