"""Training learns, is exactly repeatable, needs little memory and imports few
modules."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from workloads.accelerators.make import make_accelerator
from workloads.errors import InputError
from workloads.sampling.batch import Block, SampledBatch
from workloads.training import Adam, Trainer
from workloads.workload import ModelSpec


class Homophilous:
    """Small graph with nine in ten edges inside a class; features are class centres
    with much noise."""

    def __init__(
        self,
        nodes: int = 3000,
        degree: int = 12,
        dim: int = 16,
        classes: int = 5,
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.nodes = nodes
        self.degree = degree
        self.classes = classes
        self.labels = rng.choice(
            classes, nodes, p=np.array([0.4] + [0.6 / (classes - 1)] * (classes - 1))
        )
        members = [np.flatnonzero(self.labels == k) for k in range(classes)]
        self.neighbours = rng.integers(0, nodes, (nodes, degree))
        for node in range(nodes):
            inside = rng.random(degree) < 0.9
            self.neighbours[node, inside] = rng.choice(
                members[self.labels[node]], int(inside.sum())
            )
        centres = rng.normal(size=(classes, dim))
        self.features = torch.from_numpy(
            (centres[self.labels] + 3 * rng.normal(size=(nodes, dim))).astype(
                np.float32
            )
        )

    def batch(
        self, seeds: np.ndarray[Any, Any], hops: int, index: int = 0, epoch: int = 0
    ) -> SampledBatch:
        """Sample all in-neighbours of the known nodes, hop by hop."""
        known = seeds.astype(np.int64)
        blocks: list[Block] = []
        for _ in range(hops):
            drawn = self.neighbours[known].reshape(-1)
            fresh = np.setdiff1d(drawn, known)
            nodes = np.concatenate([known, fresh])
            place = np.empty(self.nodes, dtype=np.int32)
            place[nodes] = np.arange(nodes.shape[0], dtype=np.int32)
            indptr = np.arange(known.shape[0] + 1, dtype=np.int64) * self.degree
            blocks.insert(
                0, Block(indptr, place[drawn], nodes.shape[0], known.shape[0])
            )
            known = nodes
        return SampledBatch(
            epoch,
            index,
            known,
            seeds.shape[0],
            tuple(blocks),
            self.labels[seeds].astype(np.int64),
        )


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Train on one thread: on batches this small more threads cost more time than they
    save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def graph() -> Homophilous:
    return Homophilous()


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
def test_training_beats_the_majority_class_by_far(
    graph: Homophilous, name: str
) -> None:
    spec = ModelSpec(name=name, layers=2, hidden=32, heads=4, learning_rate=0.01)  # type: ignore[arg-type]
    trainer = Trainer(spec, 16, 5, make_accelerator("cpu"), seed=3)
    order = np.random.default_rng(1).permutation(graph.nodes)
    train = order[:2000]
    test = order[2000:]
    for epoch in range(4):
        for index, first in enumerate(range(0, 2000, 100)):
            batch = graph.batch(train[first : first + 100], 2, index, epoch)
            result = trainer.step(batch, graph.features, torch.from_numpy(batch.nodes))
            assert result.seen == 100
    batch = graph.batch(test, 2)
    accuracy = trainer.evaluate(
        [(batch, graph.features, torch.from_numpy(batch.nodes))]
    )
    majority = float(np.bincount(graph.labels[test]).max() / test.shape[0])
    assert majority < 0.45
    assert accuracy > majority + 0.35, f"{name}: {accuracy:.3f} against {majority:.3f}"


def losses(graph: Homophilous, spec: ModelSpec, shuffle_table: int) -> list[float]:
    """Train and return the losses; each step's table has its rows in another order."""
    trainer = Trainer(spec, 16, 5, make_accelerator("cpu"), seed=11)
    curve = []
    for index in range(8):
        batch = graph.batch(np.arange(index * 50, index * 50 + 50), spec.layers, index)
        if shuffle_table == 0:
            curve.append(trainer.step(batch, graph.features[batch.nodes], None).loss)
            continue
        slots = np.random.default_rng(shuffle_table + index).permutation(graph.nodes)
        table = torch.empty_like(graph.features)
        table[slots] = graph.features
        curve.append(
            trainer.step(batch, table, torch.from_numpy(slots[batch.nodes])).loss
        )
    return curve


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
def test_the_loss_curve_is_the_same_wherever_rows_lie(
    graph: Homophilous, name: str, dropout: float
) -> None:
    spec = ModelSpec(name=name, layers=2, hidden=16, dropout=dropout)  # type: ignore[arg-type]
    in_order = losses(graph, spec, 0)
    assert losses(graph, spec, 5) == in_order
    assert losses(graph, spec, 6) == in_order
    assert in_order[-1] < in_order[0]


def test_adam_equals_torchs() -> None:
    torch.manual_seed(0)
    start = [torch.randn(5, 3), torch.randn(3)]
    mine = [value.clone() for value in start]
    theirs = [value.clone().requires_grad_() for value in start]
    adam = Adam(mine, 0.01)
    reference = torch.optim.Adam(theirs, lr=0.01)
    for _ in range(50):
        gradients = [torch.randn_like(value) for value in start]
        adam.step(gradients)
        for value, gradient in zip(theirs, gradients, strict=True):
            value.grad = gradient
        reference.step()
    for value, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(value, other.detach(), rtol=1e-5, atol=1e-6)


def allocations(step: Any) -> tuple[int, int, float]:
    """Return (peak bytes beyond the start, largest allocation, bytes freed) from the
    log of torch's allocator."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        step()
    events = [
        event
        for event in profile.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    held = peak = largest = freed = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
        largest = max(largest, event.nbytes())
        freed -= min(0, event.nbytes())
    return peak, largest, freed


def sampled_shape(sizes: list[tuple[int, int, int]], seed: int = 0) -> SampledBatch:
    """Make a batch whose blocks have these (sources, destinations, edges a
    destination), input layer first."""
    rng = np.random.default_rng(seed)
    blocks = [
        Block(
            np.arange(dst + 1, dtype=np.int64) * degree,
            rng.integers(0, src, dst * degree).astype(np.int32),
            src,
            dst,
        )
        for src, dst, degree in sizes
    ]
    seeds = blocks[-1].num_dst
    return SampledBatch(
        0,
        0,
        np.arange(blocks[0].num_src),
        seeds,
        tuple(blocks),
        rng.integers(0, 10, seeds),
    )


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
def test_seed_nodes_without_neighbours_train(name: str) -> None:
    lonely = Block(np.zeros(4, dtype=np.int64), np.empty(0, dtype=np.int32), 3, 3)
    batch = SampledBatch(0, 0, np.arange(3), 3, (lonely, lonely), np.array([0, 1, 2]))
    trainer = Trainer(
        ModelSpec(name=name, layers=2, hidden=8), 4, 3, make_accelerator("cpu")
    )  # type: ignore[arg-type]
    curve = [trainer.step(batch, torch.eye(4)[:3], None).loss for _ in range(30)]
    assert np.isfinite(curve).all()
    assert curve[-1] < curve[0]


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
@pytest.mark.parametrize("dim", [1, 32, 100, 127, 128, 129, 256, 768])
def test_features_of_every_width_and_precision_train(name: str, dim: int) -> None:
    batch = sampled_shape([(60, 20, 3), (20, 5, 3)])
    for dtype in (torch.float32, torch.float16):
        trainer = Trainer(
            ModelSpec(name=name, layers=2, hidden=16), dim, 10, make_accelerator("cpu")
        )  # type: ignore[arg-type]
        table = torch.randn(100, dim).to(dtype)
        rows = torch.randperm(100)[:60]
        assert np.isfinite(trainer.step(batch, table, rows).loss)
        weights = [p.detach().clone() for p in trainer.model.parameters()]  # type: ignore[union-attr]
        trainer.step(batch, table, rows)
        assert all(
            not torch.equal(a, b)
            for a, b in zip(weights, trainer.model.parameters(), strict=True)
        )  # type: ignore[union-attr]


THREE_HOPS = [(12_000, 6_000, 10), (6_000, 900, 10), (900, 100, 10)]


@pytest.mark.parametrize("aliased", [True, False])
def test_a_sage_step_stays_within_four_hidden_rows_a_destination(aliased: bool) -> None:
    spec = ModelSpec(name="sage", layers=3, hidden=256)
    batch = sampled_shape(THREE_HOPS)
    table = torch.randn(20_000, 128)
    rows = torch.randperm(20_000)[: batch.num_nodes] if aliased else None
    trainer = Trainer(spec, 128, 10, make_accelerator("cpu"), seed=0)
    trainer.step(batch, table, rows)
    peak, largest, freed = allocations(lambda: trainer.step(batch, table, rows))
    bound = sum(4 * block.num_dst * 256 * 4 for block in batch.blocks)
    assert 0 < peak <= bound, f"peak {peak} of {bound} allowed"
    assert largest < min(block.num_edges for block in batch.blocks[:1]) * 128 * 4 / 4
    assert freed > bound / 4  # the log does contain the step's tensors


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
def test_no_step_allocates_edges_times_features(name: str) -> None:
    """Doubling the edges adds a few scalars per edge (one a head), never a row per
    edge."""
    spec = ModelSpec(name=name, layers=2, hidden=128, heads=4)  # type: ignore[arg-type]
    table = torch.randn(4_000, 128)
    peaks = []
    for degree in (20, 40):
        batch = sampled_shape([(4_000, 2_000, degree), (2_000, 500, degree)])
        trainer = Trainer(spec, 128, 10, make_accelerator("cpu"), seed=0)
        trainer.step(batch, table, None)
        peak, largest, _ = allocations(
            lambda t=trainer, b=batch: t.step(b, table, None)
        )
        assert largest < 2_000 * degree * 128 * 4 / 4
        peaks.append(peak)
    more_edges = 20 * 2_500
    # a float row an edge would be four times that
    assert peaks[1] - peaks[0] < more_edges * 128


@pytest.mark.slow("workloads", "harness/worker", seconds=8)
def test_a_worker_starts_without_compilers_and_frameworks() -> None:
    code = (
        "import sys, numpy as np, torch\n"
        "from workloads.accelerators.make import make_accelerator\n"
        "from workloads.sampling.batch import Block, SampledBatch\n"
        "from workloads.training import Trainer\n"
        "from workloads.workload import ModelSpec\n"
        "block = Block(np.array([0, 2]), np.array([0, 1], dtype=np.int32), 2, 1)\n"
        "batch = SampledBatch(0, 0, np.arange(2), 1, (block,), np.zeros(1, "
        "dtype=np.int64))\n"
        "for name in ('sage', 'gcn', 'gat'):\n"
        "    trainer = Trainer(ModelSpec(name=name, layers=1), 4, 3, "
        "make_accelerator('cpu'))\n"
        "    trainer.step(batch, torch.ones(2, 4), None)\n"
        "heavy = ('torch._dynamo', 'torch_geometric', 'pandas', 'matplotlib', "
        "'scipy')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_arithmetic_of_less_precision_is_refused(graph: Homophilous) -> None:
    trainer = Trainer(
        ModelSpec("sage", layers=2, hidden=4), 16, 5, make_accelerator("cpu")
    )
    batch = graph.batch(np.arange(10), 2)
    table = graph.features[batch.nodes]
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(InputError, match="autocast"),
    ):
        trainer.step(batch, table)
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(InputError, match="precision"):
            trainer.step(batch, table)
    finally:
        torch.set_float32_matmul_precision("highest")
    trainer.step(batch, table)


def test_impossible_steps_are_refused_in_a_sentence(graph: Homophilous) -> None:
    batch = graph.batch(np.arange(10), 1)
    trainer = Trainer(ModelSpec(layers=2, hidden=8), 16, 5, make_accelerator("cpu"))
    with pytest.raises(InputError, match="2 layers and the batch 1 hops"):
        trainer.step(batch, graph.features, torch.from_numpy(batch.nodes))
    with pytest.raises(InputError, match="without features"):
        trainer.step(graph.batch(np.arange(10), 2), None)
