"""Numbers of a comparison as people read them; shared by terminal and Markdown."""

from __future__ import annotations

from harness.regress.decision import MetricResult, Value
from workloads.units import format_bytes

MARK = {"regressed": "✗", "improved": "✓", "same": "=", "undecided": "?"}
ORDER = ("regressed", "undecided", "improved", "same")


def value(metric: MetricResult, of: Value) -> str:
    """One side's value with its unit."""
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
    """`+4.2 % [+3.1, +5.4]`, from the ratio and its interval."""
    if metric.ratio is None:
        return "–" if metric.base == metric.head else "changed"
    text = percent(metric.ratio)
    if metric.interval is not None:
        low, high = metric.interval
        text += f" [{100 * (low - 1):+.1f}, {100 * (high - 1):+.1f}]"
        text += " range" if metric.interval_kind == "range" else ""
    return text


def percent(ratio: float) -> str:
    """A ratio as a change; small ones are not rounded away."""
    moved = 100 * (ratio - 1)
    return f"{moved:+.1f} %" if abs(moved) >= 0.05 or moved == 0 else f"{moved:+.2g} %"


def why(metric: MetricResult) -> str:
    """The note and the likely stage."""
    stage = f"most of it in {metric.stage}" if metric.stage else ""
    shown = "" if metric.gates else "shown only"
    return "; ".join(part for part in (stage, metric.note, shown) if part)


def by_decision(metrics: list[MetricResult]) -> list[MetricResult]:
    """What gates first, then the worst first; in their own order within."""
    return sorted(metrics, key=lambda metric: (not metric.gates, ORDER.index(metric.decision)))


def worth_showing(metrics: list[MetricResult]) -> list[MetricResult]:
    """Without exact facts and statuses that are the same: there are hundreds."""
    return [
        metric
        for metric in metrics
        if metric.kind not in ("exact", "status") or metric.decision != "same" or "declared" in metric.note
    ]
