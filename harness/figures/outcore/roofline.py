"""outcore-roofline: how hard each system drives the device, and how far its epoch is
from the least possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from harness.compare.cells import Cells
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_cells
from harness.figures.draw import style
from harness.figures.draw.captions import row_texts
from harness.figures.draw.panels import many_panels, name_axes, plain_log
from harness.figures.grids import capped, gallery
from harness.figures.outcore.memory import cost_of
from harness.judge.io import RATE_TOLERANCE
from harness.records.cost import TrainingCost
from harness.results.table import each, measured_epochs
from workloads.arraytypes import JsonDict
from workloads.units import format_bytes

MIB = 2**20
#: Systems that keep their features on disk: the device limits no others.
ON_DISK = [
    "pyg+",
    "dgl-ondisk",
    "ali+pg",
    "ginex",
    "ginex-pg",
    "gnndrive",
    "diskgnn",
    "agnes",
    "outcore",
]
COLUMNS = [
    "panel",
    "name",
    "x",
    "y",
    "unit",
    "engine_efficiency",
    "limit_s",
    "least_s",
    "offline_s",
]
#: Labels of the marks beside the systems' dots.
LIMIT = "device at that request size"
LEAST = "least time of the trace"
WHOLE = "with its share of offline work and the first epoch"
MARKS = [LIMIT, LEAST, WHOLE]
# A share of work before the epochs is drawn from this multiple of the epoch on.
VISIBLE = 1.02
# Share of an axis, in powers, that the texts beside its dots take.
TEXT_SHARE = 0.5


@figure_of_cells(
    "outcore-roofline",
    lambda profile: capped(profile, ON_DISK),
    otherwise=lambda profile: capped(gallery(profile), ON_DISK),
    least=1,
)
def roofline(cells: Cells) -> Drawing:
    """Draw each system's read rate beside the device's at the same request size (left).

    Right: epochs beside the least device time of their traces, engine efficiency. Raise
    NotDrawn without an epoch.
    """
    medians = cells.medians()
    measured = medians.dropna(subset="value").set_index("system", drop=False)
    if measured.empty:
        raise NotDrawn("no capped run has a measured epoch")
    measured = measured.loc[style.ordered(list(measured.index))]
    device = _device_rates(measured.record.iloc[-1])
    driven = _read_rates(measured)
    distances = _distances(measured[measured.mean_epoch_s.notna()])
    height = 1.3 + 0.2 * len(measured)
    canvas, (left, right) = many_panels(2, height=height, sharey=True)
    systems = list(measured.system)
    limited = device[device.name == "limited"]
    _draw_rates(left, driven, limited, systems)
    _draw_distances(right, distances, systems)
    more = "in bursts: above the rate of the SSD class"
    bursts = more if any(_in_bursts(distances)) else ""
    known = distances.dropna(subset="y").astype({"y": float}).nlargest(1, "y")
    nearest = known.assign(times=1 / known.y)
    near = row_texts(
        nearest,
        "with offline work, {name} comes nearest to the least time of its reads: "
        "{times:.2g} times it",
    )
    finding = "; ".join(filter(None, [_driven(driven, limited), near]))
    table = pd.concat([device, driven, distances], ignore_index=True)[COLUMNS]
    shares = (
        "beside an epoch: the least time over it, and the disk's own time for the "
        "requests over the time of extraction (engine)"
    )
    notes = [shares, bursts]
    return drawn(canvas, table, cells, *notes, order=MARKS, finding=finding)


def _driven(rates: pd.DataFrame, device: pd.DataFrame) -> str:
    """Return the sentence on the systems with the least and the largest share of the
    device's rate at their request sizes; empty without rates of both."""
    if device.empty or rates.empty:
        return ""
    shares = 100 * rates.y / _rates_at(device, rates.x)
    ends = rates.assign(share=shares).sort_values("share").iloc[[0, -1]]
    parts = row_texts(ends, "{share:.0f} % ({name})", " to ")
    return f"Systems read at {parts} of the device's rate for their request sizes"


def _device_rates(record: JsonDict) -> pd.DataFrame:
    """Return the read rate (`y`, MiB/s) of the device over request size (`x`), under
    the run's limits and bare."""
    found = []
    for name in ("limited", "bare"):
        profile = record.get("disk", {}).get(name) or {}
        points = pd.DataFrame(
            profile.get("points", []), columns=["block_bytes", "bytes_per_s"]
        )
        best = points.groupby("block_bytes").bytes_per_s.max() / MIB
        found.append(
            pd.DataFrame(
                {
                    "panel": "roof",
                    "name": name,
                    "x": best.index,
                    "y": best,
                    "unit": "MiB/s",
                }
            )
        )
    return pd.concat(found)


def _read_rates(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the read rate (`y`, MiB/s) and mean request (`x`, bytes) of each system
    with requests of the device."""
    rows = []
    for cell in each(cells):
        sums = pd.DataFrame(measured_epochs(cell.record))[
            ["device_requests", "device_bytes", "seconds"]
        ].sum()
        if sums.device_requests and sums.seconds:
            size = sums.device_bytes / sums.device_requests
            rate = sums.device_bytes / sums.seconds / MIB
            rows.append(
                {
                    "panel": "roof",
                    "name": cell.system,
                    "x": size,
                    "y": rate,
                    "unit": "MiB/s",
                }
            )
    return pd.DataFrame(rows, columns=["panel", "name", "x", "y", "unit"])


def _draw_rates(
    axes: Any, driven: pd.DataFrame, device: pd.DataFrame, systems: list[str]
) -> None:
    """Draw the read rate of each system, and a mark at the device's rate at the
    system's mean request size."""
    rates = driven.rename(columns={"x": "request", "y": "x"}).assign(whole=np.nan)
    rates["mark"] = np.nan if device.empty else _rates_at(device, rates.request)
    rates["text"] = [f"{format_bytes(round(size))} requests" for size in rates.request]
    rates["right"] = rates[["x", "mark"]].max(axis=1)
    _draw_rows(axes, rates, LIMIT, systems)
    name_axes(axes, "How hard the device is driven", "read over the epoch (MiB/s, log)")


def _rates_at(device: pd.DataFrame, sizes: pd.Series[float]) -> Any:
    """Return the device's rates (MiB/s) at request sizes (bytes), between the measured
    ones."""
    exponents = np.interp(np.log(sizes), np.log(device.x), np.log(device.y))
    return np.exp(exponents)


def _distances(cells: pd.DataFrame) -> pd.DataFrame:
    """Return each system's epoch (`x`), its share of work before the epochs, and the
    least seconds of its trace."""
    rows = []
    for cell in each(cells):
        summary = cell.record["summary"]
        epochs = cell.record["config"]["epochs"]
        distance = summary.get("distance_to_limit")
        own = TrainingCost.of(cell.record)
        # By the run's own epochs, as its distance.
        least = (
            None if distance is None or own is None else distance * own.share_s(epochs)
        )
        row = {
            "panel": "distance",
            "name": cell.system,
            "x": cell.mean_epoch_s,
            "y": distance,
            "unit": "s",
        }
        row |= {"engine_efficiency": summary.get("engine_efficiency"), "least_s": least}
        row |= {"limit_s": summary.get("extra", {}).get("limit_s")}
        rows.append(
            {**row, "offline_s": cost_of(cell).share_s(epochs) - cell.mean_epoch_s}
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def _draw_distances(axes: Any, distances: pd.DataFrame, systems: list[str]) -> None:
    """Draw each epoch, with its share of work before the epochs as a hollow dot, and
    the least seconds as a mark."""
    rows = distances.rename(columns={"least_s": "mark"})
    rows["right"] = rows.x + rows.offline_s
    rows["whole"] = rows.right.where(rows.right > VISIBLE * rows.x)
    shares = (
        rows[["y", "engine_efficiency"]]
        .map("{:.0%}".format, na_action="ignore")
        .fillna("unknown")
    )
    rows["text"] = (shares.y + ", engine " + shares.engine_efficiency).str.replace(
        "%", " %"
    )
    rows["text"] += _in_bursts(rows).map({True: " in bursts", False: ""})
    _draw_rows(axes, rows, LEAST, systems)
    name_axes(axes, "Epoch beside the least time of its reads", "epoch (s, log)")


def _in_bursts(distances: pd.DataFrame) -> pd.Series[bool]:
    """Return which systems read faster than the device's rate: a limiter lets bursts
    pass after idle moments."""
    return distances.engine_efficiency.astype(float) > RATE_TOLERANCE


def _draw_rows(axes: Any, rows: pd.DataFrame, mark: str, systems: list[str]) -> None:
    """Draw a row for each system, logarithmic, the systems from the top down.

    Args:
        rows: columns `name`, `x` (a dot), `whole` (a hollow dot), `mark` (a tick),
            `text` and `right`, its left end.
        mark: label of the ticks.
    """
    look_of = style.system_looks(systems)
    rows = rows.assign(place=rows["name"].map(systems.index))
    marked = rows.dropna(subset="mark")
    tick = {
        "marker": "|",
        "markersize": 8,
        "markeredgewidth": 2,
        "color": "black",
        "linestyle": "none",
        "zorder": 3,
    }
    if len(marked):
        axes.plot(marked.mark, marked.place, label=mark, **tick)
    beside = {
        "xytext": (6, 0),
        "textcoords": "offset points",
        "va": "center",
        "fontsize": style.LEAST_POINTS,
    }
    for row in each(rows):
        look = look_of(row.name)
        dot = {
            "marker": look.marker,
            "color": look.color,
            "linestyle": "none",
            "markersize": 6,
        }
        dot |= {"markeredgecolor": "black", "markeredgewidth": 0.5}
        if pd.notna(row.whole):
            axes.plot(
                [row.x, row.whole],
                [row.place] * 2,
                color="#555555",
                linewidth=0.8,
                zorder=1,
            )
            axes.plot(row.whole, row.place, markerfacecolor="white", label=WHOLE, **dot)
        axes.plot(row.x, row.place, **dot)
        axes.annotate(row.text, (row.right, row.place), **beside)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * (high / low) ** TEXT_SHARE)
    plain_log(axes.xaxis)
    axes.set_yticks(range(len(systems)), systems)
    axes.set_ylim(len(systems) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
