"""Comparisons and trends on the terminal: a table of changes, and one line for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cli.common import print_lines, print_table
from harness.regress.decision import Comparison
from harness.regress.outputs.words import HEADS, percent, row, shown_first
from harness.regress.trend import Series

_STYLE = {"regressed": "bold red", "improved": "green", "same": "", "undecided": "yellow"}


def print_comparison(found: Comparison) -> None:
    """Print the table of metrics, the notes and last the decision."""
    from rich.text import Text

    shown = shown_first(found.metrics)
    styles = [_STYLE[metric.decision] if metric.gates else "dim" for metric in shown]
    print_table(HEADS, map(row, shown), f"{found.base} → {found.head}", styles=styles)
    hidden = len(found.metrics) - len(shown)
    print_lines(*([f"{hidden} exact facts and statuses are the same"] if hidden else []), *found.notes)
    print_lines(Text(f"decision: {found.decision}", _STYLE[found.decision]))


def print_trend(series: Sequence[Series], notes: Sequence[str]) -> None:
    """Print one line per step, oldest first within a series, and the number of series without a step."""
    rows = [
        (
            f"{entry.cell} / {entry.name}",
            step.commits,
            f"{step.before_value:,.4g}",
            f"{step.value:,.4g}",
            percent(step.ratio),
        )
        for entry in series
        for step in entry.steps
    ]
    if rows:
        print_table(("metric", "commits", "before", "after", "change"), rows, f"machine {series[0].host}")
    quiet = sum(not entry.steps for entry in series)
    longest = max(len(entry.points) for entry in series)
    print_lines(*notes, f"{quiet} of {len(series)} series have no step; the longest has {longest} entries")
