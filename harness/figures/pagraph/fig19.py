"""PaGraph Fig. 19: epoch time over the number of sampled neighbours."""

from __future__ import annotations

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, left_out, register, values
from harness.figures.draw.curves import draw_curves
from harness.figures.pagraph.grid import FAMILY, setting

NEIGHBOURS = [2, 4, 8, 16]


def over_neighbours(profile: Plain) -> Plan:
    """Plan the four systems with GCN at each number of sampled neighbours."""
    counts = values(profile, "neighbours", NEIGHBOURS)
    return grid(setting(profile), FAMILY, {count: {"fanout": [count, count]} for count in counts})


def draw(evidence: Evidence) -> Drawing:
    """Draw one line per system on logarithmic axes."""
    group = evidence.points(over_neighbours)
    rows = group.frame().rename(columns={"system": "series", "value": "y"})
    base = {point.x: point.value for point in group.points if point.system == "dgl"}
    rows["speedup"] = [base[x] / y if base.get(x) and y else None for x, y in zip(rows["x"], rows["y"], strict=True)]
    canvas, _ = draw_curves(
        rows,
        title="GCN epoch over sampled neighbours",
        xlabel="neighbours a node and layer",
        ylabel="epoch (s)",
        xlog=True,
        ylog=True,
    )
    counts = sorted(set(rows["x"]))
    text = caption(
        group, None, "both layers take as many neighbours; " + left_out(counts, NEIGHBOURS, "neighbours")
    ).replace("; .", ".")
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, group.runs())


register(Figure("pagraph-fig19", over_neighbours, draw))
