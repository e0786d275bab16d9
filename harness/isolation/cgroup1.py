"""Caps by cgroup v1: `memory.limit_in_bytes` with `memsw`, and `blkio.throttle.*` for the device. v1 charges and limits
anonymous memory, page cache, shared memory and kernel memory, and limits reads of the device, direct or through the
page cache. blkio charges buffered writes to no group, so write limits hold for direct writes only. v1 kills one process
when the cap is full, so a watcher kills the others."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from harness.isolation import mounts
from harness.isolation.base import Availability, Cap, IoLimit, IoStats, Isolation, Limits, MemoryStats
from harness.isolation.blocks import disks, is_stacked
from harness.isolation.files import KernelFile, as_number, flat_keyed, read_text, write_text
from harness.isolation.owner import PARENT, cap_name, holds_groups
from harness.isolation.processes import (
    confined,
    joining,
    kill_all,
    pids_in,
    remove_group,
    remove_if_empty,
    strays,
    sweep_below,
)
from workloads.errors import HostError

# v1 shows "no limit" as the largest whole number of pages that fits in 63 bits.
_UNLIMITED = 1 << 62
# With equal limits the kernel hits the one with swap first, and newer kernels (seen on 6.18) do not count that.
SWAP_SLACK = 2 << 20
_WATCH_SECONDS = 0.1
MEMORY_FILES = (
    "memory.stat",
    "memory.usage_in_bytes",
    "memory.max_usage_in_bytes",
    "memory.kmem.usage_in_bytes",
    "memory.failcnt",
    "memory.oom_control",
)
_THROTTLES = (
    ("read_iops", "read_iops_device"),
    ("read_bytes_per_s", "read_bps_device"),
    ("write_iops", "write_iops_device"),
    ("write_bytes_per_s", "write_bps_device"),
)


def parse_memory(
    stat: bytes, *, usage: int | None, peak: int | None, kernel: int | None, failures: int | None, oom_control: bytes
) -> MemoryStats:
    """Parse the v1 control files into one reading; sizes are those of the group and everything below it.

    Args:
        stat, oom_control: contents of `memory.stat` and `memory.oom_control`.
        usage, peak, kernel, failures: `usage_in_bytes`, `max_usage_in_bytes`, `kmem.usage_in_bytes`, `failcnt`.
    """
    values = flat_keyed(stat)
    shmem = values.get(b"total_shmem", 0)
    limit = values.get(b"hierarchical_memory_limit", _UNLIMITED)
    return MemoryStats(
        usage=usage or 0,
        peak=peak or 0,
        anon=values.get(b"total_rss", 0),
        # v1 counts shared memory as cache; it cannot be dropped, so it is reported apart.
        page_cache=max(0, values.get(b"total_cache", 0) - shmem),
        shmem=shmem,
        kernel=kernel or 0,
        oom_kills=flat_keyed(oom_control).get(b"oom_kill", 0),
        reclaims=failures or 0,
        limit=limit if limit < _UNLIMITED else None,
        major_faults=values.get(b"total_pgmajfault", 0),
        swap=values.get(b"total_swap", 0),
    )


def read_memory(files: Mapping[str, KernelFile]) -> MemoryStats | None:
    """Read the open `MEMORY_FILES` of a group; None once it is gone."""
    stat = files["memory.stat"].read()
    if not stat:
        return None
    return parse_memory(
        stat,
        usage=files["memory.usage_in_bytes"].number(),
        peak=files["memory.max_usage_in_bytes"].number(),
        kernel=files["memory.kmem.usage_in_bytes"].number(),
        failures=files["memory.failcnt"].number(),
        oom_control=files["memory.oom_control"].read(),
    )


def parse_blkio(data: bytes) -> tuple[int, int]:
    """Return (reads, writes) over all disks, from `io_service_bytes_recursive` or `io_serviced_recursive`."""
    totals = {b"Read": 0, b"Write": 0}
    for line in data.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] in totals and not is_stacked(fields[0].decode()):
            totals[fields[1]] += int(fields[2])
    return totals[b"Read"], totals[b"Write"]


def throttle_lines(limit: IoLimit) -> list[tuple[str, str]]:
    """Return (control file, line) pairs that set `limit`. 0 means no limit, and makes the kernel count the device."""
    return [(f"blkio.throttle.{file}", f"{limit.device} {getattr(limit, field) or 0}") for field, file in _THROTTLES]


class Cgroup1Cap(Cap):
    """Memory group, and a blkio group where the host has one."""

    def __init__(self, memory: Path, blkio: Path | None, caveats: Sequence[str] = ()) -> None:
        self.caveats = list(caveats)
        self._memory, self._blkio = memory, blkio
        self._files = {name: KernelFile(memory / name) for name in MEMORY_FILES}
        if blkio is not None:
            for name in ("io_service_bytes_recursive", "io_serviced_recursive"):
                self._files[name] = KernelFile(blkio / f"blkio.throttle.{name}")
        self._last = MemoryStats()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name=f"oom-watch {memory.name[-6:]}", daemon=True)
        self._watcher.start()

    @property
    def groups(self) -> list[Path]:
        """Folders of the cap's groups."""
        return [self._memory] if self._blkio is None else [self._memory, self._blkio]

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return `argv` behind a shell that joins both groups first."""
        return joining(self.groups, argv)

    def worker_command(self, argv: Sequence[str]) -> list[str]:
        """Return `argv` as `command` does, for root with a read-only view of the cgroups."""
        return self.command(confined(argv))

    def memory(self) -> MemoryStats:
        """Return the memory of the cap now; the last reading once the cap is gone."""
        with self._lock:
            if not self._closed.is_set():
                self._last = read_memory(self._files) or self._last
            return self._last

    def io(self) -> IoStats | None:
        """Return device I/O charged to the cap (v1 cannot attribute buffered writes); None without blkio."""
        with self._lock:
            if self._blkio is None or self._closed.is_set():
                return None
            read_bytes, write_bytes = parse_blkio(self._files["io_service_bytes_recursive"].read())
            reads, writes = parse_blkio(self._files["io_serviced_recursive"].read())
        return IoStats(read_bytes, reads, write_bytes, writes)

    def pids(self) -> list[int]:
        """Return the processes in any group of the cap."""
        return sorted({pid for group in self.groups for pid in pids_in(group)})

    def strays(self, pids: Collection[int]) -> list[int]:
        """Return processes with a thread outside any of the groups: v1 moves threads, and charges I/O, one by one."""
        return strays(self.groups, pids)

    def set_memory(self, limit_bytes: int | None) -> None:
        """Limit memory, and memory with swap to 2 MiB more, which swappiness 0 keeps unused.

        Raises:
            HostError: the cap holds more than the limit and the kernel cannot reclaim it.
        """
        both = {
            "memory.limit_in_bytes": -1 if limit_bytes is None else limit_bytes,
            "memory.memsw.limit_in_bytes": -1 if limit_bytes is None else limit_bytes + SWAP_SLACK,
        }
        # The kernel requires limit <= memsw at every moment: lower the limit first, raise memsw first.
        now = as_number((self._memory / "memory.limit_in_bytes").read_bytes()) or _UNLIMITED
        raised = limit_bytes is None or limit_bytes > now
        for name in reversed(both) if raised else both:
            if not (self._memory / name).exists():
                continue  # memsw needs swapaccount
            try:
                write_text(self._memory / name, str(both[name]))
            except OSError as error:
                raise HostError(
                    f"the kernel refuses a memory limit of {limit_bytes} bytes ({error.strerror})", "raise memory"
                ) from error

    def set_io(self, limits: Sequence[IoLimit]) -> None:
        """Set device limits; a limit without numbers only makes the kernel count the device.

        Raises:
            HostError: the kernel does not know the device.
        """
        if self._blkio is None:
            return
        for limit in limits:
            for file, line in throttle_lines(limit):
                try:
                    write_text(self._blkio / file, line)
                except OSError as error:
                    raise HostError(
                        f"the kernel refuses {line!r} in {file} ({error.strerror})",
                        "name a whole disk, not a partition",
                    ) from error

    def count_disks(self, sys: Path = Path("/sys")) -> None:
        """Make the kernel count this cap's I/O: v1 counts a disk only once some limit was written for it."""
        if self._blkio is None:
            return
        for disk in disks(sys):
            try:
                write_text(self._blkio / "blkio.throttle.read_iops_device", f"{read_text(disk / 'dev').strip()} 0")
            except OSError:
                continue  # a disk without a queue to throttle

    def reset_peak(self) -> None:
        """Restart the peak from the present usage."""
        write_text(self._memory / "memory.max_usage_in_bytes", "0")

    def kill(self) -> None:
        """Kill every process inside with SIGKILL and wait."""
        kill_all(self.pids)

    def close(self) -> None:
        """Kill remaining processes, drop pages still charged, remove the groups; the last readings stay readable."""
        if self._closed.is_set():
            return
        self.kill()
        self.memory()
        self._closed.set()
        self._watcher.join()
        try:
            # Otherwise the cap's page cache is charged to the parent and stays warm for the next run.
            write_text(self._memory / "memory.force_empty", "1")
        except OSError:
            pass
        with self._lock:
            for file in self._files.values():
                file.close()
        stuck = [group for group in self.groups if not remove_group(group)]
        for group in self.groups:
            remove_if_empty(group.parent)
        if stuck:
            raise HostError(f"{stuck[0].name} could not be removed: a process in it does not end", "reboot the host")

    def _watch(self) -> None:
        """Kill the whole cap on OOM: v1 kills one process and lets the others wait for it for ever."""
        oom = KernelFile(self._memory / "memory.oom_control")
        while not self._closed.wait(_WATCH_SECONDS):
            data = oom.read()
            if b"oom_kill 0" not in data and b"oom_kill " in data and pids_in(self._memory):
                kill_all(self.pids)
        oom.close()


class Cgroup1(Isolation):
    """Caps by cgroup v1, for root on a host whose memory controller is in v1."""

    name: ClassVar[str] = "cgroup1"

    @classmethod
    def available(cls) -> Availability:
        """Return whether a memory group (and a blkio group) can be made here, found by trying."""
        if mounts.v1("memory") is None:
            return Availability(False, "the memory controller is not with cgroup v1", "use cgroup2")
        memory = _parent("memory")
        if memory is None:
            return Availability(False, "the memory cgroup is not writable", "run as root")
        remove_if_empty(memory)
        blkio = _parent("blkio")
        if blkio is not None:
            remove_if_empty(blkio)
        return Availability(True, "" if blkio else "no writable blkio cgroup", "", blkio is not None, True)

    def create(self, run_id: str, limits: Limits) -> Cgroup1Cap:
        """Create a cap; where the host has no blkio cgroup, without its I/O limits and with a caveat.

        Raises:
            HostError: no writable memory cgroup, or the kernel refuses a limit.
        """
        name = cap_name(run_id)
        memory = _make("memory", name)
        if memory is None:
            raise HostError("the memory cgroup is not writable", "run as root, or use --isolation none")
        blkio = _make("blkio", name)
        caveats = list(self.caveats)
        if blkio is None and limits.io:
            caveats.append("no blkio cgroup: the device is not limited and its I/O not counted per run")
        if not (memory / "memory.memsw.limit_in_bytes").exists():
            caveats.append("no swap accounting: the kernel may swap the run's memory (boot with swapaccount=1)")
        cap = Cgroup1Cap(memory, blkio, caveats)
        try:
            try:
                write_text(memory / "memory.swappiness", "0")
            except OSError:
                pass  # no swap in this kernel
            if limits.memory_bytes is not None:
                cap.set_memory(limits.memory_bytes)
            cap.count_disks()
            cap.set_io(limits.io)
        except HostError:
            cap.close()
            raise
        return cap

    @classmethod
    def sweep(cls) -> list[str]:
        """Kill and remove caps of dead orchestrators anywhere in the hierarchy; return their names."""
        found = [mounts.v1(controller) for controller in ("memory", "blkio")]
        return sorted({name for hierarchy in found if hierarchy for name in sweep_below(hierarchy.mount)})


def _parent(controller: str) -> Path | None:
    """Return Outcore's parent group of a controller, made at the first writable place; None without one."""
    hierarchy = mounts.v1(controller)
    for base in hierarchy.bases() if hierarchy else []:
        parent = base / PARENT
        try:
            parent.mkdir(exist_ok=True)
        except OSError:
            continue
        if not holds_groups(parent):
            continue
        if controller == "memory":
            try:
                # Kernels before 5.11 count a child apart from its parent unless this is set.
                write_text(parent / "memory.use_hierarchy", "1")
            except OSError:
                pass
        return parent
    return None


def _make(controller: str, name: str) -> Path | None:
    for _ in range(10):
        parent = _parent(controller)
        if parent is None:
            return None
        try:
            (parent / name).mkdir()
            return parent / name
        except FileNotFoundError:
            continue  # another orchestrator ended just now and removed the empty parent
        except OSError:
            return None
    return None
