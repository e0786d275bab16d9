"""Rankings equal those of NumPy and SciPy in memory."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems.engine.rank.pagerank import PageRankFacts, reverse_pagerank
from systems.engine.rank.ranking import out_degrees, scores, top
from tests.support import make_tiny
from tests.systems.support_systems import workload_of
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DataIOError, DatasetError, InputError
from workloads.making.writer import DatasetWriter


@given(st.lists(st.integers(0, 5) | st.floats(-2, 2), max_size=40), st.integers(0, 45))
def test_top_is_the_highest_first_and_equal_ones_by_id(
    values: list[float], k: int
) -> None:
    given_scores = np.array(values, dtype=np.float64)
    expected = sorted(range(len(values)), key=lambda node: (-given_scores[node], node))[
        :k
    ]
    assert top(given_scores, k).tolist() == expected


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_out_degrees_are_counted(tmp_path: Path, index_dtype: str) -> None:
    dataset = make_tiny(
        tmp_path / "g", nodes=3000, edges=60_000, index_dtype=index_dtype
    )
    expected = np.bincount(dataset.load("indices"), minlength=dataset.num_nodes)
    assert out_degrees(workload_of(dataset)).tolist() == expected.tolist()
    assert out_degrees(workload_of(dataset), 4 << 20).tolist() == expected.tolist()


def test_a_budget_too_small_for_the_counts_is_refused(tiny_dataset: Dataset) -> None:
    with pytest.raises(BudgetError, match="out-degrees"):
        out_degrees(workload_of(tiny_dataset), 4 * tiny_dataset.num_nodes)


def test_a_truncated_edge_list_is_named(tmp_path: Path) -> None:
    dataset = make_tiny(tmp_path / "g")
    with dataset.file("indices").open("r+b") as file:
        file.truncate(8192)
    with pytest.raises(DataIOError, match=r"indices\.npy"):
        out_degrees(workload_of(dataset))


def test_an_id_that_is_no_node_is_named(tmp_path: Path, tiny_dataset: Dataset) -> None:
    shutil.copytree(tiny_dataset.path, tmp_path / "bad")
    dataset = Dataset.open(tmp_path / "bad")
    with dataset.file("indices").open("r+b") as file:
        file.seek(dataset.data_offset("indices") + 4 * 77)
        file.write(np.int32(-1).tobytes())
    with pytest.raises(DatasetError, match=r"indices\.npy"):
        out_degrees(workload_of(dataset))


def reference_pagerank(dataset: Dataset, weighted: bool, iterations: int) -> np.ndarray:
    """Compute reverse PageRank by SciPy's product over the whole graph in memory, in
    double precision."""
    indptr = dataset.load("indptr")
    indices = dataset.load("indices")
    train = dataset.load("train")
    nodes = dataset.num_nodes
    graph = scipy.sparse.csr_matrix(
        (np.ones(len(indices)), indices, indptr), shape=(nodes, nodes)
    )
    scores = np.full(nodes, 1.0 / nodes)
    if weighted:
        scores[train] *= nodes / len(train)
    degrees = np.diff(indptr)
    for _ in range(iterations):
        given = np.divide(scores, degrees, out=np.zeros(nodes), where=degrees > 0)
        scores = (1 - 0.85) / nodes + 0.85 * (graph.T @ given)
    return scores


def make_graph(
    path: Path,
    nodes: int,
    edges: list[tuple[int, int]],
    train: list[int],
    index_dtype: str,
) -> Dataset:
    """Make a dataset of (target, source) edges, with duplicates and self-loops."""
    edges = sorted(edges)
    targets = np.array([target for target, _ in edges], dtype=np.int64)
    indptr = np.concatenate(
        [[0], np.cumsum(np.bincount(targets, minlength=nodes))]
    ).astype(np.int64)
    with DatasetWriter(path, replace=True) as writer:
        writer.write("indptr", indptr)
        writer.write(
            "indices", np.array([source for _, source in edges], dtype=index_dtype)
        )
        writer.write("features", np.zeros((nodes, 1), dtype=np.float32))
        writer.write("labels", np.zeros(nodes, dtype=np.int64))
        writer.write("train", np.array(sorted(train), dtype=np.int64))
        writer.write("valid", np.empty(0, dtype=np.int64))
        writer.write("test", np.empty(0, dtype=np.int64))
    return Dataset.open(path)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_pagerank_is_scipys_to_the_last_bit_on_any_graph(
    tmp_path: Path, data: st.DataObject
) -> None:
    nodes = data.draw(st.integers(1, 40))
    node = st.integers(0, nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=120))
    train = data.draw(st.lists(node, min_size=1, max_size=nodes, unique=True))
    dataset = make_graph(
        tmp_path / "g",
        nodes,
        edges,
        train,
        data.draw(st.sampled_from(["int32", "int64"])),
    )
    weighted = data.draw(st.booleans())
    iterations = data.draw(st.integers(0, 6))
    found = reverse_pagerank(
        workload_of(dataset), weighted=weighted, iterations=iterations, threads=2
    )
    assert (
        found.tobytes() == reference_pagerank(dataset, weighted, iterations).tobytes()
    )


@pytest.fixture(scope="module")
def wide_dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Make 300,000 nodes (several windows of `indptr`) and 2 M edges; many nodes have
    none."""
    rng = np.random.default_rng(3)
    nodes = 300_000
    edges = 2_000_000
    targets = np.sort((nodes * rng.random(edges) ** 2).astype(np.int64))
    indptr = np.concatenate(
        [[0], np.cumsum(np.bincount(targets, minlength=nodes))]
    ).astype(np.int64)
    path = tmp_path_factory.mktemp("ranking") / "wide"
    with DatasetWriter(path) as writer:
        writer.write("indptr", indptr)
        writer.write("indices", (nodes * rng.random(edges) ** 3).astype(np.int32))
        writer.write("features", np.zeros((nodes, 1), dtype=np.float32))
        writer.write("labels", np.zeros(nodes, dtype=np.int64))
        for number, part in enumerate(("train", "valid", "test")):
            writer.write(part, np.arange(number, nodes, 100, dtype=np.int64))  # type: ignore[arg-type]
    return Dataset.open(path)


def test_pagerank_is_the_same_for_any_threads_and_budget(wide_dataset: Dataset) -> None:
    expected = reference_pagerank(wide_dataset, True, 5).tobytes()
    held = []
    for threads, budget in [
        (1, None),
        (2, None),
        (5, None),
        (2, 15 << 20),
        (3, 42 << 20),
    ]:
        facts = PageRankFacts()
        found = reverse_pagerank(
            workload_of(wide_dataset),
            weighted=True,
            budget_bytes=budget,
            threads=threads,
            facts=facts,
        )
        assert found.tobytes() == expected, (threads, budget)
        held.append(facts.held_edges)
    assert held[0] == wide_dataset.num_edges
    assert held[3] == 0
    assert 0 < held[4] < wide_dataset.num_edges


def test_every_iteration_reads_the_graph_once(wide_dataset: Dataset) -> None:
    total = wide_dataset.topology_bytes + 8 * (wide_dataset.num_nodes + 1)
    streamed = PageRankFacts()
    held = PageRankFacts()
    reverse_pagerank(
        workload_of(wide_dataset), weighted=True, budget_bytes=15 << 20, facts=streamed
    )
    reverse_pagerank(workload_of(wide_dataset), weighted=True, facts=held)
    blocks = 4 * 4096  # the last request of a file is rounded up to a whole block
    assert 5 * total <= streamed.reads.bytes_read <= 5 * (total + blocks)
    # Each of the four later iterations reads at most one piece of 2 MiB.
    assert total <= held.reads.bytes_read <= total + blocks + 4 * (2 << 20)


def test_reverse_pagerank_converges_and_needs_a_third_number_a_node(
    tiny_dataset: Dataset,
) -> None:
    facts = PageRankFacts()
    found = reverse_pagerank(
        workload_of(tiny_dataset), weighted=False, iterations=None, facts=facts
    )
    assert facts.change < 1e-4
    assert 5 < facts.iterations < 100
    np.testing.assert_array_equal(
        found, reference_pagerank(tiny_dataset, False, facts.iterations)
    )


def test_pagerank_refuses_a_budget_without_room_for_the_nodes(
    wide_dataset: Dataset,
) -> None:
    with pytest.raises(BudgetError, match="for the nodes"):
        reverse_pagerank(workload_of(wide_dataset), weighted=True, budget_bytes=5 << 20)


@pytest.mark.parametrize("value", [-1, 2000, 2**31 - 1])
def test_pagerank_names_a_graph_with_an_id_that_is_no_node(
    tmp_path: Path, tiny_dataset: Dataset, value: int
) -> None:
    shutil.copytree(tiny_dataset.path, tmp_path / "bad")
    dataset = Dataset.open(tmp_path / "bad")
    with dataset.file("indices").open("r+b") as file:
        file.seek(dataset.data_offset("indices") + 4 * 77)
        file.write(np.int32(value).tobytes())
    with pytest.raises(DatasetError, match=r"indices\.npy"):
        reverse_pagerank(workload_of(dataset), weighted=True)


def test_pagerank_names_index_pointers_that_decrease(
    tmp_path: Path, tiny_dataset: Dataset
) -> None:
    shutil.copytree(tiny_dataset.path, tmp_path / "bad")
    dataset = Dataset.open(tmp_path / "bad")
    for value in (-5, 10**12):
        with dataset.file("indptr").open("r+b") as file:
            file.seek(dataset.data_offset("indptr") + 8 * 1000)
            file.write(np.int64(value).tobytes())
        with pytest.raises(DatasetError, match=r"indptr\.npy"):
            reverse_pagerank(workload_of(dataset), weighted=True)


def test_a_truncated_edge_list_ends_pagerank(
    tmp_path: Path, tiny_dataset: Dataset
) -> None:
    shutil.copytree(tiny_dataset.path, tmp_path / "bad")
    dataset = Dataset.open(tmp_path / "bad")
    with dataset.file("indices").open("r+b") as file:
        file.truncate(8192)
    with pytest.raises(DataIOError, match=r"indices\.npy"):
        reverse_pagerank(workload_of(dataset), weighted=True)


def test_rankings_rank_by_their_definitions(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    outgoing = np.bincount(
        tiny_dataset.load("indices"), minlength=tiny_dataset.num_nodes
    )
    incoming = np.diff(tiny_dataset.load("indptr"))
    assert scores(workload, "out-degree").tolist() == outgoing.tolist()
    np.testing.assert_array_equal(
        scores(workload, "aligraph"), outgoing / np.maximum(incoming, 1)
    )
    np.testing.assert_array_equal(
        scores(workload, "weighted-reverse-pagerank"),
        reference_pagerank(tiny_dataset, True, 5),
    )
    drawn = scores(workload, "random")
    assert drawn.tolist() == scores(workload, "random").tolist()
    assert drawn.tolist() != scores(replace(workload, seed=1), "random").tolist()
    with pytest.raises(InputError, match="use out-degree"):
        scores(workload, "in-degree")  # type: ignore[arg-type]


def test_the_weight_reports_training_nodes_neighbours_apart(tmp_path: Path) -> None:
    """Without it two nodes that differ only in their split have equal scores; if all
    nodes train, it has no effect."""
    edges = [(0, 10), (10, 0), (1, 12), (12, 1)]
    few = workload_of(make_graph(tmp_path / "few", 100, edges, [0], "int32"))
    plain, weighted = (reverse_pagerank(few, weighted=on) for on in (False, True))
    assert plain[10] == plain[12]
    assert weighted[10] > 1.5 * weighted[12]
    every = workload_of(
        make_graph(tmp_path / "all", 100, edges, list(range(100)), "int32")
    )
    np.testing.assert_array_equal(
        *(reverse_pagerank(every, weighted=on) for on in (False, True))
    )
