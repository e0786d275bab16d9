"""GNNDrive Fig. 9: epoch time over the memory cap, at dimension 512, OOM marked."""

from __future__ import annotations

from typing import Any

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
from workloads.units import format_bytes, parse_bytes

# The paper goes from 8 to 128 GB, which is 4 to 60 % of papers100M's features at dimension 512; at that dimension the
# profile's budget is about the smallest.
FACTORS = [1.0, 2.0, 4.0, 8.0]


def needs(profile: Plain) -> Plain:
    """The profile's systems, in-memory too, at budgets of one to eight times the profile's, dimension 512."""
    profile = gallery(profile)
    changed, names = with_dims(wide_device(profile), [512])
    budget = parse_bytes(str(profile["run"]["memory"]).removeprefix("+"))
    systems = only_systems(profile, ["in-memory", "pyg+", "ginex", "gnndrive"])
    changed["run"] = {**changed["run"], "dataset": names[0]}
    memory = [f"+{round(budget * factor)}" for factor in FACTORS]
    return {**changed, "name": "gnndrive-fig9", "systems": systems, "grid": {"memory": memory}}


def _budget(config: Any) -> float:
    text = str(config["memory"])
    return parse_bytes(text.removeprefix("+")) if not text.endswith("x") else float(text[:-1])


def draw(evidence: Evidence) -> Drawing:
    """One line a system over the budget."""
    group = group_runs(
        evidence.frame,
        axis=_budget,
        ignore=["memory"],
        where=lambda config: unlabelled(config) and str(config["memory"]).startswith("+"),
    )
    return draw_lines(
        group,
        title="Epoch time over memory",
        xlabel="host memory budget beyond floor and training",
        ylabel="epoch time (s)",
        tick=lambda value: format_bytes(value),
    )


register(Figure("gnndrive-fig9", "gnndrive", "Epoch time over memory cap", needs, draw))
