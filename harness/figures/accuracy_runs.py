"""Runs that train for accuracy: their settings, their test accuracy by epoch and by time, and its drawing.

They need learnable labels: of a real graph to expand (`OUTCORE_ACCURACY_GRAPH`, else `gallery.accuracy.base`: a `.npz`
of the gnn-benchmark layout or a dataset), or of a generated one whose topology and features separate the classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field

from harness.compare.plan import Plain, Plan, grid
from harness.compare.points import Group, Point
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, ids
from harness.figures.draw import style
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels
from harness.figures.grids import gallery
from harness.results.table import preparation_s
from harness.settings import Strict, strict

BASE_VARIABLE = "OUTCORE_ACCURACY_GRAPH"
GENERATED = "accuracy-generated"
# Distance of the common target below the lowest best accuracy: noise of the last epochs then excludes no run.
MARGIN = 0.01


class AccuracySettings(Strict):
    """Settings under `gallery.accuracy` of a profile.

    The defaults fit `quick`: with rows of 2 KiB an epoch of few mini-batches touches more than twice the budget, and a
    run takes half a minute. `train_fraction` sets the length of an epoch, which trains all training nodes.
    """

    base: str = ""
    expand: int = Field(default=16, ge=1)
    nodes: str | int = "220k"
    edges: str | int = "4.4M"
    dim: int = Field(default=512, ge=1)
    train_fraction: float = Field(default=0.0075, gt=0, le=1)
    test_fraction: float = Field(default=0.02, gt=0, le=1)
    test_nodes: int = Field(default=4000, ge=1)
    batch_size: int = Field(default=100, ge=1)
    fanout: list[int] = Field(default_factory=lambda: [10, 5], min_length=1)
    hidden: int = Field(default=64, ge=1)
    epochs: int = Field(default=10, ge=2)
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
    changed = gallery(profile)
    name = f"accuracy-{Path(own.base).stem}-x{own.expand}" if own.base else GENERATED
    shared: Plain = own.model_dump(include={"dim", "train_fraction", "test_fraction"}) | {"seed": 1}
    if own.base:
        recipe = {"kind": "kronecker", "base": own.base, "expand": own.expand, **shared}
    else:
        recipe = {"kind": "rmat", "nodes": own.nodes, "edges": own.edges, "classes": 10, **shared}
    changed["datasets"] = {name: recipe}
    changed["run"] |= {"dataset": name, "model": model, "layers": None, "max_batches": 0, "warmup": 1}
    changed["run"] |= {"device_memory": None, "fanout": list(own.fanout)}
    same = {"hidden", "batch_size", "epochs", "device", "memory", "test_nodes"}
    changed["run"] |= own.model_dump(include=same)
    return changed


def accuracy_curve(record: Mapping[str, Any]) -> pd.DataFrame:
    """Return a run's test accuracy, one row per epoch.

    Returns:
        Columns `epoch` (from 1), `seconds` (training time so far, with the warm-up epoch, which trains as the others
        do), `end_to_end` (`seconds` and preprocessing) and `accuracy` (share of the test nodes); empty without any.
    """
    before = preparation_s(record)
    seconds, rows = 0.0, []
    for epoch in record.get("epochs", []):
        seconds += float(epoch["seconds"])
        if epoch.get("test_accuracy") is not None:
            rows.append((epoch["epoch"] + 1, seconds, before + seconds, float(epoch["test_accuracy"])))
    return pd.DataFrame(rows, columns=["epoch", "seconds", "end_to_end", "accuracy"])


def at_target(record: Mapping[str, Any], target: float, column: str = "seconds") -> float | None:
    """Return `column` of the accuracy curve where it first reaches `target` (a share), None if it never does."""
    curve = accuracy_curve(record)
    reached = curve.loc[curve["accuracy"] >= target, column]
    return None if reached.empty else float(reached.iloc[0])


def best_accuracy(record: Mapping[str, Any]) -> float | None:
    """Return the highest test accuracy of any epoch, None for a run without test accuracy."""
    curve = accuracy_curve(record)
    return None if curve.empty else float(curve["accuracy"].max())


def final_accuracy(record: Mapping[str, Any], epochs: int = 3) -> float | None:
    """Return mean test accuracy of the last epochs, steadier than one epoch's; None for a run without test accuracy."""
    curve = accuracy_curve(record)
    return None if curve.empty else float(curve["accuracy"].tail(epochs).mean())


def common_target(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Return an accuracy that all runs reached, one point below the lowest of their best ones; None without runs."""
    best = [accuracy for accuracy in map(best_accuracy, records) if accuracy is not None]
    return min(best) - MARGIN if best else None


def accuracy_plan(profile: Plain, entries: Sequence[Any], model: str = "sage", sampler: str = "neighbor") -> Plan:
    """Plan the accuracy runs of some systems.

    Args:
        entries: names or entries of the systems; an entry of `in-memory` without a cap is the reference.
        model, sampler: run settings of all runs.
    """
    changed = accuracy_profile(profile, model)
    changed["run"] = {**changed["run"], "sampler": sampler}
    return grid(changed, entries, {"": {}})


def origin(record: Mapping[str, Any]) -> str:
    """Return the origin of graph and labels, for the caption."""
    name = str(record["config"]["dataset"]["name"])
    return "generated graph and labels" if name == GENERATED else "graph, features and labels expanded from a real one"


def draw_by_system(
    group: Group, systems: Sequence[str], titles: Sequence[str], memory: Callable[[list[Point]], str]
) -> Drawing:
    """Draw accuracy over epochs (left) and over training time (right), one line per system, with the common target.

    Args:
        systems: systems of the figure; the caption names those without a run.
        memory: maps the measured points to caption text on their memory.

    Raises:
        NotDrawn: no run has test accuracy.
    """
    from matplotlib.ticker import MaxNLocator

    order = style.ordered(group.systems())
    points = sorted(group.points, key=lambda point: order.index(point.system))
    done = [point for point in points if point.value is not None]
    curves = [accuracy_curve(point.record).assign(series=point.system, run=point.run) for point in done]
    if not any(map(len, curves)):
        raise NotDrawn("no run judged its model on test nodes after every epoch")
    rows = pd.concat([curve for curve in curves if len(curve)], ignore_index=True)
    rows["accuracy"] *= 100
    target = common_target([point.record for point in done])
    canvas, panels = many_panels(2, height=2.4, sharey=True)
    labels = [("epoch", "epoch", "test accuracy (%)"), ("seconds", "training time (s)", "")]
    for axes, title, (column, xlabel, ylabel) in zip(panels, titles, labels, strict=True):
        own = rows.assign(x=rows[column], y=rows["accuracy"])
        draw_curves(own, title=title, xlabel=xlabel, ylabel=ylabel, axes=axes)
        if target is not None:
            axes.axhline(100 * target, color="#666666", linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
    panels[0].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    missing = [f"{name} not run" for name in systems if name not in order]
    failed = [f"{point.system} {point.told}" for point in points if point.value is None]
    notes = [memory(done), accuracy_note(done), *failed, *missing]
    return drawn(canvas, rows, group, *notes, points=done, runs=ids(done))


def accuracy_note(points: Sequence[Point]) -> str:
    """Return caption text: origin of the labels, test nodes, and time of each run to the common target accuracy."""
    records = [point.record for point in points]
    target = common_target(records)
    parts = [origin(records[0]), f"{records[0]['config']['test_nodes']:,} test nodes after every epoch"]
    if target is not None:
        reached = {p.system: [at_target(p.record, target, what) for what in ("seconds", "epoch")] for p in points}
        times = [f"{system} {took[0]:.1f} s (epoch {took[1]:.0f})" for system, took in reached.items() if all(took)]
        parts.append(f"to {100 * target:.1f} %: {', '.join(times)}")
    return "; ".join(parts)
