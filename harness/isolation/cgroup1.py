"""Caps by cgroup v1: `memory.limit_in_bytes` with `memsw`, and `blkio.throttle.*` for
the device. v1 charges and limits anonymous memory, page cache, shared memory and kernel
memory, and limits reads of the device, direct or through the page cache. blkio charges
buffered writes to no group, so write limits hold for direct writes only. v1 kills one
process when the cap is full, so a watch kills the others. `cpuacct` counts the
processor time of all processes, and `cpuset` keeps them on some of the processors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from harness.isolation import mounts
from harness.isolation.base import (
    Availability,
    IoLimit,
    IoStats,
    Isolation,
    Limits,
    MemoryStats,
    ProcessorTime,
)
from harness.isolation.blocks import disks, is_stacked
from harness.isolation.files import (
    as_number,
    flat_keyed,
    numbered,
    read_text,
    write_if_possible,
    write_text,
)
from harness.isolation.groups import GroupCap, OomWatch, Readings, refused, sweep_below
from harness.isolation.processes import PARENT, cap_name, holds_groups
from workloads.errors import HostError

_CONTROLLERS = ("memory", "blkio", "cpuacct", "cpuset")
_UNLIMITED = (
    1 << 62
)  # v1 shows "no limit" as the largest whole number of pages that fits in 63 bits
# With equal limits the kernel hits the one with swap first, and newer kernels (seen on
# 6.18) do not count that.
SWAP_SLACK = 2 << 20
_MEMORY_FILES = (
    "stat usage_in_bytes max_usage_in_bytes kmem.usage_in_bytes failcnt oom_control"
).split()
_PROCESSOR_TIME = ("cpuacct.usage_user", "cpuacct.usage_sys")  # nanoseconds
_IO_FILES = (
    "blkio.throttle.io_service_bytes_recursive",
    "blkio.throttle.io_serviced_recursive",
)


def parse_blkio(sizes: bytes, requests: bytes) -> IoStats:
    """Parse `io_service_bytes_recursive` and `io_serviced_recursive` into the sum over
    all disks."""
    places = {(b"Read", 0): 0, (b"Read", 1): 1, (b"Write", 0): 2, (b"Write", 1): 3}
    found: dict[str, list[int]] = {}
    for kind, data in enumerate((sizes, requests)):
        for line in data.splitlines():
            fields = line.split()
            if (
                len(fields) == 3
                and (fields[1], kind) in places
                and not is_stacked(fields[0].decode())
            ):
                found.setdefault(fields[0].decode(), [0] * 4)[
                    places[fields[1], kind]
                ] = int(fields[2])
    return IoStats.over({disk: IoStats(*values) for disk, values in found.items()})


def throttle_lines(limit: IoLimit) -> list[tuple[str, str]]:
    """Return (control file, line) pairs that set `limit`. 0 means no limit, and makes
    the kernel count the device."""
    return [
        (f"blkio.throttle.{file}", f"{limit.device} {value or 0}")
        for file, value in limit.named("v1").items()
    ]


class V1Readings(Readings):
    """Counters of a memory group, and of groups of blkio and cpuacct where the host has
    them; sizes include the groups below. A group of cpuset has none."""

    _usage_file = "memory.usage_in_bytes"

    def __init__(
        self,
        memory: Path,
        blkio: Path | None,
        cpuacct: Path | None = None,
        cpuset: Path | None = None,
    ) -> None:
        self._memory = memory
        self._blkio = blkio
        self._cpuacct = cpuacct
        files = [memory / f"memory.{name}" for name in _MEMORY_FILES]
        files += [blkio / name for name in _IO_FILES if blkio]
        files += [cpuacct / name for name in _PROCESSOR_TIME if cpuacct]
        super().__init__(
            [
                folder
                for folder in (memory, blkio, cpuacct, cpuset)
                if folder is not None
            ],
            files,
        )

    def _read_memory(self, stat: bytes) -> MemoryStats:
        def number(name: str) -> int:
            return self._files[f"memory.{name}"].number() or 0

        values = flat_keyed(stat)
        shmem = values.get(b"total_shmem", 0)
        return MemoryStats(
            usage=number("usage_in_bytes"),
            peak=number("max_usage_in_bytes"),
            anon=values.get(b"total_rss", 0),
            # v1 counts shared memory as cache; it cannot be dropped, so it is reported
            # apart.
            page_cache=max(0, values.get(b"total_cache", 0) - shmem),
            shmem=shmem,
            kernel=number("kmem.usage_in_bytes"),
            oom_kills=self._oom_kills(),
            reclaims=number("failcnt"),
            major_faults=values.get(b"total_pgmajfault", 0),
        )

    def _oom_kills(self) -> int:
        events = flat_keyed(self._files["memory.oom_control"].read())
        return events.get(b"oom_kill", 0)

    def _read_io(self) -> IoStats | None:
        """Read device I/O; v1 cannot attribute buffered writes."""
        if self._blkio is None:
            return None
        sizes, requests = (self._files[name].read() for name in _IO_FILES)
        return parse_blkio(sizes, requests) if sizes and requests else None

    def _read_processor_s(self) -> ProcessorTime | None:
        if self._cpuacct is None:
            return None
        user_ns, system_ns = (self._files[name].number() for name in _PROCESSOR_TIME)
        return (
            None
            if user_ns is None or system_ns is None
            else ProcessorTime(user_ns / 1e9, system_ns / 1e9)
        )

    def reset_peak(self) -> bool:
        """Restart the peak from the present usage; return False where this user may
        not."""
        return write_if_possible(self._memory / "memory.max_usage_in_bytes", "0")

    def drop_cache(self) -> None:
        """Drop the pages still charged: they would be charged to the parent and stay
        warm for the next run."""
        write_if_possible(self._memory / "memory.force_empty", "1")


class Cgroup1Cap(V1Readings, GroupCap):
    """Memory group, and groups of blkio, cpuacct and cpuset where the host has them."""

    def __init__(
        self,
        memory: Path,
        blkio: Path | None,
        cpuacct: Path | None = None,
        cpuset: Path | None = None,
        caveats: Sequence[str] = (),
    ) -> None:
        super().__init__(memory, blkio, cpuacct, cpuset)
        self.caveats = list(caveats)
        self._watch = OomWatch(self._oom_kills, self.kill)

    def set_memory(self, limit_bytes: int | None) -> None:
        """Limit memory, and memory with swap to 2 MiB more, which swappiness 0 keeps
        unused. Raises HostError: the cap holds more than the limit and the kernel
        cannot reclaim it."""
        both = {
            "memory.limit_in_bytes": -1 if limit_bytes is None else limit_bytes,
            "memory.memsw.limit_in_bytes": -1
            if limit_bytes is None
            else limit_bytes + SWAP_SLACK,
        }
        # The kernel requires limit <= memsw at every moment: lower the limit first,
        # raise memsw first.
        now = (
            as_number((self._memory / "memory.limit_in_bytes").read_bytes())
            or _UNLIMITED
        )
        for name in (
            reversed(both) if limit_bytes is None or limit_bytes > now else both
        ):
            if (self._memory / name).exists():  # memsw needs swapaccount
                with refused(f"a memory limit of {limit_bytes} bytes", "raise memory"):
                    write_text(self._memory / name, str(both[name]))

    def _io_lines(self, limit: IoLimit) -> list[tuple[Path, str]]:
        return (
            [(self._blkio / file, line) for file, line in throttle_lines(limit)]
            if self._blkio
            else []
        )

    def release(self, oom_kills: int = 0) -> None:
        """End the watch and close the files; the last readings stay."""
        self._watch.end()
        super().release(oom_kills)


class Cgroup1(Isolation):
    """Caps by cgroup v1, for root on a host whose memory controller is in v1."""

    name: ClassVar[str] = "cgroup1"

    @classmethod
    def available(cls) -> Availability:
        """Return whether a memory group (and a blkio group) can be made here, found by
        trying."""
        if mounts.v1("memory") is None:
            return Availability(
                False, "the memory controller is not with cgroup v1", "use cgroup2"
            )
        memory = _parent("memory")
        blkio = _parent("blkio")
        if memory is None:
            return Availability(
                False, "the memory cgroup is not writable", "run as root"
            )
        return Availability(
            True,
            "" if blkio else "no writable blkio cgroup",
            "",
            blkio is not None,
            True,
        )

    def create(self, run_id: str, limits: Limits) -> Cgroup1Cap:
        """Create a cap; where the host has no blkio cgroup, without its I/O limits and
        with a caveat. Raises HostError: no writable memory cgroup, or the kernel
        refuses a limit."""
        name = cap_name(run_id)
        memory = _make("memory", name)
        if memory is None:
            raise HostError(
                "the memory cgroup is not writable",
                "run as root, or use --isolation none",
            )
        blkio = _make("blkio", name)
        caveats = list(self.caveats)
        if blkio is None and limits.io:
            caveats.append(
                "no blkio cgroup: the device is not limited and its I/O not counted "
                "per run"
            )
        if not (memory / "memory.memsw.limit_in_bytes").exists():
            caveats.append(
                "no swap accounting: the kernel may swap the run's memory (boot with "
                "swapaccount=1)"
            )
        cpuset = _make("cpuset", name) if limits.processors else None
        cap = Cgroup1Cap(memory, blkio, _make("cpuacct", name), cpuset, caveats)
        try:
            if cpuset is not None:
                _keep_on(cpuset, limits.processors)
            write_if_possible(
                memory / "memory.swappiness", "0"
            )  # a kernel without swap has no such file
            if limits.memory_bytes is not None:
                cap.set_memory(limits.memory_bytes)
            # v1 counts a disk only once some limit was written for it; a disk may have
            # no queue to throttle.
            if blkio is not None:
                for disk in disks():
                    number = read_text(disk / "dev").strip()
                    write_if_possible(
                        blkio / "blkio.throttle.read_iops_device", f"{number} 0"
                    )
            cap.set_io(limits.io)
        except HostError:
            cap.close()
            raise
        return cap

    @classmethod
    def sweep(cls) -> list[str]:
        """Kill and remove caps of dead orchestrators anywhere in the hierarchy; return
        their names."""
        found = [mounts.v1(controller) for controller in _CONTROLLERS]
        return sorted(
            {
                name
                for hierarchy in found
                if hierarchy
                for name in sweep_below(hierarchy.mount)
            }
        )


def _keep_on(group: Path, processors: Sequence[int]) -> None:
    """Keep a new cpuset group on some processors. New groups are empty, and take no
    process until they have both processors and memory. Raises HostError: the kernel
    refuses the processors."""
    for folder in (group.parent, group):
        for name in ("cpuset.cpus", "cpuset.mems"):
            if not read_text(folder / name).strip():
                write_if_possible(
                    folder / name, read_text(folder.parent / name).strip()
                )
    with refused(f"processors {numbered(processors)}", "give fewer cores"):
        write_text(group / "cpuset.cpus", numbered(processors))


def _parent(controller: str) -> Path | None:
    """Return Outcore's parent group of a controller, made at the first writable place;
    None without one. It stays after its caps: removing it would race with other
    orchestrators."""
    hierarchy = mounts.v1(controller)
    for base in hierarchy.bases() if hierarchy else []:
        parent = base / PARENT
        with suppress(OSError):
            parent.mkdir(exist_ok=True)
        if holds_groups(parent):
            if controller == "memory":
                # Kernels before 5.11 count a child apart from its parent unless this is
                # set.
                write_if_possible(parent / "memory.use_hierarchy", "1")
            return parent
    return None


def _make(controller: str, name: str) -> Path | None:
    parent = _parent(controller)
    if parent is None:
        return None
    group = parent / name
    with suppress(OSError):
        group.mkdir()
        return group
    return None
