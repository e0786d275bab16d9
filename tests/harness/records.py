"""Made-up run records for tests of figures, tables and reports."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.judge.metrics import summarised_anew
from harness.records.record import (
    DatasetConfig,
    EpochRecord,
    Record,
    RuleOutcome,
    RunConfig,
    Summary,
    spread,
)
from harness.results.store import write_run

_COUNT = itertools.count()


def make_record(
    system: str,
    seconds: list[float],
    *,
    status: str = "ok",
    verdict: str = "VALID",
    dim: int = 128,
    sample_s: float = 0.5,
    dataset: str = "",
    **config: Any,
) -> Record:
    """Make a record with one warm-up epoch and one measured epoch for each of
    `seconds`."""
    number = next(_COUNT)
    settings: dict[str, Any] = {
        "memory": "+67108864",
        "device": "emulated:a10g",
        "device_memory_bytes": 32 * 2**20,
        "batch_size": 50,
        "isolation": "cgroup1",
        "disk_class": "aws-nvme/16",
        "epochs": 3,
        "figure_tags": [],
        **config,
    }
    resolved = RunConfig(
        system=system,
        dataset=DatasetConfig(
            name=dataset or ("kron-d128" if dim == 128 else f"kron-d128-d{dim}"),
            fingerprint=f"f{dim}",
            num_nodes=2_000_000,
            num_edges=40_000_000,
            dim=dim,
            dtype="float32",
        ),
        **settings,
    )
    starts = np.cumsum([0.0, max(seconds, default=1.0), *seconds])
    epochs = [
        EpochRecord(
            epoch=k,
            warmup=k == 0,
            seconds=value,
            start_s=float(starts[k]),
            batches=50,
            digest="xxh3:0",
            stages_s={"sample": sample_s, "extract": value * 0.9, "train": 0.4},
            device_bytes=int(value * 150e6),
            device_requests=int(value * 30e3),
            counters={"rows": 10, "misses": 10},
        )
        for k, value in enumerate([max(seconds), *seconds] if seconds else [])
    ]
    points = [
        {
            "block_bytes": b,
            "depth": 64,
            "iops": i,
            "bytes_per_s": b * i,
            "pattern": "random",
        }
        for b, i in ((512, 39_000.0), (4096, 39_000.0), (65536, 2_900.0))
    ]
    bare = [{**point, "bytes_per_s": 2 * point["bytes_per_s"]} for point in points]
    made = Record(
        run_id=f"20260101-{number:06d}-{system}",
        config_hash=resolved.config_hash,
        system=system,
        status=status,
        verdict=verdict,
        config=resolved,
        epochs=epochs,
        disk={"limited": {"points": points}, "bare": {"points": bare}},
        verdict_rules=[
            RuleOutcome(
                rule="10", name="disk_class_was_enforced", ok=verdict != "CAVEATS"
            )
        ],
        summary=Summary(
            epoch_s=spread(seconds) if seconds else None,
            engine_efficiency=0.9,
            distance_to_limit=0.4,
        ),
        **{"class": "storage-bound"},
    )
    made.summary = summarised_anew(made)
    return made


def telemetry_of(record: Record) -> pd.DataFrame:
    """Make 10 Hz telemetry over the record's epochs."""
    end = record.epochs[-1].start_s + record.epochs[-1].seconds
    t = np.arange(0.0, end, 0.1)
    epoch = np.zeros(len(t), dtype=int)
    for entry in record.epochs:
        epoch[t >= entry.start_s] = entry.epoch
    wave = 50 + 40 * np.sin(t)
    return pd.DataFrame(
        {
            "t": t,
            "epoch": epoch,
            "cpu_percent": wave,
            "gpu_percent": 100 - wave,
            "iowait_percent": wave / 2,
        }
    )


def save(root: Path, *records: Record) -> None:
    """Write records with telemetry under a results root."""
    for record in records:
        write_run(
            root, record, {"telemetry": telemetry_of(record)} if record.epochs else {}
        )
