"""Panels of a comparison: rates by size and their use by systems, latency tails, epochs, performance for the price."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pandas as pd

from harness.drives.compare import DEEP, DriveComparison, latencies
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import plain_log
from harness.figures.draw.style import named_looks

PERCENTILES = ("50", "90", "99", "99.9", "99.99")
Panel = Callable[[DriveComparison, Any], pd.DataFrame]
_LEGEND = {"fontsize": 5.5, "handlelength": 2.0, "borderaxespad": 0.3, "labelspacing": 0.25, "columnspacing": 1.0}
# Under the axis and its label, so that no entry lies on a bar or a line.
_BELOW = {**_LEGEND, "loc": "upper left", "bbox_to_anchor": (-0.08, -0.2), "ncols": 5}


def panels_of(comparison: DriveComparison) -> list[tuple[str, Panel]]:
    """Return (name, drawing function) of each panel that the comparison has data for, in order."""
    found: list[tuple[str, Panel, bool]] = [
        ("rates", rates, True),
        ("latency", tails, any(latencies(side.device, DEEP) for side in comparison.sides)),
        ("epochs", epochs, bool(comparison.cells)),
        ("price", per_price, any(cell.per_price for cell in comparison.cells)),
    ]
    return [(name, panel) for name, panel, has_data in found if has_data]


def rates(comparison: DriveComparison, axes: Any) -> pd.DataFrame:
    """Draw random reads per second by size: each drive's best as a line, each system's use as a marker."""
    from matplotlib.ticker import FuncFormatter

    rows: list[dict[str, Any]] = []
    for side in comparison.sides:
        best = side.device.profile.random_rates()
        rows += [{"series": side.device.name, "x": size, "y": iops} for size, iops in best.items()]
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
    named = set()
    for cell in comparison.cells:
        if not cell.reads_per_s or not cell.request_bytes:
            continue
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
    least, most = min(row["x"] for row in rows), max(row["x"] for row in rows)
    axes.set_xticks([size for size in (512, 4096, 32768, 262144, 1 << 20) if least / 2 <= size <= most * 2])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v / 1024:g}K" if v >= 1024 else f"{v:g}"))
    axes.legend(**_BELOW)
    return pd.DataFrame(rows)


def tails(comparison: DriveComparison, axes: Any) -> pd.DataFrame:
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


def epochs(comparison: DriveComparison, axes: Any) -> pd.DataFrame:
    """Draw epoch times, a group per drive and a bar per system; a predicted bar is pale and marked P."""
    return _bars(comparison, axes, "epoch_s", "Epoch time (P: predicted)", "epoch (s)")


def per_price(comparison: DriveComparison, axes: Any) -> pd.DataFrame:
    """Draw epochs per hour, divided by the price of 1 TB."""
    money = next((side.price.currency for side in comparison.sides if side.price), "$")
    title, ylabel = "Performance for the price (P: predicted)", f"epochs/h per {money} of 1 TB"
    return _bars(comparison, axes, "per_price", title, ylabel, nothing="no price")


def _bars(
    comparison: DriveComparison, axes: Any, name: str, title: str, ylabel: str, nothing: str = "not run"
) -> pd.DataFrame:
    """Draw a field of the cells on a log axis; epochs have their intervals."""
    drives = [side.device.name for side in comparison.sides]
    rows: list[dict[str, Any]] = []
    for drive, system in itertools.product(drives, comparison.systems):
        cell = comparison.cell(drive, system)
        low, high = (cell.low, cell.high) if cell and name == "epoch_s" else (None, None)
        row = {"group": drive, "series": system, "value": getattr(cell, name, None), "status": nothing}
        rows.append({**row, "low": low, "high": high, "predicted": bool(cell and cell.predicted)})
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
