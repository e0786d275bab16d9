"""Shared tools of the disk benchmarks: a file on a real disk, fio at its best, medians
of interleaved runs, ratios."""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np

from harness.ssd.fio import FioJob, FioResult, best_engine, fio_path, run_fio
from harness.ssd.ways import Reads, Way
from systems.engine.io.memory import evict
from workloads.tempfolder import TemporaryFolder
from workloads.units import parse_bytes

# Idle virtual disks save up a burst, and fio is idle as it starts and ends: every run,
# fio's (`--ramp_time`) and ours, spends this long before its measurement, so that both
# get the sustained rate.
RAMP_S = 1.5


def parser(doc: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--size", default="4GiB", help="bytes of the file")
    made.add_argument(
        "--folder",
        type=Path,
        default=Path("/var/tmp"),
        help="where the file is made, on the disk to measure",
    )
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--seconds", type=float, default=2.0, help="of fio, each round")
    return made


@contextmanager
def data_file(folder: str, size: str) -> Iterator[Path]:
    """Make a file of random bytes (which no device can compress or skip), evict it, and
    remove it at the end."""
    with TemporaryFolder(Path(folder), "benchmark") as made:
        path = Path(made) / "table"
        piece = np.random.default_rng(0).integers(
            0, 2**63, (64 << 20) // 8, dtype=np.int64
        )
        with path.open("wb") as file:
            for index in range(parse_bytes(size) // piece.nbytes):
                file.write((piece ^ index).tobytes())
        evict(path)
        yield path


def fio(
    path: Path,
    *,
    pattern: Literal["random", "sequential"],
    block: int,
    depth: int,
    seconds: float,
) -> dict[str, float]:
    """Measure fio at its best with `depth` reads in flight on one thread; return its
    `iops` and `bytes_per_s`.

    Reads are direct, with registered and aligned buffers and a registered file. Random
    reads are submitted one by one or in batches of a quarter of the depth, whichever
    was faster in a short try before the first round.
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
    found = [
        reads.measure(block, way, 0.5)
        for way in dict.fromkeys((Way(depth), Way(depth, depth // 4)))
    ]
    return max(found, key=lambda point: point.iops).batch


def _run(job: FioJob) -> FioResult:
    _need_fio()
    return run_fio([job])[0]


def _need_fio() -> None:
    if fio_path() is None:
        sys.exit("fio is missing: apt-get install fio")


def interleave(
    rounds: int, runs: Mapping[str, Callable[[], float]]
) -> dict[str, float]:
    """Run A B A B …, print the values and return the median of each over `rounds`,
    after one round of warm-up."""
    values: dict[str, list[float]] = {name: [] for name in runs}
    for index in range(rounds + 1):
        for name, run in runs.items():
            value = run()
            if index:
                values[name].append(value)
    for name, measured in values.items():
        spread = f"{min(measured):,.4g} to {max(measured):,.4g}"
        print(
            f"  {name:44s} {statistics.median(measured):>14,.4g}   ({spread}, {rounds} "
            "rounds)"
        )
    return {name: statistics.median(measured) for name, measured in values.items()}


def verdict(what: str, ratio: float, target: float) -> bool:
    """Print a ratio beside its target; return whether the target is reached."""
    reached = ratio >= target
    print(f"{what}: {ratio:.3f} (target {target}) {'reached' if reached else 'MISSED'}")
    return reached
