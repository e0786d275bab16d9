"""Tables of `run`, `bench` and `results`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.records.record import Record, Spread, spread
from harness.table import cell, number, size

if TYPE_CHECKING:
    from rich.table import Table


def seconds(value: Spread | None) -> str:
    """Format a median with its interval, like `3.21 [3.10, 3.40]`; a dash if it is unknown."""
    if value is None:
        return "–"
    low, high = value.interval
    return f"{value.median:.3g} [{low:.3g}, {high:.3g}]"


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
        f"read amplification {number(summary.read_amplification)}; AU {number(summary.accelerator_utilisation)}; "
        f"SE {number(summary.storage_efficiency)}; engine efficiency {number(summary.engine_efficiency)}; "
        f"distance to limit {number(summary.distance_to_limit)}"
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
        "start-up s",
        "start-up read",
        "predicted s",
        "read ampl.",
        "AU",
        "SE",
        "engine eff.",
        "distance",
        title=title,
    )
    rounds: dict[str, list[Record]] = {}
    for record in records:
        rounds.setdefault(record.config_hash, []).append(record)
    for group in sorted(rounds.values(), key=_epoch_s):
        first = group[0]
        times = _times(group)
        start_up = _median([record.summary.start_up_s for record in group])
        start_up_bytes = _median([record.summary.start_up_bytes for record in group])
        share = None if start_up is None else start_up / first.config.epochs
        table.add_row(
            first.system,
            first.config.memory,
            "/".join(dict.fromkeys(record.status for record in group)),
            "/".join(dict.fromkeys(record.verdict for record in group)),
            "/".join(dict.fromkeys(record.class_label if record.class_ else "–" for record in group)),
            seconds(spread(times) if times else None),
            number(_epoch_s(group) + share if times and share is not None else None, ".3g"),
            number(start_up, ".3g"),
            size(None if start_up_bytes is None else int(start_up_bytes)),
            number(_median([record.summary.predicted_s for record in group]), ".3g"),
            number(_median([record.summary.read_amplification for record in group])),
            number(_median([record.summary.accelerator_utilisation for record in group])),
            number(_median([record.summary.storage_efficiency for record in group])),
            number(_median([record.summary.engine_efficiency for record in group])),
            number(_median([record.summary.distance_to_limit for record in group])),
        )
    return table


def _times(group: Sequence[Record]) -> list[float]:
    return [epoch.seconds for record in group for epoch in record.measured if record.status == "ok"]


def _epoch_s(group: Sequence[Record]) -> float:
    times = _times(group)
    return spread(times).median if times else float("inf")


def _median(values: Sequence[float | None]) -> float | None:
    import statistics

    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
