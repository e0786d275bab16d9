"""Derived numbers of a run: class, amplification, utilisation, efficiency, distance to the limit (rules 7–20)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.judge.context import RunContext
from harness.judge.predict import device_seconds, predicted_seconds
from harness.records.record import EpochRecord, Record, StorageClass, Summary, spread
from systems.readings import DiskProfile, StageSpan, wall_seconds

STORAGE_BOUND = 2.0
CACHED = 1.0


@dataclass(frozen=True)
class WorkingSet:
    """Unique feature rows and topology pages of the median measured epoch (methodology rules 7 and 11).

    `memory_bytes`: sum of host budget and device memory; None: unbounded.
    """

    bytes: int
    memory_bytes: int | None

    @property
    def over_budget(self) -> float | None:
        """Ratio of the working set to the memory that could hold it; None: unbounded memory."""
        return self.bytes / self.memory_bytes if self.memory_bytes else None


def working_set(record: Record, context: RunContext) -> WorkingSet | None:
    """Return the working set of a run's measured epochs; None without its workload."""
    if context.workload is None:
        return None
    from harness.judge.trace import PAGE_BYTES
    from harness.judge.trace_facts import TraceFacts

    epochs = TraceFacts(context.workload, record.config, context.cache).epochs()
    sizes = [
        entry.unique_rows * record.config.dataset.row_bytes + entry.topology_pages * PAGE_BYTES
        for entry in [entry for entry in epochs if entry.epoch >= record.config.warmup] or epochs
    ]
    host, device = record.memory.budget_bytes, _device_memory(record)
    return WorkingSet(int(statistics.median(sizes)), None if host is None else host + device)


def topology_over_budget(record: Record, context: RunContext) -> float | None:
    """Return the ratio of the graph, `indptr` and `indices`, to the host budget (rule 7); above one it does not fit.

    Device memory does not count, since systems sample on the host. None without a workload or a budget.
    """
    if context.workload is None or not record.memory.budget_bytes:
        return None
    dataset = context.workload.dataset
    return (dataset.topology_bytes + 8 * (dataset.num_nodes + 1)) / record.memory.budget_bytes


def _device_memory(record: Record) -> int:
    return (record.config.device_memory_bytes or 0) * record.config.ranks


def memory_for_rows(record: Record, context: RunContext) -> int | None:
    """Return the most bytes in which a run may hold feature rows at any moment; None: unbounded.

    Sum of host budget, device memory, the training working set, which is free between two steps, and the slack of rule
    4, by which the floor may be below its measured value. Without a kernel's cap the page cache is unbounded.
    """
    from harness.judge.memory import SLACK_BYTES, SLACK_SHARE

    memory = record.memory
    if memory.budget_bytes is None or not context.proves_memory:
        return None
    planned = sum(item.bytes for item in memory.plan if item.tier == "host")
    asked = memory.floor_bytes + memory.training_bytes + planned
    slack = max(int(asked * SLACK_SHARE), SLACK_BYTES)
    return memory.budget_bytes + memory.training_bytes + slack + _device_memory(record)


def least_device_bytes(record: Record, context: RunContext, epoch: int) -> int | None:
    """Return the lower bound of the bytes that a system with the run's memory reads from the device in an epoch.

    The bound holds for any order of the mini-batches and any preparation (docs/frontier.md). 0: memory could hold all
    rows or is unbounded. None: the workload is unknown, or the system trains other mini-batches.
    """
    if context.workload is None:
        return record.evidence.least_bytes.get(epoch) if record.evidence is not None else None
    if not context.faithful:
        return None
    memory = memory_for_rows(record, context)
    if memory is None or record.config.stages == "sample":
        return 0
    from harness.judge.trace_facts import TraceFacts

    facts = TraceFacts(context.workload, record.config, context.cache)
    return facts.epoch(epoch).least_bytes(record.config.dataset.row_bytes, memory)


def best_rate(context: RunContext) -> float:
    """Return the upper bound of read bytes a second: the best rate of the series' device profiles, over all sizes,
    orders and depths, and at most the class's if the kernel enforces one. 0: unknown."""
    profiles = [profile for profile in (context.profile, context.bare_profile) if profile is not None]
    best = max((point.bytes_per_s for profile in profiles for point in profile.points), default=0.0)
    limits = [limit.read_bytes_per_s for limit in context.limits] if context.io_limited else []
    class_rate = float(sum(rate or 0 for rate in limits)) if limits and all(limits) else 0.0
    return min(best, class_rate) if class_rate else best


def least_device_seconds(record: Record, context: RunContext, epoch: int) -> float | None:
    """Return the seconds of `least_device_bytes` at the device's best rate (rule 11); None if either is unknown."""
    rate, nbytes = best_rate(context), least_device_bytes(record, context, epoch)
    return nbytes / rate if rate > 0 and nbytes is not None else None


def storage_class(ratio: float | None) -> StorageClass:
    """Return `cached` if memory holds the working set, `storage-bound` from twice the memory, else `mixed` (rule 7)."""
    if ratio is None or ratio <= CACHED:
        return "cached"
    return "storage-bound" if ratio >= STORAGE_BOUND else "mixed"


def engine_efficiency(
    record: Record, context: RunContext, profile: DiskProfile | None = None, *, whole_epoch: bool = False
) -> tuple[float | None, str]:
    """Return the engine efficiency, device seconds by profile over seconds spent, with a text on its derivation.

    For a system that counts its requests, the device seconds are those of its requests and writes; the seconds spent
    are of extraction or of the stages in its fact `reads_in` (with any open). For page-cache
    reads: the cap's requests at their mean size, over the seconds of sampling or extraction.

    Args:
        record, context: record of the run, and its context.
        profile: profile of the device; by default the one under the run's limits.
        whole_epoch: divide by the epoch's time, which bursts of a limiter cannot beat, not the stages'.
    """
    profile = profile or context.profile
    if profile is None or not any(point.pattern == "random" for point in profile.points):
        return None, "no device profile"
    if profile.limited:
        # The kernel limits reads and writes separately, unlike a drive with one budget for both.
        profile = replace(profile, write_cost=0.0)
    ratios: list[float] = []
    stage = "+".join(record.facts.reads_in or ("extract",))
    how = f"own requests over {stage} time"
    for epoch in record.measured:
        requests = epoch.counters.get("requests_by_size") or {}
        extract = epoch.reading_s if epoch.reading_s is not None else epoch.stages_s.get(stage, 0.0)
        if requests and extract > 0:
            sizes = {int(size): count for size, count in requests.items()}
            ratios.append(device_seconds(profile, epoch, sizes) / (epoch.wall_s if whole_epoch else extract))
        elif epoch.device_requests and epoch.device_bytes:
            how = "the cap's requests at their mean size over sample and extract time"
            busy = epoch.wall_s if whole_epoch else epoch.reading_s or 0.0
            size = round(epoch.device_bytes / epoch.device_requests)
            if busy > 0:
                ratios.append(epoch.device_requests * profile.request_seconds(size) / busy)
    if not ratios:
        return None, "no request was counted"
    return statistics.median(ratios), how


def reading_seconds(spans: list[StageSpan], epoch: EpochRecord, stages: Sequence[str]) -> float:
    """Return the seconds of an epoch with reads in progress: of any of `stages`, the system's fact `reads_in`.

    Without own request counts, the seconds of sampling or extraction, in which pages fault. `spans` are on the record's
    clock.
    """
    if not epoch.counters.get("requests_by_size"):
        return _busy_seconds(spans, epoch, ("sample", "extract"))
    stages = tuple(stages) or ("extract",)
    return epoch.stages_s.get(stages[0], 0.0) if len(stages) == 1 else _busy_seconds(spans, epoch, stages)


def _busy_seconds(spans: list[StageSpan], epoch: EpochRecord, stages: tuple[str, ...]) -> float:
    inside = [
        StageSpan("busy", span.batch, span.thread, span.start, span.end)
        for span in spans
        if span.stage in stages and epoch.start_s <= span.start <= epoch.start_s + epoch.wall_s
    ]
    return wall_seconds(inside).get("busy", 0.0)


def useful_bytes(epoch: EpochRecord, row_bytes: int) -> float:
    """Return the bytes of feature rows read from disk on a miss; for a page-cache system, of rows that faulted."""
    counted = float(epoch.counters.get("bytes_useful") or 0)
    if counted > 0:
        return counted
    observed = epoch.counters.get("observed") or {}
    missed = observed.get("feature_misses", observed.get("major_faults", 0))
    return float(min(missed, epoch.counters.get("rows", 0))) * row_bytes


def summarise(record: Record, context: RunContext) -> tuple[Summary, StorageClass | None]:
    """Return the summary and the class of a run; unknown numbers stay None."""
    measured = record.measured
    sets = working_set(record, context)
    summary = Summary()
    if sets is not None:
        summary.working_set_bytes = sets.bytes
        summary.working_set_over_budget = sets.over_budget
        summary.topology_over_budget = topology_over_budget(record, context)
    if measured:
        seconds = [epoch.seconds for epoch in measured]
        summary.epoch_s = spread(seconds)
        epoch_s = summary.epoch_s.median
        names = {name for epoch in measured for name in epoch.stages_s}
        summary.stages_s = {
            name: statistics.median(epoch.stages_s.get(name, 0.0) for epoch in measured) for name in sorted(names)
        }
        if all(epoch.device_bytes is not None for epoch in measured):
            row_bytes = record.config.dataset.row_bytes
            useful = sum(useful_bytes(epoch, row_bytes) for epoch in measured)
            device = sum(epoch.device_bytes or 0 for epoch in measured)
            summary.read_amplification = device / useful if useful > 0 else None
        summary.start_up_s, summary.start_up_bytes = start_up(record, context)
        summary.engine_efficiency, summary.extra["engine_efficiency_from"] = engine_efficiency(record, context)
        train_by_epoch = context.calibration.train_s if context.calibration else {}
        summary.predicted_s = predicted_seconds(
            measured,
            context.profile,
            dict(train_by_epoch),
            faults=usable_processors(record),
            reads_first=record.facts.reads_in == ("data_prep",),
        )
        if context.calibration is not None and record.config.stages == "all":
            summary.accelerator_utilisation = _share(context.calibration.train_s, measured)
            summary.storage_efficiency = _share(context.calibration.null_s, measured)
        # The limit holds for the workload's own mini-batches only.
        comparable = context.faithful and record.config.stages == "all"
        limits = [least_device_seconds(record, context, epoch.epoch) for epoch in measured] if comparable else []
        known = [seconds for seconds in limits if seconds is not None]
        if known and epoch_s > 0:
            summary.extra["limit_s"] = limit = statistics.median(known)
            train = _median_of(train_by_epoch, measured) or 0.0
            # Reading, writing and ordering before the first epoch may save work in the epochs.
            summary.distance_to_limit = max(limit, train) / (epoch_s + summary.start_up_s / record.config.epochs)
    return summary, storage_class(sets.over_budget) if sets is not None else None


def start_up(record: Record, context: RunContext) -> tuple[float, int | None]:
    """Return the start-up's seconds and device bytes (`Summary.start_up_s`): preparation, surplus of the first epoch.

    The surplus takes at least the seconds of its bytes at the device's best rate.
    """
    first, measured = record.epochs[0], record.measured
    spent = record.preprocess.seconds + record.preprocess.made_s
    more_s = max(0.0, first.seconds - statistics.median(epoch.seconds for epoch in measured))
    known = [epoch.device_bytes for epoch in measured if epoch.device_bytes is not None]
    if first.device_bytes is None or not known:
        return spent + more_s, None
    more = max(0, first.device_bytes - int(statistics.median(known)))
    rate = best_rate(context)
    return spent + max(more_s, more / rate if rate else 0.0), record.preprocess.bytes_read + more


def usable_processors(record: Record) -> int:
    """Return the number of usable processors of the run's host; 0: not recorded."""
    return int((record.environment.get("cpu") or {}).get("usable") or 0)


def _median_of(by_epoch: Mapping[int, float], measured: list[EpochRecord]) -> float | None:
    values = [by_epoch[epoch.epoch] for epoch in measured if epoch.epoch in by_epoch]
    return statistics.median(values) if values else None


def _share(by_epoch: Mapping[int, float], measured: list[EpochRecord]) -> float | None:
    ratios = [by_epoch[epoch.epoch] / epoch.seconds for epoch in measured if epoch.epoch in by_epoch and epoch.seconds]
    return statistics.median(ratios) if ratios else None
