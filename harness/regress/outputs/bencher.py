"""Head's values as Bencher Metric Format: benchmark (a cell) -> measure -> value.

Without `lower_value` and `upper_value`: the gate's intervals are of the ratio to the base, not of head's own values.
"""

from __future__ import annotations

import json
import re

from harness.regress.decision import Comparison, MetricResult


def render(found: Comparison) -> str:
    """Every metric with a number on head's side."""
    content: dict[str, dict[str, dict[str, float]]] = {}
    for metric in found.metrics:
        if isinstance(metric.head, int | float):
            content.setdefault(metric.cell, {})[_measure(metric)] = {"value": float(metric.head)}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _measure(metric: MetricResult) -> str:
    """A slug as Bencher wants it, with the unit where the name has none."""
    unit = {"s": "seconds"}.get(metric.unit, metric.unit)
    words = metric.name if unit in metric.name else f"{metric.name} {unit}"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
