"""Samples that the gate compares, from run records: exact facts, noisy values and
stages of each run, by cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from harness.cache import digest_of
from harness.judge.metrics import RunNumbers
from harness.judge.registry import RunContext, broken_by_the_system
from harness.records.hosts import host_fingerprint
from harness.records.record import LABELS, SALT, EpochRecord, Record, RunConfig, Verdict

# Identity of the mini-batches: any change is a change of the training.
IDENTITY = ("batches", "rows", "digest", "feature_digest")
# Costs of an epoch by the system's own counters: more is worse.
COSTS = ("misses", "io_requests", "bytes_read", "bytes_useful", "bytes_loaded")
# Offline work of T(E), and the seconds below which it is not compared: noise of the
# process's start.
OFFLINE = ("once", "each")
LEAST_OFFLINE_S = 0.05

Exact = dict[str, list[int | str | None]]
_STORED = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STORED)
class RunSample:
    """Values of one run that the gate compares, and that baselines store, but for
    `epochs_s` and `broken`.

    Attributes:
        exact: fact -> its value in every epoch, warm-up too: `digest`, `rows`,
            `io_requests`, …; None where unknown.
        noisy: metric -> one positive value: `epoch` (s, median of the measured epochs),
            `warm-up` (s, all of its epochs), `once` and `each` (s of offline work,
            terms of T(E)), `peak memory` (bytes), `device bytes` and `device requests`
            (median per epoch).
        salt: digest of the salt of the dataset's generated features (`Dataset.salt`).
        broken: verdict of each rule that the run breaks and that other programs'
            activity cannot break, by the rule's name; None in baselines, which were
            judged by the rules of their time.
        stages: median seconds per measured epoch, by stage.
        epochs_s: seconds of each measured epoch if epochs alternated with the other
            side's, else empty.
    """

    run_id: str
    status: Literal["ok", "oom", "timeout", "unsupported", "failed"]
    reason: str = ""
    verdict: str = ""
    broken: dict[str, Verdict] | None = Field(default=None, exclude=True)
    exact: Exact = Field(default_factory=dict)
    noisy: dict[str, float] = Field(default_factory=dict)
    stages: dict[str, float] = Field(default_factory=dict)
    epochs_s: list[float] = Field(default_factory=list, exclude=True)
    salt: str = ""


@dataclass(frozen=True, config=_STORED)
class ConfigSamples:
    """All runs of one configuration. `deterministic`: whether the system declares that
    its counters repeat."""

    key: str
    label: str
    system: str
    deterministic: bool
    runs: list[RunSample]

    @property
    def medians(self) -> dict[str, float]:
        """Median of each noisy metric over the runs."""
        names = dict.fromkeys(name for run in self.runs for name in run.noisy)
        return {
            name: median(run.noisy[name] for run in self.runs if name in run.noisy)
            for name in names
        }


def sample_of(record: Record, *, in_turns: bool = False) -> RunSample:
    """Return the compared values of a record; `in_turns`: whether its epochs alternated
    with the other side's."""
    measured = record.measured
    stages = dict.fromkeys(stage for epoch in measured for stage in epoch.stages_s)
    return RunSample(
        run_id=record.run_id,
        status=record.status,
        reason=record.reason,
        verdict=record.verdict,
        broken=broken_by_the_system(record),
        exact=_exact(record.epochs) if record.status == "ok" else {},
        noisy=_noisy(record) if record.status == "ok" else {},
        stages={
            name: float(median(epoch.stages_s.get(name, 0.0) for epoch in measured))
            for name in stages
        },
        epochs_s=[epoch.seconds for epoch in measured]
        if in_turns and record.status == "ok"
        else [],
        salt=record.notes.get(SALT, ""),
    )


def _exact(epochs: list[EpochRecord]) -> Exact:
    facts: Exact = {
        "batches": [epoch.batches for epoch in epochs],
        "digest": [epoch.digest or None for epoch in epochs],
        "feature_digest": [epoch.feature_digest for epoch in epochs],
        **{
            name: [epoch.counters.get(name) for epoch in epochs]
            for name in ("rows", *COSTS)
        },
    }
    return {
        name: values
        for name, values in facts.items()
        if any(value is not None for value in values)
    }


def _noisy(record: Record) -> dict[str, float]:
    def middle(values: Iterable[float | int | None]) -> float:
        known = [value for value in values if value is not None]
        return float(median(known)) if known else 0.0

    measured = record.measured
    found = {
        "epoch": middle(epoch.seconds for epoch in measured),
        "warm-up": sum(epoch.online_s for epoch in record.epochs if epoch.warmup),
        **_offline(record),
        "peak memory": float(record.memory.demand_peak_bytes),
        "device bytes": middle(epoch.device_bytes for epoch in measured),
        "device requests": middle(epoch.device_requests for epoch in measured),
    }
    return {name: value for name, value in found.items() if value > 0}


def _offline(record: Record) -> dict[str, float]:
    """Return the seconds of offline work by its term of T(E); none where artefacts of
    an earlier run were reused."""
    cost = RunNumbers(record, RunContext()).cost
    if cost is None or record.preprocess.reused:
        return {}
    return {"once": cost.once_s, "each": cost.each_s}


def paired(
    base: Sequence[RunSample], head: Sequence[RunSample], name: str
) -> list[tuple[float, float]]:
    """Return (base, head) of a metric for the i-th runs of both sides, without pairs
    that lack the metric.

    For alternating epochs the ratio is the median of the ratios of the k-th epochs,
    since load that changes within seconds affects it far less than the ratio of the
    runs' medians. These pairs share one base value, so that load that changes within
    minutes has no effect either. If some pairs alternated epochs, the others are left
    out.
    """
    import numpy as np

    both = [
        pair
        for pair in zip(base, head, strict=False)
        if name in pair[0].noisy and name in pair[1].noisy
    ]
    in_turns = [
        (a, b) for a, b in both if a.epochs_s and len(a.epochs_s) == len(b.epochs_s)
    ]
    if name != "epoch" or not in_turns:
        return [(a.noisy[name], b.noisy[name]) for a, b in both]
    common = float(np.median([a.noisy[name] for a, _ in in_turns]))
    return [
        (common, common * float(np.median(np.divide(b.epochs_s, a.epochs_s))))
        for a, b in in_turns
    ]


def cells_of(records: Iterable[Record]) -> dict[str, ConfigSamples]:
    """Group records by cell, in the given order; cells get distinct labels."""
    found: dict[str, ConfigSamples] = {}
    for record in records:
        key = cell_key(record.config)
        system = record.system
        if key not in found:
            label = cell_label(system, record.config.memory)
            found[key] = ConfigSamples(key, label, system, is_deterministic(system), [])
        found[key].runs.append(sample_of(record))
    return distinct(found)


def distinct(cells: dict[str, ConfigSamples]) -> dict[str, ConfigSamples]:
    """Return the cells with distinct labels: equal ones get the first 6 digits of their
    keys."""
    labels = [cell.label for cell in cells.values()]
    return {
        key: replace(cell, label=f"{cell.label} ({key[:6]})")
        if labels.count(cell.label) > 1
        else cell
        for key, cell in cells.items()
    }


def cell_key(config: RunConfig) -> str:
    """Return a cell's identity: 16 hex digits over its non-default settings, so a new
    option leaves it unchanged."""
    content = config.model_dump(
        mode="json", exclude_defaults=True, exclude={*LABELS, "timeout_s", "options"}
    )
    system = _system(config.system)
    fields = system.info.options.model_fields if system is not None else {}
    content["options"] = {
        name: value
        for name, value in config.options.items()
        if name not in fields
        or fields[name].get_default(call_default_factory=True) != value
    }
    return digest_of(content)


def cell_label(system: str, memory: str) -> str:
    """Return the label of a cell: system and memory setting."""
    from workloads.units import format_bytes

    if memory.startswith("+") and memory[1:].isdecimal():
        memory = "+" + format_bytes(int(memory[1:])).replace(" ", "").replace(".0", "")
    return f"{system} {'no cap' if memory == 'none' else memory}"


def is_deterministic(name: str) -> bool:
    """Return whether a system declares that its counters repeat; False for an unknown
    system."""
    system = _system(name)
    return system is not None and bool(system.info.deterministic_counters)


def _system(name: str) -> Any:
    from systems.registry import load
    from workloads.errors import OutcoreError

    try:
        return load(name)
    except (OutcoreError, ImportError):
        return None


def fingerprints(records: Iterable[Record]) -> set[str]:
    """Return the fingerprints of the machines of the records; an empty string stands
    for an unknown machine."""
    return {host_fingerprint(record.environment) for record in records}
