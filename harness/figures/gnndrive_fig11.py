"""GNNDrive Fig. 11: CPU, GPU and I/O-wait of gnndrive, GPU variant and CPU variant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.figures.base import Drawing, Figure, Plain, gallery, only_systems, register
from harness.figures.evidence import Evidence
from harness.figures.gnndrive_grid import alike, cpu_variant, plain_runs, usual_runs
from harness.figures.query import Group, NotDrawn
from harness.figures.timelines import draw_timelines, newest_runs

if TYPE_CHECKING:
    import pandas as pd


def needs(profile: Plain) -> Plain:
    """gnndrive as in the profile, and on the processor with the device memory moved into the host budget."""
    short = gallery(profile)
    systems = [*only_systems(short, ["gnndrive"]), cpu_variant(short)]
    return {**short, "name": "gnndrive-fig11", "systems": systems, "grid": {}}


def draw(evidence: Evidence) -> Drawing:
    """The GPU variant above, the CPU variant below where one did the same work."""
    plain = plain_runs(evidence)
    gpu = cpu = None
    for frame in (usual_runs(plain), plain):
        cpu = _newest(frame, cpu=True)
        gpu = _newest(frame, cpu=False, like=cpu)
        if gpu is not None and cpu is not None:
            break
    if gpu is None or cpu is None:
        # A run of the other variant that trained something else is not shown beside it.
        gpu = _newest(plain, cpu=False)
        cpu = None if gpu is not None else cpu
    found = [group for group in (gpu, cpu) if group is not None]
    if not found:
        raise NotDrawn("no run of gnndrive under a cap")
    points = [group.points[0] for group in found]
    names = ["GPU" if group is gpu else "CPU" for group in found]
    titles = [
        f"gnndrive, {name} variant ({point.record['config']['device']})"
        for name, point in zip(names, points, strict=True)
    ]
    missing = "CPU" if cpu is None else "GPU" if gpu is None else ""
    note = (
        f"not run in the same setting: the {missing} variant (--figures gnndrive-fig11)"
        if missing
        else "of the CPU variant, the device's memory is in its host budget"
    )
    return draw_timelines(points, found[0], titles, note)


def _newest(frame: pd.DataFrame, *, cpu: bool, like: Group | None = None) -> Group | None:
    """The best measured group of one variant, of the same work as `like` where that is given."""
    if frame.empty:
        return None
    same = alike(like, ["device", "device_memory_bytes", "memory"]) if like is not None else lambda config: True
    chosen = frame[
        [(record["config"]["device"] == "cpu") == cpu and same(record["config"]) for record in frame["record"]]
    ]
    try:
        group = newest_runs(chosen, ["gnndrive"])
    except NotDrawn:
        return None
    return group if group.points[0].value is not None else None


register(
    Figure(
        "gnndrive-fig11", "gnndrive", "CPU, GPU and I/O wait of gnndrive", needs, draw, headline=True,
        claims=("gd-14",), full="three epochs of both variants on papers100M with GraphSAGE",
    )
)  # fmt: skip
