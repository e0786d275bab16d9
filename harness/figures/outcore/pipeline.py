"""outcore-pipeline: one epoch as a timeline of mini-batches and stages, one panel per
system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from harness.compare.cells import Cells
from harness.compare.verdicts import NotDrawn
from harness.figures.absent import not_run
from harness.figures.base import Drawing, drawn, figure_of_cells
from harness.figures.draw import style
from harness.figures.draw.captions import row_texts
from harness.figures.draw.panels import many_panels, name_axes
from harness.figures.grids import capped, gallery
from harness.results import store as results
from harness.results.table import each, measured_epochs
from workloads.errors import InputError

SYSTEMS = ["pyg+", "ginex", "gnndrive", "diskgnn"]
# A longer epoch is drawn in part: else a mini-batch would be too narrow to see.
MAX_BATCHES = 80
#: Suffix of a colour that makes it a tint.
TINT = "4D"
COLUMNS = ["system", "run", "epoch", "batch", "stage", "thread", "start", "end"]
MARKS = (
    "neighbouring mini-batches alternate in shade, the path of one is black, work of "
    "no single one grey"
)


@figure_of_cells(
    "outcore-pipeline",
    lambda profile: capped(gallery(profile), SYSTEMS),
    otherwise=lambda profile: capped(profile, SYSTEMS),
    least=1,
)
def pipeline(cells: Cells) -> Drawing:
    """Draw each system's measured epoch nearest to its runs' median; raise NotDrawn if
    none has a table of stages."""
    runs = cells.measured()
    spans = pd.concat([_spans(run) for run in each(runs)], ignore_index=True)
    shown = runs.system.isin(spans.system)
    missing = not_run(cells.medians(), SYSTEMS)
    missing += list(runs.loc[~shown, "system"] + " without recorded stages")
    if spans.empty:
        raise NotDrawn(f"no run has an epoch with stages ({'; '.join(missing)})")
    panels = list(spans.groupby("system", sort=False))
    height = 0.755 + 0.135 * spans.row.max()
    canvas, places = many_panels(
        len(panels), columns=min(2, len(panels)), height=height
    )
    notes = [MARKS]
    look_of = style.system_looks([str(system) for system, _ in panels])
    for axes, (system, own) in zip(places, panels, strict=True):
        _draw_spans(axes, own, look_of(str(system)).color)
        _name_stages(axes, own)
        notes.append(_limit(axes, own))
    notes += missing
    ids = list(runs.run[shown])
    return drawn(
        canvas, spans[COLUMNS], cells, *notes, runs=ids, finding=_longest(spans)
    )


def _longest(spans: pd.DataFrame) -> str:
    """Return the sentence on the stage with most time of each system's epoch, of its
    threads together."""
    stages = spans[~spans.stage.str.startswith("lane:")]
    open_s = (
        (stages.end - stages.start)
        .groupby([stages.system, stages.stage], sort=False)
        .sum()
    )
    longest = open_s.groupby(level="system", sort=False).idxmax()
    named = pd.DataFrame(longest.tolist(), columns=["system", "stage"])
    by_stage = named.groupby("stage", sort=False).system.agg(" and ".join)
    named_stages = by_stage.reset_index().replace("_", " ", regex=True)
    return f"Longest stage: {row_texts(named_stages, '{stage} in {system}')}"


def _spans(run: Any) -> pd.DataFrame:
    """Return the spans of the drawn epoch of a run, a row of `Cells.medians`; empty
    without recorded stages.

    Returns:
        `COLUMNS`, with seconds from the epoch's begin; `seconds`, length of the epoch;
        `row`, the row of the panel
        from the top: stages by begin, the device's lanes last, a row for each thread.
    """
    epochs = pd.DataFrame(measured_epochs(run.record))
    nearest = (epochs.seconds - run.value).abs().idxmin()
    epoch = epochs.loc[nearest]
    try:
        stages = results.table(Path(run.path), "stages")
    except InputError:
        return pd.DataFrame(columns=[*COLUMNS, "row"])
    inside = stages[stages.epoch == epoch["epoch"]]
    spans: pd.DataFrame = inside.assign(
        system=run.system, run=run.run, seconds=epoch["seconds"]
    )
    times = spans[["start", "end"]].astype(float) - epoch["start_s"]
    spans[["start", "end"]] = times.clip(lower=0.0)
    lane = spans.stage.str.startswith("lane:")
    first = spans.groupby("stage").start.transform("min")
    spans["row"] = spans.groupby([lane, first, "stage", "thread"]).ngroup()
    return spans.sort_values("start")


def _draw_spans(axes: Any, spans: pd.DataFrame, color: str) -> None:
    """Draw the spans of one system, and the path of its middle mini-batch."""
    batch = spans.batch
    marked = batch.max() // 2
    colors = pd.Series(color, index=spans.index)
    colors[batch % 2 == 1] = color + TINT
    colors[batch == marked] = "black"
    colors[batch < 0] = "#999999"
    axes.hlines(spans.row, spans.start, spans.end, colors=list(colors), linewidth=6)
    path = spans[batch == marked]
    middle = (path.start + path.end) / 2
    axes.plot(middle, path.row, color="black", linewidth=0.8)


def _name_stages(axes: Any, spans: pd.DataFrame) -> None:
    """Label each stage in the middle of its threads' rows; draw a line between two
    stages."""
    rows = spans.groupby("stage").row.agg(["min", "max"])
    labels = []
    for stage in each(rows.reset_index()):
        name = stage.stage.replace("lane:", "device: ").replace("_", " ")
        threads = stage.max - stage.min + 1
        labels.append(f"{name} ×{threads}" if threads > 1 else name)
        axes.axhline(stage.max + 0.5, color="#bbbbbb", linewidth=0.4)
    axes.set_yticks(rows.mean(axis=1), labels, fontsize=style.LEAST_POINTS)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_ylim(rows["max"].max() + 0.5, -0.5)


def _limit(axes: Any, spans: pd.DataFrame) -> str:
    """Set the part of the epoch that is drawn; return caption text where it is not all
    of it."""
    system, seconds = spans[["system", "seconds"]].iloc[0]
    name_axes(
        axes, f"{system}: epoch of {seconds:.3g} s", "time since the epoch began (s)"
    )
    batches = spans.loc[spans.batch >= 0, "batch"].nunique()
    part = min(1.0, MAX_BATCHES / max(1, batches))
    omitted = seconds * (1 - part) / 2
    axes.set_xlim(omitted, seconds - omitted)
    return (
        f"{system}: the middle {MAX_BATCHES} of {batches} mini-batches' time"
        if part < 1
        else ""
    )
