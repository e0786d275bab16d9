"""DiskGNN Fig. 18: epoch time as device cache, host cache and packing are added."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, gallery, published, register
from harness.figures.diskgnn.grid import bar_row, entries
from harness.figures.draw.bars import draw_bars

# Options that switch parts off at each step, from the bottom up.
STEPS: dict[str, Plain] = {
    "naive": {"device_cache": "off", "host_cache": "off", "packing": "off", "disk_cache": "off"},
    "+ device cache": {"host_cache": "off", "packing": "off", "disk_cache": "off"},
    "+ host cache": {"packing": "off", "disk_cache": "off"},
    "+ packing": {},
}


def steps(profile: Plain) -> Plan:
    """Plan diskgnn at each step."""
    short = gallery(profile)
    return grid(short, entries(short, ["diskgnn"]), {step: {"options": options} for step, options in STEPS.items()})


def draw(evidence: Evidence) -> Drawing:
    """Draw each step's epoch time over that with packing; raise NotDrawn if that step has no epoch."""
    group = evidence.points(steps, least=1)
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
        table,
        title="Adding the parts of DiskGNN",
        ylabel="epoch time over that with packing (x)",
        log=True,
        numbers=".3g",
    )
    text = caption(
        group,
        [point for point in points.values() if point.value is not None],
        f"with packing {last.value:.2f} s; paper: Friendster",
    )
    add_caption(canvas, text)
    return Drawing(canvas, table, text, runs=group.runs())


register(Figure("diskgnn-fig18", steps, draw))
