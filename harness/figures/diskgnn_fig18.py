"""DiskGNN Fig. 18: what device cache, host cache and packing each add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.figures.bars import draw_bars
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, gallery, published, register
from harness.figures.diskgnn_grid import bar_row, entries, is_plain
from harness.figures.evidence import Evidence
from harness.figures.query import NotDrawn, group_runs

# From the bottom up: what each step has switched off.
STEPS: dict[str, Plain] = {
    "naive": {"device_cache": "off", "host_cache": "off", "packing": "off", "disk_cache": "off"},
    "+ device cache": {"host_cache": "off", "packing": "off", "disk_cache": "off"},
    "+ host cache": {"packing": "off", "disk_cache": "off"},
    "+ packing": {},
}
FREE = ("device_cache", "host_cache", "packing", "disk_cache")


def needs(profile: Plain) -> Plain:
    """diskgnn at each step."""
    short = gallery(profile)
    systems = [entry for options in STEPS.values() for entry in entries(short, ["diskgnn"], **options)]
    return {**short, "name": "diskgnn-fig18", "systems": systems}


def step_of(config: Mapping[str, Any]) -> str | None:
    """Which step a run of diskgnn is; None for any other choice of options."""
    options = config["options"]
    usual = {"device_cache": "auto", "host_cache": "auto", "packing": "batched", "disk_cache": "auto"}
    for step, changed in STEPS.items():
        if all(options.get(name, usual[name]) == value for name, value in {**usual, **changed}.items()):
            return step
    return None


def _where(config: Mapping[str, Any]) -> bool:
    return config["system"] == "diskgnn" and is_plain(config, *FREE) and step_of(config) is not None


def draw(evidence: Evidence) -> Drawing:
    """Epoch times over that of the last step, whose own is in the caption."""
    group = group_runs(evidence.frame, axis=step_of, ignore=[], where=_where)
    points = {str(point.x): point for point in group.points}
    last = points.get("+ packing")
    if last is None or not last.value:
        raise NotDrawn("diskgnn with all its parts has no measured epoch to compare with")
    paper = {
        str(x): float(value) for x, value in zip(*(published("diskgnn-fig18")[c] for c in ("x", "value")), strict=True)
    }
    rows = []
    for step in STEPS:
        point = points.get(step)
        if point is None:
            row: Plain = {"group": step, "series": "diskgnn", "value": None, "status": "not run"}
        else:
            row = bar_row(point, group=step, series="diskgnn")
            row["epoch_s"] = row["value"]
            for name in ("value", "low", "high"):
                row[name] = None if row[name] is None else row[name] / last.value
        row["paper"] = paper[step] / paper["+ packing"] if step in paper else None
        rows.append(row)
    table = pd.DataFrame(rows)
    canvas, _ = draw_bars(
        table, title="Adding the parts of DiskGNN", ylabel="epoch time over that with packing (x)", log=True,
        numbers=".3g",
    )  # fmt: skip
    text = caption(
        group, [point for point in points.values() if point.value is not None],
        f"with packing {last.value:.2f} s; paper: Friendster",
    )  # fmt: skip
    add_caption(canvas, text)
    return Drawing(canvas, table, text, runs=group.runs())


register(
    Figure(
        "diskgnn-fig18", "diskgnn", "Adding device cache, host cache, packing", needs, draw,
        claims=("dg-20", "dg-22", "dg-24"), full="Friendster and papers100M",
    )
)  # fmt: skip
