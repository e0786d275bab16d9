"""Comparisons as JSON: whole, as `--json` prints them, or head's numbers for github-action-benchmark and Bencher."""

from __future__ import annotations

import json
import re
from typing import Any

from harness.regress.decision import Comparison, MetricResult
from harness.regress.outputs.words import change
from harness.regress.samples import COSTS


def as_text(content: Any) -> str:
    """Return a file's content: indented JSON."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def plain(found: Comparison) -> str:
    """Render a comparison as one object."""
    return as_text(found.to_json())


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
    return as_text(entries)


def bencher(found: Comparison) -> str:
    """Render head's numbers as Bencher Metric Format: benchmark (a cell) -> measure -> value.

    `lower_value` and `upper_value` are left out: the gate's intervals are of the ratio to base, not of head's values.
    """
    content: dict[str, dict[str, dict[str, float]]] = {}
    for metric in found.metrics:
        if isinstance(metric.head, int | float):
            content.setdefault(metric.cell, {})[_measure(metric)] = {"value": float(metric.head)}
    return as_text(content)


def _measure(metric: MetricResult) -> str:
    """Return a metric's slug in Bencher's form, with the unit unless the name contains it."""
    unit = {"s": "seconds"}.get(metric.unit, metric.unit)
    words = metric.name if unit in metric.name else f"{metric.name} {unit}"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
