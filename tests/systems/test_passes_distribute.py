"""Distributing: every chunk gets its rows in any memory, in as many passes as needed;
faults are reported."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from systems import _native
from systems.engine.io.memory import aligned_empty
from systems.engine.io.row_reads import RowTable
from systems.engine.passes.chunks import Chunks, Rows
from systems.engine.passes.distribute import (
    ChunkIndex,
    ChunkWriter,
    KeptRows,
    PassPlan,
    PassStats,
    least_bytes,
    plan_pass,
)
from tests.support import make_tiny
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DataIOError

pytestmark = pytest.mark.timeout(60)
ROW = 64
CHUNKS = 40


def wanted(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        np.sort(rng.choice(2000, size=rng.integers(0, 900), replace=False))
        for _ in range(CHUNKS)
    ]


def distribute(
    folder: Path, dataset: Dataset, ids: list[np.ndarray], memory: int, gap: int = 4096
) -> tuple[ChunkIndex, PassStats]:
    writer = ChunkWriter(
        folder / "chunks",
        RowTable.of(dataset),
        misses=sum(map(len, ids)),
        memory_bytes=memory,
        stop=_native.StopFlag(),
    )
    try:
        for rows in ids:
            to = np.arange(len(rows), dtype=np.int32)[::-1].copy()
            writer.append(
                rows, {"slots": np.arange(len(rows), dtype=np.int32), "to": to}
            )
        return writer.distribute(gap_bytes=gap)
    finally:
        writer.close()


def read_back(
    index: ChunkIndex, ids: list[np.ndarray], features: np.ndarray, piece_bytes: int
) -> None:
    chunks = Chunks(index, aligned_empty(3 * piece_bytes), piece_bytes, 2)
    try:
        for rows in ids:
            addresses = chunks.addresses()
            table = np.zeros((max(1, len(rows)), ROW), dtype=np.uint8)

            def put(
                read: Rows,
                to: npt.NDArray[np.int32],
                table: npt.NDArray[np.uint8] = table,
            ) -> None:
                table[to] = read

            chunks.fill(put, addresses.to)
            if len(rows):
                assert np.array_equal(
                    table[addresses.to].view(np.float32), features[rows]
                )
    finally:
        chunks.close()


@pytest.mark.parametrize("memory", [16 << 20, 4 << 20, 3 << 20])
@pytest.mark.parametrize("piece_bytes", [4096, 1 << 16])
def test_every_chunk_has_its_rows(
    tmp_path: Path, tiny_dataset: Dataset, memory: int, piece_bytes: int
) -> None:
    ids = wanted()
    index, stats = distribute(tmp_path, tiny_dataset, ids, memory)
    assert stats.bytes_written == sum(
        -(-len(rows) * ROW // 4096) * 4096 for rows in ids
    )
    read_back(index, ids, tiny_dataset.load("features"), piece_bytes)


def test_little_memory_takes_more_passes_and_reads_the_table_as_often(
    tmp_path: Path, tiny_dataset: Dataset
) -> None:
    ids = wanted()
    few = least_bytes(ROW) + 4 * sum(map(len, ids)) - (1 << 20) + (96 << 10)
    (_, passes), (_, one) = (
        distribute(tmp_path, tiny_dataset, ids, memory) for memory in (few, 64 << 20)
    )
    assert one.passes == 1 < passes.passes
    assert passes.reads.bytes_read > one.reads.bytes_read
    assert plan_pass(ROW, CHUNKS, 64 << 20).memory_bytes(ROW, CHUNKS) <= 64 << 20
    with pytest.raises(BudgetError, match="distributing needs"):
        plan_pass(ROW, 1, 1 << 10)


@pytest.mark.parametrize("buffer", [1 << 20, 12 << 10, 0])
def test_a_plan_is_written_as_its_mini_batches_one_by_one(
    tmp_path: Path, tiny_dataset: Dataset, buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("systems.engine.passes.distribute._LIST_BUFFER", buffer)
    ids = [
        np.sort(np.random.default_rng(i).choice(2000, 700 - 40 * i, replace=False))
        for i in range(15)
    ]
    planner = _native.SlotPlanner(1000, 1, True)
    offsets = np.cumsum([0, *map(len, ids)])
    nodes = np.concatenate(ids).astype(np.uint32)
    planner.plan(nodes, offsets, np.zeros(len(ids), dtype=np.int64))
    found = []
    for name in ("all", "each"):
        writer = ChunkWriter(
            tmp_path / name,
            RowTable.of(tiny_dataset),
            misses=int(offsets[-1]) - planner.hits,
            memory_bytes=16 << 20,
            stop=_native.StopFlag(),
        )
        if name == "all":
            writer.append_planned(planner, len(ids))
        else:
            for i in range(len(ids)):
                rows, to = planner.misses(i)
                writer.append(rows, {"slots": planner.slots(i), "to": to})
        index, _ = writer.distribute(gap_bytes=4096)
        used = int(index.rows[-1, 0] + -(-index.rows[-1, 1] * ROW // 4096) * 4096)
        found.append((index, (tmp_path / name).read_bytes()[:used]))
    (one, data), (other, expected) = found
    assert data == expected
    for column in ("lists", "rows", "list_digests", "row_digests"):
        assert np.array_equal(getattr(one, column), getattr(other, column))


def test_sparse_regions_are_read_by_ranges(
    tmp_path: Path, tiny_dataset: Dataset
) -> None:
    ids = [np.array([0, 1, 1999], dtype=np.int64)]
    (_, near), (_, far) = (
        distribute(tmp_path, tiny_dataset, ids, 16 << 20, gap)
        for gap in (4096, 1 << 20)
    )
    assert near.reads.requests == 2
    assert near.reads.bytes_read < tiny_dataset.feature_bytes // 4
    assert far.reads.requests == 1
    assert far.reads.bytes_read >= tiny_dataset.feature_bytes


@pytest.mark.parametrize("room", [1, 7, 4096])
@pytest.mark.parametrize("chunks", [0, CHUNKS])
def test_kept_rows_go_to_memory_in_the_pass_that_reads_each_region_once(
    tmp_path: Path, tiny_dataset: Dataset, room: int, chunks: int
) -> None:
    ids = wanted()[:chunks]
    features = tiny_dataset.load("features")
    kept = np.array([0, 1, 5, 700, 1998, 1999], dtype=np.uint32)
    found = np.zeros((len(kept), ROW), dtype=np.uint8)
    plan = PassPlan(16 << 10, 2, 16 << 10, max(1, chunks), whole=True)

    def give(rows: Rows, at: int) -> None:
        found[at : at + len(rows)] = rows

    writer = ChunkWriter(
        tmp_path / "chunks",
        RowTable.of(tiny_dataset),
        misses=sum(map(len, ids)),
        stop=_native.StopFlag(),
        plan=plan,
    )
    for rows in ids:
        writer.append(
            rows,
            {
                "to": np.arange(len(rows), dtype=np.int32),
                "slots": np.arange(0, dtype=np.int32),
            },
        )
    index, stats = writer.distribute(
        KeptRows(kept, np.empty((room, ROW), dtype=np.uint8), give)
    )
    assert np.array_equal(found.view(np.float32), features[kept])
    read_back(index, ids, features, 1 << 16)
    regions = np.unique(np.concatenate([kept, *ids]) // 256)
    assert stats.passes == 1
    assert stats.reads.requests == len(regions)
    assert stats.reads.bytes_read == sum(
        min(256, 2000 - 256 * region) * ROW for region in regions.tolist()
    )


def test_files_are_written_again_in_place(
    tmp_path: Path, tiny_dataset: Dataset
) -> None:
    for seed in (1, 2):
        ids = wanted(seed)
        index, _ = distribute(tmp_path, tiny_dataset, ids, 16 << 20)
        read_back(index, ids, tiny_dataset.load("features"), 1 << 16)


def test_a_table_that_was_cut_is_reported_with_file_and_offset(tmp_path: Path) -> None:
    dataset = make_tiny(tmp_path / "cut")
    path = dataset.file("features")
    os.truncate(path, dataset.data_offset("features") + dataset.feature_bytes // 2)
    with pytest.raises(DataIOError, match="features") as found:
        distribute(tmp_path, dataset, wanted(), 16 << 20)
    assert str(path) in str(found.value)
    assert found.value.offset > 0
