"""Test accuracy is that of the trained model on the dataset's test nodes, and only of
models that were trained."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.settings import RunSettings, check_settings
from harness.worker.accuracy import TEST_EPOCH, Snapshots
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.errors import InputError
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.training import Trainer
from workloads.workload import ModelSpec, SamplerSpec, Workload


def accuracy_now(workload: Workload, trainer: Trainer, nodes: int) -> float:
    """Return the accuracy of the trainer's present model."""
    with tempfile.TemporaryDirectory() as folder:
        models = Snapshots(Path(folder), trainer)
        models.keep()
        return models.accuracies(workload, nodes)[0]


def test_accuracy_is_the_models_on_the_test_nodes(tiny_dataset: Dataset) -> None:
    """The expected accuracy comes from one mini-batch of all test nodes, scored by
    hand."""
    spec = ModelSpec(layers=2, hidden=16, learning_rate=0.01)
    workload = Workload(
        tiny_dataset, SamplerSpec(fanout=(-1, -1), batch_size=5000), spec
    )
    trainer = Trainer(
        spec, tiny_dataset.dim, tiny_dataset.num_classes, make_accelerator("cpu")
    )
    sampler = make_sampler(workload)
    features = torch.from_numpy(np.asarray(tiny_dataset.load("features")))
    for epoch in range(5):
        for index, seeds in enumerate(make_seed_plan(workload).batches(epoch)):
            batch = sampler.sample(epoch, index, seeds)
            trainer.step(batch, features, torch.from_numpy(batch.nodes))
    test = tiny_dataset.load("test")
    batch = sampler.sample(TEST_EPOCH, 0, test)
    with torch.no_grad():
        scores = trainer.model(features, batch.blocks, torch.from_numpy(batch.nodes))  # type: ignore[misc]
    right = scores.argmax(1).numpy() == tiny_dataset.load("labels")[test]
    assert accuracy_now(workload, trainer, len(test)) == pytest.approx(right.mean())
    assert accuracy_now(workload, trainer, 3) == pytest.approx(right[:3].mean())
    assert 0 < right.mean() < 1


def test_each_epochs_model_is_judged_as_it_was_and_the_last_one_stays(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    spec = ModelSpec(layers=2, hidden=16, learning_rate=0.01)
    workload = Workload(tiny_dataset, SamplerSpec(fanout=(5, 5), batch_size=50), spec)
    trainer = Trainer(
        spec, tiny_dataset.dim, tiny_dataset.num_classes, make_accelerator("cpu")
    )
    sampler = make_sampler(workload)
    features = torch.from_numpy(np.asarray(tiny_dataset.load("features")))
    models = Snapshots(tmp_path, trainer)
    seen = []
    for epoch in range(3):
        for index, seeds in enumerate(make_seed_plan(workload).batches(epoch)):
            batch = sampler.sample(epoch, index, seeds)
            trainer.step(batch, features, torch.from_numpy(batch.nodes))
        models.keep()
        seen.append(accuracy_now(workload, trainer, 500))
    assert models.accuracies(workload, 500) == pytest.approx(seen)
    assert accuracy_now(workload, trainer, 500) == pytest.approx(seen[-1])
    assert seen[0] < seen[-1]


def test_a_model_that_was_never_kept_has_no_accuracies(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    spec = ModelSpec(layers=2, hidden=16)
    workload = Workload(tiny_dataset, SamplerSpec(fanout=(5, 5), batch_size=50), spec)
    trainer = Trainer(
        spec, tiny_dataset.dim, tiny_dataset.num_classes, make_accelerator("cpu")
    )
    assert Snapshots(tmp_path, trainer).accuracies(workload, 10) == []


@pytest.mark.parametrize(
    "setting",
    [{"stages": "sample"}, {"device": "emulated:a10g", "device_memory": "1GiB"}],
)
def test_accuracy_needs_real_training(setting: dict[str, str]) -> None:
    with pytest.raises(InputError, match="nothing is really trained"):
        check_settings(
            RunSettings.model_validate({"dataset": "d", "test_nodes": 10, **setting})
        )
