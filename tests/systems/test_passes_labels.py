"""Labels read by ranges: the requested items in the requested order, however reads are
joined."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from systems.engine.passes.sampling import LabelReader
from workloads.errors import DataIOError

pytestmark = pytest.mark.timeout(60)
OFFSET = 64


def written(path: Path, count: int) -> np.ndarray:
    items = np.random.default_rng(1).integers(-(1 << 62), 1 << 62, count)
    path.write_bytes(bytes(OFFSET) + items.tobytes())
    return items


@pytest.mark.parametrize("mode", ["auto", "pread"])
@pytest.mark.parametrize("gap", [0, 4096, 1 << 30])
@pytest.mark.parametrize("count", [1, 700, 300_000])
def test_items_come_in_the_order_asked_for(
    tmp_path: Path, count: int, gap: int, mode: str
) -> None:
    items = written(tmp_path / "labels", count)
    ids = np.random.default_rng(2).integers(0, count, 5000)
    reader = LabelReader(
        tmp_path / "labels", data_offset=OFFSET, gap_bytes=gap, mode=mode
    )
    values, stats = reader.read(ids)
    reader.close()
    assert np.array_equal(values, items[ids])
    assert stats.rows == 5000
    assert stats.requests == sum(stats.requests_by_size.values())
    assert stats.bytes_read == sum(
        size * many for size, many in stats.requests_by_size.items()
    )


def test_gaps_are_read_where_that_saves_requests(tmp_path: Path) -> None:
    written(tmp_path / "labels", 300_000)
    ids = np.arange(0, 300_000, 300)

    def asked(gap: int) -> tuple[int, int]:
        reader = LabelReader(tmp_path / "labels", data_offset=OFFSET, gap_bytes=gap)
        stats = reader.read(ids)[1]
        reader.close()
        return stats.requests, stats.bytes_read

    (many, few_bytes), (few, many_bytes) = asked(0), asked(1 << 20)
    assert few * 20 < many
    assert few_bytes < many_bytes <= 8 * 300_000 + 64 + few * 1024


def test_no_items_ask_nothing(tmp_path: Path) -> None:
    written(tmp_path / "labels", 10)
    reader = LabelReader(tmp_path / "labels", data_offset=OFFSET, gap_bytes=0)
    values, stats = reader.read(np.empty(0, dtype=np.int64))
    reader.close()
    assert len(values) == 0
    assert stats.requests == 0


def test_a_file_that_was_cut_is_reported_and_read_again_once_it_is_whole(
    tmp_path: Path,
) -> None:
    path = tmp_path / "labels"
    items = written(path, 300_000)
    whole = path.read_bytes()
    os.truncate(path, 1_000_000)
    reader = LabelReader(path, data_offset=OFFSET, gap_bytes=0)
    with pytest.raises(DataIOError, match="labels") as found:
        reader.read(np.arange(0, 300_000, 10))
    assert found.value.offset is not None
    assert found.value.offset >= 1_000_000 - 4096 - (128 << 10)
    path.write_bytes(whole)
    assert np.array_equal(reader.read(np.array([299_999, 3]))[0], items[[299_999, 3]])
    reader.close()
