"""outcore-ssd: the epoch time of each system under classes of SSD, slowest class
first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.compare.cells import Cells, with_absent
from harness.compare.plan import Plan, grid
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_cells
from harness.figures.draw import style
from harness.figures.draw.bars import as_bars
from harness.figures.draw.captions import left_out
from harness.figures.draw.dots import draw_dots
from harness.figures.draw.words import in_words
from harness.figures.findings import ratios, wide
from harness.figures.grids import gallery, only_systems, values
from harness.figures.over_axis import LEAST_TIMES, Places, fastest
from workloads.arraytypes import JsonDict

SYSTEMS = ["pyg+", "ginex", "gnndrive", "diskgnn", "agnes", "outcore"]
#: A cloud SSD with few requests a second: unscaled, still fewer than the scaled class
#: of the profiles.
SLOW = "aws-gp3"
BARE = "none"
NAMES = {BARE: "the bare device"}


def over_classes(profile: JsonDict) -> Plan:
    """Plan the capped systems on the profile's SSD class, one with fewer requests a
    second, and the bare device."""
    own = str(profile["run"].get("disk_class", BARE))
    classes = values(profile, "disk_classes", list(dict.fromkeys([own, SLOW, BARE])))
    return grid(
        gallery(profile),
        only_systems(profile, SYSTEMS),
        {name: {"disk_class": name} for name in classes},
    )


@figure_of_cells("outcore-ssd", over_classes)
def ssd(cells: Cells) -> Drawing:
    """Draw a group of dots for each class; raise NotDrawn below two measured
    classes."""
    medians = cells.medians()
    drives = (
        pd.DataFrame(map(drive_rates, medians.record))
        .groupby(medians.x, sort=False)
        .max()
    )
    drives["bare"] = drives.index == BARE
    drives = drives.sort_values(["reads_per_s", "bare"], na_position="first")
    order = list(drives.index)
    rows = with_absent(medians, style.ordered(cells.systems), order)
    data = as_bars(rows).drop(columns="run")
    data["reads_per_s"] = rows.x.map(drives.reads_per_s)
    data["bytes_per_s"] = rows.x.map(drives.bytes_per_s)
    data["run"] = rows.run
    if data.dropna(subset="value").group.nunique() < 2:
        raise NotDrawn("no measured runs under two SSD classes (outcore-ssd)")
    labels = {name: _label(name, drives.loc[name]) for name in order}
    ylabel = "epoch (s, log)"
    canvas, _ = draw_dots(
        data,
        tick=labels.__getitem__,
        title="Epoch time by SSD class",
        ylabel=ylabel,
        joined=True,
    )
    note = "below each class its 4 KiB random reads and its bandwidth, as measured"
    every = order if SLOW in order else [*order, SLOW]
    omitted = left_out(order, every, "SSD classes")
    places = Places(order, lambda name: NAMES.get(name, name), "on")
    ranked = medians.set_index("x").loc[order].reset_index()
    parts = [fastest(ranked, places), _gains(data, order[0], order[-1])]
    finding = "; ".join(filter(None, parts))
    return drawn(canvas, data, cells, note, omitted, finding=finding, places=places)


def _gains(data: pd.DataFrame, slowest: str, best: str) -> str:
    """Return the sentence on the systems that gain most and least from the slowest to
    the fastest class.

    It is empty where fewer than two systems were measured on both.
    """
    gains = (
        ratios(wide(data, index="series", columns="group"), slowest, best)
        .set_index("series")
        .times
    )
    if len(gains) < 2:
        return ""
    least, most = gains.sort_values().index[[0, -1]]
    name = NAMES.get(best, best)
    others = _slower_between(data, slowest)
    return (
        f"on {name}, {most} is {gains[most]:.2g} times as fast as on {slowest}, "
        f"{least} {gains[least]:.2g} times{others}"
    )


def _slower_between(data: pd.DataFrame, slowest: str) -> str:
    """Return the clause on systems that take longer on a class other than that with the
    fewest reads a second; empty without any."""
    seconds = wide(data, index="series", columns="group").dropna(subset=slowest)
    over = seconds.div(seconds[slowest], axis=0).drop(columns=slowest)
    longest = over[over.max(axis=1) >= LEAST_TIMES].idxmax(axis=1)
    parts = []
    for name, own in longest.groupby(longest):
        verb = "is" if len(own) == 1 else "are"
        place = NAMES.get(str(name), str(name))
        parts.append(f"; {in_words(list(own.index))} {verb} slowest on {place}")
    return "".join(parts)


def drive_rates(record: Mapping[str, Any]) -> dict[str, float]:
    """Return 4 KiB random reads, and most bytes read, a second of the device under a
    run's limits; nan if unknown."""
    disk = record.get("disk", {})
    profile = disk.get("limited") or disk.get("bare") or {}
    columns = ["pattern", "block_bytes", "iops", "bytes_per_s"]
    points = pd.DataFrame(profile.get("points", []), columns=columns)
    random = points.query("pattern == 'random' and block_bytes == 4096")
    return {
        "reads_per_s": float(random.iops.max()),
        "bytes_per_s": float(points.bytes_per_s.max()),
    }


def _label(name: str, drive: pd.Series[float]) -> str:
    lines = ["bare device" if name == BARE else name]
    if drive.reads_per_s > 0:
        lines.append(f"{drive.reads_per_s / 1000:,.3g}k reads/s")
    if drive.bytes_per_s > 0:
        lines.append(f"{drive.bytes_per_s / 1e6:,.0f} MB/s")
    return "\n".join(lines)
