"""Ginex Fig. 19: speedup over pyg+ over the mini-batch size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.figures.base import Drawing, Figure, Plain, gallery, register, values
from harness.figures.evidence import Evidence
from harness.figures.ginex_grid import SYSTEMS, batch_sizes, is_plain, systems_of
from harness.figures.ginex_speedups import draw_speedups
from harness.figures.query import Group, NotDrawn, group_runs

# 250 to 2000 around the paper's default of 1000.
FACTORS = [0.25, 0.5, 1.0, 2.0]


def needs(profile: Plain) -> Plain:
    """The three systems at each size, over the same number of seed nodes an epoch."""
    short = gallery(profile)
    systems = [
        {**entry, "run": {**entry.get("run", {}), **run}}
        for run in batch_sizes(short, values(profile, "batch_factors", FACTORS))
        for entry in systems_of(short, SYSTEMS)
    ]
    return {**short, "name": "ginex-fig19", "systems": systems, "grid": {}}


def seeds_of(config: Mapping[str, Any]) -> int:
    """Seed nodes that an epoch trains; 0: all of them."""
    return int(config["batch_size"]) * int(config["max_batches"])


def _comparable(evidence: Evidence) -> Group:
    """The runs over most sizes whose epochs train equally many seed nodes (a twentieth more or less).

    Raises:
        NotDrawn: there are none over two sizes.
    """

    def where(config: Mapping[str, Any]) -> bool:
        return config["system"] in SYSTEMS and is_plain(config) and config["model"] == "sage"

    def about(total: int) -> Callable[[Mapping[str, Any]], bool]:
        return lambda config: where(config) and abs(seeds_of(config) - total) <= total / 20

    records = [] if evidence.frame.empty else list(evidence.frame["record"])
    totals = sorted({seeds_of(record["config"]) for record in records if where(record["config"])})
    best: Group | None = None
    for total in totals:
        try:
            group = group_runs(
                evidence.frame,
                axis=lambda config: config["batch_size"],
                ignore=["batch_size", "max_batches"],
                where=about(total),
            )
        except NotDrawn:
            continue
        if best is None or len(group.points) > len(best.points):
            best = group
    if best is None:
        raise NotDrawn("no comparable runs over two mini-batch sizes with as many seed nodes an epoch")
    return best


def draw(evidence: Evidence) -> Drawing:
    """Bars over the size."""
    group = _comparable(evidence)
    drawn = sorted({int(point.x) for point in group.points})
    reduced = f"{len(drawn)} mini-batch sizes of the paper's {len(FACTORS)}, which are 1/4 to 2 times its default"
    return draw_speedups(
        group, title="Speedup over mini-batch size", xlabel="mini-batch size (seed nodes)",
        extra="" if len(drawn) >= len(FACTORS) else f"reduced grid: {reduced}",
    )  # fmt: skip


register(
    Figure(
        "ginex-fig19", "ginex", "Speedup over mini-batch size", needs, draw,
        full="250, 500, 1000, 2000 seed nodes on four datasets",
    )
)  # fmt: skip
