"""Samples and records made by hand for tests of the gate."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.records.record import (
    DatasetConfig,
    EpochRecord,
    Memory,
    OfflineWork,
    Preprocess,
    Record,
    RuleOutcome,
    RunConfig,
)
from harness.regress.samples import ConfigSamples, cells_of

HOST = {"cpu": {"model": "made", "usable": 2}, "memory": {"total_bytes": 8 << 30}}


def made(
    system: str = "diskgnn",
    seconds: list[float] | None = None,
    *,
    number: int = 0,
    status: str = "ok",
    reason: str = "",
    digest: str = "xxh3:1111111122222222",
    requests: int = 5000,
    peak: int = 200 << 20,
    prepare_s: float = 2.0,
    host: dict[str, Any] | None = None,
    commit: str = "",
    drop: tuple[str, ...] = (),
    broken: list[RuleOutcome] | None = None,
    features: list[str | None] | None = None,
    warm_up_s: float = 0.0,
    offline_s: float = 0.0,
    **config: Any,
) -> Record:
    """Make a record with a warm-up epoch and one measured epoch for each of `seconds`.

    Args:
        broken: outcomes of the rules that the run breaks.
        features: feature digest of each epoch, warm-up included; None where it was not
            checked.
        warm_up_s: seconds by which the warm-up epoch is longer than the longest other.
        offline_s: offline work of each epoch before the first, beside `prepare_s`,
            which is done once.
    """
    seconds = [1.0, 1.0] if seconds is None else seconds
    resolved = RunConfig(
        system=system,
        dataset=DatasetConfig(
            name="d",
            fingerprint="f",
            num_nodes=10,
            num_edges=20,
            dim=4,
            dtype="float32",
        ),
        **{"memory": "+20971520", "device": "emulated:a10g", **config},
    )
    counters = {
        "rows": 900,
        "misses": 400,
        "io_requests": requests,
        "bytes_read": 1 << 20,
        "bytes_useful": 1 << 19,
    }
    epochs = [
        EpochRecord(
            epoch=k,
            warmup=k == 0,
            seconds=value,
            batches=24,
            digest=digest,
            feature_digest=features[k] if features else None,
            stages_s={
                "sample": 0.2,
                "extract": value - 0.3,
                "train": 0.1,
                "wait": value,
            },
            device_bytes=1 << 20,
            device_requests=5000,
            counters={key: count for key, count in counters.items() if key not in drop},
        )
        for k, value in enumerate([max(seconds) + warm_up_s, *seconds])
    ]
    offline = (
        OfflineWork(epochs=len(epochs), seconds=len(epochs) * offline_s)
        if offline_s
        else None
    )
    environment = {**(host or HOST), "code": {"commit": commit or None, "dirty": False}}
    return Record(
        run_id=f"20260101-{number:06d}-000-{system}-r0",
        config_hash=resolved.config_hash,
        system=system,
        status=status,
        reason=reason,
        config=resolved,
        epochs=epochs if status == "ok" else [],
        environment=environment,
        memory=Memory(demand_peak_bytes=peak),
        preprocess=Preprocess(
            seconds=prepare_s + len(epochs) * offline_s, offline=offline
        ),
        verdict_rules=broken or [],
    )


def session(
    count: int, *, epoch: float = 1.0, noise: float = 0.004, seed: int = 0, **more: Any
) -> list[Record]:
    """Make `count` runs of one side, with a little noise on times and memory."""
    rng = np.random.default_rng(seed)
    return [
        made(
            seconds=list(epoch * np.exp(rng.normal(0, noise, 3))),
            number=1000 * seed + number,
            **{"prepare_s": 2.0 * float(np.exp(rng.normal(0, noise))), **more},
        )
        for number in range(count)
    ]


def cells(*sessions: list[Record]) -> dict[str, ConfigSamples]:
    """Group the records of sessions by cell."""
    return cells_of(record for records in sessions for record in records)
