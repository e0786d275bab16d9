"""The advice: every system's forecast in the budget for data, ranked by the time of the
whole training."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.advise.implied import ImpliedGraph
from harness.advise.trace import take_trace
from harness.progress import tracked
from harness.records.cost import TrainingCost
from harness.settings import MemorySetting, parse_memory
from harness.ssd.quiet import slack
from systems.forecast import EXACT, Reads, Spread, Trace
from systems.interface import DiskProfile, Runtime
from systems.planning import Planner
from systems.registry import load, names
from workloads.accelerator import Accelerator
from workloads.accelerators.make import make_accelerator
from workloads.errors import BudgetError, InputError, OutcoreError
from workloads.workload import Workload

_UNFAITHFUL = "trains on other mini-batches than the rest, so its time does not compare"
_NO_FORECAST = (
    "has no forecast of its reads (System.forecast), so its time is not predicted"
)


@dataclass(frozen=True)
class AdviceSetting:
    """The conditions of the advice.

    Attributes:
        device, device_memory: `cpu`, `cuda` or `emulated:<profile>`, and its memory in
            bytes.
        host: host budget in bytes.
        options: options of single systems, by name.
        rest: bytes of the user's memory setting beside `host`, as in `Planner`.
    """

    workload: Workload
    device: str
    device_memory: int | None
    host: int
    epochs: int
    cores: int
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    rest: int | None = None


@dataclass(frozen=True)
class RankedSystem:
    """One system's predicted time under one budget.

    Attributes:
        reads: request bytes -> number of requests of an epoch.
        device_s, train_s, sample_s, bus_s: seconds of an epoch of the disk, of training
            steps, of sampling on all cores and of copies to the device; they overlap.
        train_spread, sample_spread: least and greatest measurement of both, as
            multiples of them.
        disk_slack: how many times faster the disk may be than its profile, which was
            taken beside others' traffic.
        prepare_s: seconds of offline work that a training does once, all of them the
            disk's.
        each_s, each_device_s: seconds of offline work for each epoch, and those of them
            that the disk takes.
        why: reason for the time, as text for a reader.
        options: options that the system lowers to fit the budget.
        refused: reason why the system cannot run or is not ranked; the other fields are
            empty then.
        too_large: whether the reason is that its plan does not fit.
    """

    system: str
    reads: Reads = field(default_factory=dict)
    device_s: float = 0.0
    train_s: float = 0.0
    sample_s: float = 0.0
    bus_s: float = 0.0
    train_spread: Spread = EXACT
    sample_spread: Spread = EXACT
    disk_slack: float = 1.0
    prepare_s: float = 0.0
    each_s: float = 0.0
    each_device_s: float = 0.0
    why: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    refused: str = ""
    too_large: bool = False

    @property
    def epoch_s(self) -> float:
        """Seconds of an epoch: those of its longest overlapping part."""
        return max(self.device_s, self.train_s, self.sample_s, self.bus_s)

    @property
    def bound(self) -> str:
        """Name of the part that limits an epoch."""
        parts = {
            "disk": self.device_s,
            "training": self.train_s,
            "sampling": self.sample_s,
            "bus": self.bus_s,
        }
        return max(parts, key=lambda name: parts[name])

    @property
    def cost(self) -> TrainingCost:
        """Predicted terms of T(E); the first epoch is taken as the later ones."""
        return TrainingCost(
            once_s=self.prepare_s,
            first_s=0.0,
            each_s=self.each_s,
            mean_epoch_s=self.epoch_s,
        )

    def total_s(self, epochs: int) -> float:
        """Return the seconds of a training of `epochs` epochs, offline work
        included."""
        return self.cost.total_s(epochs)

    def interval_s(
        self, epochs: int, speed: float | None = None
    ) -> tuple[float, float]:
        """Return the seconds of such a training at the least and the greatest measured
        times.

        `speed`: of the disk, as a multiple of its profile; None: that too is at its
        fastest and its slowest.
        """

        def total(end: int, speed: float) -> float:
            measured = (
                self.train_s * self.train_spread[end],
                self.sample_s * self.sample_spread[end],
            )
            cost = TrainingCost(
                once_s=self.prepare_s / speed,
                first_s=0.0,
                each_s=self.each_s - self.each_device_s * (1 - 1 / speed),
                mean_epoch_s=max(self.device_s / speed, self.bus_s, *measured),
            )
            return cost.total_s(epochs)

        return total(0, speed or self.disk_slack), total(1, speed or 1.0)

    @property
    def bytes_read(self) -> float:
        """Bytes read in an epoch."""
        return sum(size * count for size, count in self.reads.items())


@dataclass(frozen=True)
class Advice:
    """The ranking of the systems and its evidence.

    Attributes:
        groups: systems that can run, fastest group first; systems of a group are equal
            within the spread of the measured times, and the simplest is first.
        refused: systems that cannot run or do not compare, with the reason.
        least: least host memory of the systems that do not fit, by name, ascending, as
            a setting; only if none fits.
        trace: sampled mini-batches.
        changes: change of memory or disk (twice as much, twice as fast) -> the fastest
            system then; only changes after which the system recommended now is not
            among the fastest.
    """

    groups: list[list[RankedSystem]]
    refused: list[RankedSystem]
    trace: Trace
    changes: dict[str, RankedSystem]
    least: dict[str, str] = field(default_factory=dict)

    @property
    def ranked(self) -> list[RankedSystem]:
        """Systems that can run, by rank."""
        return [entry for group in self.groups for entry in group]


def simplicity(system: str) -> int:
    """Return the number of options of a system: the fewer, the simpler it is to run."""
    return len(load(system).info.options.model_fields)


def in_groups(entries: Sequence[RankedSystem], epochs: int) -> list[list[RankedSystem]]:
    """Rank systems that can run: each group holds the fastest left and those whose
    intervals overlap with its own.

    All systems share the disk: intervals are compared at one speed of it, its slowest
    and its fastest. Within a group the simplest system is first.
    """
    left = sorted(entries, key=lambda entry: (entry.total_s(epochs), entry.system))
    groups = []

    def equal(one: RankedSystem, first: RankedSystem) -> bool:
        speeds = (1.0, first.disk_slack)
        return any(
            one.interval_s(epochs, speed)[0] <= first.interval_s(epochs, speed)[1]
            for speed in speeds
        )

    while left:
        group = [entry for entry in left if equal(entry, left[0])]
        left = [entry for entry in left if entry not in group]
        groups.append(
            sorted(
                group,
                key=lambda entry: (simplicity(entry.system), entry.total_s(epochs)),
            )
        )
    return groups


def overtaker(
    now: Sequence[Sequence[RankedSystem]],
    then: Sequence[Sequence[RankedSystem]],
    epochs: int,
) -> RankedSystem | None:
    """Return the fastest system of a ranking; None where the one recommended now is
    equal to it within the spread.

    Args:
        now, then: rankings by `in_groups`, before and after a change.
        epochs: epochs of the whole training.
    """
    if not then:
        return None
    fastest = min(then[0], key=lambda entry: entry.total_s(epochs))
    recommended = now[0][0].system if now else ""
    return None if recommended in {entry.system for entry in then[0]} else fastest


def advise(
    setting: AdviceSetting,
    profile: DiskProfile,
    *,
    batches: int,
    systems: list[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    graph: ImpliedGraph | None = None,
) -> Advice:
    """Rank the systems for a setting on a disk.

    Args:
        batches: mini-batches of an epoch to sample.
        systems: names of the systems to rank; None: all installed systems.
        graph: implied graph to sample where the setting's dataset is only outlines.
    """
    # The planned device may have more memory than this host has free: none of it is
    # used.
    with closing(
        make_accelerator(
            setting.device, memory_bytes=setting.device_memory, touch=False
        )
    ) as accelerator:
        trace = take_trace(setting.workload, accelerator, batches, progress, graph)
        chosen = list(names() if systems is None else systems)

        def forecast(at: AdviceSetting, disk: DiskProfile) -> list[RankedSystem]:
            found = []
            for name in tracked(progress, chosen, "forecasting", "systems", str):
                found.append(_one(name, at, disk, trace, accelerator))
            return found

        def ranked(found: list[RankedSystem]) -> list[list[RankedSystem]]:
            return in_groups(
                [entry for entry in found if not entry.refused], setting.epochs
            )

        now = forecast(setting, profile)
        groups = ranked(now)
        refused = sorted(
            (entry for entry in now if entry.refused), key=lambda one: one.system
        )
        least: dict[str, str] = {}
        if not groups:
            progress("least memory of each system")
            planners = {
                one.system: _planner(one.system, setting, profile, trace, accelerator)
                for one in refused
                if one.too_large
            }
            sizes = {
                name: planner.least(setting.device_memory)
                for name, planner in planners.items()
            }
            fitting = sorted(
                (size, name) for name, size in sizes.items() if size is not None
            )
            least = {name: planners[name].written(size) for size, name in fitting}
        faster = tuple(
            replace(p, iops=2 * p.iops, bytes_per_s=2 * p.bytes_per_s)
            for p in profile.points
        )
        others = {
            "twice the memory": ranked(
                forecast(replace(setting, host=2 * setting.host), profile)
            ),
            "a disk twice as fast": ranked(
                forecast(setting, replace(profile, points=faster))
            ),
        }
        changes = {}
        for text, then in others.items():
            fastest = overtaker(groups, then, setting.epochs)
            if fastest is not None:
                changes[text] = fastest
        return Advice(groups, refused, trace, changes, least)


def _planner(
    name: str,
    setting: AdviceSetting,
    disk: DiskProfile,
    trace: Trace,
    accelerator: Accelerator,
) -> Planner:
    """Return the planner of a system, whose folders are not there: nothing is
    written."""
    kind = load(name)
    folder = Path(tempfile.gettempdir())
    places = folder / "artefacts", folder / "scratch"
    runtime = Runtime(accelerator, disk, *places, setting.cores, epochs=setting.epochs)
    options = kind.info.options.model_validate(setting.options.get(name, {}))
    return Planner(
        kind, trace.whole, runtime, options, setting.device, rest=setting.rest
    )


def _one(
    name: str,
    setting: AdviceSetting,
    disk: DiskProfile,
    trace: Trace,
    accelerator: Accelerator,
) -> RankedSystem:
    """Predict one system's time by its plan and its own forecast; nothing is allocated
    and nothing written."""
    planner = _planner(name, setting, disk, trace, accelerator)
    if not planner.kind.is_faithful(planner.options):
        return RankedSystem(name, refused=_UNFAITHFUL)
    if accelerator.kind not in planner.kind.info.devices:
        return RankedSystem(name, refused=f"does not run on {setting.device}")
    try:
        system = planner.make(setting.host, setting.device_memory)
        system.plan()
        expected = system.forecast(trace, setting.host)
    except OutcoreError as error:
        return RankedSystem(
            name, refused=str(error), too_large=isinstance(error, BudgetError)
        )
    if expected is None:
        return RankedSystem(name, refused=_NO_FORECAST)
    bus = accelerator.bus_bytes_per_s
    return RankedSystem(
        name,
        reads={size: count * trace.scale for size, count in expected.reads.items()},
        device_s=trace.scale * disk.seconds(expected.reads),
        train_s=trace.epoch_s(),
        sample_s=trace.sample_s * trace.num_batches / max(1, setting.cores),
        bus_s=expected.rows_copied * trace.scale * trace.row_bytes / bus
        if bus
        else 0.0,
        train_spread=trace.train_spread,
        sample_spread=trace.sample_spread,
        disk_slack=slack(disk),
        prepare_s=disk.seconds(expected.prepare_reads),
        each_s=disk.seconds(expected.each_reads) + expected.each_s,
        each_device_s=disk.seconds(expected.each_reads),
        why=expected.why,
        options={key: low for key, (low, _) in system.lowered.items()},
    )


def check_limit(memory: str) -> None:
    """Raise InputError for the memory setting `none`, or a text that is no memory
    setting."""
    if parse_memory(memory, 1) == MemorySetting():
        raise InputError(
            "advice needs a limit of memory",
            "give --memory, like 8GiB (all of it), +64MiB or 0.25x",
        )
