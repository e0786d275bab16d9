"""Data Tiering Fig. 10: bytes over the bus and epoch time, over the share of rows in device memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan
from harness.compare.points import NotDrawn, Point
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, left_out, published, register, values
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.draw.style import look
from harness.figures.tiering.grid import HOT_SHARES, TIERING, chosen_rows, host_profile, hot_rows
from workloads.units import format_bytes


def over_shares(profile: Plain) -> Plan:
    """Plan data-tiering with each share of hot rows."""
    return hot_rows(host_profile(profile), values(profile, "hot_shares", HOT_SHARES))


def loaded_bytes(point: Point) -> float | None:
    """Return the median bytes of feature rows that crossed the bus in a measured epoch, None if not counted."""
    loaded = [epoch["counters"].get("bytes_loaded") for epoch in point.record["epochs"] if not epoch["warmup"]]
    return float(np.median(loaded)) if loaded and all(value is not None for value in loaded) else None


def draw(evidence: Evidence) -> Drawing:
    """Draw bus bytes and time over those without hot rows, and the paper's; raise NotDrawn without that run."""
    group = evidence.points(over_shares)
    points = {float(point.x): point for point in group.points if point.value is not None}
    none = points.get(0.0)
    if none is None:
        raise NotDrawn("no run without hot rows to compare with")
    whole, bus = float(none.value or 0), loaded_bytes(none)
    if not bus:
        raise NotDrawn("the run without hot rows did not count what it loaded")
    rows = pd.DataFrame([_row(share, points[share], whole, bus) for share in sorted(points)])
    canvas, panels = many_panels(2, height=2.3)
    paper = published("tiering-fig10")
    style = look(TIERING)
    for axes, column, series, label in (
        (panels[0], "traffic_percent", "traffic saved", "bytes over the bus (%)"),
        (panels[1], "time_percent", "time saved", "epoch time (%)"),
    ):
        error = None
        if column == "time_percent":
            error = [(rows[column] - rows["low"]).clip(lower=0), (rows["high"] - rows[column]).clip(lower=0)]
        axes.errorbar(
            rows["hot_percent"],
            rows[column],
            yerr=error,
            color=style.color,
            marker=style.marker,
            linestyle=style.line,
            capsize=2.0,
            elinewidth=0.8,
            label=TIERING,
        )
        known = paper[paper["series"] == series]
        if len(known):
            axes.plot(
                known["x"].astype(float),
                100 - known["value"],
                marker="D",
                linestyle="none",
                markerfacecolor="white",
                markeredgecolor="black",
                markersize=4.5,
                label="paper",
                zorder=5,
            )
        axes.set_ylim(0, 108)
        axes.set_xlabel("rows in device memory (%)")
        axes.set_ylabel(label)
    panels[0].set_title(f"Bus traffic (100 %: {format_bytes(int(bus))} an epoch)", loc="left")
    panels[1].set_title(f"Epoch time (100 %: {whole:.3g} s)", loc="left")
    legend_above(canvas, panels, [TIERING])
    chosen = chosen_rows(none.record["config"])
    text = caption(group, list(points.values()), _extra(sorted(points)) + (f"; {chosen}" if chosen else ""))
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, runs=group.runs())


def _extra(shares: list[float]) -> str:
    counted = "traffic: bytes of feature rows read over the bus by the system's own counters, lists and labels left out"
    reduced = left_out([f"{share:.0%}" for share in shares], [f"{share:.0%}" for share in HOT_SHARES], "hot rows")
    return f"{counted}; {reduced}" if reduced else counted


def _row(share: float, point: Point, whole: float, bus: float) -> dict[str, Any]:
    loaded = loaded_bytes(point)
    value = float(point.value or 0)
    return {
        "hot_percent": 100 * share,
        "epoch_s": value,
        "bytes_loaded": loaded,
        "time_percent": 100 * value / whole,
        "low": 100 * float(point.low or value) / whole,
        "high": 100 * float(point.high or value) / whole,
        "traffic_percent": None if loaded is None else 100 * loaded / bus,
        "run": point.record["run_id"],
    }


register(Figure("tiering-fig10", over_shares, draw))
