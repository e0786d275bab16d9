"""Cheats that leave the cap (worker, thread or helper process) or raise it, or take
more of the device than planned."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, ClassVar

import numpy.typing as npt
import torch

import harness.judge.registry
import systems.interface
import workloads
from tests.harness.cheats.act import Act, Ids, cheat
from workloads.manifest import MANIFEST_NAME

#: No control group is visible in a sandbox.
HIDDEN = "No such file or directory"
#: The kernel keeps a cap's processes on its processors.
KEPT = "Operation not permitted"


def groups() -> dict[str, Path]:
    """Return this process's cgroups for memory and block I/O by controller (v2: under
    the empty name)."""
    found = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for mount in Path("/proc/self/mounts").read_text().splitlines():
            _, where, kind, options = mount.split()[:4]
            named = controllers.split(",")
            if (
                kind == "cgroup"
                and controllers
                and set(named) & {"memory", "blkio"} & set(options.split(","))
            ) or (kind == "cgroup2" and not controllers):
                found[
                    next((name for name in named if name in ("memory", "blkio")), "")
                ] = Path(where + path)
    return found


def above(group: Path) -> Path:
    """Return the group above the cap's group and the group that all caps share."""
    return group.parent.parent


@cheat("", wall=HIDDEN)
class Escape(Act):
    """Moves itself into another group."""

    def prepare(self) -> None:
        """Leave every group of the cap."""
        for group in groups().values():
            if "outcore" in group.parts:
                (above(group) / "cgroup.procs").write_text(str(os.getpid()))


@cheat("", wall=HIDDEN)
class EscapeForAWhile(Act):
    """Leaves the cap during an epoch and is back before the epoch's end."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read one mini-batch outside the cap."""
        if (epoch, index) != (1, 1):
            return self.system.read(nodes)
        mine = {
            name: group for name, group in groups().items() if "outcore" in group.parts
        }
        for group in mine.values():
            (above(group) / "cgroup.procs").write_text(str(os.getpid()))
        time.sleep(0.4)
        rows = self.system.read(nodes)
        for group in mine.values():
            (group / "cgroup.procs").write_text(str(os.getpid()))
        return rows


@cheat("", wall=HIDDEN)
class ThreadEscape(Act):
    """Moves a thread into a group where its reads are not counted (cgroup v1 moves
    single threads)."""

    def prepare(self) -> None:
        """Start the thread."""
        self._tasks = (above(next(iter(groups().values()))) / "tasks").open("w")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._outside)
        self._thread.start()

    def _outside(self) -> None:
        self._tasks.write(str(threading.get_native_id()))
        self._tasks.flush()
        self._over.wait()

    def close(self) -> None:
        """End the thread."""
        if hasattr(self, "_over"):
            self._over.set()
            self._thread.join()


_DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
for descriptor in sys.argv[1:]:
    os.write(int(descriptor), str(os.getpid()).encode())
time.sleep(60)
"""


@cheat("", wall=HIDDEN)
class HelperOutside(Act):
    """Helper process that is no descendant of the worker, outside the cap."""

    def prepare(self) -> None:
        """Start the helper as a daemon."""
        capped = [group for group in groups().values() if "outcore" in group.parts]
        # Opened here, so that a wall fails the run: nobody waits for the daemon.
        outside = [
            os.open(above(group) / "cgroup.procs", os.O_WRONLY) for group in capped
        ]
        command = [sys.executable, "-S", "-E", "-c", _DAEMON, *map(str, outside)]
        subprocess.run(command, check=True, start_new_session=True, pass_fds=outside)


@cheat("")
class OpensWhatJudgesIt(Act):
    """Opens files for writing by which its numbers are judged; the run fails if one can
    be opened."""

    def prepare(self) -> None:
        """Try the dataset, the sources and the environment."""
        sources = [
            Path(module.__file__ or "")
            for module in (harness.judge.registry, workloads, systems.interface)
        ]
        features = self.system.workload.dataset.file("features")
        for path in (
            features,
            features.parent / MANIFEST_NAME,
            *sources,
            Path(sys.prefix) / "pyvenv.cfg",
            Path(os.__file__),
        ):
            try:
                path.open("ab").close()
            except OSError as error:
                if error.errno == errno.EROFS:
                    continue
            raise AssertionError(f"{path} can be written")


@cheat("", wall=HIDDEN)
class RaisedCap(Act):
    """Raises its own limit."""

    def prepare(self) -> None:
        """Set the limit to 1 GiB."""
        super().prepare()
        found = groups()
        if "memory" in found:
            both = found["memory"] / "memory.memsw.limit_in_bytes"
            if both.exists():
                both.write_text(str(1 << 30))
            (found["memory"] / "memory.limit_in_bytes").write_text(str(1 << 30))
        else:
            (found[""] / "memory.max").write_text(str(1 << 30))


def take_every_processor() -> None:
    """Undo the affinity; where the cap keeps its processes on their processors, that
    has no effect and is an error."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    if len(os.sched_getaffinity(0)) == 1:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


@cheat("processors_are_what_was_asked_for", wall=KEPT)
class TakesEveryProcessor(Act):
    """Computes on every processor although it was given one."""

    settings: ClassVar[dict[str, Any]] = {"cores": 1, "max_batches": 5}

    def prepare(self) -> None:
        """Undo the affinity and make a thread for each processor."""
        take_every_processor()
        self._threads = ThreadPoolExecutor()

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read beside work that releases the interpreter lock."""
        processors = range(os.cpu_count() or 1)
        wait(
            [
                self._threads.submit(hashlib.pbkdf2_hmac, "sha256", b"", b"", 1_000_000)
                for _ in processors
            ]
        )
        return self.system.read(nodes)

    def close(self) -> None:
        """End the threads."""
        if hasattr(self, "_threads"):
            self._threads.shutdown()


@cheat("processors_are_what_was_asked_for", wall=KEPT)
class ComputesInUnseenChildren(Act):
    """Computes on every processor in children that nobody waits for: their time is in
    no process's counters."""

    settings: ClassVar[dict[str, Any]] = {"cores": 1, "max_batches": 5}

    def prepare(self) -> None:
        """Undo the affinity, and have the kernel drop the times of children."""
        take_every_processor()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read beside children that end before the epoch does."""
        ended = [self._child() for _ in range(os.cpu_count() or 1)]
        for pipe in ended:
            os.read(pipe, 1)  # returns at the child's end
            os.close(pipe)
        return self.system.read(nodes)

    def _child(self) -> int:
        """Start a child that computes for long beside the time of a fork; return the
        end of a pipe that closes with it."""
        reader, writer = os.pipe()
        if os.fork() == 0:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)
            os._exit(0)
        os.close(writer)
        return reader


@cheat("device_memory_as_asked")
class UnplannedDeviceCache(Act):
    """Holds rows on the device that its plan does not have."""

    def prepare(self) -> None:
        """Take more device memory than was planned."""
        dataset = self.system.workload.dataset
        self.cache = self.system.runtime.accelerator.allocate(
            1000, dataset.dim, torch.float32
        )

    def close(self) -> None:
        """Give the memory back, too late."""
        self.system.runtime.accelerator.free(self.cache)
