"""Runner of a check: cases in child processes that may crash or hang, rules, then SIGTERM and the memory cap."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

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
        chosen = [Case(**{**asdict(case), "options": options}) for case in chosen]
    base = Path(tempfile.mkdtemp(prefix="outcore-check-", dir=folder or _disk_folder()))
    try:
        observations = observe(name, base, chosen, progress, case_limit_s)
        results = judge(observations, faithful)
        progress("SIGTERM")
        results.append(_check_term(name, base, chosen[0], case_limit_s))
        if not quick:
            from harness.check.capped import check_memory

            progress("memory under a cap")
            results.append(check_memory(name, base, options or {}))
        return results
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _disk_folder() -> Path | None:
    """Return /var/tmp if it is writable: /tmp is in memory on many machines, without direct I/O."""
    disk = Path("/var/tmp")
    return disk if disk.is_dir() and os.access(disk, os.W_OK) else None


def observe(
    name: str, folder: Path, chosen: Sequence[Case], progress: Progress, case_limit_s: float
) -> list[Observation]:
    """Drive all cases; after a crash or a hang, continue with the next case in a new process.

    Args:
        case_limit_s: seconds after which a case counts as hung.
    """
    found: list[Observation] = []
    left = list(chosen)
    while left:
        done = _observe_in_child(name, folder, left, progress, case_limit_s)
        found.extend(done)
        left = left[len(done) :]
    return found


def _observe_in_child(
    name: str, folder: Path, chosen: Sequence[Case], progress: Progress, case_limit_s: float
) -> list[Observation]:
    """Return the observations of one process: of all cases, or up to and including a crash or a hang."""
    found: list[Observation] = []
    spec = {"system": name, "folder": str(folder), "cases": [asdict(case) for case in chosen]}
    with tempfile.TemporaryFile() as log:
        child = _start(spec, log)
        try:
            lines = _Lines(child)
            while len(found) < len(chosen):
                line = lines.read(case_limit_s)
                if line is None:
                    case = chosen[len(found)]
                    found.append(_crash(child, case, lines.ended, case_limit_s, log))
                    break
                content = json.loads(line)
                if "start" in content:
                    progress(content["start"])
                else:
                    found.append(Observation.parse(content))
        finally:
            _end(child)
    return found


def _start(spec: dict[str, Any], log: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path[1:]])}  # noqa: PTH109
    command = [sys.executable, "-m", "harness.check.child", json.dumps(spec)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


def _crash(child: subprocess.Popen[bytes], case: Case, ended: bool, limit_s: float, log: Any) -> Observation:
    if ended:
        code = child.wait()
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    else:
        how = f"hung for {limit_s:.0f} s"
    log.seek(0)
    tail = log.read().decode(errors="replace").strip().splitlines()[-1:] if ended else []
    return Observation(case.name, case.kind, crashed=True, error=" ".join([how, *tail])[:400])


class _Lines:
    """Lines of a child's stdout, with a time limit for each."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        self._descriptor = child.stdout.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._descriptor, selectors.EVENT_READ)
        self._buffer = b""
        self.ended = False

    def read(self, limit_s: float) -> str | None:
        """Return the next line; None at the end of the output or after `limit_s` seconds."""
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                return None
            part = os.read(self._descriptor, 1 << 16)
            if not part:
                self.ended = True
                return None
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode()


def _check_term(name: str, folder: Path, case: Case, case_limit_s: float) -> CheckResult:
    """Check that SIGTERM in mid-epoch ends the process within 5 s."""
    title = "SIGTERM ends it"
    case = Case(**{**asdict(case), "batch_size": 5})
    spec = {"system": name, "folder": str(folder), "endless": asdict(case)}
    with tempfile.TemporaryFile() as log:
        child = _start(spec, log)
        try:
            if _Lines(child).read(case_limit_s) != "running":
                return CheckResult(title, False, "it did not get as far as its second mini-batch")
            start = time.monotonic()
            child.terminate()
            try:
                child.wait(TERM_LIMIT_S)
            except subprocess.TimeoutExpired:
                return CheckResult(title, False, f"still there {TERM_LIMIT_S:.0f} s after SIGTERM")
            seconds = time.monotonic() - start
        finally:
            _end(child)
    return CheckResult(title, True, f"after {seconds:.2f} s")
