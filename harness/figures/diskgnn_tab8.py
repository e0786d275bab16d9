"""DiskGNN Table 8: one mini-batch after the other against the pipeline, over memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.figures.base import Figure, Plain, Sheet, caption, published, register
from harness.figures.diskgnn_grid import entries, is_plain, is_share, memory_share, over_memory, percent
from harness.figures.evidence import Evidence
from harness.figures.query import Group, NotDrawn, Point, group_runs
from harness.figures.sheets import sheet


def needs(profile: Plain) -> Plain:
    """diskgnn with and without its pipeline at each share of memory."""
    systems = [*entries(profile, ["diskgnn"]), *entries(profile, ["diskgnn"], pipeline=False)]
    return over_memory(profile, "diskgnn-tab8", systems)


def _where(config: Mapping[str, Any]) -> bool:
    return config["system"] == "diskgnn" and is_share(config) and is_plain(config, "pipeline")


def _x(config: Mapping[str, Any]) -> str:
    return f"{memory_share(config):g} {'pipeline' if config['options'].get('pipeline', True) else 'sequential'}"


def draw(evidence: Evidence) -> Sheet:
    """A row a share of memory; the paper's speedups beside ours."""
    group: Group = group_runs(evidence.frame, axis=_x, ignore=["memory"], where=_where)
    cells: dict[float, dict[str, Point]] = {}
    for point in group.points:
        share, how = str(point.x).split()
        cells.setdefault(float(share), {})[how] = point
    paper = published("diskgnn-tab8")
    rows: list[Plain] = []
    for memory, found in sorted(cells.items()):
        row: Plain = {"memory": percent(memory)}
        for how in ("sequential", "pipeline"):
            cell = found.get(how)
            row[f"{how} (s)"] = None if cell is None else cell.value if cell.value is not None else cell.status
        times = [row["sequential (s)"], row["pipeline (s)"]]
        row["speedup"] = times[0] / times[1] if all(isinstance(value, float) for value in times) else None
        for graph in ("Friendster", "IGB260M"):
            row[f"paper {graph}"] = _speedup(paper, graph, memory)
        rows.append(row)
    if not any(row["speedup"] for row in rows):
        raise NotDrawn("at no share of memory was diskgnn measured both with and without its pipeline")
    columns = {
        "memory": "", "sequential (s)": ".2f", "pipeline (s)": ".2f", "speedup": ".2f", "paper Friendster": ".2f",
        "paper IGB260M": ".2f",
    }  # fmt: skip
    return sheet(pd.DataFrame(rows), columns, caption(group, None, "memory over the features"), runs=group.runs())


def _speedup(paper: pd.DataFrame, graph: str, share: float) -> float | None:
    mine = paper[paper["x"].astype(float) == round(100 * share)]
    times = {str(series): float(value) for series, value in zip(mine["series"], mine["value"], strict=True)}
    slow, fast = times.get(f"{graph} sequential"), times.get(f"{graph} pipeline")
    return slow / fast if slow and fast else None


register(
    Figure(
        "diskgnn-tab8", "diskgnn", "Pipelined over sequential training", needs, draw, claims=("dg-11", "dg-12"),
        full="10, 30, 50 % of the features, Friendster and IGB260M",
    )
)  # fmt: skip
