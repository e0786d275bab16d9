"""Training alone, the numerator of AU, is the cost of the same steps with the rows that systems hand over."""

from __future__ import annotations

import pytest
import torch

from harness.worker.calibrate import training_times
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.sampling.bounds import largest_batch
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.training import Trainer
from workloads.workload import ModelSpec, SamplerSpec, Workload


def test_an_emulated_epoch_counts_the_gather_of_every_step(tiny_dataset: Dataset) -> None:
    workload = Workload(tiny_dataset, SamplerSpec(fanout=(5, 5), batch_size=20), ModelSpec(layers=2, hidden=16))
    device = make_accelerator("emulated:a10g", memory_bytes=8 << 20)
    trainer = Trainer(workload.model, tiny_dataset.dim, tiny_dataset.num_classes, device)
    sampler, plan = make_sampler(workload), make_seed_plan(workload)
    table = device.allocate(largest_batch(workload).max_nodes, tiny_dataset.dim, torch.float32)
    expected, without = 0.0, 0.0
    for index, seeds in enumerate(plan.batches(0)):
        sampled = sampler.sample(0, index, seeds)
        expected += trainer.modelled_seconds(sampled, table, torch.arange(sampled.num_nodes)) or 0.0
        without += trainer.modelled_seconds(sampled) or 0.0
    found = training_times(1, sampler, plan, trainer, table)
    assert found.train_s[0] == pytest.approx(expected, rel=1e-6) and expected > 1.001 * without
    device.close()
