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
    wide_device,
)
from harness.figures.evidence import Evidence
from harness.figures.ginex_grid import batch_sizes
from harness.figures.gnndrive_grid import SYSTEMS, in_bytes, is_plain
from harness.figures.lines import draw_lines
from harness.figures.query import Group, NotDrawn, group_runs

# The paper's 500 to 4000 around its default of 1000.
FACTORS = [0.5, 1.0, 2.0, 4.0]


def needs(profile: Plain) -> Plain:
    """The profile's capped systems at each batch size, every epoch over as many seed nodes."""
    short = in_bytes(wide_device(gallery(profile)))
    systems = []
    for sizes in batch_sizes(short, values(profile, "batch_factors", FACTORS)):
        for entry in only_systems(short, SYSTEMS):
            own: Plain = {"name": entry} if isinstance(entry, str) else dict(entry)
            systems.append({**own, "run": {**own.get("run", {}), **sizes}})
    return {**short, "name": "gnndrive-fig10", "systems": systems, "grid": {}}


def draw(evidence: Evidence) -> Drawing:
    """One line a system over the batch size."""
    group = _largest(evidence)
    drawn = len({point.x for point in group.points})
    return draw_lines(
        group,
        title="Epoch time over mini-batch size",
        xlabel="mini-batch size (seed nodes)",
        ylabel="epoch time (s)",
        extra=f"reduced grid: {drawn} of {len(FACTORS)} sizes" if drawn < len(FACTORS) else "",
    )


def seeds_of(config: Mapping[str, Any]) -> int:
    """Seed nodes that an epoch trains; 0: all of them."""
    return int(config["batch_size"]) * int(config["max_batches"])


def _largest(evidence: Evidence) -> Group:
    """The runs over most sizes whose epochs train as many seed nodes (a twentieth more or less)."""

    def mine(config: Mapping[str, Any]) -> bool:
        return is_plain(config) and config["system"] in SYSTEMS and config["device"] != "cpu"

    records = [] if evidence.frame.empty else list(evidence.frame["record"])
    best: Group | None = None
    for seeds in sorted({seeds_of(record["config"]) for record in records if mine(record["config"])}):
        try:
            group = group_runs(
                evidence.frame,
                axis=lambda config: config["batch_size"],
                ignore=["batch_size", "max_batches"],
                where=lambda config, seeds=seeds: mine(config) and abs(seeds_of(config) - seeds) <= seeds / 20,  # type: ignore[misc]
            )
        except NotDrawn:
            continue
        if best is None or len(group.points) > len(best.points):
            best = group
    if best is None:
        raise NotDrawn("no comparable runs over at least 2 mini-batch sizes (run with --figures gnndrive-fig10)")
    return best


register(
    Figure(
        "gnndrive-fig10", "gnndrive", "Epoch time over mini-batch size", needs, draw,
        full="500, 1000, 2000, 4000 seed nodes with three models on four datasets, GPU and CPU variant",
    )
)  # fmt: skip
