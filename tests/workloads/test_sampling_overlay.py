"""A neighbour cache or a renumbered graph changes the place where a list is read, never
the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.workloads.test_sampling import GRAPH, SEEDS, as_bytes, make_graph
from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError
from workloads.sampling.digest import structure_digest
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.sampling.neighbor import NeighborSampler
from workloads.workload import ModelSpec, SamplerSpec, Workload

Ints = npt.NDArray[Any]


def cache_of(indptr: Ints, indices: Ints, nodes: Ints) -> tuple[Ints, Ints]:
    """Concatenate the lists of `nodes`."""
    address = np.full(len(indptr) - 1, -1, dtype=np.int64)
    parts = []
    end = 0
    for node in nodes:
        address[node] = end
        parts.append(indices[indptr[node] : indptr[node + 1]])
        end += len(parts[-1])
    return address, np.concatenate(parts) if parts else indices[:0].copy()


def renumber(indptr: Ints, indices: Ints, order: Ints) -> tuple[Ints, Ints]:
    """Renumber the graph: node v becomes the original node order[v], with lists in
    their original order."""
    local = np.empty(len(order), dtype=np.int64)
    local[order] = np.arange(len(order))
    degrees = np.diff(indptr)[order]
    lists = [local[indices[indptr[node] : indptr[node + 1]]] for node in order]
    return np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64), np.concatenate(
        lists
    ).astype(indices.dtype)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_neighbour_cache_does_not_change_a_batch(
    share: float, threads: int, dtype: type, replace: bool
) -> None:
    indptr = GRAPH[0]
    indices: Ints = GRAPH[1].astype(dtype)
    nodes = np.random.default_rng(3).permutation(len(indptr) - 1)[
        : int(share * (len(indptr) - 1))
    ]
    plain = NeighborSampler(indptr, indices, (5, -1, 12), seed=9, replace=replace)
    cached = NeighborSampler(
        indptr,
        indices,
        (5, -1, 12),
        seed=9,
        replace=replace,
        threads=threads,
        cached=cache_of(indptr, indices, nodes),
    )
    for batch in range(3):
        expected, got = (sampler.sample(1, batch, SEEDS) for sampler in (plain, cached))
        assert as_bytes(got) == as_bytes(expected)
        chosen = np.zeros(len(indptr) - 1, dtype=bool)
        chosen[nodes] = True
        hits = sum(
            int(chosen[got.nodes[: b.num_dst]][np.diff(b.indptr) > 0].sum())
            for b in got.blocks
        )
        assert got.list_hits == hits
        assert expected.list_hits == 0
        assert (got.list_hits == got.list_reads) == (share == 1.0)


def test_a_cached_list_is_read_from_the_cache_and_nowhere_else() -> None:
    indptr, indices = GRAPH
    everything = np.arange(len(indptr) - 1)
    cached = cache_of(indptr, indices, everything)
    garbage = np.full_like(indices, -7)
    expected = NeighborSampler(indptr, indices, (10, 10), seed=2).sample(0, 0, SEEDS)
    got = NeighborSampler(indptr, garbage, (10, 10), seed=2, cached=cached).sample(
        0, 0, SEEDS
    )
    assert structure_digest(got) == structure_digest(expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_cached_list_that_leaves_the_cache_is_named(threads: int) -> None:
    indptr, indices = GRAPH
    address, lists = cache_of(indptr, indices, np.arange(len(indptr) - 1))
    sampler = NeighborSampler(
        indptr, indices, (10,), seed=2, threads=threads, cached=(address, lists[:-5000])
    )
    with pytest.raises(DatasetError, match="cached list of node"):
        sampler.sample(0, 0, np.flatnonzero(np.diff(indptr) > 0)[-500:])


@pytest.mark.parametrize("fault", ["length", "dtype", "lists"])
def test_a_cache_of_another_graph_is_refused(fault: str) -> None:
    indptr, indices = GRAPH
    address, lists = cache_of(indptr, indices, np.arange(10))
    given = {
        "length": (address[:-1], lists),
        "dtype": (address.astype(np.int32), lists),
        "lists": (address, lists.astype(np.int32)),
    }[fault]
    with pytest.raises(InputError, match="neighbour cache"):
        NeighborSampler(indptr, indices, (5,), seed=0, cached=given)


@pytest.mark.parametrize("with_cache", [False, True])
@pytest.mark.parametrize("fanout", [(10, 10, 10), (-1, 3), (40,)])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_renumbered_graph_gives_the_batches_of_the_original(
    threads: int, fanout: tuple[int, ...], with_cache: bool
) -> None:
    indptr, indices = GRAPH
    labels = np.arange(len(indptr) - 1) * 3
    order = np.random.default_rng(5).permutation(len(indptr) - 1)
    local_indptr, local_indices = renumber(indptr, indices, order)
    inverse = np.argsort(order)
    plain = NeighborSampler(indptr, indices, fanout, seed=4, labels=labels)
    cached = None
    if with_cache:
        cached = cache_of(local_indptr, local_indices, np.arange(3000))
    renumbered = NeighborSampler(
        local_indptr,
        local_indices,
        fanout,
        seed=4,
        threads=threads,
        labels=labels[order],
        names=order,
        cached=cached,
    )
    for batch in range(3):
        expected = plain.sample(0, batch, SEEDS)
        got = renumbered.sample(0, batch, SEEDS, local_seeds=inverse[SEEDS])
        assert as_bytes(got) == as_bytes(expected)
        assert got.local is not None
        assert np.array_equal(order[got.local], got.nodes)
        assert (got.list_hits > 0) == with_cache


def test_names_may_be_those_of_a_part_of_a_larger_graph() -> None:
    """A graph of few nodes has sparse original ids beyond 32 bits; draws and order
    still follow the original ids."""
    indptr, indices = make_graph(300, 2)
    names = np.sort(np.random.default_rng(1).choice(1 << 47, 300, replace=False))
    seeds = np.arange(0, 300, 7)
    got = NeighborSampler(indptr, indices, (4, 4), seed=1, names=names).sample(
        0, 0, names[seeds], local_seeds=seeds
    )
    other = NeighborSampler(indptr, indices, (4, 4), seed=1).sample(0, 0, seeds)
    assert np.all(np.diff(got.nodes[len(seeds) : got.blocks[-1].num_src]) > 0)
    assert np.array_equal(got.nodes[: len(seeds)], names[seeds])
    # other ids give other draws
    assert got.local is not None
    assert not np.array_equal(got.local, other.nodes)


def test_local_seed_nodes_have_to_be_the_seed_nodes() -> None:
    indptr, indices = GRAPH
    order = np.random.default_rng(5).permutation(len(indptr) - 1)
    sampler = NeighborSampler(
        *renumber(indptr, indices, order), (3,), seed=1, names=order
    )
    with pytest.raises(InputError, match="local_seeds"):
        sampler.sample(0, 0, SEEDS)
    with pytest.raises(InputError, match="local_seeds are other nodes"):
        sampler.sample(0, 0, SEEDS, local_seeds=SEEDS)
    with pytest.raises(InputError, match="name -1"):
        NeighborSampler(
            indptr, indices, (3,), seed=1, names=np.where(order == 5, -1, order)
        )


def test_the_first_hops_are_those_of_the_whole_batch(tiny_dataset: Dataset) -> None:
    workload = Workload(
        tiny_dataset, SamplerSpec(fanout=(4, 3, 2), batch_size=32), ModelSpec(layers=3)
    )
    seeds = make_seed_plan(workload).batches(0)[0]
    whole = make_sampler(workload).sample(0, 0, seeds)
    first = make_sampler(workload, hops=2).sample(0, 0, seeds)
    assert np.array_equal(first.nodes, whole.nodes[: first.num_nodes])
    for mine, theirs in zip(first.blocks, whole.blocks[1:], strict=True):
        assert np.array_equal(mine.indptr, theirs.indptr)
        assert np.array_equal(mine.indices, theirs.indices)
    with pytest.raises(InputError, match="hops is 4"):
        make_sampler(replace(workload, seed=1), hops=4)
