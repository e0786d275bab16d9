"""DiskGNN Fig. 9: epoch time over DiskGNN's, with and without amortised preprocessing."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import Group, NotDrawn, Point
from harness.figures.base import (
    Drawing,
    Figure,
    Plain,
    add_caption,
    caption,
    gallery,
    left_out,
    published,
    register,
    values,
)
from harness.figures.diskgnn.grid import entries, preparation_s
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.panels import legend_above, many_panels

ALL = ["pyg+", "dgl-ondisk", "ali+pg", "ginex", "ginex-pg", "mariusgnn", "gnndrive", "diskgnn"]
MODELS = ["sage", "gat"]
#: Training epochs of the paper; each bears an equal share of one-time preprocessing.
EPOCHS = 50


def by_model(profile: Plain) -> Plan:
    """Plan every disk system with each model."""
    short = gallery(profile)
    return grid(short, entries(short, ALL), {model: {"model": model} for model in values(profile, "models", MODELS)})


def replayed(profile: Plain) -> list[Plain]:
    """Return the experiment of diskgnn with one epoch's samples in all epochs, as in the paper's code (dg-23)."""
    short = {**gallery(profile), "name": "diskgnn-fig9"}
    models = values(profile, "models", MODELS)
    return [{**short, "systems": entries(short, ["diskgnn"], resample_every=0), "grid": {"model": models[:1]}}]


def _share(point: Point) -> float:
    """Return one epoch's seconds of preprocessing: diskgnn prepares each epoch's samples, other systems once."""
    spent = preparation_s(point.record)
    every = point.record["config"]["options"].get("resample_every")
    return spent / (len(point.record["epochs"]) if every == 1 else EPOCHS)


def _rows(group: Group, models: list[str]) -> list[Plain]:
    points = {(str(point.x), point.system): point for point in group.points}
    rows: list[Plain] = []
    for model in models:
        base = points.get((model, "diskgnn"))
        if base is None or not base.value:
            continue
        for system in ALL:
            point = points.get((model, system))
            row: Plain = {"group": model, "series": system, "value": None, "status": "not run"}
            if point is not None:
                row |= {"status": point.status, "run": point.record.get("run_id", "")}
            if point is not None and point.value:
                share = _share(point)
                row |= {
                    "value": point.value / base.value,
                    "low": float(point.low or point.value) / base.value,
                    "high": float(point.high or point.value) / base.value,
                    "amortised": (point.value + share) / base.value,
                    "epoch_s": point.value,
                    "preparation_share_s": share,
                }
            rows.append(row)
    return rows


def draw(evidence: Evidence) -> Drawing:
    """Draw epochs without and with preprocessing over diskgnn's epoch; raise NotDrawn if diskgnn has no epoch."""
    group = evidence.points(by_model, least=1)
    models = [model for model in MODELS if model in {str(point.x) for point in group.points}]
    rows = pd.DataFrame(_rows(group, models))
    if rows.empty:
        raise NotDrawn("diskgnn has no measured epoch to compare with")
    canvas, panels = many_panels(2, sharey=True)
    draw_bars(rows, title="Epoch", ylabel="over diskgnn's (x)", log=True, numbers=".2g", axes=panels[0])
    whole = rows.assign(value=rows.get("amortised"), low=None, high=None)
    draw_bars(whole, title="With amortised preprocessing", ylabel="", log=True, numbers=".2g", axes=panels[1])
    known = pd.concat([rows["value"], whole["value"]]).dropna().astype(float)
    panels[0].set_ylim(float(known.min()) / 2, float(known.max()) * 2)
    for axes in panels:
        axes.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
    legend_above(canvas, panels)
    paper = published("diskgnn-fig9")
    said = ", ".join(f"{s} {x} {v:g}x" for s, x, v in zip(paper["series"], paper["x"], paper["value"], strict=True))
    extra = [
        f"what is prepared once is shared out over {EPOCHS} epochs, what diskgnn prepares for each epoch is its own",
        _replayed(group),
        f"paper: {said}" if said else "",
        left_out(models, MODELS, "models"),
    ]
    text = caption(group, [p for p in group.points if p.value is not None], "; ".join(part for part in extra if part))
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, runs=group.runs())


def _replayed(group: Group) -> str:
    """Return caption text: diskgnn's preprocessing share with one epoch's samples for all, as in the paper's code."""
    shares = [
        f"{point.x} {_share(point) / EPOCHS / point.value:.1%}"
        for point in group.points
        if point.system == "diskgnn" and point.value and point.record["config"]["options"].get("resample_every") == 1
    ]
    how = f"replaying one epoch's samples for {EPOCHS} epochs, as the paper's code does, would add"
    return f"{how} {', '.join(shares)} of the epoch to diskgnn" if shares else ""


register(Figure("diskgnn-fig9", by_model, draw, beside=replayed))
