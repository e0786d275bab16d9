"""GNNDrive Fig. 3: CPU, GPU and I/O-wait of the systems it improves on, over an epoch window."""

from __future__ import annotations

from harness.figures import style
from harness.figures.base import Drawing, Figure, Plain, gallery, only_systems, register
from harness.figures.evidence import Evidence
from harness.figures.gnndrive_grid import plain_runs
from harness.figures.timelines import draw_timelines, newest_runs

SYSTEMS = ["pyg+", "ginex", "mariusgnn"]


def needs(profile: Plain) -> Plain:
    """Capped runs of these systems; where only the headline's have run, it is drawn from those."""
    short = gallery(profile)
    return {**short, "name": "gnndrive-fig3", "systems": only_systems(short, SYSTEMS), "grid": {}}


def draw(evidence: Evidence) -> Drawing:
    """A panel a system."""
    group = newest_runs(plain_runs(evidence), SYSTEMS)
    done = {point.system: point for point in group.points if point.value is not None}
    points = [done[name] for name in style.ordered(list(done))]
    failed = {point.system: point.status.upper() for point in group.points if point.value is None}
    missing = [
        f"{failed[name]}: {name}" if name in failed else f"not run: {name}" for name in SYSTEMS if name not in done
    ]
    return draw_timelines(points, group, [point.system for point in points], "; ".join(missing))


register(
    Figure(
        "gnndrive-fig3", "gnndrive", "CPU, GPU and I/O wait of the baselines", needs, draw, headline=True,
        full="three epochs of pyg+, ginex, mariusgnn on papers100M with GraphSAGE",
    )
)  # fmt: skip
