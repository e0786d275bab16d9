"""GNNDrive Fig. 13: epoch time over the number of processes, each with a device of its own, and on the processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.figures.bars import draw_bars
from harness.figures.base import (
    Drawing,
    Figure,
    Plain,
    add_caption,
    caption,
    gallery,
    left_out,
    only_systems,
    register,
    values,
)
from harness.figures.evidence import Evidence
from harness.figures.ginex_grid import host_budget
from harness.figures.gnndrive_grid import CPU, as_csv, cpu_points, cpu_variant, is_plain, looks, rows_of, run_ids
from harness.figures.query import group_runs

RANKS = [1, 2, 4, 6, 8]


def needs(profile: Plain) -> Plain:
    """gnndrive in one process and several, on devices and on the processor, on the bare disk: it is not the limit.

    The paper leaves host memory unrestricted; here all runs have the profile's budget times the most processes.
    """
    short = gallery(profile)
    ranks = values(profile, "ranks", RANKS)
    short["run"] = {**short["run"], "memory": f"+{max(ranks) * host_budget(short)}", "disk_class": "none"}
    systems = [*only_systems(short, ["gnndrive"]), cpu_variant(short)]
    return {**short, "name": "gnndrive-fig13", "systems": systems, "grid": {"ranks": ranks}}


def ranks_of(config: Mapping[str, Any]) -> int:
    """Processes of a run."""
    return int(config["ranks"])


def _mine(config: Mapping[str, Any]) -> bool:
    return is_plain({**config, "ranks": 1}) and config["system"] == "gnndrive" and config["partition"] == "none"


def draw(evidence: Evidence) -> Drawing:
    """A bar a variant and number of processes."""
    group = group_runs(
        evidence.frame,
        axis=ranks_of,
        ignore=["ranks"],
        where=lambda config: _mine(config) and config["device"] != "cpu",
    )
    points = [*group.points, *cpu_points(evidence.frame, group, axis=ranks_of, ignore=["ranks"], where=_mine)]
    rows = rows_of(points).rename(columns={"x": "group", "y": "value"}).sort_values("group", kind="stable")
    canvas, _ = draw_bars(
        rows, title="Epoch time over processes", ylabel="epoch time (s)", xlabel="processes", looks=looks,
        numbers=".2f",
    )  # fmt: skip
    emulated = str(group.points[0].record["config"]["device"]).startswith("emulated:")
    parts = [
        "each process has an EMULATED device of its own" if emulated else "each process has a device of its own",
        _cores(points),
        left_out(sorted({int(point.x) for point in points}), RANKS, "processes"),
    ]
    if not (rows["series"] == CPU).any():
        parts.append("not run: the CPU variant")
    text = caption(group, points, "; ".join(part for part in parts if part))
    add_caption(canvas, text)
    return Drawing(canvas, as_csv(rows), text, run_ids(points))


def _cores(points: list[Any]) -> str:
    """On how many cores all processes ran: what bounds the CPU variant."""
    usable = {(point.record.get("environment", {}).get("cpu") or {}).get("usable") for point in points} - {None}
    return f"all processes share {usable.pop()} cores" if len(usable) == 1 else ""


register(
    Figure(
        "gnndrive-fig13", "gnndrive", "Epoch time over processes", needs, draw, claims=("gd-22", "gd-23"),
        full="1, 2, 4, 6, 8 processes on four datasets, eight GPUs and CPU",
    )
)  # fmt: skip
