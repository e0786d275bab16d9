"""Neighbour lists from a stream of edges: equal to a reference, whatever the memory
bound."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workloads.making.csc as csc
from workloads.errors import InputError
from workloads.importers.source import EdgeChunk
from workloads.making.csc import build_csc, collect_csc
from workloads.making.writer import DatasetWriter


def built(
    pairs: list[tuple[int, int]], nodes: int, chunk: int, least: int, **options: bool
) -> tuple[np.ndarray, np.ndarray, csc.CscResult]:
    def edges() -> Iterator[EdgeChunk]:
        for start in range(0, len(pairs), chunk):
            part = np.array(pairs[start : start + chunk], dtype=np.int32).reshape(-1, 2)
            yield part[:, 0], part[:, 1]

    kept = csc._LEAST_RANGE
    csc._LEAST_RANGE = least
    try:
        with tempfile.TemporaryDirectory() as folder:
            writer = DatasetWriter(Path(folder) / "t")
            with pytest.raises(StopIteration), writer:
                result = build_csc(edges, nodes, writer, max_memory=1, **options)
                arrays = (
                    np.array(writer.memmap("indptr")),
                    np.array(writer.memmap("indices")),
                )
                assert sorted(path.name for path in writer.folder.iterdir()) == [
                    "indices.npy",
                    "indptr.npy",
                ]
                raise StopIteration
            return *arrays, result
    finally:
        csc._LEAST_RANGE = kept


@given(
    data=st.data(),
    nodes=st.integers(1, 40),
    chunk=st.integers(1, 50),
    least=st.integers(1, 60),
    symmetric=st.booleans(),
    keep_duplicates=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_lists_equal_a_sorted_reference(
    data: st.DataObject,
    nodes: int,
    chunk: int,
    least: int,
    symmetric: bool,
    keep_duplicates: bool,
) -> None:
    ids = st.integers(0, nodes - 1)
    pairs = data.draw(st.lists(st.tuples(ids, ids), max_size=120))
    indptr, indices, result = built(
        pairs, nodes, chunk, least, symmetric=symmetric, keep_duplicates=keep_duplicates
    )
    directed = pairs + [(v, u) for u, v in pairs if u != v] if symmetric else pairs
    wanted = sorted((v, u) for u, v in (directed if keep_duplicates else set(directed)))
    assert indices.tolist() == [u for _, u in wanted]
    targets = np.array([v for v, _ in wanted], dtype=np.int64)
    assert indptr.tolist() == [int((targets < v).sum()) for v in range(nodes + 1)]
    assert result.num_edges == len(wanted)
    assert result.duplicates == len(directed) - len(wanted)
    assert result.self_loops == sum(u == v for v, u in wanted)
    if not keep_duplicates and not symmetric:
        together = collect_csc(
            lambda: iter([tuple(np.array(pairs, dtype=np.int64).reshape(-1, 2).T)]),
            nodes,
        )
        assert together[0].tolist() == indptr.tolist()
        assert together[1].tolist() == indices.tolist()


@given(
    edges=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(-9, 9)), max_size=80
    ),
    chunk=st.integers(1, 30),
    least=st.integers(1, 40),
    symmetric=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_weights_of_repeated_edges_are_summed(
    edges: list[tuple[int, int, int]], chunk: int, least: int, symmetric: bool
) -> None:
    wanted: dict[tuple[int, int], int] = {}
    directed = edges + [
        (v, u, weight) for u, v, weight in edges if symmetric and u != v
    ]
    for u, v, weight in directed:
        wanted[v, u] = wanted.get((v, u), 0) + weight
    parts = [
        np.array(edges[at : at + chunk], dtype=np.int64).reshape(-1, 3)
        for at in range(0, len(edges), chunk)
    ]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(csc, "_LEAST_RANGE", least)
        writer = DatasetWriter(Path(folder) / "t")
        with pytest.raises(StopIteration), writer:
            result = build_csc(
                lambda: ((part[:, 0], part[:, 1]) for part in parts),
                10,
                writer,
                max_memory=1,
                symmetric=symmetric,
                weights=lambda: (part[:, 2].astype(np.float32) for part in parts),
            )
            assert writer.memmap("indices").tolist() == [u for _, u in sorted(wanted)]
            assert writer.memmap("edge_weight").tolist() == [
                wanted[edge] for edge in sorted(wanted)
            ]
            assert result.duplicates == len(directed) - len(wanted)
            raise StopIteration


@pytest.mark.parametrize("bad", [-1, 3])
def test_an_id_out_of_range_is_refused(tmp_path: Path, bad: int) -> None:
    chunk = (np.array([0, bad]), np.array([1, 1]))
    with (
        pytest.raises(InputError, match=f"the graph: an edge names node {bad}"),
        DatasetWriter(tmp_path / "t") as writer,
    ):
        build_csc(lambda: iter([chunk]), 3, writer)
    assert list(tmp_path.iterdir()) == []


BOUNDED = """
import resource, sys
import numpy as np
from pathlib import Path
from workloads.making.writer import DatasetWriter
from workloads.making.csc import build_csc

NODES, CHUNKS = 200_000, 12
def edges():
    for k in range(CHUNKS):
        random = np.random.default_rng(k)
        yield tuple(random.integers(0, NODES, (2, 1 << 20), dtype=np.int32))

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

list(zip(range(2), edges()))
before = peak()
try:
    with DatasetWriter(Path(sys.argv[1])) as writer:
        result = build_csc(edges, NODES, writer, max_memory=16 << 20, keep_duplicates=True)
        assert result.num_edges == CHUNKS << 20
        raise KeyError
except KeyError:
    print(peak() - before)
"""


def test_memory_does_not_grow_with_the_edges(tmp_path: Path) -> None:
    """12 M edges are 96 MiB of keys; the bound is 16 MiB, plus the memory of one chunk
    of edges."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BOUNDED), str(tmp_path / "t")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 64 << 20
