"""The run record: everything one run leaves behind as `record.json`, readable years later without its code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.settings import SharedSettings

SCHEMA = 2
Status = Literal["ok", "oom", "timeout", "unsupported", "failed"]
Verdict = Literal["VALID", "CAVEATS", "SPOILT", "INVALID"]
#: Verdicts of runs whose numbers count: figures, claims, standings and predictions leave out all others.
COUNTED: frozenset[Verdict] = frozenset({"VALID", "CAVEATS"})
StorageClass = Literal["storage-bound", "mixed", "cached"]

# The note of a worker that was told to wait in extract, to test the regression gate.
SLOWED = "test_extract_wait_s"

# Not part of a run's identity: what it was made for, and which repetition it is.
LABELS = ("experiment", "figure_tags", "round")


class _Part(BaseModel):
    """Unknown keys are refused, so that a typing mistake never becomes a silent column."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, protected_namespaces=())


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


class RunConfig(_Part, SharedSettings):
    """One run, resolved: every default filled in, sizes in bytes, `options` complete."""

    system: str
    dataset: DatasetConfig
    layers: int = 3
    device_memory_bytes: int | None = None
    isolation: str = "auto"
    timeout_s: float = 3600.0
    experiment: str = ""
    figure_tags: list[str] = Field(default_factory=list)
    round: int = 0

    @property
    def config_hash(self) -> str:
        """Identity of the run: 16 hex digits over everything but its labels and its round."""
        content = self.model_dump(mode="json", exclude=set(LABELS))
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class RuleOutcome(_Part):
    """What one verdict rule said; not `known`: it applied and could not be judged."""

    rule: str
    name: str
    ok: bool
    detail: str = ""
    known: bool = True


class PlannedBuffer(_Part):
    """One buffer of the system's plan."""

    name: str
    bytes: int
    tier: Literal["host", "device", "disk"] = "host"


class Memory(_Part):
    """Memory of the cap, as asked for and as the kernel reports it (methodology rules 1, 2, 4). Bytes.

    `resident_before_bytes` is what was still cached of the run's files after the last eviction, `evictable_bytes` their
    sizes. `page_cache_at_peak_bytes` and `anon_at_peak_bytes` come from the telemetry sample nearest to the peak.
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


class Preprocess(_Part):
    """What `prepare()` cost. `made_s`: seconds that an earlier run spent on what this one used again.

    `planning_s`: of `seconds`, those before the plan was told.
    `gate_s`: from the plan to the gate behind the preparation, on the orchestrator's own clock.
    """

    seconds: float = 0.0
    planning_s: float = 0.0
    gate_s: float | None = None
    made_s: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    reused: bool = False


class EpochRecord(_Part):
    """One epoch. `device_*` from the cap's own counters where it has them, `diskstats_*` from the whole device."""

    epoch: int
    warmup: bool
    seconds: float
    start_s: float = 0.0
    stages_s: dict[str, float] = Field(default_factory=dict)
    batches: int = 0
    digest: str = ""
    feature_digest: str | None = None
    loss: float | None = None
    # Share of the training nodes that the model found while it learnt; of the test nodes after the epoch.
    accuracy: float | None = None
    test_accuracy: float | None = None
    device_bytes: int | None = None
    device_requests: int | None = None
    # Written by the cap, as the kernel charged it: not what it leaves to be written back by others.
    device_written_bytes: int | None = None
    diskstats_bytes: int | None = None
    diskstats_requests: int | None = None
    # Seconds from the opening of its first gate to the arrival at its last, on the orchestrator's own clock; of
    # these, seconds of digests under `verify`, which `seconds` leaves out.
    gate_s: float | None = None
    checking_s: float = 0.0
    # Seconds in which its reads were going on: the stage in which the system makes them, else sampling or extraction.
    reading_s: float | None = None
    # Processor seconds in user mode, of the worker and of the whole host.
    user_s: float | None = None
    host_user_s: float | None = None
    counters: dict[str, Any] = Field(default_factory=dict)

    @property
    def wall_s(self) -> float:
        """Seconds in which the device and others worked: digests that are off the epoch's clock are not off theirs."""
        return self.seconds + self.checking_s


class EvictionReading(_Part):
    """One eviction of the run's files: `when` is `before` the run or `after_prepare`. Bytes."""

    when: str
    files: int
    total_bytes: int
    resident_bytes: int

    @property
    def share(self) -> float:
        """Resident bytes over file bytes; under 0.01 is cold (methodology rule 2)."""
        return self.resident_bytes / self.total_bytes if self.total_bytes else 0.0


class GateReading(_Part):
    """What the orchestrator read while the worker stood at a gate (`prepared`, `epoch 0 start`, `epoch 0 end`, …).

    Attributes:
        reached_s, opened_s: when the worker said so and when it was let go on, on the orchestrator's own clock; 0 is
            the opening of the first epoch's gate.
        io_bytes, io_requests: read from devices by the cap so far; None where the backend cannot tell.
        io_written_bytes: written by it.
        disk_bytes, disk_requests: read from the dataset's device by anybody since boot; None where it is not known.
        page_cache_bytes: pages of files charged to the cap.
        resident_bytes: pages of the run's own files in the page cache, whoever is charged; None: not looked at.
        swap_bytes: what of the cap is swapped out.
        limit_bytes: the memory limit in force.
        outside: processes and threads of the run that are not in its cap.
        host_user_s: processor seconds of the host in user mode since boot.
    """

    at: str
    reached_s: float
    opened_s: float
    io_bytes: int | None = None
    io_requests: int | None = None
    io_written_bytes: int | None = None
    disk_bytes: int | None = None
    disk_requests: int | None = None
    page_cache_bytes: int = 0
    resident_bytes: int | None = None
    swap_bytes: int = 0
    limit_bytes: int | None = None
    outside: list[str] = Field(default_factory=list)
    host_user_s: float = 0.0


class FeatureCheck(_Part):
    """Feature rows of one mini-batch as training met them, held against the dataset's (methodology rule 26).

    `rows`: how many were compared. `whole`: a digest over all rows of all mini-batches of the epoch.
    """

    epoch: int
    batch: int = -1
    rows: int = 0
    whole: bool = False
    ok: bool
    detail: str = ""


class Evidence(_Part):
    """Raw readings beside the epochs by which the verdict is judged, now and whenever the record is read (rule 29).

    Attributes:
        isolation: the backend; `proves_memory`, `io_limited`: what it enforces here.
        faithful, deterministic_counters: as the system says under these options.
        evictions: how cold the run began.
        gates: in order.
        samples: how often the cap was looked at between gates; `outside`, `limits`: what of the run was seen outside
            the cap, and the limits that were in force.
        batches: mini-batches of an epoch by the seed plan.
        digests: of the workload's own mini-batches, by epoch.
        least_bytes: what any system with this memory reads of an epoch (docs/frontier.md), by epoch.
        unknown: why there are none of these.
        in_turns: other sweeps of this machine went ahead between epochs, on purpose.
        free_device_memory: rows may stay on the device, to which a copy takes no time.
        features: what was checked; `unchecked` says why not.
    """

    isolation: str = ""
    proves_memory: bool = False
    io_limited: bool = False
    faithful: bool = True
    deterministic_counters: bool = True
    evictions: list[EvictionReading] = Field(default_factory=list)
    gates: list[GateReading] = Field(default_factory=list)
    samples: int = 0
    outside: list[str] = Field(default_factory=list)
    limits: list[int] = Field(default_factory=list)
    batches: int | None = None
    digests: dict[int, str] = Field(default_factory=dict)
    least_bytes: dict[int, int] = Field(default_factory=dict)
    unknown: str = ""
    features: list[FeatureCheck] = Field(default_factory=list)
    unchecked: str = ""
    in_turns: bool = False
    free_device_memory: bool = False


class Code(_Part):
    """Which code a number belongs to (rule 28): fingerprints of the system's sources and of the measuring harness."""

    system: str = ""
    harness: str = ""


class Spread(_Part):
    """A median with its interval."""

    median: float
    interval: tuple[float, float]
    interval_kind: Literal["bootstrap95", "range"]


class Summary(_Part):
    """The derived numbers of a run; None where they cannot be known."""

    epoch_s: Spread | None = None
    stages_s: dict[str, float] = Field(default_factory=dict)
    read_amplification: float | None = None
    accelerator_utilisation: float | None = None
    storage_efficiency: float | None = None
    engine_efficiency: float | None = None
    distance_to_limit: float | None = None
    # The epoch by the system's own counters and the device's profile (`harness/predict.py`), seconds.
    predicted_s: float | None = None
    # Before epochs are as they stay: the preparation, whichever run spent it, and what the first epoch takes and reads
    # beyond the median one. It takes at least these seconds: a warm-up's digests are left out, and threads go on there.
    start_up_s: float | None = None
    start_up_bytes: int | None = None
    working_set_bytes: int | None = None
    working_set_over_budget: float | None = None
    # The whole graph, `indptr` and `indices`, over the host budget (rule 7).
    topology_over_budget: float | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


def class_label(storage_class: str | None, topology_over_budget: float | None) -> str:
    """The class as every table names it: the papers hold the topology, and a run that does not is told from theirs."""
    outside = topology_over_budget is not None and topology_over_budget > 1.0
    return f"{storage_class or 'unknown'}{', topology outside' if outside else ''}"


def class_of(record: Mapping[str, Any]) -> str:
    """`class_label` of a record in plain data."""
    return class_label(record.get("class"), (record.get("summary") or {}).get("topology_over_budget"))


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
    # What the device can do (rule 10): {"bare": {...}, "limited": {...}, "limits": [...]}, points as in DiskProfile.
    disk: dict[str, Any] = Field(default_factory=dict)
    # What training alone takes (rules 12, 20): {"train_s": …, "null_s": …} seconds an epoch, and how it was found.
    compute: dict[str, Any] = Field(default_factory=dict)
    # Where the harness's own time went: `calibrate_s`, `evict_s`, `gates_s` but for evictions, `judging_s` after the
    # run; and from the worker's start, evictions left out, `first_batch_s` to when the first batch was given back.
    overhead: dict[str, float] = Field(default_factory=dict)
    # What the system said of itself (`io: io_uring registered`).
    notes: dict[str, str] = Field(default_factory=dict)
    code: Code = Field(default_factory=Code)
    evidence: Evidence | None = None
    # Part of the run's folder -> its digest, written last (`harness/seal.py`); empty in records of older versions.
    seal: dict[str, str] = Field(default_factory=dict)

    @property
    def measured(self) -> list[EpochRecord]:
        """The epochs that count: after the warm-up."""
        return [epoch for epoch in self.epochs if not epoch.warmup]

    @property
    def class_label(self) -> str:
        """The class as tables name it."""
        return class_label(self.class_, self.summary.topology_over_budget)

    @property
    def broke_its_plan(self) -> bool:
        """Whether it ran out of memory after a plan that fitted the budget: no result, but a fault of its code."""
        budget = self.memory.budget_bytes
        planned = sum(item.bytes for item in self.memory.plan if item.tier == "host")
        return self.status == "oom" and bool(self.memory.plan) and budget is not None and planned <= budget

    def to_json(self) -> dict[str, Any]:
        """Plain data, keys as in `record.json`."""
        return self.model_dump(mode="json", by_alias=True)


def spread(samples: list[float], *, seed: int = 0) -> Spread:
    """Median with a bootstrap 95 % interval from five samples on, the range below that (methodology rule 15)."""
    import numpy as np

    values = np.asarray(samples, dtype=np.float64)
    median = float(np.median(values))
    if len(values) < 5:
        return Spread(median=median, interval=(float(values.min()), float(values.max())), interval_kind="range")
    rng = np.random.default_rng(seed)
    draws = np.median(values[rng.integers(0, len(values), size=(2000, len(values)))], axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return Spread(median=median, interval=(float(low), float(high)), interval_kind="bootstrap95")


def spread_of_ratio(above: list[float], below: list[float], *, seed: int = 0) -> Spread:
    """Ratio of two medians: a bootstrap 95 % interval, both sides drawn anew, from five samples of each on; below that
    the range over every pair (methodology rule 15)."""
    import numpy as np

    a, b = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    ratio = float(np.median(a) / np.median(b))
    if min(len(a), len(b)) < 5:
        interval = (float(a.min() / b.max()), float(a.max() / b.min()))
        return Spread(median=ratio, interval=interval, interval_kind="range")
    rng = np.random.default_rng(seed)
    over = np.median(a[rng.integers(0, len(a), size=(2000, len(a)))], axis=1)
    under = np.median(b[rng.integers(0, len(b), size=(2000, len(b)))], axis=1)
    low, high = np.percentile(over / under, [2.5, 97.5])
    return Spread(median=ratio, interval=(float(low), float(high)), interval_kind="bootstrap95")
