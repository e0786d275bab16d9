"""Ginex's tables: 2 (expanded datasets) and 4 (performance per dollar)."""

from __future__ import annotations

import pandas as pd

from harness.compare.cells import Cells
from harness.compare.evidence import Evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Sheet, figure, figure_of_cells, paper_frame, sheet
from harness.figures.draw.captions import dataset_name, row_texts
from harness.figures.findings import spans, wide
from harness.figures.ginex.caches import expansions
from harness.figures.ginex.parts import BASE, SYSTEMS
from harness.figures.grids import in_gallery
from harness.studies.base import StudyNeed
from workloads.arraytypes import JsonDict

#: Places in the result of the study `expansion`, and their columns in Table 2.
EXPANSION = {
    "base.num_nodes": "base nodes",
    "base.num_edges": "base edges",
    "num_nodes": "nodes",
    "num_edges": "edges",
    "total_bytes": "size",
    "copies": "copies",
    "base.top1_degree_share": "top 1 % of base",
    "result.top1_degree_share": "top 1 %",
    "base.homophily": "homophily of base",
    "result.homophily": "homophily",
}
#: Formats of the columns of the tables.
FORMATS_2 = {
    "dataset": "",
    "expansion": "",
    "base nodes": "count",
    "base edges": "count",
    "nodes": "count",
    "edges": "count",
    "size": "bytes",
    "copies": ".4g",
    "top 1 % of base": ".2f",
    "top 1 %": ".2f",
    "homophily of base": ".2f",
    "homophily": ".2f",
}
FORMATS_4 = {
    "dataset": "",
    "side": "",
    "system": "",
    "hourly cost": "dollars",
    "cost reduction": ".2f",
    "performance": ".2f",
    "performance/$": ".2f",
    "least": ".2f",
    "most": ".2f",
}


def expanded(profile: JsonDict) -> list[StudyNeed]:
    """Return the expansion study of each dataset."""
    return [
        StudyNeed("expansion", {"dataset": name}, {name: recipe})
        for name, recipe in expansions(profile).items()
    ]


@figure("ginex-tab2", studies=expanded)
def tab2(evidence: Evidence) -> Sheet:
    """Return counts and bytes of base and result, and skew and homophily before and
    after expansion."""
    records = sorted(evidence.all_studies("expansion"), key=dataset_name)
    ours = pd.json_normalize([record.result for record in records]).rename(
        columns=EXPANSION
    )
    names = [
        f"{dataset_name(record)} (dim {record.result['dim']})" for record in records
    ]
    base = ours.base_name.replace("", "a drawn base")
    ours = ours.assign(
        dataset=names, source="ours", expansion=ours.kind + " of " + base
    )
    paper = paper_frame("ginex-tab2").reindex(columns=list(EXPANSION.values()))
    theirs = paper.assign(
        dataset=paper.index.astype(str) + " (paper)",
        source="paper",
        expansion="fractal",
    )
    theirs["copies"] = paper.nodes / paper["base nodes"]
    rows = pd.concat([ours, theirs])[
        ["dataset", "source", "expansion", *EXPANSION.values()]
    ]
    caption = (
        "Top 1 %: share of all edges into the 1 % of nodes with most in-neighbours; "
        "copies: nodes over the base's. `kronecker` is the plain product with a seed "
        "graph, `fractal` the randomised expansion of the paper. Sizes are of all "
        "files, the paper's at dimension 256."
    )
    shares = ours.assign(
        before=100 * ours["top 1 % of base"], after=100 * ours["top 1 %"]
    )
    changes = row_texts(shares, "{dataset} {before:.0f} and {after:.0f} %")
    finding = (
        f"Edges into the top 1 % of the nodes, before and after expansion: {changes}"
    )
    return sheet(rows, FORMATS_2, caption, finding=finding)


@figure_of_cells("ginex-tab4", lambda profile: in_gallery(profile, SYSTEMS), least=1)
def tab4(cells: Cells) -> Sheet:
    """Return performance per dollar of the paper and of each measured system; raise
    NotDrawn without two.

    The distributed run is modelled: the paper's speeds of Ginex over DistDGL and over
    PyG+ give that of DistDGL over PyG+, and our pyg+ stands for PyG+. A system's speed
    over DistDGL's, at the price of Ginex's machine, is its performance per dollar.
    """
    paper = paper_frame("ginex-tab4")
    if paper.empty:
        raise NotDrawn(
            "the paper's prices are not there (harness/published/ginex-tab4.csv)"
        )
    table = cells.medians().dropna(subset="value")
    base_s = table.value[table.system == BASE]
    if base_s.empty or len(table) < 2:
        raise NotDrawn(f"{BASE} and another system of the paper were not both measured")
    mean, least, most = (
        float(paper[f"ginex over pyg+ {name}"]["all"])
        for name in ("mean", "least", "most")
    )
    names = {
        "hourly cost reduction": "cost reduction",
        "performance per dollar": "performance/$",
    }
    prices = (
        paper.drop(index=["all", "Ginex"])
        .rename(columns=names)
        .rename_axis("dataset")
        .reset_index()
    )
    prices["hourly cost"] = paper["hourly cost"]["Ginex"]
    ginex = prices.assign(side="paper", system="Ginex")
    distributed = ginex.assign(system="DistDGL, 8 nodes")
    distributed["hourly cost"] = prices["distdgl hourly cost"]
    distributed[["cost reduction", "performance", "performance/$"]] = 1.0

    ours = prices.merge(table, how="cross").rename(columns={"value": "epoch_s"})
    ours = ours.assign(side="measured / modelled", base_epoch_s=base_s.item())
    speed = ours.performance * (ours.base_epoch_s / ours.epoch_s)
    reduction = ours["cost reduction"]
    ours["performance"] = speed / mean
    ours["performance/$"] = speed / mean * reduction
    ours["least"] = speed / most * reduction
    ours["most"] = speed / least * reduction

    every = pd.concat([distributed, ginex, ours]).sort_values("dataset", kind="stable")
    rows = every[[*FORMATS_4, "epoch_s", "base_epoch_s", "run"]]
    note = (
        "the distributed side is MODELLED, no cluster was run: DistDGL's speed over "
        f"pyg+ is the paper's, with Ginex at {mean:g}x of PyG+ ({least:g}x to "
        f"{most:g}x for least and most); prices of Google Cloud and dataset names are "
        "the paper's"
    )
    by_system = wide(ours, "performance/$", "dataset")
    most_first = by_system[by_system.mean().sort_values(ascending=False).index]
    before = "By the model, a dollar buys this much of DistDGL's performance: "
    finding = spans(most_first, "{span} times with {name}", before=before)
    return sheet(rows, FORMATS_4, cells, note, finding=finding)
