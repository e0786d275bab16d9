"""Cgroup that an engine made for a container, found and read on the host: the same files as for Outcore's own caps."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

from harness.isolation import cgroup1, cgroup2, mounts
from harness.isolation.base import IoStats, MemoryStats
from harness.isolation.files import KernelFile, as_number, psi_some_total, write_text
from harness.isolation.processes import pids_in
from workloads.errors import HostError


class ContainerGroups:
    """Memory and I/O of the container with host process `pid`. Only resetting a peak needs a privilege: root."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        own = mounts.groups_of(proc, pid)
        v1 = mounts.v1("memory", proc)
        self._lock = threading.Lock()
        self._highest = 0
        self.last = MemoryStats()
        self.last_io: IoStats | None = None
        self.version = 1 if v1 is not None else 2
        unified = mounts.v2(proc)
        if v1 is not None:
            self.memory_group = _folder(v1.mount, own.get("memory", ""))
            blkio = mounts.v1("blkio", proc)
            self.io_group = _folder(blkio.mount, own.get("blkio", "")) if blkio else None
        elif unified is not None:
            self.memory_group = self.io_group = _folder(unified.mount, own.get("", ""))
        else:
            raise HostError("no cgroup is mounted here", "mount -t cgroup2 none /sys/fs/cgroup")
        self._files = {name: KernelFile(self.memory_group / name) for name in _MEMORY_FILES[self.version]}
        # A write to `memory.peak` resets it for this descriptor alone (6.12).
        self._peak = _open_for_writing(self.memory_group / "memory.peak") if self.version == 2 else -1
        if self.io_group is not None:
            self._files |= {name: KernelFile(self.io_group / name) for name in _IO_FILES[self.version]}

    def memory(self) -> MemoryStats:
        """Return the memory of the container now; the last reading once it is gone."""
        with self._lock:
            if self.version == 1:
                self.last = cgroup1.read_memory(self._files) or self.last
            elif stat := self._files["memory.stat"].read():
                self.last = self._memory_v2(stat)
            return self.last

    def _memory_v2(self, stat: bytes) -> MemoryStats:
        files = self._files
        current = files["memory.current"].number() or 0
        self._highest = max(self._highest, current)
        peak = as_number(os.pread(self._peak, 64, 0)) if self._peak >= 0 else files["memory.peak"].number()
        return cgroup2.parse_memory(
            stat,
            current=current,
            peak=self._highest if peak is None else peak,
            limit=files["memory.max"].number(),
            events=files["memory.events"].read(),
            swap=files["memory.swap.current"].number(),
        )

    def io(self) -> IoStats | None:
        """Return device I/O charged to the container so far; the last reading once it is gone."""
        with self._lock:
            if self.version == 2:
                if data := self._files["io.stat"].read():
                    self.last_io = cgroup2.parse_io_stat(data)
            elif self.io_group is not None and (data := self._files[_V1_BYTES].read()):
                read_bytes, write_bytes = cgroup1.parse_blkio(data)
                reads, writes = cgroup1.parse_blkio(self._files[_V1_REQUESTS].read())
                self.last_io = IoStats(read_bytes, reads, write_bytes, writes)
            return self.last_io

    def pressure(self) -> tuple[int | None, int | None]:
        """Return microseconds stalled on (I/O, memory); None under v1."""
        if self.version == 1:
            return None, None
        return (
            psi_some_total(self._files["io.pressure"].read()),
            psi_some_total(self._files["memory.pressure"].read()),
        )

    def pids(self) -> list[int]:
        """Return the host pids of the container's processes."""
        return sorted(set(pids_in(self.memory_group)))

    def reset_peak(self) -> None:
        """Restart the peak from the present usage where this user may write the group's files (root)."""
        self._highest = 0
        try:
            if self.version == 1:
                write_text(self.memory_group / "memory.max_usage_in_bytes", "0")
            elif self._peak >= 0:
                os.pwrite(self._peak, b"reset", 0)
        except OSError:
            pass

    def drop_cache(self) -> None:
        """Drop the pages still charged where this user may (v1): otherwise they outlive the container."""
        if self.version == 1:
            try:
                write_text(self.memory_group / "memory.force_empty", "1")
            except OSError:
                pass

    def freeze_last(self, oom_kills: int) -> None:
        """Keep the last readings, with at least the `oom_kills` counted by the engine; close the files."""
        with self._lock:
            self.last = replace(self.last, oom_kills=max(self.last.oom_kills, oom_kills))
            for file in self._files.values():
                file.close()
            if self._peak >= 0:
                os.close(self._peak)
                self._peak = -1


_V1_BYTES = "blkio.throttle.io_service_bytes_recursive"
_V1_REQUESTS = "blkio.throttle.io_serviced_recursive"
_MEMORY_FILES = {
    1: cgroup1.MEMORY_FILES,
    2: (
        "memory.stat",
        "memory.current",
        "memory.max",
        "memory.events",
        "memory.peak",
        "memory.pressure",
        "memory.swap.current",
    ),
}
_IO_FILES = {1: (_V1_BYTES, _V1_REQUESTS), 2: ("io.stat", "io.pressure")}


def _open_for_writing(path: Path) -> int:
    """Return a descriptor, or -1 where the file is missing or this user may not write it."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return -1


def _folder(mount: Path, path: str) -> Path:
    folder = Path(os.path.normpath(mount / path.lstrip("/")))
    if path in ("", "/") or not folder.is_dir():
        raise HostError(
            "the container's cgroup cannot be seen from here: the engine runs in another machine or container",
            "run Outcore on the host of the engine",
        )
    return folder
