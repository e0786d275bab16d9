"""PaGraph Fig. 12: where a GCN epoch goes on one device, with the loading that PaGraph hides behind computation."""

from __future__ import annotations

from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, register
from harness.figures.evidence import Evidence
from harness.figures.pagraph_grid import FAMILY, both_models, by_model, need_systems
from harness.figures.pagraph_parts import NOTE, PARTS, part_rows
from harness.figures.stacks import draw_stacks


def needs(profile: Plain) -> list[Plain]:
    """The GCN half of Fig. 11's runs."""
    return [content for content in both_models(profile, "pagraph-fig12", FAMILY) if content["run"]["model"] == "gcn"]


def draw(evidence: Evidence) -> Drawing:
    """A stacked bar a system."""
    group = by_model(evidence.frame, "neighbor", FAMILY)
    need_systems(group, ["dgl"], "gcn")
    found = {point.system: point for point in group.points if point.x == "gcn"}
    points = [found[name] for name in FAMILY if name in found]
    rows = part_rows(points, "gcn")
    canvas, _ = draw_stacks(rows, title="GCN epoch by part", ylabel="epoch (s)", parts=PARTS)
    text = caption(group, points, NOTE)
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, [str(point.record["run_id"]) for point in points])


register(
    Figure(
        "pagraph-fig12", "pagraph", "GCN epoch on one device by part", needs, draw,
        full="six graphs x DGL, PaGraph, DGL+PP, PaGraph+PP",
    )
)  # fmt: skip
