"""Shared tools of the loader tests: a loader over a small graph, and the expected
mini-batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

import outcore
from harness.check.drive import left_open, open_things
from systems.loading import Loader, MiniBatch
from systems.registry import load
from tests.support import HAS_DGL
from workloads.dataset import Dataset
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_sampler, make_seed_plan

SETTINGS: dict[str, Any] = {
    "memory": "64MiB",
    "fanout": [5, 4],
    "batch_size": 50,
    "form": "plain",
    "cores": 2,
}


@contextmanager
def leaves_nothing(graph: Dataset) -> Iterator[None]:
    """Check that the body leaves no new thread, open file or file beside the
    dataset."""
    if HAS_DGL:
        load("dgl").load_libraries()  # before the first count: DGL keeps files open
    torch.ones(512, 512).matmul(torch.ones(512, 512))
    before = open_things()
    files = sorted(graph.path.parent.iterdir())
    yield
    found = left_open(before)
    assert found == ([], []), found
    assert sorted(graph.path.parent.iterdir()) == files


def make(graph: Dataset, **settings: Any) -> Loader:
    return outcore.loader(graph, **{**SETTINGS, **settings})


def online(loader: Loader, epoch: int) -> list[SampledBatch]:
    """Sample the loader's epoch in memory."""
    sampler = make_sampler(loader.workload)
    seeds = make_seed_plan(loader.workload).batches(epoch)
    return [sampler.sample(epoch, number, nodes) for number, nodes in enumerate(seeds)]


def assert_equal(
    batch: MiniBatch, wanted: SampledBatch, features: np.ndarray[Any, Any]
) -> None:
    batch = batch.to("cpu")
    assert (batch.epoch, batch.step, batch.batch_size) == (
        wanted.epoch,
        wanted.index,
        wanted.num_seeds,
    )
    np.testing.assert_array_equal(batch.n_id, wanted.nodes)
    np.testing.assert_array_equal(batch.y, wanted.labels)
    np.testing.assert_array_equal(batch.x, features[wanted.nodes])
    assert batch.layers is not None
    for layer, block in zip(batch.layers, wanted.blocks, strict=True):
        assert layer.size == (block.num_src, block.num_dst)
        np.testing.assert_array_equal(layer.edge_index[0], block.indices)
        np.testing.assert_array_equal(
            layer.edge_index[1],
            np.repeat(np.arange(block.num_dst), np.diff(block.indptr)),
        )
