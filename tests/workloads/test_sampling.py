"""The neighbour sampler: one canonical batch for any threads, order of calls, dtype and
placement of arrays."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads import sampling_reference as reference
from workloads import _native
from workloads.errors import DatasetError, InputError
from workloads.sampling.batch import SampledBatch
from workloads.sampling.digest import structure_digest
from workloads.sampling.neighbor import NeighborSampler

Ints = npt.NDArray[np.int64]


def make_graph(num_nodes: int, seed: int = 0, mean: float = 12.0) -> tuple[Ints, Ints]:
    """Make a skewed random graph with empty lists, hubs and repeated edges."""
    rng = np.random.default_rng(seed)
    degrees = rng.geometric(1 / (1 + mean), num_nodes) - 1
    degrees[rng.integers(0, num_nodes, 3)] = num_nodes // 2
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    return indptr, rng.integers(0, num_nodes, indptr[-1])


GRAPH = make_graph(20_000)
SEEDS = np.random.default_rng(1).permutation(20_000)[:500]


def as_bytes(batch: SampledBatch) -> tuple[Any, ...]:
    blocks = [
        (b.indptr.tobytes(), b.indices.tobytes(), b.num_src, b.num_dst)
        for b in batch.blocks
    ]
    return (
        batch.nodes.tobytes(),
        blocks,
        batch.labels.tobytes(),
        batch.edge_reads,
        batch.list_reads,
    )


def star(degrees: list[int]) -> tuple[Ints, Ints]:
    """Make a graph in which node i has `degrees[i]` distinct in-neighbours, of ids from
    len(degrees) on."""
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    indices = np.concatenate([len(degrees) + np.arange(degree) for degree in degrees])
    return np.concatenate([indptr, np.full(max(degrees), indptr[-1])]), indices


@settings(max_examples=200, deadline=None)
@given(
    num_nodes=st.integers(1, 80),
    mean=st.floats(0.0, 30.0),
    graph_seed=st.integers(0, 1 << 20),
    fanout=st.lists(
        st.sampled_from([-1, 0, 1, 2, 5, 10, 20, 40]), min_size=1, max_size=3
    ),
    seed=st.integers(0, (1 << 64) - 1),
    epoch=st.integers(0, 65535),
    batch=st.integers(0, (1 << 26) - 1),
    replace=st.booleans(),
    threads=st.sampled_from([1, 2, 3]),
    data=st.data(),
)
def test_batches_are_those_of_the_plain_reference(
    num_nodes: int,
    mean: float,
    graph_seed: int,
    fanout: list[int],
    seed: int,
    epoch: int,
    batch: int,
    replace: bool,
    threads: int,
    data: st.DataObject,
) -> None:
    indptr, indices = make_graph(num_nodes, graph_seed, mean)
    seeds = data.draw(st.lists(st.integers(0, num_nodes - 1), unique=True, max_size=20))
    sampler = NeighborSampler(
        indptr, indices, fanout, seed=seed, replace=replace, threads=threads
    )
    sampled = sampler.sample(epoch, batch, np.array(seeds, dtype=np.int64))
    nodes, blocks = reference.sample(
        indptr,
        indices,
        fanout,
        seeds,
        seed=seed,
        epoch=epoch,
        batch=batch,
        replace=replace,
    )
    assert sampled.nodes.tolist() == nodes
    assert [(b.indptr.tolist(), b.indices.tolist()) for b in sampled.blocks] == blocks
    assert sampled.edge_reads == sampled.num_edges


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [1, 3, 10, 25, 32, 33])
def test_every_degree_from_0_to_300_keeps_the_positions_that_were_drawn(
    fanout: int, replace: bool
) -> None:
    indptr, indices = star(list(range(301)))
    sampler = NeighborSampler(indptr, indices, [fanout], seed=17, replace=replace)
    batch = sampler.sample(3, 9, np.arange(301))
    block = batch.blocks[0]
    for node in range(301):
        sources = (
            batch.nodes[block.indices[block.indptr[node] : block.indptr[node + 1]]]
            - 301
        )
        drawn = _native.draw_positions(
            node, fanout, replace, 17, epoch=3, batch=9, hop=0, node=node
        )
        assert sources.tolist() == drawn.tolist()


@pytest.mark.parametrize("fanout", [(10, 10, 10), (-1, 5), (3,), (40, 2)])
def test_blocks_are_valid_and_canonical(fanout: tuple[int, ...]) -> None:
    indptr, indices = GRAPH
    batch = NeighborSampler(indptr, indices, fanout, seed=2).sample(0, 0, SEEDS)
    assert np.array_equal(batch.nodes[: len(SEEDS)], SEEDS)
    assert len(np.unique(batch.nodes)) == batch.num_nodes == batch.blocks[0].num_src
    assert batch.blocks[-1].num_dst == batch.num_seeds == len(SEEDS)
    for outer, inner in zip(batch.blocks[:-1], batch.blocks[1:], strict=True):
        assert outer.num_dst == inner.num_src
    for block, neighbours in zip(reversed(batch.blocks), fanout, strict=True):
        degrees = np.diff(indptr)[batch.nodes[: block.num_dst]]
        kept = degrees if neighbours < 0 else np.minimum(degrees, neighbours)
        assert np.array_equal(np.diff(block.indptr), kept)
        assert block.indptr[0] == 0
        assert block.indices.min() >= 0
        assert block.indices.max() < block.num_src
        fresh = batch.nodes[block.num_dst : block.num_src]
        assert (np.diff(fresh) > 0).all()
        # Every new node is the source of an edge.
        assert np.isin(np.arange(block.num_dst, block.num_src), block.indices).all()
        for row in range(0, block.num_dst, 37):
            node = batch.nodes[row]
            sources = batch.nodes[
                block.indices[block.indptr[row] : block.indptr[row + 1]]
            ].tolist()
            neighbours_left = iter(indices[indptr[node] : indptr[node + 1]].tolist())
            # a subsequence of the list
            assert all(source in neighbours_left for source in sources)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [(10, 10, 10), (-1, 4), (50, 5)])
def test_threads_dtypes_and_key_widths_do_not_change_a_batch(
    fanout: tuple[int, ...], replace: bool
) -> None:
    indptr, indices = GRAPH
    batches = [
        as_bytes(
            NeighborSampler(
                indptr, array, fanout, seed=4, replace=replace, threads=threads
            ).sample(1, 2, SEEDS)
        )
        for threads in (1, 2, 4)
        for array in (indices, indices.astype(np.int32))
    ]
    assert all(batch == batches[0] for batch in batches)
    for array in (indices, indices.astype(np.int32)):
        wide = _native.NeighborSampler(
            indptr, array, list(fanout), 4, replace, 2, True
        ).sample(1, 2, SEEDS)
        assert wide[0].tobytes() == batches[0][0]
        assert [(b[0].tobytes(), b[1].tobytes(), *b[2:]) for b in wide[1]] == batches[
            0
        ][1]


def test_the_order_of_calls_and_their_threads_do_not_matter() -> None:
    indptr, indices = GRAPH
    seeds = [
        np.random.default_rng(i).permutation(20_000)[: 50 + 40 * i] for i in range(12)
    ]
    sampler = NeighborSampler(indptr, indices, [5, 5, 5], seed=8, threads=2)
    forward = [
        structure_digest(sampler.sample(0, i, nodes)) for i, nodes in enumerate(seeds)
    ]
    backward = [
        structure_digest(sampler.sample(0, i, seeds[i])) for i in reversed(range(12))
    ]
    assert forward == backward[::-1]
    with ThreadPoolExecutor(4) as pool:
        together = list(
            pool.map(
                lambda i: structure_digest(sampler.sample(0, i % 12, seeds[i % 12])),
                range(48),
            )
        )
    assert together == forward * 4


def test_seed_epoch_and_batch_each_change_the_draws() -> None:
    indptr, indices = GRAPH

    def edges(seed: int, epoch: int, batch: int) -> bytes:
        sampled = NeighborSampler(indptr, indices, [5], seed=seed).sample(
            epoch, batch, SEEDS
        )
        return sampled.nodes[sampled.blocks[0].indices].tobytes()

    names = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1 << 32, 0, 0)]
    assert len({edges(*name) for name in names}) == len(names)


def test_the_draws_of_a_node_do_not_depend_on_other_seed_nodes() -> None:
    indptr, indices = GRAPH
    sampler = NeighborSampler(indptr, indices, [5], seed=6)
    whole = sampler.sample(0, 0, SEEDS)
    part = sampler.sample(0, 0, SEEDS[100:101])
    block = whole.blocks[0]
    among_others = whole.nodes[block.indices[block.indptr[100] : block.indptr[101]]]
    assert among_others.tolist() == part.nodes[part.blocks[0].indices].tolist()


def test_the_ranks_of_a_step_draw_as_one_process_would() -> None:
    """A node draws the same neighbours on any rank, so the step equals that of one
    process."""
    indptr, indices = GRAPH
    sampler = NeighborSampler(indptr, indices, [5], seed=6)
    whole = sampler.sample(0, 7, SEEDS)
    for part in np.array_split(np.arange(len(SEEDS)), 3):
        own = sampler.sample(0, 7, SEEDS[part])
        all_block = whole.blocks[0]
        block = own.blocks[0]
        for at, seed in enumerate(part):
            mine = own.nodes[block.indices[block.indptr[at] : block.indptr[at + 1]]]
            alone = whole.nodes[
                all_block.indices[all_block.indptr[seed] : all_block.indptr[seed + 1]]
            ]
            assert mine.tolist() == alone.tolist()


@pytest.mark.parametrize("threads", [1, 8])
def test_memory_mapped_arrays_give_the_same_batch(tmp_path: Path, threads: int) -> None:
    indptr, indices = GRAPH
    np.save(tmp_path / "indptr.npy", indptr)
    np.save(tmp_path / "indices.npy", indices.astype(np.int32))
    maps = [
        np.load(tmp_path / f"{part}.npy", mmap_mode="r")
        for part in ("indptr", "indices")
    ]
    mapped = NeighborSampler(
        maps[0], maps[1], [10, 10], seed=1, threads=threads
    ).sample(0, 0, SEEDS)
    assert as_bytes(mapped) == as_bytes(
        NeighborSampler(indptr, indices, [10, 10], seed=1).sample(0, 0, SEEDS)
    )


def test_the_arrays_outlive_the_callers_names() -> None:
    indptr, indices = make_graph(5_000, 3)
    expected = as_bytes(
        NeighborSampler(indptr, indices, [5, 5], seed=1).sample(0, 0, np.arange(100))
    )
    sampler = NeighborSampler(indptr.copy(), indices.astype(np.int32), [5, 5], seed=1)
    assert as_bytes(sampler.sample(0, 0, np.arange(100))) == expected


def test_memory_follows_the_batch_and_not_the_graph() -> None:
    num_nodes = 5_000_000
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    indptr[-100:] = np.arange(1, 101) * 10
    sampler = NeighborSampler(indptr, np.arange(1000) * 4999, [5, 5], seed=0)
    sampler.sample(0, 0, np.arange(num_nodes - 100, num_nodes))
    assert 0 < sampler.scratch_bytes < 256 * 1024


def test_labels_are_those_of_the_seed_nodes() -> None:
    labels = np.arange(20_000) * 3
    batch = NeighborSampler(*GRAPH, [2], seed=0, labels=labels).sample(0, 0, SEEDS)
    assert np.array_equal(batch.labels, SEEDS * 3)
    assert (NeighborSampler(*GRAPH, [2], seed=0).sample(0, 0, SEEDS).labels == -1).all()


def test_counters_state_what_was_looked_up() -> None:
    indptr, indices = star([0, 4, 20])
    batch = NeighborSampler(indptr, indices, [10], seed=0).sample(0, 0, np.arange(3))
    assert (batch.edge_reads, batch.list_reads) == (14, 2)


def test_an_empty_batch_is_a_batch() -> None:
    batch = NeighborSampler(*GRAPH, [5, 5], seed=0).sample(
        0, 0, np.array([], dtype=np.int64)
    )
    assert (batch.num_nodes, batch.num_edges, len(batch.blocks)) == (0, 0, 2)


@pytest.mark.parametrize("seeds", [[1, 2, 1], [20_000], [-1]])
def test_repeated_and_unknown_seed_nodes_are_refused(seeds: list[int]) -> None:
    sampler = NeighborSampler(*GRAPH, [5], seed=0)
    with pytest.raises(InputError, match=f"seed node {seeds[-1]} "):
        sampler.sample(0, 0, np.array(seeds))
    # the sampler still works
    assert sampler.sample(0, 0, SEEDS).num_seeds == len(SEEDS)


@pytest.mark.parametrize(
    ("epoch", "batch"), [(1 << 16, 0), (-1, 0), (0, 1 << 26), (0, -1)]
)
def test_numbers_beyond_the_counter_are_refused(epoch: int, batch: int) -> None:
    with pytest.raises(InputError, match="cannot be named"):
        NeighborSampler(*GRAPH, [5], seed=0).sample(epoch, batch, SEEDS)


@pytest.mark.parametrize(
    "change",
    [
        {"fanout": []},
        {"fanout": [-2]},
        {"fanout": [1] * 63},
        {"seed": -1},
        {"seed": 1 << 64},
        {"threads": 0},
        {"indptr": GRAPH[0].astype(np.int32)},
        {"indices": GRAPH[1].astype(np.float64)},
        {"indptr": GRAPH[0].reshape(1, -1)},
    ],
)
def test_impossible_samplers_are_refused(change: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {
        "indptr": GRAPH[0],
        "indices": GRAPH[1],
        "fanout": [5],
        "seed": 0,
        **change,
    }
    with pytest.raises(InputError):
        NeighborSampler(**arguments)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("array", ["neighbour", "bounds", "ends"])
def test_a_corrupted_graph_is_named_and_not_followed(array: str, threads: int) -> None:
    indptr, indices = (part.copy() for part in GRAPH)
    if array == "neighbour":
        indices[:] = 20_000
    elif array == "bounds":
        indptr[1:-1] += len(indices)
    else:
        indptr[-1] += 1
    with pytest.raises(DatasetError, match="outcore data verify"):
        NeighborSampler(indptr, indices, [5, 5], seed=0, threads=threads).sample(
            0, 0, SEEDS
        )


def test_a_forked_process_samples_with_threads_of_its_own() -> None:
    sampler = NeighborSampler(*GRAPH, [5, 5], seed=0, threads=2)
    expected = structure_digest(sampler.sample(0, 0, SEEDS))
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(
        target=lambda: send.send(structure_digest(sampler.sample(0, 0, SEEDS)))
    )
    child.start()
    assert receive.poll(20), "the forked process hangs"
    assert receive.recv() == expected
    child.join()
