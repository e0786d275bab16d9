"""Runner of a check: cases in child processes that may crash or hang, rules, then SIGTERM and the memory cap."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from harness.check.case import Case, Observation, cases
from harness.check.rules import CheckResult, judge
from harness.check.stage import make_dataset
from harness.isolation.docker.foreign import is_faithful
from harness.plan.experiment import PlannedRun, resolve
from harness.records.record import Record
from harness.run.launch import PLAN_REFUSED
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.settings import RunSettings, check_options, strict
from systems.registry import load
from workloads.errors import HostError, OutcoreError

CASE_LIMIT_S = 60.0
TERM_LIMIT_S = 5.0
MEMORY = "memory as planned (`outcore rules 4`)"
# The feature table is several times the slack of rule 4, so that a system that holds it in memory fails.
_CASE = Case("capped", nodes=240_000, edges=1_000_000, train=2_000, dim=128, batch_size=20)
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
    progress: Progress = lambda text: None,
    case_limit_s: float = CASE_LIMIT_S,
    only: Callable[[Case], bool] = lambda case: True,
) -> list[CheckResult]:
    """Check a system and return one result per rule.

    Args:
        name: name of a system of this repository, or `package.module:Class`.
        quick: fewer dimensions and fan-outs, no capped run; under 20 s.
        options: options of the system, for all cases.
        folder: parent of the temporary folder; by default /var/tmp, since direct I/O needs a disk.
        progress: called with the name of each case.
        case_limit_s: seconds after which a case counts as hung.
        only: filter of the cases.

    Raises:
        InputError: unknown system or option, or an option has an invalid value.
        HostError: a library of the system is not installed.
    """
    system = load(name)
    faithful = is_faithful(name, check_options(name, options or {}))
    system.load_libraries()
    chosen = [case for case in cases(system.info.devices, quick, system.info.faithful) if only(case)]
    if options:
        chosen = [replace(case, options=options) for case in chosen]
    # /tmp is in memory on many machines, without direct I/O.
    disk = Path("/var/tmp")
    parent = folder or (disk if os.access(disk, os.W_OK) else None)
    with tempfile.TemporaryDirectory(prefix="outcore-check-", dir=parent, ignore_cleanup_errors=True) as temporary:
        base = Path(temporary)
        results = judge(observe(name, base, chosen, progress, case_limit_s), faithful)
        progress("SIGTERM")
        results.append(_check_term(name, base, chosen[0], case_limit_s))
        if not quick:
            progress("memory under a cap")
            results.append(check_memory(name, base, options or {}))
        return results


def observe(name: str, folder: Path, chosen: Sequence[Case], progress: Progress, limit_s: float) -> list[Observation]:
    """Drive all cases; after a crash, or a hang of `limit_s`, continue with the next in a new process."""
    found: list[Observation] = []
    while left := chosen[len(found) :]:
        with _child(name, folder, left) as (process, messages, log):
            for case in left:
                try:
                    progress(_received(messages, limit_s).name)
                    found.append(_received(messages, limit_s))
                    continue
                except TimeoutError:
                    how = f"hung for {limit_s:.0f} s"
                except (EOFError, OSError):
                    code = process.wait()
                    how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                    log.seek(0)
                    how = " ".join([how, *log.read().decode(errors="replace").strip().splitlines()[-1:]])
                found.append(Observation(case.name, case.kind, crashed=True, error=how[:400]))
                break
    return found


@contextmanager
def _child(
    name: str, folder: Path, chosen: Sequence[Case], *, endless: bool = False
) -> Iterator[tuple[subprocess.Popen[bytes], Connection[Any, Any], IO[bytes]]]:
    """Start a process that drives cases and end it afterwards; yield it with the connection to it and its output."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path[1:]])}  # noqa: PTH109
    ours, theirs = Pipe()
    with tempfile.TemporaryFile() as log, ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "harness.check.child", str(theirs.fileno())],
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            ours.send((name, folder, list(chosen), endless))
            yield process, ours, log
        finally:
            process.kill()
            process.wait()


def _received(messages: Connection[Any, Any], limit_s: float) -> Any:
    """Return the next message of a child. Raises EOFError where it ended, TimeoutError after `limit_s` seconds."""
    if not messages.poll(limit_s):
        raise TimeoutError
    return messages.recv()


def _check_term(name: str, folder: Path, case: Case, case_limit_s: float) -> CheckResult:
    """Check that SIGTERM in mid-epoch ends the process within 5 s."""
    title = "SIGTERM ends it"
    with _child(name, folder, [replace(case, batch_size=5)], endless=True) as (process, messages, _):
        try:
            _received(messages, case_limit_s)
        except (EOFError, OSError):
            return CheckResult(title, False, "it did not get as far as its second mini-batch")
        start = time.monotonic()
        process.terminate()
        try:
            process.wait(TERM_LIMIT_S)
        except subprocess.TimeoutExpired:
            return CheckResult(title, False, f"still there {TERM_LIMIT_S:.0f} s after SIGTERM")
        return CheckResult(title, True, f"after {time.monotonic() - start:.2f} s")


def check_memory(name: str, folder: Path, options: dict[str, Any]) -> CheckResult:
    """Run a system once under a cap, with a budget of 32 MiB for a feature table of 117 MiB, and judge its memory.

    On a host that cannot prove a cap the check passes, with `skipped` and the reason as its detail.
    """
    system, dataset = load(name), make_dataset(folder / "capped", _CASE)
    emulated = {"device": "emulated:instant", "device_memory": "16MiB"}
    tier = {"device": "cpu"} if "cpu" in system.info.devices else emulated
    settings = {**_SETTINGS, **tier, "options": options, "dataset": dataset.name}
    try:
        with Series(folder / "results", dataset.path.parent) as series:
            if not series.availability.proves_memory:
                return CheckResult(MEMORY, True, f"skipped: isolation {series.isolation.name} proves no memory cap")
            planned = PlannedRun(name, strict(RunSettings, settings, ""))
            config = resolve(planned, series.data_root, series.isolation.name)
            series.prepare([config], dataset)
            record = execute(series, config, dataset)
    except HostError as error:
        return CheckResult(MEMORY, True, f"skipped: {error}")
    except OutcoreError as error:
        return CheckResult(MEMORY, False, str(error))
    return judge_record(record, loads_everything=system.loads_everything(system.info.options.model_validate(options)))


def judge_record(record: Record, *, loads_everything: bool) -> CheckResult:
    """Judge a run by rule 4; the plan of a system that loads the whole table has to refuse the budget (`oom`)."""
    if loads_everything:
        refused = record.status == "oom" and record.reason.startswith(PLAN_REFUSED)
        return CheckResult(MEMORY, refused, f"ended as {record.status}, a plan that refuses is its right answer")
    if record.status != "ok":
        return CheckResult(MEMORY, False, f"ended as {record.status}: {record.reason}")
    found = (CheckResult(MEMORY, one.ok, one.detail) for one in record.verdict_rules if one.name == "memory_as_asked")
    return next(found, CheckResult(MEMORY, False, "the run has no verdict on its memory"))
