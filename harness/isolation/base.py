"""What every isolation backend offers: a cap on memory and device I/O that the kernel keeps for one run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from harness.isolation.files import read_text


@dataclass(frozen=True)
class IoLimit:
    """Limits of one block device: `device` is `major:minor` of the whole disk; None leaves a limit off."""

    device: str
    read_iops: int | None = None
    read_bytes_per_s: int | None = None
    write_iops: int | None = None
    write_bytes_per_s: int | None = None


@dataclass(frozen=True)
class Limits:
    """What a cap enforces. `memory_bytes` None: measured, not limited. Swap is always off where the kernel can."""

    memory_bytes: int | None = None
    io: tuple[IoLimit, ...] = ()


@dataclass(frozen=True)
class Needs:
    """What of the host the work inside needs, for caps in which only part of the host is seen (containers).

    Attributes:
        read_only, writable: folders and files, to be seen at the same paths.
        gpu: whether it computes on one.
        image: the container image that brings the work; None where Outcore's own does.
    """

    read_only: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    gpu: bool = False
    image: str | None = None


@dataclass(frozen=True)
class Availability:
    """Whether a backend works on this host, and if not, why and what to do."""

    ok: bool
    reason: str = ""
    fix: str = ""
    io_limits: bool = False
    proves_memory: bool = False


@dataclass(frozen=True)
class MemoryStats:
    """The cap as the kernel sees it, the groups below it included. Bytes and event counts since the cap began.

    Attributes:
        usage: everything charged: `anon` + `page_cache` + `shmem` + `kernel`, give or take what is in flight.
        peak: the most `usage` has been since the cap began or `reset_peak()`.
        page_cache: pages of files, without shared memory.
        kernel: stacks, page tables, slabs and socket buffers.
        oom_kills: processes the kernel ended because the cap was full.
        reclaims: how often the limit was hit and the kernel had to reclaim first (v1 `failcnt`, v2 `max` event).
        limit: the limit in force, None for none.
        major_faults: page faults that had to wait for the disk.
        swap: what is swapped out.
    """

    usage: int = 0
    peak: int = 0
    anon: int = 0
    page_cache: int = 0
    shmem: int = 0
    kernel: int = 0
    oom_kills: int = 0
    reclaims: int = 0
    limit: int | None = None
    major_faults: int = 0
    swap: int = 0


@dataclass(frozen=True)
class IoStats:
    """Device I/O charged to the cap, all devices together."""

    read_bytes: int = 0
    read_requests: int = 0
    write_bytes: int = 0
    write_requests: int = 0


class Cap(ABC):
    """One live cap. Use as a context manager: leaving it kills what is inside and removes it.

    Attributes:
        caveats: what this cap does not keep, one sentence each, for the run record.
        named_pipes: whether what runs inside inherits no descriptors, and opens pipes by name instead.
    """

    caveats: list[str]
    named_pipes: ClassVar[bool] = False

    def bring(self, needs: Needs) -> None:  # noqa: B027  only a container has to be told
        """Say what the work needs of the host, before the first command."""

    @abstractmethod
    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv` wrapped so that the process joins the cap first and then executes it; nothing is charged elsewhere."""

    def worker_command(self, argv: Sequence[str]) -> list[str]:
        """As `command`, for what may want to leave the cap, and makes none of its own: it cannot, where that is so."""
        return self.command(argv)

    @abstractmethod
    def memory(self) -> MemoryStats:
        """Memory of the cap now."""

    @abstractmethod
    def io(self) -> IoStats | None:
        """Device I/O of the cap so far, None where the backend cannot tell."""

    @abstractmethod
    def pids(self) -> list[int]:
        """Processes inside."""

    def strays(self, pids: Collection[int]) -> list[int]:
        """Of these live processes the ones of which a thread is outside; processes that have ended are none."""
        inside = set(self.pids())
        return [pid for pid in pids if pid not in inside and alive(pid)]

    @abstractmethod
    def set_memory(self, limit_bytes: int | None) -> None:
        """Change the memory limit."""

    def pressure(self) -> tuple[int | None, int | None]:
        """Microseconds that tasks of the cap stalled on (I/O, memory) so far; None where only the host's are known."""
        return None, None

    def reset_peak(self) -> None:  # noqa: B027  a backend may be unable to
        """Forget the peak so far, where the kernel can."""

    def ending(self) -> str:
        """Why the cap itself is gone where nobody here ended it; empty while it stands."""
        return ""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL everything inside and wait until it is gone."""

    @abstractmethod
    def close(self) -> None:
        """Kill what is left and remove the cap; leaves nothing behind."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def alive(pid: int) -> bool:
    """Whether a process runs; one that ends has left its groups before it is gone."""
    state = read_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return bool(state) and state[0] not in ("Z", "X")


@dataclass
class Isolation(ABC):
    """A way to cap: `cgroup2`, `cgroup1`, `systemd`, `docker`, `none`."""

    name: ClassVar[str]
    caveats: list[str] = field(default_factory=list)

    @classmethod
    @abstractmethod
    def available(cls) -> Availability:
        """Whether it works here, found by trying, not by guessing."""

    @abstractmethod
    def create(self, run_id: str, limits: Limits) -> Cap:
        """A new cap.

        Raises:
            HostError: the kernel refuses; the fix says what to change.
        """

    def holder_cap(self) -> Cap | None:
        """Where the holder of library pages has to run to hold those of runs; None: beside the orchestrator."""
        return None

    def describe(self) -> dict[str, Any]:
        """What a run was held by beyond the backend's name, for the record."""
        return {}

    @classmethod
    @abstractmethod
    def sweep(cls) -> list[str]:
        """Remove caps that dead orchestrators left behind; returns their names."""
