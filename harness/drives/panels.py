"""Panels of a comparison: rates by size and their use by systems, latency tails, epochs, performance for the price."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from harness.drives.sides import DEEP, Comparison, latencies
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import plain_log
from harness.figures.draw.style import named_looks

PERCENTILES = ("50", "90", "99", "99.9", "99.99")
Panel = Callable[[Comparison, Any], pd.DataFrame]
_LEGEND = {"fontsize": 5.5, "handlelength": 2.0, "borderaxespad": 0.3, "labelspacing": 0.25, "columnspacing": 1.0}
# Under the axis and its label, so that no entry lies on a bar or a line.
_BELOW = {**_LEGEND, "loc": "upper left", "bbox_to_anchor": (-0.08, -0.2), "ncols": 5}


def panels_of(comparison: Comparison) -> list[tuple[str, Panel]]:
    """Return (name, drawing function) of each panel that the comparison has data for, in order."""
    found: list[tuple[str, Panel]] = [("rates", rates)]
    if any(latencies(side.device, DEEP) for side in comparison.sides):
        found.append(("latency", tails))
    if comparison.cells:
        found.append(("epochs", epochs))
    if any(cell.per_price for cell in comparison.cells):
        found.append(("price", per_price))
    return found


def rates(comparison: Comparison, axes: Any) -> pd.DataFrame:
    """Draw random reads per second by size: each drive's best as a line, each system's use as a marker."""
    from matplotlib.ticker import FuncFormatter

    rows: list[dict[str, Any]] = []
    for side in comparison.sides:
        best: dict[int, float] = {}
        for point in side.device.profile.points:
            if point.pattern == "random":
                best[point.block_bytes] = max(best.get(point.block_bytes, 0.0), point.iops)
        rows += [{"series": side.device.name, "x": size, "y": best[size]} for size in sorted(best)]
    looks = named_looks([side.device.name for side in comparison.sides])
    draw_curves(
        pd.DataFrame(rows),
        title="Random reads by size, and what systems used",
        xlabel="bytes a read",
        ylabel="reads/s",
        xlog=True,
        ylog=True,
        looks=looks,
        axes=axes,
    )
    for line in axes.get_lines():
        line.set_markersize(2.5)
    used = [cell for cell in comparison.cells if cell.reads_per_s and cell.request_bytes]
    named = set()
    for cell in used:
        look = style.look(cell.system)
        axes.plot(
            [cell.request_bytes],
            [cell.reads_per_s],
            linestyle="none",
            marker=look.marker,
            markersize=6.5,
            color=look.color,
            markeredgecolor=looks(cell.device).color,
            markeredgewidth=1.1,
            label=None if cell.system in named else cell.system,
        )
        named.add(cell.system)
        rows.append({"series": f"{cell.system} on {cell.device}", "x": cell.request_bytes, "y": cell.reads_per_s})
    sizes = [512, 4096, 32768, 262144, 1 << 20]
    least, most = min(row["x"] for row in rows), max(row["x"] for row in rows)
    shown = [size for size in sizes if least / 2 <= size <= most * 2]
    axes.set_xticks(shown)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v / 1024:g}K" if v >= 1024 else f"{v:g}"))
    axes.legend(**_BELOW)
    return pd.DataFrame(rows)


def tails(comparison: Comparison, axes: Any) -> pd.DataFrame:
    """Draw the latency of direct 4 KiB reads with 64 in flight, by percentile."""
    rows = []
    for side in comparison.sides:
        found = latencies(side.device, DEEP)
        rows += [
            {"series": side.device.name, "x": index, "percentile": name, "y": found[name] * 1e6}
            for index, name in enumerate(PERCENTILES)
            if name in found
        ]
    data = pd.DataFrame(rows)
    draw_curves(
        data,
        title=f"Latency of 4 KiB reads, {DEEP} in flight",
        xlabel="percentile",
        ylabel="latency (µs)",
        ylog=True,
        looks=named_looks([side.device.name for side in comparison.sides]),
        axes=axes,
    )
    axes.set_xticks(range(len(PERCENTILES)), PERCENTILES)
    axes.legend(**_LEGEND, loc="upper left")
    return data


def epochs(comparison: Comparison, axes: Any) -> pd.DataFrame:
    """Draw epoch times, a group per drive and a bar per system; a predicted bar is pale and marked P."""
    return _bars(comparison, axes, "epoch_s", "Epoch time (P: predicted)", "epoch (s)")


def per_price(comparison: Comparison, axes: Any) -> pd.DataFrame:
    """Draw epochs per hour, divided by the price of 1 TB."""
    money = next((side.price.currency for side in comparison.sides if side.price), "$")
    title, ylabel = "Performance for the price (P: predicted)", f"epochs/h per {money} of 1 TB"
    return _bars(comparison, axes, "per_price", title, ylabel, nothing="no price")


def _bars(
    comparison: Comparison, axes: Any, name: str, title: str, ylabel: str, nothing: str = "not run"
) -> pd.DataFrame:
    """Draw a field of the cells on a log axis; epochs have their intervals."""
    drives = [side.device.name for side in comparison.sides]
    rows: list[dict[str, Any]] = []
    for drive in drives:
        for system in comparison.systems:
            cell = comparison.cell(drive, system)
            ends = (cell.low, cell.high) if cell and name == "epoch_s" else (None, None)
            rows.append(
                {
                    "group": drive,
                    "series": system,
                    "value": getattr(cell, name, None),
                    "status": nothing,
                    "low": ends[0],
                    "high": ends[1],
                    "predicted": bool(cell and cell.predicted),
                }
            )
    data = pd.DataFrame(rows)
    draw_bars(data, title=title, ylabel=ylabel, log=True, axes=axes)
    width = 0.8 / max(1, len(comparison.systems))
    for row in rows:
        if row["predicted"] and row["value"]:
            shift = (comparison.systems.index(row["series"]) - (len(comparison.systems) - 1) / 2) * width
            at = drives.index(row["group"]) + shift
            axes.annotate("P", (at, row["value"]), ha="center", va="bottom", fontsize=5.5)
    bars = [patch for container in axes.containers for patch in getattr(container, "patches", [])]
    for bar, row in zip(bars, (row for row in rows if row["value"]), strict=False):
        if row["predicted"]:
            bar.set_alpha(0.45)
    low, high = axes.get_ylim()
    plain_log(axes.yaxis)
    axes.set_ylim(low, high * (high / low) ** 0.05)
    axes.legend(**_BELOW)
    return data
