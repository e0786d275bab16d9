"""DiskGNN Fig. 17: preprocessing with batched and with individual packing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, published, register
from harness.figures.diskgnn_grid import (
    entries,
    is_plain,
    is_share,
    memory_share,
    over_memory,
    percent,
    preparation_s,
)
from harness.figures.evidence import Evidence
from harness.figures.query import NotDrawn, Point, group_runs
from harness.figures.stacks import draw_stacks

METHODS = ["batched", "individual"]
PARTS = ["packing: reading and writing rows", "sampling, ranking, search"]


def needs(profile: Plain) -> Plain:
    """diskgnn with either packing at each share of memory."""
    systems = [entry for method in METHODS for entry in entries(profile, ["diskgnn"], packing=method)]
    return over_memory(profile, "diskgnn-fig17", systems)


def _where(config: Mapping[str, Any]) -> bool:
    usual = is_plain(config, "packing") and config["options"].get("packing", METHODS[0]) in METHODS
    return config["system"] == "diskgnn" and is_share(config) and usual


def _x(config: Mapping[str, Any]) -> str:
    return f"{memory_share(config):g} {config['options'].get('packing', METHODS[0])}"


def draw(evidence: Evidence) -> Drawing:
    """Two bars a share of memory, packing's part told apart."""
    group = group_runs(evidence.frame, axis=_x, ignore=["memory"], where=_where)
    rows: list[Plain] = []
    totals: dict[tuple[float, str], tuple[float, float]] = {}
    for point in sorted(group.points, key=_order):
        share, method = _parts(point)
        bar = f"{percent(share)}\n{method}"
        notes = point.record.get("notes") or {}
        if point.value is None or "pack_s" not in notes:
            rows.append({"bar": bar, "part": PARTS[0], "value": None, "status": point.status})
            continue
        packing, whole = float(notes["pack_s"]), preparation_s(point.record)
        totals[share, method] = (whole, packing)
        for part, value in ((PARTS[0], packing), (PARTS[1], max(0.0, whole - packing))):
            rows.append(
                {"bar": bar, "part": part, "value": value, "status": "ok", "read_bytes": notes.get("pack_read_bytes"),
                 "run": point.record["run_id"]}
            )  # fmt: skip
    both = [share for share, method in totals if method == METHODS[1] and (share, METHODS[0]) in totals]
    if not both:
        raise NotDrawn("at no share of memory was diskgnn prepared with both ways of packing")
    table = pd.DataFrame(rows)
    canvas, _ = draw_stacks(
        table, title="Preprocessing", ylabel="preprocessing (s)", xlabel="memory over the features", parts=PARTS,
        numbers=".1f",
    )  # fmt: skip
    said = ", ".join(
        f"{percent(share)} {totals[share, METHODS[1]][0] / totals[share, METHODS[0]][0]:.1f}x "
        f"(packing alone {totals[share, METHODS[1]][1] / max(1e-9, totals[share, METHODS[0]][1]):.1f}x)"
        for share in sorted(both)
    )
    paper = published("diskgnn-fig17")
    mean = f"; paper: {float(paper['value'].iloc[0]):g}x on average" if len(paper) else ""
    text = caption(group, None, f"batched over individual: {said}{mean}")
    add_caption(canvas, text)
    return Drawing(canvas, table, text, runs=group.runs())


def _parts(point: Point) -> tuple[float, str]:
    share, method = str(point.x).split()
    return float(share), method


def _order(point: Point) -> tuple[float, int]:
    share, method = _parts(point)
    return share, METHODS.index(method)


register(
    Figure(
        "diskgnn-fig17", "diskgnn", "Batched and individual packing", needs, draw, claims=("dg-10",),
        full="four datasets at 10 % of the features",
    )
)  # fmt: skip
