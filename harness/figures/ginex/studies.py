"""Ginex Fig. 5 (miss ratio over cache size) and Table 2 (expanded datasets), both drawn from studies."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Sheet, figure, paper_rows
from harness.figures.draw.captions import add_caption, dataset_name, study_caption
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.looks import SERIES
from harness.figures.draw.panels import legend_above, many_panels, plain_log
from harness.figures.draw.sheets import Formatter, sheet
from harness.figures.grids import gallery
from harness.records.study import StudyRecord
from harness.studies.base import StudyNeed
from harness.studies.miss_ratios import read_ratios
from workloads.units import format_bytes, format_count, parse_count

#: The two policies of Fig. 5 and their labels; the others are drawn in grey.
MAIN = {"degree": "PaGraph (static, by out-degree)", "belady": "optimal (Belady)"}
LOOKS = {MAIN["degree"]: SERIES[1], MAIN["belady"]: SERIES[0]}
OTHERS = {
    "lru": ("-", "#999999"),
    "fifo": (":", "#999999"),
    "lfu": ("--", "#999999"),
    "clock": ("-.", "#999999"),
    "sieve": ((0, (1, 1)), "#555555"),
    "s3-fifo": ((0, (5, 1, 1, 1, 1, 1)), "#555555"),
}
# Mini-batches of the trace: enough to request rows several times, as in one of the paper's superbatches.
BATCHES = 400
_MOST_PANELS = 2
# The randomised expansion flattens skew; a graph a tenth as large shows this and is made in seconds.
FRACTAL_SHARE = 0.1


def expansions(profile: Plain) -> dict[str, Plain]:
    """Return recipes of expanded datasets: the profile's own, a fractal one as in the paper, and all its others."""
    short = gallery(profile)
    own = short["run"]["dataset"]
    recipe = short["datasets"][own]
    found = {own: recipe}
    if recipe["kind"] != "fractal" and recipe.get("nodes"):
        sizes = {
            key: round(FRACTAL_SHARE * parse_count(recipe[key], key)) for key in ("nodes", "edges") if key in recipe
        }
        found[f"{own}-fractal"] = {**recipe, "kind": "fractal", **sizes}
    for name, other in short["datasets"].items():
        if other.get("kind") in ("kronecker", "fractal"):
            found.setdefault(name, other)
    return found


def traces(profile: Plain) -> list[StudyNeed]:
    """Return studies of the mini-batches' trace, on the profile's graph and on one expanded as in the paper."""
    run = gallery(profile)["run"]
    found = []
    for name, recipe in list(expansions(profile).items())[:_MOST_PANELS]:
        # A mini-batch must touch an equal share of a smaller graph.
        share = FRACTAL_SHARE if name == f"{run['dataset']}-fractal" else 1.0
        size = max(1, round(share * int(run["batch_size"])))
        params = {"dataset": name, "fanout": run["fanout"], "batch_size": size, "max_batches": BATCHES}
        found.append(StudyNeed("miss-ratios", params, {name: recipe}))
    return found


@figure("ginex-fig5", studies=traces)
def fig5(evidence: Evidence) -> Drawing:
    """Draw miss ratios of PaGraph's static cache and the optimal one, other policies in grey; one panel per dataset."""
    records = _longest_by_dataset(evidence)
    canvas, panels = many_panels(len(records), wide=len(records) > 1, height=2.5, sharey=True)
    tables = [_ratios(record) for record in records]
    for axes, record, table in zip(panels, records, tables, strict=True):
        for policy, (line, color) in OTHERS.items():
            mine = table[table["policy"] == policy]
            if len(mine):
                axes.plot(mine["x"], mine["y"], color=color, linestyle=line, linewidth=0.8, label=policy, zorder=1)
        draw_curves(
            table[table["policy"].isin(list(MAIN))],
            title=dataset_name(record),
            xlabel="cache size (% of the feature table)",
            ylabel="miss ratio (%)" if axes is panels[0] else "",
            looks=lambda label: LOOKS[label],
            axes=axes,
        )
        axes.set_xscale("log")
        plain_log(axes.xaxis)
        axes.set_ylim(0, 103)
    legend_above(canvas, panels, list(MAIN.values()))
    repeats = ", ".join(f"{record.result['accesses'] / max(1, record.result['unique_rows']):.1f}" for record in records)
    extra = (
        "rows read from disk over row accesses: every cache begins empty or has its initial rows counted, so that all "
        f"are held to the same; a row of the trace is asked for {repeats} times"
    )
    text = " ".join(study_caption(record, extra if record is records[-1] else "") for record in records)
    add_caption(canvas, text)
    return Drawing(canvas, pd.concat(tables, ignore_index=True), text)


def _longest_by_dataset(evidence: Evidence) -> list[StudyRecord]:
    """Return the study of the longest trace of each dataset, which is the most accurate; the longest first."""
    found: dict[str, StudyRecord] = {}
    for record in evidence.all_studies("miss-ratios"):
        policies = {entry["policy"] for entry in record.result["policies"]}
        if record.dataset is not None and set(MAIN) <= policies:
            known = found.get(record.dataset.name)
            if known is None or record.result["accesses"] >= known.result["accesses"]:
                found[record.dataset.name] = record
    if not found:
        raise NotDrawn("the study miss-ratios was not made with the policies belady and degree")
    return sorted(found.values(), key=lambda record: -record.result["accesses"])[:_MOST_PANELS]


def _ratios(record: StudyRecord) -> pd.DataFrame:
    result = record.result
    tables = [
        pd.DataFrame(
            {
                "dataset": dataset_name(record),
                "series": MAIN.get(entry["policy"], entry["policy"]),
                "policy": entry["policy"],
                "x": [100 * share for share in result["shares"]],
                "y": [100 * ratio for ratio in read_ratios(result, entry["policy"])],
                "rows": result["sizes"],
                "misses": entry["misses"],
                "fills": entry["fills"],
                "accesses": result["accesses"],
            }
        )
        for entry in result["policies"]
    ]
    return pd.concat(tables, ignore_index=True)


def expanded(profile: Plain) -> list[StudyNeed]:
    """Return the expansion study of each dataset."""
    return [StudyNeed("expansion", {"dataset": name}, {name: recipe}) for name, recipe in expansions(profile).items()]


@figure("ginex-tab2", studies=expanded)
def tab2(evidence: Evidence) -> Sheet:
    """Return counts and bytes of base and result, and skew and homophily before and after expansion."""
    records = sorted(evidence.all_studies("expansion"), key=dataset_name)
    rows = [_expansion(record) for record in records]
    paper: dict[str, dict[str, float]] = {}
    for row in paper_rows("ginex-tab2"):
        paper.setdefault(str(row["series"]), {})[str(row["x"])] = float(row["value"])
    for name, cells in paper.items():
        head = {"dataset": f"{name} (paper)", "source": "paper", "expansion": "fractal"}
        rows.append({**head, **cells, "copies": cells["nodes"] / cells["base nodes"]})
    columns: dict[str, Formatter] = {"dataset": "", "expansion": ""}
    columns |= dict.fromkeys(["base nodes", "base edges", "nodes", "edges"], lambda value: format_count(int(value)))
    columns |= {"size": lambda value: format_bytes(int(value)), "copies": ".4g"}
    columns |= dict.fromkeys(["top 1 % of base", "top 1 %", "homophily of base", "homophily"], ".2f")
    text = (
        "Top 1 %: share of all edges that lead into the 1 % of nodes of highest in-degree. `kronecker` is the plain "
        "product with a seed graph, `fractal` the randomised expansion of the paper, which flattens skew; without a "
        "base of its own the generator draws one. Sizes are of all files on disk, ours at the feature dimension given, "
        "the paper's at 256. Copies: nodes over the base's."
    )
    return sheet(rows, columns, text)


def _expansion(record: StudyRecord) -> dict[str, Any]:
    result = record.result
    base, made = result["base"], result["result"]
    return {
        "dataset": f"{dataset_name(record)} (dim {result['dim']})",
        "source": "ours",
        "expansion": f"{result['kind']} of {result['base_name'] or 'a drawn base'}",
        "base nodes": base.get("num_nodes"),
        "base edges": base.get("num_edges"),
        "nodes": result["num_nodes"],
        "edges": result["num_edges"],
        "size": result["total_bytes"],
        "copies": result["copies"],
        "top 1 % of base": base.get("top1_degree_share"),
        "top 1 %": made.get("top1_degree_share"),
        "homophily of base": base.get("homophily"),
        "homophily": made.get("homophily"),
    }
