"""GNNDrive Fig. 10: epoch time over the mini-batch size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.figures.base import (
    Drawing,
    Figure,
    Plain,
    gallery,
    only_systems,
    register,
    values,
)
from harness.figures.evidence import Evidence
from harness.figures.ginex_grid import batch_sizes
from harness.figures.gnndrive_grid import SYSTEMS, in_bytes, is_plain, largest_group, with_runs
from harness.figures.lines import draw_lines
from workloads.units import parse_bytes

# The paper's 500 to 4000 around its default of 1000.
FACTORS = [0.5, 1.0, 2.0, 4.0]


def needs(profile: Plain) -> Plain:
    """The profile's capped systems at each batch size, every epoch over as many seed nodes.

    Device memory is for the largest of them, at all sizes.
    """
    short = in_bytes(gallery(profile))
    factors = values(profile, "batch_factors", FACTORS)
    memory = short["run"].get("device_memory")
    if memory is not None:
        short["run"]["device_memory"] = round(max(factors) * parse_bytes(memory))
    runs = batch_sizes(short, factors)
    systems = with_runs(only_systems(short, SYSTEMS), runs)
    return {**short, "name": "gnndrive-fig10", "systems": systems, "grid": {}}


def draw(evidence: Evidence) -> Drawing:
    """One line a system over the batch size."""
    group = largest_group(
        evidence.frame,
        [_seeds],
        axis=lambda config: config["batch_size"],
        ignore=["batch_size", "max_batches"],
        where=_mine,
    )
    drawn = len({point.x for point in group.points})
    return draw_lines(
        group,
        title="Epoch time over mini-batch size",
        xlabel="mini-batch size (seed nodes)",
        ylabel="epoch time (s)",
        extra=f"reduced grid: {drawn} of {len(FACTORS)} sizes" if drawn < len(FACTORS) else "",
    )


def _seeds(config: Mapping[str, Any]) -> int:
    """Seed nodes that an epoch trains, in hundreds; 0: all of them."""
    return round(int(config["batch_size"]) * int(config["max_batches"]) / 100)


def _mine(config: Mapping[str, Any]) -> bool:
    return is_plain(config) and config["system"] in SYSTEMS and config["device"] != "cpu"


register(
    Figure(
        "gnndrive-fig10", "gnndrive", "Epoch time over mini-batch size", needs, draw,
        full="500, 1000, 2000, 4000 seed nodes with three models on four datasets, GPU and CPU variant",
    )
)  # fmt: skip
