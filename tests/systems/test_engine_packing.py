"""Packing: right bytes for any rows, order, memory and method; corrupted chunks named;
no files after a full disk."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems import _native
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import RowReader
from systems.engine.io.row_reads import RowTable
from systems.engine.store.artefacts import prepare
from systems.engine.store.packed_layout import arrays_bytes, piece_rows, slot_rows
from systems.engine.store.packed_store import PackedBatch, PackedReader, row_pieces
from systems.engine.store.packed_writer import PackedWriter
from systems.engine.store.packing import (
    PackOptions,
    PackStats,
    least_memory,
    plan_packing,
)
from tests.systems.engine_tables import HEADER, random_table, run_child, write_table
from workloads.direct_files import padded
from workloads.errors import BudgetError, DataIOError, InputError

MEMORY = 16 << 20
FILES = ("packed.bin", "disk_cache.rows", "device_cache.rows")


def table_of(
    folder: Path, rows: int, row_bytes: int, header: int = HEADER
) -> tuple[RowTable, np.ndarray]:
    content = random_table(rows, row_bytes, "uint8", seed=row_bytes)
    return RowTable(
        write_table(folder / f"table{row_bytes}", content, header),
        header,
        rows,
        row_bytes,
    ), content


def arrays_of(number: int, ids: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "nodes": ids * 3,
        "labels": np.arange(number, dtype=np.int32),
        "empty": np.empty((0, 2), np.float16),
    }


def packed(
    folder: Path,
    table: RowTable,
    lists: list[np.ndarray],
    *,
    cache: np.ndarray | None = None,
    method: Any = "batched",
    **options: Any,
) -> PackStats:
    folder.mkdir(exist_ok=True)
    with PackedWriter(
        folder, table, **{"memory_bytes": MEMORY, "threads": 3, **options}
    ) as writer:
        for number, ids in enumerate(lists):
            writer.append(ids, arrays_of(number, ids))
        if cache is not None:
            writer.add_rows("disk_cache", cache)
            writer.add_rows("device_cache", np.sort(cache))
        return writer.pack(method)


def read_batches(reader: PackedReader, order: Iterable[int]) -> Iterator[PackedBatch]:
    for batch in order:
        cut = int(reader.feature_bytes[batch])
        memory = aligned_empty(cut + int(reader.structure_bytes[batch]))
        yield reader.start(batch, memory[:cut], memory[cut:]).result()


def read_rows(folder: Path, name: str, row_bytes: int) -> np.ndarray:
    return np.concatenate(
        [
            np.empty((0, row_bytes), np.uint8),
            *(rows.copy() for _, rows in row_pieces(folder, name)),
        ]
    )


def random_lists(rng: np.random.Generator, rows: int, count: int) -> list[np.ndarray]:
    return [
        np.flatnonzero(rng.random(rows) < share) for share in rng.random(count) ** 2
    ]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    row_bytes=st.one_of(
        st.sampled_from([4, 508, 512, 516, 2048, 3068, 3072]),
        st.integers(1, 768).map(lambda k: 4 * k),
    ),
    rows=st.integers(1, 900),
    count=st.integers(0, 9),
    seed=st.integers(0, 2**32),
    header=st.sampled_from([0, 128, 4096]),
    threads=st.sampled_from([1, 5]),
    mode=st.sampled_from(["auto", "pread"]),
)
def test_both_ways_of_packing_write_the_rows_that_numpy_picks(
    tmp_path: Path,
    row_bytes: int,
    rows: int,
    count: int,
    seed: int,
    header: int,
    threads: int,
    mode: Any,
) -> None:
    rng = np.random.default_rng(seed)
    table, content = table_of(tmp_path, rows, row_bytes, header)
    lists = random_lists(rng, rows, count)
    cache = rng.integers(0, rows, rng.integers(0, 2 * rows))
    for method in ("batched", "individual"):
        folder = tmp_path / method
        packed(
            folder, table, lists, cache=cache, method=method, threads=threads, mode=mode
        )
        with closing(PackedReader(folder, mode=mode)) as reader:
            for batch in read_batches(reader, range(count)):
                ids = lists[batch.index]
                assert batch.rows.tobytes() == content[ids].tobytes()
                for name, array in arrays_of(batch.index, ids).items():
                    assert batch.arrays[name].dtype == array.dtype
                    assert batch.arrays[name].shape == array.shape
                    assert batch.arrays[name].tobytes() == array.tobytes()
            assert reader.counters() == reader.simulate(range(count))
        assert (
            read_rows(folder, "disk_cache", row_bytes).tobytes()
            == content[cache].tobytes()
        )
        sizes = sum(
            padded(len(ids) * row_bytes) + arrays_bytes(arrays_of(n, ids))
            for n, ids in enumerate(lists)
        )
        assert (folder / "packed.bin").stat().st_size == sizes
        assert (folder / "disk_cache.rows").stat().st_size == padded(
            len(cache) * row_bytes
        )
    for name in FILES:
        assert (tmp_path / "batched" / name).read_bytes() == (
            tmp_path / "individual" / name
        ).read_bytes(), name
    with (
        np.load(tmp_path / "batched/packed.npz") as one,
        np.load(tmp_path / "individual/packed.npz") as other,
    ):
        assert {name: one[name].tolist() for name in one} == {
            name: other[name].tolist() for name in other
        }


def test_the_table_is_read_once_and_many_passes_give_the_same_bytes(
    tmp_path: Path,
) -> None:
    table, _ = table_of(tmp_path, 30_000, 400)
    rng = np.random.default_rng(1)
    lists = [np.flatnonzero(rng.random(30_000) < 0.3) for _ in range(60)]
    one = packed(tmp_path / "one", table, lists)
    assert one.passes == 1
    assert one.bytes_read <= 30_000 * 400 + 1024 * one.partitions
    # Ids and pages of sixty chunks do not fit in memory, so they are packed in
    # episodes.
    least = PackedWriter.least_bytes(row_bytes=400, longest=10_000, threads=1)
    many = packed(tmp_path / "many", table, lists, memory_bytes=least, threads=1)
    assert many.passes > 1
    assert many.bytes_read > one.bytes_read
    assert many.bytes_written == one.bytes_written
    assert (tmp_path / "one/packed.bin").read_bytes() == (
        tmp_path / "many/packed.bin"
    ).read_bytes()
    alone = packed(tmp_path / "alone", table, lists[:5], method="individual")
    assert alone.passes == 0
    assert alone.requests > 5 * one.requests


def test_partitions_without_wanted_rows_are_not_read(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path, 30_000, 400)
    stats = packed(
        tmp_path / "out",
        table,
        [np.arange(100, 200), np.arange(29_000, 29_500)],
        memory_bytes=14 << 20,
    )
    assert stats.bytes_read < 700 * 400 * 1.1 or stats.partitions == 1


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.integers(0, 400_000), max_size=40),
    row_bytes=st.integers(1, 768).map(lambda k: 4 * k),
    threads=st.integers(1, 16),
    spare=st.integers(0, 200 << 20),
)
def test_packing_stays_within_its_memory(
    rows: list[int], row_bytes: int, threads: int, spare: int
) -> None:
    least = least_memory(row_bytes, rows, PackOptions(0, threads))
    options = PackOptions(least + spare, threads)
    plan = plan_packing(1 << 30, row_bytes, rows, options)
    assert sorted(number for group in plan.groups for number in group) == [
        n for n, count in enumerate(rows) if count
    ]
    own = [
        min(plan.write_bytes, -(-count * row_bytes // 4096) * 4096)
        if plan.hold
        else 4096
        for count in rows
    ]
    chunks = max(
        (
            sum(4 * rows[number] + own[number] for number in group)
            for group in plan.groups
        ),
        default=0,
    )
    partitions = plan.buffers * _native.partition_buffer_bytes(
        plan.partition_rows, row_bytes
    )
    staging = 0 if plan.hold else threads * plan.write_bytes
    assert (
        chunks + partitions + staging
        <= plan.memory_bytes(row_bytes, rows, threads)
        <= options.memory_bytes
    )
    with pytest.raises(BudgetError, match="packing needs"):
        plan_packing(1 << 30, row_bytes, rows, PackOptions(least - 1, threads))


def test_writes_are_long_however_few_rows_a_partition_brings(tmp_path: Path) -> None:
    table, content = table_of(tmp_path, 40_000, 512)
    rng = np.random.default_rng(2)
    lists = [
        np.flatnonzero(rng.random(40_000) < 0.05) for _ in range(12)
    ]  # 1 MiB each, of a table of 20
    stats = packed(tmp_path / "out", table, lists)
    assert stats.partitions >= 20
    assert stats.writes <= 2 * len(lists)
    with closing(PackedReader(tmp_path / "out")) as reader:
        for batch in read_batches(reader, range(12)):
            assert batch.rows.tobytes() == content[lists[batch.index]].tobytes()
    # Many chunks that take much of a small table: a large partition has more rows than
    # each chunk can buffer.
    many = plan_packing(4 << 30, 512, [100_000] * 1000, PackOptions(256 << 20, 8))
    assert not many.hold
    assert many.partition_rows * 512 > 32 << 20


@pytest.mark.parametrize("size", [1024, 4096, 4096 * 37])
def test_the_digest_is_xxh3(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    assert _native.xxh3(data) == xxhash.xxh3_64_intdigest(data.data)


@settings(max_examples=50, deadline=None)
@given(ids=st.lists(st.integers(0, 2**32 - 1), max_size=400), small=st.booleans())
def test_the_radix_sort_is_a_stable_sort(ids: list[int], small: bool) -> None:
    values = np.array(ids, np.int64) % (50 if small else 2**32)
    ascending, came_from = _native.ascending(values)
    order = np.argsort(values, kind="stable")
    assert ascending.tolist() == values[order].tolist()
    assert came_from.tolist() == order.tolist()


def test_rows_of_a_cache_can_be_read_at_random(tmp_path: Path) -> None:
    table, content = table_of(tmp_path, 5000, 516)
    cache = np.random.default_rng(0).permutation(5000)
    packed(tmp_path / "out", table, [], cache=cache)
    with RowReader(
        tmp_path / "out/disk_cache.rows", data_offset=0, num_rows=5000, row_bytes=516
    ) as reader:
        out = np.zeros((300, 516), np.uint8)
        slots = np.random.default_rng(1).integers(0, 5000, 300)
        reader.read(slots, out)
    assert out.tobytes() == content[cache[slots]].tobytes()


def test_features_are_read_into_the_slots_of_one_table(tmp_path: Path) -> None:
    table, content = table_of(tmp_path, 3000, 100)
    lists = random_lists(np.random.default_rng(3), 3000, 6)
    packed(tmp_path / "out", table, lists)
    with closing(PackedReader(tmp_path / "out")) as reader:
        unit = slot_rows(100)
        slot = -(-int(reader.feature_bytes.max()) // (unit * 100)) * unit
        whole = aligned_empty(6 * slot * 100).reshape(-1, 100)
        pending = [
            reader.start(batch, whole[batch * slot : (batch + 1) * slot], None)
            for batch in range(6)
        ]
        for batch in (3, 0, 5, 1, 2, 4):
            assert pending[batch].result().arrays == {}
        for batch, ids in enumerate(lists):
            assert (
                whole[batch * slot : batch * slot + len(ids)].tobytes()
                == content[ids].tobytes()
            )
        assert reader.counters() == reader.simulate(range(6), parts=["features"])
        with pytest.raises(ValueError, match="mini-batch 0"):
            reader.start(0, np.empty(0, np.uint8), None)


@pytest.mark.parametrize("part", ["features", "structure"])
def test_a_corrupted_chunk_is_named(tmp_path: Path, part: str) -> None:
    table, _ = table_of(tmp_path, 3000, 100)
    packed(tmp_path / "out", table, [np.arange(500), np.arange(1000, 1900)])
    path = tmp_path / "out/packed.bin"
    with closing(PackedReader(tmp_path / "out")) as reader:
        start = int(reader.offsets[1]) + (
            int(reader.feature_bytes[1]) if part == "structure" else 0
        )
        with path.open("r+b") as file:
            file.seek(start + 77)
            byte = file.read(1)
            file.seek(start + 77)
            file.write(bytes([byte[0] ^ 1]))
        os.sync()
        batches = read_batches(reader, [0, 1])
        next(batches)
        with pytest.raises(DataIOError, match=f"{part} of mini-batch 1") as caught:
            next(batches)
    assert caught.value.path == str(path)
    assert caught.value.offset == start


def test_a_corrupted_cache_is_named(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path, 9000, 1000)
    packed(tmp_path / "out", table, [], cache=np.arange(9000)[::-1])
    path = tmp_path / "out/disk_cache.rows"
    piece = piece_rows(1000) * 1000
    with path.open("r+b") as file:
        file.seek(piece + 5)
        byte = file.read(1)
        file.seek(piece + 5)
        file.write(bytes([byte[0] ^ 255]))
    with pytest.raises(DataIOError) as caught:
        read_rows(tmp_path / "out", "disk_cache", 1000)
    assert caught.value.path == str(path)
    assert caught.value.offset == piece


def test_reading_rows_that_were_not_written_raises_with_the_fix(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path, 9000, 1000)
    packed(tmp_path / "out", table, [], cache=np.arange(90))
    with pytest.raises(InputError, match="no rows named other") as caught:
        read_rows(tmp_path / "out", "other", 1000)
    assert caught.value.fix


def test_a_cut_store_and_a_damaged_index_are_named(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path, 3000, 100)
    packed(tmp_path / "out", table, [np.arange(500), np.arange(1000, 1900)])
    path = tmp_path / "out/packed.bin"
    with closing(PackedReader(tmp_path / "out")) as reader:
        os.truncate(path, int(reader.offsets[1]) + 4096)
        with pytest.raises(DataIOError) as caught:
            list(read_batches(reader, [1]))
        assert caught.value.path == str(path)
        assert caught.value.offset == int(reader.offsets[1]) + 4096
    index = tmp_path / "out/packed.npz"
    index.write_bytes(index.read_bytes()[:-30])
    with pytest.raises(DataIOError, match=r"packed\.npz"):
        PackedReader(tmp_path / "out")


def test_a_truncated_table_raises_and_nothing_is_left(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path, 3000, 100)
    os.truncate(table.path, HEADER + 2000 * 100)
    for method in ("batched", "individual"):
        with pytest.raises(DataIOError) as caught:
            packed(
                tmp_path / "out",
                table,
                [np.arange(2500)],
                cache=np.arange(9),
                method=method,
            )
        assert caught.value.path == str(table.path)
        assert caught.value.offset == HEADER + 2000 * 100
        assert not list((tmp_path / "out").iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a real file system of 4 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", folder],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(
            f"no file system can be mounted here: {made.stderr.decode().strip()}"
        )
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_raises_and_nothing_is_left(
    tmp_path: Path, small_disk: Path
) -> None:
    table, _ = table_of(tmp_path, 3000, 1000)
    fits = [np.arange(1500), np.arange(1500)]
    packed(small_disk, table, fits)
    for path in small_disk.iterdir():
        path.unlink()

    def make(folder: Path) -> None:
        packed(folder, table, [*fits, np.arange(1500, 3000)])

    with pytest.raises(DataIOError, match="No space left") as caught:
        prepare(small_disk / "artefacts", "diskgnn", {"a": 1}, make)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.path.endswith("packed.bin")
    assert not [
        path
        for path in (small_disk / "artefacts").rglob("*")
        if path.is_file() and "packed" in path.name
    ]


def test_a_writer_that_was_killed_or_left_leaves_nothing_to_use(tmp_path: Path) -> None:
    table, content = table_of(tmp_path, 3000, 100)

    def make(folder: Path) -> None:
        packed(folder, table, [np.arange(500)])

    code = """
    import os, sys
    import numpy as np
    from pathlib import Path
    from systems.engine.store.artefacts import prepare
    from systems.engine.io.row_reads import RowTable
    from systems.engine.store.packed_writer import PackedWriter
    def make(folder):
        writer = PackedWriter(folder, RowTable(Path(sys.argv[1]), 4096, 3000, 100), memory_bytes=16 << 20)
        writer.append(np.arange(500), {})
        if os.fork() == 0:
            os.kill(os.getppid(), 9)
            os._exit(0)
        while True:
            pass
    child = os.fork()
    if child == 0:
        prepare(Path(sys.argv[2]), "diskgnn", {"a": 1}, make)
    print(os.waitpid(child, 0)[1])
    """
    assert run_child(code, table.path, tmp_path / "artefacts").strip() == "9"
    made = prepare(tmp_path / "artefacts", "diskgnn", {"a": 1}, make)
    assert not made.reused
    with closing(PackedReader(made.path)) as reader:
        assert next(read_batches(reader, [0])).rows.tobytes() == content[:500].tobytes()
    folder = tmp_path / "left"
    folder.mkdir()
    writer = PackedWriter(folder, table, memory_bytes=MEMORY)
    writer.append(np.arange(5), {})
    writer.add_rows("x", np.arange(5))
    with pytest.raises(DataIOError):
        PackedReader(folder)
    writer.close()
    assert not list(folder.iterdir())


def test_wrong_ids_are_refused(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path, 300, 100)
    for ids in ([3, 2], [2, 2], [-1], [300]):
        with (
            PackedWriter(tmp_path, table, memory_bytes=MEMORY) as writer,
            pytest.raises(InputError),
        ):
            writer.append(np.array(ids), {})
    with PackedWriter(tmp_path, table, memory_bytes=1 << 20) as writer:
        writer.append(np.arange(9), {})
        with pytest.raises(BudgetError):
            writer.pack()


def test_closing_a_reader_half_way_ends_its_reads(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path, 3000, 1000)
    packed(tmp_path / "out", table, [np.arange(2000)] * 8)
    reader = PackedReader(tmp_path / "out", request_bytes=8192, depth=4)
    memory = aligned_empty(int(reader.feature_bytes[0]))
    pending = reader.start(0, memory, None)
    reader.close()
    reader.close()
    memory[:] = 0
    assert not memory.any(), "a read wrote to memory after close"
    with pytest.raises(ValueError, match="closed"):
        pending.result()


@pytest.mark.slow("systems/engine/store/packing.py", "systems/native/store", seconds=15)
def test_passes_and_reordering_keep_to_their_memory(tmp_path: Path) -> None:
    # Ids of a pass that stayed in the heap killed a run whose plan fitted: 4,800
    # mini-batches under 48 MiB.
    grown = run_child(
        """
        import sys, numpy as np
        from pathlib import Path
        from systems.engine.io.memory import share_one_heap
        from tests.systems.test_engine_packing import packed, table_of

        def status(name):
            return int(Path("/proc/self/status").read_text().split(name + ":")[1].split()[0]) << 10

        share_one_heap()
        folder, memory, rng = Path(sys.argv[1]), int(sys.argv[2]), np.random.default_rng(1)
        table, _ = table_of(folder, 60_000, 512)
        lists = [np.flatnonzero(rng.random(60_000) < 0.05) for _ in range(1200)]
        cache = rng.permutation(60_000)[:50_000]
        # Pages of code that the first pass loads (0.5 MiB) are not the pass's memory.
        packed(folder / "first", table, lists[:20], cache=cache, memory_bytes=memory, threads=16)
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        stats = packed(folder / "out", table, lists, cache=cache, memory_bytes=memory, threads=16)
        assert stats.passes == 2
        print(status("VmHWM") - before)
        """,
        tmp_path,
        24 << 20,
    )
    assert int(grown) <= (24 + 2) << 20
