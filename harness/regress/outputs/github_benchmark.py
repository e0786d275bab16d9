"""Head's values for github-action-benchmark, tool `customSmallerIsBetter`: a list of entries."""

from __future__ import annotations

import json

from harness.regress.decision import Comparison
from harness.regress.outputs.words import change
from harness.regress.samples import COSTS


def render(found: Comparison) -> str:
    """Render times, sizes and costs, where less is better; digests and numbers of rows are left out."""
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
    return json.dumps(entries, indent=1, allow_nan=False) + "\n"
