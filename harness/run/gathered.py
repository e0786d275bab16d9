"""Events and gate readings of one run, kept by the orchestrator until the record is
written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from harness.isolation.base import Cap, IoStats, MemoryStats
from harness.isolation.walls.sandbox import Walls
from harness.records.record import (
    Closing,
    EvictionReading,
    GateReading,
    PlannedBuffer,
    RunConfig,
)
from harness.results.store import BATCH_COLUMNS, STAGE_COLUMNS
from harness.run import cold, opened
from harness.telemetry.frame import align, with_busy_lanes
from harness.telemetry.waiting import Waiting
from harness.wire.protocol import (
    Batches,
    Checks,
    EpochDone,
    Event,
    Gate,
    Planned,
    Prepared,
    ProtocolError,
    Spans,
)
from harness.wire.spots import NONCE_BYTES, Spot
from systems.readings import StageSpan
from workloads.accelerators.pool import DevicePool
from workloads.dataset import Dataset
from workloads.manifest import MANIFEST_NAME


@dataclass
class RunObserver:
    """Collector of a run's events and of readings at its gates, while the worker waits.

    Attributes:
        dataset: dataset whose files are evicted.
        folders: folders that the system writes to; all files in them are evicted and
            measured, listed or not.
        disks: disks under the dataset (`major:minor`), whose reads are the run's; empty
            where they are not known.
        disk_io, progress: reader of the whole device's counters, and a function called
            with a text for each epoch.
        zero: monotonic seconds of the first epoch's begin; None before.
        memory: reading of the cap after the worker's end.
        nonces: number drawn for the spot checks of each epoch, by epoch.
        closing: what the worker did after its last gate; None before its end.
        planned: monotonic seconds of the plan's arrival; None before.
        walls: walls between the worker and the host.
        sampled_s: monotonic seconds of each sample of the cap.
        born: Unix seconds of the run's begin, after its calibration.
        uncharged: most bytes in queues of sockets, which a cap may not be charged for,
            seen between gates.
        given: other files that the harness made for the run.
        older, elsewhere: size of each data file that was open and is older than the
            run, or on another disk than the dataset, by path.
        forgetful: memory of emulated devices that keep no rows; overwritten before each
            epoch.
        by_gates: whether an epoch's seconds are those between its gates, since the
            worker's clock is other people's.
        trains: whether a mini-batch without a finite loss is one of a training that
            diverged.
        enclosing_bytes: least memory limit of the groups that hold the cap; None: no
            such limit is known.
        waiting: sum of the run's waiting for processors, which is looked at with each
            sample and at gates.
    """

    dataset: Dataset
    folders: list[Path]
    disks: Collection[str]
    disk_io: Callable[[], IoStats | None]
    progress: Callable[[str], None]
    plan: list[PlannedBuffer] = field(default_factory=list)
    prepared: Prepared | None = None
    epochs: list[EpochDone] = field(default_factory=list)
    batches: list[tuple[Any, ...]] = field(default_factory=list)
    spans: list[tuple[int, StageSpan]] = field(default_factory=list)
    lanes: list[tuple[int, StageSpan]] = field(default_factory=list)
    spots: dict[int, list[Spot]] = field(default_factory=dict)
    nonces: dict[int, bytes] = field(default_factory=dict)
    evictions: list[EvictionReading] = field(default_factory=list)
    gates: list[GateReading] = field(default_factory=list)
    held: list[MemoryStats] = field(default_factory=list)
    zero: float | None = None
    memory: MemoryStats = field(default_factory=MemoryStats)
    walls: Walls = field(default_factory=Walls)
    sampled_s: list[float] = field(default_factory=list)
    spawned: float = 0.0
    planned: float | None = None
    calibrate_s: float = 0.0
    closing: Closing | None = None
    challenge: bool = False
    forgetful: list[DevicePool] = field(default_factory=list)
    given: list[Path] = field(default_factory=list)
    older: dict[Path, int] = field(default_factory=dict)
    elsewhere: dict[str, int] = field(default_factory=dict)
    uncharged: int | None = None
    by_gates: bool = False
    trains: bool = False
    enclosing_bytes: int | None = None
    waiting: Waiting = field(default_factory=Waiting)
    _evict_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.born = time.time()

    @cached_property
    def _given(self) -> set[tuple[int, int]]:
        """Device and inode of the dataset's and the harness's files: a number of an
        open file may be used again between the look at its name and that at its
        size."""
        of_dataset = [
            self.dataset.path / MANIFEST_NAME,
            *cold.dataset_files(self.dataset),
        ]
        statuses = [path.stat() for path in [*of_dataset, *self.given] if path.exists()]
        return {(status.st_dev, status.st_ino) for status in statuses}

    def take(self, event: Event, cap: Cap, reached: float) -> bytes:
        """Store an event that came at `reached` (monotonic s); at a gate, read, evict;
        return bytes to follow `go`. Raises ProtocolError: files are named that are not
        the system's."""
        if isinstance(event, Planned):
            self.plan = event.items
            self.planned = reached
        elif isinstance(event, Prepared):
            if self.by_gates and (other := self._not_its_own(event.files)):
                raise ProtocolError(
                    f"the worker names {other[:80]!r}, which is in no folder of its own"
                )
            self.prepared = event
        elif isinstance(event, Batches):
            self.batches += [(event.epoch, *row) for row in event.rows]
        elif isinstance(event, Spans):
            target = self.lanes if event.kind == "lane" else self.spans
            target += [(event.epoch, StageSpan(*row)) for row in event.rows]
        elif isinstance(event, Checks):
            self.spots.setdefault(event.epoch, []).extend(event.rows)
        elif isinstance(event, EpochDone):
            event = self._timed(event) if self.by_gates else event
            self.epochs.append(event)
            self.progress(
                f"epoch {event.epoch}: "
                f"{event.end - event.start - event.checking_s:.2f} s"
            )
        elif isinstance(event, Gate):
            return self._at_gate(event, cap, reached)
        return b""

    def _not_its_own(self, files: Sequence[str]) -> str:
        """Return a file that lies neither in the folder of artefacts nor in that of
        scratch files; empty if none does: they are evicted for all programs."""
        folders = [folder.resolve() for folder in self.folders]
        own = (
            file
            for file in files
            if not any(Path(file).resolve().is_relative_to(one) for one in folders)
        )
        return next(own, "")

    def _timed(self, event: EpochDone) -> EpochDone:
        """Return an epoch with the times of its gates by the orchestrator's clock."""
        start, end = (
            self.gate(f"epoch {event.epoch} {side}") for side in ("start", "end")
        )
        assert (
            start is not None and end is not None
        )  # they come before (`harness.wire.protocol.Order`)
        # Offline work within an epoch would be timed by the worker alone.
        return event.model_copy(
            update={"start": start.opened_s, "end": end.reached_s, "offline": None}
        )

    @property
    def sizes(self) -> dict[tuple[int, int], int]:
        """Return the number of nodes of each mini-batch, by epoch and number."""
        return {(row[0], row[1]): row[2] for row in self.batches}

    @property
    def from_before(self) -> dict[str, int]:
        """Return the size of each file from before the run, but those of artefacts that
        the run was asked to reuse."""
        root = self.folders[0]
        reported = self.prepared.reused_from if self.prepared else []
        reused = {
            folder
            for folder in (Path(one).resolve() for one in reported)
            if folder.parent == root.resolve()
        }
        return {
            str(path): nbytes
            for path, nbytes in self.older.items()
            if not reused & {*path.parents}
        }

    def sample(self, memory: MemoryStats) -> None:
        """Note a sample of the cap, taken ten times a second by the telemetry's
        thread."""
        self.sampled_s.append(time.monotonic())

    @property
    def unwatched_s(self) -> float | None:
        """Longest time between two samples within an epoch, in seconds; None without an
        epoch or samples."""
        found = None
        for epoch in self.epochs:
            within = [at for at in self.sampled_s if epoch.start < at < epoch.end]
            moments = [epoch.start, *within, epoch.end]
            longest = max(later - earlier for earlier, later in pairwise(moments))
            found = max(found or 0.0, longest)
        return found if self.sampled_s else None

    def look_between_gates(self, pids: Collection[int]) -> None:
        """Look at files and queues of running processes."""
        self._look(pids)
        self.uncharged = max(self.uncharged or 0, opened.queued_bytes(pids))

    def _look(self, pids: Collection[int]) -> None:
        """Keep the data files that processes of the run have open, that the harness did
        not give them, and that are older than the run or on another disk."""
        for file in opened.open_files(pids):
            if file.key in self._given:
                continue
            if opened.born(file.path) < self.born:
                self.older[Path(file.name)] = file.nbytes
            if opened.on_other_disk(file, self.disks):
                self.elsewhere[file.name] = file.nbytes

    def evict(self, when: str, own: list[Path]) -> None:
        """Evict the files of the dataset and the system (`own`) and store the
        reading."""
        began = time.monotonic()
        self.evictions.append(
            cold.evict_files(
                [*cold.dataset_files(self.dataset), *self.folders, *own], when
            )
        )
        self._evict_s.append(time.monotonic() - began)

    def _at_gate(self, gate: Gate, cap: Cap, reached: float) -> bytes:
        at = gate.at
        starts = gate.is_epoch_start
        before = cap.memory()
        pids = cap.pids()
        # What is done while the gate is closed belongs to no epoch.
        counts = None if starts else self._counts(cap)
        own = [Path(file) for file in self.prepared.files] if self.prepared else []
        self._look(pids)
        if at == "prepared":
            self.evict("after_prepare", own)
        memory = cap.memory()
        looked_at = [*cold.dataset_files(self.dataset), *self.folders, *own]
        self.held.append(memory)
        resident = cold.resident(looked_at)
        # The system's threads read on meanwhile, so pages are counted before and after
        # the look at the files.
        page_cache = max(memory.page_cache, cap.memory().page_cache)
        behind = b""
        if starts:
            for pool in self.forgetful:
                pool.overwrite()
            if self.challenge:
                behind = self.nonces[gate.epoch] = os.urandom(NONCE_BYTES)
            if self.zero is None:
                self.zero = time.monotonic()
        self.gates.append(
            GateReading(
                at=at,
                reached_s=reached,
                held_bytes=max(0, before.usage - before.page_cache),
                page_cache_bytes=page_cache,
                resident_bytes=resident,
                uncharged_bytes=opened.queued_bytes(pids),
                **(self._counts(cap) if counts is None else counts),
                opened_s=time.monotonic(),
            )
        )
        return behind

    def close(self, cap: Cap, ended: float | None) -> None:
        """Store what the worker did from its last gate until its last event, which came
        at `ended` (monotonic s)."""
        io = cap.io()
        if ended is None or not self.gates or not self.gates[-1].at.endswith("end"):
            return
        last = self.gates[-1]
        now = io and io.of(self.disks)
        read = written = None
        if now and last.io_bytes is not None:
            read = now.read_bytes - last.io_bytes
        if now and last.io_written_bytes is not None:
            written = now.write_bytes - last.io_written_bytes
        seconds = max(0.0, ended - last.opened_s)
        self.closing = Closing(seconds=seconds, bytes_read=read, bytes_written=written)

    def _counts(self, cap: Cap) -> dict[str, Any]:
        """Return the counters of a gate's reading: of the cap, the disk and the
        processors."""
        io = cap.io()
        disk = self.disk_io()
        pids = cap.pids()
        host = psutil.cpu_times()
        spent = cap.processor_s()
        # Reads of another disk, or of one that is memory, are no reads of the device
        # that the run is measured by.
        io = io and io.of(self.disks)
        return {
            "io_bytes": io.read_bytes if io else None,
            "io_requests": io.read_requests if io else None,
            "io_written_bytes": io.write_bytes if io else None,
            "disk_bytes": disk.read_bytes if disk else None,
            "disk_requests": disk.read_requests if disk else None,
            "user_s": _user_seconds(pids) if spent is None else spent.user_s,
            "host_user_s": float(host.user + host.nice),
            "system_s": None if spent is None else spent.system_s,
            "host_system_s": float(host.system),
            "waited_s": self.waiting.look(pids),
            "stolen_s": float(host.steal),
        }

    def tables(
        self, telemetry: pd.DataFrame | None, zero: float, config: RunConfig
    ) -> dict[str, pd.DataFrame]:
        """Return the run's tables `stages`, `batches` and, if recorded, `telemetry`,
        with one zero for all times. `telemetry`: table of the recorder. `zero`:
        monotonic seconds of the tables' time 0. `config`: of the run. The busy lanes of
        an emulated or a CUDA device are stages `lane:copy`, …."""
        batches = pd.DataFrame(self.batches, columns=list(BATCH_COLUMNS))
        batches["released_at"] = batches["released_at"].astype(float) - zero
        batches["loss"] = batches["loss"].astype(float)
        named = [(epoch, span.stage, span) for epoch, span in self.spans]
        named += [(epoch, f"lane:{span.stage}", span) for epoch, span in self.lanes]
        rows = [
            (epoch, s.batch, stage, s.thread, s.start - zero, s.end - zero)
            for epoch, stage, s in named
        ]
        tables = {
            "stages": pd.DataFrame(rows, columns=list(STAGE_COLUMNS)),
            "batches": batches,
        }
        if telemetry is not None and len(telemetry):
            table = align(
                telemetry,
                zero,
                [(epoch.epoch, epoch.start, epoch.end) for epoch in self.epochs],
            )
            if self.lanes:
                # A GPU's memory is NVML's reading.
                held = (
                    config.device_memory_bytes
                    if config.device.startswith("emulated:")
                    else None
                )
                table = with_busy_lanes(
                    table, [(span.start, span.end) for _, span in self.lanes], held
                )
            tables["telemetry"] = table
        return tables

    def of_epoch(self, epoch: int, ranks: int) -> dict[str, Any]:
        """Return the fields of `EpochRecord` that follow from an epoch's mini-batches,
        and from its lanes if any."""
        rows = [row[1:] for row in self.batches if row[0] == epoch]
        by_rank = [
            [row[0] for row in rows if row[0] % ranks == rank] for rank in range(ranks)
        ]
        found: dict[str, Any] = {"batches": len({row[0] for row in rows})}
        if rows:
            found |= {
                name: sum(row[at] for row in rows)
                for at, name in enumerate(("nodes", "edges", "seeds"), start=1)
            }
            found["in_order"] = all(numbers == sorted(numbers) for numbers in by_rank)
            found["losses_not_finite"] = (
                sum(row[4] is None for row in rows) if self.trains else 0
            )
        lanes = {"bus_s": "copy", "compute_s": "compute"} if self.lanes else {}
        for name, lane in lanes.items():
            found[name] = sum(
                span.end - span.start
                for of, span in self.lanes
                if of == epoch and span.stage == lane
            )
        return found

    def gate(self, at: str) -> GateReading | None:
        """Return the reading at a gate; None if the run did not reach it."""
        return next((gate for gate in self.gates if gate.at == at), None)

    def overhead(self) -> dict[str, float]:
        """Return the harness's own seconds by part (`Record.overhead`)."""
        found = {"calibrate_s": self.calibrate_s, "evict_s": sum(self._evict_s)}
        # The eviction after the preparation happens at a gate.
        found["gates_s"] = sum(
            gate.opened_s - gate.reached_s for gate in self.gates
        ) - sum(self._evict_s[1:])
        if self.batches:
            # The worker starts after the first eviction and waits during the one after
            # `prepare()`.
            first = min(row[-1] for row in self.batches)
            found["first_batch_s"] = first - self.spawned - sum(self._evict_s[1:])
        return found

    def demand(self) -> MemoryStats:
        """Return the reading with the most anonymous, shared and kernel memory, among
        gates and the run's end."""
        return max(
            [*self.held, self.memory],
            key=lambda stats: stats.anon + stats.shmem + stats.kernel,
        )


def _user_seconds(pids: Collection[int]) -> float:
    """Return the processor seconds in user mode of processes and their ended children;
    ended processes have none."""
    found = 0.0
    for pid in pids:
        with suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            found += times.user + times.children_user
    return found
