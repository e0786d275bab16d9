"""DiskGNN Table 3: share of the accesses by rank of the nodes."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.figures.base import Figure, Plain, Sheet, no_runs, published, register, study_caption
from harness.figures.diskgnn.grid import graphs, planning_needs
from harness.figures.draw.sheets import sheet
from harness.studies.base import StudyNeed

BOUNDS = [0.01, 0.05, 0.1]
BUCKETS = ["<1 %", "1-5 %", "5-10 %", ">10 %"]


def studies(profile: Plain) -> list[StudyNeed]:
    """Return studies of one epoch's accesses on the profile's graph, a flat one, and an R-MAT one."""
    name, recipe = graphs(profile)[0]
    rmat = {key: recipe[key] for key in ("nodes", "edges", "classes", "seed", "max_memory") if key in recipe}
    datasets = [*graphs(profile), (f"{name}-rmat", {**rmat, "kind": "rmat", "dim": 1})]
    return planning_needs(profile, "access-share", datasets=datasets, bounds=BOUNDS)


def draw(evidence: Evidence) -> Sheet:
    """Return one row per graph, ours first, then the paper's."""
    found = evidence.all_studies("access-share", where=lambda params: params["bounds"] == BOUNDS)
    rows = []
    for record in found:
        shares = dict(zip(BUCKETS, (100 * share for share in record.result["shares"]), strict=True))
        name = record.dataset.name if record.dataset else ""
        rows.append({"graph": name, "source": "ours", **shares, "touched": 100 * record.result["touched"]})
    paper = published("diskgnn-tab3")
    for graph, values in paper.groupby("series", sort=False):
        rows.append({"graph": graph, "source": "paper", **dict(zip(values["x"], values["value"], strict=True))})
    batches = ", ".join(str(record.result["batches"]) for record in found)
    text = study_caption(
        found[0], f"one epoch of {batches} mini-batches; in % of accesses; touched: nodes with any access"
    )
    columns = {"graph": "", "source": "", **dict.fromkeys(BUCKETS, ".1f"), "touched": ".1f"}
    return sheet(pd.DataFrame(rows), columns, text)


register(Figure("diskgnn-tab3", no_runs, draw, studies=studies))
