"""Panels of a comparison: rates by size and their use by systems, latency tails,
epochs, performance for the price."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pandas as pd

from harness.drives.compare import DEEP, latencies
from harness.drives.comparison import DriveComparison
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import points_of, text_points
from harness.results.table import each

PERCENTILES = ["50", "90", "99", "99.9", "99.99"]
SIZES = [512, 4096, 32768, 262144, 1 << 20]
#: Columns of the table beside bars.
BARS = ["group", "series", "value", "status", "low", "high", "predicted"]
Panel = Callable[[DriveComparison, Any], pd.DataFrame]
_LEGEND = {
    "handlelength": 2.0,
    "borderaxespad": 0.3,
    "labelspacing": 0.25,
    "columnspacing": 1.0,
}
# Entries in a row of the legend above bars, and above rates, whose names of drives are
# long; points of a row.
_OF_BARS = 4
_OF_RATES = 2
_ROW_POINTS = 10
# Most drives whose names fit a column.
_MOST_IN_COLUMN = 4


def panels_of(comparison: DriveComparison) -> list[tuple[str, Panel]]:
    """Return (name, drawing function) of each panel that the comparison has data for,
    in order."""
    found: list[tuple[str, Panel]] = [("rates", rates)]
    if any(latencies(side.device, DEEP) for side in comparison.sides):
        found.append(("latency", tails))
    if comparison.cells:
        found.append(("epochs", epochs))
    if comparison.table["per_price"].any():
        found.append(("price", per_price))
    return found


def panel_inches(comparison: DriveComparison) -> float:
    """Return the width of the panels in inches: a column's, or a page's where they name
    many drives."""
    return (
        style.PAGE_INCHES
        if len(comparison.sides) > _MOST_IN_COLUMN
        else style.COLUMN_INCHES
    )


def rates(comparison: DriveComparison, axes: Any) -> pd.DataFrame:
    """Draw random reads per second by size: each drive's best as a line, each system's
    use as a marker."""
    drives = []
    for side in comparison.sides:
        best = pd.Series(side.device.profile.random_rates(), dtype=float)
        drives.append(
            pd.DataFrame({"series": side.device.name, "x": best.index, "y": best})
        )
    lines = pd.concat(drives)
    title = "Random reads by size, and systems' use"
    draw_curves(
        lines,
        title=title,
        xlabel="bytes a read (log)",
        ylabel="reads/s (log)",
        xlog=True,
        ylog=True,
        axes=axes,
    )
    used = comparison.table[
        ["system", "device", "request_bytes", "reads_per_s"]
    ].dropna()
    look_of = style.system_looks(comparison.systems)
    for system, own in used.groupby("system", sort=False):
        look = look_of(str(system))
        mark: Any = {
            "marker": look.marker,
            "color": look.color,
            "markeredgecolor": "black",
            "linestyle": "none",
        }
        axes.plot(own["request_bytes"], own["reads_per_s"], label=system, **mark)
    axes.set_xticks(SIZES)
    axes.xaxis.set_major_formatter(
        lambda size, _: f"{size / 1024:g}K" if size >= 1024 else f"{size:g}"
    )
    _legend_above(axes, _OF_RATES)
    if used.empty:
        return lines
    marks = used.rename(columns={"request_bytes": "x", "reads_per_s": "y"})
    marks["series"] = marks["system"] + " on " + marks["device"]
    return pd.concat([lines, marks[["series", "x", "y"]]])


def tails(comparison: DriveComparison, axes: Any) -> pd.DataFrame:
    """Draw the latency of direct 4 KiB reads with 64 in flight, by percentile."""
    found = {
        side.device.name: latencies(side.device, DEEP) for side in comparison.sides
    }
    seconds = pd.DataFrame(found, index=PERCENTILES).dropna(axis="columns", how="all")
    rows = (
        seconds.melt(var_name="series", value_name="y", ignore_index=False)
        .dropna()
        .reset_index(names="percentile")
    )
    rows["x"] = rows["percentile"].map(PERCENTILES.index)
    rows["y"] *= 1e6
    title = f"Latency of 4 KiB reads, {DEEP} in flight"
    draw_curves(
        rows,
        title=title,
        xlabel="percentile",
        ylabel="latency (µs, log)",
        ylog=True,
        axes=axes,
    )
    axes.set_xticks(range(len(PERCENTILES)), PERCENTILES)
    axes.legend(**_LEGEND, loc="upper left")
    return rows[["series", "x", "percentile", "y"]]


def epochs(comparison: DriveComparison, axes: Any) -> pd.DataFrame:
    """Draw epoch times, a group per drive and a bar per system."""
    rows = comparison.table.assign(value=comparison.table["epoch_s"])
    return _draw(
        comparison,
        rows,
        axes,
        "not run",
        title="Epoch time (pale: predicted)",
        ylabel="epoch (s)",
    )


def per_price(comparison: DriveComparison, axes: Any) -> pd.DataFrame:
    """Draw epochs per hour, divided by the price of 1 TB."""
    money = next((side.price.currency for side in comparison.sides if side.price), "$")
    rows = comparison.table.assign(
        value=comparison.table["per_price"], low=None, high=None
    )
    title = "Performance for the price (pale: predicted)"
    ylabel = f"epochs/h per {money} of 1 TB"
    return _draw(comparison, rows, axes, "no price", title=title, ylabel=ylabel)


def _draw(
    comparison: DriveComparison,
    rows: pd.DataFrame,
    axes: Any,
    nothing: str,
    **labels: Any,
) -> pd.DataFrame:
    """Draw a bar for each system on each drive; return the table."""
    drives = [side.device.name for side in comparison.sides]
    places = pd.MultiIndex.from_product(
        [drives, comparison.systems], names=["group", "series"]
    )
    found = rows.set_index(["device", "system"]).reindex(places).reset_index()
    data = found.assign(status=nothing, predicted=found["predicted"].eq(True))[BARS]
    draw_bars(data, numbers=".3g", axes=axes, **labels)
    points = points_of(axes, 1 / len(drives))
    letters = int(points / text_points("a"))
    lines = [textwrap.fill(name, letters) for name in drives]
    axes.set_xticks(axes.get_xticks(), lines, rotation=0, ha="center")
    _legend_above(axes, _OF_BARS)
    drawn = data.dropna(subset="value")
    # Bars are drawn one system after another.
    by_system = drawn.sort_values(
        "series", key=lambda names: names.map(comparison.systems.index), kind="stable"
    )
    for bar, row in zip(axes.patches, each(by_system), strict=True):
        bar.set_alpha(0.45 if row.predicted else 1.0)
    return data


def _legend_above(axes: Any, columns: int) -> None:
    """Draw the legend between the title and the axes, so that no entry lies on a bar, a
    line or a label."""
    entries = len(axes.get_legend_handles_labels()[1])
    columns = round(columns * axes.figure.get_figwidth() / style.COLUMN_INCHES)
    rows = -(-entries // columns)
    axes.set_title(axes.get_title(loc="left"), loc="left", pad=6 + _ROW_POINTS * rows)
    axes.legend(**_LEGEND, loc="lower left", bbox_to_anchor=(-0.08, 1.0), ncols=columns)
