"""Tables of `run`, `bench` and `results`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.records.record import Record, Spread, spread
from harness.table import cell, number, size

if TYPE_CHECKING:
    from rich.table import Table

    from harness.judge.metrics import Metric


def seconds(value: Spread | None) -> str:
    """Format a median with its interval, like `3.21 [3.10, 3.40]`; a dash if it is unknown."""
    if value is None:
        return "–"
    low, high = value.interval
    return f"{value.median:.3g} [{low:.3g}, {high:.3g}]"


def metric_text(metric: Metric, value: float | None) -> str:
    """Format a metric's number by its unit; a dash if it is unknown."""
    if metric.unit == "bytes":
        return size(None if value is None else int(value))
    return number(value, ".3g" if metric.unit == "s" else ".2f")


def _shown() -> list[Metric]:
    from harness.judge.metrics import METRICS

    return [metric for metric in METRICS if metric.shown]


def epoch_table(record: Record) -> Table:
    """Make the table of a run's epochs, with one column per stage."""
    from rich.table import Table

    stages = list(dict.fromkeys(stage for epoch in record.epochs for stage in epoch.stages_s))
    title = cell(f"{record.system} on {record.config.dataset.name} ({record.run_id})")
    table = Table("epoch", "s", *stages, "batches", "device read", "requests", "loss", "accuracy", title=title)
    for epoch in record.epochs:
        table.add_row(
            f"{epoch.epoch}{' (warm-up)' if epoch.warmup else ''}",
            f"{epoch.seconds:.3f}",
            *(number(epoch.stages_s.get(stage), ".3f") for stage in stages),
            str(epoch.batches),
            size(epoch.device_bytes),
            "–" if epoch.device_requests is None else str(epoch.device_requests),
            number(epoch.loss, ".4f"),
            number(epoch.accuracy, ".4f"),
        )
    return table


def summary_lines(record: Record) -> list[str]:
    """Return the lines on a run's status, memory, metrics, verdict and broken rules."""
    memory, summary = record.memory, record.summary
    lines = [f"status {record.status}{f': {record.reason}' if record.reason else ''}"]
    if memory.cap_bytes is not None:
        lines.append(
            f"memory: cap {size(memory.cap_bytes)} = floor {size(memory.floor_bytes)} + training "
            f"{size(memory.training_bytes)} + budget {size(memory.budget_bytes)}; peak {size(memory.peak_bytes)}"
        )
    else:
        lines.append(f"memory: no cap; peak {size(memory.peak_bytes)}")
    lines.append(
        f"class {record.class_label} (working set {number(summary.working_set_over_budget)} x memory, "
        f"topology {number(summary.topology_over_budget)} x host budget); "
        + "; ".join(f"{metric.label} {metric_text(metric, getattr(summary, metric.name, None))}" for metric in _shown())
    )
    lines.append(f"verdict {record.verdict}")
    lines += [f"  rule {rule.rule} {rule.name}: {rule.detail}" for rule in record.verdict_rules if not rule.ok]
    return lines


def headline_table(records: Sequence[Record], title: str) -> Table:
    """Make the table with one row per configuration: median over the measured epochs of all rounds, fastest first."""
    from rich.table import Table

    table = Table(
        "system",
        "memory",
        "status",
        "verdict",
        "class",
        "epoch s (median \\[range])",
        "with start-up s",
        *(metric.heading or metric.label for metric in _shown()),
        title=title,
    )
    rounds: dict[str, list[Record]] = {}
    for record in records:
        rounds.setdefault(record.config_hash, []).append(record)
    for group in sorted(rounds.values(), key=_epoch_s):
        first = group[0]
        times = _times(group)
        medians = {
            metric.name: statistics.median(known) if known else None
            for metric in _shown()
            for values in [[getattr(record.summary, metric.name, None) for record in group]]
            for known in [[value for value in values if value is not None]]
        }
        start_up = medians["start_up_s"]
        share = None if start_up is None else start_up / first.config.epochs
        table.add_row(
            first.system,
            first.config.memory,
            "/".join(dict.fromkeys(record.status for record in group)),
            "/".join(dict.fromkeys(record.verdict for record in group)),
            "/".join(dict.fromkeys(record.class_label if record.class_ else "–" for record in group)),
            seconds(spread(times) if times else None),
            number(_epoch_s(group) + share if times and share is not None else None, ".3g"),
            *(metric_text(metric, medians[metric.name]) for metric in _shown()),
        )
    return table


def _times(group: Sequence[Record]) -> list[float]:
    return [epoch.seconds for record in group for epoch in record.measured if record.status == "ok"]


def _epoch_s(group: Sequence[Record]) -> float:
    times = _times(group)
    return spread(times).median if times else float("inf")
