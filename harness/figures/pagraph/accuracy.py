"""PaGraph Fig. 21: accuracy over training time of DGL and PaGraph, each of whose devices shuffles its own partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.compare.plan import Plain, Plan, grid, joined
from harness.compare.points import Group, NotDrawn, Point
from harness.figures.accuracy_runs import (
    accuracy_curve,
    accuracy_profile,
    best_accuracy,
    common_target,
    origin,
    time_to,
)
from harness.figures.base import Drawing, drawn, figure_of_runs, ids
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.looks import named_looks
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.pagraph.grid import HIDDEN, NAMES

DEVICES = 2
LABELS = ["dgl", "pagraph", f"pagraph, {DEVICES} partitions"]


def planned(profile: Plain) -> Plan:
    """Plan accuracy runs of DGL, PaGraph, and PaGraph on partitions with an equal total of seed nodes per step."""
    plans = []
    for model in HIDDEN:
        base = accuracy_profile(profile, model)
        run = {**base["run"], "memory": "none", "disk_class": "none"}
        local = {"ranks": DEVICES, "partition": "self-reliant", "batch_size": max(1, run["batch_size"] // DEVICES)}
        systems: list[Any] = ["dgl", "pagraph", {"name": "pagraph", "series": LABELS[2], "run": local}]
        plans.append(grid({**base, "run": run}, systems, {model: {"model": model}}))
    return joined(plans)


@figure_of_runs("pagraph-fig21", planned, least=1)
def fig21(group: Group) -> Drawing:
    """Draw one panel per model, one curve per entry of `LABELS`; raise NotDrawn without test accuracy."""
    rows, notes, shown = [], [], []
    for model in HIDDEN:
        found = {point.system: point for point in group.points if point.x == model}
        known = {label: found[label] for label in LABELS if label in found and best_accuracy(found[label].record)}
        for label, point in known.items():
            curve = accuracy_curve(point.record)
            xy = {"model": model, "series": label, "x": curve["seconds"], "y": 100.0 * curve["accuracy"]}
            rows.append(pd.DataFrame(xy).assign(epoch=curve["epoch"], run=point.record["run_id"]))
        notes += notes_of(NAMES[model], known)
        shown += list(known.values())
    if not rows:
        raise NotDrawn("no run of dgl or pagraph that found accuracy (pagraph-fig21)")
    data = pd.concat(rows, ignore_index=True)
    models = list(dict.fromkeys(data["model"]))
    canvas, panels = many_panels(len(models))
    for axes, model in zip(panels, models, strict=True):
        draw_curves(
            data[data["model"] == model],
            title=NAMES[model],
            xlabel="training time (s)",
            ylabel="test accuracy (%)",
            looks=named_looks(LABELS),
            axes=axes,
        )
    legend_above(canvas, panels, LABELS)
    notes += ["real training; partitions take as many seed nodes a step together", origin(shown[0].record)]
    return drawn(canvas, data, group, *notes, points=shown, runs=ids(shown))


def notes_of(model: str, known: Mapping[str, Point]) -> list[str]:
    """Return caption text: best accuracies, and the time to the common target accuracy."""
    records = {label: point.record for label, point in known.items()}
    target = common_target(list(records.values()))
    if target is None:
        return []
    said = []
    for label, record in records.items():
        seconds = time_to(record, target)
        reached = "" if seconds is None else f" ({100 * target:.1f} % after {seconds:.1f} s)"
        said.append(f"{label} {100 * (best_accuracy(record) or 0.0):.1f} %{reached}")
    return [f"{model}: best of {', '.join(said)}"]
