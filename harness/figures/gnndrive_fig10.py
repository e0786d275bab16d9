"""GNNDrive Fig. 10: epoch time over the mini-batch size."""

from __future__ import annotations

from harness.figures.base import Drawing, Figure, Plain, gallery, only_systems, register, unlabelled
from harness.figures.evidence import Evidence
from harness.figures.lines import draw_lines
from harness.figures.query import group_runs

SYSTEMS = ["pyg+", "ginex", "gnndrive"]
# The paper's 500 to 4000 around its default of 1000: the same factors of the profile's batch size. Above the default
# the profile's device memory would not hold two batches, so the sweep goes downward where the paper goes up.
FACTORS = [0.25, 0.5, 0.75, 1.0]


def needs(profile: Plain) -> Plain:
    """The profile's capped systems at each batch size; every epoch trains all training nodes."""
    profile = gallery(profile)
    size = int(profile["run"]["batch_size"])
    sizes = sorted({max(1, round(size * factor)) for factor in FACTORS})
    systems = only_systems(profile, SYSTEMS)
    run = {**profile["run"], "max_batches": 0}
    return {**profile, "name": "gnndrive-fig10", "run": run, "systems": systems, "grid": {"batch_size": sizes}}


def draw(evidence: Evidence) -> Drawing:
    """One line a system over the batch size."""
    group = group_runs(
        evidence.frame,
        axis=lambda config: config["batch_size"],
        ignore=["batch_size"],
        where=lambda config: (
            unlabelled(config)
            and config["memory"] != "none"
            and config["max_batches"] == 0
            and config["system"] in SYSTEMS
        ),
    )
    return draw_lines(
        group,
        title="Epoch time over mini-batch size",
        xlabel="mini-batch size (seed nodes)",
        ylabel="epoch time (s)",
    )


register(Figure("gnndrive-fig10", "gnndrive", "Epoch time over mini-batch size", needs, draw))
