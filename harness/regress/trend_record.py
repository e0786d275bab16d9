"""Study record of a trend under the results root, for the figure and the report."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.records.environment import versions
from harness.records.study import StudyRecord, read_study, study_path, write_study
from harness.regress.git import Repository
from harness.regress.history import load, with_runs
from harness.regress.store import FolderStore
from harness.regress.trend import Series, trends
from harness.results import store as results

STUDY = "regress-trend"
MIN_EFFECT = 0.03


def keep_own(results_root: Path, repository: Repository | None) -> None:
    """Write the trend of a results root's runs and baselines for the machine with most runs, if it changed.

    Raises:
        DataIOError: the record cannot be written.
    """
    began = time.monotonic()
    records = list(results.records(results_root, []))
    history = with_runs(load(FolderStore(results_root / "baselines"), repository), records, repository)
    if not history.entries:
        return
    runs: Counter[str] = Counter()
    for entry in history.entries:
        runs[entry.host] += sum(len(cell.runs) for cell in entry.cells)
    host = max(runs, key=lambda name: runs[name])
    series = trends(history, min_effect=MIN_EFFECT, hosts=[host])
    if not series:
        return
    told = read_study(study_path(results_root, STUDY, _key(host)))
    if told is None or _seen(told.result["series"]) != _seen([entry.to_json() for entry in series]):
        keep(results_root, series, MIN_EFFECT, time.monotonic() - began)


def _seen(series: Sequence[dict[str, Any]]) -> str:
    """Return the series as JSON without the times of recording, to compare two trends."""
    points = [{**entry, "points": [{**point, "recorded_at": 0} for point in entry["points"]]} for entry in series]
    return json.dumps(points, sort_keys=True)


def _key(host: str) -> str:
    return hashlib.sha256(json.dumps([STUDY, host]).encode()).hexdigest()[:16]


def keep(results_root: Path, series: Sequence[Series], min_effect: float, seconds: float) -> Path:
    """Write the series of one machine; return the file.

    Args:
        series: at least one series, all of one machine.
        min_effect: smallest relative step of a noisy metric.
        seconds: duration of the analysis.

    Raises:
        DataIOError: the record cannot be written.
    """
    host = series[0].host
    record = StudyRecord(
        study=STUDY,
        version=1,
        key=_key(host),
        params={"host": host, "min_effect": min_effect},
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        seconds=seconds,
        environment={"host_fingerprint": host, "versions": versions()},
        result={"series": [entry.to_json() for entry in series]},
    )
    return write_study(results_root, record)
