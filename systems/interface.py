"""The interface of a training system: read this file first, then one system folder,
then write your own.

The harness builds one `System` per run, inside the memory cap, and drives it: `plan()`
and `prepare()` once, then for each epoch `prepare_epochs(k)` where earlier offline work
does not serve it, and `epoch(k)`, whose batches it trains on and releases; then it
reads `counters()`. It ends with `close()`.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, final

import numpy as np
import numpy.typing as npt
import torch

from systems.forecast import Forecast as Forecast
from systems.forecast import Trace as Trace
from systems.options import Facts as Facts
from systems.options import Options as Options
from systems.options import PartUse as PartUse
from systems.options import auto as auto
from systems.options import size as size
from systems.overrides import check_overrides
from systems.readings import DiskPoint as DiskPoint
from systems.readings import DiskProfile as DiskProfile
from systems.readings import StageSpan as StageSpan
from systems.readings import wall_seconds as wall_seconds
from workloads.accelerator import Accelerator
from workloads.errors import BudgetError
from workloads.feature_table import SplitTable
from workloads.ranks import RankGroup
from workloads.sampling.batch import SampledBatch
from workloads.units import format_bytes
from workloads.workload import Workload

_LEAST_RESERVE = 4 << 20
_MOST_RESERVE = 128 << 20
_RESERVE_SHARE = 16
_NAMED = 5  # buffers that an error names, largest first
Tier = Literal["host", "device", "disk"]
Made = TypeVar("Made")
StagesWanted = Literal["all", "sample", "sample+extract"]
STAGES = tuple(
    (
        "sample extract transfer train wait inspect switch cache_update load_graph "
        "assemble data_prep pack"
    ).split()
)


@dataclass(frozen=True, kw_only=True)
class SystemInfo:
    """Description of a system for `outcore systems`, docs and figures.

    Attributes:
        name: name in `outcore run NAME`.
        paper: key of the paper, or `–`.
        devices: supported devices, a subset of `cpu`, `cuda`, `emulated`.
        faithful: whether the system's mini-batches equal the workload's.
        deterministic_counters: whether reads are reproducible; False where the page
            cache decides what is read.
        data_parallel: whether several processes may run the system, each training its
            part of every step.
        artefact_share: approximate bytes that preparation leaves on disk for later
            runs, in units of the feature table.
        reads_by_device: whether the reads depend on the training device, so that
            counters hold for one device only.
    """

    name: str
    paper: str = "–"
    summary: str
    devices: tuple[str, ...] = ("cpu", "cuda", "emulated")
    faithful: bool = True
    options: type[Options]
    deterministic_counters: bool = True
    data_parallel: bool = False
    artefact_share: float = 0.0
    reads_by_device: bool = False


def reserve_bytes(host: int) -> int:
    """Return the bytes of a host budget that no buffer may take: the share of the
    process, its threads and the kernel.

    The reserve covers holes between arrays, stacks, page tables, pages that the kernel
    charges before use, and the few pages of mapped files that reading needs. It grows
    with the data that moves through the buffers (Ginex, Section 3.5, keeps a region for
    such fluctuations). Callers subtract it from a system's budget and add it to the
    plan.
    """
    return min(host, max(_LEAST_RESERVE, min(_MOST_RESERVE, host // _RESERVE_SHARE)))


@dataclass(frozen=True)
class PlanItem:
    """One buffer of a plan: its name, size in bytes and tier."""

    name: str
    bytes: int
    tier: Tier = "host"


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes that a system may hold beyond the floor and the training working set
    (methodology rule 4).

    `host` bounds anonymous buffers and page cache together; a system sizes buffers from
    it. None: unlimited.

    Attributes:
        held: buffers of the caller in the same memory, already subtracted: the reserve,
            a loader's mini-batches.
    """

    host: int | None
    device: int | None = None
    disk: int | None = None
    held: tuple[PlanItem, ...] = ()

    @classmethod
    def beside(
        cls,
        host: int | None,
        device: int | None = None,
        held: tuple[PlanItem, ...] = (),
    ) -> MemoryBudget:
        """Return the budget of a system in `host` and `device` bytes, beside the
        reserve and the buffers `held`."""
        if host is not None:
            held = (PlanItem("reserve", reserve_bytes(host)), *held)
        plan = Plan(held)
        left = None if host is None else host - plan.total("host")
        return cls(
            left, None if device is None else device - plan.total("device"), held=held
        )


@dataclass(frozen=True)
class Plan:
    """Every buffer of a system, sized before it is allocated."""

    items: tuple[PlanItem, ...] = ()

    def __str__(self) -> str:
        """Format the plan as a table: a line for each buffer, and for each tier its
        total."""
        tiers = list(dict.fromkeys(item.tier for item in self.items))
        lines = [
            (item.name, item.tier, format_bytes(item.bytes)) for item in self.items
        ]
        lines += [("total", tier, format_bytes(self.total(tier))) for tier in tiers]
        wide = max((len(name) for name, _, _ in lines), default=0)
        return "\n".join(
            f"{name:<{wide}}  {tier:<6}  {size:>10}" for name, tier, size in lines
        )

    def total(self, tier: Tier) -> int:
        """Sum the bytes planned on one tier."""
        return sum(item.bytes for item in self.items if item.tier == tier)

    def bytes_of(self, name: str, tier: Tier = "host") -> int:
        """Sum the bytes of the buffers of this name on one tier."""
        return sum(
            item.bytes for item in self.items if (item.name, item.tier) == (name, tier)
        )

    def require(
        self, system: str, budget: MemoryBudget, fix: str = "raise memory"
    ) -> Plan:
        """Return the plan unchanged if it fits the budget.

        Raises:
            BudgetError: names the first item that does not fit, the bytes left for it,
                and the items before it.
        """
        for tier, limit in (
            ("host", budget.host),
            ("device", budget.device),
            ("disk", budget.disk),
        ):
            left = limit
            for number, item in enumerate(self.items):
                if left is None or item.tier != tier:
                    continue
                if item.bytes > left:
                    raise Plan(self.items[:number]).no_room(system, budget, item, fix)
                left -= item.bytes
        return self

    def no_room(
        self,
        system: str,
        budget: MemoryBudget,
        item: PlanItem,
        fix: str = "raise memory",
    ) -> BudgetError:
        """Return the error that a buffer does not fit beside the plan's; names the
        largest that are on its tier.

        Args:
            system: name of the system.
            budget: budget on the buffer's tier.
            item: buffer that does not fit.
            fix: remedy, as a command.
        """
        beside = [
            one
            for one in (*budget.held, *self.items)
            if one.tier == item.tier and one.bytes
        ]
        limit = getattr(budget, item.tier) or 0
        limit += sum(one.bytes for one in budget.held if one.tier == item.tier)
        left = max(0, limit - sum(one.bytes for one in beside))
        beside.sort(key=lambda one: one.bytes, reverse=True)
        if smaller := beside[_NAMED:]:
            beside[_NAMED:] = [
                PlanItem(f"{len(smaller)} smaller", sum(one.bytes for one in smaller))
            ]
        names = ", ".join(f"{one.name} ({format_bytes(one.bytes)})" for one in beside)
        after = f" after {names}" if beside else ""
        rest = (
            f"{format_bytes(left)} is left of the {format_bytes(limit)} {item.tier} "
            f"budget{after}"
        )
        return BudgetError(
            f"{system}: {item.name} needs {format_bytes(item.bytes)}, {rest}", fix
        )


Progress = Callable[[str, float], None]
"""Callback that receives the name of a task and its completed share (0 to 1; NaN if
unknown)."""


def silent(what: str, share: float) -> None:
    """Ignore progress."""


@dataclass(frozen=True)
class Runtime:
    """Resources and settings of a system's run.

    Attributes:
        accelerator: device on which the harness trains.
        artefacts: folder for prepared artefacts, kept and reused by fingerprint.
        scratch: folder for a run's own files, removed afterwards.
        keep_order: yield batches in the seed plan's order.
        epochs: number of epochs that will be requested, from 0 on, so that offline work
            can cover all; 0: unknown.
        group: the run's other processes, None in a run of one process. All share the
            run's cap; each gets its part of the budget and counts shared memory by its
            part.
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
        rows: feature rows requested by mini-batches.
        hits: rows served per tier: `device`, `host`, `disk_cache`, or `page_cache` for
            memory-mapped systems, where the kernel decides and misses are unknown.
        misses: rows fetched from disk by the system itself.
        io_requests: reads submitted by the system.
        bytes_read: bytes returned by those reads.
        bytes_useful: bytes of the rows (and drawn neighbours, not their whole lists)
            that were read because mini-batches use them; at most those of every row at
            each use, and of neighbours those that were read.
        requests_by_size: number of reads by request bytes.
        queue_depth: reads kept in flight.
        bytes_loaded: bytes of rows brought to the device or, on the processor, to the
            mini-batch's table; 0 where a system does not count them.
        bytes_written: bytes written to disk within the epoch, in the stages that read.
        observed: non-deterministic counts of kernel decisions (`major_faults`, …).
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
        """Return the counts as plain data for the run record."""
        sizes = {
            str(size): count for size, count in sorted(self.requests_by_size.items())
        }
        return {**asdict(self), "requests_by_size": sizes}


class StageClock:
    """Recorder of stage spans from any thread; a stage's time is the wall time in which
    at least one span is open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[StageSpan] = []

    @contextmanager
    def stage(self, name: str, batch: int = -1) -> Iterator[None]:
        """Time the `with` body as stage `name` of batch `batch`."""
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
        """Return all spans since the last drain, oldest first."""
        with self._lock:
            spans = self._spans
            self._spans = []
        return sorted(spans, key=lambda span: span.start)


@dataclass
class Batch:
    """One mini-batch ready to train.

    The features of `sampled.nodes[i]` are `table[rows[i]]` (or `table[i]` where `rows`
    is None).

    Attributes:
        sampled: structure and labels.
        table: [slots, dim] on the accelerator's device (the shared-memory pool for an
            emulated one), or a `SplitTable`: device rows first, then host rows that the
            device reads by zero-copy. None if `Runtime.stages == "sample"`.
        rows: int64 [num_nodes], the node alias list, or None.
        first_layer_aggregated: whether the rows already hold the first layer's
            aggregate (`+pp`).
        ready: function that waits until the table may be read (a pending copy), or
            None.
        on_release: function that `release` calls once, or None.
    """

    sampled: SampledBatch
    table: torch.Tensor | SplitTable | None
    rows: torch.Tensor | None = None
    first_layer_aggregated: bool = False
    ready: Callable[[], None] | None = None
    on_release: Callable[[], None] | None = None

    def release(self) -> None:
        """Return the batch's slots and buffers; the harness calls this once, after the
        training step."""
        callback = self.on_release
        self.on_release = None
        if callback is not None:
            callback()


@dataclass(frozen=True)
class Expectation:
    """Reference mini-batches of an unfaithful system, computed by the simplest code.

    Attributes:
        sample: returns the mini-batch of (epoch, batch, seed nodes int64 [n]).
        rows: float [N, width], each node's row.
        first_layer_aggregated: as `Batch.first_layer_aggregated`; rows are then
            compared within floating-point tolerance, since the order of summation is
            free.
    """

    sample: Callable[[int, int, npt.NDArray[np.int64]], SampledBatch]
    rows: npt.NDArray[Any]
    first_layer_aggregated: bool = False


class System(ABC):
    """A method of training a GNN whose data lives on disk."""

    info: ClassVar[SystemInfo]
    #: Whether mini-batches hold rows of the first layer's aggregates instead of
    #: features (`+pp`).
    aggregated: ClassVar[bool] = False
    #: Automatic options lowered by `fit`: name -> (value in use, value with an
    #: unlimited budget).
    lowered: Mapping[str, tuple[int, int]] = {}

    def __init_subclass__(cls, **given: Any) -> None:
        """Refuse a class that hides a name of this one by accident. Raises
        InputError."""
        super().__init_subclass__(**given)
        check_overrides(
            cls, System, ("workload", "runtime", "budget", "options", "clock")
        )

    def __init__(
        self,
        workload: Workload,
        runtime: Runtime,
        budget: MemoryBudget,
        options: Options,
        clock: StageClock,
    ) -> None:
        self.workload = workload
        self.runtime = runtime
        self.budget = budget
        self.options = options
        self.clock = clock

    @final
    def fit(self, make: Callable[[], Made]) -> Made:
        """Return the result of `make` under the best automatic options that fit;
        `self.options` keeps those options.

        If the best values of all fields do not fit, start from the lowest value of each
        field and raise each as far as the budget allows, last field first. `make` plans
        by `self.options` and is called again after a BudgetError.

        Raises:
            BudgetError: the plan does not fit with any options; reports the plan of the
                lowest.
        """
        asked = self.options
        kept = dict(vars(self))
        automatic = type(asked).automatic(self.runtime.cores)
        steps = {
            name: values
            for name, values in automatic.items()
            if getattr(asked, name) == 0
        }
        best = {name: values[0] for name, values in steps.items()}
        chosen = {name: values[-1] for name, values in steps.items()}

        def made(options: dict[str, int]) -> Made:
            # Cached properties of a refused plan belong to other options.
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
                with suppress(BudgetError):
                    made({**chosen, name: value})
                    chosen[name] = value
                    break
        found = made(chosen)
        self.lowered = {
            name: (value, best[name])
            for name, value in chosen.items()
            if value != best[name]
        }
        return found

    @classmethod
    def is_faithful(cls, options: Options) -> bool:
        """Return whether the system's mini-batches equal the workload's under these
        options."""
        return cls.info.faithful

    @classmethod
    def loads_everything(cls, options: Options) -> bool:
        """Return whether the system loads the whole feature table by design; its plan
        then refuses a smaller budget."""
        return False

    @classmethod
    def oracle(cls, workload: Workload, options: Options) -> Expectation | None:
        """Return the reference mini-batches of an unfaithful system for `outcore
        check`; None: general checks only."""
        return None

    @classmethod  # noqa: B027 - most systems need none
    def load_libraries(cls) -> None:
        """Import libraries beyond Outcore's own (DGL); they count as floor, not plan,
        and the import as preparation.

        Raises:
            HostError: a library is not installed; the run ends as unsupported.
        """

    @abstractmethod
    def plan(self) -> Plan:
        """Plan every buffer with its bytes and tier, from the workload and the budget
        alone; nothing is allocated.

        Raises:
            BudgetError: names the item that does not fit.
        """

    @abstractmethod
    def prepare(self) -> None:
        """Do the offline work that a training needs once, whatever its number of
        epochs, and allocate buffers.

        The harness times it (rule 14); artefacts are kept in `runtime.artefacts`.
        """

    def prepare_epochs(self, first: int) -> int:
        """Do the offline work that epoch `first`, and those after it that share the
        work, need for themselves alone.

        Called after `prepare` with 0, and at the begin of each later epoch that no
        earlier call served, on that epoch's clock. The harness times it and divides its
        cost among the epochs served; a system that does all of an epoch's work in
        `epoch` leaves it out.

        Returns:
            Number of epochs that the work serves, `first` included; 0: epochs of this
            run need no offline work.
        """
        return 0

    def shared_s(self) -> float:
        """Return the seconds of the last `prepare_epochs` that epochs share, however
        many it serves, as measured by the system: one pass over the features for all of
        them, for example, whichever run made it.

        A training of more epochs spends them once (T(E), rule 14). The cost of a fresh
        epoch, by which systems are ranked, holds this epoch's part of them.
        """
        return 0.0

    @abstractmethod
    def epoch(self, k: int) -> Iterator[Batch]:
        """Yield every mini-batch of epoch `k` exactly once. Counters restart here."""

    @abstractmethod
    def counters(self) -> Counters:
        """Return the counts of the last epoch."""

    def files(self) -> list[Path]:
        """List the files that the system wrote and will read; they are evicted before
        each run like the dataset's."""
        return []

    def data_path(self) -> Sequence[PartUse]:
        """List the parts of the data path in the order in which a mini-batch passes
        them, for `outcore systems show` and docs: names after `plan`, buffers and
        counts of the last epoch after `epoch`. Without it, the summary stands for them.
        """
        return [PartUse(name=self.info.summary)]

    def facts(self) -> Facts:
        """Return the facts of the run that code computes with: how it reads, whether
        artefacts were reused."""
        return Facts()

    def notes(self) -> dict[str, str]:
        """Return text for people: the facts, and further remarks on the run."""
        return self.facts().notes()

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast | None:
        """Forecast the system's reads of a trace after `plan`, without preparation;
        None: it has no forecast.

        `host_bytes` is all host memory for data, `budget.host` and the reserve
        together.
        """
        return None

    def chosen(self) -> dict[str, int | str]:
        """Return what options become in the plan where they are left at `auto`:
        numbers, bytes of sizes, words."""
        self.plan()
        automatic = type(self.options).automatic(self.runtime.cores)
        return {
            name: getattr(self.options, name) or values[0]
            for name, values in automatic.items()
        }

    @final
    def unplanned_bytes(self) -> int:
        """Return the bytes of the host budget that no buffer takes, which the page
        cache may use; 0 without budget."""
        return max(0, (self.budget.host or 0) - self.plan().total("host"))

    @abstractmethod
    def close(self) -> None:
        """Stop every thread, close every file and free every buffer. May be called at
        any time, more than once."""
