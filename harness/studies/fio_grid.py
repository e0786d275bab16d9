"""Study `fio-grid`: bandwidth of a disk with synchronous threads and with one
asynchronous thread, direct and buffered.

The grid of GNNDrive's Appendix B, and the request sizes by which DiskGNN's Table 4
compares storage types. It reads its own file on the disk of the data root, without a
cap or an SSD class: the bare device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from harness.progress import tracked
from harness.settings import Strict
from harness.ssd.device import block_device, direct_block_bytes
from harness.ssd.fio import FioJob, best_engine, run_fio
from harness.ssd.measure import point_of, words
from harness.ssd.testfile import write_file
from harness.studies.base import StudyContext, study
from workloads.arraytypes import JsonDict
from workloads.errors import HostError

_SETUP_S = 0.35
_KEPT = set(
    (
        "pattern engine direct block_bytes threads depth iops bytes_per_s "
        "mean_latency_s"
    ).split()
)


class FioGridParams(Strict):
    """The grid. `wide_blocks`: bytes of further random, direct, asynchronous reads at
    the deepest queue."""

    file_bytes: int = Field(default=2 << 30, ge=1 << 20)
    block_bytes: int = Field(default=512, ge=512)
    threads: list[int] = Field(
        default_factory=lambda: [1, 2, 4, 8, 16, 32, 64, 128], min_length=1
    )
    depths: list[int] = Field(
        default_factory=lambda: [1, 2, 4, 8, 16, 32, 64, 128, 256], min_length=1
    )
    wide_blocks: list[int] = Field(default_factory=lambda: [4096, 16384, 65536])
    sequential_bytes: int = Field(default=1 << 20, ge=0)
    seconds: float = Field(default=1.0, gt=0)


def _seconds(params: FioGridParams) -> float:
    count = (
        2 * (len(params.threads) + len(params.depths))
        + len(params.wide_blocks)
        + bool(params.sequential_bytes)
    )
    return count * (params.seconds * 1.25 + _SETUP_S) + params.file_bytes / 200e6


@study("fio-grid", "Bandwidth and latency of sync threads and async depths", _seconds)
def run(params: FioGridParams, context: StudyContext) -> JsonDict:
    """Write the file, then run one fio job for each point.

    Returns:
        `points`: each with `pattern` (`random`, `sequential`), `engine` (`sync`: read
            calls; `async`), `direct`,
        `block_bytes`, `threads`, `depth` (of one thread), `iops`, `bytes_per_s`,
        `mean_latency_s`, `p99_latency_s`, `cpu` (cores). `asynchronous`: engine of
        `async`. `device`: a `BlockDevice`. `file_bytes`.

    Raises:
        HostError: fio is missing or refused a job, or the file system has no direct
            I/O.
        DataIOError: the file cannot be written.
    """
    file = context.scratch / "fio-grid.bin"
    write_file(
        file,
        params.file_bytes,
        "free some space under the data root",
        progress=context.progress,
    )
    least = direct_block_bytes(file)
    if least is None:
        raise HostError(
            f"{context.scratch} allows no direct I/O",
            "put the data root on a disk's file system",
        )
    jobs = _jobs(params, file, max(params.block_bytes, least))
    points = []
    for job in tracked(context.progress, jobs, "measuring", "points", words):
        (result,) = run_fio([job])
        point = point_of(result).model_dump(include=_KEPT)
        points.append(
            {**point, "p99_latency_s": result.latency_s.get(99.0), "cpu": result.cpu}
        )
    device = block_device(file).as_dict()
    return {
        "points": points,
        "asynchronous": best_engine(),
        "device": device,
        "file_bytes": params.file_bytes,
    }


def _jobs(params: FioGridParams, file: Path, block: int) -> list[FioJob]:
    shared: dict[str, Any] = {
        "file": file,
        "seconds": params.seconds,
        "ramp_seconds": min(0.2, params.seconds / 4),
    }
    engine = best_engine()
    jobs = []
    for direct in (True, False):
        jobs += [
            FioJob(
                block_bytes=block,
                depth=1,
                threads=threads,
                engine="psync",
                direct=direct,
                **shared,
            )
            for threads in params.threads
        ]
        jobs += [
            FioJob(
                block_bytes=block, depth=depth, engine=engine, direct=direct, **shared
            )
            for depth in params.depths
        ]
    deepest = max(params.depths)
    jobs += [
        FioJob(block_bytes=size, depth=deepest, engine=engine, **shared)
        for size in params.wide_blocks
    ]
    if params.sequential_bytes:
        size = min(params.sequential_bytes, params.file_bytes)
        jobs.append(
            FioJob(
                block_bytes=size,
                depth=16,
                engine=engine,
                pattern="sequential",
                **shared,
            )
        )
    return jobs
