"""GNNDrive Figure B.1: buffered and direct reads by threads that wait and by one thread
that does not."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels
from harness.figures.findings import plain
from harness.records.study import StudyRecord
from harness.studies.base import StudyNeed
from workloads.units import format_bytes

FIO = "fio-grid"
SYNC = ("sync", "threads", "synchronous threads (log)")
ASYNC = ("async", "depth", "I/O depth of one asynchronous thread (log)")
BANDWIDTH = ("bandwidth_mb_per_s", "bandwidth (MB/s), log")
LATENCY = ("latency_us", "mean latency (µs), log")
#: Engine, column of the x axis and its label, column of the y axis and its label, of
#: each panel.
PANELS = [SYNC + BANDWIDTH, ASYNC + BANDWIDTH, SYNC + LATENCY, ASYNC + LATENCY]
COLUMNS = [
    "engine",
    "series",
    "threads",
    "depth",
    "iops",
    "bandwidth_mb_per_s",
    "latency_us",
]


@figure("gnndrive-figB1", studies=lambda profile: [StudyNeed(FIO)])
def fig_b1(evidence: Evidence) -> Drawing:
    """Draw bandwidth (top), latency (bottom) over threads and queue depth; raise
    NotDrawn without buffered reads."""
    record = evidence.study(FIO)
    rows = _smallest_reads(record)
    canvas, panels = many_panels(4, columns=2, height=2.0)
    for axes, (engine, x, xlabel, y, ylabel) in zip(panels, PANELS, strict=True):
        own = rows[rows.engine == engine]
        points = own.assign(x=own[x], y=own[y])
        draw_curves(
            points,
            title="",
            xlabel=xlabel,
            ylabel=ylabel,
            xlog=True,
            ylog=True,
            axes=axes,
        )
    return drawn(
        canvas, rows[COLUMNS], record, *_notes(record, rows), finding=_faster(rows)
    )


def _rates(rows: pd.DataFrame, engine: str, by: str) -> tuple[int, Any]:
    """Return the most threads or the deepest queue of an engine, and the bandwidth of
    buffered and of direct reads there, slower first."""
    own = rows[rows.engine == engine]
    most = own[own[by] == own[by].max()]
    rates = most.set_index("series").bandwidth_mb_per_s.sort_values()
    return int(own[by].max()), rates


def _faster(rows: pd.DataFrame) -> str:
    """Return the sentence on direct and buffered reads of one thread at the deepest
    queue, and of the most threads; empty without both."""
    parts = []
    for engine, by, text in (
        ("async", "depth", "With one thread at depth {}"),
        ("sync", "threads", "with {} threads that wait"),
    ):
        most, rates = _rates(rows, engine, by)
        if len(rates) == 2:
            slower, faster = rates.index
            times = plain(rates[faster] / rates[slower])
            where = text.format(most)
            parts.append(
                f"{where}, {faster} reads are {times} times as fast as {slower}"
            )
    return "; ".join(parts)


def _smallest_reads(record: StudyRecord) -> pd.DataFrame:
    """Return the random reads of the smallest buffered block, with `series`, `buffered`
    or `direct`, and MB and µs."""
    points = pd.DataFrame(record.result["points"])
    reads: pd.DataFrame = points[points.pattern == "random"]
    series = reads.direct.map({True: "direct", False: "buffered"})
    bandwidth = reads.bytes_per_s / 1e6
    reads = reads.assign(
        series=series,
        bandwidth_mb_per_s=bandwidth,
        latency_us=reads.mean_latency_s * 1e6,
    )
    block = reads.block_bytes[series == "buffered"].min()
    smallest: pd.DataFrame = reads[reads.block_bytes == block]
    if smallest.empty:
        raise NotDrawn(f"the study {FIO} holds no buffered reads to compare")
    return smallest


def _notes(record: StudyRecord, rows: pd.DataFrame) -> list[str]:
    """Return caption text: device, reads, and the gap between buffered and direct
    ones."""
    result = record.result
    device = result["device"]
    model = device.get("model") or device.get("name")
    block = rows.block_bytes.iloc[0]
    file = format_bytes(result["file_bytes"])
    how = (
        f"by read calls and by {result['asynchronous']}, {record.params['seconds']:g} "
        "s a point"
    )
    notes = [
        f"{model}, {device['file_system']}",
        f"random {block} B reads of a {file} file, {how}",
    ]
    notes.append("buffered reads of a page read before are served from memory")
    notes.append("paper: 5.6 % apart at the deepest queue")
    return notes
