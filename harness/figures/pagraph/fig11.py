"""PaGraph Fig. 11: epoch time of DGL and PaGraph on one device, each with and without first-layer preprocessing."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.figures.base import Drawing, Figure, add_caption, caption, published, register
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.pagraph.grid import one_device, speedup_rows


def draw(evidence: Evidence) -> Drawing:
    """Draw epoch times (left) and speed-ups over DGL with the paper's ranges (right)."""
    group = evidence.points(one_device, least=1)
    rows = with_ranges(speedup_rows(group), "pagraph-fig11")
    canvas, panels = many_panels(2)
    draw_bars(rows, title="Epoch time", ylabel="epoch (s)", numbers=".2f", axes=panels[0])
    draw_speedups(panels[1], rows)
    legend_above(canvas, panels)
    text = caption(group, None, "one graph of the paper's six; `+pp` reads rows that hold the first layer's sums")
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, group.runs())


def with_ranges(rows: pd.DataFrame, figure: str) -> pd.DataFrame:
    """Add columns with the published range of each bar's speed-up, None without one, and return the rows."""
    table = published(figure)
    for end in ("low", "high"):
        known = {(row["series"], str(row["x"])): float(row["value"]) for row in table.to_dict("records")}
        rows[f"paper_{end}"] = [
            known.get((series, f"{group} {end}")) for series, group in zip(rows["series"], rows["group"], strict=True)
        ]
    return rows


def draw_speedups(axes: Any, rows: pd.DataFrame) -> None:
    """Draw bars of `speedup`, the paper's range as a line with hollow ends at a bar's right edge."""
    shown = rows.assign(value=rows["speedup"], low=None, high=None)
    draw_bars(shown, title="Speed-up over DGL", ylabel="times faster than dgl", numbers=".1f", axes=axes)
    groups, series = list(dict.fromkeys(rows["group"])), list(dict.fromkeys(rows["series"]))
    width = 0.8 / len(series)
    label: str | None = "paper (range over its graphs)"
    for row in rows.to_dict("records"):
        low, high = row.get("paper_low"), row.get("paper_high")
        if pd.isna(low) or pd.isna(high):
            continue
        x = groups.index(row["group"]) + (series.index(row["series"]) - (len(series) - 1) / 2 + 0.3) * width
        axes.plot(
            [x, x],
            [low, high],
            color="black",
            linewidth=0.8,
            marker="D",
            markersize=4,
            markerfacecolor="white",
            label=label,
            zorder=5,
        )
        label = None


register(Figure("pagraph-fig11", one_device, draw))
