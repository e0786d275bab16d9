"""Bars of epoch time: outcore-ablation (`outcore` without one of its parts) and outcore-ssd (systems by SSD class)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.compare.plan import Plain, Plan, grid
from harness.compare.points import Group, NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_runs, point_cells
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import left_out
from harness.figures.grids import gallery, only_systems, values

WHOLE = "whole"
#: The part that each bar leaves out, and the options that switch it off; none is at its default.
VARIANTS: dict[str, Plain] = {
    WHOLE: {},
    "sampled online": {"external_sampling": "off"},
    "own passes": {"shared_passes": False},
    "no Belady": {"belady": False},
    "single reads": {"packing": "off"},
    "no look-ahead": {"look_ahead": False},
    "replayed": {"replay": True},
}
_SYSTEM = "outcore"


def variants(profile: Plain) -> Plan:
    """Plan `outcore` with each set of options in the profile's setting."""
    return grid(gallery(profile), [_SYSTEM], {name: {"options": options} for name, options in VARIANTS.items()})


@figure_of_runs("outcore-ablation", variants, least=1)
def ablation(group: Group) -> Drawing:
    """Draw one bar per variant, beside the whole.

    Raises:
        NotDrawn: the whole was not measured, or no variant was run.
    """
    found = {str(point.x): point for point in group.points}
    whole = found.get(WHOLE)
    if whole is None or whole.value is None or len(found) < 2:
        raise NotDrawn("outcore was not measured whole and with a part switched off, in one setting (outcore-ablation)")
    rows = []
    for name in VARIANTS:
        point = found.get(name)
        measured = [epoch for epoch in point.record["epochs"] if not epoch["warmup"]] if point else []
        row: Plain = {"group": name, "series": _SYSTEM, **point_cells(point)}
        row["times"] = None if row["value"] is None else row["value"] / whole.value
        row["misses"] = measured[-1]["counters"].get("misses") if measured else None
        rows.append({**row, "run": point.record["run_id"]} if point else row)
    data = pd.DataFrame(rows)
    canvas, _ = draw_bars(data, title="What each part is worth", ylabel="epoch time (s)", log=True, numbers=".2f")
    others = data[(data["group"] != WHOLE) & data["times"].notna()].to_dict("records")
    said = ", ".join(f"{row['group']} {row['times']:.2f}x" for row in others)
    replayed = "replayed: not faithful, nothing is prepared"
    return drawn(canvas, data, group, f"epoch time over the whole's: {said}", replayed)


SYSTEMS = ["pyg+", "ginex", "gnndrive", "diskgnn", "outcore"]
# A cloud SSD with few requests a second: unscaled, still fewer than the scaled class of the profiles.
SLOW = "aws-gp3"
BARE = "none"


def over_classes(profile: Plain) -> Plan:
    """Plan the capped systems on the profile's SSD class, one with fewer requests a second, and the bare device."""
    own = str(profile["run"].get("disk_class", BARE))
    classes = values(profile, "disk_classes", list(dict.fromkeys([own, SLOW, BARE])))
    return grid(gallery(profile), only_systems(profile, SYSTEMS), {name: {"disk_class": name} for name in classes})


def request_rate(record: Mapping[str, Any]) -> float:
    """Return the device's 4 KiB random reads per second under a run's limits, 0 if not measured."""
    profile = record.get("disk", {}).get("limited") or record.get("disk", {}).get("bare") or {}
    rates = [p["iops"] for p in profile.get("points", []) if p["pattern"] == "random" and p["block_bytes"] == 4096]
    return float(max(rates, default=0.0))


@figure_of_runs("outcore-ssd", over_classes)
def ssd(group: Group) -> Drawing:
    """Draw a group of bars for each class, slowest first; raise NotDrawn below two measured classes."""
    rates: dict[str, float] = {}
    for point in group.points:
        rates[str(point.x)] = max(rates.get(str(point.x), 0.0), request_rate(point.record))
    order = sorted(rates, key=lambda name: (rates[name], name == BARE))
    found = {(point.system, str(point.x)): point for point in group.points}
    rows = []
    for name in order:
        for system in style.ordered(group.systems()):
            at = found.get((system, name))
            rate, run = rates[name] or None, at.record["run_id"] if at else ""
            rows.append({"group": name, "series": system, **point_cells(at), "reads_per_s": rate, "run": run})
    data = pd.DataFrame(rows)
    if data.loc[data["value"].notna(), "group"].nunique() < 2:
        raise NotDrawn("no measured runs under two SSD classes (outcore-ssd)")

    def tick(name: str) -> str:
        shown = "bare device" if name == BARE else name
        return f"{shown}\n{rates[name] / 1000:,.0f}k reads/s" if rates[name] else shown

    canvas, _ = draw_bars(data, title="Epoch time by SSD class", ylabel="epoch (s)", log=True, tick=tick)
    note = "4 KiB random reads of the device under each class as measured"
    reduced = left_out(order, [*order, SLOW] if SLOW not in order else order, "SSD classes")
    return drawn(canvas, data, group, note, reduced, points=group.done)
