"""DiskGNN Fig. 19: epoch time by stage without overlap of stages."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, gallery, register
from harness.figures.diskgnn.grid import SYSTEMS, entries
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.draw.stacks import draw_stacks

PARTS = ["graph sample", "graph load", "feature load", "feature assemble", "model train", "other"]
# A moment belongs to the first part with an open stage; the stages' names are the systems' own.
ORDER = (
    ("feature load", ("extract", "read", "data_prep", "switch", "load")),
    ("graph load", ("load_graph",)),
    ("feature assemble", ("gather", "assemble", "cache_update", "transfer", "lane:copy")),
    ("model train", ("train", "lane:compute")),
    ("graph sample", ("sample", "inspect")),
)
#: Options for the fewest mini-batches in flight with which each system works.
SEQUENTIAL: dict[str, Plain] = {
    "ginex": {"pipelined": False, "samplers": 1, "readers": 1, "batch_inputs": 1, "device_buffers": 1},
    "mariusgnn": {"sampling_workers": 1, "prefetch": 1},
    "diskgnn": {"pipeline": False},
}


def sequential(profile: Plain) -> Plan:
    """Plan the three systems with the `SEQUENTIAL` options."""
    short = gallery(profile)
    systems = [entry for system in SYSTEMS for entry in entries(short, [system], **SEQUENTIAL[system])]
    return grid(short, systems, {"": {}})


def draw(evidence: Evidence) -> Drawing:
    """Draw one bar per system, stacked by stage; raise NotDrawn without a measured epoch."""
    group = evidence.points(sequential, least=1)
    points = {point.system: point for point in group.points}
    rows: list[Plain] = []
    for system in SYSTEMS:
        point = points.get(system)
        if point is None or point.value is None:
            status = "not run" if point is None else point.status
            rows.append({"bar": system, "part": PARTS[0], "value": None, "status": status})
            continue
        found = run_breakdown(point, ORDER, PARTS[-1])
        rows += [
            {"bar": system, "part": part, "value": found[part], "status": "ok", "run": point.record["run_id"]}
            for part in PARTS
        ]
    table = pd.DataFrame(rows)
    if table["value"].isna().all():
        raise NotDrawn("no system has a measured epoch with its pipeline off")
    canvas, _ = draw_stacks(
        table, title="Epoch by stage, pipelines off", ylabel="epoch time (s)", parts=PARTS, numbers=".2f"
    )
    text = caption(
        group,
        [point for point in group.points if point.value is not None],
        "ginex with one sampler, reader and buffer, mariusgnn with one sampler and one mini-batch ahead: what still "
        "overlaps counts as loading, then assembling, then training",
    )
    add_caption(canvas, text)
    return Drawing(canvas, table, text, runs=group.runs())


register(Figure("diskgnn-fig19", sequential, draw))
