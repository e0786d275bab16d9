"""Study record of the gate's proof, for the figure of its power and for the report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.records.environment import versions
from harness.records.study import StudyRecord, write_study

STUDY = "gate-proof"


@dataclass(frozen=True)
class Promise:
    """One promise of the gate, in shares of comparisons.

    Attributes:
        bound: minimum of `found` if `least`, else its maximum.
        slowed: injected delay as a share of the epoch, for a point of the power curve.
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
    """Write the results of the proof, replacing the machine's previous record; return the file.

    Args:
        curve: rows of `pairs`, `slowed` (share of the epoch) and `regressed` (share of comparisons decided so).

    Raises:
        DataIOError: the record cannot be written.
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
