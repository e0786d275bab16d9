"""Made-up records, tables of stages and study records for the figures of Ginex and Data
Tiering."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from harness.records.record import DatasetConfig, Record
from harness.records.study import StudyRecord, write_study
from harness.results.store import write_run
from tests.harness.records import make_record, telemetry_of

BATCHES = 10
# Shares of an epoch in which a stage is open, by system; the rest is waiting.
STAGES: dict[str, dict[str, float]] = {
    "pyg+": {"sample": 0.5, "extract": 0.9, "transfer": 0.04, "train": 0.06},
    "ali+pg": {"sample": 0.4, "extract": 0.8, "transfer": 0.05, "train": 0.1},
    "ginex": {
        "inspect": 0.2,
        "switch": 0.05,
        "extract": 0.5,
        "cache_update": 0.04,
        "transfer": 0.05,
        "train": 0.1,
    },
    "ginex-pg": {
        "inspect": 0.15,
        "switch": 0.02,
        "extract": 0.7,
        "transfer": 0.05,
        "train": 0.1,
    },
    "dgl": {"sample": 0.2, "extract": 0.5, "transfer": 0.2, "train": 0.1},
    "uva": {"sample": 0.2, "lane:copy": 0.4, "train": 0.5},
    "data-tiering": {"sample": 0.3, "lane:copy": 0.1, "train": 0.3},
}


def stages_of(record: Record, *, sampled_by: float = 1.0) -> pd.DataFrame:
    """Return spans of every mini-batch: in its part of the epoch each stage is open for
    its share, one after another.

    Args:
        sampled_by: share of the epoch by which all sampling is over; gathering goes on
            to its end.
    """
    rows = []
    shares = STAGES[record.system]
    for epoch in record.epochs:
        part = epoch.seconds / BATCHES
        for batch in range(BATCHES):
            at = epoch.start_s + batch * part
            for stage, share in shares.items():
                begin = (
                    epoch.start_s + batch * part * sampled_by
                    if stage == "sample"
                    else at
                )
                length = share * part * (sampled_by if stage == "sample" else 1.0)
                rows.append((epoch.epoch, batch, stage, "t", begin, begin + length))
                if stage not in ("sample", "extract"):
                    at += share * part
    return pd.DataFrame(
        rows, columns=["epoch", "batch", "stage", "thread", "start", "end"]
    )


def save_run(
    root: Path, record: Record, *, sampled_by: float = 1.0, faults: float = 0.0
) -> Record:
    """Write a record with telemetry (`faults` major faults in each interval) and its
    spans."""
    if not record.epochs:
        write_run(root, record, {})
        return record
    telemetry = telemetry_of(record).assign(major_faults=faults)
    write_run(
        root,
        record,
        {"telemetry": telemetry, "stages": stages_of(record, sampled_by=sampled_by)},
    )
    return record


def run(root: Path, system: str, seconds: list[float], **config: Any) -> Record:
    """Write a run of ten mini-batches an epoch under `root`."""
    extra = {key: config.pop(key) for key in ("sampled_by", "faults") if key in config}
    counters = config.pop("counters", None)
    record = make_record(
        system, seconds, max_batches=config.pop("max_batches", BATCHES), **config
    )
    for epoch in record.epochs:
        epoch.batches = BATCHES
        if counters is not None:
            epoch.counters = counters
    return save_run(root, record, **extra)


def study(
    root: Path, name: str, params: dict[str, Any], result: dict[str, Any], key: str = ""
) -> StudyRecord:
    """Write a study record of the same dataset as the runs'."""
    record = StudyRecord(
        study=name,
        version=1,
        key=key or f"{len(list((root / 'studies').glob('*'))):016x}",
        params={"dataset": "kron-d128", **params},
        dataset=DatasetConfig(
            name="kron-d128",
            fingerprint="f128",
            num_nodes=2_000_000,
            num_edges=40_000_000,
            dim=128,
            dtype="float32",
        ),
        started_at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        environment={"host_fingerprint": "h"},
        result=result,
    )
    write_study(root, record)
    return record
