"""Speedup of Ali+PG and Ginex over PyG+ along one axis: the drawing that Ginex's Figures 17, 18 and 19 share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from harness.figures.bars import draw_bars
from harness.figures.base import Drawing, add_caption, caption
from harness.figures.ginex_grid import SYSTEMS
from harness.figures.query import Group, NotDrawn, Point

BASE, *OTHERS = SYSTEMS


def speedup_rows(group: Group) -> pd.DataFrame:
    """A row for each x and system: epoch time of pyg+ over the system's, with the interval that both intervals leave.

    Raises:
        NotDrawn: pyg+ has no measured epoch anywhere.
    """
    points = {(point.x, point.system): point for point in group.points}
    rows: list[dict[str, Any]] = []
    for x in sorted({point.x for point in group.points}):
        base = points.get((x, BASE))
        if not any((x, system) in points for system in OTHERS):
            continue  # pyg+ was run there for another figure
        for system in OTHERS:
            point = points.get((x, system))
            row: dict[str, Any] = {"group": x, "series": system, "value": None, "low": None, "high": None}
            row["status"] = _status(base, point)
            if base is not None and point is not None and base.value and point.value:
                row |= {
                    "value": base.value / point.value,
                    "low": float(base.low or base.value) / float(point.high or point.value),
                    "high": float(base.high or base.value) / float(point.low or point.value),
                    "base_s": base.value, "epoch_s": point.value, "run": point.record["run_id"],
                    "base_run": base.record["run_id"],
                }  # fmt: skip
            rows.append(row)
    table = pd.DataFrame(rows)
    if table.empty or table["value"].isna().all():
        raise NotDrawn(f"no x at which {BASE} and another system were both measured")
    return table


def _status(base: Point | None, point: Point | None) -> str:
    if base is None or base.value is None:
        return f"{BASE}: {'not run' if base is None else base.status}"
    return "not run" if point is None else point.status


def draw_speedups(
    group: Group, *, title: str, xlabel: str, tick: Callable[[Any], str] = str, extra: str = ""
) -> Drawing:
    """Bars of ali+pg and ginex for each x; pyg+ is the line at 1."""
    rows = speedup_rows(group)
    canvas, axes = draw_bars(rows, title=title, ylabel=f"speedup over {BASE}", xlabel=xlabel, tick=tick, numbers=".2f")
    axes.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
    text = caption(group, [point for point in group.points if point.value is not None], extra)
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, runs=group.runs())
