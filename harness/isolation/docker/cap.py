"""Cap that is a container: started with the first command, ended as a whole, and read
from the host. The container's first process waits for input from this process: however
the orchestrator dies, the kernel closes the stream, and the container ends. `docker
exec` puts a command beside it, inside the container's cgroups before the command
begins."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.isolation import mounts
from harness.isolation.base import Cap, IoStats, MemoryStats, ProcessorTime
from harness.isolation.cgroup1 import V1Readings
from harness.isolation.cgroup2 import V2Readings
from harness.isolation.docker.engine import asking
from harness.isolation.docker.image import find
from harness.isolation.docker.options import Wanted
from harness.isolation.files import read_text
from harness.isolation.groups import OomWatch, Readings
from harness.isolation.walls.needs import Needs
from harness.isolation.walls.sandbox import WALLS, Walls
from workloads.errors import HostError

_END_SECONDS = 20.0
# The engine records an OOM by an event of its own, which may come after the one of the
# container's end.
_OOM_EVENT_SECONDS = 1.0
_WAIT = ["/bin/sh", "-c", "read line"]


class DockerCap(Cap):
    """Cap that is a container; `bring` and `set_memory` change its options `wanted`."""

    named_pipes = True

    def __init__(
        self, client: Any, wanted: Wanted, caveats: Sequence[str] = ()
    ) -> None:
        self.caveats = list(caveats)
        self._client = client
        self._wanted = wanted
        self._container: Any = None
        self._input: Any = None
        self._groups: Readings | None = None
        self._state: dict[str, Any] = {}
        self._asked_to_end = False
        self._lock = threading.RLock()
        self._watch: OomWatch | None = None

    @property
    def first_pid(self) -> int:
        """Host pid of the process that waits in the container."""
        return int(self._container.attrs["State"]["Pid"])

    def bring(self, needs: Needs) -> None:
        """Declare what the work needs, before the first command. Raises HostError: the
        image of the work is missing."""
        self._wanted.needs = needs
        if needs.image:
            self._wanted.image = find(self._client, needs.image)

    def walls(self) -> Walls:
        """Return the walls that the engine's own options make."""
        return Walls(kind=f"Docker {self._wanted.engine}".strip(), walls=WALLS)

    def worker_command(self, argv: Sequence[str]) -> tuple[list[str], list[int]]:
        """Return `argv` as `command` does: a container has its walls from the
        engine."""
        return self.command(argv), []

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return `argv` behind a local process that runs it in the container; start the
        container if it is not up. Raises HostError: the engine refuses. Raises
        InputError: a folder that the work needs is missing."""
        self._start()
        folder = Path.cwd()
        inside = (
            str(folder)
            if any(folder.is_relative_to(shown) for shown, _ in self._wanted.mounts())
            else "/"
        )
        carried = [str(self._container.id), inside, *self._wanted.image.argv(argv)]
        return [sys.executable, "-m", "harness.isolation.docker.exec", *carried]

    def memory(self) -> MemoryStats:
        """Return the memory of the container now; the last reading once it is gone."""
        return MemoryStats() if self._groups is None else self._groups.memory()

    def io(self) -> IoStats | None:
        """Return device I/O charged to the container; the last reading once it is
        gone."""
        return None if self._groups is None else self._groups.io()

    def processor_s(self) -> ProcessorTime | None:
        """Return the processor time charged to the container."""
        return None if self._groups is None else self._groups.processor_s()

    def pressure(self) -> tuple[int | None, int | None]:
        """Return microseconds stalled on (I/O, memory), where the kernel counts them by
        group (v2)."""
        return (None, None) if self._groups is None else self._groups.pressure()

    def pids(self) -> list[int]:
        """Return the host pids of the work's processes, without the one that waits."""
        return (
            []
            if self._groups is None
            else [pid for pid in self._groups.pids() if pid != self.first_pid]
        )

    def enclosing_bytes(self) -> int | None:
        """Return the least memory limit of the groups above the container's; None
        before its start."""
        return None if self._groups is None else self._groups.enclosing_bytes()

    def set_memory(self, limit_bytes: int | None) -> None:
        """Change the limit of memory, and of memory with swap. Raises HostError: the
        engine refuses."""
        self._wanted.limits = replace(self._wanted.limits, memory_bytes=limit_bytes)
        if self._container is not None:
            with asking(f"limit memory to {limit_bytes} bytes"):
                self._container.update(**self._wanted.memory_options())

    def reset_peak(self) -> bool:
        """Restart the peak from the present usage, which needs root; return whether it
        was done."""
        return self._groups is not None and self._groups.reset_peak()

    def kill(self) -> None:
        """Kill everything inside and wait; the readings of the last moment stay."""
        with self._lock:
            self._asked_to_end = self._asked_to_end or not self._ended()
            self._end()

    def ending(self) -> str:
        """Return why the container ended without a request of this process; empty while
        it runs."""
        if self._container is None or self._asked_to_end or not self._ended():
            return ""
        return (
            "its container was ended from outside (exit code "
            f"{self._state.get('ExitCode', 'unknown')})"
        )

    def close(self) -> None:
        """End and remove the container; the last readings stay readable. Raises
        HostError: the engine refuses."""
        import docker.errors

        with self._lock:
            if self._container is None:
                return
            self.kill()
            if self._input is not None:
                self._input.close()
                self._input = None
            with asking("remove a container"), suppress(docker.errors.NotFound):
                self._container.remove(force=True, v=True)
        if self._watch is not None:
            self._watch.end()

    def _start(self) -> None:
        with self._lock:
            if self._container is not None:
                if self._ended():
                    raise HostError(
                        "the run's container has ended already", "start the run again"
                    )
                return
            options = self._wanted.options()
            with asking("make a container"):
                self._container = self._client.containers.create(
                    self._wanted.image.name, _WAIT, **options
                )
            try:
                with asking("start a container"):
                    self._input = self._container.attach_socket(
                        params={"stdin": 1, "stream": 1}
                    )
                    self._container.start()
                    self._container.reload()
                self._groups = readings_of(self.first_pid)
            except BaseException:
                with suppress(HostError):
                    self.close()
                self._container = None
                raise
            self._watch = OomWatch(lambda: self.memory().oom_kills, self.kill)

    def _ended(self) -> bool:
        """Return whether the container has ended; keep the engine's final state in that
        case."""
        if self._container is None or self._state:
            return bool(self._state)
        if (
            read_text(Path(f"/proc/{self.first_pid}/cgroup")).find(self._container.id)
            >= 0
        ):
            return False
        self._keep_state()
        return True

    def _end(self) -> None:
        import docker.errors

        if self._container is None or self._groups is None or self._state:
            return
        self._groups.memory()
        self._groups.io()
        self._groups.drop_cache()
        with suppress(docker.errors.APIError):  # it may have ended by itself
            self._container.kill()
        self._keep_state()

    def _keep_state(self) -> None:
        """Wait for the engine's final state and keep it: it reports an OOM that the
        removed cgroup no longer can."""
        deadline = time.monotonic() + _END_SECONDS
        while True:
            try:
                with asking("look at a container"):
                    self._container.reload()
            except HostError:
                self._state = {
                    "ExitCode": 128 + signal.SIGKILL
                }  # removed by another process
                break
            state = self._container.attrs["State"]
            now = time.monotonic()
            if (
                not state["Running"]
                and deadline - now > _OOM_EVENT_SECONDS
                and self._may_be_oom(state)
            ):
                deadline = now + _OOM_EVENT_SECONDS
            elif now > deadline or not (state["Running"] or self._may_be_oom(state)):
                self._state = dict(state)
                break
            time.sleep(0.01)
        if self._groups is not None:
            self._groups.release(int(bool(self._state.get("OOMKilled"))))

    def _may_be_oom(self, state: dict[str, Any]) -> bool:
        """Return whether a container was killed by something else than this process,
        and not yet for memory."""
        killed = state["ExitCode"] == 128 + signal.SIGKILL
        return killed and not self._asked_to_end and not state["OOMKilled"]


def readings_of(pid: int, proc: Path = Path("/proc")) -> Readings:
    """Return the counters of the container with host process `pid`. Only resetting a
    peak needs a privilege: root. Raises HostError: the container's cgroup is not
    visible here."""
    own = mounts.groups_of(proc, pid)
    memory = mounts.v1("memory", proc)
    blkio = mounts.v1("blkio", proc)
    unified = mounts.v2(proc)
    if memory is not None:
        io = _folder(blkio.mount, own.get("blkio", "")) if blkio else None
        cpuacct = mounts.v1("cpuacct", proc)
        processors = _folder(cpuacct.mount, own.get("cpuacct", "")) if cpuacct else None
        return V1Readings(_folder(memory.mount, own.get("memory", "")), io, processors)
    if unified is None:
        raise HostError(
            "no cgroup is mounted here", "mount -t cgroup2 none /sys/fs/cgroup"
        )
    return V2Readings(_folder(unified.mount, own.get("", "")))


def _folder(mount: Path, path: str) -> Path:
    folder = Path(os.path.normpath(mount / path.lstrip("/")))
    if path in ("", "/") or not folder.is_dir():
        message = (
            "the container's cgroup cannot be seen from here: the engine runs in "
            "another machine or container"
        )
        raise HostError(message, "run Outcore on the host of the engine")
    return folder
