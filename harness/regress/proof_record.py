"""The proof of the gate kept as a study record, which the figure of its power and the report read like any other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.environment import versions
from harness.studies.record import StudyRecord, write_study

STUDY = "gate-proof"


@dataclass(frozen=True)
class Promise:
    """One promise of the gate, in shares of comparisons.

    Attributes:
        bound: `found` is to be at least so much where `least`, else at most.
        slowed: share of the epoch that was injected, where the promise is a point of the power curve.
    """

    what: str
    found: float
    bound: float
    least: bool
    kept: bool
    slowed: float | None = None


def keep_proof(
    results_root: Path,
    *,
    host: str,
    systems: Sequence[str],
    blocks: int,
    trials: int,
    budget_s: float,
    curve: Sequence[dict[str, float]],
    promises: Sequence[Promise],
) -> Path:
    """Write what the proof found; returns the file. One record a machine, the newest.

    Args:
        curve: rows of `pairs`, `slowed` (share of the epoch) and `regressed` (share of comparisons called so).

    Raises:
        DataIOError: it cannot be written.
    """
    result: dict[str, Any] = {"curve": list(curve), "promises": [asdict(promise) for promise in promises]}
    record = StudyRecord(
        study=STUDY,
        version=1,
        key=hashlib.sha256(json.dumps([STUDY, host]).encode()).hexdigest()[:16],
        params={"host": host, "systems": list(systems), "blocks": blocks, "trials": trials, "budget_s": budget_s},
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        seconds=0.0,
        environment={"host_fingerprint": host, "versions": versions()},
        result=result,
    )
    return write_study(results_root, record)
