"""Test accuracy of the model that a run trained, found by the worker once the system is closed.

The test nodes' mini-batches are sampled as the training nodes' are, from draws of their own, and their rows are read
through the page cache, inside the run's cap; one mini-batch is held at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
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
