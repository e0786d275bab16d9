"""Caps by cgroup v2: `memory.max` without swap, `io.max` for the device, and the whole
group killed on OOM. v2 charges buffered writes to the group that dirtied the page, so
every limit holds for every kind of I/O."""

from __future__ import annotations

import errno
import os
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
from harness.isolation.blocks import is_stacked
from harness.isolation.files import (
    as_number,
    flat_keyed,
    numbered,
    psi_some_total,
    read_text,
    write_if_possible,
    write_text,
)
from harness.isolation.groups import (
    GroupCap,
    Readings,
    refused,
    remove_if_empty,
    sweep_below,
)
from harness.isolation.processes import PARENT, cap_name, holds_groups
from workloads.errors import HostError

_FILES = (
    "memory.stat memory.current memory.events memory.pressure io.stat io.pressure "
    "cpu.stat"
).split()
_IO_KEYS = (b"rbytes", b"rios", b"wbytes", b"wios")


def parse_io_stat(data: bytes) -> IoStats:
    """Parse `io.stat` into the sum over all disks.

    Some kernels write the number of a device without counters, and the next device on
    the same line: `7:7 254:0 rbytes=…`. So a counter belongs to the last device before
    it.
    """
    values: dict[str, dict[bytes, int]] = {}
    device = ""
    for field in data.split():
        key, equals, value = field.partition(b"=")
        if not equals and b":" in field:
            device = field.decode()
        elif key in _IO_KEYS and value.isdigit():
            values.setdefault(device, {})[key] = int(value)
    disks = {
        device: mine
        for device, mine in values.items()
        if device and not is_stacked(device)
    }
    return IoStats.over(
        {
            device: IoStats(*(mine.get(key, 0) for key in _IO_KEYS))
            for device, mine in disks.items()
        }
    )


def io_max_line(limit: IoLimit) -> str:
    """Return the line of `io.max` that sets `limit`."""
    values = [
        f"{key}={'max' if value is None else value}"
        for key, value in limit.named("v2").items()
    ]
    return " ".join([limit.device, *values])


class V2Readings(Readings):
    """Counters of one v2 group."""

    _usage_file = "memory.current"

    def __init__(self, group: Path) -> None:
        super().__init__([group], [group / name for name in _FILES])
        self.group = group
        # A write to `memory.peak` (5.19) resets it for this descriptor alone (6.12).
        self._peak = _open_read_write(group / "memory.peak")
        self._highest = 0

    def _read_memory(self, stat: bytes) -> MemoryStats:
        values = flat_keyed(stat)
        happened = flat_keyed(self._files["memory.events"].read())
        current = self._files["memory.current"].number() or 0
        # Without memory.peak the highest reading stands in: a lower bound, as exact as
        # the sampling is dense.
        self._highest = max(self._highest, current)
        peak = None
        with suppress(OSError):  # also without a descriptor
            peak = as_number(os.pread(self._peak, 64, 0))
        shmem = values.get(b"shmem", 0)
        # `kernel` came with 5.18; before it the parts are summed.
        parts = sum(
            values.get(key, 0)
            for key in (b"kernel_stack", b"pagetables", b"percpu", b"slab")
        )
        return MemoryStats(
            usage=current,
            peak=self._highest if peak is None else peak,
            anon=values.get(b"anon", 0),
            page_cache=max(0, values.get(b"file", 0) - shmem),
            shmem=shmem,
            kernel=values.get(b"kernel", parts) + values.get(b"sock", 0),
            oom_kills=happened.get(b"oom_kill", 0),
            reclaims=happened.get(b"max", 0),
            major_faults=values.get(b"pgmajfault", 0),
        )

    def _read_io(self) -> IoStats | None:
        """Read device I/O; None where the io controller is not delegated, or once the
        group is gone."""
        file = self._files["io.stat"]
        data = file.read()
        return parse_io_stat(data) if file.present and self.group.exists() else None

    def _read_processor_s(self) -> ProcessorTime | None:
        spent_us = flat_keyed(self._files["cpu.stat"].read())
        user_us = spent_us.get(b"user_usec")
        system_us = spent_us.get(b"system_usec")
        return (
            None
            if user_us is None or system_us is None
            else ProcessorTime(user_us / 1e6, system_us / 1e6)
        )

    def pressure(self) -> tuple[int | None, int | None]:
        """Return microseconds stalled on (I/O, memory)."""
        with self._lock:
            io, memory = (
                psi_some_total(self._files[f"{name}.pressure"].read())
                for name in ("io", "memory")
            )
        return io, memory

    def reset_peak(self) -> bool:
        """Restart the peak from the present usage; return False where the kernel cannot
        (before 6.12)."""
        self._highest = 0
        try:
            os.pwrite(self._peak, b"reset", 0)
        except OSError:
            # Without `memory.peak` (before 5.19) the peak is the highest reading, which
            # starts anew.
            return self._peak < 0
        return True

    def release(self, oom_kills: int = 0) -> None:
        """Close the files; the last readings stay."""
        super().release(oom_kills)
        if self._peak >= 0:
            os.close(self._peak)
            self._peak = -1


class Cgroup2Cap(V2Readings, GroupCap):
    """Cap of one v2 group."""

    def __init__(self, group: Path, caveats: Sequence[str] = ()) -> None:
        super().__init__(group)
        self.caveats = list(caveats)

    def set_memory(self, limit_bytes: int | None) -> None:
        """Set `memory.max` and forbid swap. Raises HostError: the kernel refuses."""
        with refused(f"a memory limit of {limit_bytes} bytes", "raise memory"):
            write_text(
                self.group / "memory.max",
                "max" if limit_bytes is None else str(limit_bytes),
            )
            if (self.group / "memory.swap.max").exists():
                write_text(self.group / "memory.swap.max", "0")

    def set_processors(self, processors: Sequence[int]) -> None:
        """Keep the cap on some processors, where the cpuset controller is delegated.
        Raises HostError: the kernel refuses."""
        if (self.group / "cpuset.cpus").exists():
            with refused(f"processors {numbered(processors)}", "give fewer cores"):
                write_text(self.group / "cpuset.cpus", numbered(processors))

    def _io_lines(self, limit: IoLimit) -> list[tuple[Path, str]]:
        return [(self.group / "io.max", io_max_line(limit))]

    def end_together(self) -> None:
        """Make the kernel kill every process of the group on OOM."""
        try:
            write_text(self.group / "memory.oom.group", "1")
        except OSError:
            self.caveats.append(
                "the kernel has no memory.oom.group (before 4.19): on OOM it ends one "
                "process only"
            )

    def restrict(self, limits: Limits) -> None:
        """Set all limits of a new cap. Raises HostError: one is refused; the cap is
        closed."""
        try:
            self.set_memory(limits.memory_bytes)
            self.end_together()
            if limits.processors:
                self.set_processors(limits.processors)
            if limits.io and not (self.group / "io.max").exists():
                self.caveats.append(
                    "no io controller here: the device is not limited and its I/O not "
                    "counted per run"
                )
            else:
                self.set_io(limits.io)
        except HostError:
            self.close()
            raise

    def kill(self) -> None:
        """Kill every process inside, by `cgroup.kill` (5.14) where it exists, and
        wait."""
        write_if_possible(self.group / "cgroup.kill", "1")
        super().kill()


class Cgroup2(Isolation):
    """Caps by cgroup v2, for root, or for a user to whom a group is delegated."""

    name: ClassVar[str] = "cgroup2"

    @classmethod
    def available(cls) -> Availability:
        """Return whether a group with a memory controller can be made here, found by
        trying."""
        hierarchy = mounts.v2()
        if hierarchy is None:
            return Availability(
                False,
                "cgroup v2 is not mounted",
                "mount -t cgroup2 none /sys/fs/cgroup",
            )
        if "memory" not in hierarchy.controllers:
            message = (
                "cgroup v2 is mounted without the memory controller (cgroup v1 holds "
                "it)"
            )
            return Availability(
                False,
                message,
                "use cgroup1, or boot with systemd.unified_cgroup_hierarchy=1",
            )
        parent, reason = _parent(hierarchy)
        if parent is None:
            return Availability(
                False, reason, "run as root, or use --isolation systemd"
            )
        io = "io" in read_text(parent / "cgroup.subtree_control").split()
        return Availability(
            True, "" if io else "the io controller is not delegated", "", io, True
        )

    def create(self, run_id: str, limits: Limits) -> Cgroup2Cap:
        """Create a cap; where the io controller is not delegated, without its I/O
        limits and with a caveat. Raises HostError: no place for a group, or the kernel
        refuses a limit."""
        cap = Cgroup2Cap(_make(cap_name(run_id)), self.caveats)
        cap.restrict(limits)
        return cap

    @classmethod
    def sweep(cls) -> list[str]:
        """Kill and remove caps of dead orchestrators; return their names."""
        hierarchy = mounts.v2()
        return sweep_below(hierarchy.mount) if hierarchy else []


def _make(name: str) -> Path:
    hierarchy = mounts.v2()
    parent, reason = (
        _parent(hierarchy) if hierarchy else (None, "cgroup v2 is not mounted")
    )
    if parent is None:
        raise HostError(reason, "run as root, or use --isolation systemd")
    group = parent / name
    try:
        group.mkdir()
    except OSError as error:
        raise HostError.from_os(
            error, f"{group} cannot be made", "run as root"
        ) from error
    return group


def _parent(hierarchy: mounts.Hierarchy) -> tuple[Path | None, str]:
    """Return (Outcore's parent group, empty text) or (None, reason).

    Its children get memory and, where possible, io and cpuset. A v2 group has processes
    or children with controllers, not both (the root excepted). So the groups from this
    process's own upwards are tried: first for memory and io, then for memory alone. The
    parent stays after its caps: removing it would race with other orchestrators.
    """
    folders = [hierarchy.own, *hierarchy.own.parents]
    folders = (
        folders[: folders.index(hierarchy.mount) + 1]
        if hierarchy.mount in folders
        else [hierarchy.mount]
    )
    reason = "no cgroup v2 group is writable"
    for wanted in (("memory", "io"), ("memory",)):
        for folder in folders:
            parent = folder / PARENT
            try:
                _enable(folder, wanted)
                parent.mkdir(exist_ok=True)
                _enable(parent, wanted)
                if not holds_groups(parent):
                    raise PermissionError(errno.EACCES, "another user's")
                with suppress(OSError):
                    _enable(folder, ("cpuset",))
                    _enable(parent, ("cpuset",))
                return parent, ""
            except OSError as error:
                remove_if_empty(parent)
                if error.errno == errno.EBUSY:
                    reason = (
                        f"the group {folder.name or '/'} has processes, so its "
                        "children cannot have controllers"
                    )
                else:
                    reason = (
                        f"the group {folder.name or '/'} gives children no {wanted[0]} "
                        f"({error.strerror})"
                    )
    return None, reason


def _enable(folder: Path, wanted: Sequence[str]) -> None:
    control = folder / "cgroup.subtree_control"
    enabled = read_text(control).split()
    for controller in wanted:
        if controller not in enabled:
            write_text(control, f"+{controller}")


def _open_read_write(path: Path) -> int:
    for flags in (os.O_RDWR, os.O_RDONLY):
        with suppress(OSError):
            return os.open(path, flags | os.O_CLOEXEC)
    return -1
