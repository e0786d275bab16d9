"""R-MAT and the fractal expansion: exact, deterministic, as published, in bounded
memory; and the part writer."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.topology_sink import (
    FileSink,
    as_matrix,
    base_of,
    generate,
    lists_ascend,
)
from workloads import _native
from workloads.errors import BudgetError, DataIOError, InputError
from workloads.kronecker import GenerateSpec, plan_topology
from workloads.kronecker.fractal import keep_matrix
from workloads.kronecker.rmat import rmat_base
from workloads.kronecker.stats import graph_stats
from workloads.making.direct_stream import BUFFER_BYTES
from workloads.making.writer import PartWriter


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5000), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_computed_permutations_are_permutations_and_can_be_inverted(
    n: int, seed: int, name: int
) -> None:
    ids = np.arange(n, dtype=np.int64)
    _native.permute(n, seed, name, 1, False, ids)
    assert np.array_equal(np.sort(ids), np.arange(n))
    _native.permute(n, seed, name, 1, True, ids)
    assert np.array_equal(ids, np.arange(n))


def test_computed_permutations_spread_evenly() -> None:
    """Images of 0 under 20,000 permutations, in ten bins: chi-square with 9 degrees of
    freedom, 99.99 % bound."""
    places = np.zeros(20_000, dtype=np.int64)
    for name in range(places.shape[0]):
        at = np.zeros(1, dtype=np.int64)
        _native.permute(1000, 7, name, 0, False, at)
        places[name] = at[0]
    counts = np.bincount(places // 100, minlength=10)
    assert ((counts - 2000.0) ** 2 / 2000).sum() < 33.7


@pytest.mark.parametrize(
    ("nodes", "edges"), [(1, 5), (2, -1), (1000, 20_000), (1025, 3), (65_537, 500_003)]
)
def test_rmat_has_exactly_the_nodes_and_edges_asked_for(
    tmp_path: Path, nodes: int, edges: int
) -> None:
    if edges < 0:
        with pytest.raises(InputError, match="--edges is -1"):
            GenerateSpec("rmat", nodes=nodes, edges=edges)
        return
    result, indptr, indices = generate(
        tmp_path, GenerateSpec("rmat", nodes=nodes, edges=edges, seed=3)
    )
    assert (result.num_nodes, result.num_edges) == (nodes, edges)
    assert indptr[0] == 0
    assert indptr[-1] == edges
    assert (np.diff(indptr) >= 0).all()
    assert indices.min() >= 0
    assert indices.max() < nodes
    assert lists_ascend(indptr, indices, strictly=False)


def test_rmat_does_not_depend_on_threads_or_memory(tmp_path: Path) -> None:
    graphs = []
    for threads, memory in ((1, 1 << 30), (4, 1 << 30), (3, 36 << 20)):
        spec = GenerateSpec(
            "rmat",
            nodes=30_000,
            edges=900_000,
            seed=9,
            threads=threads,
            max_memory=memory,
        )
        graphs.append(generate(tmp_path / f"{threads}", spec)[1:])
    for indptr, indices in graphs[1:]:
        np.testing.assert_array_equal(indptr, graphs[0][0])
        np.testing.assert_array_equal(indices, graphs[0][1])


def test_another_seed_gives_another_graph(tmp_path: Path) -> None:
    for kind in ("rmat", "kronecker", "fractal"):
        lists = [
            generate(
                tmp_path / f"{kind}{seed}",
                GenerateSpec(kind, nodes=2000, edges=30_000, seed=seed),
            )[2].tobytes()
            for seed in (0, 1, 0)
        ]
        assert lists[0] != lists[1]
        assert lists[0] == lists[2]


def test_rmat_edges_follow_the_quadrant_probabilities() -> None:
    """At 2 nodes each edge is one quadrant: 57, 19, 19 and 5 per cent, within five
    standard deviations."""
    edges = 200_000
    graph = _native.Rmat(2, edges, 5, False, 0)
    indptr = np.zeros(3, np.int64)
    lists = np.empty(edges, np.int32)
    used = np.zeros(2, np.uint32)
    graph.count(indptr, 1)
    graph.fill(indptr, 0, 2, lists, used, 1)
    counts = np.zeros((2, 2))
    np.add.at(counts, (lists, np.repeat([0, 1], np.diff(indptr))), 1)
    expected = np.array([[0.57, 0.19], [0.19, 0.05]])
    assert (np.abs(counts / edges - expected) < 5 * np.sqrt(expected / edges)).all()


def test_rmat_is_skewed_and_its_ids_are_shuffled() -> None:
    base = rmat_base(20_000, 200_000, 1, 2)
    assert graph_stats(base.indptr, base.indices).top1_degree_share > 0.2
    degrees = np.diff(base.indptr)
    assert degrees[:10_000].sum() / degrees.sum() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("kind", ["rmat", "kronecker"])
def test_planted_communities_agree_along_edges(tmp_path: Path, kind: Any) -> None:
    spec = GenerateSpec(kind, nodes=20_000, edges=300_000, communities=8, seed=2)
    plan = plan_topology(spec)
    _, indptr, indices = generate(tmp_path, spec)
    if kind == "rmat":
        assert plan.labels is not None
        labels = plan.labels(0, 20_000)
        assert np.array_equal(plan.labels(777, 100), labels[777:877]), "any range alone"
    else:
        assert plan.base is not None
        assert plan.base.labels is not None
        labels = np.resize(plan.base.labels, 20_000)
    stats = graph_stats(indptr, indices, labels)
    assert stats.homophily is not None
    assert stats.homophily_by_chance is not None
    assert stats.homophily > 0.55 > 0.35 > stats.homophily_by_chance
    assert np.bincount(labels, minlength=8).min() > 0.1 * 20_000


def small_base() -> Any:
    rng = np.random.default_rng(5)
    weight = 1 / np.arange(1, 401)
    return base_of(
        sp.csc_matrix(
            (rng.random((400, 400)) < 60 * np.outer(weight, weight) ** 0.7).astype(int)
        )
    )


@pytest.mark.parametrize("copies", [2, 3, 5])
def test_fractal_blocks_are_permuted_thinned_copies_of_the_base(
    tmp_path: Path, copies: int
) -> None:
    base = small_base()
    seed = 11
    result, indptr, indices = generate(
        tmp_path, GenerateSpec("fractal", expand=copies, base=base, seed=seed)
    )
    keep = keep_matrix(base, copies)
    whole = as_matrix(indptr, indices).tocsr()
    original = as_matrix(base.indptr, base.indices).toarray()
    n = base.num_nodes
    assert result.num_nodes == copies * n
    assert lists_ascend(indptr, indices)
    seen = set()
    for r in range(copies):
        for c in range(copies):
            block = whole[r * n : (r + 1) * n, c * n : (c + 1) * n].toarray()
            rows = np.arange(n)
            columns = np.arange(n)
            _native.permute(n, seed, c * copies + r, 0, False, rows)
            _native.permute(n, seed, c * copies + r, 1, False, columns)
            restored = block[np.ix_(rows, columns)]
            assert (restored <= original).all(), "an edge is not in the base"
            share = restored.sum() / base.num_edges
            edges = base.num_edges
            assert abs(share - keep[r, c]) < 5 * np.sqrt(
                keep[r, c] * (1 - keep[r, c]) / edges
            )
            seen.add((tuple(rows), tuple(columns)))
    assert len(seen) == copies**2, "two blocks have the same permutations"


def test_fractal_does_not_depend_on_threads_or_memory(tmp_path: Path) -> None:
    first = None
    for threads, memory in ((1, 1 << 30), (4, 1 << 30), (2, 40 << 20)):
        spec = GenerateSpec(
            "fractal",
            expand=6,
            base=small_base(),
            seed=1,
            threads=threads,
            max_memory=memory,
        )
        _, indptr, indices = generate(tmp_path / f"{threads}", spec)
        first = first or (indptr.tobytes(), indices.tobytes())
        assert (indptr.tobytes(), indices.tobytes()) == first


def test_keep_matrix_is_the_published_one() -> None:
    """The keep matrix equals its definition in dense numpy."""
    base = small_base()
    copies = 4
    u, s, vt = np.linalg.svd(
        as_matrix(base.indptr, base.indices).toarray().astype(float)
    )

    def shrink(vectors: Any) -> Any:
        mean = vectors.reshape(copies, -1, copies).mean(axis=1)
        w, v = np.linalg.eigh(mean.T @ mean)
        return mean @ (v @ np.diag(w**-0.5) @ v.T)

    a = np.abs(shrink(u[:, :copies]) @ np.diag(s[:copies]) @ shrink(vt[:copies].T).T)
    np.testing.assert_allclose(
        keep_matrix(base, copies), np.clip(a / a.max(), 0.01, 0.95), atol=1e-5
    )


def test_drawn_fractal_comes_near_the_edges_asked_for() -> None:
    plan = plan_topology(GenerateSpec("fractal", nodes=8000, edges=160_000, seed=3))
    assert plan.num_nodes == 8000
    assert plan.num_edges == pytest.approx(160_000, rel=0.15)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("rmat", {}, "needs --nodes"),
        ("rmat", {"nodes": 10, "expand": 3}, "--expand"),
        ("rmat", {"nodes": 2**33}, "2\\^32"),
        ("fractal", {"base": small_base()}, "needs a size"),
        ("fractal", {"base": small_base(), "expand": 1}, "2 to 400 copies"),
        (
            "fractal",
            {"base": small_base(), "expand": 4, "edges": 10},
            "--edges does not go with",
        ),
        ("fractal", {"base": base_of(sp.csc_matrix((5, 5))), "expand": 2}, "no edges"),
    ],
)
def test_impossible_specifications_are_refused(
    kind: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        plan_topology(GenerateSpec(kind, **options))
    assert refusal.value.fix


@pytest.mark.parametrize("kind", ["rmat", "fractal"])
def test_too_small_a_bound_is_refused(kind: Any) -> None:
    with pytest.raises(BudgetError, match="--max-memory"):
        plan_topology(GenerateSpec(kind, nodes=10**5, edges=10**6, max_memory=1 << 20))


def test_a_bound_below_the_longest_list_is_refused(tmp_path: Path) -> None:
    plan = plan_topology(
        GenerateSpec("rmat", nodes=2, edges=10**6, max_memory=(34 << 20) + 100_000)
    )
    with pytest.raises(BudgetError, match="longest list"):
        plan.write(FileSink(tmp_path), lambda stage, fraction: None)


PEAK = """
import re, sys, pathlib
from tests.workloads.topology_sink import FileSink
from workloads.kronecker import GenerateSpec, plan_topology
import scipy.sparse.linalg
def status(key):
    return int(re.search(key + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
kind, edges, bound = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
before = status("VmRSS")
spec = GenerateSpec(kind, nodes=500_000, edges=edges, max_memory=bound, threads=2)
plan_topology(spec).write(FileSink(pathlib.Path(sys.argv[1])), lambda stage, fraction: None)
print(status("VmHWM") - before)
"""


@pytest.mark.slow("workloads/making", "workloads/kronecker", "workloads/native/making")
@pytest.mark.parametrize(
    ("kind", "edges", "bound"),
    [
        ("rmat", 15_000_000, 52 << 20),
        ("kronecker", 30_000_000, 120 << 20),
        ("fractal", 6_000_000, 150 << 20),
    ],
)
def test_peak_memory_stays_under_the_bound(
    tmp_path: Path, kind: str, edges: int, bound: int
) -> None:
    """The graph is larger than the bound, or nearly; the interpreter is not counted."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path), kind, str(edges), str(bound)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    peak = int(done.stdout)
    assert 0 < peak <= bound, f"{peak / 2**20:.0f} MiB"


def test_a_full_disk_raises_and_leaves_no_thread(tmp_path: Path) -> None:
    class Full(FileSink):
        def begin(self, part: Any, dtype: Any, count: int) -> tuple[Path, int]:
            return Path("/dev/full"), 4096

    before = threading.active_count()
    with (
        pytest.raises(DataIOError, match="No space left"),
        PartWriter(Full(tmp_path), "indices", "int32", 10**7) as writer,
    ):
        for _ in range(10):
            writer.write(np.zeros(10**6, dtype=np.int32))
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "count",
    [0, 1, 1023, BUFFER_BYTES // 4, BUFFER_BYTES // 4 + 1, 5 * BUFFER_BYTES // 4 - 3],
)
def test_written_part_is_what_was_given_with_its_digest(
    tmp_path: Path, count: int
) -> None:
    sink = FileSink(tmp_path)
    values = np.arange(count, dtype=np.int32)
    with PartWriter(sink, "indices", "int32", count) as writer:
        for first in range(0, count, 700_001):
            writer.write(values[first : first + 700_001])
    np.testing.assert_array_equal(sink.load("indices"), values)
    assert sink.digests["indices"] == sink.file_digest("indices")


def test_a_part_of_another_length_than_announced_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="lacks 1"),
        PartWriter(FileSink(tmp_path), "indptr", "int64", 3) as writer,
    ):
        writer.write(np.zeros(2, dtype=np.int64))
    second = PartWriter(FileSink(tmp_path), "indptr", "int64", 3)
    with pytest.raises(ValueError, match="more than announced"), second as writer:
        writer.write(np.zeros(4, dtype=np.int64))
