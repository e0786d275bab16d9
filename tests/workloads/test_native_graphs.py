"""Graphs that native samplers and generators read after construction: temporaries,
freed and overwritten.

`scripts/sanitize` runs this under AddressSanitizer, which sees any use of freed memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support import write_over
from workloads import _native

NODES = 2000
# Each class of the module, and whether it uses the caller's memory after a call; each
# that does has a test below.
HOLDS = {
    "NeighborSampler": True,
    "KroneckerStream": True,
    "FractalStream": True,
    "Rmat": False,
}
Lend = Callable[[np.ndarray], np.ndarray]


def test_no_class_is_left_out() -> None:
    assert {
        name for name, value in vars(_native).items() if isinstance(value, type)
    } == set(HOLDS)


def graph(index: type[np.signedinteger] = np.int32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    degrees = rng.integers(0, 12, NODES)
    indptr = np.append(0, np.cumsum(degrees)).astype(np.int64)
    lists = [
        np.sort(rng.choice(NODES, size=degree, replace=False)) for degree in degrees
    ]
    return indptr, np.concatenate(lists).astype(index)


def strided(values: np.ndarray) -> np.ndarray:
    return np.repeat(values, 2)[::2]


def narrow(values: np.ndarray) -> np.ndarray:
    """Return the values in another type, which the call converts where possible."""
    if values.dtype == np.int64 and len(values) == NODES + 1:
        return values.astype(np.int32)
    return values.copy()


@pytest.mark.parametrize("lend", [np.copy, strided, narrow])
@pytest.mark.parametrize("kind", ["neighbor", "layerwise", "shadow"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_a_sampler_keeps_its_graph(
    lend: Lend, kind: str, index: type[np.signedinteger]
) -> None:
    indptr, indices = graph(index)
    names = np.random.default_rng(2).permutation(NODES)
    # every third list is cached, all in one array
    address = np.where(np.arange(NODES) % 3 == 0, indptr[:-1], -1)

    def sampled(lend: Lend) -> list[np.ndarray]:
        # Index arrays must have the right type already, so that a large graph is never
        # copied.
        like = np.copy if lend is strided else lend
        sampler = _native.NeighborSampler(
            lend(indptr),
            like(indices),
            [4, 4],
            1,
            threads=2,
            kind=kind,
            address=np.copy(address),
            lists=like(indices),
            names=like(names),
        )
        write_over(8 * NODES)
        write_over(indices.nbytes)
        nodes, blocks, *_, local = sampler.sample(0, 0, np.arange(0, 200))
        return [nodes, local, *(array for block in blocks for array in block[:2])]

    for one, other in zip(sampled(lend), sampled(lambda a: a), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("lend", [np.copy, strided, narrow])
def test_a_kronecker_stream_keeps_both_graphs(lend: Lend) -> None:
    indptr, indices = graph()
    seed_indptr = np.array([0, 2, 3])
    seed_indices = np.array([0, 1, 1], np.int32)

    def made(lend: Lend) -> list[np.ndarray]:
        stream = _native.KroneckerStream(
            lend(indptr),
            lend(indices),
            lend(seed_indptr),
            lend(seed_indices),
            2 * NODES,
        )
        write_over(8 * NODES)
        write_over(indices.nbytes)
        pointers = np.empty(2 * NODES + 1, np.int64)
        edges = np.empty(stream.num_edges, np.int32)
        stream.indptr(0, pointers, 2)
        stream.edges(0, edges, 2)
        return [pointers, edges]

    for one, other in zip(made(lend), made(lambda a: a), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("lend", [np.copy, strided, narrow])
def test_a_fractal_stream_keeps_its_graph(lend: Lend) -> None:
    indptr, indices = graph()

    def made(lend: Lend) -> list[np.ndarray]:
        stream = _native.FractalStream(
            lend(indptr), lend(indices), lend(np.array([0.9, 0.2, 0.3, 0.8])), 1
        )
        write_over(8 * NODES)
        write_over(indices.nbytes)
        degrees = np.empty(stream.num_nodes, np.int64)
        edges = np.empty(stream.make32(0, degrees, 2), np.int32)
        stream.take(edges, 2)
        return [degrees, edges]

    for one, other in zip(made(lend), made(lambda a: a), strict=True):
        assert np.array_equal(one, other)


def test_columns_are_not_taken_with_ids_of_another_width() -> None:
    indptr, indices = graph()
    stream = _native.FractalStream(indptr, indices, np.array([0.9, 0.2, 0.3, 0.8]), 1)
    count = stream.make32(0, np.empty(stream.num_nodes, np.int64), 1)
    with pytest.raises(ValueError, match="of another width"):
        stream.take(np.empty(count, np.int64), 1)


def damaged(part: str) -> tuple[np.ndarray, np.ndarray]:
    indptr, indices = (array.copy() for array in graph())
    node = int(np.flatnonzero(np.diff(indptr) > 0)[5])
    if part == "past the end":
        indptr[node + 1] = 10**12
    elif part == "descending":
        indptr[node] = indptr[node + 1] + 1
    elif part == "negative":
        indptr[node] = -5
    else:
        indices[indptr[node]] = NODES if part == "no node" else -1
    return indptr, indices


@pytest.mark.parametrize(
    "part", ["past the end", "descending", "negative", "no node", "minus one"]
)
def test_a_damaged_graph_is_refused_by_every_measure(part: str) -> None:
    indptr, indices = damaged(part)
    in_lists = part not in ("no node", "minus one")
    wanted = r"comes from node .*, which is not one of 2000"
    if in_lists:
        wanted = r"the neighbour list of node \d+ is \["
    nodes = np.arange(NODES)
    labels = np.zeros(NODES, np.int64)
    with pytest.raises(IndexError, match=wanted):
        _native.homophily(indptr, indices, labels, nodes, 2)
    with pytest.raises(IndexError, match=wanted):
        _native.communities(indptr, indices, 4, 2, 1, np.empty(NODES, np.int64))
    if in_lists:
        with pytest.raises(IndexError, match=wanted):
            _native.sort_lists(indptr, indices.copy(), 2)
    else:
        with pytest.raises(IndexError, match=wanted):
            _native.count_sources(indices, np.zeros(NODES, np.int64), 2)
    with pytest.raises(IndexError):
        _native.clustering(indptr, indices, nodes, 10**6, False, 1, 2)


def test_r_mat_takes_no_index_pointers_of_another_graph() -> None:
    rmat = _native.Rmat(1000, 5000, 1, True, 0)
    with pytest.raises(ValueError, match="3 entries for 1000 nodes"):
        rmat.count(np.zeros(3, np.int64), 1)
    indptr = np.zeros(1001, np.int64)
    rmat.count(indptr, 1)
    with pytest.raises(ValueError, match="another graph"):
        rmat.fill(
            indptr // 2,
            0,
            1000,
            np.empty(indptr[-1] // 2, np.int32),
            np.zeros(1000, np.uint32),
            2,
        )
    with pytest.raises(ValueError, match="no communities"):
        rmat.labels(0, np.empty(1000, np.int64))
    with pytest.raises(MemoryError):
        _native.draw_positions_of(np.arange(2), 5, 1 << 63, True, 1)
