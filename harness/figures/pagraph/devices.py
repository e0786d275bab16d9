"""Runs of the paper's workload on several devices: common parts of Figs. 15, 16, 18 and 20c."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.compare.plan import Plan, grid
from harness.compare.points import Group, Point
from harness.figures.base import Plain, values
from harness.figures.pagraph.grid import HIDDEN, setting

RANKS = [1, 2, 4]
NOTE = (
    "each device has a process of its own, and all share this host's cores; seed nodes a second, since every step "
    "trains a mini-batch on each device"
)


def rank_counts(profile: Plain) -> list[int]:
    """Return the numbers of devices to run on."""
    return [int(count) for count in values(profile, "ranks", RANKS)]


def on_devices(
    profile: Plain, models: Sequence[str], systems: Sequence[Any], counts: Sequence[int] = (), **changes: Any
) -> Plan:
    """Plan the systems with each model on each number of devices; x is like `gcn 2`.

    Args:
        counts: numbers of devices, by default the profile's; from two on, each device trains a partition of its own.
        changes: further run settings.
    """
    over = {
        f"{model} {count}": {
            "model": model,
            "hidden": HIDDEN[model],
            "ranks": count,
            "partition": "self-reliant" if count > 1 else "none",
        }
        for model in models
        for count in counts or rank_counts(profile)
    }
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
    measured = [epoch for epoch in point.record["epochs"] if not epoch["warmup"]]
    if point.value is None or not measured:
        return None
    rates = pd.Series([seeds_per_s(point.record, epoch) / 1000 for epoch in measured])
    return float(rates.median()), float(rates.min()), float(rates.max())


def rate_rows(group: Group, names: Mapping[str, str]) -> pd.DataFrame:
    """Return rows for curves: series (system and model), x (devices), y (thousand seed nodes / s), interval, status."""
    rows = []
    for point in group.points:
        model, _, ranks = str(point.x).partition(" ")
        rate = point_rate(point)
        rows.append(
            {
                "series": f"{point.system} {names.get(model, model)}",
                "system": point.system,
                "model": model,
                "x": int(ranks),
                "y": rate[0] if rate else None,
                "low": rate[1] if rate else None,
                "high": rate[2] if rate else None,
                "status": point.status,
                "run": point.record["run_id"],
            }
        )
    return pd.DataFrame(rows).sort_values(["series", "x"]).reset_index(drop=True)
