"""Several ranges of a file in one read: every byte in its place, requests as forecast,
errors with file and offset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import RowReader
from workloads.errors import DataIOError

SIZE = 100_003
REQUEST = 8192


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    content = np.random.default_rng(0).integers(0, 256, SIZE, dtype=np.uint8)
    path = tmp_path_factory.mktemp("ranges") / "t"
    content.tofile(path)
    return path, content


def reader_of(path: Path, depth: int = 4, mode: str = "auto") -> RowReader:
    return RowReader(
        path, data_offset=0, num_rows=0, row_bytes=4096, depth=depth, mode=mode
    )  # type: ignore[arg-type]


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    wanted=st.lists(
        st.tuples(st.integers(0, SIZE), st.integers(0, 30_000)), max_size=12
    ),
    aligned=st.booleans(),
    mode=st.sampled_from(["auto", "pread"]),
)
def test_every_range_is_read_to_its_place(
    file: tuple[Path, np.ndarray],
    wanted: list[tuple[int, int]],
    aligned: bool,
    mode: str,
) -> None:
    path, content = file
    unit = 512 if aligned else 1
    offsets = np.array([offset // unit * unit for offset, _ in wanted], dtype=np.int64)
    sizes = np.minimum(
        np.array([size // unit * unit for _, size in wanted], dtype=np.int64),
        SIZE - offsets,
    )
    positions = np.zeros(len(wanted), dtype=np.int64)
    room = -(-sizes // unit) * unit
    np.cumsum(room[:-1], out=positions[1:])
    out = aligned_empty(int(room.sum()) + 1)
    out[-1] = 77
    with reader_of(path, mode=mode) as reader:
        stats = reader.read_ranges(
            offsets, sizes, out, positions, request_bytes=REQUEST
        )
    for offset, size, position in zip(offsets, sizes, positions, strict=True):
        assert (
            out[position : position + size].tobytes()
            == content[offset : offset + size].tobytes()
        )
    assert out[-1] == 77
    assert stats.bytes_useful == sizes.sum()
    if aligned:
        # The file ends inside a block: a range that ends there takes a request of its
        # own.
        tails = sum(
            bool(size % 512 and size > 512 and size % REQUEST > 512) for size in sizes
        )
        assert stats.requests == sum(-(-int(size) // REQUEST) for size in sizes) + tails


def test_no_request_joins_two_ranges(file: tuple[Path, np.ndarray]) -> None:
    path, _ = file
    with reader_of(path) as reader:
        stats = reader.read_ranges(
            np.array([0, 4096]),
            np.array([4096, 4096]),
            aligned_empty(8192),
            np.array([4096, 0]),
            request_bytes=1 << 20,
        )
    assert stats.requests_by_size == {4096: 2}


def test_a_range_past_the_end_of_the_file_is_reported_by_name_and_offset(
    file: tuple[Path, np.ndarray],
) -> None:
    path, _ = file
    with (
        reader_of(path) as reader,
        pytest.raises(DataIOError, match=str(path)) as caught,
    ):
        reader.read_ranges(
            np.array([0, SIZE - 10]),
            np.array([512, 4096]),
            aligned_empty(8192),
            np.array([0, 512]),
        )
    assert caught.value.offset == SIZE


def test_a_range_that_does_not_fit_its_buffer_is_refused(
    file: tuple[Path, np.ndarray],
) -> None:
    path, _ = file
    with reader_of(path) as reader, pytest.raises(IndexError):
        reader.read_ranges(
            np.array([0]), np.array([4096]), aligned_empty(4096), np.array([1])
        )
