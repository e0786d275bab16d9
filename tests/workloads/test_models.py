"""The layers equal PyG's in outputs and gradients, and initial weights depend on the
seed alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from workloads.errors import InputError
from workloads.models import GatLayer, GcnLayer, Layer, SageLayer, make_model
from workloads.sampling.batch import Block
from workloads.workload import ModelSpec

pyg = pytest.importorskip("torch_geometric.nn")


def random_block(num_dst: int, num_src: int, degree: int, seed: int = 0) -> Block:
    """Make a block of 0 to `degree` edges a destination, self-loops and repeated edges
    among them."""
    rng = np.random.default_rng(seed)
    degrees = rng.integers(0, degree + 1, num_dst)
    indptr = np.zeros(num_dst + 1, dtype=np.int64)
    np.cumsum(degrees, out=indptr[1:])
    indices = rng.integers(0, num_src, int(indptr[-1])).astype(np.int32)
    return Block(indptr, indices, num_src, num_dst)


def edge_index(block: Block) -> torch.Tensor:
    destinations = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
    return torch.from_numpy(np.stack([block.indices.astype(np.int64), destinations]))


def assert_equal_layers(
    ours: Layer,
    theirs: torch.nn.Module,
    call: object,
    pairs: list[tuple[torch.Tensor, torch.Tensor]],
    block: Block,
) -> None:
    """Check that two layers give the same output and the same gradients of input and
    parameters on the block."""
    torch.manual_seed(1)
    x_ours = torch.randn(block.num_src, ours.in_dim).requires_grad_()
    x_theirs = x_ours.detach().clone().requires_grad_()
    with torch.no_grad():
        for mine, reference in pairs:
            reference.copy_(mine.view_as(reference))
    out_ours = ours(x_ours, block)
    out_theirs = call(x_theirs)  # type: ignore[operator]
    torch.testing.assert_close(out_ours, out_theirs, rtol=1e-5, atol=1e-5)
    weight = torch.randn_like(out_ours)
    (out_ours * weight).sum().backward()
    (out_theirs * weight).sum().backward()
    torch.testing.assert_close(x_ours.grad, x_theirs.grad, rtol=1e-4, atol=1e-5)
    for mine, reference in pairs:
        assert mine.grad is not None
        assert reference.grad is not None
        torch.testing.assert_close(
            mine.grad, reference.grad.view_as(mine), rtol=1e-4, atol=1e-4
        )


# From narrow to wide the layer sums first; from wide to narrow, on a block with few
# sources, it multiplies first.
SHAPES = [(16, 24, 30, 90), (64, 4, 60, 61), (7, 7, 1, 5), (5, 3, 40, 40)]


@pytest.mark.parametrize(("in_dim", "out_dim", "num_dst", "num_src"), SHAPES)
def test_sage_equals_pyg_forward_and_gradients(
    in_dim: int, out_dim: int, num_dst: int, num_src: int
) -> None:
    block = random_block(num_dst, num_src, 9)
    ours = SageLayer(in_dim, out_dim, torch.Generator().manual_seed(0))
    theirs = pyg.SAGEConv(in_dim, out_dim)
    pairs = [
        (ours.neighbour_weight, theirs.lin_l.weight),
        (ours.bias, theirs.lin_l.bias),
        (ours.root_weight, theirs.lin_r.weight),
    ]

    def call(x: torch.Tensor) -> torch.Tensor:
        return theirs((x, x[: block.num_dst]), edge_index(block))

    assert_equal_layers(ours, theirs, call, pairs, block)


@pytest.mark.parametrize(("in_dim", "out_dim", "num_dst", "num_src"), SHAPES)
def test_gcn_equals_pyg_on_the_block_as_a_square_graph(
    in_dim: int, out_dim: int, num_dst: int, num_src: int
) -> None:
    block = random_block(num_dst, num_src, 9, seed=3)
    ours = GcnLayer(in_dim, out_dim, torch.Generator().manual_seed(0))
    theirs = pyg.GCNConv(in_dim, out_dim)

    def call(x: torch.Tensor) -> torch.Tensor:
        return theirs(x, edge_index(block))[: block.num_dst]

    assert_equal_layers(
        ours,
        theirs,
        call,
        [(ours.weight, theirs.lin.weight), (ours.bias, theirs.bias)],
        block,
    )


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize(
    ("in_dim", "num_dst", "num_src"), [(16, 30, 90), (5, 40, 40), (3, 1, 4)]
)
def test_gat_equals_pyg_forward_and_gradients(
    in_dim: int, num_dst: int, num_src: int, concat: bool
) -> None:
    block = random_block(num_dst, num_src, 9, seed=5)
    heads = 4
    width = 6
    ours = GatLayer(
        in_dim,
        heads * width if concat else width,
        heads,
        concat,
        torch.Generator().manual_seed(0),
    )
    theirs = pyg.GATConv(in_dim, width, heads=heads, concat=concat)
    pairs = [
        (ours.weight, theirs.lin.weight),
        (ours.source_attention, theirs.att_src),
        (ours.destination_attention, theirs.att_dst),
        (ours.bias, theirs.bias),
    ]

    def call(x: torch.Tensor) -> torch.Tensor:
        return theirs((x, x[: block.num_dst]), edge_index(block))

    assert_equal_layers(ours, theirs, call, pairs, block)


def two_blocks() -> list[Block]:
    return [random_block(20, 60, 6, seed=1), random_block(5, 20, 6, seed=2)]


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
def test_a_table_with_an_alias_list_gives_what_rows_in_order_give(name: str) -> None:
    spec = ModelSpec(name=name, layers=2, hidden=8, heads=2)  # type: ignore[arg-type]
    model = make_model(spec, 12, 3, seed=4)
    table = torch.randn(200, 12)
    rows = torch.randperm(200)[:60]
    through_alias = model(table, two_blocks(), rows)
    in_order = model(table[rows], two_blocks())
    assert torch.equal(through_alias, in_order)


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
def test_half_precision_features_train_in_single_precision(name: str) -> None:
    spec = ModelSpec(name=name, layers=2, hidden=8, heads=2)  # type: ignore[arg-type]
    model = make_model(spec, 12, 3, seed=4)
    table = torch.randn(200, 12).half()
    rows = torch.randperm(200)[:60]
    out = model(table, two_blocks(), rows)
    assert out.dtype == torch.float32
    assert torch.equal(out, model(table.float(), two_blocks(), rows))


def test_initial_weights_are_a_function_of_the_seed_alone() -> None:
    spec = ModelSpec(name="gat", layers=3, hidden=8, heads=2)
    torch.manual_seed(1)
    first = make_model(spec, 12, 3, seed=7).state_dict()
    torch.manual_seed(2)
    torch.rand(5)
    second = make_model(spec, 12, 3, seed=7).state_dict()
    other = make_model(spec, 12, 3, seed=8).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not torch.equal(first["layers.0.weight"], other["layers.0.weight"])


def test_wrong_models_are_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="not a multiple of 3 heads"):
        make_model(ModelSpec(name="gat", hidden=8, heads=3), 4, 2)
    with pytest.raises(InputError, match="1 layers and the batch 2 hops"):
        make_model(ModelSpec(layers=1), 12, 3)(torch.randn(60, 12), two_blocks())


def test_gradients_of_the_whole_model_equal_those_of_pygs_layers_in_a_row() -> None:
    """In-place activations and buffers shared between layers leave gradients right."""
    blocks = two_blocks()
    model = make_model(ModelSpec(name="sage", layers=2, hidden=8), 12, 3, seed=4)
    convs = [pyg.SAGEConv(12, 8), pyg.SAGEConv(8, 3)]
    with torch.no_grad():
        for layer, conv in zip(model.layers, convs, strict=True):
            assert isinstance(layer, SageLayer)
            conv.lin_l.weight.copy_(layer.neighbour_weight)
            conv.lin_l.bias.copy_(layer.bias)
            conv.lin_r.weight.copy_(layer.root_weight)
    x = torch.randn(60, 12)
    hidden = convs[0]((x, x[:20]), edge_index(blocks[0])).relu()
    expected = convs[1]((hidden, hidden[:5]), edge_index(blocks[1]))
    labels = torch.tensor([0, 1, 2, 0, 1])
    out = model(x, blocks)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    gradients = torch.autograd.grad(
        torch.nn.functional.cross_entropy(out, labels), list(model.parameters())
    )
    torch.nn.functional.cross_entropy(expected, labels).backward()
    reference = [
        p.grad
        for conv in convs
        for p in (conv.lin_l.weight, conv.lin_r.weight, conv.lin_l.bias)
    ]
    for mine, theirs in zip(gradients, reference, strict=True):
        assert theirs is not None
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
