"""Ginex Table 4: performance per dollar against a distributed run, which is modelled from the published numbers.

There is no cluster here. The paper has hourly prices of DistDGL and Ginex, and Ginex's speed over DistDGL and PyG+;
hence DistDGL's speed over PyG+ on the paper's machines. Applied to our pyg+, it models the distributed run: a system's
measured speed over pyg+ then gives its speed over DistDGL and, at the price of Ginex's machine, performance per dollar.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import Group, NotDrawn, Point
from harness.figures.base import Figure, Plain, Sheet, caption, gallery, published, register
from harness.figures.draw.sheets import Formatter, sheet
from harness.figures.ginex.grid import SYSTEMS, systems_of

BASE = SYSTEMS[0]


def planned(profile: Plain) -> Plan:
    """Plan the paper's three systems, as in Fig. 14."""
    short = gallery(profile)
    return grid(short, systems_of(short, SYSTEMS), {"": {}})


def draw(evidence: Evidence) -> Sheet:
    """Return rows of the paper and of each measured system; raise NotDrawn without pyg+ and another system."""
    facts = _facts()
    group = evidence.points(planned, least=1)
    points = {point.system: point for point in group.points if point.value is not None}
    if BASE not in points or len(points) < 2:
        raise NotDrawn(f"{BASE} and another system of the paper were not both measured")
    rows = pd.DataFrame(
        [
            row
            for dataset in sorted({series for series, _ in facts if series not in ("all", "Ginex")})
            for row in [*_paper_rows(dataset, facts), *_our_rows(dataset, facts, points)]
        ]
    )
    columns: dict[str, Formatter] = {
        "dataset": "",
        "system": "",
        "side": "",
        "hourly cost": lambda value: f"${value:.2f}",
        "cost reduction": ".2f",
        "performance": ".2f",
        "performance/$": ".2f",
        "least": ".2f",
        "most": ".2f",
    }
    return sheet(rows, columns, _caption(group, facts), runs=group.runs())


def performance(point: Point, base: Point, published_performance: float, published_speedup: float) -> float:
    """Return a system's speed over the distributed run's.

    Args:
        point, base: the system and pyg+.
        published_performance, published_speedup: the paper's speed of Ginex over DistDGL and over PyG+.
    """
    return published_performance * (float(base.value or 0) / float(point.value or 1)) / published_speedup


def _facts() -> dict[tuple[str, str], float]:
    table = published("ginex-tab4")
    if table.empty:
        raise NotDrawn("the paper's prices are not there (harness/published/ginex-tab4.csv)")
    return {
        (str(series), str(x)): float(value)
        for series, x, value in zip(table["series"], table["x"], table["value"], strict=True)
    }


def _paper_rows(dataset: str, facts: dict[tuple[str, str], float]) -> list[dict[str, Any]]:
    head = {"dataset": dataset, "side": "paper"}
    return [
        {
            **head,
            "system": "DistDGL, 8 nodes",
            "hourly cost": facts[dataset, "distdgl hourly cost"],
            "cost reduction": 1.0,
            "performance": 1.0,
            "performance/$": 1.0,
        },
        {
            **head,
            "system": "Ginex",
            "hourly cost": facts["Ginex", "hourly cost"],
            "cost reduction": facts[dataset, "hourly cost reduction"],
            "performance": facts[dataset, "performance"],
            "performance/$": facts[dataset, "performance per dollar"],
        },
    ]


def _our_rows(dataset: str, facts: dict[tuple[str, str], float], points: dict[str, Point]) -> list[dict[str, Any]]:
    rows = []
    known, reduction = facts[dataset, "performance"], facts[dataset, "hourly cost reduction"]
    for system in SYSTEMS:
        point = points.get(system)
        if point is None:
            continue
        speeds = {
            name: performance(point, points[BASE], known, facts["all", f"ginex over pyg+ {name}"])
            for name in ("mean", "least", "most")
        }
        rows.append(
            {
                "dataset": dataset,
                "system": system,
                "side": "measured / modelled",
                "hourly cost": facts["Ginex", "hourly cost"],
                "cost reduction": reduction,
                "performance": speeds["mean"],
                "performance/$": speeds["mean"] * reduction,
                "least": speeds["most"] * reduction,
                "most": speeds["least"] * reduction,
                "epoch_s": point.value,
                "base_epoch_s": points[BASE].value,
                "run": point.record["run_id"],
            }
        )
    return rows


def _caption(group: Group, facts: dict[tuple[str, str], float]) -> str:
    mean, least, most = (facts["all", f"ginex over pyg+ {name}"] for name in ("mean", "least", "most"))
    return caption(
        group,
        [point for point in group.points if point.value is not None],
        f"the distributed side is MODELLED, no cluster was run: DistDGL is taken to be as much faster than {BASE} as "
        f"the paper's numbers say (Ginex's share of DistDGL's speed, and Ginex at {mean:g}x of PyG+); least and most: "
        f"with the {least:g}x to {most:g}x that the paper's GraphSAGE speedups range over; prices are the paper's, of "
        "Google Cloud; performance is over DistDGL's; the datasets named are the paper's, ours is the same for both",
    )


register(Figure("ginex-tab4", planned, draw))
