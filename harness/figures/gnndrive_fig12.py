"""GNNDrive Fig. 12: epoch time over the size of the feature buffer, GPU and CPU variant."""

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
from harness.figures.ginex_grid import batch_sizes
from harness.figures.gnndrive_grid import (
    CPU,
    as_csv,
    cpu_points,
    cpu_variant,
    in_bytes,
    is_plain,
    looks,
    rows_of,
    run_ids,
)
from harness.figures.query import group_runs
from workloads.units import parse_bytes

FACTORS = [1.0, 2.0, 4.0, 8.0]
# The paper's default buffer is 4 % of its features. Mini-batches of a quarter of the profile's size, four times as many
# of them, keep ours near that, so that the largest still holds a part of what an epoch reads and not all of it.
BATCH_FACTOR = 0.25


def needs(profile: Plain) -> Plain:
    """gnndrive on both devices with each buffer; the memory that the largest needs is there in all runs."""
    short = in_bytes(gallery(profile))
    (sizes,) = batch_sizes(short, [BATCH_FACTOR])
    short["run"] = {**short["run"], **sizes}
    factors = [float(factor) for factor in values(profile, "buffer_factors", FACTORS)]
    memory = short["run"].get("device_memory")
    if memory is not None:
        # The largest buffer fits: the profile's memory holds one of its own size, for mini-batches of its own size.
        short["run"]["device_memory"] = round(max(factors) * parse_bytes(memory))
    grid = {"options.feature_buffer_scale": factors}
    systems = [*only_systems(short, ["gnndrive"]), cpu_variant(short)]
    return {**short, "name": "gnndrive-fig12", "systems": systems, "grid": grid}


def scale_of(config: Mapping[str, Any]) -> float:
    """Times the buffer's own size."""
    return float(config["options"].get("feature_buffer_scale", 1.0))


def _mine(config: Mapping[str, Any]) -> bool:
    plain = is_plain({**config, "options": {}})
    return plain and config["system"] == "gnndrive" and config["options"].get("feature_buffer", "auto") == "auto"


def draw(evidence: Evidence) -> Drawing:
    """A bar a variant and size."""
    group = group_runs(
        evidence.frame, axis=scale_of, ignore=[], where=lambda config: _mine(config) and config["device"] != "cpu"
    )
    points = [*group.points, *cpu_points(evidence.frame, group, axis=scale_of, ignore=[], where=_mine)]
    rows = rows_of(points).rename(columns={"x": "group", "y": "value"}).sort_values("group", kind="stable")
    rows["buffer_bytes"] = [_buffer_bytes(points, run) for run in rows["run"]]
    canvas, _ = draw_bars(
        rows, title="Epoch time over feature buffer", ylabel="epoch time (s)",
        xlabel="feature buffer, times its own size",
        tick=lambda factor: f"{factor:g}x", looks=looks, numbers=".2f",
    )  # fmt: skip
    drawn = sorted({float(point.x) for point in points})
    parts = [
        left_out([f"{x:g}x" for x in drawn], [f"{x:g}x" for x in FACTORS], "buffer"),
        "one dataset of the paper's four",
    ]
    if not (rows["series"] == CPU).any():
        parts.append("not run: the CPU variant")
    text = caption(group, points, "; ".join(part for part in parts if part))
    add_caption(canvas, text)
    return Drawing(canvas, as_csv(rows), text, run_ids(points))


def _buffer_bytes(points: list[Any], run: str) -> int | None:
    for point in points:
        if point.record.get("run_id") == run:
            plan = point.record.get("memory", {}).get("plan", [])
            return next((int(item["bytes"]) for item in plan if item["name"] == "feature buffer"), None)
    return None


register(
    Figure(
        "gnndrive-fig12", "gnndrive", "Epoch time over feature buffer", needs, draw, claims=("gd-20", "gd-21"),
        full="1x, 2x, 4x, 8x with three models on four datasets, GPU and CPU variant",
    )
)  # fmt: skip
