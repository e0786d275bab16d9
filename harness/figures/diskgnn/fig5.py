"""DiskGNN Figures 5 and 16: savings in reading by reordering and segmented disk caches, and their disk space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from harness.compare.evidence import Evidence
from harness.figures.base import Drawing, Figure, Plain, add_caption, no_runs, register, study_caption, values
from harness.figures.diskgnn.grid import planning_needs
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.looks import named_looks
from harness.figures.draw.panels import legend_above, many_panels
from harness.records.study import StudyRecord
from harness.studies.base import StudyNeed

SEGMENTS = [50, 100, 150]
VARIANTS = ["not reordered", "global", "segmented"]
GIB = 2**30


def studies(profile: Plain) -> list[StudyNeed]:
    """Return the study of one epoch's disk caches, with a tenth of the rows in memory and reads of at least 4 KiB."""
    return planning_needs(profile, "amplification", segments=values(profile, "segments", SEGMENTS))


def _name(record: StudyRecord) -> str:
    return record.dataset.name if record.dataset else ""


def _said(records: list[StudyRecord], extra: str) -> str:
    share = records[0].params["memory_share"]
    facts = "; ".join(f"{_name(record)}: {record.result['batches']} mini-batches" for record in records)
    return study_caption(
        records[0],
        f"{100 * share:g} % of the rows in memory, reads of {records[0].params['granularity']} B; {facts}; {extra}",
    )


def _middle(record: StudyRecord) -> int:
    """Return the segment size that stands for `segmented`: the middle one of all computed sizes."""
    lengths = sorted({layout["segment"] for layout in record.result["layouts"] if not layout["global"]})
    return int(lengths[len(lengths) // 2]) if lengths else int(record.result["batches"])


def chosen_layouts(record: StudyRecord) -> dict[str, Plain]:
    """Return the three layouts of Figure 5 by variant."""
    found: dict[str, Plain] = {}
    for layout in record.result["layouts"]:
        if layout["global"]:
            found[VARIANTS[1] if layout["reordered"] else VARIANTS[0]] = layout
        elif layout["reordered"] and layout["segment"] == _middle(record):
            found[VARIANTS[2]] = layout
    return found


def draw_fig5(evidence: Evidence) -> Drawing:
    """Draw read amplification (left) and each mini-batch's saving over no reordering, sorted (right)."""
    records = evidence.all_studies("amplification")
    shown = max(records, key=lambda record: float(record.result["layouts"][0]["amplification"]))
    bars: list[Plain] = []
    curves: list[Plain] = []
    for record in records:
        for variant, layout in chosen_layouts(record).items():
            bars.append(
                {
                    "panel": "amplification",
                    "group": _name(record),
                    "series": variant,
                    "value": layout["amplification"],
                    "cache_value": layout["cache_amplification"],
                    "segment": layout["segment"],
                }
            )
            if record is shown and variant != VARIANTS[0]:
                saved = 100 * np.asarray(layout["reduction"])[::-1]
                share = np.linspace(0, 100, len(saved))
                curves += [
                    {"panel": "reduction", "series": variant, "x": x, "y": y} for x, y in zip(share, saved, strict=True)
                ]
    looks = named_looks(VARIANTS)
    canvas, panels = many_panels(2)
    draw_bars(
        pd.DataFrame(bars),
        title="(a) Read amplification",
        ylabel="bytes read over bytes wanted",
        looks=looks,
        numbers=".1f",
        axes=panels[0],
    )
    draw_curves(
        pd.DataFrame(curves),
        title=f"(b) Saved, {_name(shown)}",
        xlabel="mini-batches (%), most saved first",
        ylabel="fewer bytes than not reordered (%)",
        looks=looks,
        axes=panels[1],
    )
    legend_above(canvas, panels, VARIANTS)
    segments = sorted({_middle(record) for record in records})
    text = _said(
        records,
        f"rows that a segment asks for twice are in its disk cache, the others packed; all their reads count; "
        f"segments of {', '.join(map(str, segments))}",
    )
    add_caption(canvas, text)
    return Drawing(canvas, pd.DataFrame([*bars, *curves]), text)


def draw_fig16(evidence: Evidence) -> Drawing:
    """Draw bytes read per epoch with and without reordering (left) and bytes on disk (right) over segment size."""
    records = evidence.all_studies("amplification")
    record = records[-1]
    rows: list[dict[str, Any]] = []
    for layout in record.result["layouts"]:
        if layout["global"]:
            continue
        series = "reordered" if layout["reordered"] else "not reordered"
        rows.append(
            {
                "group": layout["segment"],
                "series": series,
                "read_gib": layout["read_bytes"] / GIB,
                "disk_gib": layout["disk_bytes"] / GIB,
                "disk_x": layout["disk_bytes"] / record.result["feature_bytes"],
            }
        )
    table = pd.DataFrame(rows).sort_values(["group", "series"], ignore_index=True)
    canvas, panels = many_panels(2)
    looks = named_looks(["not reordered", "reordered"])
    draw_bars(
        table.assign(value=table["read_gib"]),
        title="Disk traffic",
        ylabel="read in an epoch (GiB)",
        xlabel="mini-batches of a segment",
        looks=looks,
        numbers=".1f",
        axes=panels[0],
    )
    space = table[table["series"] == "reordered"].assign(series="any order")
    looks = named_looks(["not reordered", "reordered", "any order"])
    draw_bars(
        space.assign(value=space["disk_x"]),
        title="Disk space",
        ylabel="over the feature table (x)",
        xlabel="mini-batches of a segment",
        looks=looks,
        numbers=".2f",
        axes=panels[1],
    )
    legend_above(canvas, panels)
    text = _said([record], "packed chunks and disk caches, feature rows alone")
    add_caption(canvas, text)
    return Drawing(canvas, table, text)


register(Figure("diskgnn-fig5", no_runs, draw_fig5, studies=studies))
register(Figure("diskgnn-fig16", no_runs, draw_fig16, studies=studies))
