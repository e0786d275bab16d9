"""Trace of one run in the Trace Event format of Perfetto's UI and chrome://tracing.

Processes are the epochs, the system's threads, the lanes of an emulated device, and the
host (counters). Flow arrows follow a mini-batch through its stages. Timestamps are
microseconds from the run's first event.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.atomic import whole_file
from harness.results import store as results
from harness.results.table import each
from workloads.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from harness.records.record import Record

Event = dict[str, Any]

EPOCHS = 1
STAGES = 2
LANES = 3
HOST = 4
_LANE = "lane:"
# Column of telemetry.parquet, counter track, unit, and whether a value covers the
# interval before its sample.
COUNTERS = (
    ("cpu_percent", "CPU", "%", True),
    ("gpu_percent", "GPU", "%", True),
    ("iowait_percent", "I/O wait", "%", True),
    ("mem_usage", "memory of the cap", "bytes", False),
    ("mem_anon", "anonymous memory", "bytes", False),
    ("mem_page_cache", "page cache", "bytes", False),
    ("gpu_memory_bytes", "device memory", "bytes", False),
    ("disk_read_bytes", "disk read", "bytes/s", True),
    ("disk_read_requests", "disk requests", "1/s", True),
    ("disk_queue", "disk queue", "requests", True),
)
_PER_SECOND = ("bytes/s", "1/s")


def write_trace(folder: Path, out: Path) -> dict[str, int]:
    """Write the trace of the run in `folder` to `out`, compressed if its name ends in
    `.gz`; whole or not at all.

    Returns:
        Number of events by phase (`X` spans, `C` counter values, `s` flows begun, …).

    Raises:
        InputError: the run has no record or no stages.
        DataIOError: `out` cannot be written.
    """
    record = results.read_record(folder)
    others = (_where_known(folder, "batches"), _where_known(folder, "telemetry"))
    trace = build_trace(record, results.table(folder, "stages"), *others)
    text = json.dumps(trace, allow_nan=False, separators=(",", ":")).encode()
    # Without name and time in the header, the same run yields the same bytes.
    data = gzip.compress(text, mtime=0) if out.name.endswith(".gz") else text
    with whole_file(out, "the trace") as partial:
        partial.write_bytes(data)
    return dict(Counter(event["ph"] for event in trace["traceEvents"]))


def _where_known(
    folder: Path, name: Literal["telemetry", "batches"]
) -> pd.DataFrame | None:
    try:
        return results.table(folder, name)
    except InputError:
        return None


def build_trace(
    record: Record,
    stages: pd.DataFrame,
    batches: pd.DataFrame | None = None,
    telemetry: pd.DataFrame | None = None,
) -> Event:
    """Return the trace as plain data: `traceEvents` (names first, then by time),
    `displayTimeUnit`, `otherData`.

    Args:
        record: record of the run.
        stages: table with columns `results.STAGE_COLUMNS`, in seconds from the first
            epoch's begin.
        batches: table with columns `results.BATCH_COLUMNS`.
        telemetry: table of `harness.telemetry.frame`.
    """
    names = _Names(f"{record.system} ({record.run_id})")
    events = [*_epochs(record, names), *_spans(stages, batches, names)]
    if batches is not None:
        events += _released(batches, names)
    if telemetry is not None and len(telemetry) > 1:
        events += _counters(telemetry, names)
    begin = min((event["ts"] for event in events), default=0.0)
    for event in events:
        event["ts"] = round(event["ts"] - begin, 3)
    # Of events at one moment, a span comes before the arrows that bind to it.
    events.sort(
        key=lambda event: (
            event["ts"],
            "bXiCste".find(event["ph"]),
            event["pid"],
            event["tid"],
        )
    )
    about = {
        "run": record.run_id,
        "system": record.system,
        "dataset": record.config.dataset.name,
    }
    about |= {
        name: getattr(record.config, name)
        for name in ("model", "device", "memory", "disk_class")
    }
    about |= {
        "status": record.status,
        "verdict": record.verdict,
        "first_epoch_begins_us": str(round(-begin, 3)),
    }
    return {
        "traceEvents": [*names.events, *events],
        "displayTimeUnit": "ms",
        "otherData": about,
    }


class _Names:
    """Numbers of threads in the order of their first use, and the metadata events that
    name them."""

    def __init__(self, title: str) -> None:
        self.events: list[Event] = []
        self._titles = {
            EPOCHS: "epochs",
            STAGES: title,
            LANES: "device lanes",
            HOST: "host and cap",
        }
        self._known: dict[tuple[int, str], int] = {}

    def thread(self, pid: int, name: str) -> int:
        if (pid, name) not in self._known:
            tid = 1 + sum(known == pid for known, _ in self._known)
            if tid == 1:
                self._say("process", pid, 0, self._titles[pid], pid)
            self._say("thread", pid, tid, name, tid)
            self._known[pid, name] = tid
        return self._known[pid, name]

    def _say(self, what: str, pid: int, tid: int, name: str, index: int) -> None:
        for key, value in (
            (f"{what}_name", {"name": name}),
            (f"{what}_sort_index", {"sort_index": index}),
        ):
            self.events.append(_event("M", key, pid, tid, 0, args=value))


def _epochs(record: Record, names: _Names) -> Iterator[Event]:
    for epoch in record.epochs:
        tid = names.thread(EPOCHS, "epochs")
        name = f"epoch {epoch.epoch}{' (warm-up)' if epoch.warmup else ''}"
        args = {
            name: getattr(epoch, name)
            for name in ("seconds", "batches", "device_bytes", "stages_s")
        }
        args |= {"loss": _number(epoch.loss), "accuracy": _number(epoch.accuracy)}
        begin = _us(epoch.start_s)
        number = f"epoch-{epoch.epoch}"
        yield _event("b", name, EPOCHS, tid, begin, cat="epoch", id=number, args=args)
        yield _event(
            "e", name, EPOCHS, tid, begin + _us(epoch.seconds), cat="epoch", id=number
        )
        yield _event("i", name, EPOCHS, tid, begin, cat="epoch", s="g")


def _spans(
    stages: pd.DataFrame, batches: pd.DataFrame | None, names: _Names
) -> Iterator[Event]:
    """Yield every stage and lane span, and the arrows that join the stages of one
    mini-batch."""
    counts = (
        {}
        if batches is None
        else batches.set_index(["epoch", "batch"])[
            ["nodes", "edges", "seeds"]
        ].T.to_dict()
    )
    ordered = stages.sort_values(["start", "end"], ascending=[True, False])
    lanes = ordered["stage"].str.startswith(_LANE)
    for thread in _in_order(ordered[~lanes]):
        names.thread(STAGES, thread)
    tracks = _Tracks()
    of_batch: dict[tuple[int, int], list[Event]] = {}
    for row, lane in zip(each(ordered), lanes, strict=True):
        place = (row.epoch, row.batch)
        name = row.stage.removeprefix(_LANE)
        # A run of several ranks has as many devices; the thread distinguishes them.
        own = name if row.thread == "lane" else f"{row.thread} {name}"
        pid, kind = (LANES, "lane") if lane else (STAGES, "stage")
        tid = names.thread(
            pid, tracks.place(pid, own if lane else row.thread, row.start, row.end)
        )
        begin_us = _us(row.start)
        args = {"batch": row.batch, "epoch": row.epoch, **counts.get(place, {})}
        dur = round(max(0.0, _us(row.end) - begin_us), 3)
        event = _event("X", name, pid, tid, begin_us, cat=kind, args=args, dur=dur)
        if row.batch >= 0 and not lane:
            of_batch.setdefault(place, []).append(event)
        yield event
    for (epoch, batch), path in of_batch.items():
        if len(path) > 1:
            yield from _arrows(path, f"{epoch}.{batch}")


def _arrows(path: list[Event], number: str) -> Iterator[Event]:
    """Yield the arrows that join spans; the last one ends at the enclosing span, not at
    the next one."""
    for span in path:
        arrow = _event(
            "t", "batch", span["pid"], span["tid"], span["ts"], cat="batch", id=number
        )
        if span is path[0]:
            arrow["ph"] = "s"
        if span is path[-1]:
            arrow |= {"ph": "f", "bp": "e"}
        yield arrow


def _in_order(spans: pd.DataFrame) -> list[str]:
    """Sort threads by the first begin of their kind (the name without its number), then
    by number."""
    threads = spans["thread"].str.extract(r"^(?P<kind>.*?)(?P<number>[0-9]*)$")
    threads = threads.assign(
        thread=spans["thread"], number=threads["number"].replace("", "0").astype(int)
    )
    threads["first"] = spans["start"].groupby(threads["kind"]).transform("min")
    return list(threads.sort_values(["first", "kind", "number"])["thread"].unique())


class _Tracks:
    """Additional tracks of a thread for spans that overlap without nesting, which one
    track cannot show."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, str], list[list[float]]] = {}

    def place(self, pid: int, name: str, start: float, end: float) -> str:
        """Return the track for a span; call it by ascending begin, longer spans
        first."""
        rows = self._open.setdefault((pid, name), [])
        for number, ends in enumerate(rows):
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                return name if number == 0 else f"{name} ({number + 1})"
        rows.append([end])
        return name if len(rows) == 1 else f"{name} ({len(rows)})"


def _released(batches: pd.DataFrame, names: _Names) -> Iterator[Event]:
    for row in each(batches.dropna(subset="released_at")):
        tid = names.thread(STAGES, "released")
        args = {"batch": row.batch, "epoch": row.epoch, "loss": _number(row.loss)}
        moment_us = _us(row.released_at)
        yield _event(
            "i",
            f"batch {row.batch} released",
            STAGES,
            tid,
            moment_us,
            cat="batch",
            s="t",
            args=args,
        )


def _counters(telemetry: pd.DataFrame, names: _Names) -> Iterator[Event]:
    """Yield counter values. A track holds a value until the next, so one for an
    interval is put at its begin."""
    tid = names.thread(HOST, "telemetry")
    when = telemetry["t"]
    before = telemetry["t"].shift()
    for column, track, unit, of_interval in COUNTERS:
        if column not in telemetry:
            continue
        values = telemetry[column].astype(float)
        moments = before if of_interval else when
        if unit in _PER_SECOND:
            values = values / (when - before).where(lambda step: step > 0)
        for moment, value in zip(moments.tolist(), values.tolist(), strict=True):
            if math.isfinite(moment) and math.isfinite(value):
                args = {unit: round(value, 3)}
                yield _event(
                    "C",
                    f"{track} ({unit})",
                    HOST,
                    tid,
                    _us(moment),
                    cat="telemetry",
                    args=args,
                )


def _event(phase: str, name: str, pid: int, tid: int, ts: float, **more: Any) -> Event:
    return {"ph": phase, "name": name, "pid": pid, "tid": tid, "ts": ts, **more}


def _us(seconds: float) -> float:
    return round(float(seconds) * 1e6, 3)


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
