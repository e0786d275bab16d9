"""Interface of the isolation backends: a cap on memory and device I/O that the kernel
enforces for one run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Self

from harness.isolation.processes import kill_all
from harness.isolation.walls import sandbox
from harness.isolation.walls.needs import Needs
from harness.isolation.walls.sandbox import Walls


@dataclass(frozen=True)
class IoLimit:
    """Limits of one block device: `device` is `major:minor` of the whole disk; None
    leaves a limit off."""

    device: str
    read_iops: int | None = None
    read_bytes_per_s: int | None = None
    write_iops: int | None = None
    write_bytes_per_s: int | None = None

    def named(
        self, interface: Literal["v1", "v2", "systemd", "docker"]
    ) -> dict[str, int | None]:
        """Return the limits by the names that an interface has for them."""
        values = (
            self.read_iops,
            self.read_bytes_per_s,
            self.write_iops,
            self.write_bytes_per_s,
        )
        return dict(zip(_RATES[interface].split(), values, strict=True))


_RATES = {
    "v1": "read_iops_device read_bps_device write_iops_device write_bps_device",
    "v2": "riops rbps wiops wbps",
    "systemd": "IOReadIOPSMax IOReadBandwidthMax IOWriteIOPSMax IOWriteBandwidthMax",
    "docker": "device_read_iops device_read_bps device_write_iops device_write_bps",
}


@dataclass(frozen=True)
class Limits:
    """Limits of a cap. `memory_bytes` None: measured, not limited. Swap is always off
    where the kernel allows. `processors`: numbers of the only processors that it may
    use; empty: no limit."""

    memory_bytes: int | None = None
    io: tuple[IoLimit, ...] = ()
    processors: tuple[int, ...] = ()


@dataclass(frozen=True)
class Availability:
    """Whether a backend works on this host, with reason and fix where it does not."""

    ok: bool
    reason: str = ""
    fix: str = ""
    io_limits: bool = False
    proves_memory: bool = False


class ProcessorTime(NamedTuple):
    """Processor seconds in user mode, and in the kernel."""

    user_s: float
    system_s: float


@dataclass(frozen=True)
class MemoryStats:
    """Memory of the cap and of the groups below it: bytes, and event counts since the
    cap began.

    Attributes:
        usage: everything charged: `anon` + `page_cache` + `shmem` + `kernel`, give or
            take pages in flight.
        peak: highest `usage` since the cap began or since `reset_peak()`.
        page_cache: pages of files, without shared memory.
        kernel: stacks, page tables, slabs and socket buffers.
        oom_kills: processes that the kernel killed because the cap was full.
        reclaims: times that the limit was hit and the kernel had to reclaim first (v1
            `failcnt`, v2 `max` event).
        major_faults: page faults that had to wait for the disk.
    """

    usage: int = 0
    peak: int = 0
    anon: int = 0
    page_cache: int = 0
    shmem: int = 0
    kernel: int = 0
    oom_kills: int = 0
    reclaims: int = 0
    major_faults: int = 0


@dataclass(frozen=True)
class IoStats:
    """Device I/O charged to the cap, all disks together; `by_disk`: of each
    (`major:minor`), where that is known."""

    read_bytes: int = 0
    read_requests: int = 0
    write_bytes: int = 0
    write_requests: int = 0
    by_disk: Mapping[str, IoStats] = field(
        default_factory=dict, compare=False, repr=False, kw_only=True
    )

    @classmethod
    def over(cls, by_disk: Mapping[str, IoStats]) -> IoStats:
        """Return the sum over disks."""
        names = ("read_bytes", "read_requests", "write_bytes", "write_requests")
        return cls(
            *(sum(getattr(one, name) for one in by_disk.values()) for name in names),
            by_disk=by_disk,
        )

    def of(self, disks: Collection[str]) -> IoStats:
        """Return the I/O of some disks; all of it where they or the I/O of each are not
        known."""
        known = bool(disks) and bool(self.by_disk)
        return (
            self.over(
                {disk: one for disk, one in self.by_disk.items() if disk in disks}
            )
            if known
            else self
        )


class Counters(ABC):
    """Counters of the processes inside a cap."""

    @abstractmethod
    def memory(self) -> MemoryStats:
        """Return the memory of the cap now; the last reading once its control group is
        gone."""

    @abstractmethod
    def io(self) -> IoStats | None:
        """Return the device I/O of the cap so far, None where the backend cannot count
        it."""

    @abstractmethod
    def pids(self) -> list[int]:
        """Return the processes inside."""

    def processor_s(self) -> ProcessorTime | None:
        """Return the processor time of all processes that were ever inside; None
        without a counter of the cap's own."""
        return None

    def pressure(self) -> tuple[int | None, int | None]:
        """Return microseconds that tasks stalled on (I/O, memory) so far; None without
        counts of the cap (v1)."""
        return None, None

    def enclosing_bytes(self) -> int | None:
        """Return the least memory limit of the groups that hold the cap; None where
        none is known."""
        return None

    def reset_peak(self) -> bool:
        """Restart the peak from the present usage; return False where the kernel cannot
        or this user may not, so that later peaks include earlier use."""
        return False


class Cap(Counters):
    """One live cap, used as a context manager: leaving it kills all processes inside
    and removes the cap. `caveats`: guarantees that this cap lacks, one sentence each,
    for the run record. `named_pipes`: whether processes inside inherit no descriptors,
    and open pipes by name instead."""

    caveats: list[str]
    named_pipes: ClassVar[bool] = False
    _needs: Needs = Needs()

    def bring(self, needs: Needs) -> None:
        """Declare the parts of the host that the work needs, before the first
        command."""
        self._needs = needs

    def walls(self) -> Walls:
        """Return the walls between the worker and the rest of the host."""
        return sandbox.walls()

    @abstractmethod
    def command(self, argv: Sequence[str]) -> list[str]:
        """Return `argv` wrapped to join the cap before it executes; the process is
        charged nowhere else."""

    def worker_command(self, argv: Sequence[str]) -> tuple[list[str], list[int]]:
        """Return `argv` wrapped to join the cap and then its sandbox, where this host
        has one, and the descriptors that the command inherits, to be closed after its
        start."""
        words, descriptors = sandbox.command(argv, self._needs)
        return self.command(words), descriptors

    @abstractmethod
    def set_memory(self, limit_bytes: int | None) -> None:
        """Change the memory limit."""

    def ending(self) -> str:
        """Return why the cap ended without a request of this process; empty while it
        exists."""
        return ""

    def kill(self) -> None:
        """Kill every process inside with SIGKILL and wait until all are gone."""
        kill_all(self.pids)

    @abstractmethod
    def close(self) -> None:
        """Kill remaining processes and remove the cap with everything it made. Raises
        HostError: the cap cannot be removed, since a process inside does not end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass
class Isolation(ABC):
    """Backend that makes caps: `cgroup2`, `cgroup1`, `systemd`, `docker`, `none`."""

    name: ClassVar[str]
    caveats: list[str] = field(default_factory=list)

    @classmethod
    @abstractmethod
    def available(cls) -> Availability:
        """Return whether the backend works here, found by trying, not by guessing."""

    @abstractmethod
    def create(self, run_id: str, limits: Limits) -> Cap:
        """Create a cap. Raises HostError: the kernel refuses; the fix has the necessary
        change."""

    def holder_cap(self) -> Cap | None:
        """Return the cap for the holder of runs' library pages; None: the holder runs
        beside the orchestrator."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return details of the isolation beyond the backend's name, for the record."""
        return {}

    @classmethod
    @abstractmethod
    def sweep(cls) -> list[str]:
        """Remove caps of dead orchestrators; return their names."""
