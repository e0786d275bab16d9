"""The run record: everything one run leaves behind as `record.json`, readable years later without its code."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = 1
Status = Literal["ok", "oom", "timeout", "unsupported", "failed"]
Verdict = Literal["VALID", "CAVEATS", "INVALID"]
StorageClass = Literal["storage-bound", "mixed", "cached"]

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


class RunConfig(_Part):
    """One run, resolved: every default filled in, sizes in bytes, `options` complete.

    `memory` is `768MiB` (the cap), `0.25x` (a budget of that share of the feature table's bytes), `+64MiB` (a budget in
    bytes) or `none` (measured, not limited). The first `warmup` of `epochs` are left out of the statistics.
    """

    system: str
    dataset: DatasetConfig
    model: str = "sage"
    layers: int = 3
    hidden: int = 256
    heads: int = 4
    learning_rate: float = 0.003
    dropout: float = 0.0
    sampler: str = "neighbor"
    fanout: list[int] = Field(default_factory=lambda: [10, 10, 10])
    replace: bool = False
    shuffle: bool = True
    batch_size: int = 1000
    max_batches: int = 0
    epochs: int = 3
    warmup: int = 1
    device: str = "cpu"
    device_memory_bytes: int | None = None
    isolation: str = "auto"
    disk_class: str = "none"
    stages: Literal["all", "sample", "sample+extract"] = "all"
    memory: str = "none"
    cores: int = 0
    ranks: int = 1
    partition: str = "none"
    keep_order: bool = False
    seed: int = 0
    verify: bool = False
    test_nodes: int = 0
    timeout_s: float = 3600.0
    options: dict[str, Any] = Field(default_factory=dict)
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
    """What one verdict rule said."""

    rule: str
    name: str
    ok: bool
    detail: str = ""


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
    """What `prepare()` cost. `made_s`: seconds that an earlier run spent on what this one used again."""

    seconds: float = 0.0
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
    diskstats_bytes: int | None = None
    diskstats_requests: int | None = None
    # Processor seconds in user mode, of the worker and of the whole host.
    user_s: float | None = None
    host_user_s: float | None = None
    counters: dict[str, Any] = Field(default_factory=dict)


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
    working_set_bytes: int | None = None
    working_set_over_budget: float | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


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
    # Where the harness's own time went: `calibrate_s`, `evict_s`, and from the worker's start, evictions left out,
    # `first_batch_s` to the moment the first batch was given back.
    overhead: dict[str, float] = Field(default_factory=dict)
    # What the system said of itself (`io: io_uring registered`).
    notes: dict[str, str] = Field(default_factory=dict)

    @property
    def measured(self) -> list[EpochRecord]:
        """The epochs that count: after the warm-up."""
        return [epoch for epoch in self.epochs if not epoch.warmup]

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
