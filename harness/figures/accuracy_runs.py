"""Runs that train for accuracy: their settings, their test accuracy by epoch and by
time, and its drawing.

They need learnable labels: of a real graph to expand (`OUTCORE_ACCURACY_GRAPH`, else
`gallery.accuracy.base`: a `.npz` of the gnn-benchmark layout or a dataset), or of a
generated one whose topology and features separate the classes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pydantic import Field, PositiveInt

from harness.compare.cells import Cells
from harness.compare.verdicts import NotDrawn
from harness.figures.absent import not_run
from harness.figures.base import Drawing, drawn
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels
from harness.figures.findings import first_and_last
from harness.figures.grids import gallery
from harness.results.table import each, preparation_s
from harness.settings import Strict, strict
from workloads.arraytypes import JsonDict

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

BASE_VARIABLE = "OUTCORE_ACCURACY_GRAPH"
GENERATED = "accuracy-generated"
# Distance of the common target below the lowest best accuracy: noise of the last epochs
# then excludes no run.
MARGIN = 0.01
#: Settings of the runs; the others are of the dataset.
OF_RUNS = {"fanout", "hidden", "batch_size", "epochs", "device", "memory", "test_nodes"}


class AccuracySettings(Strict):
    """Settings under `gallery.accuracy` of a profile.

    The defaults fit `quick`: with rows of 2 KiB an epoch of few mini-batches touches
    more than twice the budget, and a run takes half a minute. `train_fraction` sets the
    length of an epoch, which trains all training nodes.
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


def accuracy_settings(profile: JsonDict) -> AccuracySettings:
    """Return the profile's accuracy settings; `OUTCORE_ACCURACY_GRAPH`, if set,
    replaces the base graph.

    Raises:
        InputError: `gallery.accuracy` has an unknown key or a value out of range.
    """
    content = dict((profile.get("gallery") or {}).get("accuracy") or {})
    content["base"] = os.environ.get(BASE_VARIABLE) or content.get("base", "")
    return strict(AccuracySettings, content, "gallery.accuracy")


def accuracy_profile(profile: JsonDict, model: str = "sage") -> JsonDict:
    """Return the gallery's profile with test accuracy after every epoch; the caller
    sets systems, grid and name."""
    own = accuracy_settings(profile)
    recipe = own.model_dump(include={"dim", "train_fraction", "test_fraction"})
    if own.base:
        name = f"accuracy-{Path(own.base).stem}-x{own.expand}"
        recipe |= {
            "kind": "kronecker",
            "base": own.base,
            "expand": own.expand,
            "seed": 1,
        }
    else:
        name = GENERATED
        recipe |= {
            "kind": "rmat",
            "nodes": own.nodes,
            "edges": own.edges,
            "classes": 10,
            "seed": 1,
        }
    changed = gallery(profile)
    changed["datasets"] = {name: recipe}
    run = changed["run"]
    run |= {
        "dataset": name,
        "model": model,
        "layers": None,
        "max_batches": 0,
        "warmup": 1,
        "device_memory": None,
    }
    run |= own.model_dump(include=OF_RUNS)
    return changed


def accuracy_curve(record: Mapping[str, Any]) -> pd.DataFrame:
    """Return a run's test accuracy, one row per epoch.

    Returns:
        Columns `epoch` (from 1), `seconds` (training time so far, with the warm-up
        epoch, which trains as the others do), `end_to_end` (`seconds` and
        preprocessing) and `accuracy` (share of the test nodes); empty without any.
    """
    epochs = pd.DataFrame(
        record.get("epochs", []), columns=["epoch", "seconds", "test_accuracy"]
    )
    seconds = epochs.seconds.cumsum()
    curve = pd.DataFrame({"epoch": epochs.epoch + 1, "seconds": seconds})
    curve["end_to_end"] = preparation_s(record) + seconds
    curve["accuracy"] = epochs.test_accuracy.astype(float)
    return curve.dropna(subset="accuracy", ignore_index=True)


def at_target(
    record: Mapping[str, Any], target: float, column: str = "seconds"
) -> float | None:
    """Return `column` of the accuracy curve where it first reaches `target` (a share),
    None if it never does."""
    curve = accuracy_curve(record)
    reached = curve[curve.accuracy >= target]
    return _known(reached[column].min())


def best_accuracy(record: Mapping[str, Any]) -> float | None:
    """Return the highest test accuracy of any epoch, None for a run without test
    accuracy."""
    return _known(accuracy_curve(record).accuracy.max())


def final_accuracy(record: Mapping[str, Any], epochs: int = 3) -> float | None:
    """Return mean test accuracy of the last epochs, steadier than one epoch's; None for
    a run without test accuracy."""
    return _known(accuracy_curve(record).accuracy.tail(epochs).mean())


def common_target(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Return an accuracy that all runs reached, one point below the lowest of their
    best ones; None without runs."""
    best = pd.Series(map(best_accuracy, records), dtype=float)
    return _known(best.min() - MARGIN)


def _known(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def origin(record: Mapping[str, Any]) -> str:
    """Return the origin of graph and labels, for the caption."""
    name = record["config"]["dataset"]["name"]
    if name == GENERATED:
        return "generated graph and labels"
    return "graph, features and labels expanded from a real one"


def draw_by_system(
    cells: Cells, systems: Sequence[str], titles: Sequence[str], memory: str = ""
) -> Drawing:
    """Draw accuracy over epochs (left) and over training time (right), one line per
    system, with the common target.

    Args:
        systems: systems of the figure; the caption names those without a run.
        memory: caption text on the memory of the runs.

    Raises:
        NotDrawn: no run has test accuracy.
    """
    runs = cells.measured()
    record = runs.record.iloc[0]
    share = common_target(list(runs.record))
    if share is None:
        raise NotDrawn("no run judged its model on test nodes after every epoch")
    curves = [
        accuracy_curve(run.record).assign(series=run.system, run=run.run)
        for run in each(runs)
    ]
    table = pd.concat(curves, ignore_index=True)
    table["accuracy"] *= 100
    target = 100 * share
    canvas = _draw_curves(table, titles, target)
    reached = (
        table[table.accuracy >= target].drop_duplicates("series").assign(target=target)
    )
    judged = f"{record['config']['test_nodes']:,} test nodes after every epoch"
    notes = [memory, origin(record), judged]
    notes += not_run(cells.medians(), systems)
    by_time = reached.sort_values("seconds")
    first = (
        "{series} is the first to reach {target:.1f} % accuracy, after {seconds:.1f} s"
    )
    finding = first_and_last(by_time, first, "{series} the last, after {seconds:.1f} s")
    return drawn(canvas, table, cells, *notes, runs=list(runs.run), finding=finding)


def first_to_target(model: str, reached: pd.DataFrame) -> str:
    """Return the sentence on the first and the last system to reach the common target
    with a model.

    Args:
        reached: one row for each system: `system`, `target` (%), `seconds` (nan where
            it never reached the target).

    Returns:
        The sentence; empty with fewer than two systems at the target.
    """
    by_time = reached.dropna(subset="seconds").sort_values("seconds")
    first = (
        f"{model} reaches {{target:.0f}} % first with {{system}} ({{seconds:.2g}} s)"
    )
    return first_and_last(by_time, first, "last with {system} ({seconds:.2g} s)")


def _draw_curves(table: pd.DataFrame, titles: Sequence[str], target: float) -> Canvas:
    """Draw curves of accuracy (%) over epochs and over seconds."""
    from matplotlib.ticker import MaxNLocator

    canvas, panels = many_panels(2, height=2.4, sharey=True)
    labels = {"epoch": "epoch", "seconds": "training time (s)"}
    for axes, title, (column, label) in zip(
        panels, titles, labels.items(), strict=True
    ):
        rows = table.assign(x=table[column], y=table.accuracy)
        draw_curves(
            rows, title=title, xlabel=label, ylabel="test accuracy (%)", axes=axes
        )
        axes.axhline(target, color="#666666", linewidth=0.7, linestyle="--", zorder=0)
    panels[0].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    return canvas
