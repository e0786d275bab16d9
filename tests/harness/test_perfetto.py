"""A run's trace keeps the Trace Event format and agrees with the run's tables."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from harness.results.perfetto import build_trace, write_trace
from harness.results.store import BATCH_COLUMNS, STAGE_COLUMNS, write_run
from tests.harness.records import make_record, telemetry_of
from tests.harness.run_tools import outcore_here
from workloads.errors import InputError

# --- the part of the format that is used:
# https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU


class _Event(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = Field(min_length=1)
    pid: int
    tid: int
    ts: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Metadata(_Event):
    ph: Literal["M"]
    name: Literal[
        "process_name", "process_sort_index", "thread_name", "thread_sort_index"
    ]
    args: dict[Literal["name", "sort_index"], str | int]


class Complete(_Event):
    ph: Literal["X"]
    cat: str
    dur: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    args: dict[str, Any]


class Async(_Event):
    ph: Literal["b", "e"]
    cat: str
    id: str
    args: dict[str, Any] = {}


class Instant(_Event):
    ph: Literal["i"]
    s: Literal["g", "p", "t"]
    cat: str
    args: dict[str, Any] = {}


class Counter(_Event):
    ph: Literal["C"]
    cat: str
    args: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(min_length=1)


class Flow(_Event):
    ph: Literal["s", "t", "f"]
    cat: str
    id: str
    bp: Literal["e"] | None = None


class Trace(BaseModel):
    model_config = ConfigDict(extra="forbid")
    traceEvents: list[
        Annotated[
            Metadata | Complete | Async | Instant | Counter | Flow,
            Field(discriminator="ph"),
        ]
    ]
    displayTimeUnit: Literal["ms", "ns"]
    otherData: dict[str, str]


def checked(content: dict[str, Any]) -> list[Any]:
    """Return the events, after checks of everything that readers of the format rely
    on."""
    plain = json.loads(json.dumps(content, allow_nan=False))
    events = TypeAdapter(Trace).validate_python(plain).traceEvents
    named = {(e.pid, e.tid) for e in events if e.ph == "M" and e.name == "thread_name"}
    timed = [e for e in events if e.ph != "M"]
    assert [e.ph for e in events[: len(events) - len(timed)]] == ["M"] * (
        len(events) - len(timed)
    ), "names come first"
    assert [e.ts for e in timed] == sorted(e.ts for e in timed)
    assert {(e.pid, e.tid) for e in timed} <= named, "every track has a name"
    assert {e.pid for e in timed} == {e.pid for e in events if e.name == "process_name"}
    spans: dict[tuple[int, int], list[Complete]] = defaultdict(list)
    for event in timed:
        if event.ph == "X":
            spans[event.pid, event.tid].append(event)
    for track in spans.values():
        open_: list[float] = []
        for span in track:
            while open_ and open_[-1] <= span.ts + 1e-3:
                open_.pop()
            assert not open_ or span.ts + span.dur <= open_[-1] + 2e-3, (
                "spans of a track are nested or apart"
            )
            open_.append(span.ts + span.dur)
    flows: dict[str, list[Flow]] = defaultdict(list)
    asyncs: dict[str, list[str]] = defaultdict(list)
    for event in timed:
        if isinstance(event, Flow):
            flows[event.id].append(event)
            assert any(
                s.ts <= event.ts <= s.ts + s.dur for s in spans[event.pid, event.tid]
            ), "a flow lies in a span"
        elif isinstance(event, Async):
            asyncs[event.id].append(event.ph)
    for path in flows.values():
        assert sorted(e.ph for e in path) == sorted(["s", *"t" * (len(path) - 2), "f"])
        assert path[0].ph == "s" or path[0].ts == path[-1].ts
    assert all(sorted(pair) == ["b", "e"] for pair in asyncs.values())
    return events


def tables(batches: int = 6) -> dict[str, pd.DataFrame]:
    """Return tables of two samplers, an extractor of two batches at once, a trainer, a
    lane, a stage without batch."""
    spans = [(1, -1, "inspect", "MainThread", 0.0, 0.004)]
    log = []
    for batch in range(batches):
        at = 0.01 * batch
        spans += [
            (1, batch, "sample", f"sampler-{batch % 2}", at, at + 0.015),
            (1, batch, "extract", "extractor-0", at + 0.02, at + 0.035),
            (1, batch, "train", "MainThread", at + 0.04, at + 0.045),
            (1, batch, "lane:compute", "lane", at + 0.041, at + 0.044),
        ]
        log.append(
            (
                1,
                batch,
                100 + batch,
                500,
                10,
                None if batch else 0.7,
                3,
                "xxh3:0",
                at + 0.05,
            )
        )
    stages = pd.DataFrame(spans, columns=list(STAGE_COLUMNS))
    return {
        "stages": stages,
        "batches": pd.DataFrame(log, columns=list(BATCH_COLUMNS)).astype(
            {"loss": float}
        ),
    }


def test_the_trace_keeps_the_format_and_follows_every_batch() -> None:
    record = make_record("gnndrive", [1.0, 1.2])
    seen = tables()
    events = checked(
        build_trace(record, seen["stages"], seen["batches"], telemetry_of(record))
    )
    spans = [e for e in events if e.ph == "X"]
    assert len(spans) == len(seen["stages"])
    assert {e.name for e in spans} == {
        "inspect",
        "sample",
        "extract",
        "train",
        "compute",
    }
    third = next(e for e in spans if e.name == "extract" and e.args["batch"] == 3)
    assert third.args == {
        "batch": 3,
        "epoch": 1,
        "nodes": 103,
        "edges": 500,
        "seeds": 10,
    }
    assert third.dur == pytest.approx(15_000, abs=0.01)
    assert {e.id for e in events if e.ph == "s"} == {f"1.{batch}" for batch in range(6)}
    assert [e.id for e in events if e.ph == "b"] == ["epoch-0", "epoch-1", "epoch-2"]
    assert {e.name for e in events if e.ph == "C"} == {
        "CPU (%)",
        "GPU (%)",
        "I/O wait (%)",
    }
    threads = [e.args["name"] for e in events if e.name == "thread_name"]
    assert {
        "sampler-0",
        "sampler-1",
        "extractor-0",
        "extractor-0 (2)",
        "MainThread",
        "compute",
    } <= set(threads)


def test_rates_are_per_second_and_what_is_unknown_is_left_out() -> None:
    record = make_record("gnndrive", [1.0])
    telemetry = pd.DataFrame(
        {
            "t": [-0.5, 0.0, 0.5],
            "disk_read_bytes": [float("nan"), 1000.0, 50.0],
            "mem_usage": [7.0, float("nan"), 9.0],
        }
    )
    events = checked(build_trace(record, tables()["stages"], None, telemetry))
    counted = [(e.name, round(e.ts), e.args) for e in events if e.ph == "C"]
    # A value for the interval before its sample is placed at the interval's start.
    assert sorted(counted) == [
        ("disk read (bytes/s)", 0, {"bytes/s": 2000.0}),
        ("disk read (bytes/s)", 500_000, {"bytes/s": 100.0}),
        ("memory of the cap (bytes)", 0, {"bytes": 7.0}),
        ("memory of the cap (bytes)", 1_000_000, {"bytes": 9.0}),
    ]


SPAN = st.tuples(
    st.integers(0, 2),
    st.integers(-1, 4),
    st.sampled_from(["sample", "extract", "lane:copy"]),
    st.sampled_from(["a-0", "a-1", "b"]),
    st.floats(-1, 1),
    st.floats(0, 0.5),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(SPAN, max_size=25))
def test_any_spans_make_a_sound_trace(
    drawn: list[tuple[int, int, str, str, float, float]],
) -> None:
    rows = [
        (epoch, batch, stage, thread, round(at, 4), round(at + length, 4))
        for epoch, batch, stage, thread, at, length in drawn
    ]
    stages = pd.DataFrame(rows, columns=list(STAGE_COLUMNS))
    events = checked(build_trace(make_record("pyg+", [0.5]), stages))
    assert sum(1 for e in events if e.ph == "X") == len(rows)


def test_the_file_is_written_whole_compressed_by_its_name_and_the_same_each_time(
    tmp_path: Path,
) -> None:
    record = make_record("gnndrive", [1.0])
    folder = write_run(
        tmp_path, record, {**tables(), "telemetry": telemetry_of(record)}
    )
    message = write_trace(folder, tmp_path / "out" / "a.json.gz")
    write_trace(folder, tmp_path / "out" / "a.json")
    plain = (tmp_path / "out" / "a.json").read_bytes()
    assert gzip.decompress((tmp_path / "out" / "a.json.gz").read_bytes()) == plain
    assert message["X"] == 25
    assert message["s"] == 6
    checked(json.loads(plain))
    write_trace(folder, tmp_path / "b.gz")
    assert (tmp_path / "b.gz").read_bytes() == (
        tmp_path / "out" / "a.json.gz"
    ).read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"could not be written.*choose another place"):
        write_trace(folder, tmp_path / "file" / "a.json")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "a.json",
        "a.json.gz",
    ]


def test_a_run_without_stages_states_so(tmp_path: Path) -> None:
    folder = write_run(tmp_path, make_record("gnndrive", [1.0]), {})
    with pytest.raises(InputError, match="no stages"):
        write_trace(folder, tmp_path / "a.json")
    assert not (tmp_path / "a.json").exists()


def test_the_verb_names_the_file_it_wrote(tmp_path: Path) -> None:
    folder = write_run(tmp_path, make_record("gnndrive", [1.0]), tables())
    done = outcore_here("trace", "latest", "--json", data=tmp_path, results=tmp_path)
    assert done.returncode == 0, done.stderr
    message = json.loads(done.stdout)
    assert message["run_id"] == folder.name
    assert message["flows"] == 6
    checked(json.loads(gzip.decompress(Path(message["file"]).read_bytes())))
