"""DiskGNN Fig. 12: epoch time over the disk-space limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.figures import style
from harness.figures.bars import draw_bars
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, published, register, values
from harness.figures.diskgnn_grid import bar_row, entries, is_plain, is_share, longer, memory_share, shares_of
from harness.figures.evidence import Evidence
from harness.figures.panels import legend_above, many_panels
from harness.figures.query import NotDrawn, group_runs

LIMITS = ["7x", "5x", "3x"]
FREE = ("disk_limit", "io_granularity")
REFERENCE = "ginex"


def needs(profile: Plain) -> list[Plain]:
    """diskgnn, reading 4 KiB at least as in the paper, without a limit and with each; ginex beside it."""
    base = longer(profile)
    base["run"] = {**base["run"], "memory": f"{min(shares_of(profile)):g}x"}
    limits = ["none", *values(profile, "space_limits", LIMITS)]
    limited = [
        {**entry, "grid": {"options.disk_limit": limits}} for entry in entries(base, ["diskgnn"], io_granularity="4096")
    ]
    return [{**base, "name": "diskgnn-fig12", "systems": [*limited, *entries(base, [REFERENCE])]}]


def _where(config: Mapping[str, Any]) -> bool:
    options = config["options"]
    if not is_share(config) or not is_plain(config, *FREE):
        return False
    return options.get("io_granularity", "logical") == (
        "4096" if config["system"] == "diskgnn" else "logical"
    ) and config["system"] in ("diskgnn", REFERENCE)


def _limit(config: Mapping[str, Any]) -> str:
    return str(config["options"].get("disk_limit", REFERENCE)) if config["system"] == "diskgnn" else REFERENCE


def _size(limit: str) -> float:
    return {"none": float("inf"), REFERENCE: -1.0}.get(limit) or float(limit.rstrip("x"))


def draw(evidence: Evidence) -> Drawing:
    """Left: epoch time at each limit. Right: bytes read over bytes wanted, by the layout that fits it."""
    group = group_runs(evidence.frame, axis=_limit, ignore=[], where=_where)
    points = sorted(group.points, key=lambda point: -_size(str(point.x)))
    ours = [point for point in points if point.system == "diskgnn"]
    if len(ours) < 2:
        raise NotDrawn("diskgnn was run with fewer than two disk-space limits")
    features = _feature_bytes(ours[0].record)
    rows = []
    for point in points:
        notes = point.record.get("notes") or {}
        label = {"none": "no limit"}.get(str(point.x), str(point.x))
        row = bar_row(point, group=label, series=point.system)
        if point.system == "diskgnn" and "disk_bytes" in notes:
            row |= {
                "disk_x": float(notes["disk_bytes"]) / features, "amplification": float(notes["read_amplification"]),
                "segment": int(notes["segment"]),
            }  # fmt: skip
        rows.append(row)
    table = pd.DataFrame(rows)
    canvas, panels = many_panels(2)
    mine = table[table["series"] == "diskgnn"]
    draw_bars(
        mine, title="Epoch time", ylabel="epoch time (s)", xlabel="disk-space limit over the features",
        log=True, numbers=".2g", axes=panels[0],
    )  # fmt: skip
    beside = table[(table["series"] == REFERENCE) & table["value"].notna()]
    if len(beside):
        slow = float(beside["value"].iloc[0])
        panels[0].axhline(slow, color=style.look(REFERENCE).color, linestyle="--", label=REFERENCE)
        panels[0].set_ylim(top=1.3 * max(slow, float(mine["value"].max())))
    draw_bars(
        mine.assign(value=mine.get("amplification"), low=None, high=None), title="Read amplification of its layout",
        ylabel="bytes read over bytes wanted", xlabel="disk-space limit over the features", numbers=".2f",
        axes=panels[1],
    )  # fmt: skip
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
    text = caption(group, [point for point in points if point.value is not None],
                   f"{share}; reads of at least 4 KiB{own}" + (f" (paper: {said})" if said else ""))  # fmt: skip
    add_caption(canvas, text)
    return Drawing(canvas, table, text, runs=group.runs())


def _feature_bytes(record: Mapping[str, Any]) -> float:
    data = record["config"]["dataset"]
    return float(data["num_nodes"] * data["dim"] * (2 if data["dtype"] == "float16" else 4))


register(
    Figure(
        "diskgnn-fig12", "diskgnn", "Epoch time over the disk-space limit", needs, draw, claims=("dg-16", "dg-17"),
        full="no limit, 7x, 5x, 3x on Friendster and IGB260M",
    )
)  # fmt: skip
