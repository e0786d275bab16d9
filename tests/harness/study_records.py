"""Made-up study records for tests of figures."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from harness.records.study import StudyRecord, write_study
from harness.studies.base import studies


def made_study(name: str, result: dict[str, Any], **params: Any) -> StudyRecord:
    """Make a record of a study, with parameters at their defaults except `params`."""
    study = studies()[name]
    full = study.params.model_validate(params).model_dump(mode="json")
    return StudyRecord(
        study=name,
        version=study.version,
        key=hashlib.sha256(
            json.dumps([name, full], sort_keys=True).encode()
        ).hexdigest()[:16],
        params=full,
        dataset=None,
        started_at="2026-01-01T00:00:00.000+00:00",
        seconds=1.0,
        environment={},
        result=result,
    )


def put_study(root: Path, name: str, result: dict[str, Any], **params: Any) -> None:
    """Write a record of a study, with parameters at their defaults except `params`."""
    write_study(root, made_study(name, result, **params))


def fio_grid(factor: float = 1.0) -> dict[str, Any]:
    """Make a result of the study `fio-grid`, for a disk of 40,000 random reads a
    second, times `factor`."""

    def point(
        engine: str,
        direct: bool,
        threads: int,
        depth: int,
        block: int = 512,
        **more: Any,
    ) -> dict[str, Any]:
        flight = threads * depth
        iops = factor * (1.0 if direct else 0.8) * min(40_000.0, 9_000.0 * flight)
        return {
            "pattern": "random",
            "engine": engine,
            "direct": direct,
            "block_bytes": block,
            "threads": threads,
            "depth": depth,
            "iops": iops,
            "bytes_per_s": iops * block,
            "mean_latency_s": flight / iops,
            "p99_latency_s": 3 * flight / iops,
            "cpu": 0.5,
            **more,
        }

    points = []
    for direct in (True, False):
        points += [point("sync", direct, threads, 1) for threads in (1, 4, 16, 64)]
        points += [point("async", direct, 1, depth) for depth in (1, 4, 16, 64, 256)]
    points += [point("async", True, 1, 256, block) for block in (4096, 65536)]
    points.append(point("async", True, 1, 16, 2**20, pattern="sequential"))
    device = {"model": "made", "name": "sdx", "file_system": "ext4"}
    return {
        "points": points,
        "asynchronous": "io_uring",
        "device": device,
        "file_bytes": 2**31,
    }
