"""Points of a quick or full profile: the fio jobs, their order and their duration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.isolation.base import IoLimit
from harness.ssd.drive import Mode, Point
from harness.ssd.fio import FioJob, FioResult, SteadyRule
from harness.ssd.profile import LIMITED_RAMP_S, shallow

KIB = 1 << 10
FILE_BYTES: dict[Mode, int] = {"quick": 1 << 30, "full": 4 << 30}
POINT_S: dict[Mode, float] = {"quick": 0.8, "full": 2.5}
STEADY_S: dict[Mode, float] = {"quick": 8.0, "full": 60.0}
STEADY_WITHIN = 0.1
_RAMP_S = 0.2
PERCENTILES = ("50.000000", "90.000000", "99.000000", "99.900000", "99.990000")
# Fields of a point with the names that they have in the job and in its result.
_OF_JOB = ("pattern", "block_bytes", "depth", "threads", "direct", "write_percent")
_OF_RESULT = ("iops", "bytes_per_s", "write_iops", "requests", "seconds", "mean_latency_s")

_ALL_DEPTHS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
_ALL_BLOCKS = [512, 1 * KIB, 2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB]
_ALL_THREADS = [1, 2, 4, 8, 16, 32, 64, 128]


def jobs(mode: Mode, file: Path, least: int, seconds: float, limits: Sequence[IoLimit] = ()) -> list[FioJob]:
    """Return the jobs of a profile in order; mixed ones, which write to the file, come last.

    Args:
        file: file to read.
        least: smallest block that direct I/O takes; smaller sizes are raised to it.
        seconds: duration of a point.
        limits: limits of an emulated class; low ones reduce the depth (`profile.shallow`), and equal points merge.
    """
    ramp = LIMITED_RAMP_S if limits else _RAMP_S
    shared: dict[str, Any] = {"file": file, "seconds": seconds, "ramp_seconds": ramp}
    found = [FioJob(**{**shared, **point}) for point in _points(mode)]
    unique = {}
    for job in found:
        size = max(job.block_bytes, least)
        depth = shallow(size, job.depth, limits, seconds) if limits and job.engine != "psync" else job.depth
        held = job.model_copy(update={"block_bytes": size, "depth": depth})
        unique[key_of(held)] = held
    return list(unique.values())


def steady_job(mode: Mode, file: Path, seconds: float) -> FioJob:
    """Return a job of random 4 KiB reads until the rate is steady; shorter where points are shorter than the mode's."""
    longest = max(3.0, STEADY_S[mode] * min(1.0, seconds / POINT_S[mode]))
    rule = SteadyRule(within=STEADY_WITHIN, seconds=max(2, round(longest / 3)), ramp_seconds=1 if longest > 4 else 0)
    return FioJob(file=file, block_bytes=4 * KIB, depth=64, seconds=longest, steady=rule, exact_latency=False)


def key_of(job: FioJob) -> str:
    """Return a key that identifies a point within a profile."""
    return (
        f"{job.pattern}:{job.block_bytes}:{job.depth}:{job.threads}:{'sync' if job.engine == 'psync' else 'async'}"
        f":{'direct' if job.direct else 'buffered'}:{job.write_percent}"
    )


def point_of(result: FioResult) -> Point:
    """Convert an fio result to a saved point."""
    job = result.job
    kept = {name.rstrip("0").rstrip("."): float(name) for name in PERCENTILES}
    return Point(
        **job.model_dump(include=set(_OF_JOB)),
        **{name: getattr(result, name) for name in _OF_RESULT},
        engine="sync" if job.engine == "psync" else "async",
        latency_s={name: result.latency_s[value] for name, value in kept.items() if value in result.latency_s},
        cpu_s_per_request=result.cpu_seconds_per_request,
    )


def words(job: FioJob) -> str:
    """Describe a point in words, for progress messages."""
    how = f"{job.threads} threads" if job.engine == "psync" else f"depth {job.depth}"
    mixed = f", {job.write_percent} % writes" if job.write_percent else ""
    size = f"{job.block_bytes} B" if job.block_bytes < KIB else f"{job.block_bytes // KIB} KiB"
    return f"{size} {job.pattern}, {how}, {'direct' if job.direct else 'buffered'}{mixed}"


def _points(mode: Mode) -> list[dict[str, Any]]:
    """Return the points as settings of their jobs: random, blocking, buffered, sequential and mixed reads."""
    full = mode == "full"
    random = [(block, depth) for block in _ALL_BLOCKS for depth in _ALL_DEPTHS]
    if not full:
        random = [(block, 256) for block in (512, 4 * KIB, 16 * KIB, 64 * KIB)]
        random += [*((block, depth) for block in (512, 4 * KIB) for depth in (1, 4, 16, 64)), (64 * KIB, 16)]
    threads = [(count, direct) for direct in (True, False) for count in (_ALL_THREADS if full else (1, 32))]
    sequential = [(1024 * KIB, depth) for depth in (1, 32)]
    if full:
        sequential = [(block, depth) for block in (128 * KIB, 1024 * KIB) for depth in (1, 8, 32)]
    return [
        *({"block_bytes": block, "depth": depth} for block, depth in random),
        *(
            {"block_bytes": 512, "depth": 1, "threads": count, "engine": "psync", "direct": direct}
            for count, direct in threads
        ),
        *({"block_bytes": 512, "depth": depth, "direct": False} for depth in (_ALL_DEPTHS if full else [1, 64])),
        *({"block_bytes": block, "depth": depth, "pattern": "sequential"} for block, depth in sequential),
        *({"block_bytes": 4 * KIB, "depth": 32, "write_percent": share} for share in ((10, 30, 50) if full else (30,))),
    ]
