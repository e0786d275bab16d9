"""Ginex Fig. 18: speedup over pyg+ over the host memory: half, all and twice the default."""

from __future__ import annotations

from typing import Any

from harness.figures.base import Drawing, Figure, Plain, gallery, register, values
from harness.figures.evidence import Evidence
from harness.figures.ginex_grid import SYSTEMS, host_budget, is_plain, systems_of
from harness.figures.ginex_speedups import draw_speedups
from harness.figures.query import group_runs
from workloads.units import format_bytes, parse_bytes

# 32, 64 and 128 GB in the paper.
FACTORS = [0.5, 1.0, 2.0]


def needs(profile: Plain) -> Plain:
    """The three systems at each budget."""
    profile = gallery(profile)
    budget = host_budget(profile)
    memory = [f"+{round(budget * factor)}" for factor in values(profile, "memory_steps", FACTORS)]
    return {**profile, "name": "ginex-fig18", "systems": systems_of(profile, SYSTEMS), "grid": {"memory": memory}}


def budget_of(config: Any) -> int:
    """The host budget of a run in bytes."""
    return parse_bytes(str(config["memory"]).removeprefix("+"))


def draw(evidence: Evidence) -> Drawing:
    """Bars over the budget."""
    group = group_runs(
        evidence.frame,
        axis=budget_of,
        ignore=["memory"],
        where=lambda config: (
            config["system"] in SYSTEMS
            and is_plain(config)
            and config["model"] == "sage"
            and str(config["memory"]).startswith("+")
        ),
    )
    return draw_speedups(
        group,
        title="Speedup over memory",
        xlabel="host memory budget beyond floor and training",
        tick=lambda value: format_bytes(value),
        extra="a budget is what the paper's memory size leaves once interpreter and training have theirs; the "
        "paper has half, all and twice its default",
    )


register(
    Figure(
        "ginex-fig18", "ginex", "Speedup over memory size", needs, draw, claims=("gx-14",),
        full="32, 64, 128 GB on four datasets",
    )
)  # fmt: skip
