"""fio as a typed function: jobs in, rates and latencies out. Reads only; it never writes to a file it is given."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.isolation.base import Cap
from workloads.errors import HostError

_NS = 1e-9
INSTALL = "install fio (apt-get install fio)"


class FioJob(BaseModel):
    """One read job on one existing file. Jobs of a list run one after the other.

    `depth` is per thread. `exact_latency=False` spares fio its clock reads, so that the rate is the device's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: Path
    block_bytes: int = Field(gt=0)
    depth: int = Field(default=64, gt=0)
    pattern: Literal["random", "sequential"] = "random"
    seconds: float = Field(default=1.0, gt=0)
    ramp_seconds: float = Field(default=0.0, ge=0)
    threads: int = Field(default=1, gt=0)
    engine: Literal["io_uring", "libaio", "psync"] = "io_uring"
    direct: bool = True
    exact_latency: bool = True

    def arguments(self, name: str) -> list[str]:
        """The job as fio's command line."""
        # fio runs in another folder, and splits file names at colons.
        file = str(self.file.absolute()).replace("\\", "\\\\").replace(":", "\\:")
        return [
            f"--name={name}", "--stonewall", f"--filename={file}", "--readonly",
            f"--rw={'randread' if self.pattern == 'random' else 'read'}", f"--bs={self.block_bytes}",
            f"--iodepth={self.depth}", f"--ioengine={self.engine}", f"--direct={int(self.direct)}",
            f"--numjobs={self.threads}", "--thread", "--group_reporting", "--time_based",
            f"--runtime={self.seconds * 1000:.0f}ms", f"--ramp_time={self.ramp_seconds * 1000:.0f}ms",
            # Other offsets every time: a cache below the device must not know them from the run before.
            "--norandommap", "--randrepeat=0", "--invalidate=1",
            f"--gtod_reduce={int(not self.exact_latency)}",
        ]  # fmt: skip


@dataclass(frozen=True)
class FioResult:
    """What fio measured for one job.

    Attributes:
        latency_s: completion latency; percentile (50.0, 99.0, …) -> seconds, empty without `exact_latency`.
        cpu: processor time over wall time of one thread, user and system (1.0 = one core).
    """

    job: FioJob
    iops: float
    bytes_per_s: float
    requests: int
    bytes_read: int
    seconds: float
    mean_latency_s: float
    cpu: float
    latency_s: dict[float, float] = field(default_factory=dict)
    version: str = ""


def fio_environment() -> dict[str, str]:
    """The environment in which fio's buffers lie on huge pages, as ours do.

    A read of 1 MiB into 4 KiB pages is 256 pieces of memory, which the kernel splits over several requests: measured
    so, a disk seemed half as fast as it is. glibc's malloc asks for huge pages when told to; another libc takes no
    notice.
    """
    before = os.environ.get("GLIBC_TUNABLES", "")
    return {**os.environ, "GLIBC_TUNABLES": ":".join(part for part in (before, "glibc.malloc.hugetlb=1") if part)}


def fio_path() -> str | None:
    """Where fio is, None where it is not installed."""
    return shutil.which("fio")


@functools.cache
def best_engine() -> Literal["io_uring", "libaio", "psync"]:
    """The fastest engine that fio can use here: io_uring may be forbidden (seccomp, sysctl)."""
    for engine in ("io_uring", "libaio"):
        job = ["--name=try", "--readonly", f"--ioengine={engine}", "--filename=/proc/self/exe", "--rw=read",
               "--bs=4096", "--size=4096", "--output-format=json"]  # fmt: skip
        try:
            done = subprocess.run(["fio", *job], capture_output=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return "io_uring" if engine == "io_uring" else "libaio"
    return "psync"


def run_fio(jobs: Sequence[FioJob], cap: Cap | None = None) -> list[FioResult]:
    """Run the jobs one after the other, inside `cap` where one is given, so that its limits hold.

    Raises:
        HostError: fio is missing, or refused a job; its first message is passed on.
    """
    if fio_path() is None:
        raise HostError("fio is not installed", INSTALL)
    arguments = ["fio", "--output-format=json"]
    for index, job in enumerate(jobs):
        if not job.file.is_file() or job.file.stat().st_size < job.block_bytes:
            raise HostError(f"fio cannot read {job.file}: it is not a file of {job.block_bytes} bytes or more", "")
        arguments += job.arguments(f"job{index}")
    limit = 30 + 3 * sum(job.seconds + job.ramp_seconds for job in jobs)
    try:
        done = subprocess.run(
            cap.command(arguments) if cap else arguments,
            capture_output=True, text=True, timeout=limit, check=False, cwd="/", env=fio_environment(),
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise HostError(f"fio did not end within {limit:.0f} s", "look at the device with `dmesg`") from error
    results = parse_fio(done.stdout, jobs) if done.returncode == 0 else []
    if len(results) != len(jobs):
        lines = [line for line in (done.stderr + "\n" + done.stdout).splitlines() if line.startswith("fio:")]
        said = lines[0] if lines else f"exit status {done.returncode}"
        raise HostError(f"fio failed on {jobs[0].file} ({said})", "run it by hand: " + " ".join(arguments))
    return results


def parse_fio(output: str, jobs: Sequence[FioJob]) -> list[FioResult]:
    """fio's JSON as results, in the order of the jobs; empty where it is none or a job failed."""
    # fio may print notes before the JSON.
    start = output.find("{")
    try:
        report: dict[str, Any] = json.loads(output[start:]) if start >= 0 else {}
    except json.JSONDecodeError:
        return []
    results = []
    for job, entry in zip(jobs, report.get("jobs", []), strict=False):
        if entry.get("error"):
            return []
        read = entry["read"]
        latency = read.get("clat_ns", {})
        results.append(
            FioResult(
                job=job,
                iops=float(read["iops"]),
                # Not fio's own `bw`: after a ramp it counts what was in flight at both ends of the window, which at a
                # low rate and a deep queue is several percent too much. `iops` counts what was issued inside it.
                bytes_per_s=float(read["iops"]) * job.block_bytes,
                requests=int(read["total_ios"]),
                bytes_read=int(read["io_bytes"]),
                seconds=float(read["runtime"]) / 1000,
                mean_latency_s=float(latency.get("mean", 0.0)) * _NS,
                cpu=(float(entry["usr_cpu"]) + float(entry["sys_cpu"])) / 100,
                latency_s={float(key): value * _NS for key, value in latency.get("percentile", {}).items()},
                version=str(report.get("fio version", "")),
            )
        )
    return results
