"""Data Tiering Figures 8, 10 and 11: epochs with features in host memory, and rows of them in device memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain, Plan, grid, joined
from harness.compare.points import Group, NotDrawn, Point
from harness.figures.base import Drawing, Sheet, drawn, figure, figure_of_runs, paper_rows
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.draw.captions import left_out
from harness.figures.draw.marks import around, draw_line, mark_paper, name_axes
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.draw.stacks import draw_stacks
from harness.figures.draw.style import look
from harness.figures.grids import feature_bytes, gallery, systems_of, values
from workloads.units import format_bytes, parse_bytes

#: The paper's comparison: systems, and their names in its figures.
SYSTEMS = {"dgl": "CPU gather", "uva": "zero-copy", "data-tiering": "tiering"}
TIERING = "data-tiering"
# Shares of the rows in device memory (Fig. 10).
HOT_SHARES = [0.0, 0.05, 0.1, 0.25]
# Columns of the papers' usual rows.
_NARROW = 128
#: Share of hot rows in Fig. 8.
DEFAULT_SHARE = 0.1
PARTS = ["bus", "compute", "gather", "sample", "other"]
ORDER = (
    ("bus", ("transfer", "lane:copy")),
    ("compute", ("train", "lane:compute")),
    ("gather", ("extract", "assemble")),
    ("sample", ("sample",)),
)


def host_profile(profile: Plain) -> Plain:
    """Return the gallery's profile with all features in host memory, and device memory for the largest hot share, too.

    Epochs are whole: with all data in memory a short one would end too soon to be timed. A profile may set another
    dataset and mini-batch size (`tiering_dataset`, `tiering_batch`), so that the bus counts beside sampling.
    """
    short = gallery(profile)
    memory = short["run"].get("device_memory")
    run = {**short["run"], "memory": "none", "max_batches": 0}
    (run["dataset"],) = values(profile, "tiering_dataset", [run["dataset"]])
    (run["batch_size"],) = values(profile, "tiering_batch", [run["batch_size"]])
    short = {**short, "run": run}
    if memory is not None:
        run["device_memory"] = parse_bytes(memory) + round(max(HOT_SHARES) * feature_bytes(short))
    return short


def hot_rows(profile: Plain, shares: Sequence[float]) -> Plan:
    """Plan data-tiering with each share of the rows hot; x is the share."""
    over = {share: {"memory": "none", "options": {"cache": f"{share:g}x"}} for share in shares}
    return grid(profile, systems_of(profile, [TIERING]), over)


def chosen_rows(config: Mapping[str, Any]) -> str:
    """Return caption text on rows chosen wide enough for the bus to matter; empty for rows of usual width."""
    dim = int(config["dataset"]["dim"])
    if dim <= _NARROW:
        return ""
    return f"rows of {dim} columns were chosen so that the bus shows: sampling would hide what narrow ones cost"


def three_ways(profile: Plain) -> Plan:
    """Plan the three systems without a cap, tiering with a tenth of the rows hot."""
    changed = host_profile(profile)
    others = systems_of(changed, [name for name in SYSTEMS if name != TIERING])
    return joined([grid(changed, others, {DEFAULT_SHARE: {"memory": "none"}}), hot_rows(changed, [DEFAULT_SHARE])])


@figure_of_runs("tiering-fig8", three_ways, least=1)
def fig8(group: Group) -> Drawing:
    """Draw epoch time (left, speedups and the paper's below) and its parts (right); raise NotDrawn without an epoch."""
    points = {point.system: point for point in group.points}
    rows = _epochs(points)
    canvas, (left, right) = many_panels(2, height=2.4)
    systems = {label: system for system, label in SYSTEMS.items()}
    looks = {label: look(system) for label, system in systems.items()}
    ylabel = "epoch time (s)"
    draw_bars(rows, title="Epoch time", ylabel=ylabel, numbers=".3g", looks=looks.__getitem__, axes=left)
    left.set_xticks([0], [""])
    left.set_xlabel(_compared(rows), fontsize=6.5)
    measured = group.done
    if not measured:
        raise NotDrawn("none of the systems finished an epoch")
    stacks = pd.DataFrame(
        {"bar": label, "part": part, "value": found[part], "run": points[system].record["run_id"]}
        for system, label in SYSTEMS.items()
        if system in points and points[system].value is not None
        for found in [run_breakdown(points[system], ORDER, PARTS[-1])]
        for part in PARTS
    )
    draw_stacks(stacks, title="By part", ylabel="share of the epoch (%)", parts=PARTS, share=True, axes=right)
    left.legend(*left.get_legend_handles_labels(), loc="upper right", fontsize=6.0)
    legend_above(canvas, [right], PARTS)
    data = pd.concat([rows.assign(panel="time"), stacks.assign(panel="parts")], ignore_index=True)
    notes = [
        f"{100 * DEFAULT_SHARE:g} % of the rows hot in tiering",
        "a moment counts for the first open of bus (copies and zero-copy reads), compute, gather, sample",
        chosen_rows(measured[0].record["config"]),
    ]
    return drawn(canvas, data, group, *notes, points=measured)


def _epochs(points: Mapping[str, Point]) -> pd.DataFrame:
    rows: list[Plain] = []
    before: float | None = None
    for system, label in SYSTEMS.items():
        point = points.get(system)
        row: Plain = {"group": "epoch", "series": label, "system": system}
        if point is None or point.value is None:
            row |= {"value": None, "status": "not run" if point is None else point.status}
        else:
            row |= {"value": point.value, "low": point.low, "high": point.high, "status": "ok"}
            row["speedup_over_previous"] = before / point.value if before else None
            row["run"] = point.record["run_id"]
        before = row["value"]
        rows.append(row)
    return pd.DataFrame(rows)


def _compared(rows: pd.DataFrame) -> str:
    """Return the speedup of each step, ours and the paper's, as text below the bars."""
    known = rows.set_index("series").get("speedup_over_previous", pd.Series(np.nan, index=rows["series"]))
    lines = []
    for series, label in (("zero-copy over CPU gather", "zero-copy"), ("tiering over zero-copy", "tiering")):
        ours = f"{known[label]:.2f}x" if pd.notna(known[label]) else "not measured"
        theirs = [row["value"] for row in paper_rows("tiering-fig8", series)]
        lines.append(f"{series}: {ours}" + (f" (paper {min(theirs):g}–{max(theirs):g}x)" if theirs else ""))
    return "\n".join(lines)


def loaded_bytes(point: Point) -> float | None:
    """Return the median bytes of feature rows that crossed the bus in a measured epoch, None if not counted."""
    loaded = [epoch["counters"].get("bytes_loaded") for epoch in point.record["epochs"] if not epoch["warmup"]]
    return float(np.median(loaded)) if loaded and all(value is not None for value in loaded) else None


@figure_of_runs(
    "tiering-fig10", lambda profile: hot_rows(host_profile(profile), values(profile, "hot_shares", HOT_SHARES))
)
def fig10(group: Group) -> Drawing:
    """Draw bus bytes and time over those without hot rows, and the paper's; raise NotDrawn without that run."""
    points = {float(point.x): point for point in group.done}
    none = points.get(0.0)
    if none is None:
        raise NotDrawn("no run without hot rows to compare with")
    whole, bus = float(none.value or 0), loaded_bytes(none)
    if not bus:
        raise NotDrawn("the run without hot rows did not count what it loaded")
    rows = pd.DataFrame([_over_none(share, points[share], whole, bus) for share in sorted(points)])
    canvas, panels = many_panels(2, height=2.3)
    titles = [f"Bus traffic (100 %: {format_bytes(int(bus))} an epoch)", f"Epoch time (100 %: {whole:.3g} s)"]
    columns = [
        ("traffic_percent", "traffic saved", "bytes over the bus (%)"),
        ("time_percent", "time saved", "epoch time (%)"),
    ]
    for axes, title, (column, series, ylabel) in zip(panels, titles, columns, strict=True):
        error = around(rows[column], rows["low"], rows["high"]) if column == "time_percent" else None
        plain = {"markeredgecolor": None, "markeredgewidth": None}
        draw_line(axes, rows["hot_percent"], rows[column], error, look(TIERING), TIERING, **plain)
        known = paper_rows("tiering-fig10", series)
        xs, ys = [float(row["x"]) for row in known], [100 - row["value"] for row in known]
        mark_paper(axes, xs, ys, "paper", zorder=5)
        axes.set_ylim(0, 108)
        name_axes(axes, title, "rows in device memory (%)", ylabel)
    legend_above(canvas, panels, [TIERING])
    reduced = left_out(
        [f"{share:.0%}" for share in sorted(points)], [f"{share:.0%}" for share in HOT_SHARES], "hot rows"
    )
    notes = [
        "traffic: bytes of feature rows read over the bus by the system's own counters, lists and labels left out",
        reduced,
        chosen_rows(none.record["config"]),
    ]
    return drawn(canvas, rows, group, *notes, points=list(points.values()))


def _over_none(share: float, point: Point, whole: float, bus: float) -> Plain:
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


@figure("tiering-fig11")
def fig11(evidence: Evidence) -> Sheet:
    """Refuse to draw: in this figure devices read each other's memory, and one CPU samples for all devices.

    An emulated device is private to its process, so one device per rank would show neither.

    Raises:
        NotDrawn: always.
    """
    raise NotDrawn(
        "its devices read rows from each other's memory over NVLink: that needs several real GPUs. An emulated device "
        "is private to its process, and data-tiering runs on one device"
    )
