"""The advice: every system's forecast in the budget for data, ranked by the time of the whole training."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.advise.implied import ImpliedGraph
from harness.advise.trace import take_trace
from harness.progress import tracked
from harness.records.record import RunConfig
from harness.run import calibrate
from harness.run.series import Series
from harness.run.spec import worker_spec
from harness.settings import MemorySetting, parse_memory
from systems.forecast import Reads, Trace
from systems.interface import DiskProfile, MemoryBudget, Runtime, StageClock, reserve_bytes
from systems.registry import load, names
from workloads.accelerator import Accelerator
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.errors import InputError, OutcoreError
from workloads.workload import Workload

_UNFAITHFUL = "trains on other mini-batches than the rest, so its time does not compare"
_NO_FORECAST = "has no forecast of its reads (System.forecast), so its time is not predicted"


@dataclass(frozen=True)
class AdviceSetting:
    """The conditions of the advice.

    Attributes:
        device, device_memory: `cpu`, `cuda` or `emulated:<profile>`, and its memory in bytes.
        host: host budget in bytes.
        options: options of single systems, by name.
    """

    workload: Workload
    device: str
    device_memory: int | None
    host: int
    epochs: int
    cores: int
    options: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class RankedSystem:
    """One system's predicted time under one budget.

    Attributes:
        reads: request bytes -> number of requests of an epoch.
        device_s, train_s, sample_s, bus_s: seconds of an epoch of the disk, of training steps, of sampling on all cores
            and of copies to the device; they overlap.
        prepare_s: seconds before the first epoch.
        why: reason for the time, as text for a reader.
        options: options that the system lowers to fit the budget.
        refused: reason why the system cannot run or is not ranked; the other fields are empty then.
    """

    system: str
    reads: Reads = field(default_factory=dict)
    device_s: float = 0.0
    train_s: float = 0.0
    sample_s: float = 0.0
    bus_s: float = 0.0
    prepare_s: float = 0.0
    why: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    refused: str = ""

    @property
    def epoch_s(self) -> float:
        """Seconds of an epoch: those of its longest overlapping part."""
        return max(self.device_s, self.train_s, self.sample_s, self.bus_s)

    @property
    def bound(self) -> str:
        """Name of the part that limits an epoch."""
        parts = {"disk": self.device_s, "training": self.train_s, "sampling": self.sample_s, "bus": self.bus_s}
        return max(parts, key=lambda name: parts[name])

    def total_s(self, epochs: int) -> float:
        """Return the seconds of preparation and `epochs` epochs."""
        return self.prepare_s + epochs * self.epoch_s

    @property
    def bytes_read(self) -> float:
        """Bytes read in an epoch."""
        return sum(size * count for size, count in self.reads.items())


@dataclass(frozen=True)
class Advice:
    """The ranking of the systems and its evidence.

    Attributes:
        ranked: systems that can run, least time first.
        refused: systems that cannot run or do not compare, with the reason.
        trace: sampled mini-batches.
        changes: change of memory or disk (twice as much, twice as fast) -> system ranked first then.
    """

    ranked: list[RankedSystem]
    refused: list[RankedSystem]
    trace: Trace
    changes: dict[str, RankedSystem]


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
    # The planned device may have more memory than this host has free: none of it is used.
    with closing(make_accelerator(setting.device, memory_bytes=setting.device_memory, touch=False)) as accelerator:
        trace = take_trace(setting.workload, accelerator, batches, progress, graph)
        chosen = list(names() if systems is None else systems)

        def ranked(at: AdviceSetting, disk: DiskProfile) -> list[RankedSystem]:
            found = []
            for name in tracked(progress, chosen, "forecasting", "systems", str):
                found.append(_one(name, at, disk, trace, accelerator))
            return sorted(found, key=lambda entry: (entry.total_s(at.epochs), entry.system))

        now = ranked(setting, profile)
        able = [entry for entry in now if not entry.refused]
        faster = tuple(replace(p, iops=2 * p.iops, bytes_per_s=2 * p.bytes_per_s) for p in profile.points)
        others = {
            "twice the memory": ranked(replace(setting, host=2 * setting.host), profile),
            "a disk twice as fast": ranked(setting, replace(profile, points=faster)),
        }
        firsts = {text: next((entry for entry in found if not entry.refused), None) for text, found in others.items()}
        changes = {text: first for text, first in firsts.items() if first is not None}
        return Advice(able, [entry for entry in now if entry.refused], trace, changes)


def _one(name: str, setting: AdviceSetting, disk: DiskProfile, trace: Trace, accelerator: Accelerator) -> RankedSystem:
    """Predict one system's time by its plan and its own forecast; nothing is allocated and nothing written."""
    found = load(name)
    options = found.info.options.model_validate(setting.options.get(name, {}))
    if not found.is_faithful(options):
        return RankedSystem(name, refused=_UNFAITHFUL)
    if accelerator.kind not in found.info.devices:
        return RankedSystem(name, refused=f"does not run on {setting.device}")
    folder = Path(tempfile.gettempdir())
    places = folder / "artefacts", folder / "scratch"
    runtime = Runtime(accelerator, disk, *places, setting.cores, epochs=setting.epochs)
    try:
        budget = MemoryBudget(host=setting.host - reserve_bytes(setting.host), device=setting.device_memory)
        system = found(trace.whole, runtime, budget, options, StageClock())
        system.plan()
        expected = system.forecast(trace, setting.host)
    except OutcoreError as error:
        return RankedSystem(name, refused=f"{error.message}; {error.fix}" if error.fix else error.message)
    if expected is None:
        return RankedSystem(name, refused=_NO_FORECAST)
    bus = accelerator.bus_bytes_per_s
    return RankedSystem(
        name,
        reads={size: count * trace.scale for size, count in expected.reads.items()},
        device_s=trace.scale * disk.seconds(expected.reads),
        train_s=trace.epoch_s(),
        sample_s=trace.sample_s * trace.num_batches / max(1, setting.cores),
        bus_s=expected.rows_copied * trace.scale * trace.row_bytes / bus if bus else 0.0,
        prepare_s=disk.seconds(expected.prepare_reads) + expected.prepare_s,
        why=expected.why,
        options={key: low for key, (low, _) in system.lowered.items()},
    )


def limit_of(memory: str, dataset: Dataset) -> MemorySetting:
    """Return a memory setting with a cap or a budget; raise InputError for `none` and for any other text."""
    wanted = parse_memory(memory, dataset.feature_bytes)
    if wanted.budget_bytes is None and wanted.cap_bytes is None:
        raise InputError("advice needs a limit of memory", "give --memory, like 8GiB (all of it), +64MiB or 0.25x")
    return wanted


def budget_of(series: Series, config: RunConfig, dataset: Dataset) -> int:
    """Return the host budget in bytes under `config.memory`: a budget itself, or a cap less interpreter, torch, a step.
    Raises InputError: the memory is `none`, or below that of an empty run; HostError: an empty run was not measured."""
    budget = limit_of(config.memory, dataset).budget_bytes
    if budget is None:
        with series.scratch() as folder, worker_spec(series, config, dataset, folder, folder.name) as (spec, _):
            budget = calibrate.memory_of(config, dataset, calibrate.calibrate(series, spec, folder))[1]
    assert budget is not None
    return budget
