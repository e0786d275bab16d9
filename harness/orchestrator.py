"""One run from configuration to record: evict, cap, watch, classify, judge, write. Runs outside the cap."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import calibrate, results
from harness.context import Calibration, EpochBoundary, RunContext
from harness.evidence import Evidence
from harness.isolation.base import Cap, IoStats, Limits
from harness.launch import Ending, Worker
from harness.protocol import EpochDone, Event, Gate, Prepared, WorkerSpec
from harness.record import EpochRecord, Memory, Preprocess, Record, RunConfig
from harness.series import Series
from harness.turns import Turn
from systems.interface import StageSpan
from workloads.errors import BudgetError, DataIOError, HostError, InputError, OutcoreError

if TYPE_CHECKING:
    from harness.partitions import MadePartition
    from workloads.dataset import Dataset

Progress = Callable[[str], None]


def new_run_id(config: RunConfig) -> str:
    """Time, system, configuration and round: sorts by time, never collides within a results root."""
    seconds = time.time()
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds)) + f"-{int(seconds * 1000) % 1000:03d}"
    system = re.sub(r"[^A-Za-z0-9+-]", "-", config.system)[-40:]
    return f"{now}-{system}-{config.config_hash[:8]}-r{config.round}"


def execute(
    series: Series,
    config: RunConfig,
    dataset: Dataset,
    progress: Progress = lambda text: None,
    *,
    refuse: bool = False,
    turn: Turn | None = None,
) -> Record:
    """Run `config` and write its record; returns it.

    Args:
        series: the host's side: isolation, profiles, cache, folders.
        config: resolved.
        dataset: the one that `config` names, opened.
        progress: told what is going on, in a few words.
        refuse: raise a mistake of input (a cap below the floor, a plan over budget, a broken dataset) and record
            nothing, as one who waits for this run wants; a sweep records it and goes on.
        turn: held by the caller, given to others between epochs; by default that of the series.

    Raises:
        DataIOError: the record could not be written; nothing is left behind.
    """
    return _Execution(series, config, dataset, progress, refuse, turn or series.turn).run()


class _Execution:
    """The state of one run on the orchestrator's side."""

    def __init__(
        self, series: Series, config: RunConfig, dataset: Dataset, progress: Progress, refuse: bool, turn: Turn
    ) -> None:  # fmt: skip
        self._series = series
        self._config = config
        self._dataset = dataset
        self._progress = progress
        self._refuse = refuse
        self._run_id = new_run_id(config)
        self._seen = Evidence(dataset, series.disk_io, progress)
        self._started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._begin = time.monotonic()
        self._calibration: Calibration | None = None
        self._cap_bytes: int | None = None
        self._budget: int | None = None
        self._telemetry: Any = None
        self._partition: MadePartition | None = None
        self._caveats: list[str] = []
        self._turn = turn

    def run(self) -> Record:
        """Everything, in order; scratch files, cap and shared memory go whatever happens."""
        try:
            folder = Path(tempfile.mkdtemp(prefix=self._series.scratch_prefix, dir=self._series.scratch_root))
        except OSError as error:
            raise DataIOError(
                f"no scratch folder can be made under {self._series.scratch_root}: {error.strerror}",
                path=str(self._series.scratch_root),
                errno=error.errno or 0,
                fix="free some space",
            ) from error
        try:
            reason = self._series.unsupported(self._config)
            if reason:
                return self._finish(Ending("unsupported", reason), None)
            try:
                ending = self._measure(folder)
            except OutcoreError as error:
                ending = _ending_of(error)
            if self._refuse and ending.error is not None and ending.error.exit_code == InputError.exit_code:
                raise ending.error
            return self._finish(ending, folder / results.WORKER_LOG)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _measure(self, folder: Path) -> Ending:
        """Calibrate, evict, then one worker in one cap."""
        series, config = self._series, self._config
        self._partition = series.made_partition(config, self._dataset)
        workload = series.workload(config, self._dataset)
        bounds = calibrate.batch_bounds(config, workload, series.cache)
        scratch = folder / "scratch"
        scratch.mkdir()
        with series.device_pools(config, self._run_id) as pools:
            spec = WorkerSpec(
                mode="run",
                config=config,
                dataset=str(self._dataset.path),
                artefacts=str(series.artefacts(config.system)),
                scratch=str(scratch),
                budget_host=None,
                budget_device=config.device_memory_bytes,
                pools=pools,
                disk=series.disk_plain(config),
                bounds=bounds,
                partition=None if workload.partition is None else str(workload.partition),
            )
            began = time.monotonic()
            self._calibration = calibrate.calibrate(
                config, spec, series.isolation, folder, series.cache, self._progress
            )
            self._cap_bytes, self._budget = calibrate.memory_of(config, self._dataset, self._calibration)
            self._seen.calibrate_s = time.monotonic() - began
            spec = spec.model_copy(update={"budget_host": self._budget})
            self._seen.evict("before", [])
            self._progress("running")
            limits = Limits(memory_bytes=self._cap_bytes, io=series.limits(config))
            with series.isolation.create(self._run_id, limits) as cap:
                return self._watch(cap, spec, folder)

    def _watch(self, cap: Cap, spec: WorkerSpec, folder: Path) -> Ending:
        recorder = self._series.recorder(cap, self._config)
        recorder.start()
        try:
            with Worker(cap, spec, folder, folder / results.WORKER_LOG) as worker:
                self._seen.spawned = worker.started
                ending = worker.watch(self._config.timeout_s, lambda event: self._hear(event, cap))
                self._seen.memory = cap.memory()
        finally:
            self._telemetry = recorder.stop()
        self._caveats += getattr(cap, "caveats", [])
        return ending

    def _hear(self, event: Event, cap: Cap) -> None:
        if isinstance(event, Gate) and event.is_epoch_start:
            self._turn.let_others()
        self._seen.take(event, cap)

    def _finish(self, ending: Ending, log: Path | None) -> Record:
        """Tables, record, metrics, verdict; then the run folder, whole or not at all."""
        from harness.tables import run_tables

        seen = self._seen
        zero = seen.epochs[0].start if seen.epochs else (seen.zero or self._begin)
        tables = run_tables(
            seen.batches, seen.spans, seen.lanes, self._telemetry, seen.epochs, zero, self._config.device_memory_bytes
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
            environment=self._series.environment(),
            memory=self._memory(tables.get("telemetry")),
            preprocess=_preprocess(seen.prepared, self._partition),
            epochs=[self._epoch(epoch, zero) for epoch in seen.epochs],
            disk=_as_json(self._series.disk_record(self._config)),
            compute=_as_json(asdict(self._calibration)) if self._calibration else {},
            overhead=seen.overhead(),
            notes={**ending.notes, **_partition_note(self._partition)},
            caveats=list(dict.fromkeys([*self._series.caveats(self._config), *self._caveats])),
        )
        for entry, accuracy in zip(record.epochs, ending.test_accuracy, strict=False):
            entry.test_accuracy = accuracy
        self._judge(record, tables, zero)
        path = results.write_run(self._series.results_root, record, tables, log=log)
        self._progress(f"{record.status}, {record.verdict}: {path.name}")
        return record

    def _judge(self, record: Record, tables: dict[str, Any], zero: float) -> None:
        from harness.metrics import summarise
        from harness.verdict.registry import judge

        context = self._context(record, tables, zero)
        record.summary, record.class_ = summarise(record, context)
        record.verdict, record.verdict_rules = judge(record, context)
        beaten = any(rule.name == "no_faster_than_the_device" and not rule.ok for rule in record.verdict_rules)
        if beaten and self._series.measure_again(self._config):
            record.disk = _as_json(self._series.disk_record(self._config))
            record.notes["device_profile"] = "measured again after the run, which had beaten it: the better rates count"
            context = self._context(record, tables, zero)
            record.summary, record.class_ = summarise(record, context)
            record.verdict, record.verdict_rules = judge(record, context)

    def _context(self, record: Record, tables: dict[str, Any], zero: float) -> RunContext:
        series, seen = self._series, self._seen
        times = {epoch.epoch: (epoch.start - zero, epoch.end - zero) for epoch in seen.epochs}
        info = series.info(self._config.system)
        return RunContext(
            workload=series.workload(self._config, self._dataset),
            profile=series.profile(self._config),
            bare_profile=series.bare_profile,
            limits=series.limits(self._config),
            io_limited=bool(series.limits(self._config)) and series.availability.io_limits,
            probe=series.probe,
            calibration=self._calibration,
            telemetry=tables.get("telemetry"),
            stages=tables.get("stages"),
            batches=tables.get("batches"),
            spans=[
                StageSpan(span.stage, span.batch, span.thread, span.start - zero, span.end - zero)
                for _, span in seen.spans
            ],
            boundaries=[
                EpochBoundary(**{**vars(boundary), "start": times[boundary.epoch][0], "end": times[boundary.epoch][1]})
                for boundary in seen.boundaries
                if boundary.epoch in times
            ],
            memory_end=seen.memory,
            evictions=seen.evictions,
            isolation=series.isolation.name,
            isolation_caveats=record.caveats,
            proves_memory=series.availability.proves_memory,
            environment=record.environment,
            faithful=series.is_faithful(self._config),
            deterministic_counters=info.deterministic_counters,
            cache=series.cache,
        )

    def _memory(self, telemetry: Any) -> Memory:
        """Memory of the run; what stood at the peak is from the nearest telemetry sample."""
        seen = self._seen
        most = seen.demand()
        demand = most.anon + most.shmem + most.kernel
        peak: dict[str, float] = {}
        if telemetry is not None:
            from harness.telemetry import at_peak

            peak = at_peak(telemetry)
            held = (telemetry["mem_anon"] + telemetry["mem_shmem"]).max()
            if held == held:  # not NaN
                demand = max(demand, int(held) + most.kernel)
        last = seen.evictions[-1] if seen.evictions else None
        calibration = self._calibration
        return Memory(
            cap_bytes=self._cap_bytes,
            floor_bytes=calibration.floor_bytes if calibration else 0,
            training_bytes=calibration.training_bytes if calibration else 0,
            budget_bytes=self._budget,
            peak_bytes=seen.memory.peak,
            page_cache_at_peak_bytes=int(peak.get("mem_page_cache", 0)),
            anon_at_peak_bytes=int(peak.get("mem_anon", 0)),
            demand_peak_bytes=demand,
            resident_before_bytes=last.resident_bytes if last else 0,
            evictable_bytes=last.total_bytes if last else 0,
            oom_kills=seen.memory.oom_kills,
            reclaims=seen.memory.reclaims,
            plan=seen.plan,
        )

    def _epoch(self, epoch: EpochDone, zero: float) -> EpochRecord:
        boundary = next((entry for entry in self._seen.boundaries if entry.epoch == epoch.epoch), None)
        io_bytes, io_requests = _read_between(boundary.io_before, boundary.io_after) if boundary else (None, None)
        disk_bytes, disk_requests = (
            _read_between(boundary.disk_before, boundary.disk_after) if boundary else (None, None)
        )
        return EpochRecord(
            epoch=epoch.epoch,
            warmup=epoch.epoch < self._config.warmup,
            seconds=epoch.end - epoch.start,
            start_s=epoch.start - zero,
            stages_s=epoch.stages_s,
            batches=epoch.batches,
            digest=epoch.digest,
            feature_digest=epoch.feature_digest,
            loss=epoch.loss,
            accuracy=epoch.accuracy,
            device_bytes=disk_bytes if io_bytes is None else io_bytes,
            device_requests=disk_requests if io_requests is None else io_requests,
            diskstats_bytes=disk_bytes,
            diskstats_requests=disk_requests,
            user_s=epoch.user_s,
            host_user_s=boundary.host_user_s if boundary else None,
            counters=epoch.counters,
        )


def _ending_of(error: OutcoreError) -> Ending:
    """What a mistake before the worker began makes of the run."""
    if isinstance(error, BudgetError):
        return Ending("oom", str(error), error)
    return Ending("unsupported" if isinstance(error, HostError | InputError) else "failed", str(error), error)


def _read_between(before: IoStats | None, after: IoStats | None) -> tuple[int | None, int | None]:
    """(bytes, requests) read between two readings, None where either is unknown."""
    if before is None or after is None:
        return None, None
    return after.read_bytes - before.read_bytes, after.read_requests - before.read_requests


def _partition_note(partition: MadePartition | None) -> dict[str, str]:
    if partition is None:
        return {}
    whose = "by an earlier run" if partition.reused else "for this run"
    return {"partition": f"self-reliant, made in {partition.seconds:.3g} s {whose}, outside the cap"}


def _as_json(content: dict[str, Any]) -> dict[str, Any]:
    """As `record.json` has it: tuples as lists, keys as text."""
    return json.loads(json.dumps(content))  # type: ignore[no-any-return]


def _preprocess(prepared: Prepared | None, partition: MadePartition | None) -> Preprocess:
    """What was spent before the first epoch; partitioning counts for the run that made it, or as made by another."""
    if prepared is None:
        return Preprocess()
    spent = partition.seconds if partition is not None and not partition.reused else 0.0
    inherited = partition.seconds if partition is not None and partition.reused else 0.0
    return Preprocess(
        seconds=prepared.seconds + spent,
        made_s=prepared.made_s + inherited,
        bytes_read=prepared.bytes_read,
        bytes_written=prepared.bytes_written,
        reused=prepared.reused,
    )
