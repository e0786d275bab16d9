"""A first layer aggregated beforehand is the original model's first layer over whole
neighbour lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.workloads.test_sampling import make_graph
from workloads.accelerators.make import make_accelerator
from workloads.errors import InputError
from workloads.models import aggregated_width, first_layer_rows, make_model
from workloads.sampling.batch import SampledBatch
from workloads.sampling.neighbor import NeighborSampler
from workloads.training import Trainer
from workloads.workload import ModelSpec

NODES = 400
DIM = 13
CLASSES = 4
INDPTR, INDICES = make_graph(NODES, 3, mean=6.0)
FEATURES = np.random.default_rng(0).normal(size=(NODES, DIM)).astype(np.float32)
LABELS = np.arange(NODES) % CLASSES


def batch_of(fanout: tuple[int, ...], seeds: np.ndarray[Any, Any]) -> SampledBatch:
    return NeighborSampler(INDPTR, INDICES, fanout, seed=5, labels=LABELS).sample(
        0, 0, seeds
    )


def rows_of(spec: ModelSpec, batch: SampledBatch) -> torch.Tensor:
    return torch.from_numpy(
        first_layer_rows(spec, INDPTR, INDICES, FEATURES, batch.nodes)
    )


def gradients(model: torch.nn.Module, scores: torch.Tensor) -> list[torch.Tensor]:
    weight = torch.randn(scores.shape, generator=torch.Generator().manual_seed(2))
    return list(torch.autograd.grad((scores * weight).sum(), list(model.parameters())))


CASES = [
    # GraphSAGE: any batch. GCN: its blocks count degrees inside themselves, so a batch
    # of all nodes.
    ("sage", (3, 2), np.arange(0, NODES, 9)),
    ("sage", (5,), np.arange(30)),
    ("gcn", (3, 2), np.arange(NODES)),
    ("gcn", (4,), np.random.default_rng(1).permutation(NODES)),
]


@pytest.mark.parametrize(("name", "fanout", "seeds"), CASES)
@pytest.mark.parametrize("hidden", [6, 40])
def test_the_whole_model_equals_the_original_on_full_neighbour_blocks(
    name: Any, fanout: tuple[int, ...], seeds: np.ndarray[Any, Any], hidden: int
) -> None:
    """Scores and all gradients are equal where the first layer has fan-out -1 and the
    others any fan-out."""
    spec = ModelSpec(name=name, layers=len(fanout) + 1, hidden=hidden)
    model = make_model(spec, DIM, CLASSES, seed=1)
    original = batch_of((*fanout, -1), seeds)
    shorter = batch_of(fanout, seeds)
    assert np.array_equal(shorter.nodes, original.nodes[: shorter.num_nodes])
    expected = model(
        torch.from_numpy(FEATURES), original.blocks, torch.from_numpy(original.nodes)
    )
    got = model(rows_of(spec, shorter), shorter.blocks, first_layer_aggregated=True)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    pairs = zip(gradients(model, got), gradients(model, expected), strict=True)
    for mine, reference in pairs:
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sage", "gcn"])
def test_the_first_layer_alone_equals_the_original(name: Any) -> None:
    spec = ModelSpec(name=name, layers=1)
    layer: Any = make_model(spec, DIM, CLASSES, seed=1).layers[0]
    batch = batch_of((-1,), np.arange(NODES))
    expected = layer(torch.from_numpy(FEATURES[batch.nodes]), batch.blocks[0])
    nodes = batch_of((-1,), np.arange(NODES)).nodes[:NODES]
    got = layer.from_aggregated(
        torch.from_numpy(first_layer_rows(spec, INDPTR, INDICES, FEATURES, nodes))
    )
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_gcn_rows_weigh_by_degrees_of_the_whole_graph() -> None:
    """Computed by hand: in-neighbours of node 0 are 1, 1 (twice) and 0, of node 1 it is
    2, node 2 has none."""
    indptr = np.array([0, 3, 4, 4])
    indices = np.array([1, 1, 0, 2])
    features = np.array([[1.0], [10.0], [100.0]], dtype=np.float32)
    rows = first_layer_rows(
        ModelSpec(name="gcn"), indptr, indices, features, np.array([0, 1, 2])
    )
    # Degrees with one loop each: 3, 2, 1.
    assert rows[:, 0] == pytest.approx(
        [1 / 3 + 2 * 10 / np.sqrt(2 * 3), 10 / 2 + 100 / np.sqrt(1 * 2), 100.0]
    )
    rows = first_layer_rows(
        ModelSpec(name="sage"), indptr, indices, features, np.array([0, 2])
    )
    assert rows.tolist() == [[1.0, 7.0], [100.0, 0.0]]


@pytest.mark.parametrize("name", ["sage", "gcn"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("aliased", [True, False])
def test_steps_on_aggregated_rows_train_as_the_original_would(
    name: Any, dtype: torch.dtype, aliased: bool
) -> None:
    spec = ModelSpec(name=name, layers=2, hidden=16)
    one, two = (
        Trainer(spec, DIM, CLASSES, make_accelerator("cpu"), seed=3) for _ in range(2)
    )
    seeds = np.arange(NODES)
    original = batch_of((4, -1), seeds)
    shorter = batch_of((4,), seeds)
    rows = rows_of(spec, shorter).to(dtype)
    order = None
    if aliased:
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    if order is None:
        table = rows
    else:
        table = torch.empty_like(rows).index_copy_(0, order, rows)
    for _ in range(3):
        expected = one.step(
            original, torch.from_numpy(FEATURES), torch.from_numpy(original.nodes)
        )
        got = two.step(shorter, table, order, first_layer_aggregated=True)
        assert got.loss == pytest.approx(
            expected.loss, rel=1e-4 if dtype == torch.float32 else 1e-2
        )


def test_attention_has_no_aggregated_form() -> None:
    spec = ModelSpec(name="gat", layers=2, hidden=8)
    with pytest.raises(InputError, match="gat's first layer cannot be aggregated"):
        aggregated_width(spec, DIM)
    batch = batch_of((4,), np.arange(30))
    for device, memory in (("cpu", None), ("emulated:a10g", 1 << 20)):
        accelerator = make_accelerator(device, memory_bytes=memory)
        with pytest.raises(InputError, match="gat's first layer"):
            Trainer(spec, DIM, CLASSES, accelerator).step(
                batch,
                torch.zeros(NODES, DIM),
                torch.from_numpy(batch.nodes),
                first_layer_aggregated=True,
            )
        accelerator.close()


def test_wrong_rows_and_wrong_blocks_are_refused() -> None:
    spec = ModelSpec(layers=2, hidden=8)
    trainer = Trainer(spec, DIM, CLASSES, make_accelerator("cpu"))
    batch = batch_of((4,), np.arange(30))
    with pytest.raises(
        InputError, match="aggregated rows are 13 wide, and sage needs 26"
    ):
        trainer.step(
            batch, torch.zeros(batch.num_nodes, DIM), first_layer_aggregated=True
        )
    full = batch_of((4, 4), np.arange(30))
    with pytest.raises(InputError, match="2 layers and the batch 2 hops beside"):
        trainer.step(
            full, torch.zeros(full.num_nodes, 2 * DIM), first_layer_aggregated=True
        )


@pytest.mark.parametrize("name", ["sage", "gcn"])
def test_an_emulated_step_without_the_first_layers_edges_costs_less(name: Any) -> None:
    spec = ModelSpec(name=name, layers=2, hidden=64)
    device = make_accelerator("emulated:a10g", memory_bytes=1 << 20)
    trainer = Trainer(spec, DIM, CLASSES, device)
    original = batch_of((4, -1), np.arange(NODES))
    shorter = batch_of((4,), np.arange(NODES))
    whole = trainer.modelled_seconds(original)
    less = trainer.modelled_seconds(shorter, first_layer_aggregated=True)
    assert whole is not None
    assert less is not None
    assert 0 < less < whole
    shapes = trainer.layer_shapes(shorter, first_layer_aggregated=True)
    assert (shapes[0].num_dst, shapes[0].num_edges, shapes[0].aggregated) == (
        shorter.num_nodes,
        0,
        True,
    )
    assert shapes[1:] == trainer.layer_shapes(original)[1:]
    device.close()
