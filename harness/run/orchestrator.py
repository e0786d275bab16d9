"""One run from configuration to record: evict, cap, watch, classify, judge, write. Runs
outside the cap."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.foreign import is_foreign
from harness.foreign.systems import is_faithful
from harness.isolation.base import Cap, Limits, MemoryStats
from harness.judge import judge
from harness.judge.io import BEATEN
from harness.judge.metrics import (
    least_bus_seconds,
    least_device_bytes,
    reading_seconds,
    summarise,
)
from harness.judge.registry import Calibration, context_of
from harness.judge.trace import TraceFacts, check_features
from harness.progress import during
from harness.records.code import code_of, unknown_of
from harness.records.record import (
    ORIGIN,
    SALT,
    EpochRecord,
    Memory,
    Preprocess,
    RawReadings,
    Record,
    RunConfig,
    RunFacts,
    Sandbox,
)
from harness.results import store as results
from harness.results.frozen import freeze, refuse_changed
from harness.run import calibrate
from harness.run.evaluate import add_test_accuracy
from harness.run.gathered import RunObserver
from harness.run.launch import Ending, Worker
from harness.run.series import Progress, Series
from harness.run.spec import MadePartition, partition, worker_spec, workload_of_run
from harness.run.turns import Turn
from harness.telemetry.frame import at_peak
from harness.telemetry.gpu import gpus_of
from harness.telemetry.recorder import Recorder
from harness.wire.board import Board
from harness.wire.protocol import EpochDone, Event, Gate, Planned, Prepared, WorkerSpec
from systems.engine.store.artefacts import remove_unfinished
from workloads.accelerators.profile import profile_of
from workloads.dataset import Dataset
from workloads.errors import BudgetError, HostError, InputError, OutcoreError
from workloads.sampling.make import make_seed_plan

_DOUBTS_S = (
    0.0,
    2.0,
    5.0,
)  # pauses before each new measurement of a profile that a run has beaten, in seconds


def new_run_id(config: RunConfig, host: str) -> str:
    """Return an id of time, system, host (a fingerprint), configuration and round; ids
    sort by time, and those of several hosts do not collide where they are collected."""
    seconds = time.time()
    now = (
        time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds))
        + f"-{int(seconds * 1000) % 1000:03d}"
    )
    system = re.sub(r"[^A-Za-z0-9+-]", "-", config.system)[-40:]
    parts = (now, system, host[:6], config.config_hash[:8], f"r{config.round}")
    return "-".join(filter(None, parts))


def execute(
    series: Series,
    config: RunConfig,
    dataset: Dataset,
    progress: Progress = lambda text: None,
    *,
    refuse: bool = False,
    turn: Turn | None = None,
) -> Record:
    """Run `config`, write its record and return it.

    Args:
        series: isolation, profiles, cache and folders of the host.
        config, dataset: resolved configuration, and its opened dataset.
        progress: called with a text for each step.
        refuse: raise input errors (a cap below the floor, a plan over budget, a broken
            dataset) instead of recording them, for a single run; a sweep records them
            and continues.
        turn: turn held by the caller, passed to others between epochs; by default that
            of the series.

    Raises:
        DataIOError: the record could not be written; nothing is left behind.
        OutcoreError: an input error, with `refuse`.
    """
    return _Execution(
        series, config, dataset, progress, refuse, turn or series.turn
    ).run()


@dataclass
class _Execution:
    """One run under way; the first fields are the parameters of `execute`."""

    _series: Series
    _config: RunConfig
    _dataset: Dataset
    _progress: Progress
    _refuse: bool
    _turn: Turn
    _calibration: Calibration | None = None
    _asked: Memory = field(default_factory=Memory)
    _telemetry: Any = None
    _partition: MadePartition | None = None
    _caveats: list[str] = field(default_factory=list)
    _test_clock: str = ""
    _refused: dict[str, str] = field(default_factory=dict)
    _phase: str = "starting"

    def __post_init__(self) -> None:
        self._run_id = new_run_id(self._config, self._series.host)
        folders = [self._series.artefacts(self._config.system)]
        self._seen = RunObserver(
            self._dataset,
            folders,
            self._series.disks,
            self._series.disk_io,
            self._progress,
        )
        self._seen.by_gates = is_foreign(self._config.system)
        self._seen.trains = (
            self._config.stages == "all"
            and not self._config.device.startswith("emulated")
        )
        self._started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._begin = time.monotonic()

    def run(self) -> Record:
        """Execute all steps and return the record; always remove scratch files, cap and
        shared memory."""
        with self._series.scratch() as folder:
            if reason := self._series.unsupported(self._config):
                return self._finish(Ending("unsupported", reason), None)
            try:
                ending = self._measure(folder)
            except OutcoreError as error:
                ending = _ending_of(error)
            if (
                self._refuse
                and ending.error is not None
                and ending.error.exit_code == InputError.exit_code
            ):
                raise ending.error
            with during(self._progress, "sampling the trace and judging by it"):
                return self._finish(ending, folder / results.WORKER_LOG)

    def _measure(self, folder: Path) -> Ending:
        series = self._series
        config = self._config
        self._partition = partition(series, config, self._dataset)
        self._seen.given += [self._partition.path] if self._partition else []
        with worker_spec(
            series, config, self._dataset, folder, self._run_id, self._progress
        ) as (spec, pools):
            self._seen.challenge = spec.challenge
            self._test_clock = spec.test_clock
            profile = profile_of(config.device)
            if profile is not None and not profile.keeps_rows:
                self._seen.forgetful = pools
            self._seen.folders.append(Path(spec.scratch))
            remove_unfinished(Path(spec.artefacts))
            self._refused = refuse_changed(series.frozen, Path(spec.artefacts))
            for reason in self._refused.values():
                self._progress(reason)
            began = time.monotonic()
            held = self._calibration = calibrate.calibrate(
                series, spec, folder, self._progress
            )
            asked = self._asked = Memory.model_validate(held.memory)
            asked.cap_bytes, asked.budget_bytes = calibrate.memory_of(
                config, self._dataset, held
            )
            self._seen.calibrate_s = time.monotonic() - began
            # What the calibration's worker left behind is older than the run.
            self._seen.born = time.time()
            device = {"budget_device": calibrate.device_budget(config, held)}
            device |= {"training_device_bytes": held.training_device_bytes}
            spec = spec.model_copy(update={"budget_host": asked.budget_bytes, **device})
            with during(self._progress, "evicting the dataset"):
                self._seen.evict("before", [])
            self._progress("running")
            allowed = (
                sorted(os.sched_getaffinity(0))[: config.cores] if config.cores else []
            )
            limits = Limits(asked.cap_bytes, series.limits(config), tuple(allowed))
            with series.isolation.create(self._run_id, limits) as cap:
                ending = self._watch(cap, spec, folder)
            if ending.status == "ok":
                self._time_training_again(spec, folder)
            log = folder / results.WORKER_LOG
            if reason := add_test_accuracy(
                series, spec, folder, log, ending, self._progress
            ):
                self._caveats.append(reason)
            return ending

    def _time_training_again(self, spec: WorkerSpec, folder: Path) -> None:
        """Measure training alone again if the measured epochs were shorter: it was
        timed beside other load."""
        measured = [
            epoch for epoch in self._seen.epochs if epoch.epoch >= self._config.warmup
        ]
        epochs_s = {
            epoch.epoch: epoch.end - epoch.start - epoch.checking_s
            for epoch in measured
        }
        held = self._calibration
        if held is None or not calibrate.contradicted(epochs_s, held.train_s):
            return
        self._progress("epochs were shorter than training alone: measuring that again")
        try:
            self._calibration = calibrate.time_again(
                self._series, spec, folder, held, epochs_s
            )
        except OutcoreError as error:
            self._caveats.append(f"training alone could not be measured again: {error}")

    def _watch(self, cap: Cap, spec: WorkerSpec, folder: Path) -> Ending:
        seen = self._seen
        disks = self._series.disks
        gpus = gpus_of(self._config.device, self._config.ranks)
        with Board.create(f"{self._run_id}-board") as board:

            def look(memory: MemoryStats) -> None:
                seen.sample(memory)
                # Without a cap its processes take long to find.
                if not self._series.availability.proves_memory:
                    return
                pids = cap.pids()
                seen.waiting.look(pids)
                if len(seen.sampled_s) % 10 == 0:
                    seen.look_between_gates(pids)

            recorder = Recorder(
                cap, disks, gpus=gpus, look=look, share=lambda: board.read("").share
            )
            phase = during(self._progress, lambda: board.read(self._phase))
            log = folder / results.WORKER_LOG
            try:
                with (
                    phase,
                    Worker(
                        cap, spec, folder, log, self._series.hidden, board.name
                    ) as worker,
                ):
                    seen.walls = cap.walls()
                    self._seen.spawned = worker.started
                    recorder.start()
                    ending = worker.watch(
                        self._config.timeout_s, lambda event: self._hear(event, cap)
                    )
                    self._seen.memory = cap.memory()
                    self._seen.enclosing_bytes = cap.enclosing_bytes()
                    self._seen.close(cap, worker.ended)
            finally:
                self._telemetry = recorder.stop()
        self._caveats += cap.caveats
        return ending

    def _hear(self, event: Event, cap: Cap) -> bytes:
        """Store an event of the worker and set its new phase; return the answer."""
        reached = time.monotonic()
        if isinstance(event, Gate) and event.is_epoch_start:
            self._phase = "waiting for the others' turn"
            self._turn.let_others()
        elif isinstance(event, Prepared):
            self._phase = "evicting what was prepared"
        answer = self._seen.take(event, cap, reached)
        if isinstance(event, Gate) and not event.is_epoch_start:
            system = self._config.system
            freeze(self._series.frozen, self._series.artefacts(system), self._refused)
        if isinstance(event, Planned):
            self._phase = "preparing"
        elif isinstance(event, Gate):
            self._phase = (
                event.at.removesuffix(" start")
                if event.is_epoch_start
                else f"after {event.at}"
            )
        return answer

    def _finish(self, ending: Ending, log: Path | None) -> Record:
        """Make tables, record, metrics and verdict; write the run folder, whole or not
        at all."""
        began = time.monotonic()
        seen = self._seen
        made = self._partition
        zero = seen.epochs[0].start if seen.epochs else (seen.zero or self._begin)
        tables = seen.tables(self._telemetry, zero, self._config)
        trace = TraceFacts(
            workload_of_run(self._series, self._config, self._dataset),
            self._config,
            self._series.cache,
        )
        # Notes and facts of the harness replace those of the worker of the same name.
        notes = dict(ending.notes)
        notes[ORIGIN] = self._dataset.origin
        if self._dataset.salt:
            notes[SALT] = self._dataset.salt
        if self._refused:
            notes["refused_artefacts"] = "; ".join(self._refused.values())
        if made is not None:
            whose = "by an earlier run" if made.reused else "for this run"
            notes["partition"] = (
                f"self-reliant, made in {made.seconds:.3g} s {whose}, outside the cap"
            )
        record = Record(
            run_id=self._run_id,
            config_hash=self._config.config_hash,
            system=self._config.system,
            status=ending.status,
            reason=ending.reason,
            started_at=self._started,
            duration_s=time.monotonic() - self._begin,
            config=self._config,
            environment=self._series.environment,
            memory=self._memory(tables.get("telemetry"), ending),
            preprocess=_preprocess(seen, made),
            epochs=[self._epoch(epoch, zero) for epoch in seen.epochs],
            code=code_of(self._config.system, self._config.sampler),
            evidence=self._evidence(ending, zero, trace),
            disk=_as_json(self._series.disk_record(self._config)),
            compute=_as_json(asdict(self._calibration)) if self._calibration else {},
            overhead=seen.overhead(),
            notes=notes,
            facts=RunFacts.model_validate(
                {**ending.facts.model_dump(), "test_clock": self._test_clock or None}
            ),
            caveats=list(
                dict.fromkeys([*self._series.caveats(self._config), *self._caveats])
            ),
        )
        if record.broke_its_plan:
            record.reason += (
                "; its plan fitted and was not kept, which is a fault of the system's "
                "code"
            )
        for entry, accuracy in zip(record.epochs, ending.test_accuracy, strict=False):
            entry.test_accuracy = accuracy
        self._derive(record, trace, zero)
        self._judge(record, trace)
        record.overhead["judging_s"] = time.monotonic() - began
        path = results.write_run(self._series.results_root, record, tables, log=log)
        self._progress(f"{record.status}, {record.verdict}: {path.name}")
        return record

    def _judge(self, record: Record, trace: TraceFacts) -> None:
        """Derive metrics and verdict; if a run beats the device's profile, measure that
        again first."""
        for attempt in range(len(_DOUBTS_S) + 1):
            record.summary, record.class_ = summarise(
                record, replace(context_of(record), trace=trace)
            )
            record.verdict, record.verdict_rules = judge(record)
            beaten = any(
                rule.name in BEATEN and not rule.ok and rule.known
                for rule in record.verdict_rules
            )
            if not beaten or attempt == len(_DOUBTS_S):
                return
            # A slow moment of the device may last.
            time.sleep(_DOUBTS_S[attempt])
            self._progress("faster than the device's profile: measuring that again")
            if not self._series.measure_again(self._config):
                return
            record.disk = _as_json(self._series.disk_record(self._config))
            message = (
                f"measured again after the run, which had beaten it ({attempt + 1} x): "
                "the better rates count"
            )
            record.notes["device_profile"] = message

    def _evidence(self, ending: Ending, zero: float, trace: TraceFacts) -> RawReadings:
        """Return the readings and checks of the run, without facts derived from the
        trace."""
        series = self._series
        seen = self._seen
        config = self._config
        device = profile_of(config.device)
        gates = [
            gate.model_copy(
                update={
                    "reached_s": gate.reached_s - zero,
                    "opened_s": gate.opened_s - zero,
                }
            )
            for gate in seen.gates
        ]
        found = RawReadings(
            isolation=series.isolation.name,
            proves_memory=series.availability.proves_memory,
            io_limited=bool(series.limits(config)) and series.availability.io_limits,
            faithful=ending.status != "unsupported"
            and is_faithful(config.system, config.options),
            evictions=seen.evictions,
            gates=gates,
            from_before=seen.from_before,
            elsewhere=seen.elsewhere,
            unknown_code=[
                file
                for file in unknown_of(ending.loaded, config.system, config.sampler)
                if not (
                    config.device.startswith("cuda")
                    and calibrate.compiled(series.cache, file)
                )
            ],
            enclosing_bytes=seen.enclosing_bytes,
            closing=seen.closing,
            uncharged_bytes=seen.uncharged,
            sandbox=Sandbox(
                kind=seen.walls.kind,
                walls=list(seen.walls.walls),
                missing=seen.walls.missing,
            ),
            samples=len(seen.sampled_s),
            unwatched_s=seen.unwatched_s,
            in_turns=self._turn.shared,
            free_device_memory=device is not None and device.memory_is_free,
        )
        if ending.status == "ok":
            try:
                reported = seen.epochs, seen.spots, seen.nonces, seen.sizes
                found.features, found.unchecked = check_features(
                    trace, found.faithful, *reported
                )
            except OutcoreError as error:
                found.unchecked = str(error)
        return found

    def _derive(self, record: Record, trace: TraceFacts, zero: float) -> None:
        """Store the trace's facts in the record, so that it can be judged without the
        dataset."""
        spans = [
            span._replace(start=span.start - zero, end=span.end - zero)
            for _, span in self._seen.spans
        ]
        for epoch in record.epochs:
            epoch.reading_s = reading_seconds(spans, epoch, record.facts.reads_in)
        evidence = record.readings
        workload = trace.workload
        if record.status != "ok":
            return
        try:
            plans = [
                make_seed_plan(replace(workload, rank=rank))
                for rank in range(workload.world)
            ]
            evidence.batches = plans[0].num_batches * workload.world
            evidence.seeds = sum(
                len(seeds) for plan in plans for seeds in plan.batches(0)
            )
            foreign = is_foreign(record.system)
            if not evidence.faithful and not foreign:
                return
            context = replace(context_of(record), trace=trace)
            for epoch in record.epochs:
                if evidence.faithful:
                    evidence.digests[epoch.epoch] = trace.epoch(epoch.epoch).digest
                if foreign:
                    drawn = trace.drawn(epoch.epoch)
                    evidence.drawn[epoch.epoch] = (
                        drawn.nodes,
                        drawn.edges,
                        *drawn.spread,
                    )
                if (
                    least := least_device_bytes(record, context, epoch.epoch)
                ) is not None:
                    evidence.least_bytes[epoch.epoch] = least
                seconds = least_bus_seconds(record, context, epoch.epoch)
                if seconds is not None:
                    evidence.least_bus_s[epoch.epoch] = seconds
        except (OutcoreError, MemoryError) as error:
            evidence.unknown = str(error)

    def _memory(self, telemetry: Any, ending: Ending) -> Memory:
        """Return the memory of the run; values at the peak are from the nearest
        telemetry sample."""
        seen = self._seen
        memory = self._asked
        memory.device_peak_bytes = ending.device_peak_bytes
        most = seen.demand()
        memory.demand_peak_bytes = most.anon + most.shmem + most.kernel
        if telemetry is not None:
            peak = at_peak(telemetry)
            memory.page_cache_at_peak_bytes = int(peak.get("mem_page_cache", 0))
            memory.anon_at_peak_bytes = int(peak.get("mem_anon", 0))
            held = (telemetry["mem_anon"] + telemetry["mem_shmem"]).max()
            if held == held:  # not NaN
                memory.demand_peak_bytes = max(
                    memory.demand_peak_bytes, int(held) + most.kernel
                )
            on_gpus = telemetry["gpu_process_bytes"].max()
            memory.device_seen_bytes = int(on_gpus) if on_gpus == on_gpus else None
        if seen.evictions:
            memory.resident_before_bytes = seen.evictions[-1].resident_bytes
            memory.evictable_bytes = seen.evictions[-1].total_bytes
        memory.peak_bytes = seen.memory.peak
        memory.oom_kills = seen.memory.oom_kills
        memory.reclaims = seen.memory.reclaims
        memory.plan = seen.plan
        return memory

    def _epoch(self, epoch: EpochDone, zero: float) -> EpochRecord:
        start, end = (
            self._seen.gate(f"epoch {epoch.epoch} {side}") for side in ("start", "end")
        )

        def spent(counter: str) -> Any:
            return end.since(start, counter) if start and end else None

        io_bytes = spent("io_bytes")
        disk_bytes = spent("disk_bytes")
        disk_requests = spent("disk_requests")
        # Only requested digests are off the clock, and only our own worker's seconds
        # are trusted.
        warmup = epoch.epoch < self._config.warmup
        trusted = (warmup or self._config.verify) and not is_foreign(
            self._config.system
        )
        checking_s = epoch.checking_s if trusted else 0.0
        reported = epoch.model_dump(
            include=set(EpochRecord.model_fields) - {"checking_s"}
        )
        of_batches = self._seen.of_epoch(epoch.epoch, self._config.ranks)
        # A mean over the finite losses alone would hide the others.
        no_loss = {"loss": None} if of_batches.get("losses_not_finite") else {}
        return EpochRecord(
            **{**reported, **of_batches, **no_loss},
            warmup=warmup,
            seconds=epoch.end - epoch.start - checking_s,
            start_s=epoch.start - zero,
            device_bytes=disk_bytes if io_bytes is None else io_bytes,
            device_requests=disk_requests
            if (own := spent("io_requests")) is None
            else own,
            device_written_bytes=spent("io_written_bytes"),
            diskstats_bytes=disk_bytes,
            diskstats_requests=disk_requests,
            user_s=spent("user_s"),
            host_user_s=spent("host_user_s"),
            system_s=spent("system_s"),
            host_system_s=spent("host_system_s"),
            waited_s=spent("waited_s"),
            stolen_s=spent("stolen_s"),
            gate_s=end.reached_s - start.opened_s if start and end else None,
            checking_s=checking_s,
        )


def _ending_of(error: OutcoreError) -> Ending:
    """Convert an error before the worker's start to an ending."""
    if isinstance(error, BudgetError):
        return Ending("oom", str(error), error)
    return Ending(
        "unsupported" if isinstance(error, HostError | InputError) else "failed",
        str(error),
        error,
    )


def _as_json(content: dict[str, Any]) -> dict[str, Any]:
    """Convert to the form of `record.json`: tuples to lists, keys to text."""
    return json.loads(json.dumps(content))  # type: ignore[no-any-return]


def _preprocess(seen: RunObserver, partition: MadePartition | None) -> Preprocess:
    """Return the cost of the preparation; partitioning counts in `made_s` if an earlier
    run made it."""
    if seen.prepared is None:
        return Preprocess()
    reported = seen.prepared.model_dump(include=set(Preprocess.model_fields))
    if partition is not None:
        for name in ("made_s",) if partition.reused else ("seconds", "planning_s"):
            reported[name] += partition.seconds
    reached = seen.gate("prepared")
    return Preprocess(
        **reported,
        gate_s=reached.reached_s - seen.planned
        if reached and seen.planned is not None
        else None,
    )
