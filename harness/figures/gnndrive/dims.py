"""GNNDrive Figures 2 and 8: sampling time and epoch time over the feature dimension."""

from __future__ import annotations

from dataclasses import replace

from harness.compare.plan import Plain, Plan, grid, joined
from harness.compare.points import Group, NotDrawn, stage_seconds
from harness.figures.base import Figure, left_out, only_systems, register, values
from harness.figures.draw import style
from harness.figures.draw.kinds import Axis, bars, curves
from harness.figures.draw.style import Look
from harness.figures.gnndrive.grid import CPU, SYSTEMS, cpu_variant, grows, narrow, over_dims

DIMS = [64, 128, 256, 512]
MODELS = {"sage": "GraphSAGE", "gcn": "GCN", "gat": "GAT"}
#: Stages of a run and their suffix to the system's name.
STAGES = {"sample": "only", "all": "all"}


def sampling(profile: Plain) -> Plan:
    """Plan the capped systems at each dimension, with sampling only and with all stages."""
    short = narrow(profile)
    changed, runs = over_dims(short, values(profile, "dims", DIMS))
    entries = []
    for entry in only_systems(short, SYSTEMS):
        own: Plain = {"name": entry} if isinstance(entry, str) else entry
        for stages, name in STAGES.items():
            run = {**own.get("run", {}), "stages": stages}
            entries.append({**own, "series": f"{own['name']}-{name}", "run": run})
    return grid(changed, entries, runs)


def _open_or_filled(series: str) -> Look:
    """Return the system's look: white with its hatch for sampling only, its plain colour for all stages."""
    system, _, stages = series.rpartition("-")
    look = style.look(system)
    return replace(look, color="white") if stages == "only" else replace(look, hatch="")


def _both(group: Group) -> str:
    if len({series.rpartition("-")[2] for series in group.systems()}) < len(STAGES):
        raise NotDrawn("no runs with sampling only beside runs with all stages (run with --figures gnndrive-fig2)")
    return grows(group.points, "dimension")


def epochs(profile: Plain) -> Plan:
    """Plan the systems at each dimension with each model, the CPU variant with GraphSAGE.

    A model that the profile leaves out runs only at the profile's dimension, on both devices for the comparison.
    """
    short = narrow(profile)
    changed, runs = over_dims(short, values(profile, "dims", DIMS))
    own = int(short["datasets"][short["run"]["dataset"]].get("dim", 128))
    models = values(profile, "models", list(MODELS))
    systems = only_systems(short, SYSTEMS)
    plans = []
    for model, title in MODELS.items():
        dims = runs if model in models else {own: {}}
        plans.append(grid(changed, systems, {dim: {**run, "model": model} for dim, run in dims.items()}, panel=title))
        for dim, run in dims.items():
            if model != "sage" and model in models:
                continue
            cpu = cpu_variant({**short, "run": {**short["run"], **run}}, {**run, "device_memory": None})
            plans.append(grid(changed, [cpu], {dim: {"model": model}}, panel=title))
    return joined(plans)


def _left_out(group: Group) -> str:
    drawn = {point.panel for point in group.points}
    parts = [
        grows(group.points, "dimension"),
        "of the CPU variant, device memory is in the host budget" if CPU in group.systems() else "",
        left_out([model for model, title in MODELS.items() if title in drawn], list(MODELS), "model"),
        "one dataset of the paper's four",
    ]
    return "; ".join(part for part in parts if part)


register(
    Figure(
        "gnndrive-fig2",
        sampling,
        bars(
            sampling,
            Axis("feature dimension", DIMS, "dimension"),
            value=stage_seconds("sample"),
            looks=_open_or_filled,
            title="Sampling alone (-only) and with all stages (-all)",
            ylabel="sampling time per epoch (s)",
            log=True,
            numbers="",
            note=_both,
        ),
    )
)
register(Figure("gnndrive-fig8", epochs, curves(epochs, Axis("feature dimension", DIMS, "dimension"), note=_left_out)))
