"""Features, labels and graph statistics: any row can be recomputed alone, classes can
be learnt, values are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.topology_sink import as_matrix, base_of
from workloads import _native
from workloads.errors import InputError
from workloads.kronecker.rmat import rmat_base
from workloads.kronecker.stats import degree_skew, graph_stats
from workloads.making.node_data import (
    FeatureSource,
    class_centres,
    community_labels,
    projected,
    random_labels,
)

LABELS = random_labels(5000, 7, 1)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dim", [1, 3, 32, 63, 64, 65, 100, 128, 129, 256, 768])
def test_any_row_can_be_made_again_alone(dim: int, dtype: str) -> None:
    source = FeatureSource.of_classes(LABELS, 7, dim, dtype=dtype, seed=3, threads=3)
    table = np.concatenate([chunk.copy() for chunk in source.chunks(100_000)])
    assert table.shape == (5000, dim)
    assert table.dtype == dtype
    assert np.isfinite(table).all()
    ids = np.array([4999, 0, 17, 17, 2500])
    np.testing.assert_array_equal(
        FeatureSource.of_classes(LABELS, 7, dim, dtype=dtype, seed=3).rows(ids),
        table[ids],
    )
    other = FeatureSource.of_classes(LABELS, 7, dim, dtype=dtype, seed=4)
    assert not np.array_equal(other.rows(ids), table[ids]), (
        "another seed gives the same rows"
    )


def test_rows_are_all_different() -> None:
    for source in (
        FeatureSource.random(5000, 4),
        FeatureSource.of_classes(LABELS, 7, 4),
    ):
        assert np.unique(source.rows(np.arange(5000)), axis=0).shape[0] == 5000


def test_a_value_is_made_of_its_own_philox_word() -> None:
    """The layout is part of the format: row 9, column d takes word (d % 64) // 16 at
    counter 16 (d // 64) + d % 16."""
    row = FeatureSource.random(10, 130, seed=77).rows(np.array([9]))[0]
    for d in (0, 15, 16, 63, 64, 100, 129):
        word = _native.philox4x32(77, [9, 0, 16 * (d // 64) + d % 16, 0x66656174])[
            (d % 64) // 16
        ]
        fraction = ((word * 0x9E3779B1) % 2**32 >> 8) / 2**24
        value = (sum(word.to_bytes(4, "little")) + fraction - 510.5) / 147.8012
        assert row[d] == pytest.approx(value, abs=1e-5)


def test_noise_is_about_normal() -> None:
    values = (
        FeatureSource.random(20_000, 64)
        .rows(np.arange(20_000))
        .astype(np.float64)
        .reshape(-1)
    )
    assert abs(values.mean()) < 0.005
    assert values.std() == pytest.approx(1, abs=0.005)
    assert abs((values**3).mean()) < 0.02
    assert (values**4).mean() == pytest.approx(3, abs=0.4)
    table = values.reshape(-1, 64)
    correlation = np.corrcoef(table, rowvar=False) - np.eye(64)
    assert np.abs(correlation).max() < 5 / np.sqrt(20_000)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.floats(-1e6, 1e6, width=32, allow_subnormal=True), min_size=1, max_size=40
    )
)
def test_float16_rounds_as_numpy_does(values: list[float]) -> None:
    centres = np.array([values], dtype=np.float32)
    out = np.empty((1, len(values)), dtype=np.uint16)
    _native.feature_rows16(
        centres, np.zeros(1, np.int64), np.zeros(1, np.int64), 0, 0.0, 1, out
    )
    with np.errstate(over="ignore"):
        expected = (
            centres
            + np.float32(0) * FeatureSource.random(1, len(values)).rows(np.array([0]))
        ).astype(np.float16)
    np.testing.assert_array_equal(out.view(np.float16), expected)


def test_every_float16_boundary_rounds_as_numpy_does() -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (halves[:-1].astype(np.float64) + halves[1:]) / 2
    values = np.concatenate(
        [halves, middles, np.nextafter(middles.astype(np.float32), np.float32(np.inf))]
    )
    values = np.concatenate([values, -values]).astype(np.float32)[None, :]
    out = np.empty(values.shape, dtype=np.uint16)
    _native.feature_rows16(
        values, np.zeros(1, np.int64), np.zeros(1, np.int64), 0, 0.0, 1, out
    )
    np.testing.assert_array_equal(out.view(np.float16), values.astype(np.float16))


@pytest.mark.parametrize("dim", [8, 128, 512])
def test_class_centres_report_classes_apart_but_not_perfectly(dim: int) -> None:
    rows = FeatureSource.of_classes(LABELS, 7, dim).rows(np.arange(5000))
    centres = class_centres(7, dim, 0)
    guess = np.argmin(((rows[:, None, :] - centres[None]) ** 2).sum(axis=2), axis=1)
    assert 0.5 < (guess == LABELS).mean() < 1


def test_a_node_without_label_has_noise_alone() -> None:
    labels = np.array([-1, 0, 1])
    rows = FeatureSource.of_classes(labels, 2, 16, seed=5).rows(np.arange(3))
    np.testing.assert_array_equal(
        rows[0], FeatureSource.random(3, 16, seed=5).rows(np.arange(3))[0]
    )
    assert not np.array_equal(
        rows[1], FeatureSource.random(3, 16, seed=5).rows(np.arange(3))[1]
    )


def test_a_label_past_the_classes_is_an_error_not_a_read_out_of_bounds() -> None:
    with pytest.raises(IndexError, match="no centre"):
        FeatureSource.of_classes(np.array([9]), 2, 16).rows(np.array([0]))


def test_features_of_another_type_are_refused() -> None:
    with pytest.raises(InputError, match="float64"):
        FeatureSource.random(3, 16, dtype="float64")


@pytest.mark.parametrize("sparse", [False, True])
def test_copies_take_their_base_rows_and_projection_keeps_angles(sparse: bool) -> None:
    rng = np.random.default_rng(0)
    dense = (rng.random((60, 700)) < 0.05).astype(np.float32)
    dense[1] = dense[0]
    given_features = sp.csr_matrix(dense) if sparse else dense
    table = projected(given_features, 256, 3)
    assert table.std() == pytest.approx(1, abs=1e-3)
    np.testing.assert_allclose(table[0], table[1], rtol=1e-6)
    before = np.corrcoef(dense)[2:, 2:]
    after = np.corrcoef(table)[2:, 2:]
    assert np.abs(before - after).mean() < 0.1
    source = FeatureSource.of_base(given_features, 600, 256, seed=3)
    rows = source.rows(np.array([5, 65, 545]))
    np.testing.assert_allclose(rows, np.tile(table[5], (3, 1)), atol=0.6)
    assert not np.array_equal(rows[0], rows[1]), "copies have no noise"
    same = FeatureSource.of_base(dense, 60, 700).rows(np.arange(60))
    assert np.corrcoef(same[7], dense[7])[0, 1] > 0.9, (
        "rows are projected at equal width"
    )


def test_random_labels_are_uniform_and_any_range_can_be_made_alone() -> None:
    labels = random_labels(70_000, 7, 12)
    counts = np.bincount(labels, minlength=7)
    assert ((counts - 10_000.0) ** 2 / 10_000).sum() < 27.9, (
        "chi-square, 6 degrees of freedom, 99.99 %"
    )
    np.testing.assert_array_equal(
        random_labels(10, 7, 12, first=65_000), labels[65_000:65_010]
    )


def test_communities_find_planted_ones() -> None:
    base = rmat_base(20_000, 300_000, 3, 2, communities=8)
    labels = community_labels(base.indptr, base.indices, 8, 0)
    found = graph_stats(base.indptr, base.indices, labels)
    assert found.homophily is not None
    assert found.homophily > 0.5
    assert np.bincount(labels, minlength=8).max() <= 1.11 * 20_000 / 8 + 2
    np.testing.assert_array_equal(
        labels, community_labels(base.indptr, base.indices, 8, 0)
    )


def random_graph(seed: int, nodes: int = 120) -> Any:
    return base_of(
        sp.random(
            nodes, nodes, 0.08, format="csc", random_state=np.random.default_rng(seed)
        )
    )


def test_clustering_is_the_share_of_linked_pairs() -> None:
    graph = random_graph(1)
    linked = as_matrix(graph.indptr, graph.indices).toarray() > 0
    local = []
    for v in range(120):
        around = [u for u in np.flatnonzero(linked[:, v]) if u != v]
        pairs = [(a, b) for k, a in enumerate(around) for b in around[k + 1 :]]
        local.append(
            np.mean([linked[a, b] or linked[b, a] for a, b in pairs]) if pairs else 0.0
        )
    nodes = np.arange(120)
    for ascending in (True, False):
        found = _native.clustering(
            graph.indptr, graph.indices, nodes, 10**6, ascending, 0, 2
        )
        assert found == pytest.approx(np.mean(local))
    assert _native.clustering(
        graph.indptr, graph.indices, nodes, 20, True, 0, 2
    ) == pytest.approx(np.mean(local), abs=0.05)


def test_homophily_and_chance_are_counted_right() -> None:
    graph = random_graph(2)
    labels = random_labels(120, 3, 0)
    labels[:10] = -1
    target = np.repeat(np.arange(120), np.diff(graph.indptr))
    both = (labels[graph.indices] >= 0) & (labels[target] >= 0)
    same = (labels[graph.indices] == labels[target]) & both
    stats = graph_stats(graph.indptr, graph.indices, labels)
    assert stats.homophily == pytest.approx(same.sum() / both.sum())
    shares = [
        np.bincount(side[both], minlength=3) / both.sum()
        for side in (labels[graph.indices], labels[target])
    ]
    assert stats.homophily_by_chance == pytest.approx(shares[0] @ shares[1])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=300))
def test_skew_equals_the_definitions(degrees: list[int]) -> None:
    values = np.sort(np.array(degrees, dtype=np.float64))[::-1]
    share, gini, most = degree_skew(np.bincount(degrees))
    if values.sum() == 0:
        assert (share, gini, most) == (0, 0, 0)
        return
    assert share == pytest.approx(
        values[: int(np.ceil(0.01 * len(degrees)))].sum() / values.sum()
    )
    assert gini == pytest.approx(
        np.abs(values[:, None] - values).sum() / (2 * len(degrees) * values.sum()),
        abs=1e-9,
    )
    assert most == values[0]


def test_measures_do_not_depend_on_threads_and_count_sources() -> None:
    graph = random_graph(3)
    one, two = (
        graph_stats(graph.indptr, graph.indices, threads=threads) for threads in (1, 3)
    )
    assert one == two
    counts = np.bincount(graph.indices, minlength=120)
    assert one.top1_source_share == pytest.approx(
        np.sort(counts)[-2:].sum() / counts.sum()
    )
