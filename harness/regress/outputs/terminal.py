"""Comparisons and trends on the terminal: a table of changes, and one line for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.regress.decision import Comparison
from harness.regress.outputs.words import MARK, by_decision, change, percent, value, why, worth_showing
from harness.regress.trend import Series
from harness.table import cell

if TYPE_CHECKING:
    from rich.console import Console

_STYLE = {"regressed": "bold red", "improved": "green", "same": "", "undecided": "yellow"}


def print_comparison(found: Comparison, out: Console) -> None:
    """Print the table of metrics, the notes and last the decision."""
    from rich.table import Table

    table = Table("metric", "base", "head", "change", "decision", "", title=cell(f"{found.base} → {found.head}"))
    shown = worth_showing(found.metrics)
    for metric in by_decision(shown):
        table.add_row(
            cell(metric.metric),
            cell(value(metric, metric.base)),
            cell(value(metric, metric.head)),
            cell(change(metric)),
            f"{MARK[metric.decision]} {metric.decision}",
            cell(why(metric)),
            style=_STYLE[metric.decision] if metric.gates else "dim",
        )
    out.print(table)
    hidden = len(found.metrics) - len(shown)
    lines = [f"{hidden} exact facts and statuses are the same"] if hidden else []
    for line in [*lines, *found.notes]:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    out.print(f"decision: {found.decision}", markup=False, highlight=False, style=_STYLE[found.decision])


def print_trend(series: Sequence[Series], notes: Sequence[str], out: Console) -> None:
    """Print one line per step, oldest first within a series, and the number of series without a step."""
    from rich.table import Table

    table = Table("metric", "commits", "before", "after", "change", title=cell(f"machine {series[0].host}"))
    for entry in series:
        for step in entry.steps:
            table.add_row(
                cell(f"{entry.cell} / {entry.name}"),
                step.commits,
                f"{step.before_value:,.4g}",
                f"{step.value:,.4g}",
                percent(step.ratio),
            )
    if table.row_count:
        out.print(table)
    quiet = sum(not entry.steps for entry in series)
    longest = max(len(entry.points) for entry in series)
    for line in [*notes, f"{quiet} of {len(series)} series have no step; the longest has {longest} entries"]:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
