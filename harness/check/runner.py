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
from harness.isolation.docker.foreign import is_faithful
from harness.settings import check_options
from systems.registry import load

CASE_LIMIT_S = 60.0
TERM_LIMIT_S = 5.0

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
            from harness.check.capped import check_memory

            progress("memory under a cap")
            results.append(check_memory(name, base, options or {}))
        return results


def observe(
    name: str, folder: Path, chosen: Sequence[Case], progress: Progress, case_limit_s: float
) -> list[Observation]:
    """Drive all cases; after a crash, or a hang of `case_limit_s`, continue with the next in a new process."""
    found: list[Observation] = []
    while left := chosen[len(found) :]:
        with _child(name, folder, left) as (process, messages, log):
            for case in left:
                try:
                    progress(_received(messages, case_limit_s).name)
                    found.append(_received(messages, case_limit_s))
                except TimeoutError:
                    found.append(_crash(case, f"hung for {case_limit_s:.0f} s"))
                    break
                except (EOFError, OSError):
                    code = process.wait()
                    how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                    log.seek(0)
                    tail = log.read().decode(errors="replace").strip().splitlines()[-1:]
                    found.append(_crash(case, " ".join([how, *tail])))
                    break
    return found


def _crash(case: Case, how: str) -> Observation:
    return Observation(case.name, case.kind, crashed=True, error=how[:400])


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
