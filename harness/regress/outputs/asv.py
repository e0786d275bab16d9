"""Both sides as asv's result files: `<machine>/<commit>-<environment>.json`, `machine.json`, `benchmarks.json`.

Each metric with a number on both sides becomes a `track_` benchmark, with the median of its runs as the result. asv's
confidence limits and samples stay null, since the gate's are of the ratio; digests, statuses and decisions have no
field in asv and are left out.
"""

from __future__ import annotations

import re
import time
from typing import Any

from harness.regress.decision import Comparison, MetricResult
from harness.regress.outputs.trackers import as_text
from workloads.errors import InputError

ENVIRONMENT = "existing-outcore"
_COLUMNS = (
    "result params version started_at duration stats_ci_99_a stats_ci_99_b stats_q_25 stats_q_75 stats_number "
    "stats_repeat samples profile"
).split()


def files(found: Comparison) -> dict[str, str]:
    """Return file name -> content for a `results` folder of asv.

    Raises:
        InputError: the sides are folders, while asv keys its files by commit.
    """
    commits = found.details.get("commits")
    if not commits:
        raise InputError("asv's results are kept by commit, and this comparison is of folders", "use `regress check`")
    machine = str(found.details.get("host") or "unknown")
    host = {"machine": machine, **dict.fromkeys(("arch", "cpu", "num_cpu", "os", "ram"), "")}
    numbers = [
        metric
        for metric in found.metrics
        if isinstance(metric.base, int | float) and isinstance(metric.head, int | float)
    ]
    benchmarks: dict[str, Any] = {_name(metric): _benchmark(metric) for metric in numbers}
    made = {"benchmarks.json": {**benchmarks, "version": 2}, f"{machine}/machine.json": {**host, "version": 1}}
    for side in ("base", "head"):
        commit = commits[side]
        made[f"{machine}/{commit[:8]}-{ENVIRONMENT}.json"] = {
            "commit_hash": commit,
            "env_name": ENVIRONMENT,
            "date": int(found.details["dates"][side]) * 1000,
            "params": {**host, "python": ""},
            "python": "",
            "requirements": {},
            "env_vars": {},
            "result_columns": _COLUMNS,
            "results": {_name(metric): _result(metric, side) for metric in numbers},
            "durations": {},
            "version": 2,
        }
    return {name: as_text(content) for name, content in made.items()}


def _name(metric: MetricResult) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "_", f"{metric.cell} {metric.name}".replace("+", " plus ")).strip("_")
    return f"outcore.track_{words}"


def _benchmark(metric: MetricResult) -> dict[str, Any]:
    return {
        "code": metric.metric,
        "name": _name(metric),
        "param_names": [],
        "params": [],
        "timeout": 0.0,
        "type": "track",
        "unit": metric.unit or "count",
        "version": "1",
    }


def _result(metric: MetricResult, side: str) -> list[Any]:
    number = metric.base if side == "base" else metric.head
    return [[number], [], "1", int(time.time() * 1000), None, *[None] * (len(_COLUMNS) - 5)]
