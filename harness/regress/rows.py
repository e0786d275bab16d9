"""Rows of a comparison's table, the same on the terminal and in a comment: value,
change and reason of each metric as text."""

from __future__ import annotations

from harness.regress.decision import WORST_FIRST, MetricResult, Value
from workloads.units import format_bytes

MARK = {"regressed": "✗", "improved": "✓", "same": "=", "undecided": "?"}
HEADS = ("metric", "base", "head", "change", "decision", "")


def shown_first(metrics: list[MetricResult]) -> list[MetricResult]:
    """Return the metrics without the hundreds of unchanged exact facts and statuses:
    gating ones first, then the worst decision first."""
    shown = [
        metric
        for metric in metrics
        if metric.kind not in ("exact", "status")
        or metric.decision != "same"
        or "declared" in metric.note
    ]
    return sorted(
        shown, key=lambda metric: (not metric.gates, WORST_FIRST.index(metric.decision))
    )


def row(metric: MetricResult) -> list[str]:
    """Return the texts of a metric under HEADS."""
    sides = [value(metric, side) for side in (metric.base, metric.head)]
    return [
        metric.metric,
        *sides,
        change(metric),
        f"{MARK[metric.decision]} {metric.decision}",
        why(metric),
    ]


def percent(ratio: float) -> str:
    """Return a ratio as a change in percent; small changes are not rounded to 0."""
    moved = 100 * (ratio - 1)
    return f"{moved:+.1f} %" if abs(moved) >= 0.05 or moved == 0 else f"{moved:+.2g} %"


def value(metric: MetricResult, of: Value) -> str:
    """Return one side's value with its unit."""
    if of is None:
        return "–"
    if isinstance(of, str):
        return of
    if metric.unit == "bytes":
        return format_bytes(int(of)) if metric.kind != "exact" else f"{int(of):,} B"
    if metric.unit == "s":
        return f"{of:.3g} s"
    return f"{of:,.0f}" if float(of).is_integer() else f"{of:,.1f}"


def change(metric: MetricResult) -> str:
    """Return the ratio with its interval as a change, like `+4.2 % [+3.1, +5.4]`."""
    if metric.ratio is None:
        return "–" if metric.base == metric.head else "changed"
    if metric.interval is None:
        return percent(metric.ratio)
    low, high = (f"{100 * (end - 1):+.1f}" for end in metric.interval)
    return (
        f"{percent(metric.ratio)} [{low}, "
        f"{high}]{' range' if metric.interval_kind == 'range' else ''}"
    )


def why(metric: MetricResult) -> str:
    """Return the likely stage, the note, and whether the metric is only shown."""
    stage = f"most of it in {metric.stage}" if metric.stage else ""
    return "; ".join(
        part
        for part in (stage, metric.note, "" if metric.gates else "shown only")
        if part
    )
