"""The plain Kronecker product: equal to scipy's, streamed in order, of the requested
size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.topology_sink import as_matrix, base_of, generate, lists_ascend
from workloads import _native
from workloads.errors import BudgetError, InputError
from workloads.kronecker import GenerateSpec, plan_topology
from workloads.kronecker.kronecker import seed_graph
from workloads.kronecker.stats import graph_stats
from workloads.making.node_data import FeatureSource

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@st.composite
def graphs(draw: Any, most: int) -> sp.csc_matrix:
    nodes = draw(st.integers(1, most))
    cells = draw(
        st.lists(st.integers(0, nodes * nodes - 1), max_size=4 * nodes, unique=True)
    )
    matrix = np.zeros(nodes * nodes, dtype=np.int64)
    matrix[cells] = 1
    return sp.csc_matrix(matrix.reshape(nodes, nodes))


def product(
    seed: sp.csc_matrix,
    base: sp.csc_matrix,
    nodes: int,
    dtype: Any = np.int32,
    threads: int = 1,
) -> Any:
    b = base_of(base)
    s = base_of(seed)
    stream = _native.KroneckerStream(b.indptr, b.indices, s.indptr, s.indices, nodes)
    indptr = np.empty(nodes + 1, dtype=np.int64)
    indices = np.empty(stream.num_edges, dtype=dtype)
    stream.indptr(0, indptr, threads)
    stream.edges(0, indices, threads)
    return stream, indptr, indices


@settings(max_examples=150, deadline=None)
@given(graphs(5), graphs(30), st.data())
def test_product_equals_scipys(
    seed: sp.csc_matrix, base: sp.csc_matrix, data: Any
) -> None:
    whole = seed.shape[0] * base.shape[0]
    nodes = data.draw(st.integers(whole - base.shape[0] + 1, whole))
    _, indptr, indices = product(seed, base, nodes)
    expected = sp.csc_matrix(sp.kron(seed, base, format="csc")[:nodes, :nodes])
    expected.sort_indices()
    np.testing.assert_array_equal(indptr, expected.indptr)
    np.testing.assert_array_equal(indices, expected.indices)


@settings(max_examples=60, deadline=None)
@given(graphs(4), graphs(60), st.data())
def test_any_range_can_be_produced_alone(
    seed: sp.csc_matrix, base: sp.csc_matrix, data: Any
) -> None:
    nodes = seed.shape[0] * base.shape[0] - data.draw(st.integers(0, base.shape[0] - 1))
    stream, indptr, indices = product(seed, base, nodes)
    start = data.draw(st.integers(0, indices.shape[0]))
    end = data.draw(st.integers(start, indices.shape[0]))
    guarded = np.full(end - start + 64, -7, dtype=np.int32)
    stream.edges(start, guarded[: end - start], 1)
    np.testing.assert_array_equal(guarded[: end - start], indices[start:end])
    assert (guarded[end - start :] == -7).all(), "written past the end"
    first = data.draw(st.integers(0, nodes))
    part = np.empty(nodes + 1 - first, dtype=np.int64)
    stream.indptr(first, part, 2)
    np.testing.assert_array_equal(part, indptr[first:])


def test_threads_and_element_type_change_nothing() -> None:
    rng = np.random.default_rng(3)
    base = sp.random(3000, 3000, 0.01, format="csc", random_state=rng)
    seed = sp.csc_matrix(np.array([[1, 0, 1], [1, 1, 1], [0, 0, 1]]))
    _, indptr, indices = product(seed, base, 8500)
    assert indices.shape[0] > 1 << 18, "too small for more than one piece"
    for dtype in (np.int32, np.int64):
        _, other_indptr, other = product(seed, base, 8500, dtype, threads=4)
        np.testing.assert_array_equal(indptr, other_indptr)
        np.testing.assert_array_equal(indices, other)


def test_ids_past_int32_are_whole_in_int64() -> None:
    base_nodes = 3000
    indptr = np.repeat(np.array([0, 1, 2]), [1, 1500, 1500]).astype(np.int64)
    indices = np.array([2, 0], dtype=np.int32)
    copies = 1 << 20  # the seed graph is one loop, at its last node
    seed_indptr = np.zeros(copies + 1, dtype=np.int64)
    seed_indptr[-1] = 1
    stream = _native.KroneckerStream(
        indptr,
        indices,
        seed_indptr,
        np.array([copies - 1], dtype=np.int32),
        base_nodes * copies,
    )
    out = np.empty(2, dtype=np.int64)
    stream.edges(0, out, 1)
    assert out.tolist() == [base_nodes * (copies - 1) + 2, base_nodes * (copies - 1)]


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.data())
def test_seed_graph_keeps_its_promises(copies: int, data: Any) -> None:
    edges = data.draw(st.integers(copies, copies * copies))
    indptr, indices = seed_graph(copies, edges, data.draw(st.integers(0, 5)))
    matrix = as_matrix(indptr, indices).toarray()
    assert matrix.sum() == edges and matrix.max() == 1, (
        "a wrong number of edges, or an edge twice"
    )
    assert (np.diag(matrix) == 1).all(), "a copy lacks its own edges"
    assert np.ptp(matrix.sum(axis=0)) <= 1
    if (
        edges >= 2 * copies
        and copies > 1
        and (edges // copies % 2 == 1 or copies % 2 == 1)
    ):
        assert all(matrix[(i + 1) % copies, i] for i in range(copies)), (
            "copies hang together"
        )
    if edges % copies == 0 and (edges // copies % 2 == 1 or copies % 2 == 0):
        assert (matrix == matrix.T).all(), "symmetric"


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [(20_000, 400_000), (19_997, 300_001), (64, 300), (1_000, 1_500), (500, 9_000)],
)
def test_drawn_product_has_the_size_asked_for(
    tmp_path: Path, nodes: int, edges: int
) -> None:
    result, indptr, indices = generate(
        tmp_path, GenerateSpec("kronecker", nodes=nodes, edges=edges, seed=4)
    )
    assert result.num_nodes == nodes
    assert abs(result.num_edges - edges) <= max(0.02 * edges, 8)
    assert lists_ascend(indptr, indices), (
        "a list is not ascending, or has an edge twice"
    )
    assert indices.min() >= 0
    assert indices.max() < nodes


@pytest.mark.parametrize(
    ("expand", "nodes", "edges"), [(7, 0, 0), (0, 2100, 30_000), (9, 2500, 60_000)]
)
def test_expansion_of_a_base_reaches_nodes_and_edges(
    tmp_path: Path, expand: Any, nodes: Any, edges: Any
) -> None:
    base = base_of(
        sp.random(300, 300, 0.02, format="csc", random_state=np.random.default_rng(1))
    )
    spec = GenerateSpec("kronecker", nodes=nodes, edges=edges, expand=expand, base=base)
    result, _, _ = generate(tmp_path, spec)
    assert result.num_nodes == (nodes or expand * 300)
    wanted = edges or 3 * expand * base.num_edges
    assert abs(result.num_edges - wanted) <= max(base.num_edges, 0.03 * wanted)


def test_unsorted_base_gives_ascending_lists(tmp_path: Path) -> None:
    base = base_of(
        sp.random(200, 200, 0.05, format="csc", random_state=np.random.default_rng(2))
    )
    shuffled = base.indices.copy()
    for a, b in zip(base.indptr[:-1], base.indptr[1:], strict=True):
        shuffled[a:b] = shuffled[a:b][::-1]
    reversed_base = type(base)(base.indptr, shuffled)
    _, indptr, indices = generate(
        tmp_path / "a", GenerateSpec("kronecker", expand=5, base=reversed_base)
    )
    _, _, expected = generate(
        tmp_path / "b", GenerateSpec("kronecker", expand=5, base=base)
    )
    assert lists_ascend(indptr, indices)
    np.testing.assert_array_equal(indices, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--nodes"),
        ({"nodes": 100, "expand": 7, "with_base": True}, "contradict"),
        ({"expand": 4, "edges": 10, "with_base": True}, "below"),
        ({"expand": 2, "edges": 10**6, "with_base": True}, "links between"),
        ({"nodes": 10, "edges": 5000}, "no room"),
        ({"nodes": -1}, "--nodes is -1"),
        ({"nodes": 10, "seed": -1}, "--seed"),
        ({"nodes": 10, "index_dtype": "int16"}, "int16"),
    ],
)
def test_impossible_sizes_are_refused(options: dict[str, Any], message: str) -> None:
    base = None
    if options.pop("with_base", False):
        base = base_of(
            sp.random(50, 50, 0.1, format="csc", random_state=np.random.default_rng(0))
        )
    with pytest.raises(InputError, match=message) as refusal:
        plan_topology(GenerateSpec("kronecker", base=base, **options))
    assert refusal.value.fix


def test_too_small_a_bound_is_refused_with_the_bytes_needed() -> None:
    with pytest.raises(BudgetError, match="--max-memory"):
        plan_topology(
            GenerateSpec("kronecker", nodes=10**6, edges=10**7, max_memory=1 << 20)
        )


def test_a_base_with_ids_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="out of range"):
        _native.KroneckerStream(
            np.array([0, 1]),
            np.array([1], np.int32),
            np.array([0, 1]),
            np.array([0], np.int32),
            1,
        )


def test_real_graph_keeps_skew_clustering_and_homophily(
    tmp_path: Path, capsys: Any
) -> None:
    path = SHARED / "labelled" / "amazon-computers.npz"
    if not path.exists():
        pytest.skip(
            f"{path} is not here: the real graphs are not part of the repository"
        )
    z = np.load(path, allow_pickle=False)
    matrix = sp.csr_matrix(
        (z["adj_data"], z["adj_indices"], z["adj_indptr"]), shape=z["adj_shape"]
    )
    words = sp.csr_matrix(
        (z["attr_data"], z["attr_indices"], z["attr_indptr"]), shape=z["attr_shape"]
    )
    base = base_of(
        matrix,
        labels=z["labels"].astype(np.int64),
        features=words,
        num_classes=10,
        name="amazon",
    )
    before = graph_stats(base.indptr, base.indices, base.labels)
    result, indptr, indices = generate(
        tmp_path / "k", GenerateSpec("kronecker", expand=8, base=base)
    )
    labels = np.resize(z["labels"], result.num_nodes)
    after = graph_stats(indptr, indices, labels)
    thin, f_indptr, f_indices = generate(
        tmp_path / "f", GenerateSpec("fractal", expand=8, base=base)
    )
    fractal = graph_stats(f_indptr, f_indices, np.resize(z["labels"], thin.num_nodes))
    with capsys.disabled():
        print("\namazon-computers: top 1 % degree share, clustering, homophily")
        for name, stats in (
            ("base", before),
            ("kronecker x 8", after),
            ("fractal x 8", fractal),
        ):
            print(
                f"  {name:14} {stats.top1_degree_share:.3f} {stats.clustering:.3f} "
                f"{stats.homophily:.3f}"
            )
    assert before.homophily is not None
    assert after.homophily is not None
    assert fractal.homophily is not None
    assert after.homophily == pytest.approx(before.homophily, abs=0.005)
    assert after.top1_degree_share == pytest.approx(before.top1_degree_share, rel=0.02)
    assert after.clustering > 0.5 * before.clustering
    assert fractal.top1_degree_share < before.top1_degree_share
    assert fractal.homophily < 0.5 * before.homophily
    rows = FeatureSource.of_base(words, result.num_nodes, 64).rows(
        np.array([3, 3 + base.num_nodes])
    )
    assert np.corrcoef(rows)[0, 1] > 0.9, "rows of two copies of a node differ"
