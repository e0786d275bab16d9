"""DiskGNN Fig. 17: preprocessing with batched and with individual packing."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, published, register
from harness.figures.diskgnn.grid import entries, longer, percent, preparation_s, shares_of
from harness.figures.draw.stacks import draw_stacks

METHODS = ["batched", "individual"]
PARTS = ["packing: reading and writing rows", "sampling, ranking, search"]


def over_memory(profile: Plain) -> Plan:
    """Plan diskgnn with batched and with individual packing at each share of memory."""
    methods = [
        {**entry, "series": method} for method in METHODS for entry in entries(profile, ["diskgnn"], packing=method)
    ]
    return grid(longer(profile), methods, {share: {"memory": f"{share:g}x"} for share in shares_of(profile)})


def draw(evidence: Evidence) -> Drawing:
    """Draw preprocessing time by method and memory, packing as a part; raise NotDrawn without a pair to compare."""
    group = evidence.points(over_memory, least=1)
    rows: list[Plain] = []
    totals: dict[tuple[float, str], tuple[float, float]] = {}
    for point in group.points:
        share, method = float(point.x), point.system
        bar = f"{percent(share)}\n{method}"
        facts = point.record["facts"]
        if point.value is None or facts.get("pack_s") is None:
            rows.append({"bar": bar, "part": PARTS[0], "value": None, "status": point.status})
            continue
        packing, whole = facts["pack_s"], preparation_s(point.record)
        totals[share, method] = (whole, packing)
        for part, value in ((PARTS[0], packing), (PARTS[1], max(0.0, whole - packing))):
            rows.append(
                {
                    "bar": bar,
                    "part": part,
                    "value": value,
                    "status": "ok",
                    "read_bytes": facts.get("pack_read_bytes"),
                    "run": point.record["run_id"],
                }
            )
    both = [share for share, method in totals if method == METHODS[1] and (share, METHODS[0]) in totals]
    if not both:
        raise NotDrawn("at no share of memory was diskgnn prepared with both ways of packing")
    table = pd.DataFrame(rows)
    canvas, _ = draw_stacks(
        table,
        title="Preprocessing",
        ylabel="preprocessing (s)",
        xlabel="memory over the features",
        parts=PARTS,
        numbers=".1f",
    )
    said = ", ".join(
        f"{percent(share)} {totals[share, METHODS[1]][0] / totals[share, METHODS[0]][0]:.1f}x "
        f"(packing alone {totals[share, METHODS[1]][1] / max(1e-9, totals[share, METHODS[0]][1]):.1f}x)"
        for share in sorted(both)
    )
    paper = published("diskgnn-fig17")
    mean = f"; paper: {float(paper['value'].iloc[0]):g}x on average" if len(paper) else ""
    text = caption(group, None, f"individual over batched: {said}{mean}")
    add_caption(canvas, text)
    return Drawing(canvas, table, text, runs=group.runs())


register(Figure("diskgnn-fig17", over_memory, draw))
