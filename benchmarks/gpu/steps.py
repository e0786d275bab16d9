"""Steps of a phase: each in a process of its own, its result in the phase's JSON file
at once.

A CUDA error spoils its whole process and a kernel may hang, so a step that fails or
takes too long ends alone, and the others run. A phase that was cut off goes on where it
stopped; steps that were done by the same code on the same device are kept.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.atomic import whole_file
from harness.records.environment import code

Result = dict[str, Any]
DEAD_S = 10.0  # seconds that a step has to end after SIGTERM
LEAST_S = 5.0  # a step is not started with less time left
HOST_LACKS = 3  # exit code of a step that this host cannot do
LIMIT = "OUTCORE_STEP_S"  # variable that gives a step its seconds


@dataclass(frozen=True)
class Setting:
    """Device (`cuda`, `cuda:1`, or `emulated:NAME` to try the phases without a GPU) and
    folder of the results."""

    device: str
    folder: Path

    @property
    def real(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")


@dataclass(frozen=True)
class Step:
    """One step of a phase.

    Attributes:
        run: returns the result, as JSON. Its `targets` are judged; a list `faults` that
            is not empty is a failure.
        limit_s: seconds after which it is ended.
        environment: variables of its process.
    """

    name: str
    run: Callable[[Setting], Result]
    limit_s: float = 120.0
    environment: dict[str, str] = field(default_factory=dict)


def target(
    what: str,
    value: float | None,
    *,
    least: float | None = None,
    most: float | None = None,
) -> Result:
    """Return a number beside the bound that it has to keep; None: it could not be
    measured."""
    kept = (
        value is not None
        and (least is None or value >= least)
        and (most is None or value <= most)
    )
    bound = {"least": least} if least is not None else {"most": most}
    return {"what": what, "value": value, **bound, "ok": kept}


def run_phase(
    name: str,
    steps: Sequence[Step],
    setting: Setting,
    *,
    limit_s: float,
    jobs: int,
    again: bool,
) -> bool:
    """Run the steps of a phase, at most `limit_s` seconds in all; return whether all
    were done and kept their targets.

    Args:
        name: name of the phase, and of its file `NAME.json` in the folder of the
            results.
        steps, setting: the steps, and device and folder.
        limit_s: seconds; steps left over run when the phase is started again.
        jobs: steps that run at the same time.
        again: whether steps that are done already run again.
    """
    journal = Journal(name, setting, again)
    left = [step for step in steps if not journal.done(step.name)]
    if kept := len(steps) - len(left):
        print(f"{name}: {kept} steps were done before (--again repeats them)")
    deadline = time.monotonic() + limit_s

    def work(step: Step) -> None:
        journal.add(step.name, run_step(name, step, setting, deadline))

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, left))
    return journal.close(steps)


def command(phase: str, step: Step, setting: Setting, answer: Path) -> list[str]:
    """Return the command that runs a step and writes its result to `answer`."""
    call = [
        sys.executable,
        "-P",
        "-m",
        "gpu",
        phase,
        "--step",
        step.name,
        "--answer",
        str(answer),
    ]
    return [*call, "--device", setting.device, "--out", str(setting.folder)]


def run_step(
    phase: str,
    step: Step,
    setting: Setting,
    deadline: float,
    make: Callable[..., list[str]] = command,
) -> Result:
    """Run a step in a process of its own; return its entry of the journal.

    Args:
        phase, step, setting: phase and step, and device and folder.
        deadline: monotonic second at which the phase ends.
        make: returns the process's command, as `command` does.
    """
    limit_s = min(step.limit_s, deadline - time.monotonic())
    if limit_s < LEAST_S:
        return {"status": "no time left", "seconds": 0.0}
    logs = setting.folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{phase}-{step.name.replace(' ', '-')}.log"
    answer = log.with_suffix(".json")
    answer.unlink(missing_ok=True)
    began = time.monotonic()
    with log.open("wb") as out:
        # In the folder of the results: the modules of a checkout must not hide those of
        # an installed wheel.
        environment = {**os.environ, **step.environment, LIMIT: str(limit_s)}
        process = subprocess.Popen(
            make(phase, step, setting, answer),
            env=environment,
            cwd=setting.folder,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            code_ = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code_ = None
        finally:
            _end(process)
    entry: Result = {
        "status": "ok",
        "seconds": round(time.monotonic() - began, 2),
        "log": str(log),
    }
    if code_ is None:
        status = (
            "too slow" if limit_s == step.limit_s else "no time left"
        )  # the phase's end, not its own
        return entry | {"status": status, "error": f"ended after {limit_s:.0f} s"}
    try:
        result: Result = json.loads(answer.read_text())
    except (OSError, ValueError):
        how = f"died of {signal.Signals(-code_).name}: " if code_ < 0 else ""
        last = (log.read_text(errors="replace").strip().splitlines() or ["no output"])[
            -1
        ]
        return entry | {
            "status": "left out" if code_ == HOST_LACKS else "failed",
            "error": how + last[:400],
        }
    failed = bool(result.get("faults")) or not all(
        one["ok"] for one in result.get("targets", [])
    )
    return entry | {"status": "failed" if failed else "ok", "result": result}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a step's process with all that it started."""
    for what, seconds in ((signal.SIGTERM, DEAD_S), (signal.SIGKILL, DEAD_S)):
        if process.poll() is not None and what == signal.SIGTERM:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, what)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


class Journal:
    """The file of a phase, written whole after every step; any thread may add to it."""

    def __init__(self, phase: str, setting: Setting, again: bool) -> None:
        self.path = setting.folder / f"{phase}.json"
        self._lock = threading.Lock()
        self._again = again
        self._code = code()
        self.content: Result = {
            "phase": phase,
            "device": setting.device,
            "complete": False,
            "steps": {},
        }
        with suppress(OSError, ValueError, KeyError):
            before = json.loads(self.path.read_text())
            if before["device"] == setting.device:
                self.content["steps"] = before["steps"]

    def done(self, name: str) -> bool:
        """Return whether a step was done before by this code, which has to be
        committed."""
        entry = self.content["steps"].get(name, {})
        same = (
            all(entry.get(key) == self._code[key] for key in ("commit", "dirty"))
            and self._code["dirty"] is False
        )
        return same and entry["status"] == "ok" and not self._again

    def add(self, name: str, entry: Result) -> None:
        """Write a step's entry, and print it in one line."""
        with self._lock:
            self.content["steps"][name] = entry | self._code
            self._write()
            print(
                f"{entry['status']:12}  {name}  ({entry['seconds']:.1f} s)", flush=True
            )
            for line in _said(entry):
                print(f"    {line}", flush=True)

    def close(self, steps: Sequence[Step]) -> bool:
        """Mark the phase as complete if every step has an answer; return whether all
        went well."""
        statuses = [
            self.content["steps"].get(step.name, {}).get("status") for step in steps
        ]
        self.content["complete"] = not set(statuses) & {None, "no time left"}
        self._write()
        print(f"{self.path}: {statuses.count('ok')} of {len(steps)} steps ok")
        return set(statuses) <= {"ok", "left out"}

    def _write(self) -> None:
        with whole_file(self.path, "the results") as path:
            path.write_text(json.dumps(self.content, indent=1) + "\n")


def _said(entry: Result) -> list[str]:
    """Return lines about a step: its error, faults and targets."""
    result = entry.get("result", {})
    lines = [entry["error"]] if "error" in entry else []
    lines += list(result.get("faults", []))
    for one in result.get("targets", []):
        value = "not measured" if one["value"] is None else f"{one['value']:.3g}"
        bound = (
            f"at least {one['least']:g}"
            if "least" in one
            else f"at most {one['most']:g}"
        )
        lines.append(
            f"{'kept' if one['ok'] else 'MISSED'}: {one['what']}: {value}, {bound}"
        )
    return lines
