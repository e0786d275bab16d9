"""The run record: content of a run's `record.json`, readable years later without its
code."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import truediv
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny

from harness.records.cell import Cell, cell_key
from harness.records.seal import content_digest
from harness.settings import SharedSettings, of_role, setting
from systems.options import Facts
from systems.readings import Latencies
from workloads.units import row_bytes

if TYPE_CHECKING:
    from workloads.dataset import Dataset

SCHEMA = 5
Status = Literal["ok", "oom", "timeout", "unsupported", "failed"]
Verdict = Literal["VALID", "CAVEATS", "SPOILT", "INVALID"]
#: Verdicts whose runs count in figures, claims, standings and predictions.
COUNTED: frozenset[Verdict] = frozenset({"VALID", "CAVEATS"})
StorageClass = Literal["storage-bound", "mixed", "fits memory"]

#: Note of a record on its dataset: generated, imported or unknown (`Dataset.origin`).
ORIGIN = "dataset"
#: Note of a record on the salt of its dataset's generated features (`Dataset.salt`).
SALT = "salt"


class _Part(BaseModel):
    """A part of the record; it refuses unknown keys, so that no misspelt key becomes a
    column."""

    model_config = ConfigDict(
        extra="forbid", populate_by_name=True, protected_namespaces=()
    )


class DatasetConfig(_Part):
    """The dataset as the run used it."""

    name: str
    fingerprint: str
    num_nodes: int
    num_edges: int
    dim: int
    dtype: str
    num_classes: int = 0
    train_nodes: int = 0

    @classmethod
    def of(cls, dataset: Dataset) -> DatasetConfig:
        """Describe an opened dataset."""
        names = ("name", "fingerprint", "num_nodes", "num_edges", "dim", "num_classes")
        known = {name: getattr(dataset, name) for name in names}
        return cls(
            **known,
            dtype=str(dataset.feature_dtype),
            train_nodes=len(dataset.memmap("train")),
        )

    @property
    def row_bytes(self) -> int:
        """Bytes of a feature row."""
        return row_bytes(self.dim, self.dtype)

    @property
    def feature_bytes(self) -> int:
        """Bytes of the feature table."""
        return self.num_nodes * self.row_bytes


class RunConfig(_Part, SharedSettings):
    """One run, resolved: every default filled in, sizes in bytes, `options`
    complete."""

    system: str = setting(..., "system")
    dataset: DatasetConfig = setting(..., "workload")
    layers: int = setting(3, "workload")
    device_memory_bytes: int | None = setting(None, "budget")
    isolation: str = setting("auto", "place")
    timeout_s: float = setting(3600.0, "watch")
    experiment: str = setting("", "label")
    # Values of the experiment's grid for this run, by setting.
    axes: dict[str, Any] = setting({}, "label")
    figure_tags: list[str] = setting([], "label")
    round: int = setting(0, "label")

    @property
    def config_hash(self) -> str:
        """Identity of the run: 16 hex digits over all settings but its labels and its
        round."""
        return content_digest(self.model_dump(mode="json", exclude={*LABELS}), 16)

    @property
    def cell(self) -> Cell:
        """The planned cell of the run."""
        settings = self.model_dump(
            mode="json", include=set(SharedSettings.model_fields)
        )
        more = {"layers": self.layers, "device_memory_bytes": self.device_memory_bytes}
        key = cell_key(self.system, self.dataset.name, settings, self.options, **more)
        return Cell(
            experiment=self.experiment,
            axes=self.axes,
            system=self.system,
            options=self.options,
            key=key,
        )


#: Settings outside a run's identity: its purpose and its round.
LABELS = frozenset(of_role(RunConfig, "label"))


class RuleOutcome(_Part):
    """Outcome of one verdict rule; not `known`: the rule applied and could not be
    judged."""

    rule: str
    name: str
    ok: bool
    detail: str = ""
    known: bool = True


class PlannedBuffer(_Part):
    """One buffer of the system's plan."""

    name: str
    bytes: int = Field(ge=0, lt=2**62)
    tier: Literal["host", "device", "disk"] = "host"


class Memory(_Part):
    """Memory of the cap, as requested and as the kernel reports it (methodology rules
    1, 2, 4). Bytes.

    `resident_before_bytes`: cached bytes of the run's files after the last eviction;
    `evictable_bytes`: sizes of these files. `page_cache_at_peak_bytes` and
    `anon_at_peak_bytes` are from the telemetry sample nearest to the peak.
    `training_device_bytes`: device memory that training takes beside the tables.
    `device_peak_bytes`: most device memory that the worker held, by rank; empty where
    host memory is the device. `device_seen_bytes`: most device memory of the run's
    processes, as NVML counts it from outside; `device_context_bytes`: the part of it
    that CUDA contexts take, from the calibration; None where NVML does not report it.
    """

    cap_bytes: int | None = None
    floor_bytes: int = 0
    training_bytes: int = 0
    budget_bytes: int | None = None
    peak_bytes: int = 0
    page_cache_at_peak_bytes: int = 0
    anon_at_peak_bytes: int = 0
    demand_peak_bytes: int = 0
    resident_before_bytes: int = 0
    evictable_bytes: int = 0
    oom_kills: int = 0
    reclaims: int = 0
    plan: list[PlannedBuffer] = Field(default_factory=list)
    training_device_bytes: int = 0
    device_peak_bytes: list[int] = Field(default_factory=list)
    device_context_bytes: int | None = None
    device_seen_bytes: int | None = None

    @property
    def planned_device_bytes(self) -> int:
        """Bytes of the plan's buffers on the devices of all ranks."""
        return sum(item.bytes for item in self.plan if item.tier == "device")

    @property
    def planned_bytes(self) -> int:
        """Bytes of the plan's host buffers."""
        return sum(item.bytes for item in self.plan if item.tier == "host")


class Work(_Part):
    """Cost of offline work.

    Attributes:
        seconds, bytes_read, bytes_written: cost of the work in this run.
        made_s, made_bytes_read, made_bytes_written: cost of the earlier run that made
            artefacts which this run reused.
    """

    seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    bytes_read: int = Field(default=0, ge=0, lt=2**62)
    bytes_written: int = Field(default=0, ge=0, lt=2**62)
    made_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    made_bytes_read: int = Field(default=0, ge=0, lt=2**62)
    made_bytes_written: int = Field(default=0, ge=0, lt=2**62)

    @property
    def whole_s(self) -> float:
        """Seconds of the work, whichever run spent them."""
        return self.seconds + self.made_s

    @property
    def whole_bytes_read(self) -> int:
        """Bytes that the work reads, whichever run read them."""
        return self.bytes_read + self.made_bytes_read


class OfflineWork(Work):
    """Offline work for the epochs of one episode, as the harness times it around
    `System.prepare_epochs`.

    Attributes:
        epochs: number of the run's epochs that the work serves.
        shared_s: seconds of it that these epochs share and that more of them would
            share too, by the system's measure.
    """

    epochs: int = Field(ge=1, lt=2**31)
    shared_s: float = Field(default=0.0, ge=0)

    @classmethod
    def joined(cls, parts: Sequence[OfflineWork]) -> OfflineWork:
        """Join the work of all ranks: the longest times, the sums of bytes. Raises
        ValueError: of different epochs."""
        counts = {part.epochs for part in parts}
        if len(counts) != 1:
            raise ValueError(
                f"ranks prepare for different numbers of epochs: {sorted(counts)}"
            )
        return cls(
            epochs=counts.pop(),
            shared_s=min(part.shared_s for part in parts),
            seconds=max(part.seconds for part in parts),
            made_s=max(part.made_s for part in parts),
            bytes_read=sum(part.bytes_read for part in parts),
            bytes_written=sum(part.bytes_written for part in parts),
            made_bytes_read=sum(part.made_bytes_read for part in parts),
            made_bytes_written=sum(part.made_bytes_written for part in parts),
        )


class Preprocess(Work):
    """Cost of the preparation, the first epochs' offline work included.

    Attributes:
        planning_s: part of `seconds` before the plan was reported.
        gate_s: seconds from the plan to the gate `prepared`, on the orchestrator's own
            clock.
        reused: whether artefacts of an earlier run were found.
        offline: the part that serves single epochs; None: there is no such part.
    """

    planning_s: float = 0.0
    gate_s: float | None = None
    reused: bool = False
    offline: OfflineWork | None = None


class EpochRecord(_Part):
    """One epoch. `device_*`: counters of the cap, else of the device; `diskstats_*`:
    counters of the whole device."""

    epoch: int
    warmup: bool
    seconds: float
    start_s: float = 0.0
    stages_s: dict[str, float] = Field(default_factory=dict)
    batches: int = 0
    digest: str = ""
    feature_digest: str | None = None
    loss: float | None = None
    # Share of training nodes classified correctly in training, and of test nodes after
    # the epoch.
    accuracy: float | None = None
    test_accuracy: float | None = None
    device_bytes: int | None = None
    device_requests: int | None = None
    # Bytes written by the cap, as the kernel charged them, without writeback by other
    # processes.
    device_written_bytes: int | None = None
    diskstats_bytes: int | None = None
    diskstats_requests: int | None = None
    # Seconds from the opening of the epoch's first gate to the arrival at its last, on
    # the orchestrator's own clock, and the part of them spent on feature digests, which
    # `seconds` excludes.
    gate_s: float | None = None
    checking_s: float = 0.0
    # Seconds with reads in progress: those of the stage in which the system reads, else
    # of sampling or extraction.
    reading_s: float | None = None
    # Processor seconds in user mode and in the kernel, of the processes in the cap and
    # of the whole host.
    user_s: float | None = None
    host_user_s: float | None = None
    system_s: float | None = None
    host_system_s: float | None = None
    # Seconds for which threads of the run waited for a processor, and which the
    # hypervisor took from all processors.
    waited_s: float | None = None
    stolen_s: float | None = None
    # Seconds for which the copy lane and the compute lane of an emulated device were
    # busy, over all ranks.
    bus_s: float | None = None
    compute_s: float | None = None
    # Trained seed nodes, nodes and edges of all mini-batches; whether each rank trained
    # them in the seed plan's order.
    seeds: int | None = None
    nodes: int | None = None
    edges: int | None = None
    in_order: bool | None = None
    # Mini-batches of a real training whose loss was not finite; `loss` is then None.
    losses_not_finite: int = 0
    counters: dict[str, Any] = Field(default_factory=dict)
    # Requests of the system's own readers and writers by latency, submission to
    # completion; empty where the system has none (`harness/records/latency.py`).
    latencies: Latencies = Field(default_factory=dict)
    # Offline work within `seconds`, for the episode that begins with this epoch.
    offline: OfflineWork | None = None

    def us_per_row(self, counter: Literal["user_s", "system_s"]) -> float | None:
        """Return processor microseconds in user mode or in the kernel for each feature
        row of the mini-batches, training included; None where either is unknown."""
        spent_s: float | None = getattr(self, counter)
        rows = self.counters.get("rows")
        return 1e6 * spent_s / rows if spent_s is not None and rows else None

    @property
    def online_s(self) -> float:
        """Seconds of the epoch without the offline work within them."""
        return self.seconds - (self.offline.seconds if self.offline else 0.0)

    @property
    def shown_loss(self) -> float | None:
        """Mean loss for a reader: nan where a loss was not finite, None without
        training."""
        return math.nan if self.losses_not_finite else self.loss

    @property
    def wall_s(self) -> float:
        """Seconds of the epoch for the device and other processes, digests off the
        epoch's clock included."""
        return self.seconds + self.checking_s


class EvictionReading(_Part):
    """One eviction of the run's files, in bytes; `when` is `before` (the run) or
    `after_prepare`."""

    when: str
    files: int
    total_bytes: int
    resident_bytes: int

    @property
    def share(self) -> float:
        """Ratio of resident bytes to file bytes; below 0.01 is cold (methodology rule
        2)."""
        return self.resident_bytes / self.total_bytes if self.total_bytes else 0.0


class GateReading(_Part):
    """Readings of the orchestrator while the worker waited at a gate (`floor`,
    `prepared`, `epoch 0 start`, …).

    Attributes:
        reached_s, opened_s: seconds of the gate's event and of its opening, on the
            orchestrator's own clock from the begin of the first epoch.
        io_bytes, io_requests: bytes and requests read from devices by the cap so far;
            None: unknown to the backend.
        io_written_bytes: bytes written to devices by the cap so far; None: unknown to
            the backend.
        disk_bytes, disk_requests: reads of the dataset's device by all processes since
            boot; None: unknown.
        held_bytes: bytes charged to the cap except pages of files; None in older
            records.
        page_cache_bytes: bytes of file pages charged to the cap, before or after
            `resident_bytes` was read, whichever is more.
        resident_bytes: bytes of the run's own files in the page cache, whatever cgroup
            is charged; None: not measured.
        uncharged_bytes: bytes of memory in use that the cap was not charged for: queues
            of sockets, in older records huge pages and memory of other processes too;
            None: not looked at.
        swap_bytes, limit_bytes: swapped-out bytes of the cap, and memory limit in
            force; in older records only.
        outside: processes and threads of the run outside its cap; in older records
            only.
        user_s: processor seconds in user mode of all processes that were in the cap, by
            the cap's own counter; where it has none, of the living ones and of the
            children that they waited for.
        host_user_s: processor seconds of the host in user mode since boot.
        system_s, host_system_s: the same in the kernel; None: no counter of the cap, or
            older records.
        waited_s: seconds for which threads in the cap were ready and waited for a
            processor; None: not counted.
        stolen_s: seconds since boot that the hypervisor took from processors of the
            host; None in older records.
    """

    at: str
    reached_s: float
    opened_s: float
    io_bytes: int | None = None
    io_requests: int | None = None
    io_written_bytes: int | None = None
    disk_bytes: int | None = None
    disk_requests: int | None = None
    held_bytes: int | None = None
    page_cache_bytes: int = 0
    resident_bytes: int | None = None
    uncharged_bytes: int | None = None
    swap_bytes: int = 0
    limit_bytes: int | None = None
    outside: list[str] = Field(default_factory=list)
    user_s: float = 0.0
    host_user_s: float = 0.0
    system_s: float | None = None
    host_system_s: float | None = None
    waited_s: float | None = None
    stolen_s: float | None = None

    def since(self, earlier: GateReading, counter: str) -> Any:
        """Return the increase of a counter since an earlier gate; None if either
        reading lacks it."""
        before = getattr(earlier, counter)
        after = getattr(self, counter)
        return None if before is None or after is None else after - before


class Sandbox(_Part):
    """Walls between a run's worker and the host (rule 33).

    Attributes:
        kind: mechanism and its version; empty: the worker was not sandboxed.
        walls: names of the walls.
        missing: reason why there was no sandbox.
    """

    kind: str = ""
    walls: list[str] = Field(default_factory=list)
    missing: str = ""


class Closing(_Part):
    """What the worker did from the opening of its last gate until its last event:
    seconds on the orchestrator's clock, and bytes that its cap read from and wrote to
    devices; None: unknown to the backend."""

    seconds: float
    bytes_read: int | None = None
    bytes_written: int | None = None


class FeatureCheck(_Part):
    """Comparison of one mini-batch's feature rows in training with the dataset's
    (methodology rule 26).

    `rows`: number of rows compared. `whole`: whether a digest over all rows of the
    epoch's mini-batches was compared.
    """

    epoch: int
    batch: int = -1
    rows: int = 0
    whole: bool = False
    ok: bool
    detail: str = ""


class RawReadings(_Part):
    """Raw readings beside the epochs, from which the verdict is judged now and at every
    later reading (rule 29).

    Attributes:
        isolation: name of the isolation backend.
        proves_memory, io_limited: whether the backend enforces the memory cap and the
            I/O limits on this host.
        faithful: whether the system's mini-batches have to equal the workload's under
            the run's options.
        deterministic_counters: unused, always True.
        evictions: readings of the evictions, in order.
        gates: readings at the gates, in order.
        sandbox: walls between the worker and the host; None in records from before
            there were any.
        samples: number of samples of the cap, at gates and between them.
        unwatched_s: longest time between two samples within an epoch; None: not
            recorded.
        outside, limits, rewritten: processes of the run seen outside the cap, memory
            limits seen in force (0: none), and the dataset's files that changed; in
            older records only.
        batches, seeds: number of mini-batches and of seed nodes of an epoch by the seed
            plan, over all ranks.
        digests: structure digest of the workload's own mini-batches, by epoch.
        drawn: nodes and edges of an epoch that our sampler draws as a foreign system
            does, and their standard deviations, by epoch.
        least_bytes: lower bound of the bytes that a system with this memory reads
            (docs/frontier.md), by epoch.
        least_bus_s: lower bound of the seconds for which rows cross an emulated
            device's bus, by epoch.
        unknown: reason why `batches`, `digests` or `least_bytes` are missing.
        in_turns: whether the run waited between epochs for the turns of other sweeps of
            this machine.
        free_device_memory: whether feature rows may stay on the device although copies
            to it take no time.
        features, unchecked: checks of the feature rows, and the reason why some are
            missing.
        from_before: bytes of open data files older than the run, without reused
            artefacts, by path; None: not looked at.
        elsewhere: bytes of open data files on other disks than the dataset's, by path;
            None as above.
        unknown_code: files of code that the worker had loaded and that no fingerprint
            is made from, without libraries.
        uncharged_bytes: most bytes of memory between gates that the cap was not charged
            for; None: not looked at.
        enclosing_bytes: least memory limit of the groups that hold the cap; None: no
            such limit is known.
        closing: work after the last gate; None in records from before this was read.
    """

    isolation: str = ""
    proves_memory: bool = False
    io_limited: bool = False
    faithful: bool = True
    deterministic_counters: bool = True
    evictions: list[EvictionReading] = Field(default_factory=list)
    gates: list[GateReading] = Field(default_factory=list)
    sandbox: Sandbox | None = None
    samples: int = 0
    unwatched_s: float | None = None
    outside: list[str] = Field(default_factory=list)
    limits: list[int] = Field(default_factory=list)
    batches: int | None = None
    seeds: int | None = None
    digests: dict[int, str] = Field(default_factory=dict)
    drawn: dict[int, tuple[int, int, float, float]] = Field(default_factory=dict)
    least_bytes: dict[int, int] = Field(default_factory=dict)
    least_bus_s: dict[int, float] = Field(default_factory=dict)
    unknown: str = ""
    features: list[FeatureCheck] = Field(default_factory=list)
    unchecked: str = ""
    rewritten: list[str] | None = None
    from_before: dict[str, int] | None = None
    elsewhere: dict[str, int] | None = None
    unknown_code: list[str] = Field(default_factory=list)
    uncharged_bytes: int | None = None
    enclosing_bytes: int | None = None
    closing: Closing | None = None
    in_turns: bool = False
    free_device_memory: bool = False

    def before(self, epoch: int) -> tuple[GateReading, GateReading] | None:
        """Return the gate before an epoch's first gate (of the preparation or the
        previous epoch), and that gate."""
        gates = {gate.at: gate for gate in self.gates}
        last = gates.get(f"epoch {epoch - 1} end" if epoch else "prepared")
        first = gates.get(f"epoch {epoch} start")
        return None if last is None or first is None else (last, first)


class Code(_Part):
    """Fingerprints of the code behind a run's numbers (rule 28).

    Attributes:
        system: sources of the system, with the samplers of `workloads/sampling`.
        harness: sources of what measures.
        sampler: sources of a sampler from elsewhere (`package.module:NAME`); empty for
            others.
        edition: edition of the rules (`harness/records/edition.py`).
    """

    system: str = ""
    harness: str = ""
    sampler: str = ""
    edition: int = 1


class RunFacts(Facts):
    """Facts of a run that code computes with: those that its system reports, and the
    stage clock of a test (`harness/run/spec.py`)."""

    test_clock: str | None = None


class Spread(_Part):
    """A median with its interval, and the mean of the same samples; None in records of
    older versions."""

    median: float
    mean: float | None = None
    interval: tuple[float, float]
    interval_kind: Literal["bootstrap95", "range"]


class Summary(BaseModel):
    """Derived numbers of a run; None: unknown. `harness/judge/metrics.py` lists the
    metrics and what they mean.

    A metric is stored under its name; those that our code reads by name have a field.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | None] = Field(init=False)

    epoch_s: Spread | None = None
    stages_s: dict[str, float] = Field(default_factory=dict)
    read_p50_s: float | None = None
    read_p99_s: float | None = None
    read_p999_s: float | None = None
    user_s_per_row: float | None = None
    system_s_per_row: float | None = None
    read_amplification: float | None = None
    accelerator_utilisation: float | None = None
    storage_efficiency: float | None = None
    engine_efficiency: float | None = None
    distance_to_limit: float | None = None
    predicted_s: float | None = None
    once_s: float | None = None
    first_s: float | None = None
    each_s: float | None = None
    shared_s: float | None = None
    shared_each_s: float | None = None
    mean_epoch_s: float | None = None
    fresh_epoch_s: float | None = None
    prepared_bytes: int | None = None
    prepared_written_bytes: float | None = None
    epoch_written_bytes: float | None = None
    working_set_bytes: int | None = None
    working_set_over_budget: float | None = None
    topology_over_budget: float | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


def class_of(record: Mapping[str, Any]) -> str:
    """Return the class of a record (plain data) as tables name it; a suffix marks a
    topology above the budget."""
    ratio = (record.get("summary") or {}).get("topology_over_budget")
    name = str(record.get("class") or "unknown")
    outside = ratio is not None and ratio > 1.0
    return f"{name}, topology outside" if outside else name


class Record(_Part):
    """One run, complete. Immutable once written."""

    schema_version: int = Field(default=SCHEMA, alias="schema")
    run_id: str
    config_hash: str
    system: str
    status: Status
    reason: str = ""
    verdict: Verdict = "CAVEATS"
    verdict_rules: list[RuleOutcome] = Field(default_factory=list)
    class_: StorageClass | None = Field(default=None, alias="class")
    caveats: list[str] = Field(default_factory=list)
    started_at: str = ""
    duration_s: float = 0.0
    config: RunConfig
    environment: dict[str, Any] = Field(default_factory=dict)
    memory: Memory = Field(default_factory=Memory)
    preprocess: Preprocess = Field(default_factory=Preprocess)
    epochs: list[EpochRecord] = Field(default_factory=list)
    summary: Summary = Field(default_factory=Summary)
    # Device profiles (rule 10): {"bare": {...}, "limited": {...}, "limits": [...]},
    # points as in DiskProfile.
    disk: dict[str, Any] = Field(default_factory=dict)
    # Calibration (rules 12, 20): {"train_s": …, "null_s": …} seconds by epoch, memory,
    # and the source of the times.
    compute: dict[str, Any] = Field(default_factory=dict)
    # Seconds of the harness: `calibrate_s`, `evict_s`, `gates_s` without evictions but
    # with other sweeps' turns, `judging_s` after the run; and `first_batch_s` from the
    # worker's start to the first mini-batch's release, without evictions.
    overhead: dict[str, float] = Field(default_factory=dict)
    # Notes of the system (`io: io_uring registered`).
    notes: dict[str, str] = Field(default_factory=dict)
    facts: SerializeAsAny[RunFacts] = Field(default_factory=RunFacts)
    code: Code = Field(default_factory=Code)
    # The planned cell that the run measures; derived from `config` where an older
    # version left it out.
    cell: Cell = Field(default_factory=lambda known: known["config"].cell)
    evidence: RawReadings | None = None
    # Digests of the run folder's parts, written last (`harness/records/seal.py`); empty
    # in records of older versions.
    seal: dict[str, str] = Field(default_factory=dict)

    @property
    def readings(self) -> RawReadings:
        """Raw readings of the run; records of older versions have none."""
        return self.evidence or RawReadings(isolation=self.config.isolation)

    @property
    def measured(self) -> list[EpochRecord]:
        """Epochs after the warm-up, which alone count."""
        return [epoch for epoch in self.epochs if not epoch.warmup]

    @property
    def offline(self) -> list[OfflineWork]:
        """Offline work of every episode, in order."""
        every = [self.preprocess.offline, *(epoch.offline for epoch in self.epochs)]
        return [work for work in every if work is not None]

    @property
    def class_label(self) -> str:
        """Class of the run as tables name it."""
        return class_of({"class": self.class_, "summary": vars(self.summary)})

    @property
    def broke_its_plan(self) -> bool:
        """Whether the run ran out of memory after a plan that fitted the budget: a bug
        of the system, not a result."""
        memory = self.memory
        fitted = (
            bool(memory.plan)
            and memory.budget_bytes is not None
            and memory.planned_bytes <= memory.budget_bytes
        )
        return self.status == "oom" and fitted

    def to_json(self) -> dict[str, Any]:
        """Return plain data with the keys of `record.json`."""
        return self.model_dump(mode="json", by_alias=True)


def spread(*sides: Sequence[float], of: Literal["median", "mean"] = "median") -> Spread:
    """Return median and mean of samples, or the ratios of those of two sides, with an
    interval (methodology rule 15).

    The interval, of the median or the mean as `of` has it, is a bootstrap 95 %
    interval, every side resampled, or, below five samples of a side, the range over all
    samples or pairs.
    """
    import numpy as np

    values = [np.asarray(side, dtype=np.float64) for side in sides]
    both: dict[str, Callable[..., Any]] = {"median": np.median, "mean": np.mean}
    middle = {
        name: float(reduce(truediv, map(function, values)))
        for name, function in both.items()
    }
    if min(map(len, values)) < 5:
        first, *others = values
        low = reduce(truediv, [first.min(), *(other.max() for other in others)])
        high = reduce(truediv, [first.max(), *(other.min() for other in others)])
        return Spread(
            **middle, interval=(float(low), float(high)), interval_kind="range"
        )
    rng = np.random.default_rng(0)
    draws = [
        both[of](side[rng.integers(0, len(side), size=(2000, len(side)))], axis=1)
        for side in values
    ]
    low, high = np.percentile(reduce(truediv, draws), [2.5, 97.5])
    return Spread(
        **middle, interval=(float(low), float(high)), interval_kind="bootstrap95"
    )
