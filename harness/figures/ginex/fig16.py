"""Ginex Fig. 16: epoch time over the superbatch size, normalised to the default size."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import NotDrawn
from harness.figures.base import (
    Drawing,
    Figure,
    Plain,
    add_caption,
    caption,
    gallery,
    left_out,
    published,
    register,
    values,
)
from harness.figures.draw import style
from harness.figures.draw.panels import legend_above, one_panel
from harness.figures.ginex.grid import systems_of

# Factors on the default: 100 GB of runtime files in the paper (Section 5.4), half an epoch's mini-batches here.
FACTORS = [0.25, 0.5, 1.0, 2.0]
FILES = ["25GB", "50GB", "100GB", "200GB"]


def sizes_of(profile: Plain) -> list[int]:
    """Return superbatch sizes in mini-batches, the default third; empty where epochs are whole."""
    batches = int(gallery(profile)["run"].get("max_batches", 0))
    return [max(1, round(batches / 2 * factor)) for factor in FACTORS] if batches else []


def over_superbatches(profile: Plain) -> Plan:
    """Plan ginex at each superbatch size, or at the paper's budgets of runtime files where epochs are whole."""
    short = gallery(profile)
    sizes: dict[int, Plain]
    if sizes_of(profile):
        sizes = {size: {"options": {"superbatch": size}} for size in values(profile, "superbatches", sizes_of(profile))}
    else:
        sizes = {int(size.removesuffix("GB")): {"options": {"runtime_files": size}} for size in FILES}
    return grid(short, systems_of(short, ["ginex"]), sizes)


def draw(evidence: Evidence) -> Drawing:
    """Draw time over size, both over the default's, and the paper's values; raise NotDrawn below two sizes."""
    group = evidence.points(over_superbatches)
    points = sorted((point for point in group.points if point.value is not None), key=lambda point: point.x)
    if len(points) < 2:
        raise NotDrawn("ginex finished with fewer than two superbatch sizes")
    batches = int(points[0].record["config"]["max_batches"])
    by_size = bool(points[0].record["config"]["options"].get("superbatch"))
    default = _nearest([point.x for point in points], batches / 2 if by_size and batches else 100)
    whole = next(float(point.value or 0) for point in points if point.x == default)
    rows = pd.DataFrame(
        [
            {
                "size": point.x,
                "factor": point.x / default,
                "epoch_s": point.value,
                "value": float(point.value or 0) / whole,
                "low": float(point.low or 0) / whole,
                "high": float(point.high or 0) / whole,
                "switch_s": (point.record["summary"].get("stages_s") or {}).get("switch"),
                "unit": "mini-batches" if by_size else "GB of runtime files",
                "run": point.record["run_id"],
            }
            for point in points
        ]
    )
    canvas, axes = one_panel()
    look = style.look("ginex")
    error = [(rows["value"] - rows["low"]).clip(lower=0), (rows["high"] - rows["value"]).clip(lower=0)]
    axes.errorbar(
        rows["factor"],
        rows["value"],
        yerr=error,
        color=look.color,
        marker=look.marker,
        linestyle=look.line,
        markeredgecolor="black",
        markeredgewidth=0.4,
        capsize=2.0,
        elinewidth=0.8,
        label="ginex",
    )
    axes.plot(
        [1.0], [1.0], marker="o", markersize=11, markerfacecolor="none", markeredgecolor="black", linestyle="none"
    )
    paper = published("ginex-fig16")
    if len(paper):
        axes.plot(
            paper["x"].astype(float),
            1 - paper["value"] / 100,
            marker="D",
            linestyle="none",
            markerfacecolor="none",
            markeredgecolor="black",
            markersize=4.0,
            label="paper, its four datasets",
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(
        list(rows["factor"]),
        [f"{factor:g}x\n{size}" for factor, size in zip(rows["factor"], rows["size"], strict=True)],
    )
    axes.minorticks_off()
    axes.set_ylim(0, 1.08 * max(1.0, float(rows["high"].max())))
    axes.set_xlabel(f"superbatch over the default (circled); {rows['unit'].iloc[0]}")
    axes.set_ylabel("epoch time over the default's")
    axes.set_title("Epoch time over superbatch size", loc="left")
    legend_above(canvas, [axes])
    full = [round(default * factor) for factor in FACTORS]
    text = caption(group, points, left_out(list(rows["size"]), full, "superbatch of"))
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, runs=group.runs())


def _nearest(sizes: list[int], wanted: float) -> int:
    return min(sizes, key=lambda size: (abs(size - wanted), size))


register(Figure("ginex-fig16", over_superbatches, draw))
