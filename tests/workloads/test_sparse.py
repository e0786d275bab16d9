"""A block's graph on the device: its transpose, its arrays in one upload, and dot
products whatever the chunk."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.workloads.test_models import random_block
from workloads import sparse
from workloads.models import make_model
from workloads.sampling.batch import Block
from workloads.sparse import Graph, edge_dots
from workloads.workload import ModelSpec

CPU = torch.device("cpu")
EMPTY = Block(np.zeros(4, dtype=np.int64), np.empty(0, dtype=np.int32), 5, 3)


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize(
    "block", [random_block(30, 90, 9), random_block(1, 1, 4), EMPTY]
)
def test_the_transpose_lists_every_edge_by_source_in_the_order_of_edges(
    block: Block, self_loops: bool
) -> None:
    graph = Graph.from_block(block, CPU, self_loops=self_loops)
    indptr, destinations, order = (part.numpy() for part in graph.by_source)
    indices = graph.indices.numpy()
    expected = np.repeat(np.arange(block.num_dst), graph.degrees.numpy())
    assert indptr.dtype == destinations.dtype == order.dtype == np.int32
    assert len(indptr) == block.num_src + 1
    for source in range(block.num_src):
        edges = np.flatnonzero(indices == source)
        assert order[indptr[source] : indptr[source + 1]].tolist() == edges.tolist()
        assert (
            destinations[indptr[source] : indptr[source + 1]].tolist()
            == expected[edges].tolist()
        )
    assert indptr[-1] == len(indices)


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
def test_graphs_made_beforehand_give_the_same_scores_as_blocks(name: str) -> None:
    blocks = [random_block(40, 120, 6), random_block(12, 40, 6, seed=1)]
    model = make_model(ModelSpec(name=name, layers=2, hidden=8, heads=2), 16, 5)
    table = torch.randn(120, 16)
    graphs = []
    for block, more in zip(blocks, model.looping(), strict=True):
        indptr, indices = (
            torch.from_numpy(part) for part in Graph.arrays(block, self_loops=more)
        )
        graphs.append(Graph(block, indptr, indices))
    assert torch.equal(model(table, graphs), model(table, blocks))


def test_dot_products_do_not_depend_on_the_chunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = Graph.from_block(random_block(30, 90, 9), CPU)
    left = torch.randn(30, 2, 8)
    right = torch.randn(90, 2, 8)
    whole = edge_dots(left, right, graph)
    expected = (left[graph.destinations.long()] * right[graph.indices.long()]).sum(-1)
    torch.testing.assert_close(whole, expected)
    monkeypatch.setattr(sparse, "CHUNK_EDGES", 7)
    torch.testing.assert_close(edge_dots(left, right, graph), whole)
