"""The derived numbers of a run: class, amplification, utilisation, efficiency, distance to the limit (rules 7–20)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from harness.context import RunContext
from harness.predict import predicted_seconds, written_seconds
from harness.record import EpochRecord, Record, StorageClass, Summary, spread
from harness.trace import PAGE_BYTES
from harness.trace_facts import TraceFacts
from systems.interface import DiskProfile, StageSpan, wall_seconds

_MIB = 1 << 20

STORAGE_BOUND = 2.0
CACHED = 1.0


@dataclass(frozen=True)
class WorkingSet:
    """What the measured epochs touch, and the least a device must do for them (methodology rules 7 and 11).

    Attributes:
        bytes: unique feature rows and topology pages of the median measured epoch.
        memory_bytes: host budget and device memory together, None where nothing bounds them.
        limit_s: modelled least seconds of device time of the median measured epoch, None without a device profile.
        belady_rows: rows that even the best cache of `memory_bytes` reads in it.
    """

    bytes: int
    memory_bytes: int | None
    limit_s: float | None
    belady_rows: int

    @property
    def over_budget(self) -> float | None:
        """Working set over the memory that could hold it."""
        return self.bytes / self.memory_bytes if self.memory_bytes else None


def working_set(record: Record, context: RunContext) -> WorkingSet | None:
    """The working set of a run's measured epochs. None where the trace is unknown."""
    workload = context.workload
    if workload is None:
        return None
    facts = TraceFacts(workload, record.config, context.cache)
    epochs = facts.epochs()
    if epochs is None:
        return None
    row_bytes = workload.dataset.dim * workload.dataset.feature_dtype.itemsize
    host, device = record.memory.budget_bytes, (record.config.device_memory_bytes or 0) * record.config.ranks
    memory = None if host is None else host + device
    misses = facts.belady_misses(workload.dataset.num_nodes if memory is None else memory // row_bytes) or {}
    sizes, limits, belady = [], [], []
    for entry in [entry for entry in epochs if entry.epoch >= record.config.warmup] or epochs:
        topology = entry.topology_pages * PAGE_BYTES
        sizes.append(entry.unique_rows * row_bytes + topology)
        belady.append(misses[entry.epoch])
        if context.profile is not None and context.profile.points:
            table = workload.dataset.num_nodes * row_bytes
            least = least_device_seconds(context.profile, belady[-1], row_bytes, topology, table)
            # Without a bound on memory everything can be there before the first epoch.
            limits.append(0.0 if memory is None else least)
    return WorkingSet(
        bytes=int(statistics.median(sizes)),
        memory_bytes=memory,
        limit_s=statistics.median(limits) if limits else None,
        belady_rows=int(statistics.median(belady)),
    )


def least_device_seconds(profile: DiskProfile, misses: int, row_bytes: int, topology: int, table: int) -> float:
    """Modelled least device time of an epoch (methodology rule 11), in seconds.

    Args:
        profile: the device under the run's limits.
        misses: rows that even Belady reads.
        row_bytes: bytes of one row.
        topology: bytes of the topology pages touched.
        table: bytes of the whole feature table.

    Either each miss is read at random, or the table is scanned once and the misses written and read in order; the
    topology is read once in order.
    """
    block = profile.logical_block_bytes
    request = -(-row_bytes // block) * block
    rate = profile.sequential_bytes_per_s()
    if rate <= 0:
        return misses * profile.request_seconds(request)
    at_random = profile.seconds({request: misses, _MIB: topology / _MIB})
    in_order = (table + 2 * misses * row_bytes) / rate if misses else 0.0
    return min(at_random, in_order + topology / rate)


def storage_class(ratio: float | None) -> StorageClass:
    """`storage-bound` from twice the memory on, `cached` where memory holds everything, else `mixed` (rule 7)."""
    if ratio is None or ratio <= CACHED:
        return "cached"
    return "storage-bound" if ratio >= STORAGE_BOUND else "mixed"


def needed_seconds(profile: DiskProfile, requests_by_size: Mapping[str, int]) -> float:
    """Seconds the device needs for exactly these requests, each size at its measured rate (rule 11)."""
    return profile.seconds({int(size): count for size, count in requests_by_size.items()})


def engine_efficiency(
    record: Record, context: RunContext, profile: DiskProfile | None = None, *, whole_epoch: bool = False
) -> tuple[float | None, str]:
    """How well the code drives the disk, with how it was found.

    A system that counts its own requests is held to those, and to what it wrote meanwhile, over its extract time, or
    over the time of the stage in which it notes to read (`reads_in`), where that is another; `load_graph+extract`:
    while either was open. Where the page cache reads, the cap's counters give requests and their mean size, over the
    time in which sampling or extraction was going on.

    Args:
        record: the run.
        context: its evidence.
        profile: the device to hold it to; the one under the run's limits by default.
        whole_epoch: over the epoch instead of the stages' time, which a limiter's bursts cannot beat.
    """
    profile = profile or context.profile
    if profile is None or not any(point.pattern == "random" for point in profile.points):
        return None, "no device profile"
    ratios: list[float] = []
    stage = record.notes.get("reads_in", "extract")
    how = f"own requests over {stage} time"
    for epoch in record.measured:
        requests = epoch.counters.get("requests_by_size") or {}
        extract = epoch.stages_s.get(stage, 0.0)
        if "+" in stage:
            extract = _busy_seconds(context.spans, epoch, tuple(stage.split("+")))
        if requests and extract > 0:
            needed = needed_seconds(profile, requests) + written_seconds(profile, epoch)
            ratios.append(needed / (epoch.seconds if whole_epoch else extract))
        elif epoch.device_requests and epoch.device_bytes:
            how = "the cap's requests at their mean size over sample and extract time"
            busy = epoch.seconds if whole_epoch else _busy_seconds(context.spans, epoch, ("sample", "extract"))
            size = round(epoch.device_bytes / epoch.device_requests)
            if busy > 0:
                ratios.append(epoch.device_requests * profile.request_seconds(size) / busy)
    if not ratios:
        return None, "no request was counted"
    return statistics.median(ratios), how


def _busy_seconds(spans: list[StageSpan], epoch: EpochRecord, stages: tuple[str, ...]) -> float:
    inside = [
        StageSpan("busy", span.batch, span.thread, span.start, span.end)
        for span in spans
        if span.stage in stages and epoch.start_s <= span.start <= epoch.start_s + epoch.seconds
    ]
    return wall_seconds(inside).get("busy", 0.0)


def useful_bytes(epoch: EpochRecord, row_bytes: int) -> float:
    """Bytes of the rows fetched from disk on a miss; of a page-cache system, the rows whose reading faulted."""
    counted = float(epoch.counters.get("bytes_useful") or 0)
    if counted > 0:
        return counted
    observed = epoch.counters.get("observed") or {}
    missed = observed.get("feature_misses", observed.get("major_faults", 0))
    return float(min(missed, epoch.counters.get("rows", 0))) * row_bytes


def summarise(record: Record, context: RunContext) -> tuple[Summary, StorageClass | None]:
    """The summary and the class of a run. What cannot be known stays None."""
    measured = record.measured
    sets = working_set(record, context)
    summary = Summary()
    if sets is not None:
        summary.working_set_bytes = sets.bytes
        summary.working_set_over_budget = sets.over_budget
        summary.extra.update(limit_s=sets.limit_s, belady_rows=sets.belady_rows)
    if measured:
        seconds = [epoch.seconds for epoch in measured]
        summary.epoch_s = spread(seconds)
        epoch_s = summary.epoch_s.median
        names = {name for epoch in measured for name in epoch.stages_s}
        summary.stages_s = {
            name: statistics.median(epoch.stages_s.get(name, 0.0) for epoch in measured) for name in sorted(names)
        }
        if all(epoch.device_bytes is not None for epoch in measured):
            row_bytes = _row_bytes(record)
            useful = sum(useful_bytes(epoch, row_bytes) for epoch in measured)
            device = sum(epoch.device_bytes or 0 for epoch in measured)
            summary.read_amplification = device / useful if useful > 0 else None
        summary.engine_efficiency, summary.extra["engine_efficiency_from"] = engine_efficiency(record, context)
        train_by_epoch = context.calibration.train_s if context.calibration else {}
        summary.predicted_s = predicted_seconds(
            measured, context.profile, dict(train_by_epoch), faults=usable_processors(record),
            reads_first=record.notes.get("reads_in") == "data_prep",
        )  # fmt: skip
        if context.calibration is not None and record.config.stages == "all":
            summary.accelerator_utilisation = _share(context.calibration.train_s, measured)
            summary.storage_efficiency = _share(context.calibration.null_s, measured)
        # The limit is that of the workload's own mini-batches: a system that trains on others is not held to it.
        comparable = context.faithful and record.config.stages == "all"
        if sets is not None and sets.limit_s is not None and epoch_s > 0 and comparable:
            train = _median_of(train_by_epoch, measured) or 0.0
            # What is read, written and ordered before the first epoch spares the epochs work that the limit counts.
            before = (record.preprocess.seconds + record.preprocess.made_s) / record.config.epochs
            summary.distance_to_limit = max(sets.limit_s, train) / (epoch_s + before)
    return summary, storage_class(sets.over_budget) if sets is not None else None


def usable_processors(record: Record) -> int:
    """Of the host that the run was made on; 0 where the record does not say."""
    return int((record.environment.get("cpu") or {}).get("usable") or 0)


def _row_bytes(record: Record) -> int:
    return record.config.dataset.dim * (2 if record.config.dataset.dtype == "float16" else 4)


def _median_of(by_epoch: Mapping[int, float], measured: list[EpochRecord]) -> float | None:
    values = [by_epoch[epoch.epoch] for epoch in measured if epoch.epoch in by_epoch]
    return statistics.median(values) if values else None


def _share(by_epoch: Mapping[int, float], measured: list[EpochRecord]) -> float | None:
    ratios = [by_epoch[epoch.epoch] / epoch.seconds for epoch in measured if epoch.epoch in by_epoch and epoch.seconds]
    return statistics.median(ratios) if ratios else None
