"""GNNDrive Fig. 11: CPU, GPU and I/O-wait of gnndrive, GPU variant and CPU variant."""

from __future__ import annotations

from typing import Any

from harness.figures.base import Drawing, Figure, Plain, only_systems, register
from harness.figures.evidence import Evidence
from harness.figures.query import Group, NotDrawn
from harness.figures.timelines import draw_timelines, newest_runs


def needs(profile: Plain) -> Plain:
    """gnndrive as in the profile, and on the processor with the device memory moved into the host budget."""
    from workloads.units import parse_bytes

    run = profile["run"]
    host = parse_bytes(str(run["memory"]).removeprefix("+")) + parse_bytes(run.get("device_memory") or 0)
    cpu: dict[str, Any] = {"name": "gnndrive", "run": {"device": "cpu", "device_memory": None, "memory": f"+{host}"}}
    return {**profile, "name": "gnndrive-fig11", "systems": [*only_systems(profile, ["gnndrive"]), cpu], "grid": {}}


def draw(evidence: Evidence) -> Drawing:
    """The GPU variant above, the CPU variant below where it ran."""
    frame = evidence.frame
    points, titles, groups = [], [], []
    for title, cpu in (("GPU", False), ("CPU", True)):
        chosen = (
            frame[[(record["config"]["device"] == "cpu") == cpu for record in frame["record"]]] if len(frame) else frame
        )
        try:
            group = newest_runs(chosen, ["gnndrive"])
        except NotDrawn:
            continue
        done = [point for point in group.points if point.value is not None]
        if done:
            device = done[0].record["config"]["device"]
            groups.append(group)
            points.append(done[0])
            titles.append(f"gnndrive, {title} variant ({device})")
    if not points:
        raise NotDrawn("no run of gnndrive under a cap")
    first: Group = groups[0]
    note = "" if len(points) > 1 else "not run: the CPU variant (--figures gnndrive-fig11)"
    return draw_timelines(points, first, titles, note)


register(Figure("gnndrive-fig11", "gnndrive", "CPU, GPU and I/O wait of gnndrive", needs, draw, headline=True))
