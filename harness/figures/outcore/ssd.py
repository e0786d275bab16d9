"""outcore-ssd: epoch time of every disk system on SSD classes with fewer or more requests a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import NotDrawn
from harness.figures.base import (
    Drawing,
    Figure,
    Plain,
    add_caption,
    caption,
    gallery,
    left_out,
    only_systems,
    register,
    values,
)
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars

SYSTEMS = ["pyg+", "ginex", "gnndrive", "diskgnn", "outcore"]
# A cloud SSD with few requests a second: unscaled, still fewer than the scaled class of the profiles.
SLOW = "aws-gp3"
BARE = "none"


def classes(profile: Plain) -> list[str]:
    """Return the profile's SSD class, one with fewer requests a second, and the bare device."""
    own = str(profile["run"].get("disk_class", BARE))
    return values(profile, "disk_classes", list(dict.fromkeys([own, SLOW, BARE])))


def over_classes(profile: Plain) -> Plan:
    """Plan the profile's capped systems on each SSD class."""
    return grid(
        gallery(profile), only_systems(profile, SYSTEMS), {name: {"disk_class": name} for name in classes(profile)}
    )


def request_rate(record: Mapping[str, Any]) -> float:
    """Return the device's 4 KiB random reads per second under a run's limits, 0 if not measured."""
    profile = record.get("disk", {}).get("limited") or record.get("disk", {}).get("bare") or {}
    rates = [p["iops"] for p in profile.get("points", []) if p["pattern"] == "random" and p["block_bytes"] == 4096]
    return float(max(rates, default=0.0))


def draw(evidence: Evidence) -> Drawing:
    """Draw a group of bars for each class, slowest first; raise NotDrawn below two measured classes."""
    group = evidence.points(over_classes)
    rates = {str(point.x): 0.0 for point in group.points}
    for point in group.points:
        rates[str(point.x)] = max(rates[str(point.x)], request_rate(point.record))
    order = sorted(rates, key=lambda name: (rates[name], name == BARE))
    systems = style.ordered([point.system for point in group.points])
    found = {(point.system, str(point.x)): point for point in group.points}
    rows = []
    for name in order:
        for system in systems:
            at = found.get((system, name))
            rows.append(
                {
                    "group": name,
                    "series": system,
                    "value": at.value if at else None,
                    "low": at.low if at else None,
                    "high": at.high if at else None,
                    "status": at.status if at else "not run",
                    "reads_per_s": rates[name] or None,
                    "run": at.record["run_id"] if at else "",
                }
            )
    data = pd.DataFrame(rows)
    if data.loc[data["value"].notna(), "group"].nunique() < 2:
        raise NotDrawn("no measured runs under two SSD classes (outcore-ssd)")

    def tick(name: str) -> str:
        shown = "bare device" if name == BARE else name
        return f"{shown}\n{rates[name] / 1000:,.0f}k reads/s" if rates[name] else shown

    canvas, _ = draw_bars(data, title="Epoch time by SSD class", ylabel="epoch (s)", log=True, tick=tick)
    extra = "4 KiB random reads of the device under each class as measured"
    reduced = left_out(order, [*order, SLOW] if SLOW not in order else order, "SSD classes")
    measured = [point for point in group.points if point.value is not None]
    text = caption(group, measured, f"{extra}; {reduced}" if reduced else extra)
    add_caption(canvas, text)
    return Drawing(canvas, data, text, group.runs())


register(Figure("outcore-ssd", over_classes, draw))
