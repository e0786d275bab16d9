"""The row reader returns the file's bytes for any dimension, dtype, order, merging and
backend."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import ReadStats, RowReader
from tests.systems.engine_tables import (
    open_reader,
    random_table,
    same_bytes,
    write_table,
)
from workloads.errors import InputError

DIMS = [1, 16, 32, 64, 100, 127, 128, 129, 192, 256, 768]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dim", DIMS)
def test_rows_equal_numpy_for_every_dimension_and_dtype(
    tmp_path: Path, dim: int, dtype: str
) -> None:
    rows = 3001  # odd, so that the last row ends inside a block
    table = random_table(rows, dim, dtype)
    path = write_table(tmp_path / "t", table)
    rng = np.random.default_rng(dim)
    ids = np.concatenate([[rows - 1, 0], rng.integers(0, rows, 900), np.arange(50, 80)])
    for options in (
        {},
        {"granularity": "4096"},
        {"mode": "pread"},
        {"merge": False},
        {"register_buffers": False},
    ):
        with open_reader(path, table, depth=64, **options) as reader:
            out = np.zeros((len(ids), dim), dtype)
            stats = reader.read(ids, out)
            assert same_bytes(out, table[ids]), options
            assert (
                stats.bytes_read
                >= stats.bytes_useful
                >= stats.unique_rows * table.itemsize * dim
            )


def test_rows_are_read_to_the_places_of_out_rows(tmp_path: Path) -> None:
    table = random_table(500, 33, "float32")
    reader = open_reader(write_table(tmp_path / "t", table), table)
    ids = np.array([7, 499, 7, 0])
    places = np.array([3, 0, 9, 1])
    out = np.full((10, 33), 5, "float32")
    reader.read(ids, out, places)
    assert same_bytes(out[places], table[ids])
    assert (out[[2, 4, 5, 6, 7, 8]] == 5).all(), (
        "rows that were not requested were written"
    )


def test_a_torch_tensor_is_filled_in_place(tmp_path: Path) -> None:
    table = random_table(100, 20, "float16")
    reader = open_reader(write_table(tmp_path / "t", table), table)
    out = torch.zeros(5, 20, dtype=torch.float16)
    reader.read(torch.tensor([4, 3, 99, 0, 3]), out)
    assert same_bytes(out.numpy(), table[[4, 3, 99, 0, 3]])


def test_large_rows_are_read_straight_into_an_aligned_table(tmp_path: Path) -> None:
    table = random_table(300, 4096, "float32")
    path = write_table(tmp_path / "t", table)
    ids = np.random.default_rng(1).permutation(300)[:100]
    aligned = aligned_empty(100 * 16384).view("float32").reshape(100, 4096)
    shifted = aligned_empty(100 * 16384 + 64)[64:].view("float32").reshape(100, 4096)
    for out in (aligned, shifted):
        with open_reader(path, table) as reader:
            reader.read(ids, out)
        assert same_bytes(out, table[ids])


def test_a_reader_is_used_for_many_reads_and_counts_each_alone(tmp_path: Path) -> None:
    table = random_table(1000, 128, "float32")
    reader = open_reader(write_table(tmp_path / "t", table), table, depth=8)
    total = ReadStats()
    for seed in range(20):
        ids = np.random.default_rng(seed).integers(0, 1000, 50)
        out = np.empty((50, 128), "float32")
        stats = reader.read(ids, out)
        assert same_bytes(out, table[ids])
        assert stats.rows == 50
        assert stats.unique_rows == len(set(ids.tolist()))
        assert sum(stats.requests_by_size.values()) == stats.requests
        total.add(stats)
    assert total.rows == 1000


def test_no_rows_is_no_request(tmp_path: Path) -> None:
    table = random_table(10, 8, "float32")
    reader = open_reader(write_table(tmp_path / "t", table), table)
    assert (
        reader.read(np.array([], dtype=np.int64), np.empty((0, 8), "float32")).requests
        == 0
    )


def test_ids_outside_the_table_are_refused(tmp_path: Path) -> None:
    table = random_table(10, 8, "float32")
    reader = open_reader(write_table(tmp_path / "t", table), table)
    out = np.zeros((1, 8), "float32")
    for wrong in (-1, 10, 2**40):
        with pytest.raises(IndexError):
            reader.read(np.array([wrong]), out)
    with pytest.raises(IndexError):
        reader.read(np.array([1, 2]), out)
    with pytest.raises(IndexError):
        reader.read(np.array([1]), out, np.array([1]))
    with pytest.raises(ValueError):
        reader.read(np.array([1]), np.zeros((4, 7), "uint8"))
    assert (out == 0).all()


def test_a_buffer_too_small_for_one_request_is_refused(tmp_path: Path) -> None:
    table = random_table(10, 8, "float32")
    path = write_table(tmp_path / "t", table)
    with pytest.raises(InputError, match="buffer_bytes is 4096"):
        open_reader(path, table, buffer_bytes=4096)
    with open_reader(path, table, buffer_bytes=4096, max_request_bytes=4096) as reader:
        assert reader.memory_bytes == 4096
    with pytest.raises(ValueError, match="closed"):
        reader.read(np.array([1]), np.zeros((1, 8), "float32"))


def test_a_bounce_buffer_smaller_than_the_queue_only_slows(tmp_path: Path) -> None:
    table = random_table(4000, 100, "float32")
    path = write_table(tmp_path / "t", table)
    ids = np.random.default_rng(0).integers(0, 4000, 3000)
    out = np.zeros((3000, 100), "float32")
    with open_reader(
        path, table, depth=256, buffer_bytes=12 << 10, max_request_bytes=6 << 10
    ) as reader:
        reader.read(ids, out)
    assert same_bytes(out, table[ids])


def test_plan_bytes_is_what_the_reader_takes(tmp_path: Path) -> None:
    for dim, granularity in ((128, "logical"), (768, "4096"), (5, "logical")):
        table = random_table(100, dim, "float32")
        path = write_table(tmp_path / "t", table)
        reader = open_reader(path, table, depth=32, granularity=granularity)
        planned = RowReader.plan_bytes(
            row_bytes=4 * dim, depth=32, granularity=granularity, path=path
        )  # type: ignore[arg-type]
        assert reader.memory_bytes == planned


def test_pread_pool_equals_io_uring_to_the_count(tmp_path: Path) -> None:
    table = random_table(5000, 100, "float32")
    path = write_table(tmp_path / "t", table)
    ids = np.random.default_rng(3).integers(0, 5000, 4000)
    got = {}
    for mode in ("auto", "pread"):
        with open_reader(path, table, mode=mode) as reader:
            out = np.zeros((4000, 100), "float32")
            stats = reader.read(ids, out)
            stats.seconds = 0
            got[mode] = (out.tobytes(), stats)
    assert got["auto"] == got["pread"]
    assert got["pread"][0] == table[ids].tobytes()


def test_each_thread_reads_with_its_own_reader(tmp_path: Path) -> None:
    table = random_table(4000, 64, "float32")
    path = write_table(tmp_path / "t", table)
    wrong: list[object] = []

    def extract(seed: int) -> None:
        try:
            reader = open_reader(path, table, depth=32)
            rng = np.random.default_rng(seed)
            for _ in range(8):
                ids = rng.integers(0, 4000, 500)
                out = np.zeros((500, 64), "float32")
                reader.read(ids, out)
                if not same_bytes(out, table[ids]):
                    wrong.append(seed)
        except BaseException as error:  # a thread's error must reach the test
            wrong.append(error)

    threads = [threading.Thread(target=extract, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    offset=st.integers(0, 70000),
    nbytes=st.integers(0, 70000),
    request=st.sampled_from([512, 4096, 5000, 1 << 20]),
    shift=st.sampled_from([0, 1, 512]),
)
def test_ranges_equal_the_file(
    tmp_path: Path, offset: int, nbytes: int, request: int, shift: int
) -> None:
    path = tmp_path / "t"
    content = np.random.default_rng(0).integers(0, 256, 140001, dtype=np.uint8)
    if not path.exists():
        content.tofile(path)
    reader = RowReader(path, data_offset=0, num_rows=140001, row_bytes=1, depth=8)
    out = aligned_empty(nbytes + shift + 8)[shift:]
    out[:] = 7
    stats = reader.read_range(offset, nbytes, out, request_bytes=request)
    assert same_bytes(out[:nbytes], content[offset : offset + nbytes])
    assert (out[nbytes:] == 7).all(), "more was written than asked for"
    assert stats.bytes_useful == nbytes


def test_a_large_range_ends_at_the_last_byte(tmp_path: Path) -> None:
    content = np.random.default_rng(0).integers(0, 256, (9 << 20) + 777, dtype=np.uint8)
    path = write_table(tmp_path / "t", content, header=0)
    reader = RowReader(path, data_offset=0, num_rows=1, row_bytes=4096, depth=4)
    for out in (aligned_empty(len(content)), aligned_empty(len(content) + 3)[3:]):
        reader.read_range(0, len(content), out)
        assert same_bytes(out, content)
