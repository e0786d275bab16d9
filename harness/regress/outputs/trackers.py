"""Comparisons for other tools as JSON: whole, as `--json` prints them, for github-action-benchmark, Bencher and asv.

asv: both sides as its result files, `<machine>/<commit>-<environment>.json`, `machine.json`, `benchmarks.json`. Each
metric with a number on both sides becomes a `track_` benchmark, with the median of its runs as the result. asv's
confidence limits and samples stay null, since the gate's are of the ratio; digests, statuses and decisions have no
field in asv and are left out.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

from harness.regress.decision import Comparison, MetricResult
from harness.regress.outputs.words import change
from harness.regress.samples import COSTS
from workloads.errors import InputError

ENVIRONMENT = "existing-outcore"
_COLUMNS = (
    "result params version started_at duration stats_ci_99_a stats_ci_99_b stats_q_25 stats_q_75 stats_number "
    "stats_repeat samples profile"
).split()


def _as_text(content: Any) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def plain(found: Comparison) -> str:
    """Render a comparison as one object."""
    return _as_text(found.to_json())


def github_benchmark(found: Comparison) -> str:
    """Render times, sizes and costs for the tool `customSmallerIsBetter`; digests and numbers of rows are left out."""
    entries = []
    for metric in found.metrics:
        if isinstance(metric.head, str | None) or (metric.kind == "exact" and metric.name not in COSTS):
            continue
        entry: dict[str, str | float] = {
            "name": metric.metric,
            "unit": metric.unit or "count",
            "value": metric.head,
            "extra": f"{metric.decision}, {change(metric)} against {found.base}",
        }
        if metric.interval is not None and metric.ratio:
            reach = max(metric.interval[1] - metric.ratio, metric.ratio - metric.interval[0]) / metric.ratio
            entry["range"] = f"± {100 * reach:.1f} % ({metric.interval_kind} of the ratio)"
        entries.append(entry)
    return _as_text(entries)


def bencher(found: Comparison) -> str:
    """Render head's numbers as Bencher Metric Format: benchmark (a cell) -> measure -> value.

    `lower_value` and `upper_value` are left out: the gate's intervals are of the ratio to base, not of head's values.
    """
    content: dict[str, dict[str, dict[str, float]]] = {}
    for metric in found.metrics:
        if isinstance(metric.head, int | float):
            unit = {"s": "seconds"}.get(metric.unit, metric.unit)
            words = metric.name if unit in metric.name else f"{metric.name} {unit}"
            slug = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
            content.setdefault(metric.cell, {})[slug] = {"value": float(metric.head)}
    return _as_text(content)


def asv(found: Comparison) -> dict[str, str]:
    """Return file name -> content for asv's `results` folder; raise InputError for folders, as asv keeps commits."""
    commits = found.details.get("commits")
    if not commits:
        raise InputError("asv's results are kept by commit, and this comparison is of folders", "use `regress check`")
    machine = str(found.details.get("host") or "unknown")
    host = {"machine": machine, **dict.fromkeys(("arch", "cpu", "num_cpu", "os", "ram"), "")}
    numbers = {
        _name(metric): metric
        for metric in found.metrics
        if isinstance(metric.base, int | float) and isinstance(metric.head, int | float)
    }
    shared = {"param_names": [], "params": [], "timeout": 0.0, "type": "track", "version": "1"}
    benchmarks: dict[str, Any] = {
        name: {"code": metric.metric, "name": name, "unit": metric.unit or "count", **shared}
        for name, metric in numbers.items()
    }
    unknown = [None] * (len(_COLUMNS) - 5)
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
            "results": {
                name: [[getattr(metric, side)], [], "1", int(time.time() * 1000), None, *unknown]
                for name, metric in numbers.items()
            },
            "durations": {},
            "version": 2,
        }
    return {name: _as_text(content) for name, content in made.items()}


def _name(metric: MetricResult) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "_", f"{metric.cell} {metric.name}".replace("+", " plus ")).strip("_")
    return f"outcore.track_{words}"
