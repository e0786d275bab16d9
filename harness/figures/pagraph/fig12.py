"""PaGraph Fig. 12: a GCN epoch by part on one device, with the loading that PaGraph hides behind computation."""

from __future__ import annotations

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, register
from harness.figures.draw.stacks import draw_stacks
from harness.figures.pagraph.grid import FAMILY, by_model, need_systems
from harness.figures.pagraph.parts import NOTE, PARTS, part_rows


def planned(profile: Plain) -> Plan:
    """Plan the GCN half of Fig. 11's runs."""
    return by_model(profile, FAMILY, "gcn")


def draw(evidence: Evidence) -> Drawing:
    """Draw one stacked bar per system."""
    group = evidence.points(planned, least=1)
    need_systems(group, ["dgl"], "gcn")
    found = {point.system: point for point in group.points if point.x == "gcn"}
    points = [found[name] for name in FAMILY if name in found]
    rows = part_rows(points, "gcn")
    canvas, _ = draw_stacks(rows, title="GCN epoch by part", ylabel="epoch (s)", parts=PARTS)
    text = caption(group, points, NOTE)
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, [str(point.record["run_id"]) for point in points])


register(Figure("pagraph-fig12", planned, draw))
