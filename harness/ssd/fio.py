"""Typed interface to fio: jobs in, rates and latencies out; a file is written only
where a job requests it."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from harness.isolation.base import Cap
from workloads.errors import HostError

_NS = 1e-9
_HUGE_PAGE = 2 << 20  # bytes
INSTALL = "install fio (apt-get install fio)"
# Latencies in nanoseconds came with 3.0, reads without a vector with 3.20.
OLDEST = (3, 0)
REGISTERS = (3, 20)


@functools.cache
def best_engine() -> Literal["io_uring", "libaio", "psync"]:
    """Return the fastest engine that fio can use here: io_uring may be forbidden
    (seccomp, sysctl)."""
    for engine in ("io_uring", "libaio"):
        job = (
            f"--name=try --readonly --ioengine={engine} --filename=/proc/self/exe "
            "--rw=read --bs=4096 --size=4096"
        )
        try:
            done = subprocess.run(
                ["fio", *job.split(), "--output-format=json"],
                capture_output=True,
                timeout=20,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return "io_uring" if engine == "io_uring" else "libaio"
    return "psync"


class SteadyRule(BaseModel, extra="forbid", frozen=True):
    """Rule for a steady rate: over the last `seconds`, no second's rate deviates from
    the mean by more than `within`. A job with a rule ends once the rule holds, at the
    latest after the job's own `seconds`."""

    within: float = Field(gt=0, lt=1)
    seconds: int = Field(default=5, ge=2)
    ramp_seconds: int = Field(default=1, ge=0)


class FioJob(BaseModel, extra="forbid", frozen=True):
    """One job on one existing file; jobs of a list run one after the other.

    Attributes:
        depth: queue depth of each thread.
        engine: by default the fastest that fio can use here.
        exact_latency: False spares fio its clock reads, so that the rate is the
            device's.
        batch: requests submitted, and waited for, at a time; 0: one by one.
        registered: register io_uring's buffers and file before the first read;
            `run_fio` falls back where that fails.
        region_bytes: bytes to use from the file's beginning; 0: all.
        once: end when each byte was read once, at the latest after `seconds`.
        sync: sync at the end of a job that writes, within its time.
        write_percent: percentage of requests that overwrite the file; 0 makes fio
            refuse to write.
    """

    file: Path
    block_bytes: int = Field(gt=0)
    depth: int = Field(default=64, gt=0)
    pattern: Literal["random", "sequential"] = "random"
    seconds: float = Field(default=1.0, gt=0)
    ramp_seconds: float = Field(default=0.0, ge=0)
    threads: int = Field(default=1, gt=0)
    engine: Literal["io_uring", "libaio", "psync"] = Field(default_factory=best_engine)
    direct: bool = True
    exact_latency: bool = True
    write_percent: int = Field(default=0, ge=0, le=100)
    batch: int = Field(default=0, ge=0)
    registered: bool = True
    region_bytes: int = Field(default=0, ge=0)
    once: bool = False
    sync: bool = False
    steady: SteadyRule | None = None

    def arguments(self, name: str) -> list[str]:
        """Return the job as fio's command line."""
        # fio runs in another folder, and splits file names at colons.
        file = str(self.file.absolute()).replace("\\", "\\\\").replace(":", "\\:")
        mixed = 0 < self.write_percent < 100
        random = self.pattern == "random"
        side = "rw" if mixed else "write" if self.write_percent else "read"
        ring = "--fixedbufs --registerfiles --nonvectored=1"
        together = (
            f"--iodepth_batch_submit={self.batch} "
            f"--iodepth_batch_complete_min={self.batch}"
        )
        optional = {
            "--readonly": not self.write_percent,
            f"--rwmixwrite={self.write_percent}": mixed,
            ring: self.registered and self.engine == "io_uring",
            f"{together} --iodepth_batch_complete_max={self.batch}": self.batch > 0,
            "--time_based": not self.once,
            f"--size={self.region_bytes}": self.region_bytes > 0,
            "--end_fsync=1": self.sync,
        }
        if rule := self.steady:
            held = (
                f"--steadystate=iops:{100 * rule.within:g}% "
                f"--steadystate_duration={rule.seconds}s"
            )
            optional[f"{held} --steadystate_ramp_time={rule.ramp_seconds}s"] = True
        # New offsets every time (`--randrepeat=0`): a cache below the device may hold
        # the blocks of the run before.
        always = (
            f"--stonewall --rw={'rand' if random else ''}{side} "
            f"--bs={self.block_bytes} --iodepth={self.depth} --ioengine={self.engine} "
            f"--direct={int(self.direct)} --numjobs={self.threads} --thread "
            f"--group_reporting --runtime={self.seconds * 1000:.0f}ms "
            f"--ramp_time={self.ramp_seconds * 1000:.0f}ms --norandommap "
            f"--randrepeat=0 --invalidate=1 --iomem_align={_HUGE_PAGE} "
            f"--gtod_reduce={int(not self.exact_latency)}"
        )
        words = [always, *(words for words, wanted in optional.items() if wanted)]
        return [f"--name={name}", f"--filename={file}", *" ".join(words).split()]


class SteadyState(BaseModel, extra="forbid"):
    """Whether a job's rate became steady: no second at the end is further than `within`
    from their mean.

    Attributes:
        deviation: largest deviation of a second's rate from the mean, as a share.
        iops: the rates of these seconds.
    """

    attained: bool
    within: float
    deviation: float
    seconds: float
    iops: list[float] = Field(default_factory=list)


@dataclass(frozen=True)
class FioResult:
    """Measurements of fio for one job.

    Attributes:
        iops, bytes_per_s, requests, bytes_read: reads, or writes where the job only
            writes.
        latency_s: percentile (50.0, 99.0, …) -> completion latency in seconds; empty
            without `exact_latency`.
        cpu: processor time over wall time of one thread, user and system (1.0 = one
            core).
        write_iops: writes per second of a mixed job.
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
    write_iops: float = 0.0
    steady: SteadyState | None = None

    @property
    def cpu_seconds_per_request(self) -> float:
        """Seconds of processor time per request on fio's own threads, without
        interrupts."""
        done = (self.iops + self.write_iops) * self.seconds
        return self.cpu * self.seconds * self.job.threads / done if done else 0.0


def fio_path() -> str | None:
    """Return the path of fio, None where it is not installed."""
    return shutil.which("fio")


@functools.cache
def fio_version(path: str) -> tuple[int, int] | None:
    """Return the version of the fio at `path`, like (3, 33); None where it reports
    none."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"fio-(\d+)\.(\d+)", done.stdout)
    return (int(match.group(1)), int(match.group(2))) if match else None


def fio_tool() -> str:
    """Return version and asynchronous engine of fio, like `fio-3.33 io_uring`."""
    version = fio_version(fio_path() or "fio")
    return f"fio{'-' + '.'.join(map(str, version)) if version else ''} {best_engine()}"


def run_fio(jobs: Sequence[FioJob], cap: Cap | None = None) -> list[FioResult]:
    """Run the jobs one after the other, inside `cap` where one is given, so that its
    limits hold.

    Buffers stay unregistered where the kernel refuses (a low limit of locked memory);
    each result's job shows it. Raises HostError: fio is missing, too old, was ended by
    a signal, or refused a job; its first message is passed on.
    """
    path = fio_path()
    if path is None:
        raise HostError("fio is not installed", INSTALL)
    version = fio_version(path)
    if version is not None and version < OLDEST:
        old, least = (".".join(map(str, numbers)) for numbers in (version, OLDEST))
        raise HostError(f"fio {old} is too old", f"install fio {least} or newer")
    for job in jobs:
        if not job.file.is_file() or job.file.stat().st_size < job.block_bytes:
            raise HostError(
                f"fio cannot read {job.file}: it is not a file of {job.block_bytes} "
                "bytes or more",
                "",
            )
    if any(job.registered and job.engine == "io_uring" for job in jobs):
        if version is not None and version >= REGISTERS:
            with suppress(_Refused):
                return _run(jobs, cap)
        jobs = [job.model_copy(update={"registered": False}) for job in jobs]
    return _run(jobs, cap)


class _Refused(HostError):
    """End of fio without results."""


def _run(jobs: Sequence[FioJob], cap: Cap | None) -> list[FioResult]:
    arguments = ["fio", "--output-format=json"]
    for index, job in enumerate(jobs):
        arguments += job.arguments(f"job{index}")
    limit = 30 + 3 * sum(job.seconds + job.ramp_seconds for job in jobs)
    # Buffers on huge pages, by glibc's tunable: the kernel splits a read of 1 MiB into
    # 4 KiB pages over several requests, and a disk then seemed half as fast as it is.
    # (Buffers must also begin at a huge page, see `--iomem_align`: otherwise most of
    # four buffers of 1 MiB are on small pages, and of 3.1 GB/s 1.7 remained.)
    tunables = ":".join(
        filter(None, (os.environ.get("GLIBC_TUNABLES"), "glibc.malloc.hugetlb=1"))
    )
    try:
        command = cap.command(arguments) if cap else arguments
        environment = {**os.environ, "GLIBC_TUNABLES": tunables}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit,
            cwd="/",
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise HostError(
            f"fio did not end within {limit:.0f} s", "look at the device with `dmesg`"
        ) from error
    results = parse_fio(done.stdout, jobs) if done.returncode == 0 else []
    if len(results) != len(jobs):
        lines = [
            line
            for line in (done.stderr + "\n" + done.stdout).splitlines()
            if line.startswith("fio:")
        ]
        message = lines[0] if lines else _ending(done.returncode)
        raise _Refused(
            f"fio failed on {jobs[0].file} ({message})",
            "run it by hand: " + " ".join(arguments),
        )
    return results


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}" if status else "it gave no result"
    names = {int(known): known.name for known in signal.Signals}
    return f"ended by {names.get(-status, f'signal {-status}')}"


def parse_fio(output: str, jobs: Sequence[FioJob]) -> list[FioResult]:
    """Parse fio's JSON into results, in the order of the jobs; empty where it is
    invalid or a job failed."""
    report = _report(output)
    results = []
    for job, entry in zip(jobs, report.get("jobs", []), strict=False):
        if entry.get("error"):
            return []
        side = entry["write" if job.write_percent == 100 else "read"]
        latency = side.get("clat_ns", {})
        iops = float(side["iops"])
        seconds = float(side["runtime"]) / 1000
        result = FioResult(
            job=job,
            iops=iops,
            # Not fio's own `bw`: after a ramp it counts requests in flight at both ends
            # of the window, which at a low rate and a deep queue is several percent too
            # much. `iops` counts requests issued inside it.
            bytes_per_s=iops * job.block_bytes,
            requests=int(side["total_ios"]),
            bytes_read=int(side["io_bytes"]),
            seconds=seconds,
            mean_latency_s=float(latency.get("mean", 0.0)) * _NS,
            cpu=(float(entry["usr_cpu"]) + float(entry["sys_cpu"])) / 100,
            latency_s={
                float(key): value * _NS
                for key, value in latency.get("percentile", {}).items()
            },
            write_iops=float(entry["write"]["iops"])
            if 0 < job.write_percent < 100
            else 0.0,
            steady=_steady(job.steady, entry.get("steadystate") or {}, seconds)
            if job.steady
            else None,
        )
        results.append(result)
    return results


def _report(output: str) -> dict[str, Any]:
    """Return the JSON object with the jobs; fio may print notes before it, with braces
    in them, and after it."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"^\s*\{", output, re.MULTILINE):
        try:
            found, _ = decoder.raw_decode(output, match.end() - 1)
        except json.JSONDecodeError:
            continue
        if isinstance(found, dict) and "jobs" in found:
            return found
    return {}


def _steady(rule: SteadyRule, entry: dict[str, Any], seconds: float) -> SteadyState:
    data = entry.get("data") or {}
    mean = float(data.get("iops_mean") or 0)
    return SteadyState(
        attained=bool(entry.get("attained")),
        within=rule.within,
        deviation=float(entry.get("max_deviation", 0.0)) / mean if mean else 1.0,
        seconds=seconds,
        iops=[round(float(rate), 1) for rate in data.get("iops", []) if rate],
    )
