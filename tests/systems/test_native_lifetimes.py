"""Arrays that native objects use after a call: temporaries, converted copies and views,
freed and overwritten.

`scripts/sanitize` runs this under AddressSanitizer, which sees any use of freed memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from systems import _native
from tests.support import write_over

pytestmark = pytest.mark.timeout(60)

COUNT = 4000
# Each class of the module, and whether it uses the caller's memory after a call; each
# that does has a test below.
HOLDS = {
    "Reader": False,
    "GroupRead": True,
    "FeatureBuffer": True,
    "SegmentPool": True,
    "BinnedEdges": False,
    "ChangesetPlanner": False,
    "RangeQueue": True,
    "Spread": False,  # copies its inputs
    "ExternalSampler": False,
    "SlotPlanner": True,
    "StopFlag": False,
    "DemandCache": False,  # reads a mini-batch's rows within its call
}


def test_no_class_is_left_out() -> None:
    assert {
        name for name, value in vars(_native).items() if isinstance(value, type)
    } == set(HOLDS)


def aligned(nbytes: int, to: int = 4096) -> np.ndarray:
    room = np.zeros(nbytes + to, np.uint8)
    start = -room.ctypes.data % to
    return room[start : start + nbytes]


def ids_of(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint32)


@pytest.mark.parametrize(
    "make",
    [
        ids_of,
        lambda count: ids_of(count).astype(np.int64),  # converted by the call
        lambda count: np.repeat(ids_of(count), 2)[
            ::2
        ],  # not contiguous: copied by the call
    ],
    ids=["temporary", "converted", "strided"],
)
def test_a_plan_keeps_the_nodes_that_it_was_made_of(
    make: Callable[[int], np.ndarray],
) -> None:
    planner = _native.SlotPlanner(COUNT, 1, True)
    planner.plan(make(COUNT), np.array([0, COUNT]), np.array([10]))
    write_over(4 * COUNT)
    assert np.array_equal(planner.misses(0)[0], ids_of(COUNT))
    copied = np.empty(COUNT, np.uint32)
    planner.copy_misses(copied)
    assert np.array_equal(copied, ids_of(COUNT))
    assert np.array_equal(planner.sampled_misses(1, 1), ids_of(COUNT))


def test_a_plan_frees_nodes_that_it_no_longer_needs() -> None:
    planner = _native.SlotPlanner(COUNT, 1, True)
    seen = []
    for _ in range(2):
        nodes = ids_of(COUNT)
        seen.append(weakref.ref(nodes))
        planner.plan(nodes, np.array([0, COUNT]), np.array([10]))
        del nodes
    assert seen[0]() is None
    assert seen[1]() is not None
    planner.clear()
    assert seen[1]() is None


def test_a_plan_that_fails_forgets_the_one_before() -> None:
    planner = _native.SlotPlanner(COUNT, 1, True)
    planner.plan(ids_of(COUNT), np.array([0, COUNT]), np.array([10]))
    with pytest.raises(ValueError, match="there are 4000 slots"):
        planner.plan(ids_of(COUNT + 1), np.array([0, COUNT + 1]), np.array([10]))
    write_over(4 * COUNT)
    with pytest.raises(IndexError):
        planner.misses(0)
    planner.plan(ids_of(COUNT), np.array([0, COUNT]), np.array([10]))
    assert set(planner.slots(0).tolist()) == set(range(COUNT))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[tuple[Path, np.ndarray]]:
    rows = np.random.default_rng(1).integers(0, 256, (512, 4096), np.uint8)
    path = tmp_path / "table"
    path.write_bytes(rows.tobytes())
    yield path, rows


@pytest.mark.parametrize("mode", ["auto", "pread"])
def test_a_range_s_memory_stays_until_it_was_waited_for(
    table: tuple[Path, np.ndarray], mode: str
) -> None:
    path, rows = table
    queue = _native.RangeQueue(str(path), depth=4, request_bytes=4096, mode=mode)
    asked = []
    for row in range(64):
        memory = aligned(4096)
        asked.append((queue.submit(4096 * row, 4096, memory), weakref.ref(memory)))
        del memory
    write_over(4096)
    for row, (ticket, memory_ref) in enumerate(asked):
        memory = memory_ref()
        assert memory is not None
        assert queue.wait(ticket)[0] is None
        assert np.array_equal(memory, rows[row])
        del memory
        assert memory_ref() is None
    last = aligned(1 << 20)
    kept = weakref.ref(last)
    queue.submit(0, 1 << 20, last)
    del last
    assert kept() is not None
    queue.close()
    assert kept() is None


def test_a_queue_that_is_dropped_ends_before_its_memory_goes(
    table: tuple[Path, np.ndarray],
) -> None:
    path, _ = table
    for _ in range(20):
        queue = _native.RangeQueue(str(path), depth=8, request_bytes=4096, mode="auto")
        for _ in range(4):
            queue.submit(0, 1 << 20, aligned(1 << 20))
        del queue
        write_over(1 << 20)


def test_a_staged_read_keeps_its_reader_and_its_staging_buffer(
    table: tuple[Path, np.ndarray],
) -> None:
    path, rows = table
    staging = aligned(16 * 4096)
    kept = weakref.ref(staging)
    read = _native.GroupRead(
        _native.Reader(
            str(path),
            data_offset=0,
            num_rows=512,
            row_bytes=4096,
            depth=8,
            granularity=0,
            merge=True,
            max_request_bytes=1 << 16,
            merge_gap_bytes=0,
            mode="auto",
            threads=2,
            register_buffers=True,
            buffer_bytes=0,
        ),
        np.arange(512)[::-1].copy(),
        staging,
        4,
    )
    del staging
    write_over(16 * 4096)
    seen = 0
    while (step := read.next()) is not None:
        assert isinstance(step, tuple)
        index, positions = step
        memory = kept()
        assert memory is not None
        found = memory.reshape(-1, 4096)[4 * index : 4 * index + len(positions)]
        assert np.array_equal(found, rows[511 - positions])
        seen += len(positions)
        read.give_back(index)
    del memory, found
    assert seen == 512
    assert kept() is not None
    del read
    assert kept() is None


def test_a_shared_feature_buffer_keeps_its_memory() -> None:
    memory = aligned(_native.FeatureBuffer.bytes(256), 64)
    kept = weakref.ref(memory)
    buffer = _native.FeatureBuffer(256, memory, True)
    del memory
    write_over(_native.FeatureBuffer.bytes(256))
    for first in (0, 100, 200):
        ids = np.arange(first, first + 200)
        state, _, alias, load, _ = buffer.acquire(ids, 5.0)
        assert state == "ok"
        buffer.publish(alias[load])
        assert np.array_equal(buffer.slots_of(ids), alias)
        buffer.release(alias)
    assert buffer.standby == 256
    del buffer
    assert kept() is None


def test_a_segment_pool_keeps_its_memory() -> None:
    nbytes = _native.SegmentPool.bytes(2, 4, 64)
    memory = aligned(nbytes, 64)
    kept = weakref.ref(memory)
    pool = _native.SegmentPool(2, 4, 64, memory, True)
    del memory
    write_over(nbytes)
    segments = [pool.acquire(0, False, False) for _ in range(4)]
    assert sorted(segments) == sorted(set(segments))
    assert min(segments) >= 0
    for number, segment in enumerate(segments):
        pool.publish(segment, np.arange(64 * number, 64 * (number + 1)))
    assert len(pool.present(np.arange(256))) == 256
    del pool
    assert kept() is None


@pytest.mark.parametrize(
    "memory", [np.zeros(1 << 16, np.int8), np.zeros(1 << 17, np.uint8)[::2]]
)
def test_memory_that_a_call_would_copy_is_refused_as_shared_memory(
    memory: np.ndarray, tmp_path: Path
) -> None:
    with pytest.raises(TypeError):
        _native.FeatureBuffer(64, memory, True)
    with pytest.raises(TypeError):
        _native.SegmentPool(1, 2, 8, memory, True)
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 16))
    queue = _native.RangeQueue(str(path), depth=2, request_bytes=4096, mode="auto")
    with pytest.raises(TypeError):
        queue.submit(0, 4096, memory)


def test_results_are_never_written_to_a_copy_that_is_lost() -> None:
    table = np.arange(64, dtype=np.uint8).reshape(4, 16)
    with pytest.raises(TypeError):
        _native.gather(table, np.array([1, 2]), np.zeros((4, 32), np.uint8)[:, ::2], 1)
    with pytest.raises(TypeError):
        _native.scatter(
            table,
            np.array([0], np.int32),
            table.astype(np.int8),
            np.array([1], np.int32),
            1,
        )
    with pytest.raises(TypeError):
        _native.assign_partitions(np.arange(2), 2, 0, np.zeros(8, np.int64))
    planner = _native.SlotPlanner(8, 1, True)
    planner.plan(ids_of(8), np.array([0, 8]), np.array([0]))
    with pytest.raises(TypeError):
        planner.copy_misses(np.zeros(8, np.int64))
    with pytest.raises(TypeError):
        planner.write_lists(0, np.zeros(1 << 14, np.uint8)[::2])


def test_inputs_that_only_the_call_reads_may_be_freed_after_it(tmp_path: Path) -> None:
    # Changeset planner: sizes and mini-batches.
    batches = [np.random.default_rng(b).permutation(3000)[:COUNT] for b in range(4)]

    def planned(
        lend: Callable[[np.ndarray], np.ndarray],
    ) -> list[tuple[np.ndarray, ...]]:
        planner = _native.ChangesetPlanner(3000, 700, lend(np.array([3000] * 4)), 2)
        write_over(32)
        for b in (3, 2, 1, 0):
            planner.look_back(b, lend(batches[b]))
            write_over(8 * 3000)
        planner.fill(0, lend(batches[0]))
        planner.begin()
        return [planner.advance(b, lend(batches[b])) for b in range(4)]

    for one, other in zip(planned(np.copy), planned(lambda a: a), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))

    # Edges in bins, and a sequence that makes its items anew.
    rng = np.random.default_rng(2)
    degrees = rng.integers(0, 9, 3000)
    indptr = np.append(0, np.cumsum(degrees))
    sources = rng.integers(0, 3000, degrees.sum())

    def binned() -> _native.BinnedEdges:
        edges = _native.BinnedEdges(3000, len(sources))
        assert edges.append(sources.copy(), indptr.copy(), 0, 0, 2)
        write_over(8 * len(sources))
        return edges

    class Sequence:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> _native.BinnedEdges:
            if index >= 2:
                raise IndexError
            return binned()

    entries = int(_native.binned_entries(3000))
    values = rng.random(3000)
    expected = np.zeros(entries)
    found = np.zeros(entries)
    kept = [binned(), binned()]
    _native.add_along(kept, values, expected, 2)
    _native.add_along(Sequence(), values, found, 2)  # type: ignore[arg-type]
    assert np.array_equal(expected, found)
    assert expected.any()

    # Seed nodes of out-of-core sampling.
    (tmp_path / "indptr").write_bytes(indptr.astype(np.int64).tobytes())
    (tmp_path / "indices").write_bytes(sources.astype(np.int32).tobytes())

    def sampled(lend: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        sampler = _native.ExternalSampler(
            indptr=str(tmp_path / "indptr"),
            indptr_offset=0,
            indices=str(tmp_path / "indices"),
            indices_offset=0,
            num_nodes=3000,
            num_edges=len(sources),
            index_bytes=4,
            fanout=[3, 3],
            seed=1,
            replace=False,
            gap_bytes=0,
            piece_bytes=1 << 14,
            pieces=2,
            depth=4,
            group_nodes=100,
            threads=2,
            mode="auto",
        )
        seeds = np.arange(0, 2000, 2)
        offsets = np.array([0, 400, 1000])
        sampler.begin(0, lend(np.arange(2)), lend(seeds), lend(offsets))
        write_over(8 * len(seeds))
        assert sampler.pass_over() is None
        assert sampler.pass_over() is None
        sampler.finish()
        room = np.zeros(1 << 20, np.uint8)
        nodes = np.zeros(6000, np.uint32)
        made = sampler.lay_out(
            0, lend(np.zeros(1000, np.int64)), lend(offsets), room, nodes
        )
        return np.concatenate([made, room, nodes])

    assert np.array_equal(sampled(np.copy), sampled(lambda a: a))
