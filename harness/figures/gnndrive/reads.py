"""GNNDrive Figure B.1: buffered and direct reads by threads that wait and by one thread
that does not."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels
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


def _deepest(rows: pd.DataFrame) -> pd.Series[float]:
    """Return the bandwidth of buffered and of direct reads at the deepest queue, as far
    as measured."""
    queued = rows[rows.engine == "async"].sort_values("depth")
    return queued.groupby("series").bandwidth_mb_per_s.last()


def _faster(rows: pd.DataFrame) -> str:
    """Return the sentence on direct and buffered reads at the deepest queue; empty
    without both."""
    rates = _deepest(rows).sort_values()
    if len(rates) < 2:
        return ""
    slower, faster = rates.index
    times = rates[faster] / rates[slower]
    return (
        f"At the deepest queue, {faster} reads are {times:.2g} times as fast as "
        f"{slower} ones"
    )


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
    notes.append("pages that a buffered point reads again are served from memory")
    rates = _deepest(rows)
    if len(rates) == 2:
        gap = 100 * (rates["buffered"] / rates["direct"] - 1)
        notes.append(
            f"buffered over direct reads at the deepest queue: {gap:+.1f} % "
            "(paper: 5.6 % apart)"
        )
    return notes
