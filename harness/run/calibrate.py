"""Calibration from outside the cap: floor, training working set and training time,
measured once and cached.

A worker that loads the system and nothing more has its floor. Training is measured in a
worker of its own that loads no system, so that none can hold memory or be slow in it; a
foreign system has its own training step, in one worker.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import Any

from harness.cache import Cache, fingerprint
from harness.foreign import is_foreign
from harness.foreign.systems import folder_of, identity
from harness.isolation.base import Cap, Limits, MemoryStats
from harness.judge.compute import NOISE
from harness.judge.registry import Calibration
from harness.records.code import code_of_sampler, system_fingerprint
from harness.records.record import RunConfig
from harness.run.cold import evict_files, resident
from harness.run.holder import mapped_libraries, populate_libraries
from harness.run.launch import Ending, Worker, WorkerError
from harness.run.series import Series
from harness.settings import deciding, parse_memory
from harness.telemetry.gpu import GpuSource, gpus_of
from harness.wire.protocol import Calibrated, Event, Gate, Mode, WorkerSpec
from harness.worker.build import KERNELS
from workloads.dataset import Dataset
from workloads.errors import InputError
from workloads.sampling.bounds import largest_batch
from workloads.units import format_bytes
from workloads.workload import Workload

# Kinds of cache entries with fields of `Calibration`: of loading the system, with its
# libraries, and of training.
_FLOOR = "floor"
_STEP = "step"
CALIBRATION_TIMEOUT_S = 600.0
_LEAST_TIMEOUT_S = 60.0  # the run's own timeout counts between them
# How long times of training alone are kept: a day, and minutes if other programs were
# busy meanwhile.
_TIMES_AGE_S = 86400.0
_BUSY_TIMES_AGE_S = 600.0
# Settings that decide the bounds over all mini-batches; memory of an empty run; time of
# a step.
_BATCH_KEYS = ("dataset", "layers", *deciding("batches"))
_KEYS = (
    "system",
    "dataset",
    "layers",
    "device_memory_bytes",
    "isolation",
    *deciding("batches", "step"),
)
# Training alone does not depend on the system: measured once, so that AU and SE of all
# systems share their numerator.
_STEP_KEYS = tuple(key for key in _KEYS if key != "system")
_TIME_KEYS = tuple(key for key in _STEP_KEYS if key not in ("isolation", "stages"))


def batch_bounds(
    config: RunConfig, workload: Workload, cache: Cache
) -> list[dict[str, Any]]:
    """Return the cached mini-batch bounds of each rank
    (`workloads.sampling.bounds.BatchBounds` as plain data)."""
    key = fingerprint(config, _BATCH_KEYS) + _short(code_of_sampler(config.sampler))
    kept = cache.get("bounds", key)
    if kept is None:
        ranks = (
            replace(workload, rank=rank, world=config.ranks)
            for rank in range(config.ranks)
        )
        kept = {
            "ranks": [largest_batch(one, epochs=config.epochs).plain() for one in ranks]
        }
        cache.put("bounds", key, kept)
    return list(kept["ranks"])


def calibrate(
    series: Series,
    spec: WorkerSpec,
    folder: Path,
    on_measure: Callable[[str], None] = lambda text: None,
) -> Calibration:
    """Return floor, training working set and times of a run, from an empty run in a
    measured, unlimited cap.

    Args:
        series: backend whose cap measures the memory, and cache of calibrations by
            fingerprint.
        spec: worker spec of the run with bounds and largest mini-batch; its budget does
            not matter here, and options only those of a foreign system.
        folder: scratch folder for spec and log.
        on_measure: called with a text before a measurement, not before a cached result.

    Raises:
        WorkerError: the empty run failed; names the reason.
        OutcoreError: an error that the run itself would meet (no such device, a damaged
            dataset).
    """
    config = spec.config
    cache = series.cache
    times = kept_times(cache, training_key(config))
    step = cache.get(_STEP, step_key(series, config))
    if step is None or times is None:
        on_measure("measuring training alone")
        timed = times is None and config.stages == "all"
        reading, ending = _empty_run(
            series, spec, folder, _trainer(config), time_training=timed
        )
        step = step or reading.of_step(ending, trains=config.stages != "sample")
        keep(series, config, step=step)
        if times is None:
            times = keep_times(cache, training_key(config), reading.times)
        if is_foreign(config.system):
            keep(series, config, floor=reading.of_floor())
    floor = cache.get(_FLOOR, memory_key(series, config))
    if floor is None:
        on_measure("measuring the floor")
        reading, _ = _empty_run(series, spec, folder, "calibrate", time_training=False)
        floor = reading.of_floor()
        keep(series, config, floor=floor)
    if config.device.startswith("cuda"):
        copy_kernels(kernels_of(cache, step_key(series, config)), Path(spec.artefacts))
    # The series' holder has the libraries of our own interpreter alone.
    populate_libraries(floor.get("libraries", ()))
    # In JSON the numbers of epochs are text.
    known = {
        name: value for name, value in times.items() if name in Calibrated.model_fields
    }
    measured = Calibrated.model_validate(
        {"train_s": {}, "null_s": {}, "how": "", **known}
    )
    bounds = spec.bounds or []
    nodes, edges = (
        max((int(rank[name]) for rank in bounds), default=0)
        for name in ("max_nodes", "max_edges")
    )
    how = measured.how if measured.quiet else f"{measured.how} beside other programs"
    times_of_it = {"train_s": measured.train_s, "null_s": measured.null_s, "how": how}
    return _joined(floor, step, **times_of_it, max_nodes=nodes, max_edges=edges)


def _joined(
    floor: Mapping[str, Any], step: Mapping[str, Any], **more: Any
) -> Calibration:
    """Return the calibration of a system's own memory and of the memory of training.
    The log is part of the floor."""
    sizes = {
        name: size
        for name, size in {**floor, **step}.items()
        if name not in ("libraries", "log_bytes")
    }
    return Calibration(
        floor_bytes=floor["built_bytes"] + step["log_bytes"], **sizes, **more
    )


def _trainer(config: RunConfig) -> Mode:
    """Return the task of the worker that trains alone."""
    return "calibrate" if is_foreign(config.system) else "training"


def _empty_run(
    series: Series, spec: WorkerSpec, folder: Path, mode: Mode, *, time_training: bool
) -> tuple[GateMemory, Ending]:
    """Run a worker that calibrates in a measured, unlimited cap; return the memory at
    its gates, and its end. Raises as `calibrate` does."""
    config = spec.config
    cache = series.cache
    kernels = kernels_of(cache, step_key(series, config))
    log = folder / "calibrate.log"
    features = (
        Dataset.open(Path(spec.dataset)).file("features")
        if is_foreign(config.system)
        else None
    )
    libraries = folder_of(config.system) is not None
    with series.isolation.create(
        f"{mode}-{memory_key(series, config)}", Limits()
    ) as cap:
        gpus = gpus_of(config.device, config.ranks)
        reading = GateMemory(
            cap, with_libraries=libraries, gpus=gpus, features=features
        )
        own_artefacts = (
            folder / "calibration"
        )  # a calibration leaves nothing to a run but compiled kernels
        own_artefacts.mkdir(exist_ok=True)
        if mode == "calibrate":
            copy_kernels(kernels, own_artefacts)
        update = {
            "mode": mode,
            "time_training": time_training,
            "artefacts": str(own_artefacts),
        }
        wanted = spec.model_copy(update=update)
        with Worker(cap, wanted, folder, log, series.hidden) as worker:

            def heard(event: Event) -> None:
                reading(event)
                if mode == "training" and isinstance(event, Gate):
                    copy_kernels(own_artefacts, kernels)

            ending = worker.watch(
                min(CALIBRATION_TIMEOUT_S, max(_LEAST_TIMEOUT_S, config.timeout_s)),
                heard,
            )
    if ending.status != "ok":
        message = (
            log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            if log.exists()
            else []
        )
        why = "; ".join([ending.reason, *message])
        raise ending.error or WorkerError(
            f"calibration failed: {why}", "fix that and run it again"
        )
    return reading, ending


def contradicted(epochs_s: Mapping[int, float], train_s: Mapping[int, float]) -> bool:
    """Return whether epochs (seconds by number) were shorter than their training alone,
    beyond the noise of both."""
    shares = [
        train_s[epoch] / seconds
        for epoch, seconds in epochs_s.items()
        if epoch in train_s and seconds > 0
    ]
    return bool(shares) and statistics.median(shares) > 1.0 + NOISE


def time_again(
    series: Series,
    spec: WorkerSpec,
    folder: Path,
    held: Calibration,
    epochs_s: Mapping[int, float],
) -> Calibration:
    """Time training alone once more, since epochs contradict it; return the calibration
    with the shorter times.

    Other load only adds time. Times that epochs still contradict are not kept for other
    runs.

    Args:
        series, spec, folder: as for `calibrate`.
        held: calibration of the run.
        epochs_s: seconds of the run's measured epochs, by number.

    Raises:
        WorkerError, OutcoreError: as `calibrate` does.
    """
    key = training_key(spec.config)
    series.cache.remove("training", key)
    times = _empty_run(series, spec, folder, _trainer(spec.config), time_training=True)[
        0
    ].times
    if times is None:
        return held
    train_s = _shorter(times.train_s, held.train_s)
    null_s = _shorter(times.null_s, held.null_s)
    if not contradicted(epochs_s, train_s):
        keep_times(
            series.cache,
            key,
            times.model_copy(update={"train_s": train_s, "null_s": null_s}),
        )
    return replace(held, train_s=train_s, null_s=null_s)


def _shorter(
    measured: Mapping[int, float], held: Mapping[int, float]
) -> dict[int, float]:
    return {
        epoch: min(seconds, held.get(epoch, seconds))
        for epoch, seconds in measured.items()
    }


def training_key(config: RunConfig) -> str:
    """Return the key under which the times of training alone are kept: of a foreign
    system, which has its own training step, by its identity and its options."""
    more = ("options",) if is_foreign(config.system) else ()
    sources = _short(identity(config.system)) + _short(code_of_sampler(config.sampler))
    return fingerprint(config, _TIME_KEYS + more) + sources


def kept_times(cache: Cache, key: str) -> dict[str, Any] | None:
    """Return the times of training alone that are kept; None where there are none or
    they are too old."""
    times = cache.get("training", key, _TIMES_AGE_S)
    if times is None or times.get("quiet"):
        return times
    return cache.get("training", key, _BUSY_TIMES_AGE_S)


def keep_times(cache: Cache, key: str, times: Calibrated | None) -> dict[str, Any]:
    """Keep times of training alone; return what is kept, nothing without times."""
    if times is None:
        return {}
    content = times.model_dump(exclude={"event"}) | {"measured_at": time.time()}
    cache.put("training", key, content)
    return content


def memory_key(series: Series, config: RunConfig) -> str:
    """Return the key under which the memory of a run's calibration is kept.

    It covers the sources of the system and of its sampler, wherever they lie: what they
    import is part of the floor.
    """
    more = ("options",) if is_foreign(config.system) else ()
    sources = system_fingerprint(config.system) + code_of_sampler(config.sampler)
    return (
        fingerprint(config, _KEYS + more)
        + _short(sources)
        + _short(_image(series, config))
    )


def step_key(series: Series, config: RunConfig) -> str:
    """Return the key under which the memory of training is kept, the same for all
    systems but foreign ones."""
    if is_foreign(config.system):
        return memory_key(series, config)
    return (
        fingerprint(config, _STEP_KEYS)
        + _short(code_of_sampler(config.sampler))
        + _short(_image(series, config))
    )


def _image(series: Series, config: RunConfig) -> str:
    return identity(config.system) or str(
        series.isolation.describe().get("image_id", "")
    )


def keep(
    series: Series,
    config: RunConfig,
    *,
    floor: dict[str, Any] | None = None,
    step: dict[str, Any] | None = None,
) -> None:
    """Keep the memory of loading a run's system (`GateMemory.of_floor`), or that of
    training (`GateMemory.of_step`)."""
    if floor is not None:
        series.cache.put(_FLOOR, memory_key(series, config), floor)
    if step is not None:
        series.cache.put(_STEP, step_key(series, config), step)


def kept(series: Series, config: RunConfig) -> Calibration | None:
    """Return the memory that an earlier calibration measured for a run, without times;
    None without one."""
    floor = series.cache.get(_FLOOR, memory_key(series, config))
    step = series.cache.get(_STEP, step_key(series, config))
    return None if floor is None or step is None else _joined(floor, step)


def kernels_of(cache: Cache, key: str) -> Path:
    """Return the folder that keeps the kernels of a calibration."""
    return cache.folder / f"kernels-{key}"


def copy_kernels(source: Path, target: Path) -> None:
    """Copy the kernels that a calibration has compiled, if any. What lies beside
    finished artefacts is removed before every run, whose compiler would run under the
    cap; a later run gets them from the cache."""
    with suppress(OSError):
        shutil.copytree(source / KERNELS, target / KERNELS, dirs_exist_ok=True)


def compiled(cache: Cache, file: str) -> bool:
    """Return whether a calibration has compiled this very file."""
    path = Path(file)
    kept = cache.folder.glob(
        f"kernels-*/{KERNELS}/{escape(path.parent.name)}/{escape(path.name)}"
    )
    with suppress(OSError):
        return any(filecmp.cmp(path, one, shallow=False) for one in kept)
    return False


def _short(content: str) -> str:
    """Return a suffix of a key, 8 hex digits over some content; empty without any."""
    return f"-{hashlib.sha256(content.encode()).hexdigest()[:8]}" if content else ""


class GateMemory:
    """Memory charged to the cap at the calibration's gates, file pages excluded: which
    pages of libraries and of the dataset are charged depends on their first reader, and
    they can be reclaimed. Counted, they differed by some MiB between calibrations and
    gave runs as much additional page cache.

    Args:
        with_libraries: whether to list the libraries mapped at the first step.
        gpus: UUIDs of the GPUs whose memory is read too.
        features: file that is evicted before the first gate and before the step.

    Attributes:
        libraries: paths of the libraries mapped at the first step, where they are
            wanted.
        at_imports: all bytes charged at the gate `imports`, before the system's own
            code; None before that gate.
        of_libraries: bytes added since by loading the system and its libraries, of them
            `of_module` by the system's own module.
        floor: bytes at the gate `floor`, with everything loaded and built. `of_log`:
            bytes added by the log of an epoch, up to the gate `log`.
        of_constructor: bytes that a foreign system added between its imports and the
            floor; None for others, and without the gate `imports`.
        of_features: bytes of the features read up to the floor and in the step, neither
            of which needs any.
        peak_is_of_step: whether the peak at the step's end is of the step alone: it was
            reset before, or the step raised it. Otherwise the training working set may
            include earlier use. None before the step.
    """

    def __init__(
        self,
        cap: Cap,
        *,
        with_libraries: bool = False,
        gpus: Sequence[str] = (),
        features: Path | None = None,
    ) -> None:
        self._cap = cap
        self._with_libraries = with_libraries
        self._gpus = gpus
        self._on_gpus: int | None = None
        self._features = [features] if features else []
        self._resident = evict_files(self._features, "before").resident_bytes
        self.libraries: list[str] = []
        self.floor = self.before = self.after = self.of_libraries = self.of_module = (
            self.of_features
        ) = 0
        self.of_log = 0
        self.at_imports: int | None = None
        self.of_constructor: int | None = None
        self.peak_is_of_step: bool | None = None
        self._earlier_peak = 0
        self.times: Calibrated | None = None

    def __call__(self, event: Event) -> None:
        """Read the cap at a gate; keep the times of a `Calibrated` event."""
        if isinstance(event, Calibrated):
            self.times = event
        if not isinstance(event, Gate):
            return
        memory = self._cap.memory()
        held = memory.usage - memory.page_cache
        if event.at in ("before step", "step again"):
            was_reset = self._cap.reset_peak()
            # Without a reset the first step counts too: the second has the same peak,
            # with all pages of code read.
            if event.at == "before step":
                self._earlier_peak = 0 if was_reset else memory.peak
        if event.at == "imports":
            self.at_imports = held
        elif event.at == "module":
            self.of_module = held - (self.at_imports or 0)
        elif event.at == "libraries":
            self.of_libraries = held - (self.at_imports or 0)
        elif event.at == "floor":
            self.floor = held
            self.of_features = self._read(memory)
            if self._features and self.at_imports is not None:
                self.of_constructor = max(0, held - self.at_imports)
        elif event.at == "log":
            self.of_log = max(0, held - self.floor)
        elif event.at == "before step":
            self.before = held
            self._resident = evict_files(self._features, "before").resident_bytes
        elif event.at == "after step":
            self.of_features += self._read(memory)
            if self._with_libraries:
                self.libraries = sorted(
                    set().union(*map(mapped_libraries, self._cap.pids()))
                )
            self.peak_is_of_step = memory.peak > self._earlier_peak
            # The first step has read its code pages, so the page cache was as large at
            # the second step's peak as now.
            self.after = max(memory.peak - memory.page_cache, held)
            if self._gpus:
                with closing(GpuSource(self._gpus)) as source:
                    self._on_gpus = source.held_by(self._cap.pids())

    def of_floor(self) -> dict[str, Any]:
        """Return the fields of `Calibration` on the memory of loading a system, and
        `libraries`."""
        return {
            "built_bytes": self.floor,
            "libraries": self.libraries,
            "imports_bytes": self.at_imports,
            "library_bytes": self.of_libraries,
            "module_bytes": self.of_module,
            "feature_read_bytes": self.of_features,
            "constructor_bytes": self.of_constructor,
        }

    def of_step(self, ending: Ending, *, trains: bool) -> dict[str, Any]:
        """Return the fields of `Calibration` on the memory of training, and
        `log_bytes`; `ending`: the worker's.

        A run that only samples (`trains` is false) reads no rows and trains nothing:
        memory left for that would serve as page cache.
        """
        return {
            "log_bytes": self.of_log,
            "training_bytes": max(0, self.after - self.before) if trains else 0,
            "peak_is_of_step": self.peak_is_of_step,
            "training_device_bytes": max(ending.device_peak_bytes, default=0),
            "device_context_bytes": self.contexts(ending.device_held_bytes),
        }

    def _read(self, memory: MemoryStats) -> int:
        """Return the bytes of features that the cap's processes have read since the
        last eviction."""
        return min(max(0, resident(self._features) - self._resident), memory.page_cache)

    def contexts(self, held: Sequence[int]) -> int | None:
        """Return the device memory of the CUDA contexts: the processes' memory by NVML
        less the bytes that torch held, by rank. None where NVML does not report it, or
        counts no process of the cap, as from another pid namespace."""
        return max(0, self._on_gpus - sum(held)) if self._on_gpus else None


def device_budget(config: RunConfig, calibration: Calibration) -> int | None:
    """Return the device memory for tables of a run whose device memory is given: what
    training takes is subtracted, for every system alike. Raises InputError: training
    takes all of it."""
    given = config.device_memory_bytes
    training = calibration.training_device_bytes
    if given is None or not training:
        return given
    if training >= given:
        raise InputError(
            f"device memory is {format_bytes(given)}, and training takes "
            f"{format_bytes(training)} of it already",
            "raise device_memory, or lower batch size or fan-out",
        )
    return given - training


def memory_of(
    config: RunConfig, dataset: Dataset, calibration: Calibration
) -> tuple[int | None, int | None]:
    """Return (cap, budget) of a run in bytes: cap = floor + training working set +
    budget (methodology rule 4). Raises InputError: the requested cap does not exceed
    floor + training working set."""
    wanted = parse_memory(config.memory, dataset.feature_bytes)
    least = calibration.floor_bytes + calibration.training_bytes
    if wanted.cap_bytes is not None:
        budget = wanted.cap_bytes - least
        if budget <= 0:
            raise InputError(
                f"memory is {format_bytes(wanted.cap_bytes)}, and an empty run takes "
                f"{format_bytes(least)} already (floor "
                f"{format_bytes(calibration.floor_bytes)}, training "
                f"{format_bytes(calibration.training_bytes)})",
                f"raise memory above {format_bytes(least)}, or give a budget on top of "
                "it, like +64MiB or 0.25x",
            )
        return wanted.cap_bytes, budget
    if wanted.budget_bytes is not None:
        page = os.sysconf("SC_PAGE_SIZE")
        return -(-(least + wanted.budget_bytes) // page) * page, wanted.budget_bytes
    return None, None
