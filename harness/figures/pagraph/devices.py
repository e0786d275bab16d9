"""PaGraph's runs on several devices: Figures 15, 16 and 18, and 21 (accuracy)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.compare.plan import Plain, Plan, grid, joined
from harness.compare.points import Group, Point
from harness.compare.verdicts import NotDrawn
from harness.figures import accuracy_runs as accuracy
from harness.figures.base import Drawing, drawn, figure_of_runs, ids, paper_rows, specs
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import left_out
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels
from harness.figures.draw.style import named_looks
from harness.figures.grids import values
from harness.figures.pagraph.grid import FAMILY, HIDDEN, NAMES, by_model, device_bytes, setting

SPEC = specs(__file__)
NOTE: str = SPEC["note"]
#: Devices of Figures 18 and 21.
DEVICES = 2
# Four devices hold a quarter of friendster's rows in the paper; here two devices hold about as much.
DEVICE_SHARE = 0.2
STEPS: dict[str, Plain] = SPEC["fig18"]["steps"]


def on_devices(
    profile: Plain, models: Sequence[str], systems: Sequence[Any], counts: Sequence[int] = (), **changes: Any
) -> Plan:
    """Plan the systems with each model on each number of devices; x is like `gcn 2`.

    Args:
        counts: numbers of devices, by default the profile's; from two on, each device trains a partition of its own.
        changes: further run settings.
    """
    over: dict[str, Plain] = {}
    for model, count in itertools.product(models, map(int, counts or values(profile, "ranks", SPEC["ranks"]))):
        partition = {"ranks": count, "partition": "self-reliant" if count > 1 else "none"}
        over[f"{model} {count}"] = {"model": model, "hidden": HIDDEN[model], **partition}
    return grid(setting(profile, **changes), systems, over)


def seeds_per_s(record: Mapping[str, Any], epoch: Mapping[str, Any]) -> float:
    """Return seed nodes trained per second, over all devices.

    With partitions (`PartitionPlan`) mini-batches are even, just below the batch size; else full but the last one.
    """
    config = record["config"]
    ranks, size, train = config["ranks"], config["batch_size"], config["dataset"]["train_nodes"]
    steps = epoch["batches"] / ranks
    if config["partition"] != "none" and train:
        largest = -(-train // ranks)
        seeds = steps * train / -(-largest // size)
    else:
        seeds = steps * ranks * size
        seeds = min(seeds, train) if train else seeds
    return float(seeds / epoch["seconds"])


def point_rate(point: Point) -> tuple[float, float, float] | None:
    """Return median, least and most thousand seed nodes per second in the measured epochs of the newest run."""
    if point.value is None or not point.epochs:
        return None
    rates = pd.Series([seeds_per_s(point.record, epoch) / 1000 for epoch in point.epochs])
    return float(rates.median()), float(rates.min()), float(rates.max())


def rate_rows(group: Group) -> pd.DataFrame:
    """Return rows for curves: series (system and model), x (devices), y (thousand seed nodes / s), interval, status."""
    rows = []
    for point in group.points:
        model, _, ranks = str(point.x).partition(" ")
        head = {"series": f"{point.system} {NAMES[model]}", "system": point.system, "model": model, "x": int(ranks)}
        rate = dict(zip(("y", "low", "high"), point_rate(point) or (None, None, None), strict=True))
        rows.append({**head, **rate, "status": point.status, "run": point.run})
    return pd.DataFrame(rows).sort_values(["series", "x"]).reset_index(drop=True)


def draw_rates(rows: pd.DataFrame, title: str, few: str, axes: Any = None) -> Any:
    """Draw throughput over devices and return the canvas; raise NotDrawn (`few`) below two measured numbers of them."""
    if rows.loc[rows["y"].notna(), "x"].nunique() < 2:
        raise NotDrawn(few)
    canvas, axes = draw_curves(rows, title=title, xlabel="devices", ylabel="thousand seed nodes / s", axes=axes)
    counts = sorted(set(rows["x"]))
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_ylim(bottom=0)
    return canvas


@figure_of_runs("pagraph-fig15", lambda profile: on_devices(profile, list(HIDDEN), ["pagraph"]))
def fig15(group: Group) -> Drawing:
    """Draw a curve for each model; raise NotDrawn with fewer than two measured numbers of devices."""
    rows, spec = rate_rows(group), SPEC["fig15"]
    canvas = draw_rates(rows, spec["title"], spec["few"])
    reduced = left_out(sorted(set(rows["x"])), SPEC["ranks"], "devices")
    return drawn(canvas, rows, group, NOTE, spec["note"], reduced, points=group.done)


@figure_of_runs("pagraph-fig16", lambda profile: on_devices(profile, list(HIDDEN), FAMILY, [1, 2]))
def fig16(group: Group) -> Drawing:
    """Draw bars for one and two devices over DGL on one; raise NotDrawn without DGL on one or any run on two."""
    rows: list[Plain] = []
    for model in HIDDEN:
        base = point_rate(group.at("dgl", f"{model} 1"))
        for count, place in ((1, "1 device"), (2, "2 devices")) if base else ():
            for point in (group.at(system, f"{model} {count}") for system in FAMILY):
                own = point_rate(point)
                row: Plain = {"group": f"{NAMES[model]}\n{place}", "series": point.system}
                row |= {"value": own[0] / base[0] if own and base else None, "status": point.status, "model": model}
                row |= {"devices": count, "thousand_seeds_per_s": own[0] if own else None, "run": point.run}
                rows += [row] if point.record else []
    data, spec = pd.DataFrame(rows), SPEC["fig16"]
    if data.empty or not (data["devices"] == 2).any():
        raise NotDrawn("no run of dgl on one device and of any system on two (pagraph-fig16)")
    data = data.sort_values(["model", "devices"], kind="stable").reset_index(drop=True)
    canvas, _ = draw_bars(data, **spec["bars"])
    return drawn(canvas, data, group, NOTE, spec["note"], points=group.done)


def steps(profile: Plain) -> Plan:
    """Plan pagraph with its parts added one after another, on two small devices."""
    entries = [
        {"name": "pagraph", "series": name, "options": step["options"], "run": {"partition": step["partition"]}}
        for name, step in STEPS.items()
    ]
    return by_model(profile, entries, ranks=DEVICES, device_memory=device_bytes(profile, DEVICE_SHARE))


@figure_of_runs("pagraph-fig18", steps, least=1)
def fig18(group: Group) -> Drawing:
    """Draw seconds per million seed nodes by step and model; raise NotDrawn with fewer than two measured bars."""
    rows = []
    for model in HIDDEN:
        before: float | None = None
        for point in [point for point in (group.at(step, model) for step in STEPS) if point.record]:
            rate = point_rate(point)
            value, high, low = (1000.0 / each for each in rate) if rate else (None, None, None)
            row = {"group": NAMES[model], "series": point.system, "value": value, "low": low, "high": high}
            saved = 1.0 - value / before if value and before else None
            rows.append({**row, "status": point.status, "saved": saved, "run": point.run})
            before = value
    data = pd.DataFrame(rows)
    if data.empty or data["value"].notna().sum() < 2:
        raise NotDrawn("no measured runs of pagraph's parts on two devices (pagraph-fig18)")
    canvas, _ = draw_bars(data, **SPEC["fig18"]["bars"])
    later = data[data["saved"].notna()].to_dict("records")
    told = ", ".join(f"{row['group']} {row['series']} {100 * row['saved']:.0f} %" for row in later)
    known = paper_rows("pagraph-fig18")
    paper = ", ".join(f"{row['series']} {row['x']} {row['value']:g} {row['unit']}" for row in known)
    notes = [f"{DEVICES} devices", NOTE, f"saved by each step: {told}", f"paper (friendster, 4 GPUs): {paper}"]
    return drawn(canvas, data, group, *notes, points=group.done)


#: Curves of Fig. 21.
LABELS = ["dgl", "pagraph", f"pagraph, {DEVICES} partitions"]


def on_partitions(profile: Plain) -> Plan:
    """Plan accuracy runs of DGL, PaGraph, and PaGraph on partitions with an equal total of seed nodes per step."""
    plans = []
    for model in HIDDEN:
        base = accuracy.accuracy_profile(profile, model)
        run = {**base["run"], "memory": "none", "disk_class": "none"}
        local = {"ranks": DEVICES, "partition": "self-reliant", "batch_size": max(1, run["batch_size"] // DEVICES)}
        systems: list[Any] = ["dgl", "pagraph", {"name": "pagraph", "series": LABELS[2], "run": local}]
        plans.append(grid({**base, "run": run}, systems, {model: {"model": model}}))
    return joined(plans)


@figure_of_runs("pagraph-fig21", on_partitions, least=1)
def fig21(group: Group) -> Drawing:
    """Draw one panel per model, one curve per entry of `LABELS`; raise NotDrawn without test accuracy."""
    rows, notes, shown = [], [], []
    for model in HIDDEN:
        found = {label: group.at(label, model) for label in LABELS}
        known = {label: point for label, point in found.items() if accuracy.best_accuracy(point.record)}
        for label, point in known.items():
            curve = accuracy.accuracy_curve(point.record)
            xy = {"model": model, "series": label, "x": curve["seconds"], "y": 100.0 * curve["accuracy"]}
            rows.append(pd.DataFrame(xy).assign(epoch=curve["epoch"], run=point.run))
        notes += notes_of(NAMES[model], known)
        shown += list(known.values())
    if not rows:
        raise NotDrawn("no run of dgl or pagraph that found accuracy (pagraph-fig21)")
    data = pd.concat(rows, ignore_index=True)
    models = list(dict.fromkeys(data["model"]))
    canvas, panels = many_panels(len(models))
    for axes, model in zip(panels, models, strict=True):
        mine, looks = data[data["model"] == model], named_looks(LABELS)
        draw_curves(mine, title=NAMES[model], looks=looks, axes=axes, **SPEC["fig21"]["curves"])
    notes += [SPEC["fig21"]["note"], accuracy.origin(shown[0].record)]
    return drawn(canvas, data, group, *notes, points=shown, runs=ids(shown), order=LABELS)


def notes_of(model: str, known: Mapping[str, Point]) -> list[str]:
    """Return caption text: best accuracies, and the time to the common target accuracy."""
    records = {label: point.record for label, point in known.items()}
    target = accuracy.common_target(list(records.values()))
    if target is None:
        return []
    said = []
    for label, record in records.items():
        seconds = accuracy.at_target(record, target)
        reached = "" if seconds is None else f" ({100 * target:.1f} % after {seconds:.1f} s)"
        said.append(f"{label} {100 * (accuracy.best_accuracy(record) or 0.0):.1f} %{reached}")
    return [f"{model}: best of {', '.join(said)}"]
