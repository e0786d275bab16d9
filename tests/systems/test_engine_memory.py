"""Gather equals numpy's indexing and survives a cut file; eviction empties the page
cache and reports the rest."""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from systems.engine.io.arrays import gather
from systems.engine.io.memory import aligned_empty, evict, madvise, resident_bytes
from tests.systems.engine_tables import random_table, run_child, same_bytes, write_table
from workloads.errors import DataIOError


@pytest.mark.parametrize("dim", [1, 33, 128, 768])
@pytest.mark.parametrize("threads", [1, 2, 16])
def test_gather_equals_indexing(tmp_path: Path, dim: int, threads: int) -> None:
    table = random_table(2000, dim, "float16", dim)
    path = write_table(tmp_path / "t", table)
    mapped = np.memmap(path, dtype="float16", mode="r", offset=4096, shape=table.shape)
    rows = np.random.default_rng(0).integers(0, 2000, 1777)
    for source in (mapped, table, torch.from_numpy(table)):
        out = np.full((1800, dim), 3, "float16")
        gather(source, rows, out, threads)
        assert same_bytes(out[:1777], table[rows])
        assert (out[1777:] == 3).all()


def test_gathers_at_the_same_time_do_not_mix() -> None:
    table = random_table(5000, 64, "float32")
    wrong: list[int] = []

    def one(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(50):
            rows = rng.integers(0, 5000, int(rng.integers(0, 400)))
            out = np.empty((len(rows), 64), "float32")
            gather(table, rows, out, int(rng.integers(1, 9)))
            if not same_bytes(out, table[rows]):
                wrong.append(seed)

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_gather_refuses_rows_outside_the_table() -> None:
    table = random_table(10, 4, "float32")
    for wrong in (-1, 10):
        with pytest.raises(IndexError):
            gather(table, np.array([0, wrong]), np.zeros((2, 4), "float32"), 2)
    with pytest.raises(IndexError):
        gather(table, np.array([0, 1]), np.zeros((1, 4), "float32"), 2)


def test_gather_of_a_truncated_map_raises_with_file_and_size(tmp_path: Path) -> None:
    table = random_table(4000, 128, "float32")
    path = write_table(tmp_path / "features.npy", table)
    mapped = np.memmap(path, dtype="float32", mode="r", offset=4096, shape=table.shape)
    os.truncate(path, 100_000)
    with pytest.raises(DataIOError) as caught:
        gather(mapped, np.array([3999]), np.zeros((1, 128), "float32"), 4)
    assert caught.value.path == str(path)
    assert caught.value.offset == 100_000


def test_a_bus_error_while_gathering_raises_instead_of_killing(tmp_path: Path) -> None:
    # A plain array over mmap hides its file from the size check, so the gather itself
    # meets the fault, as in a race.
    path = write_table(tmp_path / "t", random_table(4000, 128, "float32"))
    reported = run_child(
        """
        import mmap, os, sys
        import numpy as np
        from systems.engine.io.arrays import gather
        from workloads.errors import DataIOError
        with open(sys.argv[1], "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        table = np.frombuffer(mapped, np.uint8, offset=4096).reshape(4000, 512)
        os.truncate(sys.argv[1], 81920)
        out = np.zeros((4000, 512), np.uint8)
        for threads in (1, 8, 8):
            try:
                gather(table, np.arange(4000), out, threads)
                print("no error")
            except DataIOError as error:
                print("raised", error.offset)
        gather(table, np.arange(100), out, 8)   # the rest can still be read
        print((out[:100] == table[:100]).all())
        """,
        path,
    )
    lines = reported.split("\n")
    assert lines[0] == "raised 77824", (
        "not the first missing page: 81920 less the 4096 before the table"
    )
    assert [line.split()[0] for line in lines[:3]] == ["raised"] * 3
    assert lines[3] == "True"


@pytest.mark.slow("systems/engine/io", "systems/native", seconds=6)
def test_a_bus_error_outside_gather_still_ends_the_process(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t", random_table(100, 128, "float32"))
    with pytest.raises(AssertionError):  # run_child asserts exit code 0
        run_child(
            """
            import mmap, os, sys
            import numpy as np
            from systems.engine.io.arrays import gather
            gather(np.zeros((1, 4)), np.array([0]), np.zeros((1, 4)), 1)
            with open(sys.argv[1], "rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            os.truncate(sys.argv[1], 4096)
            print(mapped[40000])
            """,
            path,
        )


def test_eviction_leaves_nothing_resident(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t", random_table(1 << 14, 128, "float32"))
    path.read_bytes()
    size = path.stat().st_size
    assert resident_bytes(path) >= 0.9 * size
    assert evict(path) < 0.01 * size
    assert resident_bytes(path) < 0.01 * size


def test_dirty_pages_are_written_before_they_are_evicted(tmp_path: Path) -> None:
    path = tmp_path / "t"
    content = os.urandom(1 << 20)
    path.write_bytes(content)  # no fsync
    assert evict(path) < 0.01 * len(content)
    assert path.read_bytes() == content


def test_pages_that_are_mapped_and_touched_are_reported_as_resident(
    tmp_path: Path,
) -> None:
    path = write_table(tmp_path / "t", random_table(1 << 10, 1024, "uint8"))
    mapped = np.memmap(path, dtype=np.uint8, mode="r")
    assert int(mapped[:: mmap.PAGESIZE].sum()) >= 0
    assert evict(path) >= mapped.nbytes // 2, (
        "evict() does not report pages that are still cached"
    )


def test_random_advice_turns_read_ahead_off(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t", random_table(1 << 14, 256, "uint8"))
    evict(path)
    mapped = np.memmap(path, dtype=np.uint8, mode="r")
    madvise(mapped, "random")
    assert int(mapped[2 << 20]) >= 0
    assert resident_bytes(path) <= 4 * mmap.PAGESIZE


def test_a_missing_file_is_named() -> None:
    for look in (evict, resident_bytes):
        with pytest.raises(DataIOError, match="no-such-file"):
            look("/no-such-file")


@pytest.mark.parametrize("alignment", [64, 4096, 2 << 20])
def test_aligned_memory_is_aligned_zeroed_and_writable(alignment: int) -> None:
    for nbytes in (0, 1, 4097):
        array = aligned_empty(nbytes, alignment)
        assert array.nbytes == nbytes
        assert not array.any()
        assert nbytes == 0 or array.__array_interface__["data"][0] % alignment == 0
        array[:] = 1
