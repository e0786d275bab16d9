"""Study records of the gate under the results root, for figures and the report: its
trend and its proof."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.cache import digest_of
from harness.records.environment import versions
from harness.records.study import StudyRecord, read_study, study_path, write_study
from harness.regress.git import Repository
from harness.regress.history import load, with_runs
from harness.regress.store import FolderStore
from harness.regress.trend import Series, trends
from harness.results import store as results

TREND = "regress-trend"
PROOF = "gate-proof"
MIN_EFFECT = 0.03


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


def keep_own(results_root: Path, repository: Repository | None) -> None:
    """Write the trend of runs and baselines of the machine with most runs, if it
    changed; may raise DataIOError."""
    began = time.monotonic()
    records = list(results.records(results_root, []))
    history = with_runs(
        load(FolderStore(results_root / "baselines"), repository), records, repository
    )
    runs = Counter(
        entry.host
        for entry in history.entries
        for cell in entry.cells
        for _ in cell.runs
    )
    for host, _ in runs.most_common(1):
        series = trends(history, min_effect=MIN_EFFECT, hosts=[host])
        reported = read_study(study_path(results_root, TREND, digest_of([TREND, host])))
        if series and (
            reported is None
            or _seen(reported.result["series"])
            != _seen([one.to_json() for one in series])
        ):
            keep(results_root, series, MIN_EFFECT, time.monotonic() - began)


def _seen(series: Sequence[dict[str, Any]]) -> str:
    """Return the series as JSON without the times of recording, to compare two
    trends."""
    points = [
        {**entry, "points": [{**point, "recorded_at": 0} for point in entry["points"]]}
        for entry in series
    ]
    return json.dumps(points, sort_keys=True)


def keep(
    results_root: Path, series: Sequence[Series], min_effect: float, seconds: float
) -> Path:
    """Write the series of one machine; return the file.

    Args:
        series: at least one series, all of one machine.
        min_effect: smallest relative step of a noisy metric.
        seconds: duration of the analysis.

    Raises:
        DataIOError: the record cannot be written.
    """
    result = {"series": [entry.to_json() for entry in series]}
    return _write(
        results_root, TREND, series[0].host, {"min_effect": min_effect}, result, seconds
    )


def keep_proof(
    root: Path,
    host: str,
    params: dict[str, Any],
    curve: Sequence[dict[str, float]],
    promises: Sequence[Promise],
) -> Path:
    """Write the results of the proof, replacing the machine's previous record; return
    the file.

    Args:
        params: conditions of the proof beside the machine.
        curve: rows of `pairs`, `slowed` (share of the epoch) and `regressed` (share of
            comparisons decided so).

    Raises:
        DataIOError: the record cannot be written.
    """
    result = {
        "curve": list(curve),
        "promises": [asdict(promise) for promise in promises],
    }
    return _write(root, PROOF, host, params, result, 0.0)


def _write(
    root: Path,
    study: str,
    host: str,
    params: dict[str, Any],
    result: dict[str, Any],
    seconds: float,
) -> Path:
    record = StudyRecord(
        study=study,
        version=1,
        key=digest_of([study, host]),
        params={"host": host, **params},
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        seconds=seconds,
        environment={"host_fingerprint": host, "versions": versions()},
        result=result,
    )
    return write_study(root, record)
