"""One worker process inside a cap: spawn it, answer its gates, classify its end."""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.foreign import is_foreign
from harness.foreign.systems import folder_of, image_of
from harness.isolation.base import Cap
from harness.isolation.walls import sandbox
from harness.isolation.walls.needs import Needs
from harness.records.record import Status
from harness.wire.pipes import Pipes, PoolServer
from harness.wire.protocol import (
    Done,
    Event,
    EventReader,
    Failed,
    Gate,
    Order,
    Planned,
    ProtocolError,
    WorkerSpec,
)
from systems.options import Facts
from workloads.accelerators.pool import HIDDEN, INHERITED, DevicePool
from workloads.errors import (
    BudgetError,
    DataIOError,
    DatasetError,
    HostError,
    InputError,
    OutcoreError,
)
from workloads.making.salt import FOLDER as SALT_FOLDER
from workloads.units import format_bytes

PLAN_REFUSED = "the plan does not fit"
_POLL_SECONDS = 0.2
# Folders of a user for which programs have a default below the home folder.
_USER_FOLDERS = frozenset(
    ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
)
_TEMPORARY = "temporary"
_SIGNALLED = 128
_LEAVE_SECONDS = 10.0  # seconds until a worker has to exit after `done` or `error`
_ERRORS: dict[str, type[OutcoreError]] = {
    error.kind: error
    for error in (InputError, DatasetError, BudgetError, HostError, DataIOError)
}


class WorkerError(OutcoreError):
    """Worker that crashed, hung or left before it was done; names the reason."""

    kind = "worker"
    exit_code = 1


@dataclass
class Ending:
    """End of a worker. `error` is set if a user can fix the cause; `test_accuracy` is
    by epoch, `device_peak_bytes` and `device_held_bytes` are by rank; `loaded` are
    files of code in no folder of libraries."""

    status: Status
    reason: str = ""
    error: OutcoreError | None = None
    notes: dict[str, str] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    test_accuracy: list[float] = field(default_factory=list)
    device_peak_bytes: list[int] = field(default_factory=list)
    device_held_bytes: list[int] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)


class Worker:
    """A running worker. Use as a context manager: leaving it kills all processes in the
    cap and closes the pipes. `left_files`: names of its temporary files, after `watch`.
    `ended`: monotonic seconds of its last event, or None.

    Args:
        cap, spec: cap and spec of the worker.
        folder: folder for the spec and pipes.
        log: file to which the worker's output is appended.
        board: name of the worker's progress board; None: without one.
        hidden: folders of data and results, of which the worker sees its own parts
            alone.
    """

    def __init__(
        self,
        cap: Cap,
        spec: WorkerSpec,
        folder: Path,
        log: Path,
        hidden: Sequence[Path] = (),
        board: str | None = None,
    ) -> None:
        self._cap = cap
        # In the folder for temporary files, since a socket's path may have 107
        # characters.
        self._own = tempfile.TemporaryDirectory(
            prefix="outcore-", ignore_cleanup_errors=True
        )
        self._pools: PoolServer | None = None
        self._emulated = spec.config.device.startswith("emulated")
        self._order = Order(
            spec.mode, spec.config.epochs, foreign=is_foreign(spec.config.system)
        )
        self._budget = spec.budget_host
        system = spec.config.system
        ranks = spec.config.ranks
        foreign = folder_of(system)
        inherits = not (cap.named_pipes or is_foreign(system))
        self._pipes = Pipes(folder, named=not inherits)
        handed: list[DevicePool] = []
        descriptors: list[int] = []
        try:
            boards = [board] if board and not is_foreign(system) else []
            if inherits:
                handed = [DevicePool.attach(name) for name in (*spec.pools, *boards)]
                paths = [f"{INHERITED}{pool.descriptor}" for pool in handed]
            else:
                # A container inherits no descriptors.
                self._pools = PoolServer(folder, [*spec.pools, *boards])
                paths = self._pools.paths
            served = len(spec.pools)
            spec = spec.model_copy(update={"pools": paths[:served]})
            boards = paths[served:]
            spec_file = folder / "spec.json"
            spec_file.write_text(spec.model_dump_json(), encoding="utf-8")
            # A process in a container cannot see its parent, and the first process of a
            # sandbox is number 1.
            parent = 0 if cap.named_pipes else 1 if cap.walls().kind else os.getpid()
            arguments = [str(spec_file), *self._pipes.arguments, str(parent), *boards]
            module = (
                ["harness.worker.main"]
                if ranks == 1
                else ["harness.worker.ranks", str(ranks)]
            )
            argv = (
                [sys.executable, "-m", *module]
                if foreign is None
                else foreign.command()
            )
            sources = foreign.needed() if foreign is not None else ()
            partition = [] if spec.partition is None else [Path(spec.partition)]
            own = [] if cap.named_pipes else [Path(self._own.name)]
            # Hidden even where the data root itself is shown, as the current folder or
            # one of code is.
            salts = [
                folder / SALT_FOLDER for folder in (*hidden, Path(spec.dataset).parent)
            ]
            needs = Needs(
                read_only=(Path(spec.dataset), folder, *partition, *sources),
                writable=(Path(spec.artefacts), Path(spec.scratch), *own),
                hidden=(*hidden, *salts),
                gpu=spec.config.device.startswith("cuda"),
                sockets="loopback"
                if ranks > 1
                else "unix"
                if is_foreign(system) or self._pools
                else "none",
                image=image_of(system),
            )
            cap.bring(needs)
            self.started = time.monotonic()
            command, descriptors = cap.worker_command([*argv, *arguments])
            null = subprocess.DEVNULL
            inherited = (
                *self._pipes.inherited,
                *descriptors,
                *(pool.descriptor for pool in handed),
            )
            # A container has a home of its own, and its client needs the user's.
            env = None if cap.named_pipes else _without_past(Path(self._own.name))
            with log.open("ab") as out:
                self._process = subprocess.Popen(
                    command,
                    stdin=null,
                    stdout=out,
                    stderr=out,
                    pass_fds=inherited,
                    start_new_session=True,
                    env=env,
                )
        except BaseException:
            self._close()
            raise
        finally:
            sandbox.close(descriptors)
            for pool in handed:
                pool.close()
        self._pipes.spawned()
        self.ended: float | None = None
        self.left_files: list[str] = []
        self._reader = EventReader(self._pipes.events, self._order)

    def watch(
        self, timeout_s: float, on_event: Callable[[Event], bytes | None]
    ) -> Ending:
        """Pass every event to `on_event` until the worker ends; a gate opens with the
        bytes that `on_event` returns. Time at gates does not count towards the timeout.
        An error of `on_event` is passed on after the worker's end."""
        try:
            return self._ending(timeout_s, on_event)
        except ProtocolError as error:
            return Ending("failed", error.message, error)
        finally:
            self._cap.kill()
            self._wait()
            self.left_files = sorted(
                path.name for path in Path(self._own.name).glob(f"{_TEMPORARY}/*")
            )

    def _ending(
        self, timeout_s: float, on_event: Callable[[Event], bytes | None]
    ) -> Ending:
        """Return the ending by the kernel's OOM counter, else the last event, the cap's
        report or the exit code."""
        deadline = self.started + timeout_s
        last: Done | Failed | None = None
        exited = False
        while last is None and not exited and not self._reader.closed:
            left = deadline - time.monotonic()
            if left <= 0:
                return Ending("timeout", f"not done after {timeout_s:.0f} s")
            exited = self._process.poll() is not None
            for event in self._reader.poll(0.0 if exited else min(left, _POLL_SECONDS)):
                if isinstance(event, Done | Failed):
                    last = event
                    self.ended = time.monotonic()
                    break
                reached = time.monotonic()
                more = on_event(event)
                if (
                    isinstance(event, Planned)
                    and self._budget is not None
                    and event.host_bytes > self._budget
                ):
                    return _failure(
                        Failed(
                            kind=BudgetError.kind,
                            message=_over(event.host_bytes, self._budget),
                        )
                    )
                if isinstance(event, Gate):
                    deadline += time.monotonic() - reached
                    # A worker may die at the gate; the loop detects its end.
                    with suppress(BrokenPipeError):
                        os.write(self._pipes.go, b"g" + (more or b""))
        code = self._wait()
        if self._cap.memory().oom_kills > 0:
            return Ending("oom", "the kernel ended it: out of memory under the cap")
        if isinstance(last, Done):
            return Ending(
                "ok", facts=last.facts, **last.model_dump(exclude={"event", "facts"})
            )
        if isinstance(last, Failed):
            return _failure(last)
        if reason := self._cap.ending():
            return Ending("failed", reason)
        if code is not None and code < 0:
            why = f": {HIDDEN}" if self._emulated and code == -signal.SIGSEGV else ""
            return Ending(
                "failed", f"the worker was ended by {signal.Signals(-code).name}{why}"
            )
        return Ending(
            "failed",
            f"the worker exited with code {code} without an error; see worker.log",
        )

    def _wait(self) -> int | None:
        """Wait for the worker's end; return its exit code, negative after a signal, and
        None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout=_LEAVE_SECONDS)
            # A sandbox ends with 128 and the number of the signal that ended its work.
            return (
                _SIGNALLED - code
                if _SIGNALLED < code < _SIGNALLED + signal.NSIG
                else code
            )
        return None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self._cap.kill()
        # Isolation `none` finds its processes by scanning, which may miss this one; a
        # process that ended is left alone.
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        self._pipes.close()
        if self._pools is not None:
            self._pools.close()
        self._own.cleanup()


def _over(planned: int, budget: int) -> str:
    return (
        f"buffers of {format_bytes(planned)} in host memory are planned of a budget of "
        f"{format_bytes(budget)}"
    )


def _without_past(folder: Path) -> dict[str, str]:
    """Return the environment of a worker: home, caches and temporary files below the
    empty `folder`, so that nothing an earlier run kept there is found. Packages and
    compiled kernels of the user stay where they are."""
    home = folder / "home"
    temporary = folder / _TEMPORARY
    home.mkdir()
    temporary.mkdir()
    kept = {
        name: value for name, value in os.environ.items() if name not in _USER_FOLDERS
    }
    kept.setdefault("PYTHONUSERBASE", site.getuserbase())
    kept.setdefault("CUDA_CACHE_PATH", f"{os.environ.get('HOME', '')}/.nv/ComputeCache")
    return kept | {"HOME": str(home), "TMPDIR": str(temporary)}


def _failure(event: Failed) -> Ending:
    """Convert an `error` event to an ending; memory errors become `oom`, the term of
    the papers."""
    reported: dict[str, Any] = {"notes": event.notes, "facts": event.facts}
    if event.kind == "memory":
        return Ending("oom", event.message, **reported)
    if event.kind not in _ERRORS:
        return Ending("failed", f"{event.message}; see worker.log", **reported)
    error = _ERRORS[event.kind](event.message, fix=event.fix)
    if isinstance(error, BudgetError):
        return Ending("oom", f"{PLAN_REFUSED}: {error}", error, **reported)
    return Ending(
        "unsupported" if isinstance(error, HostError) else "failed",
        str(error),
        error,
        **reported,
    )
