"""Runner of a check: cases in child processes that may crash or hang, rules, then
SIGTERM and the memory cap."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness.check.case import TIERS, Case, Observation, cases, left_out
from harness.check.rules import RUNS, CheckResult, judge
from harness.check.stage import make_dataset
from harness.foreign.systems import is_faithful
from harness.plan.experiment import PlannedRun, resolve
from harness.records.record import Record
from harness.results.store import WORKER_LOG, runs_folder
from harness.run.launch import PLAN_REFUSED
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.settings import RunSettings, check_options, strict
from systems.registry import load
from workloads.accelerators.make import make_accelerator
from workloads.accelerators.pool import HIDDEN
from workloads.errors import HostError, InputError, OutcoreError, require

CASE_LIMIT_S = 60.0
TERM_LIMIT_S = 5.0
TERM = "SIGTERM ends it"
MEMORY = "memory as planned (`outcore rules 4`)"
#: Logs of a check, in the folder for them: output and tracebacks of all cases; the
#: worker of the capped run.
CASES_LOG = "cases.log"
CAPPED_LOG = "capped.log"
_FIXES = {
    TERM: "leave SIGTERM alone: it ends the main thread by SystemExit; other threads "
    "end in `close()`",
    MEMORY: "list every buffer in `plan()`, end it by `Plan.require`, and hold no more "
    "than the plan says",
}
# The feature table is several times the slack of rule 4, so that a system that holds it
# in memory fails.
_CASE = Case(
    "capped", nodes=240_000, edges=1_000_000, train=2_000, dim=128, batch_size=20
)
_SETTINGS = {
    "memory": "+32MiB",
    "fanout": list(_CASE.fanout),
    "batch_size": _CASE.batch_size,
    "max_batches": 60,
    "epochs": 2,
    "warmup": 1,
    "hidden": 16,
    "timeout": "120s",
}

Progress = Callable[[str], None]


def check_system(
    name: str,
    *,
    quick: bool = False,
    options: dict[str, Any] | None = None,
    folder: Path | None = None,
    logs: Path | None = None,
    progress: Progress = lambda text: None,
    case_limit_s: float = CASE_LIMIT_S,
    only: Callable[[Case], bool] = lambda case: True,
    device: str = "",
) -> list[CheckResult]:
    """Check a system and return one result per rule, and one for each group of cases
    that is left out.

    Args:
        name: a system's name, or `package.module:Class`.
        quick: fewer dimensions and fan-outs, and a shorter capped run.
        options: options of the system, for all cases.
        folder: parent of the temporary folder; by default /var/tmp, since direct I/O
            needs a disk.
        logs: folder in which the logs of broken promises are kept; None: none are.
        progress: called with the name of each case.
        case_limit_s: seconds after which a case counts as hung.
        only: filter of the cases.
        device: the device of all cases; empty for the processor, `emulated:late`, and
            `cuda` where the host has it.

    Raises:
        InputError: unknown system, option or device, or an option has an invalid value,
            or the system does not support the device.
        HostError: a library of the system is not installed, or the device is not there.
    """
    system = load(name)
    if device:
        _check_device(name, device, system.info.devices)
    faithful = is_faithful(name, check_options(name, options or {}))
    system.load_libraries()
    chosen = [
        case
        for case in cases(system.info.devices, quick, system.info.faithful, device)
        if only(case)
    ]
    if options:
        chosen = [replace(case, options=options) for case in chosen]
    # /tmp is in memory on many machines, without direct I/O.
    disk = Path("/var/tmp")
    parent = folder or (disk if os.access(disk, os.W_OK) else None)
    with tempfile.TemporaryDirectory(
        prefix="outcore-check-", dir=parent, ignore_cleanup_errors=True
    ) as temporary:
        base = Path(temporary)
        log = base / CASES_LOG
        results = judge(
            observe(name, base, chosen, log, progress, case_limit_s), faithful
        )
        for what, why in left_out(
            system.info.devices, system.info.faithful, device
        ).items():
            results.append(CheckResult(what, True, why, judged=False))
        if next(result.ok for result in results if result.name == RUNS):
            progress("SIGTERM")
            results.append(_check_term(name, base, chosen[0], log, case_limit_s))
            progress("memory under a cap")
            results.append(
                check_memory(name, base, options or {}, quick=quick, device=device)
            )
        else:
            results += [
                CheckResult(title, True, "it does not run", judged=False)
                for title in (TERM, MEMORY)
            ]
        return [_with_log(result, base, logs) for result in results]


def _check_device(name: str, device: str, supported: Sequence[str]) -> None:
    """Raise InputError where the device is unknown or the system does not support it,
    HostError where it is missing."""
    message = f"{name} runs on {', '.join(supported)}, not on {device}"
    require(device.partition(":")[0] in supported, message, "give another --device")
    make_accelerator(device, memory_bytes=None if device == "cpu" else 1 << 20).close()


def _with_log(result: CheckResult, base: Path, logs: Path | None) -> CheckResult:
    """Return a result; that of a broken promise has its advice and the path of its log,
    which is kept in `logs`."""
    if result.ok:
        return result
    result = replace(result, fix=result.fix or _FIXES[result.name])
    source = base / (CAPPED_LOG if result.name == MEMORY else CASES_LOG)
    if logs is None or not source.is_file() or source.stat().st_size == 0:
        return result
    try:
        logs.mkdir(parents=True, exist_ok=True)
        return replace(result, log=str(shutil.copy(source, logs)))
    except OSError as error:
        raise InputError.from_os(
            error, f"{logs} cannot be written", "choose another --results-root"
        ) from error


def observe(
    name: str,
    folder: Path,
    chosen: Sequence[Case],
    log: Path,
    progress: Progress,
    limit_s: float,
) -> list[Observation]:
    """Drive all cases, with output to `log`; after a crash, or a hang of `limit_s`, go
    on with the next in a new process."""
    found: list[Observation] = []
    while left := chosen[len(found) :]:
        with _child(name, folder, left, log) as (process, messages):
            for case in left:
                try:
                    progress(_received(messages, limit_s).name)
                    found.append(_received(messages, limit_s))
                    continue
                except TimeoutError:
                    how = f"hung for {limit_s:.0f} s"
                except (EOFError, OSError):
                    code = process.wait()
                    how = (
                        f"died of {signal.Signals(-code).name}"
                        if code < 0
                        else f"ended with exit code {code}"
                    )
                    if code == -signal.SIGSEGV and case.device.startswith("emulated"):
                        how += f" ({HIDDEN})"
                    how = " ".join(
                        [
                            how,
                            *log.read_text(encoding="utf-8", errors="replace")
                            .strip()
                            .splitlines()[-1:],
                        ]
                    )
                found.append(
                    Observation(case.name, case.kind, crashed=True, error=how[:400])
                )
                break
    return found


@contextmanager
def _child(
    name: str, folder: Path, chosen: Sequence[Case], log: Path, *, endless: bool = False
) -> Iterator[tuple[subprocess.Popen[bytes], Connection[Any, Any]]]:
    """Start a process that drives cases and end it afterwards; yield it with the
    connection to it. Its output is appended to `log`."""
    search_path = os.pathsep.join([str(Path.cwd()), *sys.path[1:]])
    environment = {**os.environ, "PYTHONPATH": search_path}
    ours, theirs = Pipe()
    with log.open("ab") as out, ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "harness.check.child", str(theirs.fileno())],
                stdout=out,
                stderr=out,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            ours.send((name, folder, list(chosen), endless))
            yield process, ours
        finally:
            process.kill()
            process.wait()


def _received(messages: Connection[Any, Any], limit_s: float) -> Any:
    """Return the next message of a child. Raises EOFError where it ended, TimeoutError
    after `limit_s` seconds."""
    if not messages.poll(limit_s):
        raise TimeoutError
    return messages.recv()


def _check_term(
    name: str, folder: Path, case: Case, log: Path, case_limit_s: float
) -> CheckResult:
    """Check that SIGTERM in mid-epoch ends the process within 5 s."""
    with _child(name, folder, [replace(case, batch_size=5)], log, endless=True) as (
        process,
        messages,
    ):
        try:
            _received(messages, case_limit_s)
        except (EOFError, OSError):
            return CheckResult(
                TERM, False, "it did not get as far as its second mini-batch"
            )
        start = time.monotonic()
        process.terminate()
        try:
            process.wait(TERM_LIMIT_S)
        except subprocess.TimeoutExpired:
            return CheckResult(
                TERM, False, f"still there {TERM_LIMIT_S:.0f} s after SIGTERM"
            )
        return CheckResult(TERM, True, f"after {time.monotonic() - start:.2f} s")


def check_memory(
    name: str,
    folder: Path,
    options: dict[str, Any],
    *,
    quick: bool = False,
    device: str = "",
) -> CheckResult:
    """Run a system once under a cap, with a budget of 32 MiB for a feature table of 117
    MiB, and judge its memory.

    The worker's log is left in `folder`. On a host that cannot prove a cap the check
    passes, with `skipped` and the reason as its detail. `quick`: one epoch instead of
    two, of fewer mini-batches; `device`: empty for the processor where the system
    supports it, else `emulated:late`.
    """
    system = load(name)
    dataset = make_dataset(folder / "capped", _CASE)
    device = device or ("cpu" if "cpu" in system.info.devices else TIERS["emulated"])
    # A GPU's training takes its part of the device memory, an emulated one's none.
    given = "256MiB" if device.startswith("cuda") else "16MiB"
    tier = {"device": device} | ({} if device == "cpu" else {"device_memory": given})
    shorter = {"max_batches": 10, "epochs": 1, "warmup": 0} if quick else {}
    settings = {
        **_SETTINGS,
        **tier,
        **shorter,
        "options": options,
        "dataset": dataset.name,
    }
    try:
        with Series(folder / "results", dataset.path.parent) as series:
            if not series.availability.proves_memory:
                reason = (
                    f"skipped: isolation {series.isolation.name} proves no memory cap"
                )
                return CheckResult(MEMORY, True, reason, judged=False)
            planned = PlannedRun(name, strict(RunSettings, settings, ""))
            config = resolve(planned, series.data_root, series.isolation.name)
            series.prepare([config], dataset, profiled=False)  # no time is judged
            record = execute(series, config, dataset)
            with suppress(FileNotFoundError):
                shutil.copy(
                    runs_folder(series.results_root) / record.run_id / WORKER_LOG,
                    folder / CAPPED_LOG,
                )
    except HostError as error:
        return CheckResult(MEMORY, True, f"skipped: {error}", judged=False)
    except OutcoreError as error:
        return CheckResult(MEMORY, False, str(error))
    return judge_record(
        record,
        loads_everything=system.loads_everything(
            system.info.options.model_validate(options)
        ),
    )


def judge_record(record: Record, *, loads_everything: bool) -> CheckResult:
    """Judge a run by rule 4; the plan of a system that loads the whole table has to
    refuse the budget (`oom`)."""
    if loads_everything:
        refused = record.status == "oom" and record.reason.startswith(PLAN_REFUSED)
        return CheckResult(
            MEMORY,
            refused,
            f"ended as {record.status}, a plan that refuses is its right answer",
        )
    if record.status == "oom" and record.reason.startswith(PLAN_REFUSED):
        fix = (
            "plan for less memory, or, where all rows are loaded by design, return "
            "True from `loads_everything`"
        )
        return CheckResult(MEMORY, False, record.reason, fix)
    if record.status != "ok":
        return CheckResult(MEMORY, False, f"ended as {record.status}: {record.reason}")
    found = (
        CheckResult(MEMORY, one.ok, one.detail)
        for one in record.verdict_rules
        if one.name == "memory_as_asked"
    )
    return next(
        found, CheckResult(MEMORY, False, "the run has no verdict on its memory")
    )
