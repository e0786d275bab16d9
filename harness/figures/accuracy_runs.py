"""Runs that train for accuracy: their settings, their test accuracy by epoch and by time, and its drawing.

They need learnable labels: of a real graph to expand (`OUTCORE_ACCURACY_GRAPH`, else `gallery.accuracy.base`: a `.npz`
of the gnn-benchmark layout or a dataset), or of a generated one whose topology and features separate the classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pydantic import Field, PositiveInt

from harness.compare.cells import Cells
from harness.compare.plan import Plain, Plan, grid
from harness.compare.points import Group, Point
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels
from harness.figures.grids import gallery
from harness.results.table import each, preparation_s
from harness.settings import Strict, strict

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

BASE_VARIABLE = "OUTCORE_ACCURACY_GRAPH"
GENERATED = "accuracy-generated"
# Distance of the common target below the lowest best accuracy: noise of the last epochs then excludes no run.
MARGIN = 0.01
CURVE = ["epoch", "seconds", "end_to_end", "accuracy"]
#: Settings of the runs; the others are of the dataset.
OF_RUNS = {"fanout", "hidden", "batch_size", "epochs", "device", "memory", "test_nodes"}


class AccuracySettings(Strict):
    """Settings under `gallery.accuracy` of a profile.

    The defaults fit `quick`: with rows of 2 KiB an epoch of few mini-batches touches more than twice the budget, and a
    run takes half a minute. `train_fraction` sets the length of an epoch, which trains all training nodes.
    """

    base: str = ""
    expand: PositiveInt = 16
    nodes: str | int = "220k"
    edges: str | int = "4.4M"
    dim: PositiveInt = 512
    train_fraction: float = Field(0.0075, gt=0, le=1)
    test_fraction: float = Field(0.02, gt=0, le=1)
    test_nodes: PositiveInt = 4000
    batch_size: PositiveInt = 100
    fanout: list[int] = Field([10, 5], min_length=1)
    hidden: PositiveInt = 64
    epochs: int = Field(10, ge=2)
    device: str = "cpu"
    memory: str = "+56MiB"


def accuracy_settings(profile: Plain) -> AccuracySettings:
    """Return the profile's accuracy settings; `OUTCORE_ACCURACY_GRAPH`, if set, replaces the base graph.

    Raises:
        InputError: `gallery.accuracy` has an unknown key or a value out of range.
    """
    content = dict((profile.get("gallery") or {}).get("accuracy") or {})
    content["base"] = os.environ.get(BASE_VARIABLE) or content.get("base", "")
    return strict(AccuracySettings, content, "gallery.accuracy")


def accuracy_profile(profile: Plain, model: str = "sage") -> Plain:
    """Return the gallery's profile with test accuracy after every epoch; the caller sets systems, grid and name."""
    own = accuracy_settings(profile)
    recipe: Plain = own.model_dump(include={"dim", "train_fraction", "test_fraction"})
    if own.base:
        name = f"accuracy-{Path(own.base).stem}-x{own.expand}"
        recipe |= {"kind": "kronecker", "base": own.base, "expand": own.expand, "seed": 1}
    else:
        name = GENERATED
        recipe |= {"kind": "rmat", "nodes": own.nodes, "edges": own.edges, "classes": 10, "seed": 1}
    changed = gallery(profile)
    changed["datasets"] = {name: recipe}
    run = changed["run"]
    run |= {"dataset": name, "model": model, "layers": None, "max_batches": 0, "warmup": 1, "device_memory": None}
    run |= own.model_dump(include=OF_RUNS)
    return changed


def accuracy_curve(record: Mapping[str, Any]) -> pd.DataFrame:
    """Return a run's test accuracy, one row per epoch.

    Returns:
        Columns `epoch` (from 1), `seconds` (training time so far, with the warm-up epoch, which trains as the others
        do), `end_to_end` (`seconds` and preprocessing) and `accuracy` (share of the test nodes); empty without any.
    """
    epochs = pd.DataFrame(record.get("epochs", []), columns=["epoch", "seconds", "test_accuracy"])
    seconds = epochs["seconds"].cumsum()
    accuracy = epochs["test_accuracy"].astype(float)
    before = preparation_s(record)
    curve = epochs.assign(epoch=epochs["epoch"] + 1, seconds=seconds, end_to_end=before + seconds, accuracy=accuracy)
    return curve.dropna(subset="accuracy", ignore_index=True)[CURVE]


def at_target(record: Mapping[str, Any], target: float, column: str = "seconds") -> float | None:
    """Return `column` of the accuracy curve where it first reaches `target` (a share), None if it never does."""
    curve = accuracy_curve(record)
    return _known(curve.loc[curve["accuracy"] >= target, column].min())


def best_accuracy(record: Mapping[str, Any]) -> float | None:
    """Return the highest test accuracy of any epoch, None for a run without test accuracy."""
    return _known(accuracy_curve(record)["accuracy"].max())


def final_accuracy(record: Mapping[str, Any], epochs: int = 3) -> float | None:
    """Return mean test accuracy of the last epochs, steadier than one epoch's; None for a run without test accuracy."""
    return _known(accuracy_curve(record)["accuracy"].tail(epochs).mean())


def common_target(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Return an accuracy that all runs reached, one point below the lowest of their best ones; None without runs."""
    best = pd.Series(map(best_accuracy, records), dtype=float)
    return _known(best.min() - MARGIN)


def _known(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def accuracy_plan(profile: Plain, entries: Sequence[Any], model: str = "sage", sampler: str = "neighbor") -> Plan:
    """Plan the accuracy runs of some systems.

    Args:
        entries: names or entries of the systems; an entry of `in-memory` without a cap is the reference.
        model, sampler: run settings of all runs.
    """
    changed = accuracy_profile(profile, model)
    changed["run"]["sampler"] = sampler
    return grid(changed, entries, {"": {}})


def origin(record: Mapping[str, Any]) -> str:
    """Return the origin of graph and labels, for the caption."""
    name = record["config"]["dataset"]["name"]
    return "generated graph and labels" if name == GENERATED else "graph, features and labels expanded from a real one"


def draw_by_system(
    cells: Cells | Group, systems: Sequence[str], titles: Sequence[str], memory: str | Callable[[list[Point]], str]
) -> Drawing:
    """Draw accuracy over epochs (left) and over training time (right), one line per system, with the common target.

    Args:
        systems: systems of the figure; the caption names those without a run.
        memory: caption text on the memory of the runs.

    Raises:
        NotDrawn: no run has test accuracy.
    """
    if not isinstance(cells, Cells):  # until every figure is drawn from cells
        return _draw_points(cells, systems, titles, memory)
    runs = cells.measured()
    canvas, table, note = _draw_curves(runs, titles)
    notes = [str(memory), note, *failures(cells.medians(), systems)]
    return drawn(canvas, table, cells, *notes, rows=runs, runs=list(runs["run"]))


def _draw_curves(runs: pd.DataFrame, titles: Sequence[str]) -> tuple[Canvas, pd.DataFrame, str]:
    """Draw the curves of rows of `Cells.medians`; return the canvas, all points, and text for the caption."""
    from matplotlib.ticker import MaxNLocator

    records = list(runs["record"])
    target = common_target(records)
    if target is None:
        raise NotDrawn("no run judged its model on test nodes after every epoch")
    curves = [accuracy_curve(run.record).assign(series=run.system, run=run.run) for run in each(runs)]
    table = pd.concat(curves, ignore_index=True)
    table["accuracy"] *= 100
    target *= 100
    rows = table.assign(x=table["epoch"], y=table["accuracy"])
    canvas, (left, right) = many_panels(2, height=2.4, sharey=True)
    draw_curves(rows, title=titles[0], xlabel="epoch", ylabel="test accuracy (%)", axes=left)
    draw_curves(rows.assign(x=rows["seconds"]), title=titles[1], xlabel="training time (s)", ylabel="", axes=right)
    for axes in (left, right):
        axes.axhline(target, color="#666666", linewidth=0.7, linestyle="--", zorder=0)
    left.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    reached = table[table["accuracy"] >= target].drop_duplicates("series")
    times = [f"{run.series} {run.seconds:.1f} s (epoch {run.epoch})" for run in each(reached)]
    judged = f"{records[0]['config']['test_nodes']:,} test nodes after every epoch"
    return canvas, table, f"{origin(records[0])}; {judged}; to {target:.1f} %: {', '.join(times)}"


def failures(medians: pd.DataFrame, systems: Sequence[str]) -> list[str]:
    """Return caption text of each row without a value, like `ginex OOM`, and of each of `systems` without a row."""
    failed = medians[medians["value"].isna()]
    ended = [f"{row.system} {row.status.upper()}" for row in each(failed)]
    ran = set(medians["system"])
    return ended + [f"{system} not run" for system in systems if system not in ran]


def _draw_points(group: Group, systems: Sequence[str], titles: Sequence[str], memory: Any) -> Drawing:
    """Draw the points of a group as `draw_by_system` draws cells."""
    records: Any = [point.record for point in group.points]
    medians = group.frame().assign(record=records)
    runs = medians[medians["value"].notna()]
    canvas, table, note = _draw_curves(runs, titles)
    notes = [memory(group.done), note, *failures(medians, systems)]
    return drawn(canvas, table, group, *notes, points=group.done, runs=list(runs["run"]))
