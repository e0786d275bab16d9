"""Runs of the paper's workload on several devices: what Figs. 15, 16, 18 and 20c share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.figures.base import Plain, values
from harness.figures.pagraph_grid import LAYER_NODES, NEIGHBOURS, setting, usual_options
from harness.figures.query import Group, Point, group_runs

RANKS = [1, 2, 4]
# Keys of a run's configuration that differ with the number of devices and the model.
FREE = ["model", "hidden", "ranks", "partition"]
NOTE = (
    "each device has a process of its own, and all share this host's cores; seed nodes a second, since every step "
    "trains a mini-batch on each device"
)


def rank_counts(profile: Plain) -> list[int]:
    """Numbers of devices to run on."""
    return [int(count) for count in values(profile, "ranks", RANKS)]


def on_devices(profile: Plain, name: str, models: list[str], systems: list[Any], **changes: Any) -> list[Plain]:
    """An experiment for each model and number of devices; from two on each trains a partition of its own."""
    found = []
    for model in models:
        for count in rank_counts(profile):
            own = {**changes, "ranks": count, "partition": "self-reliant" if count > 1 else "none"}
            base = setting(profile, model=model, **own)
            found.append({**base, "name": f"{name}-{model}-{count}", "systems": list(systems), "grid": {}})
    return found


def seeds_per_s(record: Mapping[str, Any], epoch: Mapping[str, Any]) -> float:
    """Seed nodes trained a second, over all devices.

    Mini-batches of partitions are cut as even as can be (`workloads.sampling.seeds.PartitionPlan`), so they are a
    little smaller than the batch size; those of one plan are full but for the last of a whole epoch.
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
    """Median, least and most seed nodes a second of the measured epochs of a point's newest run, in thousands."""
    measured = [epoch for epoch in point.record["epochs"] if not epoch["warmup"]]
    if point.value is None or not measured:
        return None
    rates = pd.Series([seeds_per_s(point.record, epoch) / 1000 for epoch in measured])
    return float(rates.median()), float(rates.min()), float(rates.max())


def scaling(frame: pd.DataFrame, sampler: str, systems: list[str]) -> Group:
    """Runs by model, number of devices and system; x is like `gcn 2`.

    Raises:
        NotDrawn: there is none.
    """
    fanout = [NEIGHBOURS] * 2 if sampler == "neighbor" else [LAYER_NODES] * 2
    return group_runs(
        frame,
        axis=lambda config: f"{config['model']} {config['ranks']}",
        ignore=FREE,
        where=lambda config: (
            config["stages"] == "all"
            and config["memory"] == "none"
            and config["sampler"] == sampler
            and config["fanout"] == fanout
            and config["system"] in systems
            and (config["ranks"] == 1) == (config["partition"] == "none")
            and usual_options(config["options"])
        ),
    )


def rate_rows(group: Group, names: Mapping[str, str]) -> pd.DataFrame:
    """Rows for curves: series (system and model), x (devices), y (thousand seed nodes a second), interval, status."""
    rows = []
    for point in group.points:
        model, _, ranks = str(point.x).partition(" ")
        rate = point_rate(point)
        rows.append(
            {
                "series": f"{point.system} {names.get(model, model)}", "system": point.system, "model": model,
                "x": int(ranks), "y": rate[0] if rate else None, "low": rate[1] if rate else None,
                "high": rate[2] if rate else None, "status": point.status, "run": point.record["run_id"],
            }
        )  # fmt: skip
    return pd.DataFrame(rows).sort_values(["series", "x"]).reset_index(drop=True)
