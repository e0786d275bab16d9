"""DiskGNN Table 8: epoch time of one mini-batch at a time and of the pipeline, over memory."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import NotDrawn, Point
from harness.figures.base import Figure, Plain, Sheet, caption, published, register
from harness.figures.diskgnn.grid import entries, longer, percent, shares_of
from harness.figures.draw.sheets import sheet


def over_memory(profile: Plain) -> Plan:
    """Plan diskgnn with and without its pipeline at each share of memory."""
    (plain,), (sequential,) = entries(profile, ["diskgnn"]), entries(profile, ["diskgnn"], pipeline=False)
    ways = [{**plain, "series": "pipeline"}, {**sequential, "series": "sequential"}]
    return grid(longer(profile), ways, {share: {"memory": f"{share:g}x"} for share in shares_of(profile)})


def draw(evidence: Evidence) -> Sheet:
    """Return one row per share of memory, with the paper's speedups; raise NotDrawn without a pair to compare."""
    group = evidence.points(over_memory, least=1)
    cells: dict[float, dict[str, Point]] = {}
    for point in group.points:
        cells.setdefault(float(point.x), {})[point.system] = point
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
        "memory": "",
        "sequential (s)": ".2f",
        "pipeline (s)": ".2f",
        "speedup": ".2f",
        "paper Friendster": ".2f",
        "paper IGB260M": ".2f",
    }
    return sheet(pd.DataFrame(rows), columns, caption(group, None, "memory over the features"), runs=group.runs())


def _speedup(paper: pd.DataFrame, graph: str, share: float) -> float | None:
    mine = paper[paper["x"].astype(float) == round(100 * share)]
    times = {str(series): float(value) for series, value in zip(mine["series"], mine["value"], strict=True)}
    slow, fast = times.get(f"{graph} sequential"), times.get(f"{graph} pipeline")
    return slow / fast if slow and fast else None


register(Figure("diskgnn-tab8", over_memory, draw))
