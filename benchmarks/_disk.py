"""What the disk benchmarks share: one file on a real disk, fio at its best beside ours, medians, a verdict."""

from __future__ import annotations

import argparse
import json
import os
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
    """fio with io_uring, direct, registered file and buffers, one job that reads: `iops` and `bytes_per_s`."""
    _need_fio()
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
    return {"iops": float(job["read"]["iops"]), "bytes_per_s": float(job["read"]["bw_bytes"])}


def fio_write(folder: str | Path, total: int, *, depth: int, sync: bool) -> float:
    """Bytes a second of one fio process that writes `total` bytes to a new file once, direct, 1 MiB at a time.

    A fair opponent meets what ours meets: blocks that are reserved but were never written (fio's `fallocate`, like
    ours of packing, lies outside its time), each written once. Overwriting a file that stands there already spares the
    file system the marking and a virtual disk the finding of room: on one it went at 6.4 GB/s instead of 3.5. The bytes
    are random, and no time goes into making them. Buffers lie on huge pages.

    Args:
        sync: the time includes a sync at the end.
    """
    _need_fio()
    with tempfile.TemporaryDirectory(dir=folder, prefix="outcore-bench-") as made:
        command = [
            "fio", "--name=write", f"--filename={made}/file", "--rw=write", "--bs=1M", f"--size={total}", "--direct=1",
            "--ioengine=io_uring", f"--iodepth={depth}", "--registerfiles", "--fixedbufs", "--gtod_reduce=1",
            "--fallocate=posix", f"--end_fsync={int(sync)}", "--output-format=json",
        ]  # fmt: skip
        settle()
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=fio_environment())
        return float(json.loads(done.stdout)["jobs"][0]["write"]["bw_bytes"])


def settle() -> None:
    """Before a measured write: what was removed just before is then discarded on the disk, and not beside it."""
    os.sync()


def _need_fio() -> None:
    if shutil.which("fio") is None:
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
