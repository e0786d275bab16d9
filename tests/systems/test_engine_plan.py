"""Requests are exactly those of a ten-line planner: sorted, each row once, touching
blocks joined, never too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems.engine.io.reader import RowReader
from tests.systems.engine_tables import (
    open_reader,
    random_table,
    same_bytes,
    write_table,
)

ROWS = 400


def plan(
    ids: Sequence[int], header: int, row: int, block: int, limit: int, gap: int
) -> list[tuple[int, int]]:
    """Plan by simple code; return (offset, length) of each request."""
    requests: list[list[int]] = []
    for i in sorted(set(ids)):
        start = (header + i * row) // block * block
        stop = -(-(header + (i + 1) * row) // block) * block
        longest = max(limit // block * block, stop - start)
        if (
            requests
            and start <= requests[-1][1] + gap
            and max(stop, requests[-1][1]) - requests[-1][0] <= longest
        ):
            requests[-1][1] = max(stop, requests[-1][1])
        else:
            requests.append([start, stop])
    return [(start, stop - start) for start, stop in requests]


@pytest.fixture(scope="module")
def files(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[int, tuple[Path, np.ndarray]]:
    folder = tmp_path_factory.mktemp("plan")
    tables = {
        dim: random_table(ROWS, dim, "uint8", dim)
        for dim in (4, 200, 508, 512, 516, 1024, 3072)
    }
    return {
        dim: (write_table(folder / str(dim), table), table)
        for dim, table in tables.items()
    }


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    row=st.sampled_from([4, 200, 508, 512, 516, 1024, 3072]),
    ids=st.lists(st.integers(0, ROWS - 1), max_size=300)
    | st.lists(st.integers(100, 130), max_size=60),
    limit=st.sampled_from([3072, 4096, 6144, 16384, 131072]),
    gap=st.sampled_from([0, 512, 5000]),
    granularity=st.sampled_from(["logical", "4096"]),
)
def test_requests_equal_the_reference_planner(
    files: dict[int, tuple[Path, np.ndarray]],
    row: int,
    ids: list[int],
    limit: int,
    gap: int,
    granularity: str,
) -> None:
    path, table = files[row]
    reader = open_reader(
        path,
        table,
        max_request_bytes=limit,
        merge_gap_bytes=gap,
        granularity=granularity,
        depth=16,
    )
    limit_used = max(limit, -(-row // reader.block_bytes) * reader.block_bytes)
    # A limit below the longest covering range of any row is raised to that range.
    block = reader.block_bytes
    covering = max(
        -(-(4096 + (i + 1) * row) // block) * block - (4096 + i * row) // block * block
        for i in range(ROWS)
    )
    expected = plan(
        ids, 4096, row, block, max(limit_used // block * block, covering), gap
    )
    out = np.zeros((len(ids), row), np.uint8)
    stats = reader.read(np.array(ids, dtype=np.int64), out)
    assert same_bytes(out, table[ids])
    assert stats.requests == len(expected)
    assert stats.requests_by_size == dict(Counter(length for _, length in expected))
    size = 4096 + table.nbytes
    assert stats.bytes_read == sum(
        min(length, size - offset) for offset, length in expected
    )
    assert stats.unique_rows == len(set(ids))
    assert stats.bytes_useful == len(set(ids)) * row


def test_without_merging_every_id_is_a_request(
    files: dict[int, tuple[Path, np.ndarray]],
) -> None:
    path, table = files[512]
    ids = np.array([5, 6, 7, 7, 7, 300])
    reader = open_reader(path, table, merge=False)
    out = np.zeros((6, 512), np.uint8)
    stats = reader.read(ids, out)
    assert same_bytes(out, table[ids])
    assert stats.requests == 6
    assert stats.bytes_read == 6 * 512


def test_a_512_byte_row_is_one_block_not_a_page(
    files: dict[int, tuple[Path, np.ndarray]],
) -> None:
    path, table = files[512]
    reader = open_reader(path, table)
    if reader.block_bytes != 512:
        pytest.skip(f"the device's logical block is {reader.block_bytes} bytes")
    out = np.zeros((1, 512), np.uint8)
    assert reader.read(np.array([9]), out).bytes_read == 512
    coarse = open_reader(path, table, granularity="4096")
    assert coarse.read(np.array([9]), out).bytes_read == 4096


def test_ids_beyond_32_bits_are_sorted_right(tmp_path: Path) -> None:
    # A sparse file: 2^33 rows of one byte, a few of them written.
    ids = np.array([2**33 - 1, 5, 2**32, 2**32 + 1, 2**31, 4096] * 60)
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        for i in set(ids.tolist()):
            file.seek(i)
            file.write(bytes([i % 251 + 1]))
    reader = RowReader(path, data_offset=0, num_rows=2**33, row_bytes=1)
    out = np.zeros((len(ids), 1), np.uint8)
    stats = reader.read(ids, out)
    assert out[:, 0].tolist() == [i % 251 + 1 for i in ids.tolist()]
    assert stats.requests == 5
    assert stats.unique_rows == 6
