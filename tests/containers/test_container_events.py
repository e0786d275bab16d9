"""Events from a worker are bounded and checked before use: any code in any image may
send them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from harness.wire import protocol
from harness.wire.protocol import (
    Batches,
    Done,
    EpochDone,
    Event,
    EventReader,
    Gate,
    Mode,
    Order,
    Planned,
    Prepared,
    ProtocolError,
)

EPOCH: dict[str, Any] = {
    "event": "epoch",
    "epoch": 0,
    "start": 1.0,
    "end": 2.0,
    "batches": 1,
    "digest": "x",
    "feature_digest": None,
    "loss": 0.5,
    "accuracy": None,
    "counters": {},
    "stages_s": {},
}


class Anything(Order):
    """No order of events."""

    def __init__(self) -> None:
        super().__init__("run", 0)

    def take(self, event: Event) -> None:
        """Note nothing."""


@pytest.fixture
def pipe() -> Iterator[tuple[EventReader, int]]:
    read, write = os.pipe()
    reader = EventReader(read, Anything())
    yield reader, write
    os.close(read)
    os.close(write)


def message(pipe: tuple[EventReader, int], *lines: bytes) -> list[Event]:
    reader, write = pipe
    found: list[Event] = []
    for line in lines:
        os.write(write, line)
        found += reader.poll(1.0)
    return found


def test_an_event_arrives_as_it_was_sent(pipe: tuple[EventReader, int]) -> None:
    data = json.dumps(EPOCH).encode() + b"\n"
    first, second = message(
        pipe, b'{"event": "gate", "at": "floor"}\n' + data[:20], data[20:]
    )
    assert isinstance(first, Gate)
    assert first.at == "floor"
    got = second.model_dump()
    assert {key: got[key] for key in EPOCH} == EPOCH


@pytest.mark.parametrize(
    "line",
    [
        b"hello\n",
        b"[1, 2]\n",
        b'{"event": "applause"}\n',
        b'{"event": "gate", "at": "floor", "extra": 1}\n',
        b'{"event": "gate", "at": "' + b"x" * 100 + b'"}\n',
        json.dumps({**EPOCH, "end": float("nan")}).encode() + b"\n",
        json.dumps({**EPOCH, "end": float("inf")}).encode() + b"\n",
        json.dumps({**EPOCH, "epoch": "one"}).encode() + b"\n",
        b'{"event": "batches", "epoch": 0, "rows": [[1, 2]]}\n',
        b'{"event": "spans", "epoch": 0, "rows": '
        + json.dumps([["a", 0, "t", 0, 1]] * 2001).encode()
        + b"}\n",
        b'\xff\xfe{"event": "gate", "at": "floor"}\n',
    ],
)
def test_what_is_no_event_is_refused(
    pipe: tuple[EventReader, int], line: bytes
) -> None:
    with pytest.raises(ProtocolError, match="no event"):
        for at in range(0, len(line), 4096):
            message(pipe, line[at : at + 4096])


def test_a_line_without_end_is_cut_off(pipe: tuple[EventReader, int]) -> None:
    with pytest.raises(ProtocolError, match="a line of more than"):
        for _ in range(20):
            message(pipe, b"x" * (1 << 16))


def test_a_stream_without_end_is_cut_off(
    pipe: tuple[EventReader, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_STREAM_BYTES", 10_000)
    with pytest.raises(ProtocolError, match="bytes of events"):
        for _ in range(1000):
            message(pipe, b'{"event": "gate", "at": "floor"}\n')


def event(words: str) -> Event:
    """Make an event: `plan`, `prepared`, `done`, `batches K`, `epoch K`, or a gate."""
    name, _, epoch = words.partition(" ")
    if name == "batches":
        return Batches(epoch=int(epoch), rows=[])
    if name == "epoch" and epoch.isdigit():
        return EpochDone.model_validate({**EPOCH, "epoch": int(epoch)})
    if name == "preparation":
        return Prepared(
            seconds=1.0, bytes_read=0, bytes_written=0, reused=False, files=[]
        )
    return {"plan": Planned(items=[]), "done": Done(notes={})}.get(words) or Gate(
        at=words
    )


RUN = ["floor", "plan", "preparation", "prepared"]
RUN += [
    f"{words.format(k)}"
    for k in range(2)
    for words in ("epoch {} start", "epoch {} end", "batches {}", "epoch {}")
]
TRAINING = ["floor", "log", "before step", "step again", "after step", "done"]
LOADING = ["imports", "module", "libraries", "floor"]
FLOOR = ["imports", "floor", "before step", "step again", "after step", "done"]


@pytest.mark.parametrize(
    ("mode", "words", "message"),
    [
        ("run", [*RUN, "done"], ""),
        ("training", TRAINING, ""),
        ("calibrate", [*LOADING, "done"], ""),
        ("run", RUN[1:], "event 'plan' in the turn of gate 'floor'"),
        ("run", [*RUN[:1], *RUN[2:]], "event 'prepared' in the turn of event 'plan'"),
        ("run", [*RUN[:2], *RUN], "gate 'floor' in the turn of event 'prepared'"),
        (
            "run",
            [*RUN[:4], "prepared"],
            "gate 'prepared' in the turn of gate 'epoch 0 start'",
        ),
        (
            "run",
            [*RUN[:6], "epoch 0 end"],
            "gate 'epoch 0 end' in the turn of event 'epoch' of epoch 0",
        ),
        ("run", [*RUN[:5], "epoch 0"], "in the turn of gate 'epoch 0 end'"),
        (
            "run",
            [*RUN[:6], "batches 1"],
            "event 'batches' of epoch 1 in the turn of event 'epoch' of epoch 0",
        ),
        (
            "run",
            [*RUN[:6], "epoch 1 start"],
            "gate 'epoch 1 start' in the turn of event 'epoch' of epoch 0",
        ),
        (
            "run",
            [*RUN[:-1], "done"],
            "event 'done' in the turn of event 'epoch' of epoch 1",
        ),
        (
            "run",
            [*RUN[:4], "epoch \u0660 start"],
            "in the turn of gate 'epoch 0 start'",
        ),
        ("training", TRAINING[1:], "gate 'log' in the turn of gate 'floor'"),
        ("training", [*LOADING, "done"], "gate 'imports' in the turn of gate 'floor'"),
        (
            "calibrate",
            [*LOADING, *TRAINING[2:]],
            "gate 'before step' in the turn of event 'done'",
        ),
        (
            "calibrate",
            [*LOADING[:-1], "done"],
            "event 'done' in the turn of gate 'floor'",
        ),
    ],
)
def test_events_come_in_one_order_each_once(
    mode: Mode, words: list[str], message: str
) -> None:
    order = Order(mode, 2)
    with pytest.raises(ProtocolError, match=message) if message else nullcontext():
        for one in map(event, words):
            order.take(one)


@pytest.mark.parametrize(
    ("mode", "words", "message"),
    [
        ("run", [*RUN[1:], "done"], ""),
        ("run", [*RUN, "done"], ""),
        ("calibrate", FLOOR, ""),
        ("calibrate", ["floor", "before step", "after step", "done"], ""),
        (
            "calibrate",
            FLOOR[:2] + FLOOR[3:],
            "gate 'step again' in the turn of gate 'before step'",
        ),
        ("calibrate", FLOOR[-1:], "event 'done' in the turn of gate 'floor'"),
        (
            "calibrate",
            [*FLOOR[:2], "imports"],
            "gate 'imports' in the turn of gate 'before step'",
        ),
    ],
)
def test_a_foreign_worker_calibrates_at_once_and_may_have_no_gate_of_its_floor(
    mode: Mode, words: list[str], message: str
) -> None:
    order = Order(mode, 2, foreign=True)
    with pytest.raises(ProtocolError, match=message) if message else nullcontext():
        for one in map(event, words):
            order.take(one)


def test_the_schema_for_authors_lists_every_event() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness.wire.protocol"],
        capture_output=True,
        text=True,
        check=True,
    )
    printed = json.loads(done.stdout)
    kinds = {
        definition["properties"]["event"]["const"]
        for definition in printed["$defs"].values()
        if "event" in definition.get("properties", {})
    }
    assert kinds == {
        "gate",
        "plan",
        "prepared",
        "batches",
        "spans",
        "checks",
        "seeds",
        "nodes",
        "epoch",
        "calibrated",
        "done",
        "error",
    }
