"""A trend kept as a study record under the results root, which the figure and the report read like any other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from harness.environment import versions
from harness.regress.trend import Series
from harness.studies.record import StudyRecord, write_study

STUDY = "regress-trend"


def keep(results_root: Path, series: Sequence[Series], min_effect: float, seconds: float) -> Path:
    """Write the series of one machine; returns the file.

    Raises:
        DataIOError: it cannot be written.
    """
    host = series[0].host
    key = hashlib.sha256(json.dumps([STUDY, host]).encode()).hexdigest()[:16]
    record = StudyRecord(
        study=STUDY, version=1, key=key, params={"host": host, "min_effect": min_effect},
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"), seconds=seconds,
        environment={"host_fingerprint": host, "versions": versions()},
        result={"series": [entry.to_json() for entry in series]},
    )  # fmt: skip
    return write_study(results_root, record)
