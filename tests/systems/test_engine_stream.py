"""A stream returns every byte of its range once, through a small buffer, or raises."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import ReadStats
from systems.engine.io.stream import stream
from workloads.errors import DataIOError, InputError

SIZE = 300_007


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    content = np.random.default_rng(0).integers(0, 256, SIZE, dtype=np.uint8)
    path = tmp_path_factory.mktemp("stream") / "t"
    content.tofile(path)
    return path, content


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    offset=st.sampled_from([0, 4096, 1, 513]) | st.integers(0, SIZE),
    nbytes=st.integers(0, SIZE),
    request=st.sampled_from([512, 4096, 5000, 65536]),
    pieces=st.integers(1, 9),
    mode=st.sampled_from(["auto", "pread"]),
)
def test_every_byte_comes_once(
    file: tuple[Path, np.ndarray],
    offset: int,
    nbytes: int,
    request: int,
    pieces: int,
    mode: str,
) -> None:
    path, content = file
    nbytes = min(nbytes, SIZE - offset)
    out = np.zeros(nbytes, np.uint8)
    times = np.zeros(nbytes, np.uint8)
    stats = ReadStats()
    for at, piece in stream(
        path,
        offset,
        nbytes,
        aligned_empty(pieces * request),
        request_bytes=request,
        depth=4,
        mode=mode,
        stats=stats,  # type: ignore[arg-type]
    ):
        begin = at - offset
        out[begin : begin + len(piece)] = piece
        times[begin : begin + len(piece)] += 1
    assert (times == 1).all()
    assert out.tobytes() == content[offset : offset + nbytes].tobytes()
    assert stats.bytes_useful == nbytes


def test_a_stream_past_the_files_end_raises_with_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(os.urandom(100_000))
    with pytest.raises(DataIOError) as caught:
        for _ in stream(path, 0, 200_000, aligned_empty(65536), request_bytes=8192):
            pass
    assert caught.value.path == str(path)
    assert caught.value.offset >= 100_000


def test_a_buffer_smaller_than_a_piece_is_refused(
    file: tuple[Path, np.ndarray],
) -> None:
    with pytest.raises(InputError, match="4096 bytes"):
        next(stream(file[0], 0, SIZE, aligned_empty(4096), request_bytes=8192))
