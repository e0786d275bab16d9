"""Control groups of v1 and v2: readings of their files, caps made of them, and the
removal of left-over groups."""

from __future__ import annotations

import functools
import os
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from harness.isolation.base import (
    Cap,
    Counters,
    IoLimit,
    IoStats,
    MemoryStats,
    ProcessorTime,
)
from harness.isolation.files import KernelFile, as_number, read_text, write_text
from harness.isolation.processes import PARENT, is_left_over, joining, kill_all
from workloads.errors import HostError

# Files with the memory limit of a group, of v2 and of v1.
_LIMIT_FILES = ("memory.max", "memory.limit_in_bytes")
# From here on v1 means no limit: the largest number of pages, in bytes.
_NO_LIMIT = 1 << 62
_WATCH_SECONDS = 0.1


class Readings(Counters):
    """Counters of a control group, whose `folders` are one for each hierarchy; the last
    ones once the group is gone."""

    _usage_file: ClassVar[str]

    def __init__(self, folders: Sequence[Path], files: Iterable[Path]) -> None:
        self.folders = list(folders)
        self._files = {path.name: KernelFile(path) for path in files}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._last = MemoryStats()
        self._last_io: IoStats | None = None
        self._last_spent: ProcessorTime | None = None

    def memory(self) -> MemoryStats:
        """Return the memory of the group now; the last reading once it is gone."""
        with self._lock:
            if not self._closed.is_set() and (
                stat := self._files["memory.stat"].read()
            ):
                found = self._read_memory(stat)
                # A group removed while it is read gives zeros from there on.
                if self._files[self._usage_file].read():
                    self._last = found
            return self._last

    def io(self) -> IoStats | None:
        """Return the device I/O charged to the group; the last reading once it is gone,
        None without one."""
        with self._lock:
            if not self._closed.is_set():
                self._last_io = self._read_io() or self._last_io
            return self._last_io

    def processor_s(self) -> ProcessorTime | None:
        """Return the processor time charged to the group; the last reading once it is
        gone, None without one."""
        with self._lock:
            if not self._closed.is_set():
                self._last_spent = self._read_processor_s() or self._last_spent
            return self._last_spent

    @abstractmethod
    def _read_processor_s(self) -> ProcessorTime | None:
        """Read the group's processor time; None where the kernel has no such
        counters."""

    @abstractmethod
    def _read_memory(self, stat: bytes) -> MemoryStats:
        """Read the group's memory; `stat`: content of `memory.stat`."""

    @abstractmethod
    def _read_io(self) -> IoStats | None:
        """Read the group's device I/O; None where the kernel does not count it."""

    def enclosing_bytes(self) -> int | None:
        """Return the least memory limit of the groups above this one; None where the
        kernel shows none."""
        above = dict.fromkeys(
            parent for folder in self.folders for parent in folder.parents
        )
        texts = [read_text(parent / name) for parent in above for name in _LIMIT_FILES]
        limits = [as_number(text.encode()) for text in texts]
        return min(
            (limit for limit in limits if limit is not None and limit < _NO_LIMIT),
            default=None,
        )

    def pids(self) -> list[int]:
        """Return the processes in the group and below."""
        return sorted({pid for folder in self.folders for pid in pids_in(folder)})

    def drop_cache(self) -> None:
        """Drop the pages still charged, which would outlive the group."""

    def release(self, oom_kills: int = 0) -> None:
        """Close the files; the last readings stay, with at least `oom_kills` kills."""
        with self._lock:
            self._closed.set()
            self._last = replace(
                self._last, oom_kills=max(self._last.oom_kills, oom_kills)
            )
            for file in self._files.values():
                file.close()


class OomWatch:
    """Thread that kills a whole cap on OOM: the kernel may kill one process and let the
    others wait for it for ever. `oom_kills` counts the kernel's kills in the cap, and
    `kill` ends its processes."""

    def __init__(self, oom_kills: Callable[[], int], kill: Callable[[], None]) -> None:
        self._oom_kills = oom_kills
        self._kill = kill
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="oom-watch", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_WATCH_SECONDS):
            if self._oom_kills():
                self._kill()


class GroupCap(Readings, Cap):
    """Cap of a control group."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return `argv` behind a shell that joins the group first."""
        return joining(self.folders, argv)

    def set_io(self, limits: Sequence[IoLimit]) -> None:
        """Set device limits. Raises HostError: the kernel does not know the device."""
        for file, line in [pair for limit in limits for pair in self._io_lines(limit)]:
            with refused(
                f"{line!r} in {file.name}", "name a whole disk, not a partition"
            ):
                write_text(file, line)

    @abstractmethod
    def _io_lines(self, limit: IoLimit) -> list[tuple[Path, str]]:
        """Return (control file, line) pairs that set a limit; empty where the group has
        no such files."""

    def close(self) -> None:
        """Kill remaining processes and remove the group; the last readings stay
        readable."""
        if self._closed.is_set():
            return
        self.kill()
        self.memory()
        self.io()
        self.drop_cache()
        self.release()
        if not self._remove():
            message = (
                f"{self.folders[0].name} could not be removed: a process in it does "
                "not end"
            )
            raise HostError(message, "reboot the host")

    def _remove(self) -> bool:
        gone = [remove_group(folder) for folder in self.folders]
        return all(gone)


@contextmanager
def refused(what: str, fix: str) -> Iterator[None]:
    """Turn the kernel's refusal of a value into a HostError: `the kernel refuses WHAT:
    REASON`."""
    try:
        yield
    except OSError as error:
        raise HostError.from_os(error, f"the kernel refuses {what}", fix) from error


def pids_in(group: Path) -> list[int]:
    """Return the processes of a group and of the groups below it."""
    found: list[int] = []
    for folder, _, _ in os.walk(group):
        # The group may be removed between the walk and the read.
        with suppress(OSError):
            found += [
                int(word)
                for word in Path(folder, "cgroup.procs")
                .read_text(encoding="utf-8")
                .split()
            ]
    return found


def remove_group(group: Path, timeout_s: float = 5.0) -> bool:
    """Remove a group and those below it, retrying while the kernel cleans up dead
    processes; False on timeout."""
    deadline = time.monotonic() + timeout_s
    while True:
        # Bottom first: a group with children cannot be removed.
        for folder, _, _ in os.walk(group, topdown=False):
            remove_if_empty(Path(folder))
        if not group.exists():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def remove_if_empty(group: Path) -> None:
    """Remove a group unless it has children or processes, or this user may not."""
    with suppress(OSError):
        group.rmdir()


def sweep_below(mount: Path) -> list[str]:
    """Remove left-over caps of every `outcore` group below `mount`; return their
    names."""
    removed = []
    # Other orchestrators remove groups meanwhile; `os.walk` passes over folders that
    # are gone.
    for folder, names, _ in os.walk(mount):
        if Path(folder).name != PARENT:
            continue
        for group in [Path(folder, name) for name in names if is_left_over(name)]:
            kill_all(functools.partial(pids_in, group))
            if remove_group(group):
                removed.append(group.name)
    return sorted(removed)
