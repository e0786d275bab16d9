"""Marks that several drawings share: published values, lines with intervals, labels of missing values and of axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.figures.draw.style import Look

#: Label of a missing value by its status.
MARK = {"oom": "OOM", "timeout": "OOT", "failed": "failed", "unsupported": "n/a"}


def name_axes(axes: Any, title: str, xlabel: str = "", ylabel: str = "") -> None:
    """Set the title, at the left, and the labels of axes."""
    axes.set_title(title, loc="left")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)


def mark_paper(axes: Any, xs: Sequence[float], ys: Sequence[float], label: str | None, **changes: Any) -> None:
    """Draw published values as hollow diamonds; without values nothing. `changes`: other keywords of `plot`."""
    look: dict[str, Any] = {"marker": "D", "linestyle": "none", "markerfacecolor": "white", "markeredgecolor": "black"}
    if len(xs):
        axes.plot(xs, ys, label=label, **{**look, "markersize": 4.5, **changes})


def mark_range(axes: Any, xs: Sequence[float], ys: Sequence[float], label: str | None, **changes: Any) -> None:
    """Draw a published range as a line between hollow diamonds."""
    mark_paper(
        axes, xs, ys, label, **{"linestyle": "-", "color": "black", "linewidth": 0.8, "markersize": 4, **changes}
    )


def around(values: Any, low: Any, high: Any) -> list[Any]:
    """Return an interval around values (columns of a table) as `yerr` of matplotlib; no bound is beyond its value."""
    return [(values - low).clip(lower=0), (high - values).clip(lower=0)]


def draw_line(axes: Any, xs: Any, ys: Any, interval: Any, look: Look, label: str, **changes: Any) -> None:
    """Draw one series as a line with error bars; `interval` as of `around`, `changes`: other keywords of `errorbar`."""
    axes.errorbar(
        xs,
        ys,
        yerr=interval,
        color=look.color,
        marker=look.marker,
        linestyle=look.line,
        capsize=2.0,
        elinewidth=0.8,
        label=label,
        **{"markeredgecolor": "black", "markeredgewidth": 0.4, **changes},
    )


def interval(row: Mapping[Any, Any]) -> list[list[float]] | None:
    """Return a row's `low` and `high` as `yerr` of matplotlib, None without them."""
    if pd.isna(row.get("low")) or pd.isna(row.get("high")):
        return None
    value = float(row["value"])
    return [[max(0.0, value - float(row["low"]))], [max(0.0, float(row["high"]) - value)]]


def mark_missing(axes: Any, x: float, level: int, status: str, name: str, color: str) -> None:
    """Label a missing value of a line at the upper edge, `level` labels below it."""
    place = {"xycoords": ("data", "axes fraction"), "xytext": (0, -15.0 * level), "textcoords": "offset points"}
    text = f"{MARK.get(status, status)}\n{name}"
    axes.annotate(text, (x, 1.0), **place, ha="center", va="top", fontsize=5.5, color=color)


def mark_missing_bar(axes: Any, x: float, status: str, share: float = 0.0) -> None:
    """Label a missing bar with its status, upright where the text exceeds the bar's `share` of the axes' width."""
    text = MARK.get(status, status)
    points = 72.0 * axes.bbox.width / axes.figure.dpi * share
    look = {"fontsize": 6.0, "ha": "center", "va": "bottom", "color": "#333333"}
    rotation = 90 if 3.6 * len(text) > 0.7 * points else 0
    axes.annotate(text, (x, 0.02), xycoords=("data", "axes fraction"), rotation=rotation, **look)


def number_over(axes: Any, x: float, top: float, text: str, size: float, rotation: float = 0) -> None:
    """Write a number over a bar."""
    look = {"ha": "center", "va": "bottom", "fontsize": size, "rotation": rotation}
    axes.annotate(text, (x, top), xytext=(0, 1.5), textcoords="offset points", **look)
