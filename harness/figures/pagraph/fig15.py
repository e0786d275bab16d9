"""PaGraph Fig. 15: throughput over the number of devices."""

from __future__ import annotations

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, left_out, register
from harness.figures.draw.curves import draw_curves
from harness.figures.pagraph.devices import NOTE, RANKS, on_devices, rate_rows
from harness.figures.pagraph.grid import HIDDEN, NAMES

SYSTEMS = ["pagraph"]


def planned(profile: Plain) -> Plan:
    """Plan pagraph, the only system of the family for several devices, with both models on each number of devices."""
    return on_devices(profile, list(HIDDEN), SYSTEMS)


def draw(evidence: Evidence) -> Drawing:
    """Draw a curve for each model; raise NotDrawn with fewer than two measured numbers of devices."""
    group = evidence.points(planned)
    rows = rate_rows(group, NAMES)
    if rows.loc[rows["y"].notna(), "x"].nunique() < 2:
        raise NotDrawn("no measured runs of pagraph on several devices (pagraph-fig15)")
    canvas, axes = draw_curves(
        rows, title="Throughput over devices", xlabel="devices", ylabel="thousand seed nodes / s"
    )
    counts = sorted(set(rows["x"]))
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_ylim(bottom=0)
    extra = (
        f"{NOTE}; without preprocessing; dgl, dgl+pp and pagraph+pp train in one process and have no line; "
        f"{left_out(counts, RANKS, 'devices')}"
    ).removesuffix("; ")
    text = caption(group, [point for point in group.points if point.value is not None], extra)
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, group.runs())


register(Figure("pagraph-fig15", planned, draw))
