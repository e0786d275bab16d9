"""Ginex Table 2: expanded datasets, the published ones beside those of our generator."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.figures.base import Figure, Plain, Sheet, gallery, no_runs, published, register
from harness.figures.draw.sheets import Formatter, sheet
from harness.records.study import StudyRecord
from harness.studies.base import StudyNeed
from workloads.units import format_bytes, format_count, parse_count

# The randomised expansion flattens skew; a graph a tenth as large shows this and is made in seconds.
FRACTAL_SHARE = 0.1


def fractal_name(dataset: str) -> str:
    """Return the name of the fractal dataset beside a profile's own."""
    return f"{dataset}-fractal"


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
        found[fractal_name(own)] = {**recipe, "kind": "fractal", **sizes}
    for name, other in short["datasets"].items():
        if other.get("kind") in ("kronecker", "fractal"):
            found.setdefault(name, other)
    return found


def studies(profile: Plain) -> list[StudyNeed]:
    """Return the expansion study of each dataset."""
    return [StudyNeed("expansion", {"dataset": name}, {name: recipe}) for name, recipe in expansions(profile).items()]


def draw(evidence: Evidence) -> Sheet:
    """Return counts and bytes of base and result, and skew and homophily before and after expansion."""
    records = sorted(
        evidence.all_studies("expansion"), key=lambda record: str(record.dataset.name if record.dataset else "")
    )
    rows = pd.DataFrame([_ours(record) for record in records] + _published())
    columns: dict[str, Formatter] = {
        "dataset": "",
        "expansion": "",
        "base nodes": _count,
        "base edges": _count,
        "nodes": _count,
        "edges": _count,
        "size": _size,
        "copies": ".4g",
        "top 1 % of base": ".2f",
        "top 1 %": ".2f",
        "homophily of base": ".2f",
        "homophily": ".2f",
    }
    text = (
        "Top 1 %: share of all edges that lead into the 1 % of nodes of highest in-degree. `kronecker` is the plain "
        "product with a seed graph, `fractal` the randomised expansion of the paper, which flattens skew; without a "
        "base of its own the generator draws one. Sizes are of all files on disk, ours at the feature dimension given, "
        "the paper's at 256. Copies: nodes over the base's."
    )
    return sheet(rows, columns, text)


def _ours(record: StudyRecord) -> dict[str, Any]:
    result = record.result
    base, made = result["base"], result["result"]
    name = record.dataset.name if record.dataset is not None else ""
    return {
        "dataset": f"{name} (dim {result['dim']})",
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


def _published() -> list[dict[str, Any]]:
    """Return a row for each dataset of `harness/published/ginex-tab2.csv`, whose x is the column."""
    table = published("ginex-tab2")
    rows = []
    for name, part in table.groupby("series", sort=False):
        cells = {str(x): float(value) for x, value in zip(part["x"], part["value"], strict=True)}
        rows.append(
            {
                "dataset": f"{name} (paper)",
                "source": "paper",
                "expansion": "fractal",
                "base nodes": cells["base nodes"],
                "base edges": cells["base edges"],
                "nodes": cells["nodes"],
                "edges": cells["edges"],
                "size": cells["size"],
                "copies": cells["nodes"] / cells["base nodes"],
                "top 1 % of base": None,
                "top 1 %": None,
                "homophily of base": None,
                "homophily": None,
            }
        )
    return rows


def _count(value: Any) -> str:
    return format_count(int(value))


def _size(value: Any) -> str:
    return format_bytes(int(value))


register(Figure("ginex-tab2", no_runs, draw, studies=studies))
