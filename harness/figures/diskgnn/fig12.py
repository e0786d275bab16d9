"""DiskGNN Fig. 12: epoch time over the disk-space limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid, joined
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, published, register, values
from harness.figures.diskgnn.grid import bar_row, entries, longer, memory_share, shares_of
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.panels import legend_above, many_panels
from workloads.units import row_bytes

LIMITS = ["7x", "5x", "3x"]
REFERENCE = "ginex"


def over_limits(profile: Plain) -> Plan:
    """Plan diskgnn without and with each limit, reads of at least 4 KiB as in the paper, and ginex as the reference."""
    base = longer(profile)
    base["run"] = {**base["run"], "memory": f"{min(shares_of(profile)):g}x"}
    limits = {limit: {"options": {"disk_limit": limit}} for limit in ["none", *values(profile, "space_limits", LIMITS)]}
    ours = grid(base, entries(base, ["diskgnn"], io_granularity="4096"), limits)
    return joined([ours, grid(base, entries(base, [REFERENCE]), {REFERENCE: {}})])


def draw(evidence: Evidence) -> Drawing:
    """Draw epoch time by limit (left), read amplification (right); raise NotDrawn with fewer than two limits."""
    group = evidence.points(over_limits)
    points = group.points
    ours = [point for point in points if point.system == "diskgnn"]
    if len(ours) < 2:
        raise NotDrawn("diskgnn was run with fewer than two disk-space limits")
    features = _feature_bytes(ours[0].record)
    rows = []
    for point in points:
        facts = point.record["facts"]
        label = {"none": "no limit"}.get(str(point.x), str(point.x))
        row = bar_row(point, group=label, series=point.system)
        if point.system == "diskgnn" and facts.get("disk_bytes") is not None:
            row |= {
                "disk_x": facts["disk_bytes"] / features,
                "amplification": facts["read_amplification"],
                "segment": facts["segment"],
            }
        rows.append(row)
    table = pd.DataFrame(rows)
    canvas, panels = many_panels(2)
    mine = table[table["series"] == "diskgnn"]
    draw_bars(
        mine,
        title="Epoch time",
        ylabel="epoch time (s)",
        xlabel="disk-space limit over the features",
        log=True,
        numbers=".2g",
        axes=panels[0],
    )
    beside = table[(table["series"] == REFERENCE) & table["value"].notna()]
    if len(beside):
        slow = float(beside["value"].iloc[0])
        panels[0].axhline(slow, color=style.look(REFERENCE).color, linestyle="--", label=REFERENCE)
        panels[0].set_ylim(top=1.3 * max(slow, float(mine["value"].max())))
    draw_bars(
        mine.assign(value=mine.get("amplification"), low=None, high=None),
        title="Read amplification of its layout",
        ylabel="bytes read over bytes wanted",
        xlabel="disk-space limit over the features",
        numbers=".2f",
        axes=panels[1],
    )
    legend_above(canvas, panels)
    unlimited = mine.loc[mine["group"] == "no limit"].get("disk_x")
    own = (
        f"; no limit takes {float(unlimited.iloc[0]):.2f}x with graphs and caches"
        if unlimited is not None and len(unlimited)
        else ""
    )
    paper = published("diskgnn-fig12")
    said = ", ".join(f"{s} {v:g}x" for s, v in zip(paper["series"], paper["value"], strict=True))
    share = f"memory {100 * memory_share(points[0].record['config']):g} % of the features"
    text = caption(
        group,
        [point for point in points if point.value is not None],
        f"{share}; reads of at least 4 KiB{own}" + (f" (paper: {said})" if said else ""),
    )
    add_caption(canvas, text)
    return Drawing(canvas, table, text, runs=group.runs())


def _feature_bytes(record: Mapping[str, Any]) -> float:
    data = record["config"]["dataset"]
    return float(data["num_nodes"] * row_bytes(data["dim"], data["dtype"]))


register(Figure("diskgnn-fig12", over_limits, draw))
