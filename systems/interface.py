"""The interface of a training system: read this file first, then one neighbour folder, then write your own.

The harness builds one `System` per run, inside the memory cap, and drives it: `plan()`, `prepare()` once, then for each
epoch it iterates `epoch(k)`, trains on each `Batch` and releases it, then reads `counters()`. It ends with `close()`.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from systems.options import Options, auto
from systems.readings import DiskPoint, DiskProfile, StageSpan, wall_seconds
from workloads.accelerator import Accelerator
from workloads.errors import BudgetError
from workloads.feature_table import SplitTable
from workloads.ranks import RankGroup
from workloads.sampling.batch import SampledBatch
from workloads.units import format_bytes
from workloads.workload import Workload

__all__ = [
    "STAGES",
    "Batch",
    "Counters",
    "DiskPoint",
    "DiskProfile",
    "Expectation",
    "MemoryBudget",
    "Options",
    "Plan",
    "PlanItem",
    "Runtime",
    "StageClock",
    "StageSpan",
    "StagesWanted",
    "System",
    "SystemInfo",
    "Tier",
    "auto",
    "wall_seconds",
]

_LEAST_RESERVE, _MOST_RESERVE, _RESERVE_SHARE = 4 << 20, 128 << 20, 16
Tier = Literal["host", "device", "disk"]
Made = TypeVar("Made")
StagesWanted = Literal["all", "sample", "sample+extract"]
STAGES = tuple(
    """
    sample extract transfer train wait inspect switch cache_update load_graph assemble data_prep pack
    """.split()
)


@dataclass(frozen=True)
class SystemInfo:
    """What a system is, for `outcore systems`, docs and figures.

    Attributes:
        name: as in `outcore run NAME`.
        paper: key of the paper, or `–`.
        summary: one line.
        devices: of `cpu`, `cuda`, `emulated`.
        faithful: whether its mini-batches equal the workload's.
        deterministic_counters: False where the page cache, not the system, decides what is read.
        options: the class of its options.
        data_parallel: whether several processes may run it, each training its part of every step.
        artefact_share: bytes that preparing a run leaves on disk for later ones, roughly, in feature tables.
        reads_by_device: whether it reads otherwise on another device, so that counters of one say nothing of others.
    """

    name: str
    paper: str
    summary: str
    devices: tuple[str, ...]
    faithful: bool
    options: type[Options]
    deterministic_counters: bool = True
    data_parallel: bool = False
    artefact_share: float = 0.0
    reads_by_device: bool = False


@dataclass(frozen=True)
class MemoryBudget:
    """What a system may hold, beyond the floor and the training working set (methodology rule 4). Bytes.

    `host` bounds anonymous buffers and page cache together; a system sizes buffers from it. None: unlimited.
    """

    host: int | None
    device: int | None = None
    disk: int | None = None


def reserve_bytes(host: int) -> int:
    """What of a host budget no buffer may take: the part of the process, its threads and the kernel.

    Freed pieces between arrays, stacks, page tables, pages that the kernel charges ahead of their use, the few pages
    of mapped files that reading needs; all of it grows with what moves through the buffers (Ginex, Section 3.5, keeps
    a region for such fluctuations). Who gives a system its budget takes it off, and adds it to the plan.
    """
    return min(host, max(_LEAST_RESERVE, min(_MOST_RESERVE, host // _RESERVE_SHARE)))


@dataclass(frozen=True)
class PlanItem:
    """One buffer of a plan: its name, size in bytes and tier."""

    name: str
    bytes: int
    tier: Tier = "host"


@dataclass(frozen=True)
class Plan:
    """Every buffer of a system, sized before it is allocated."""

    items: tuple[PlanItem, ...] = ()

    def total(self, tier: Tier) -> int:
        """Bytes planned on one tier."""
        return sum(item.bytes for item in self.items if item.tier == tier)

    def require(self, system: str, budget: MemoryBudget, fix: str = "raise memory") -> Plan:
        """The plan itself where it fits.

        Raises:
            BudgetError: names the first part that does not fit, what is left for it, and what took the rest.
        """
        for tier, limit in (("host", budget.host), ("device", budget.device), ("disk", budget.disk)):
            if limit is None:
                continue
            left = limit
            before: list[str] = []
            for item in (item for item in self.items if item.tier == tier):
                if item.bytes > left:
                    after = f" after {', '.join(before)}" if before else ""
                    raise BudgetError(
                        f"{system}: {item.name} needs {format_bytes(item.bytes)}, {format_bytes(left)} is left of the "
                        f"{format_bytes(limit)} {tier} budget{after}",
                        fix,
                    )
                left -= item.bytes
                before.append(f"{item.name} ({format_bytes(item.bytes)})")
        return self


Progress = Callable[[str, float], None]
"""Told the name of some part of the work and the share (0 to 1) of it that is done, NaN where nobody knows."""


def silent(what: str, share: float) -> None:
    """Progress that nobody asks for."""


@dataclass(frozen=True)
class Runtime:
    """Where a system runs.

    Attributes:
        accelerator: device on which the harness trains.
        disk: profile of the dataset's device.
        artefacts: folder for prepared artefacts, kept and reused by fingerprint.
        scratch: folder for a run's own files, removed afterwards.
        cores: processor cores of this run.
        stages: which stages to run; a batch of `sample` has no features.
        keep_order: yield batches in the seed plan's order.
        epochs: how many epochs will be asked for, from 0 on, so that offline work can cover them all; 0: not known.
        progress: told what preparation does and which share (0 to 1) of that is done, by those that take long.
        group: the run's other processes, None in a run of one. All share the run's cap; each is given its part of the
            budget, and counts memory that they share by its part.
    """

    accelerator: Accelerator
    disk: DiskProfile
    artefacts: Path
    scratch: Path
    cores: int
    stages: StagesWanted = "all"
    keep_order: bool = False
    rank: int = 0
    world: int = 1
    epochs: int = 0
    group: RankGroup | None = None
    progress: Progress = silent


@dataclass
class Counters:
    """Deterministic counts since the epoch began; `hits` + `misses` = `rows` always.

    Attributes:
        rows: feature rows asked for by mini-batches.
        hits: rows served per tier (`device`, `host`, `disk_cache`, `page_cache` for memory-mapped systems, where the
            kernel decides and nothing is known of misses).
        misses: rows fetched from disk by the system itself.
        io_requests: reads submitted by the system.
        bytes_read: bytes those reads returned.
        bytes_useful: bytes of the rows (and neighbour lists) that were fetched on a miss.
        requests_by_size: request bytes -> how many.
        queue_depth: reads kept in flight.
        bytes_loaded: bytes of rows that were brought to the device or, on the processor, to the mini-batch's table,
            where a system counts them.
        bytes_written: bytes that the system wrote to the disk within the epoch, in the stages in which it reads.
        observed: what the kernel decided, not deterministic (`major_faults`, …).
    """

    rows: int = 0
    hits: dict[str, int] = field(default_factory=dict)
    misses: int = 0
    io_requests: int = 0
    bytes_read: int = 0
    bytes_useful: int = 0
    requests_by_size: dict[int, int] = field(default_factory=dict)
    queue_depth: int = 0
    bytes_loaded: int = 0
    bytes_written: int = 0
    observed: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the record."""
        return {
            "rows": self.rows,
            "hits": dict(self.hits),
            "misses": self.misses,
            "io_requests": self.io_requests,
            "bytes_read": self.bytes_read,
            "bytes_useful": self.bytes_useful,
            "requests_by_size": {str(size): count for size, count in sorted(self.requests_by_size.items())},
            "queue_depth": self.queue_depth,
            "bytes_loaded": self.bytes_loaded,
            "bytes_written": self.bytes_written,
            "observed": dict(self.observed),
        }


class StageClock:
    """Records stage spans from any thread; a stage's time is the wall time in which at least one span is open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[StageSpan] = []

    @contextmanager
    def stage(self, name: str, batch: int = -1) -> Iterator[None]:
        """Time the body as `name` of batch `batch`."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.add(name, batch, start, time.monotonic())

    def add(self, name: str, batch: int, start: float, end: float) -> None:
        """Record a span measured elsewhere (an emulated lane, a CUDA event)."""
        span = StageSpan(name, batch, threading.current_thread().name, start, end)
        with self._lock:
            self._spans.append(span)

    def drain(self) -> list[StageSpan]:
        """All spans since the last drain, oldest first."""
        with self._lock:
            spans, self._spans = self._spans, []
        return sorted(spans, key=lambda span: span.start)


@dataclass
class Batch:
    """One mini-batch ready to train.

    The features of `sampled.nodes[i]` are `table[rows[i]]` (or `table[i]` where `rows` is None). With
    `Runtime.stages == "sample"` there is no table.

    Attributes:
        sampled: structure and labels.
        table: [slots, dim], on the accelerator's device (the shared-memory pool for an emulated one), or a table in two
            places: device rows first, then host rows that the device reads by zero-copy.
        rows: int64 [num_nodes], the node alias list, or None.
        first_layer_aggregated: the rows already hold the first layer's aggregate (`+pp`).
        ready: waits until the table may be read (a pending copy), or None.
    """

    sampled: SampledBatch
    table: torch.Tensor | SplitTable | None
    rows: torch.Tensor | None = None
    first_layer_aggregated: bool = False
    ready: Callable[[], None] | None = None
    on_release: Callable[[], None] | None = None

    def release(self) -> None:
        """Give its slots and buffers back; called once by the harness after the training step."""
        callback, self.on_release = self.on_release, None
        if callback is not None:
            callback()


@dataclass(frozen=True)
class Expectation:
    """What the mini-batches of a system that is not faithful have to be, by the plainest code.

    Attributes:
        sample: the mini-batch of (epoch, batch, seed nodes int64 [n]).
        rows: float [N, width], each node's row.
        first_layer_aggregated: as `Batch.first_layer_aggregated`; rows are then compared to a float's tolerance, since
            sums may be made in any order.
    """

    sample: Callable[[int, int, npt.NDArray[np.int64]], SampledBatch]
    rows: npt.NDArray[Any]
    first_layer_aggregated: bool = False


class System(ABC):
    """One way to train a GNN whose data lives on disk."""

    info: ClassVar[SystemInfo]
    #: Automatic options that a small budget lowered: what `fit` chose, and what they are where there is room.
    lowered: Mapping[str, tuple[int, int]] = {}

    def __init__(
        self, workload: Workload, runtime: Runtime, budget: MemoryBudget, options: Options, clock: StageClock
    ) -> None:
        self.workload = workload
        self.runtime = runtime
        self.budget = budget
        self.options = options
        self.clock = clock

    def fit(self, make: Callable[[], Made]) -> Made:
        """What `make` gives under the best automatic options with which it fits; `self.options` has them from then on.

        Where the best of all do not fit, each field is as low as it goes and then raised as far as there is room, the
        last of the class first. For `plan()`: `make` plans by `self.options`, again with others where it refuses.

        Raises:
            BudgetError: it fits with none; of the lowest, which need least.
        """
        asked, kept = self.options, dict(vars(self))
        automatic = type(asked).automatic(self.runtime.cores)
        steps = {name: values for name, values in automatic.items() if getattr(asked, name) == 0}
        best = {name: values[0] for name, values in steps.items()}
        chosen = {name: values[-1] for name, values in steps.items()}

        def made(options: dict[str, int]) -> Made:
            # What a plan that was refused has left in cached properties is of other options.
            vars(self).clear()
            vars(self).update(kept, options=asked.model_copy(update=options))
            return make()

        try:
            return made(best)
        except BudgetError:
            if chosen == best:
                raise
        made(chosen)
        for name, values in reversed(steps.items()):
            for value in values[:-1]:
                try:
                    made({**chosen, name: value})
                except BudgetError:
                    continue
                chosen[name] = value
                break
        found = made(chosen)
        self.lowered = {name: (value, best[name]) for name, value in chosen.items() if value != best[name]}
        return found

    @classmethod
    def is_faithful(cls, options: Options) -> bool:
        """Whether its mini-batches equal the workload's under these options: `info.faithful`, unless one breaks it."""
        return cls.info.faithful

    @classmethod
    def loads_everything(cls, options: Options) -> bool:
        """Whether the whole feature table is to be in host memory, by design: its plan then refuses less."""
        return False

    @classmethod
    def oracle(cls, workload: Workload, options: Options) -> Expectation | None:
        """What `outcore check` holds a system to that is not faithful; None: only to what holds for any mini-batch."""
        return None

    @classmethod  # noqa: B027 - most need none
    def load_libraries(cls) -> None:
        """Import what it is made of beyond Outcore (DGL, say), which is then part of the floor, not of its plan.
        What it takes counts as preparation.

        Raises:
            HostError: it is not installed; the run ends as unsupported.
        """

    @abstractmethod
    def plan(self) -> Plan:
        """Every buffer with its bytes and tier, from the workload and the budget alone; nothing is allocated.

        Raises:
            BudgetError: names the part that does not fit.
        """

    @abstractmethod
    def prepare(self) -> None:
        """Offline work and allocation, timed as preprocessing; artefacts are kept in `runtime.artefacts`."""

    @abstractmethod
    def epoch(self, k: int) -> Iterator[Batch]:
        """Every mini-batch of epoch `k` exactly once. Counters restart here."""

    @abstractmethod
    def counters(self) -> Counters:
        """Counts of the epoch that ran last."""

    def files(self) -> list[Path]:
        """Files the system wrote and will read, to be evicted before each run beside the dataset's."""
        return []

    def notes(self) -> dict[str, str]:
        """Facts for the run record: how the reader runs, what fell back (`io: io_uring unregistered`).

        `reads_in` names the stage in which it makes its own reads, where that is not `extract`.
        """
        return {}

    @abstractmethod
    def close(self) -> None:
        """End every thread, close every file, free every buffer. May be called at any moment, more than once."""
