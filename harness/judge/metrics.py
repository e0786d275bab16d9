"""Derived numbers of a run: class, amplification, utilisation, efficiency, distance to
the limit (rules 7–20)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from harness.foreign import is_foreign
from harness.judge.counted import Counted
from harness.judge.memory import requested_and_slack
from harness.judge.predict import at_depth, device_seconds, predict
from harness.judge.registry import RunContext, context_of
from harness.judge.wear import Wear
from harness.records.cost import TrainingCost
from harness.records.latency import all_sizes, merged, percentile_s
from harness.records.record import EpochRecord, Record, StorageClass, Summary, spread
from systems.readings import DiskProfile, StageSpan, wall_seconds
from workloads.accelerators.profile import profile_of

#: Metrics that need no trace of the workload.
DERIVED_ANEW = (
    *(
        "once_s",
        "first_s",
        "each_s",
        "shared_s",
        "shared_each_s",
        "mean_epoch_s",
        "fresh_epoch_s",
    ),
    *("prepared_bytes", "distance_to_limit"),
)
STORAGE_BOUND = 2.0
# Seconds that the harness needs to report an epoch and to end a worker, and more for
# each mini-batch in its tables.
CLOSING_S = 0.25
REPORT_S = 50e-6
FITS = 1.0


def _device_memory(record: Record) -> int:
    return (record.config.device_memory_bytes or 0) * record.config.ranks


def memory_for_rows(record: Record, context: RunContext) -> int | None:
    """Return the most bytes in which a run may hold feature rows at any moment; None:
    unbounded.

    Sum of host budget, device memory, the training working set, which is free between
    two steps, and the slack of rule 4, by which the floor may be below its measured
    value. Without a kernel's cap the page cache is unbounded.
    """
    memory = record.memory
    if memory.budget_bytes is None or not record.readings.proves_memory:
        return None
    return (
        memory.budget_bytes
        + memory.training_bytes
        + requested_and_slack(memory)[1]
        + _device_memory(record)
    )


def least_device_bytes(record: Record, context: RunContext, epoch: int) -> int | None:
    """Return the lower bound of the bytes that a system with the run's memory reads
    from the device in an epoch.

    The bound holds for any order of the mini-batches and any preparation
    (docs/frontier.md). 0: memory could hold all rows or is unbounded. None: the
    workload is unknown, or the system trains other mini-batches. Those of a foreign
    system are as large by chance as the workload's, so that the bound holds for it
    within the spread of draws.
    """
    if context.trace is None:
        return record.readings.least_bytes.get(epoch)
    if not record.readings.faithful and not is_foreign(record.system):
        return None
    memory = memory_for_rows(record, context)
    if memory is None or record.config.stages == "sample":
        return 0
    return context.trace.drawn(epoch).least_bytes(
        record.config.dataset.row_bytes, memory
    )


def least_bus_seconds(record: Record, context: RunContext, epoch: int) -> float | None:
    """Return the lower bound of the seconds for which feature rows cross the bus of an
    emulated device in an epoch.

    The bound on device reads (docs/frontier.md), with the device's memory alone as the
    memory that holds rows and the bus as the device that brings them. None: the
    workload is unknown, or the bus is not modelled.
    """
    device = profile_of(record.config.device)
    rate = device.bus_bytes_per_s.value if device else 0.0
    if (
        context.trace is None
        or not rate
        or not record.readings.faithful
        or record.config.stages != "all"
    ):
        return None
    return (
        context.trace.epoch(epoch).least_bytes(
            record.config.dataset.row_bytes, _device_memory(record)
        )
        / rate
    )


def best_rate(context: RunContext) -> float:
    """Return the upper bound of read bytes a second: the best rate of the series'
    device profiles and of the trials before them, over all sizes, orders and depths,
    and at most the class's if the kernel enforces one. 0: unknown."""
    profiles = [
        profile
        for profile in (context.profile, context.bare_profile)
        if profile is not None
    ]
    best = max(
        (
            point.bytes_per_s
            for profile in profiles
            for point in (*profile.points, *profile.tried)
        ),
        default=0.0,
    )
    limits = [limit.read_bytes_per_s for limit in context.limits]
    class_rate = (
        float(sum(rate or 0 for rate in limits)) if limits and all(limits) else 0.0
    )
    return min(best, class_rate) if class_rate else best


def least_device_seconds(
    record: Record, context: RunContext, epoch: int
) -> float | None:
    """Return the seconds of `least_device_bytes` at the device's best rate (rule 11);
    None if either is unknown, or the mini-batches are not the workload's."""
    rate = best_rate(context)
    nbytes = least_device_bytes(record, context, epoch)
    return (
        nbytes / rate
        if rate > 0 and nbytes is not None and record.readings.faithful
        else None
    )


def storage_class(ratio: float | None) -> StorageClass:
    """Return `fits memory` up to a ratio of 1, `storage-bound` from twice the memory
    on, else `mixed` (rule 7)."""
    if ratio is None or ratio <= FITS:
        return "fits memory"
    return "storage-bound" if ratio >= STORAGE_BOUND else "mixed"


def efficiency_of_engine(
    record: Record,
    context: RunContext,
    profile: DiskProfile | None = None,
    *,
    whole_epoch: bool = False,
) -> tuple[float | None, str]:
    """Return the engine efficiency, device seconds by profile over seconds spent, with
    a text on its derivation.

    For a system that counts its requests: device seconds of its requests and writes,
    over the seconds of extraction or of the stages in its fact `reads_in` (with any
    open); requests that the kernel merged count once. For page-cache reads: the cap's
    requests at their mean size, over the seconds of sampling or extraction.

    Args:
        record, context: record of the run, and its context.
        profile: profile of the device; by default the one under the run's limits.
        whole_epoch: divide by the epoch's time, which bursts of a limiter cannot beat,
            not the stages'.
    """
    # The kernel's limiter counts requests before it merges them.
    merges = profile is not None or not context.limits
    profile = profile or context.profile
    if profile is None or not any(
        point.pattern == "random" for point in profile.points
    ):
        return None, "no device profile"
    if profile.limited:
        # The kernel limits reads and writes separately, unlike a drive with one budget
        # for both.
        profile = replace(profile, write_cost=0.0)
    ratios: list[float] = []
    stage = "+".join(record.facts.reads_in or ("extract",))
    how = f"own requests over {stage} time"
    for epoch in record.measured:
        requests = Counted(epoch).requests_by_size
        extract = (
            epoch.reading_s
            if epoch.reading_s is not None
            else epoch.stages_s.get(stage, 0.0)
        )
        if requests and extract > 0:
            at_the_disk = epoch.diskstats_requests if merges else None
            sizes = unmerged(requests, at_the_disk)
            ratios.append(
                device_seconds(profile, epoch, sizes)
                / (epoch.wall_s if whole_epoch else extract)
            )
        elif epoch.device_requests and epoch.device_bytes:
            how = "the cap's requests at their mean size over sample and extract time"
            busy = epoch.wall_s if whole_epoch else epoch.reading_s or 0.0
            size = round(epoch.device_bytes / epoch.device_requests)
            if busy > 0:
                ratios.append(
                    epoch.device_requests * profile.request_seconds(size) / busy
                )
    if not ratios:
        return None, "no request was counted"
    return statistics.median(ratios), how


def unmerged(requests: Mapping[int, int], at_the_disk: int | None) -> dict[int, int]:
    """Return a system's requests by size without those that the kernel merged with a
    neighbour, which cost the device next to nothing: the smallest ones, as many as the
    disk itself counted less. A disk that splits large requests, or serves other
    programs too, counts more.

    Args:
        at_the_disk: reads that the disk completed meanwhile; None: not counted.
    """
    found = dict(requests)
    if at_the_disk is None:
        return found
    merged = max(0, sum(found.values()) - at_the_disk)
    for size in sorted(found):
        fewer = min(merged, found[size])
        found[size] -= fewer
        merged -= fewer
    return found


def reading_seconds(
    spans: list[StageSpan], epoch: EpochRecord, stages: Sequence[str]
) -> float:
    """Return the seconds of an epoch with reads in progress: of any of `stages`, the
    system's fact `reads_in`.

    Without own request counts, the seconds of sampling or extraction, in which pages
    fault. `spans` are on the record's clock.
    """
    stages = stages or ("extract",)
    if not Counted(epoch).requests_by_size:
        stages = ("sample", "extract")
    elif len(stages) == 1:
        return epoch.stages_s.get(stages[0], 0.0)
    inside = [
        StageSpan("busy", span.batch, span.thread, span.start, span.end)
        for span in spans
        if span.stage in stages
        and epoch.start_s <= span.start <= epoch.start_s + epoch.wall_s
    ]
    return wall_seconds(inside).get("busy", 0.0)


def useful_bytes(epoch: EpochRecord, row_bytes: int) -> float:
    """Return the bytes of feature rows read from disk on a miss; for a page-cache
    system, of rows that faulted."""
    own = Counted(epoch)
    if own.useful_bytes > 0:
        return float(own.useful_bytes)
    observed = epoch.counters.get("observed") or {}
    missed = observed.get("feature_misses", observed.get("major_faults", 0)) or 0
    return float(min(missed, own.rows)) * row_bytes


@dataclass(frozen=True)
class Metric:
    """One derived number of a run.

    Attributes:
        of: function from the run's facts to the number, None: unknown. Its name is the
            key in the record's `summary`, and so the column `summary.<name>` of the
            table of all records; its docstring explains the number.
        label, heading: name in lines and, if a shorter one is needed, in the heads of
            tables.
        unit: `s`, `bytes`, or empty for a ratio.
        better: direction of better values; empty where there is none.
        shown: whether tables of `outcore bench` and lines of `outcore run` and `outcore
            results show` have it.
        column: its column in the report's table of runs; empty: not there.
    """

    of: Callable[[RunNumbers], float | None]
    label: str
    unit: Literal["s", "bytes", ""] = ""
    better: Literal["higher", "lower", ""] = ""
    heading: str = ""
    shown: bool = True
    column: str = ""

    @property
    def name(self) -> str:
        """Key of the metric in a record's summary."""
        return self.of.__name__

    @property
    def meaning(self) -> str:
        """Explanation of the metric in one paragraph."""
        return " ".join((self.of.__doc__ or "").split())


#: Every metric, in the order of the tables. What shows or stores metrics follows from
#: here.
METRICS: list[Metric] = []
_Of = TypeVar("_Of", bound=Callable[..., float | None])


def metric(label: str, **more: Any) -> Callable[[_Of], _Of]:
    """Register a function of `RunNumbers` as a metric; `label` and `more` are fields of
    `Metric`."""

    def register(of: _Of) -> _Of:
        METRICS.append(Metric(of, label, **more))
        return of

    return register


class RunNumbers:
    """The facts of one run from which its metrics are computed, each derived at most
    once, and the metrics.

    Attributes:
        record, context: the run's record and context.
        measured: epochs after the warm-up.
        train_s, null_s: seconds of each epoch's training alone, and of the epoch with
            features already in memory.
    """

    def __init__(self, record: Record, context: RunContext) -> None:
        self.record = record
        self.context = context
        self.measured = record.measured
        alone = context.calibration
        self.train_s: Mapping[int, float] = alone.train_s if alone else {}
        self.null_s: Mapping[int, float] = alone.null_s if alone else {}

    @cached_property
    def epoch_s(self) -> float | None:
        """Median seconds of the measured epochs."""
        return (
            statistics.median(epoch.seconds for epoch in self.measured)
            if self.measured
            else None
        )

    @cached_property
    def cost(self) -> TrainingCost | None:
        """Terms of T(E); None where no epoch was measured."""
        if not self.measured:
            return None
        offline = self.record.offline
        served = sum(work.epochs for work in offline)
        once = self.record.preprocess.whole_s
        if self.record.preprocess.offline is not None:
            once -= self.record.preprocess.offline.whole_s
        once += self.closing_s
        mean_epoch_s = statistics.fmean(epoch.online_s for epoch in self.measured)
        # Several episodes show that a training does not prepare all of its epochs
        # together.
        shared_s = offline[0].shared_s if len(offline) == 1 else 0.0
        return TrainingCost(
            once_s=max(0.0, once),
            first_s=sum(
                self._surplus_s(epoch, mean_epoch_s)
                for epoch in self.record.epochs
                if epoch.warmup
            ),
            each_s=sum(work.whole_s for work in offline) / served if served else 0.0,
            mean_epoch_s=mean_epoch_s,
            shared_s=shared_s,
            shared_each_s=shared_s / max(1, served),
        )

    @property
    def closing_s(self) -> float:
        """Seconds of the work after the last gate, beyond what the harness needs to
        report the last epoch."""
        closing = self.record.readings.closing
        report_s = CLOSING_S + REPORT_S * self.record.epochs[-1].batches
        return max(0.0, closing.seconds - report_s) if closing else 0.0

    @cached_property
    def usual_bytes(self) -> int | None:
        """Median device bytes of the measured epochs; None where they are not known."""
        known = [
            epoch.device_bytes
            for epoch in self.measured
            if epoch.device_bytes is not None
        ]
        return int(statistics.median(known)) if known else None

    def _surplus_s(self, epoch: EpochRecord, usual_s: float) -> float:
        """Return the seconds of a warm-up epoch beyond `usual_s`, at least those of its
        further bytes at the device's best rate: its digests are off the clock, and the
        system's threads read on beside them."""
        rate = best_rate(self.context)
        further_bytes = self._surplus_bytes(epoch) or 0
        return max(0.0, epoch.online_s - usual_s, further_bytes / rate if rate else 0.0)

    def _surplus_bytes(self, epoch: EpochRecord) -> int | None:
        if epoch.device_bytes is None or self.usual_bytes is None:
            return None
        return max(0, epoch.device_bytes - self.usual_bytes)

    @cached_property
    def engine(self) -> tuple[float | None, str]:
        """Engine efficiency, and how it was derived."""
        return (
            efficiency_of_engine(self.record, self.context)
            if self.measured
            else (None, "")
        )

    def share(self, by_epoch: Mapping[int, float]) -> float | None:
        """Return the median ratio of `by_epoch` to the epoch's seconds; None for a run
        that does not train."""
        known = [
            epoch
            for epoch in self.measured
            if epoch.epoch in by_epoch and epoch.seconds
        ]
        trains = self.record.config.stages == "all"
        return (
            statistics.median(by_epoch[epoch.epoch] / epoch.seconds for epoch in known)
            if known and trains
            else None
        )

    def seconds_per_row(self, counter: Literal["user_s", "system_s"]) -> float | None:
        """Return the median over the measured epochs of processor seconds for each
        feature row; None where one of them lacks either count."""
        found_us = [epoch.us_per_row(counter) for epoch in self.measured]
        known_us = [us for us in found_us if us is not None]
        if not known_us or len(known_us) < len(found_us):
            return None
        return statistics.median(known_us) * 1e-6

    @cached_property
    def limit_s(self) -> float | None:
        """Least seconds of an epoch that the device needs; holds for the workload's own
        mini-batches only. Of a record that is read again, as it was derived from the
        trace."""
        if (
            self.context.trace is None
            and (kept := self.record.summary.extra.get("limit_s")) is not None
        ):
            return float(kept)
        if not (
            self.record.readings.faithful
            and self.record.config.stages == "all"
            and self.epoch_s
        ):
            return None
        limits = [
            least_device_seconds(self.record, self.context, epoch.epoch)
            for epoch in self.measured
        ]
        known = [seconds for seconds in limits if seconds is not None]
        return statistics.median(known) if known else None

    @metric("once s", unit="s", better="lower", heading="once")
    def once_s(self) -> float | None:
        """One-off seconds of offline work, the same for any number of epochs (rankings,
        partitions, tables), whichever run spent them, and of the system's work after
        its last epoch."""
        return self.cost.once_s if self.cost else None

    @metric("first s", unit="s", better="lower", heading="first")
    def first_s(self) -> float | None:
        """One-off seconds until epochs reach a steady speed: the warm-up epochs' time
        beyond the mean of the measured ones, and at least the time of their further
        bytes at the device's best rate (digests are computed off the clock, and a
        system's threads read on beside them)."""
        return self.cost.first_s if self.cost else None

    @metric("each s", unit="s", better="lower", heading="each")
    def each_s(self) -> float | None:
        """Seconds of offline work that one fresh epoch needs, such as sampling and
        packing it beforehand, in episodes as long as the run's."""
        return self.cost.each_s if self.cost else None

    @metric("shared s", unit="s", better="lower")
    def shared_s(self) -> float | None:
        """Seconds of that offline work which the epochs prepared together share, such
        as one pass over the features, by the system's own measure; T(E) counts them
        once."""
        return self.cost.shared_s if self.cost else None

    @metric("shared each s", unit="s", better="lower", shown=False)
    def shared_each_s(self) -> float | None:
        """An epoch's part of shared s, which each s includes."""
        return self.cost.shared_each_s if self.cost else None

    @metric("mean epoch s", unit="s", better="lower", shown=False)
    def mean_epoch_s(self) -> float | None:
        """Mean seconds of the measured epochs, without the offline work within them."""
        return self.cost.mean_epoch_s if self.cost else None

    @metric("fresh epoch s", unit="s", better="lower", shown=False)
    def fresh_epoch_s(self) -> float | None:
        """Seconds of an epoch with all of its work: each + mean epoch. A training of E
        epochs takes once + first + E x this, where work that its epochs share is
        counted once (rule 14)."""
        return self.cost.fresh_epoch_s if self.cost else None

    @metric("prepared bytes read", unit="bytes", better="lower", heading="prep. read")
    def prepared_bytes(self) -> int | None:
        """Bytes read by the offline work of the run's epochs, by the surplus of its
        warm-up, whichever run read them, and after its last epoch."""
        if not self.measured:
            return None
        further = [
            self._surplus_bytes(epoch) for epoch in self.record.epochs if epoch.warmup
        ]
        known = [nbytes for nbytes in further if nbytes is not None]
        within = sum(
            epoch.offline.whole_bytes_read
            for epoch in self.record.epochs
            if epoch.offline
        )
        closing = self.record.readings.closing
        after = closing.bytes_read or 0 if closing else 0
        whole = self.record.preprocess.whole_bytes_read + within + after + sum(known)
        return whole if len(known) == len(further) else None

    @cached_property
    def wear(self) -> Wear | None:
        """Bytes that the run's training writes; None where no epoch was measured."""
        return Wear.of(self.record)

    @metric("prepared bytes written", unit="bytes", better="lower", shown=False)
    def prepared_written_bytes(self) -> float | None:
        """Bytes written by offline work whatever the number of epochs, whichever run
        wrote them, and after the last epoch."""
        return self.wear.once_bytes if self.wear else None

    @metric("bytes written an epoch", unit="bytes", better="lower", shown=False)
    def epoch_written_bytes(self) -> float | None:
        """Bytes written for an epoch with all of its work, the larger of the system's
        and the kernel's count. A training of E epochs writes the prepared bytes and E
        times these."""
        return self.wear.fresh_epoch_bytes if self.wear else None

    @metric("predicted s", unit="s", better="lower")
    def predicted_s(self) -> float | None:
        """Seconds of an epoch by the system's counters and the device's profile,
        without any measured time."""
        profile = self.context.profile
        faults = usable_processors(self.record)
        if profile is None:
            return None
        pages = at_depth(profile, faults) if faults else None
        first = self.record.facts.reads_in == ("data_prep",)
        alone = [(epoch, self.train_s.get(epoch.epoch)) for epoch in self.measured]
        made = (
            predict(epoch, profile, train_s, reads_first=first, pages=pages)
            for epoch, train_s in alone
        )
        known = [prediction.seconds for prediction in made if prediction is not None]
        return statistics.median(known) if known else None

    @cached_property
    def reads(self) -> str:
        """Latency histogram of the measured epochs' reads, of all sizes."""
        return all_sizes(merged(epoch.latencies for epoch in self.measured), "read")

    @metric("read p50 s", unit="s", better="lower", shown=False)
    def read_p50_s(self) -> float | None:
        """Median seconds from the submission of a read to its completion, of the
        measured epochs' reads by the system's own readers; None where pages fault or
        other code reads."""
        return percentile_s(self.reads, 50.0)

    @metric("read p99 s", unit="s", better="lower", shown=False)
    def read_p99_s(self) -> float | None:
        """Seconds within which 99 % of these reads were completed."""
        return percentile_s(self.reads, 99.0)

    @metric("read p99.9 s", unit="s", better="lower", shown=False)
    def read_p999_s(self) -> float | None:
        """Seconds within which 99.9 % of these reads were completed."""
        return percentile_s(self.reads, 99.9)

    @metric("user s a row", unit="s", better="lower", shown=False)
    def user_s_per_row(self) -> float | None:
        """Processor seconds in user mode of all processes in the cap, training
        included, for each feature row of a mini-batch: the median epoch's."""
        return self.seconds_per_row("user_s")

    @metric("system s a row", unit="s", better="lower", shown=False)
    def system_s_per_row(self) -> float | None:
        """Processor seconds in the kernel, of all processes in the cap, for each
        feature row of a mini-batch: the median epoch's."""
        return self.seconds_per_row("system_s")

    @metric(
        "read amplification",
        better="lower",
        heading="read ampl.",
        column="amplification",
    )
    def read_amplification(self) -> float | None:
        """Device bytes over bytes of the rows and neighbour lists that were fetched."""
        device = [
            epoch.device_bytes
            for epoch in self.measured
            if epoch.device_bytes is not None
        ]
        useful = sum(
            useful_bytes(epoch, self.record.config.dataset.row_bytes)
            for epoch in self.measured
        )
        return (
            sum(device) / useful
            if len(device) == len(self.measured) and useful > 0
            else None
        )

    @metric("AU", better="higher", column="au")
    def accelerator_utilisation(self) -> float | None:
        """Accelerator utilisation: uncontended training time over epoch time."""
        return self.share(self.train_s)

    @metric("SE", better="higher", column="se")
    def storage_efficiency(self) -> float | None:
        """Storage efficiency: the same batches with features already in memory, over
        the epoch."""
        return self.share(self.null_s)

    @metric(
        "engine efficiency", better="higher", heading="engine eff.", column="engine"
    )
    def engine_efficiency(self) -> float | None:
        """The time the device needs for exactly the system's requests, over its extract
        time: how well the code drives the disk. Above 1.1 under an SSD class, the
        kernel's limiter let bursts pass after idle moments."""
        return self.engine[0]

    @metric("distance to limit", better="higher", heading="distance", column="distance")
    def distance_to_limit(self) -> float | None:
        """Proven minimum time over actual time: 1 cannot be beaten, and the number is
        uninformative when most data fits in memory, where it is near 0. The minimum is
        [the frontier](frontier.md#the-lower-bound)'s for any system with this memory;
        the actual time is an epoch of the run's training with its share of all offline
        work, T(E) / E. None for a system that trains on other mini-batches; an epoch
        below the minimum is `INVALID`."""
        if self.limit_s is None or self.cost is None:
            return None
        trained = [
            self.train_s[epoch.epoch]
            for epoch in self.measured
            if epoch.epoch in self.train_s
        ]
        least = max(self.limit_s, statistics.median(trained) if trained else 0.0)
        return least / self.cost.share_s(self.record.config.epochs)

    @metric("working set", unit="bytes", shown=False)
    def working_set_bytes(self) -> int | None:
        """Bytes of the rows and topology pages that the median measured epoch uses
        (rules 7 and 11)."""
        config = self.record.config
        if self.context.trace is None:
            return None
        epochs = self.context.trace.epochs()
        counted = epochs[config.warmup :] or epochs
        return int(
            statistics.median(
                entry.used_bytes(config.dataset.row_bytes) for entry in counted
            )
        )

    @metric("working set over memory", shown=False, column="working_set")
    def working_set_over_budget(self) -> float | None:
        """Working set over host budget plus device memory; decides the class."""
        used = self.working_set_bytes()
        budget = self.record.memory.budget_bytes
        memory = 0 if budget is None else budget + _device_memory(self.record)
        return used / memory if used is not None and memory else None

    @metric("topology over budget", shown=False)
    def topology_over_budget(self) -> float | None:
        """`indptr` and `indices` over the host budget, since systems sample on the
        host; above 1 the graph does not fit (rule 7)."""
        budget = self.record.memory.budget_bytes
        trace = self.context.trace
        if trace is None or not budget:
            return None
        return (
            trace.workload.dataset.topology_bytes
            + 8 * (trace.workload.dataset.num_nodes + 1)
        ) / budget


def summarise(
    record: Record, context: RunContext
) -> tuple[Summary, StorageClass | None]:
    """Return the summary and the class of a run; unknown numbers stay None."""
    run = RunNumbers(record, context)
    summary = Summary.model_validate(
        {metric.name: metric.of(run) for metric in METRICS}
    )
    if run.measured:
        summary.epoch_s = spread([epoch.seconds for epoch in run.measured])
        names = {name for epoch in run.measured for name in epoch.stages_s}
        summary.stages_s = {
            name: statistics.median(
                epoch.stages_s.get(name, 0.0) for epoch in run.measured
            )
            for name in sorted(names)
        }
        summary.extra["engine_efficiency_from"] = run.engine[1]
        if run.limit_s is not None:
            summary.extra["limit_s"] = run.limit_s
    return summary, None if run.working_set_bytes() is None else storage_class(
        summary.working_set_over_budget
    )


def summarised_anew(record: Record) -> Summary:
    """Return a record's summary with the metrics that its own raw parts determine
    derived again (rule 29)."""
    run = RunNumbers(record, context_of(record))
    if not run.measured:
        return record.summary
    derived = {
        metric.name: metric.of(run) for metric in METRICS if metric.name in DERIVED_ANEW
    }
    known = {name: value for name, value in derived.items() if value is not None}
    epoch_s = spread([epoch.seconds for epoch in run.measured])
    return record.summary.model_copy(update={**known, "epoch_s": epoch_s})


def usable_processors(record: Record) -> int:
    """Return the number of usable processors of the run's host; 0: not recorded."""
    return int((record.environment.get("cpu") or {}).get("usable") or 0)
