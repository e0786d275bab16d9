"""GNNDrive Fig. B.1: bandwidth and latency of synchronous threads and one asynchronous thread, buffered and direct."""

from __future__ import annotations

from functools import partial

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, drawn, figure
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.draw.style import named_looks
from harness.studies.base import StudyNeed
from workloads.units import format_bytes

STUDY = "fio-grid"
MODES = ["direct", "buffered"]
# Engine, x column, y label and y column of each panel.
PANELS = [
    ("sync", "threads", "bandwidth (MB/s)", "bandwidth_mb_per_s"),
    ("async", "depth", "bandwidth (MB/s)", "bandwidth_mb_per_s"),
    ("sync", "threads", "mean latency (µs)", "latency_us"),
    ("async", "depth", "mean latency (µs)", "latency_us"),
]
XLABELS = {"threads": "synchronous threads", "depth": "I/O depth of one asynchronous thread"}


@figure("gnndrive-figB1", studies=lambda profile: [StudyNeed(STUDY)])
def fig_b1(evidence: Evidence) -> Drawing:
    """Draw bandwidth (top), latency (bottom) over threads and queue depth; raise NotDrawn without buffered reads."""
    record = evidence.study(STUDY)
    points = [point for point in record.result["points"] if point["pattern"] == "random"]
    block = min((point["block_bytes"] for point in points if not point["direct"]), default=0)
    rows = pd.DataFrame(
        {
            "engine": point["engine"],
            "series": "direct" if point["direct"] else "buffered",
            "threads": point["threads"],
            "depth": point["depth"],
            "iops": point["iops"],
            "bandwidth_mb_per_s": point["bytes_per_s"] / 1e6,
            "latency_us": point["mean_latency_s"] * 1e6,
        }
        for point in points
        if point["block_bytes"] == block
    )
    if rows.empty:
        raise NotDrawn(f"the study {STUDY} holds no buffered reads to compare")
    canvas, panels = many_panels(4, columns=2, height=2.0)
    log = partial(draw_curves, title="", xlog=True, ylog=True, looks=named_looks(MODES))
    for axes, (engine, x, ylabel, y) in zip(panels, PANELS, strict=True):
        mine = rows[rows["engine"] == engine]
        log(mine.assign(x=mine[x], y=mine[y]), xlabel=XLABELS[x], ylabel=ylabel, axes=axes)
    legend_above(canvas, panels)
    return drawn(canvas, rows, record, *_notes(record.result, record.params, rows, block))


def _notes(result: Plain, params: Plain, rows: pd.DataFrame, block: int) -> list[str]:
    device = result["device"]
    deepest = rows[(rows["engine"] == "async") & (rows["depth"] == rows["depth"].max())].set_index("series")
    rates = deepest["bandwidth_mb_per_s"]
    gap = 100 * (rates["buffered"] / rates["direct"] - 1) if {"buffered", "direct"} <= set(rates.index) else None
    reads = f"random {block} B reads of a {format_bytes(result['file_bytes'])} file"
    parts = [
        f"{device.get('model') or device.get('name') or 'disk'}, {device['file_system']}",
        f"{reads}, by read calls and by {result['asynchronous']}, {params['seconds']:g} s a point",
        "pages that a buffered point reads again are served from memory",
    ]
    if gap is not None:
        where = "above" if gap > 0 else "below"
        parts.append(
            f"at the deepest queue buffered reads are {abs(gap):.1f} % {where} direct ones (paper: 5.6 % apart)"
        )
    return parts
