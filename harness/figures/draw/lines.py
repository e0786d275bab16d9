"""Epoch time over one axis, one line per system: the drawing of GNNDrive's Figures 9 and 10."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from harness.compare.points import Group, Point
from harness.figures.base import Drawing, add_caption, caption, plain_log
from harness.figures.draw import style

MARK = {"oom": "OOM", "timeout": "OOT", "failed": "failed", "unsupported": "n/a"}


def draw_lines(
    group: Group, *, title: str, xlabel: str, ylabel: str, tick: Callable[[Any], str] = str, extra: str = ""
) -> Drawing:
    """Draw one line per system over the axis (equally spaced, as in the papers), log y, intervals as error bars.

    Args:
        group: points; one without a value is marked with its status at the top of its x, off all lines.
        tick: maps an x to its label.
        extra: further text of the caption.
    """
    import matplotlib.pyplot as plt

    xs = sorted({point.x for point in group.points}, key=_order)
    place = {x: index for index, x in enumerate(xs)}
    canvas, axes = plt.subplots(figsize=(style.COLUMN_INCHES, 2.5))
    systems = style.ordered(group.systems())
    for index, system in enumerate(systems):
        mine = [point for point in group.points if point.system == system]
        _draw_system(axes, mine, place, shift=(index - (len(systems) - 1) / 2) * 0.06)
    axes.set_yscale("log")
    axes.set_xticks(range(len(xs)), [tick(x) for x in xs])
    axes.set_xlim(-0.4, len(xs) - 0.6)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_title(title, loc="left")
    plain_log(axes.yaxis)
    _mark_failures(axes, group.points, place, systems)
    axes.legend(ncols=3, loc="lower left", bbox_to_anchor=(0.0, 1.1), borderaxespad=0.0, handlelength=2.2)
    text = caption(group, extra=extra)
    add_caption(canvas, text, bottom=-0.04)
    frame: pd.DataFrame = group.frame()
    return Drawing(canvas, frame, text, group.runs())


def _draw_system(axes: Any, points: list[Point], place: dict[Any, int], shift: float) -> None:
    look = style.look(points[0].system)
    done = sorted((point for point in points if point.value is not None), key=lambda point: place[point.x])
    xs = [place[point.x] + shift for point in done]
    ys = [float(point.value or 0) for point in done]
    below = [max(0.0, y - float(point.low or y)) for y, point in zip(ys, done, strict=True)]
    above = [max(0.0, float(point.high or y) - y) for y, point in zip(ys, done, strict=True)]
    axes.errorbar(
        xs,
        ys,
        yerr=[below, above],
        color=look.color,
        marker=look.marker,
        linestyle=look.line,
        capsize=2.0,
        label=points[0].system,
        markeredgecolor="black",
        markeredgewidth=0.4,
        elinewidth=0.8,
    )


def _mark_failures(axes: Any, points: list[Point], place: dict[Any, int], systems: list[str]) -> None:
    failed = sorted((point for point in points if point.value is None), key=lambda point: systems.index(point.system))
    if not failed:
        return
    level: dict[int, int] = {}
    for point in failed:
        height = level.get(place[point.x], 0)
        level[place[point.x]] = height + 1
        axes.annotate(
            f"{MARK.get(point.status, point.status)}\n{point.system}",
            (place[point.x], 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, -15.0 * height),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=5.5,
            color=style.look(point.system).color,
        )
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** (0.13 * max(level.values())))


def _order(value: Any) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))
