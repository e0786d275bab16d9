"""GNNDrive Figures 3 and 11: CPU, GPU and I/O wait over time of the baselines and of both variants of gnndrive."""

from __future__ import annotations

from harness.compare.plan import Plain, Plan, first_setting, grid
from harness.compare.points import Group, NotDrawn
from harness.figures.base import Drawing, figure_of_runs
from harness.figures.draw.timelines import draw_timelines
from harness.figures.gnndrive.grid import CPU, cpu_variant
from harness.figures.grids import gallery, only_systems

BASELINES = ["pyg+", "ginex", "mariusgnn"]


def baselines(profile: Plain) -> Plan:
    """Plan capped runs of the baselines."""
    return grid(first_setting(profile), only_systems(profile, BASELINES), {"": {}})


def variants(profile: Plain) -> Plan:
    """Plan gnndrive as in the profile, and on the CPU with the device memory added to the host budget."""
    first = first_setting(profile)
    return grid(first, [*only_systems(first, ["gnndrive"]), cpu_variant(first)], {"": {}})


@figure_of_runs("gnndrive-fig3", lambda profile: baselines(gallery(profile)), otherwise=baselines, least=1)
def fig3(group: Group) -> Drawing:
    """Draw one panel per system, from the headline's runs where the gallery's were not made."""
    points = group.done
    failed = {point.system: point.status.upper() for point in group.points if point.value is None}
    done = [point.system for point in points]
    missing = [f"{failed.get(name, 'not run')}: {name}" for name in BASELINES if name not in done]
    return draw_timelines(points, group, done, "; ".join(missing))


@figure_of_runs("gnndrive-fig11", lambda profile: variants(gallery(profile)), otherwise=variants, least=1)
def fig11(group: Group) -> Drawing:
    """Draw the GPU variant above the CPU variant, as far as measured; raise NotDrawn if neither is."""
    points = group.done
    if not points:
        raise NotDrawn("no run of gnndrive under a cap has a measured epoch")
    names = ["CPU" if point.system == CPU else "GPU" for point in points]
    titles = [
        f"gnndrive, {name} variant ({point.record['config']['device']})"
        for name, point in zip(names, points, strict=True)
    ]
    missing = [name for name in ("GPU", "CPU") if name not in names]
    note = "of the CPU variant, the device's memory is in its host budget"
    if missing:
        note = f"not run in the same setting: the {missing[0]} variant (--figures gnndrive-fig11)"
    return draw_timelines(points, group, titles, note)
