"""What the disk benchmarks share: one file on a real disk, fio at its best beside ours, medians, a verdict."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from harness.ssd.fio import fio_environment
from systems.engine import evict
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


def fio(path: Path, *, pattern: str, block: int, depth: int, seconds: float) -> dict[str, float]:
    """fio with io_uring, direct, registered file and buffers, one job: `iops` and `bytes_per_s`; `write` overwrites."""
    if shutil.which("fio") is None:
        sys.exit("fio is missing: apt-get install fio")
    command = [
        "fio", "--name=read", f"--filename={path}", f"--rw={pattern}", f"--bs={block}", f"--iodepth={depth}",
        f"--size={path.stat().st_size}", f"--runtime={seconds}",
        f"--ramp_time={RAMP_S}", "--time_based", "--ioengine=io_uring", "--direct=1",
        "--registerfiles", "--fixedbufs", "--norandommap", "--gtod_reduce=1", "--invalidate=1", "--output-format=json",
        "--randrepeat=0",
    ]  # fmt: skip
    job = json.loads(subprocess.run(command, capture_output=True, check=True, text=True, env=fio_environment()).stdout)[
        "jobs"
    ][0]
    done = job["write" if pattern == "write" else "read"]
    return {"iops": float(done["iops"]), "bytes_per_s": float(done["bw_bytes"])}


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
