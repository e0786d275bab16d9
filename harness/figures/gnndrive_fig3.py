"""GNNDrive Fig. 3: CPU, GPU and I/O-wait of the systems it improves on, over an epoch window."""

from __future__ import annotations

from harness.figures import style
from harness.figures.base import Drawing, Figure, Plain, only_systems, register
from harness.figures.evidence import Evidence
from harness.figures.timelines import draw_timelines, newest_runs

SYSTEMS = ["pyg+", "ginex", "mariusgnn"]


def needs(profile: Plain) -> Plain:
    """The profile's capped runs of these systems."""
    return {**profile, "name": "gnndrive-fig3", "systems": only_systems(profile, SYSTEMS), "grid": {}}


def draw(evidence: Evidence) -> Drawing:
    """A panel a system."""
    group = newest_runs(evidence.frame, SYSTEMS)
    done = {point.system: point for point in group.points if point.value is not None}
    points = [done[name] for name in style.ordered(list(done))]
    missing = [name for name in SYSTEMS if name not in done]
    note = f"not run: {', '.join(missing)}" if missing else ""
    return draw_timelines(points, group, [point.system for point in points], note)


register(Figure("gnndrive-fig3", "gnndrive", "CPU, GPU and I/O wait of the baselines", needs, draw, headline=True))
