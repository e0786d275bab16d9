"""Head's values as Bencher Metric Format: benchmark (a cell) -> measure -> value.

`lower_value` and `upper_value` are left out: the gate's intervals are of the ratio to base, not of head's values.
"""

from __future__ import annotations

import json
import re

from harness.regress.decision import Comparison, MetricResult


def render(found: Comparison) -> str:
    """Render every metric with a number on head's side."""
    content: dict[str, dict[str, dict[str, float]]] = {}
    for metric in found.metrics:
        if isinstance(metric.head, int | float):
            content.setdefault(metric.cell, {})[_measure(metric)] = {"value": float(metric.head)}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _measure(metric: MetricResult) -> str:
    """Return a metric's slug in Bencher's form, with the unit unless the name contains it."""
    unit = {"s": "seconds"}.get(metric.unit, metric.unit)
    words = metric.name if unit in metric.name else f"{metric.name} {unit}"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
