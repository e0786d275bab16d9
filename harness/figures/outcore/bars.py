"""Bars of epoch time: outcore-ablation (`outcore` without one of its parts) and outcore-ssd (systems by SSD class)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.compare.plan import Plain, Plan, grid
from harness.compare.points import Group, NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_runs, specs
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import left_out
from harness.figures.grids import gallery, only_systems, values

WHOLE = "whole"
SPEC = specs(__file__)
VARIANTS: dict[str, Plain] = SPEC["variants"]
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
    found = [group.at(_SYSTEM, name) for name in VARIANTS]
    whole = found[0].value
    if whole is None or len(group.points) < 2:
        raise NotDrawn("outcore was not measured whole and with a part switched off, in one setting (outcore-ablation)")
    rows = []
    for point in found:
        times = None if point.value is None else point.value / whole
        misses = point.epochs[-1]["counters"].get("misses") if point.epochs else None
        row = {"group": point.x, "series": _SYSTEM, **point.cells, "times": times, "misses": misses}
        rows.append({**row, "run": point.run})
    data = pd.DataFrame(rows)
    canvas, _ = draw_bars(data, **SPEC["ablation"])
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
    rows = []
    for point in [group.at(system, name) for name in order for system in style.ordered(group.systems())]:
        rate = rates[point.x] or None
        rows.append({"group": point.x, "series": point.system, **point.cells, "reads_per_s": rate, "run": point.run})
    data = pd.DataFrame(rows)
    if data.loc[data["value"].notna(), "group"].nunique() < 2:
        raise NotDrawn("no measured runs under two SSD classes (outcore-ssd)")

    def tick(name: str) -> str:
        shown = "bare device" if name == BARE else name
        return f"{shown}\n{rates[name] / 1000:,.0f}k reads/s" if rates[name] else shown

    canvas, _ = draw_bars(data, tick=tick, **SPEC["ssd"])
    note = "4 KiB random reads of the device under each class as measured"
    reduced = left_out(order, [*order, SLOW] if SLOW not in order else order, "SSD classes")
    return drawn(canvas, data, group, note, reduced, points=group.done)
