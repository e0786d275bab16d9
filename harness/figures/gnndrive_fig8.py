"""GNNDrive Fig. 8: epoch time over the feature dimension."""

from __future__ import annotations

from harness.figures.base import (
    Drawing,
    Figure,
    Plain,
    gallery,
    only_systems,
    register,
    unlabelled,
    wide_device,
    with_dims,
)
from harness.figures.evidence import Evidence
from harness.figures.lines import draw_lines
from harness.figures.query import group_runs

SYSTEMS = ["pyg+", "ginex", "gnndrive"]
DIMS = [64, 128, 256, 512]


def needs(profile: Plain) -> Plain:
    """The profile's capped systems on its graph with each dimension."""
    profile = gallery(profile)
    changed, names = with_dims(wide_device(profile), DIMS)
    systems = only_systems(profile, SYSTEMS)
    return {**changed, "name": "gnndrive-fig8", "systems": systems, "grid": {"dataset": names}}


def draw(evidence: Evidence) -> Drawing:
    """One line a system over the dimension."""
    group = group_runs(
        evidence.frame,
        axis=lambda config: config["dataset"]["dim"],
        ignore=["dataset"],
        where=lambda config: unlabelled(config) and config["memory"] != "none" and config["system"] in SYSTEMS,
    )
    return draw_lines(
        group, title="Epoch time over feature dimension", xlabel="feature dimension", ylabel="epoch time (s)"
    )


register(Figure("gnndrive-fig8", "gnndrive", "Epoch time over feature dimension", needs, draw))
