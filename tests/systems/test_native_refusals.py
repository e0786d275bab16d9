"""Offsets, sizes and ids that contradict each other: native code names them and
accesses nothing outside the arrays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from systems import _native

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "indptr").write_bytes(np.arange(0, 5 * 101, 5).tobytes())
    (tmp_path / "indices").write_bytes(
        np.tile(np.arange(100, dtype=np.int32), 5).tobytes()
    )
    (tmp_path / "rows").write_bytes(bytes(1 << 16))
    (tmp_path / "out").write_bytes(bytes(1 << 16))
    return tmp_path


def sampler(folder: Path, **changed: int) -> _native.ExternalSampler:
    settings = {
        "indptr_offset": 0,
        "indices_offset": 0,
        "num_nodes": 100,
        "num_edges": 500,
        "piece_bytes": 4096,
    }
    return _native.ExternalSampler(
        indptr=str(folder / "indptr"),
        indices=str(folder / "indices"),
        index_bytes=4,
        fanout=[2],
        replace=False,
        seed=1,
        gap_bytes=0,
        pieces=2,
        depth=4,
        group_nodes=100,
        threads=1,
        mode="auto",
        **{**settings, **changed},
    )


@pytest.mark.parametrize(
    ("offsets", "wanted"),
    [
        (
            [0, 10, 20, 10**9],
            "offset 3 of the mini-batches' seed nodes is 1000000000, not 30",
        ),
        (
            [0, 10, 5, 30],
            "offset 2 of the mini-batches' seed nodes is 5, not 10 or more",
        ),
        ([-8, 10, 20, 30], "offset 0 of the mini-batches' seed nodes is -8, not 0"),
        ([0, 10, 20, 29], "offset 3 of the mini-batches' seed nodes is 29, not 30"),
        ([], "there are no offsets"),
        ([0, 30], "offsets must have one entry more than there are mini-batches"),
    ],
)
def test_offsets_of_seed_nodes_are_checked(
    folder: Path, offsets: list[int], wanted: str
) -> None:
    with pytest.raises(ValueError, match=wanted):
        sampler(folder).begin(
            0, np.arange(3), np.arange(30), np.array(offsets, np.int64)
        )


def test_offsets_of_labels_are_checked(folder: Path) -> None:
    group = sampler(folder)
    group.begin(0, np.arange(2), np.arange(30), np.array([0, 10, 30]))
    assert group.pass_over() is None
    group.finish()
    room = np.empty(1 << 16, np.uint8)
    with pytest.raises(
        ValueError,
        match="offset 2 of the seed nodes' labels is 30, not 10000000 or more",
    ):
        group.lay_out(0, np.zeros(30, np.int64), np.array([0, 10**7, 30]), room, None)
    assert (
        len(group.lay_out(0, np.zeros(30, np.int64), np.array([0, 10, 30]), room, None))
        == 6
    )


@pytest.mark.parametrize(
    ("node", "value", "wanted"),
    [
        (8, 10**15, r"the neighbour list of node [78] is \[.*\) of 500 edges"),
        (8, -1, r"the neighbour list of node [78] is \["),
        (8, 0, r"the neighbour list of node 7 is \[35, 0\) of 500 edges"),
        (8, 2**63 - 1, r"the neighbour list of node [78] is \["),
    ],
)
def test_a_damaged_indptr_names_its_node(
    folder: Path, node: int, value: int, wanted: str
) -> None:
    indptr = np.arange(0, 5 * 101, 5)
    indptr[node] = value
    (folder / "indptr").write_bytes(indptr.tobytes())
    group = sampler(folder)
    group.begin(0, np.arange(1), np.arange(100), np.array([0, 100]))
    with pytest.raises(IndexError, match=wanted):
        group.pass_over()


@pytest.mark.parametrize("value", [100, -1, 2**31 - 1])
def test_damaged_indices_name_the_edge(folder: Path, value: int) -> None:
    indices = np.tile(np.arange(100, dtype=np.int32), 5)
    indices[::5] = indices[1::5] = indices[2::5] = indices[3::5] = value
    (folder / "indices").write_bytes(indices.tobytes())
    group = sampler(folder)
    group.begin(0, np.arange(1), np.arange(100), np.array([0, 100]))
    with pytest.raises(
        IndexError, match=r"edge \d+ comes from node \d+, which is not one of 100"
    ):
        group.pass_over()


@pytest.mark.parametrize(("part", "where"), [("indptr", False), ("indices", True)])
def test_a_truncated_graph_states_which_file_and_where(
    folder: Path, part: str, where: bool
) -> None:
    whole = (folder / part).read_bytes()
    (folder / part).write_bytes(whole[: len(whole) // 2])
    group = sampler(folder)
    group.begin(0, np.arange(1), np.arange(100), np.array([0, 100]))
    assert group.pass_over() == (0, where, len(whole) // 2)


def planned(offsets: list[int], seeds: list[int], window: int = 1) -> None:
    planner = _native.SlotPlanner(100, window, True)
    planner.plan(
        np.arange(30, dtype=np.uint32),
        np.array(offsets, np.int64),
        np.array(seeds, np.int64),
    )


def packed(folder: Path, **changed: object) -> None:
    settings: dict[str, object] = {
        "data_offset": 0,
        "num_rows": 100,
        "row_bytes": 512,
        "partition_rows": 10,
        "buffers": 2,
        "write_bytes": 4096,
        "hold": False,
        "chunks": np.array([[0, 0, 0, 50]]),
    }
    _native.pack_pass(  # type: ignore[call-arg]
        str(folder / "rows"),
        files=[str(folder / "out")],
        ids=np.arange(50, dtype=np.uint32),
        threads=2,
        depth=4,
        request_bytes=4096,
        mode="auto",
        **{**settings, **changed},
    )


def distributed(folder: Path, **changed: object) -> None:
    settings: dict[str, object] = {
        "data_offset": 0,
        "num_rows": 100,
        "row_bytes": 512,
        "region_bytes": 4096,
        "chunks": np.array([[0, 0, 50]]),
    }
    _native.distribute(  # type: ignore[call-arg]
        path=str(folder / "rows"),
        file=str(folder / "out"),
        ids=np.arange(50, dtype=np.uint32),
        regions=2,
        depth=4,
        gap_bytes=0,
        buffer_bytes=4096,
        writers=2,
        mode="auto",
        stop=_native.StopFlag(),
        whole=False,
        kept=np.empty(0, dtype=np.uint32),
        room=np.empty((1, 512), dtype=np.uint8),
        give=lambda begin, end: None,
        **{**settings, **changed},
    )


def reader(folder: Path, **changed: int) -> _native.Reader:
    settings = {"data_offset": 0, "num_rows": 100, "row_bytes": 512}
    return _native.Reader(
        str(folder / "rows"),
        depth=4,
        granularity=0,
        merge=True,
        max_request_bytes=4096,
        merge_gap_bytes=0,
        mode="auto",
        threads=2,
        register_buffers=False,
        buffer_bytes=0,
        **{**settings, **changed},
    )


def queued(folder: Path, need: int) -> None:
    queue = _native.RangeQueue(
        str(folder / "rows"), depth=2, request_bytes=4096, mode="auto"
    )
    room = np.empty(1 << 14, np.uint8)
    start = -room.ctypes.data % 4096
    queue.wait(queue.submit(0, need, room[start : start + 4096]))


def read_at(folder: Path, offset: int) -> None:
    ranges = (np.array([offset]), np.array([4096]), np.array([0]))
    reader(folder).read_ranges(*ranges, np.empty(4096, np.uint8), 4096)


def staged(folder: Path, slice_: int) -> None:
    read = _native.GroupRead(
        reader(folder), np.arange(8), np.empty(8 * 512, np.uint8), 4, False
    )
    read.give_back(slice_)
    while isinstance(read.next(), tuple):
        pass


def bucketed(indptr: list[int], partition_of: list[int]) -> None:
    run = (
        np.array(indptr),
        0,
        0,
        np.zeros(4, np.int32),
        np.array(partition_of, np.uint8),
        2,
    )
    _native.count_buckets(*run, np.zeros(4, np.int64))


def spread(folder: Path, indptr: list[int], region_of: list[int]) -> None:
    (folder / "spread").touch()
    out = _native.Spread(
        str(folder / "spread"),
        np.array([0, 4096, 8192]),
        buffer_bytes=4096,
        writers=1,
        mode="pread",
    )
    out.lists(
        np.array(indptr), 0, 0, np.zeros(4, np.int32), np.array(region_of, np.uint8)
    )


def relocated() -> bool:
    places = np.array([10**9, 0])
    new_indptr = np.array([0, 1, 2])
    return _native.relocate_edges(
        np.zeros(2, np.int32),
        np.array([0, 1, 2]),
        0,
        0,
        places,
        new_indptr,
        0,
        np.empty(2, np.int32),
        1,
    )


def crossing(partition: int) -> None:
    graph = (
        np.array([0, 1, 2]),
        np.zeros(2, np.int32),
        np.array([0, 1]),
        np.array([0, partition]),
    )
    _native.count_accesses(*graph, 1, np.zeros((2, 1), np.uint64), 1)


@pytest.mark.parametrize(
    ("call", "error", "wanted"),
    [
        (
            lambda _: planned([0, 10**9, 30], [1, 1]),
            ValueError,
            "offset 2 of the mini-batches' nodes is 30, not 10000",
        ),
        (
            lambda _: planned([5, 10, 30], [1, 1]),
            ValueError,
            "offset 0 of the mini-batches' nodes is 5, not 0",
        ),
        (
            lambda _: planned([0, 10, 30], [1]),
            ValueError,
            "1 seed counts for 2 mini-batches",
        ),
        (
            lambda _: planned([0, 10, 30], [1, -1]),
            ValueError,
            "mini-batch 1 of 20 nodes has -1 seed nodes",
        ),
        (
            lambda _: planned([0, 10, 30], [11, 1]),
            ValueError,
            "mini-batch 0 of 10 nodes has 11 seed nodes",
        ),
        (
            lambda _: planned([0, 10, 30], [1, 1], 2**32 - 1),
            ValueError,
            "a window has 1 to 65,536",
        ),
        (
            lambda f: sampler(f, piece_bytes=2**32 - 4096),
            ValueError,
            "pieces have at most",
        ),
        (
            lambda f: sampler(f, num_edges=2**62),
            ValueError,
            "indices cannot hold 4611686018427387904 items",
        ),
        (
            lambda f: packed(f, num_rows=2**62),
            ValueError,
            "no file holds 4611686018427387904 rows of 512 bytes",
        ),
        (lambda f: packed(f, row_bytes=0), ValueError, "row_bytes must be positive"),
        (
            lambda f: packed(f, chunks=np.array([[2**32, 0, 0, 50]])),
            ValueError,
            "outside its files",
        ),
        (
            lambda f: packed(f, chunks=np.array([[0, 0, 0, 51]])),
            ValueError,
            "outside its ids",
        ),
        (
            lambda f: distributed(f, region_bytes=2**32 - 4096),
            ValueError,
            "regions have at most 1 GiB",
        ),
        (
            lambda f: distributed(f, data_offset=2**63),
            ValueError,
            "no file holds 100 rows",
        ),
        (
            lambda f: distributed(f, chunks=np.array([[0, 10, 51]])),
            ValueError,
            "outside its ids",
        ),
        (
            lambda f: reader(f, data_offset=2**64 - 512),
            ValueError,
            "no file holds 100 rows",
        ),
        (lambda f: read_at(f, -4096), ValueError, "lies in no file"),
        (lambda f: queued(f, 2**64 - 1), ValueError, "the memory is too small"),
        (
            lambda f: staged(f, 10**6),
            IndexError,
            "slice 1000000 of a staging buffer of 2",
        ),
        (lambda _: bucketed([0, 4, 0, 4], [0, 1, 1]), IndexError, "indptr descends"),
        (lambda _: bucketed([0, 2, 4], [0, 200]), IndexError, "in partition 200 of 2"),
        (lambda f: spread(f, [0, 4, 0, 4], [0, 1, 1]), IndexError, "indptr descends"),
        (
            lambda f: spread(f, [0, 2, 4], [0, 200]),
            IndexError,
            "a region that is not there",
        ),
        (lambda _: crossing(-1), ValueError, "a partition does not exist"),
        (
            lambda _: _native.distribute_bytes(
                row_bytes=0,
                chunks=1,
                region_bytes=1,
                regions=1,
                buffer_bytes=1,
                writers=1,
            ),
            ValueError,
            "row_bytes",
        ),
        (
            lambda _: _native.reader_buffer_bytes(0, 512, 0, 4096, 4),
            ValueError,
            "block_bytes must be positive",
        ),
        (lambda _: _native.BinnedEdges(100, 2**62), MemoryError, None),
    ],
)
def test_contradictory_arguments_are_named(
    folder: Path,
    call: Callable[[Path], object],
    error: type[Exception],
    wanted: str | None,
) -> None:
    with pytest.raises(error, match=wanted):
        call(folder)


def test_an_invalid_graph_is_refused_and_not_followed() -> None:
    assert not relocated()
    assert not _native.count_by_piece(
        np.zeros(3, np.int32), 4, 0, np.zeros(4, np.int64)
    )
    edges = _native.BinnedEdges(10, 10)
    assert not edges.append(
        np.zeros(3, np.int32), np.array([0, 1, 3]), 9, 0, 1
    )  # the second target is node 10
    assert edges.append(np.zeros(3, np.int32), np.array([0, 1, 3]), 8, 0, 1)
    with pytest.raises(IndexError, match="another size"):
        _native.add_along(
            [edges], np.zeros(5), np.zeros(int(_native.binned_entries(10))), 1
        )


def test_memory_that_a_thread_does_not_get_is_an_error_of_the_call(
    folder: Path,
) -> None:
    """Of a pass's allocations only the staging buffers of its threads are too large
    here."""
    code = f"""
from pathlib import Path
import tests.systems.test_native_refusals as refusals
try:
    refusals.packed(Path({str(folder)!r}), write_bytes=1 << 46)
except MemoryError:
    print("raised")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "raised\n", f"exit code {done.returncode}: {done.stderr}"
