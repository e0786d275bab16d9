"""Tables of `run`, `bench` and `results`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.cli.common import cell
from harness.records.record import Record, Spread, spread
from workloads.units import format_bytes

if TYPE_CHECKING:
    from rich.table import Table

    from harness.judge.metrics import Metric


def number(value: float | None, form: str = ".2f") -> str:
    """Format a number; a dash if it is unknown."""
    return "–" if value is None else format(value, form)


def size(value: int | None) -> str:
    """Format bytes with a unit; a dash if they are unknown."""
    return "–" if value is None else format_bytes(value)


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
        name = f"{epoch.epoch}{' (warm-up)' if epoch.warmup else ''}"
        times = (number(value, ".3f") for value in (epoch.seconds, *map(epoch.stages_s.get, stages)))
        counts = (str(epoch.batches), size(epoch.device_bytes), number(epoch.device_requests, "d"))
        table.add_row(name, *times, *counts, number(epoch.loss, ".4f"), number(epoch.accuracy, ".4f"))
    return table


def summary_lines(record: Record) -> list[str]:
    """Return the lines on a run's status, memory, metrics, verdict and broken rules."""
    memory, summary = record.memory, record.summary
    lines = [f"status {record.status}{f': {record.reason}' if record.reason else ''}"]
    cap = "no cap"
    if memory.cap_bytes is not None:
        parts = f"floor {size(memory.floor_bytes)} + training {size(memory.training_bytes)}"
        cap = f"cap {size(memory.cap_bytes)} = {parts} + budget {size(memory.budget_bytes)}"
    lines.append(f"memory: {cap}; peak {size(memory.peak_bytes)}")
    sizes = f"working set {number(summary.working_set_over_budget)} x memory"
    sizes += f", topology {number(summary.topology_over_budget)} x host budget"
    values = [f"{metric.label} {metric_text(metric, getattr(summary, metric.name, None))}" for metric in _shown()]
    lines += [f"class {record.class_label} ({sizes}); {'; '.join(values)}", f"verdict {record.verdict}"]
    lines += [f"  rule {rule.rule} {rule.name}: {rule.detail}" for rule in record.verdict_rules if not rule.ok]
    return lines


def headline_table(records: Sequence[Record], title: str) -> Table:
    """Make the table with one row per configuration: median over the measured epochs of all rounds, fastest first."""
    from rich.table import Table

    heads = ("system", "memory", "status", "verdict", "class", "epoch s (median \\[range])", "with start-up s")
    table = Table(*heads, *(metric.heading or metric.label for metric in _shown()), title=title)
    rounds: dict[str, list[Record]] = {}
    for record in records:
        rounds.setdefault(record.config_hash, []).append(record)
    for group in sorted(rounds.values(), key=_epoch_s):
        first = group[0]
        times = _times(group)
        medians = {}
        for metric in _shown():
            values = (getattr(record.summary, metric.name, None) for record in group)
            known = [value for value in values if value is not None]
            medians[metric.name] = statistics.median(known) if known else None
        start_up = medians["start_up_s"]
        share = None if start_up is None else start_up / first.config.epochs
        labels = zip(*((one.status, one.verdict, one.class_label if one.class_ else "–") for one in group), strict=True)
        found = spread(times) if times else None
        table.add_row(
            first.system,
            first.config.memory,
            *("/".join(dict.fromkeys(column)) for column in labels),
            seconds(found),
            number(found.median + share if found and share is not None else None, ".3g"),
            *(metric_text(metric, medians[metric.name]) for metric in _shown()),
        )
    return table


def _times(group: Sequence[Record]) -> list[float]:
    return [epoch.seconds for record in group for epoch in record.measured if record.status == "ok"]


def _epoch_s(group: Sequence[Record]) -> float:
    times = _times(group)
    return spread(times).median if times else float("inf")
