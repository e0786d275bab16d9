"""Protocol between worker and orchestrator: validated JSON lines up one pipe, `go` down
another."""

from __future__ import annotations

import os
import re
import select
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
)
from typing_extensions import TypedDict

from harness.records.record import OfflineWork, PlannedBuffer, RunConfig
from harness.settings import Strict
from harness.wire.spots import Spot
from systems.options import Facts
from workloads.errors import OutcoreError

if TYPE_CHECKING:
    from workloads.ranks import RankGroup

T = TypeVar("T")
#: Tasks of a worker: one run; before it training without the system, and the system
#: without a run; after it the test accuracy. A foreign worker calibrates all at once.
Mode = Literal["run", "training", "calibrate", "evaluate"]
# A worker may be untrusted code: its events are bounded in size and validated before
# use.
MAX_LINE_BYTES = 1 << 20
CHUNK_ROWS = 2000
MAX_ROWS = 5_000_000
MAX_STREAM_BYTES = 1 << 30
_MOST = 2**62  # counts and ids, so that sums of some fit in 64 bits
Count = Annotated[int, Field(ge=0, lt=_MOST)]
Number = Annotated[int, Field(gt=-_MOST, lt=_MOST)] | float | None
Seconds = Annotated[float, Field(ge=0, le=1e9)]
FileName = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]
BatchRow = tuple[
    Count,
    Count,
    Count,
    Count,
    float | None,
    Count,
    Annotated[str, Field(max_length=64)],
    float,
]


_EPOCH = re.compile(r"epoch [0-9]{1,9} (?:start|end)")
# Gates in order before and around a training step; those that every worker has to stand
# at.
_STEPS = ("before step", "step again", "after step")
_LOADING = ("imports", "module", "libraries", "floor")
_NEEDED = frozenset(("floor", "log", "before step", "after step"))


class ProtocolError(OutcoreError):
    """An event of the worker that violates the protocol."""

    kind = "protocol"
    exit_code = 1


class _Event(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Gate(_Event):
    """The worker waits for `go`; the orchestrator evicts or reads counters
    meanwhile."""

    event: Literal["gate"] = "gate"
    at: str = Field(max_length=64)

    @property
    def epoch(self) -> int:
        """Number of the epoch that begins or ends at the gate; -1 at any other."""
        return int(self.at.split()[1]) if _EPOCH.fullmatch(self.at) else -1

    @property
    def is_epoch_start(self) -> bool:
        """Whether an epoch begins when the gate opens."""
        return self.epoch >= 0 and self.at.endswith(" start")


class Planned(_Event):
    """The system's plan, which fits."""

    event: Literal["plan"] = "plan"
    items: list[PlannedBuffer] = Field(max_length=1000)

    @property
    def host_bytes(self) -> int:
        """Bytes of the buffers in host memory."""
        return sum(item.bytes for item in self.items if item.tier == "host")

    @classmethod
    def joined(cls, plans: Iterable[Iterable[PlannedBuffer]]) -> Planned:
        """Join the plans of all ranks: sum the bytes of buffers with the same name and
        tier."""
        found: dict[tuple[str, str], PlannedBuffer] = {}
        for item in (item for plan in plans for item in plan):
            known = found.get((item.name, item.tier))
            total = item.bytes + (known.bytes if known else 0)
            found[item.name, item.tier] = item.model_copy(update={"bytes": total})
        return cls(items=list(found.values()))


class Prepared(_Event):
    """`prepare()` is over. `files`: the system's own files, to be evicted. `made_s`,
    `made_bytes_*`: cost of the runs that made reused files, and `reused_from`: their
    folders. `planning_s`: the part of `seconds` before the plan. `offline`: the part of
    all these numbers that serves single epochs."""

    event: Literal["prepared"] = "prepared"
    seconds: Seconds
    bytes_read: Count
    bytes_written: Count
    reused: bool
    made_s: Seconds = 0.0
    made_bytes_read: Count = 0
    made_bytes_written: Count = 0
    planning_s: Seconds = 0.0
    files: list[FileName] = Field(max_length=100_000)
    reused_from: list[FileName] = Field(default_factory=list, max_length=10_000)
    offline: OfflineWork | None = None

    @classmethod
    def joined(cls, parts: list[Prepared]) -> Prepared:
        """Join the reports of all ranks: the longest times, the sums of bytes, every
        file once."""
        longest = {
            name: max(getattr(part, name) for part in parts)
            for name in ("seconds", "planning_s", "made_s")
        }
        moved = ("bytes_read", "bytes_written", "made_bytes_read", "made_bytes_written")
        total = {name: sum(getattr(part, name) for part in parts) for name in moved}
        offline = [part.offline for part in parts if part.offline is not None]
        return cls(
            **longest,
            **total,
            reused=any(part.reused for part in parts),
            files=list(dict.fromkeys(file for part in parts for file in part.files)),
            reused_from=list(
                dict.fromkeys(folder for part in parts for folder in part.reused_from)
            ),
            offline=OfflineWork.joined(offline) if offline else None,
        )


class _Table(_Event):
    """A part of a table of an epoch; it comes between the epoch's end and its
    numbers."""

    event: str
    epoch: Count


class Batches(_Table):
    """Rows of batches.parquet: batch, nodes, edges, seeds, loss, correct, digest,
    released_at (monotonic s)."""

    event: Literal["batches"] = "batches"
    epoch: Count
    rows: list[BatchRow] = Field(max_length=CHUNK_ROWS)


class Spans(_Table):
    """Rows of stages.parquet: stage or device lane, batch, thread, start, end
    (monotonic s)."""

    event: Literal["spans"] = "spans"
    epoch: Count
    kind: Literal["stage", "lane"] = "stage"
    rows: list[
        tuple[str, Annotated[int, Field(ge=-1, lt=_MOST)], str, float, float]
    ] = Field(max_length=CHUNK_ROWS)


class Checks(_Table):
    """Spot-checked feature rows of an epoch's mini-batches."""

    event: Literal["checks"] = "checks"
    epoch: Count
    rows: list[Spot] = Field(max_length=CHUNK_ROWS)


class Seeds(_Table):
    """Seed nodes of an epoch's mini-batches (batch, ids), where the spec asks for
    them."""

    event: Literal["seeds"] = "seeds"
    epoch: Count
    rows: list[tuple[Count, list[Count]]] = Field(max_length=CHUNK_ROWS)


class Nodes(_Table):
    """All nodes of an epoch's mini-batches (batch, ids), where the spec asks for seed
    nodes."""

    event: Literal["nodes"] = "nodes"
    epoch: Count
    rows: list[tuple[Count, list[Count]]] = Field(max_length=CHUNK_ROWS)


class _Known(TypedDict, total=False):
    """Counters that rules and metrics use (`systems.interface.Counters`)."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    rows: Count | None
    hits: dict[str, Count]
    misses: Count | None
    io_requests: Count | None
    bytes_read: Count | None
    bytes_useful: Count | None
    requests_by_size: dict[Annotated[str, Field(pattern=r"^[0-9]{1,15}$")], Count]
    queue_depth: Count | None
    bytes_loaded: Count | None
    bytes_written: Count | None
    observed: dict[str, Number]


_Report = dict[str, Number | dict[str, Number]]
_OTHER: TypeAdapter[_Report] = TypeAdapter(
    _Report, config=ConfigDict(allow_inf_nan=False)
)
Counters = Annotated[_Known, AfterValidator(_OTHER.validate_python)]


_Size = Annotated[str, Field(pattern=r"^([0-9]{1,15}|larger)$")]
_PAIRS = r"^[0-9]{1,15}:[0-9]{1,15}( [0-9]{1,15}:[0-9]{1,15})*$"
_Histogram = Annotated[str, Field(pattern=_PAIRS, max_length=1 << 16)]
_BySize = Annotated[dict[_Size, _Histogram], Field(max_length=64)]
_Direction = Annotated[str, Field(pattern="^(read|write)$")]


class EpochDone(_Event):
    """One epoch from `start` to `end` (monotonic s). `checking_s`: seconds in between
    spent on feature digests. `changed`: spot-checked mini-batches whose rows changed
    during their training step. `latencies`: of requests, as
    `systems.readings` has them. `offline`: offline work between `start` and `end` for
    the episode that begins with the epoch."""

    event: Literal["epoch"] = "epoch"
    epoch: Count
    start: float
    end: float
    batches: Count
    digest: str = Field(max_length=64)
    feature_digest: str | None = Field(max_length=64)
    loss: float | None
    accuracy: float | None = Field(ge=0, le=1)
    counters: Counters
    latencies: dict[_Direction, _BySize] = Field(default_factory=dict)
    stages_s: dict[str, Seconds]
    checking_s: Seconds = 0.0
    changed: list[Count] = Field(default_factory=list, max_length=CHUNK_ROWS)
    offline: OfflineWork | None = None


class Calibrated(_Event):
    """Measured times of a calibration: seconds by epoch. `quiet`: whether other
    programs left the processors to it."""

    event: Literal["calibrated"] = "calibrated"
    train_s: dict[int, Seconds]
    null_s: dict[int, Seconds]
    how: str
    quiet: bool = True


class Done(_Event):
    """The run completed. `notes`, `facts`: the system's. `test_accuracy`: by epoch,
    where requested. `device_peak_bytes`: most device memory held, by rank; of a
    calibration, beside the tables. `device_held_bytes`: of a calibration on CUDA, bytes
    that torch held at the last gate, by rank. `loaded`: files of code that are in no
    folder of libraries."""

    event: Literal["done"] = "done"
    notes: dict[str, str]
    facts: SerializeAsAny[Facts] = Field(default_factory=Facts)
    test_accuracy: list[float] = Field(default_factory=list)
    device_peak_bytes: list[int] = Field(default_factory=list, max_length=1024)
    device_held_bytes: list[int] = Field(default_factory=list, max_length=1024)
    loaded: list[FileName] = Field(default_factory=list, max_length=10_000)


class Failed(_Event):
    """The run failed. `kind`: that of an OutcoreError, `memory` for a failed
    allocation, or `bug`."""

    event: Literal["error"] = "error"
    kind: str
    message: str = Field(max_length=20_000)
    fix: str = ""
    notes: dict[str, str] = Field(default_factory=dict)
    facts: SerializeAsAny[Facts] = Field(default_factory=Facts)


Event = (
    Gate
    | Planned
    | Prepared
    | Batches
    | Spans
    | Checks
    | Seeds
    | Nodes
    | EpochDone
    | Calibrated
    | Done
    | Failed
)
_ADAPTER: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="event")]
)


class WorkerSpec(Strict):
    """Specification of a worker's task, in a file that only the worker reads."""

    mode: Mode
    config: RunConfig
    dataset: str
    artefacts: str
    scratch: str
    budget_host: int | None
    budget_device: int | None  # device memory for tables, where the run's is given
    pools: list[str]  # names of the shared memory of each rank's emulated device
    disk: dict[str, Any]
    training_device_bytes: int | None = (
        None  # device memory of training; None: not measured yet
    )
    partition: str | None = (
        None  # partition file of the training nodes, as `Workload.partition`
    )
    bounds: list[dict[str, Any]] | None = (
        None  # bounds over the mini-batches of each rank, found outside the cap
    )
    setting: dict[str, Any] = Field(
        default_factory=dict
    )  # setting and code whose artefacts the run may reuse
    code: str = ""
    time_training: bool = True
    # `module:argument` of a stage clock that tests the measurement
    # (`harness/run/spec.py`); empty: the plain clock.
    test_clock: str = ""
    # whether the number that decides the spot checks follows the `go` of an epoch's
    # first gate
    challenge: bool = False
    # whether a foreign worker has to report its mini-batches' nodes (`outcore check`)
    seeds: bool = False


class Channel:
    """The worker's end: sends events, waits at gates. Writes happen only while no clock
    runs."""

    def __init__(self, event_fd: int, go_fd: int) -> None:
        self._events = event_fd
        self._go = go_fd

    def send(self, event: Event) -> None:
        """Write an event as one line."""
        data = event.model_dump_json().encode() + b"\n"
        while data:
            data = data[os.write(self._events, data) :]

    def gate(self, at: str, more: int = 0) -> bytes:
        """Wait at gate `at` for `go`; exit at once if the orchestrator is gone. Return
        the `more` bytes that follow."""
        self.send(Gate(at=at))
        if os.read(self._go, 1) != b"g":
            os._exit(70)
        return os.read(self._go, more) if more else b""


class RankChannel:
    """Channel of a worker that may be one rank of several: rank 0 talks to the
    orchestrator for all of them. Other ranks use `channel` only to report a failure.
    `group`: group of the ranks; None for a single rank."""

    def __init__(self, channel: Channel, group: RankGroup | None) -> None:
        self._channel = channel
        self.group = group
        self.rank, self.world = (0, 1) if group is None else (group.rank, group.world)

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, by rank."""
        return [value] if self.group is None else self.group.gather(value)

    def send(self, event: Event) -> None:
        """Send an event from rank 0; do nothing on other ranks, whose values rank 0 has
        from `gather`."""
        if self.rank == 0:
            self._channel.send(event)

    def gate(self, at: str, more: int = 0) -> bytes:
        """Wait with all ranks at gate `at` until the orchestrator opens it; return the
        `more` bytes that follow."""
        if self.group is not None:
            self.group.barrier()
        return self.gather(self._channel.gate(at, more) if self.rank == 0 else b"")[0]


class Order:
    """Order in which a worker's events have to come, each once.

    A run has its gate `floor`, the plan, the preparation and its gate, then of every
    epoch its two gates, tables and numbers; a calibration has its gates, an evaluation
    its end alone. Whatever comes twice, late or never could move work off the clock, or
    memory into the floor. A foreign worker calibrates floor and training at once, and
    may leave out the gate `floor` of its run.
    """

    def __init__(self, mode: Mode, epochs: int, *, foreign: bool = False) -> None:
        self._epochs = epochs
        gates: dict[Mode, tuple[str, ...]] = {
            "training": ("floor", "log", *_STEPS),
            "calibrate": (*_LOADING, *_STEPS) if foreign else _LOADING,
        }
        # Steps to come, and whether each has to be taken.
        self._left = [(f"gate {at!r}", at in _NEEDED) for at in gates.get(mode, ())]
        if mode == "run":
            self._left.append(("gate 'floor'", not foreign))
            self._left += [
                (name, True)
                for name in ("event 'plan'", "event 'prepared'", "gate 'prepared'")
            ]
            for k in range(epochs):
                steps = (
                    f"gate 'epoch {k} start'",
                    f"gate 'epoch {k} end'",
                    f"event 'epoch' of epoch {k}",
                )
                self._left += [(name, True) for name in steps]
        self._left.append(("event 'done'", True))

    def take(self, event: Event) -> None:
        """Note an event. Raises ProtocolError: it is not its turn, or its offline work
        is no part of the run's."""
        if isinstance(event, Prepared | EpochDone) and event.offline is not None:
            self._check_offline(event, event.offline)
        if isinstance(event, Failed | Calibrated):
            return
        of = f" of epoch {event.epoch}" if isinstance(event, _Table | EpochDone) else ""
        name = (
            f"gate {event.at!r}"
            if isinstance(event, Gate)
            else f"event {event.event!r}{of}"
        )
        at = next((at for at, (_, needed) in enumerate(self._left) if needed), 0)
        if isinstance(event, _Table):
            held = self._left[0][0] == f"event 'epoch'{of}"
        elif held := name in [step for step, _ in self._left[: at + 1]]:
            while self._left.pop(0)[0] != name:
                pass
        if not held:
            raise ProtocolError(
                f"the worker came to {name} in the turn of {self._left[at][0]}"
            )

    def _check_offline(self, event: Prepared | EpochDone, work: OfflineWork) -> None:
        first = event.epoch if isinstance(event, EpochDone) else 0
        whole_s = (
            event.end - event.start if isinstance(event, EpochDone) else event.seconds
        )
        if work.epochs > self._epochs - first:
            raise ProtocolError(
                f"offline work serves {work.epochs} epochs, of which the run has "
                f"{self._epochs - first}"
            )
        if work.seconds > whole_s:
            raise ProtocolError(
                f"offline work takes {work.seconds:.3g} s of {whole_s:.3g} s"
            )


class EventReader:
    """The orchestrator's end: reads lines until a timeout, buffering at most one line's
    limit."""

    def __init__(self, event_fd: int, order: Order) -> None:
        self._fd = event_fd
        self._order = order
        os.set_blocking(event_fd, False)
        self._poll = select.poll()
        self._poll.register(event_fd, select.POLLIN)
        self._buffer = bytearray()
        self._rows = self._bytes = 0
        self.closed = False

    def poll(self, timeout_s: float) -> Iterator[Event]:
        """Yield the events that arrive within `timeout_s`, at least those already in
        the pipe. Raises ProtocolError: a line is too long, not JSON or no event, an
        event is out of turn, or the events exceed their total limits."""
        if self.closed or not self._poll.poll(1000 * max(0.0, timeout_s)):
            return
        while True:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self.closed = True
                return
            self._buffer += data
            self._bytes += len(data)
            if self._bytes > MAX_STREAM_BYTES:
                raise ProtocolError(
                    f"the worker sent more than {MAX_STREAM_BYTES} bytes of events"
                )
            while (end := self._buffer.find(b"\n")) >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                yield self._parse(line)
            if len(self._buffer) > MAX_LINE_BYTES:
                raise ProtocolError(
                    f"the worker sent a line of more than {MAX_LINE_BYTES} bytes"
                )

    def _parse(self, line: bytes) -> Event:
        try:
            event = _ADAPTER.validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "line"
            raise ProtocolError(
                f"the worker sent what is no event: {where}: {first['msg']}, in "
                f"{line[:80]!r}"
            ) from error
        self._order.take(event)
        if isinstance(event, EpochDone) and event.end < event.start:
            before = event.start - event.end
            raise ProtocolError(
                f"the worker's epoch {event.epoch} ends {before:.3g} s before it begins"
            )
        if isinstance(event, Batches | Spans):
            self._rows += len(event.rows)
            if self._rows > MAX_ROWS:
                raise ProtocolError(
                    f"the worker sent more than {MAX_ROWS} rows of batches and stages"
                )
        return event


if __name__ == "__main__":
    import json

    # JSON Schema of the events, for workers in other languages.
    print(json.dumps(_ADAPTER.json_schema(), indent=1))
