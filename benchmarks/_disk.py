"""What the disk benchmarks share: one file on a real disk, fio at its best beside ours, medians, a verdict."""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np

from harness.ssd.fio import FioJob, FioResult, best_engine, fio_path, run_fio
from harness.ssd.ways import Reads, Way
from systems.engine.io.memory import evict
from workloads.units import parse_bytes

# Virtual disks save up a burst while they rest, and fio's start and end are rests: every run spends this long before it
# is measured, fio (`--ramp_time`) and ours alike, so that both meet the sustained rate.
RAMP_S = 1.5


def parser(doc: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--size", default="4GiB", help="bytes of the file")
    made.add_argument("--folder", default="/var/tmp", help="where the file is made, on the disk to measure")
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--seconds", type=float, default=2.0, help="of fio, each round")
    return made


@contextmanager
def data_file(folder: str, size: str) -> Iterator[Path]:
    """A file of random bytes (nothing that a device could compress or skip), evicted; removed at the end."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="outcore-bench-") as made:
        path = Path(made) / "table"
        piece = np.random.default_rng(0).integers(0, 2**63, (64 << 20) // 8, dtype=np.int64)
        with path.open("wb") as file:
            for index in range(parse_bytes(size) // piece.nbytes):
                file.write((piece ^ index).tobytes())
        evict(path)
        yield path


def fio(
    path: Path, *, pattern: Literal["random", "sequential"], block: int, depth: int, seconds: float
) -> dict[str, float]:
    """fio at its best with `depth` reads in flight, one thread: `iops` and `bytes_per_s`.

    Through the harness's own fio: direct, registered and aligned buffers, registered file; random reads one by one or
    in batches of a quarter of the depth, whichever a short try before the first round found faster.
    """
    job = FioJob(
        file=path,
        block_bytes=block,
        depth=depth,
        pattern=pattern,
        seconds=seconds,
        ramp_seconds=RAMP_S,
        engine=best_engine(),
        exact_latency=False,
        batch=_batch(path, block, depth) if pattern == "random" else 0,
    )
    result = _run(job)
    return {"iops": result.iops, "bytes_per_s": result.bytes_per_s}


@functools.cache
def _batch(path: Path, block: int, depth: int) -> int:
    reads = Reads(path)
    _need_fio()
    found = [reads.measure(block, way, 0.5) for way in dict.fromkeys((Way(depth), Way(depth, depth // 4)))]
    return max(found, key=lambda point: point.iops).batch


def fio_write(folder: str | Path, total: int, *, depth: int, sync: bool) -> float:
    """Bytes a second of one fio process that writes `total` bytes to a new file once, direct, 1 MiB at a time.

    A fair opponent meets what ours meets: blocks that are reserved but were never written (reserving, like ours of
    packing, lies outside its time), each written once. Overwriting a file that stands there already spares the
    file system the marking and a virtual disk the finding of room: on one it went at 6.4 GB/s instead of 3.5. The bytes
    are random, and no time goes into making them. Buffers lie on huge pages.

    Args:
        sync: the time includes a sync at the end.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="outcore-bench-") as made:
        path = Path(made) / "file"
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, total)
        job = FioJob(
            file=path,
            block_bytes=1 << 20,
            depth=depth,
            pattern="sequential",
            write_percent=100,
            once=True,
            sync=sync,
            seconds=max(60.0, total / 20e6),
            engine=best_engine(),
            exact_latency=False,
        )
        settle()
        result = _run(job)
        return result.bytes_read / result.seconds


def _run(job: FioJob) -> FioResult:
    _need_fio()
    return run_fio([job])[0]


def settle() -> None:
    """Before a measured write: what was removed just before is then discarded on the disk, and not beside it."""
    os.sync()


def _need_fio() -> None:
    if fio_path() is None:
        sys.exit("fio is missing: apt-get install fio")


def interleave(rounds: int, runs: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Medians of `rounds` values of each, run A B A B …, after one round that warms up; every value is printed."""
    values: dict[str, list[float]] = {name: [] for name in runs}
    for index in range(rounds + 1):
        for name, run in runs.items():
            value = run()
            if index:
                values[name].append(value)
    for name, measured in values.items():
        spread = f"{min(measured):,.4g} to {max(measured):,.4g}"
        print(f"  {name:44s} {statistics.median(measured):>14,.4g}   ({spread}, {rounds} rounds)")
    return {name: statistics.median(measured) for name, measured in values.items()}


def verdict(what: str, ratio: float, target: float) -> bool:
    """Print a ratio against its target; whether it is reached."""
    reached = ratio >= target
    print(f"{what}: {ratio:.3f} (target {target}) {'reached' if reached else 'MISSED'}")
    return reached
