"""The readers count the latency of each request: all of them, by size and direction, in
buckets at most 3.1 % wide."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from systems import _native
from systems.engine.io.latency import LatencyMeter
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import RowReader
from systems.readings import Latencies

ROW = 512
ROWS = 4096


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    path.write_bytes(np.random.default_rng(0).bytes(ROWS * ROW))
    return path


def open_reader(path: Path, **options: object) -> RowReader:
    place = {"data_offset": 0, "num_rows": ROWS, "row_bytes": ROW}
    return RowReader(path, **{**place, **options})  # type: ignore[arg-type]


def requests(latencies: Latencies, direction: str = "read") -> dict[str, int]:
    """Return the number of requests of each size class."""
    return {
        size: sum(int(pair.partition(":")[2]) for pair in histogram.split())
        for size, histogram in latencies.get(direction, {}).items()
    }


@pytest.mark.parametrize("mode", ["auto", "pread"])
def test_every_request_is_counted_once_by_its_size(table: Path, mode: str) -> None:
    meter = LatencyMeter()
    out = aligned_empty(ROWS * ROW).reshape(ROWS, ROW)
    with open_reader(table, mode=mode, merge=False, granularity="logical") as reader:
        block = reader.block_bytes
        reader.read(np.arange(0, ROWS, 2), out)
        reader.read_range(0, ROWS * ROW, out, request_bytes=65536)
    expected = {str(block): ROWS // 2, "65536": ROWS * ROW // 65536}
    assert requests(meter.found()) == expected
    meter.restart()
    assert meter.found() == {}


def test_readers_of_other_threads_and_closed_ones_count(table: Path) -> None:
    meter = LatencyMeter()

    def read() -> None:
        out = np.empty((100, ROW), np.uint8)
        with open_reader(table, merge=False) as reader:
            reader.read(np.arange(100), out)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(requests(meter.found()).values()) == 400


def test_a_latency_is_at_most_the_time_of_the_call(table: Path) -> None:
    meter = LatencyMeter()
    out = np.empty((1, ROW), np.uint8)
    with open_reader(table) as reader:
        began_ns = time.monotonic_ns()
        reader.read(np.array([7]), out)
        took_ns = time.monotonic_ns() - began_ns
    (histogram,) = meter.found()["read"].values()
    bound_ns, _, count = histogram.partition(":")
    assert count == "1"
    # A bucket's bound is up to 3.2 % or 256 ns above a latency in it.
    assert 0 < int(bound_ns) <= max(1.033 * took_ns, took_ns + 256)


def test_buckets_are_narrow_and_join_without_a_gap() -> None:
    bounds_ns = _native.latency_bounds_ns()
    below_ns = np.concatenate([[0], bounds_ns[:-1] + 1])
    assert (bounds_ns >= below_ns).all()
    width_ns = bounds_ns - below_ns + 1
    assert (width_ns <= np.maximum(256, below_ns / 32)).all()
    assert bounds_ns[-1] > 1e12


def test_measuring_can_be_turned_off(table: Path) -> None:
    meter = LatencyMeter()
    out = np.empty((10, ROW), np.uint8)
    _native.measure_latency(False)
    try:
        with open_reader(table) as reader:
            reader.read(np.arange(10), out)
    finally:
        _native.measure_latency(True)
    assert meter.found() == {}
