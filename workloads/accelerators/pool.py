"""Shared memory that stands for an emulated device's memory, allocated outside the
run's memory cap.

Pages of shared memory are charged to the cgroup that first touches them (methodology
rule 5), so the orchestrator makes the pool with `DevicePool.create` and the worker
inside the cap maps it with `DevicePool.attach`. The pool is an unnamed memory file
(memfd), found through its creator's open files, so nothing remains after either process
fails.
"""

from __future__ import annotations

import mmap
import os
import socket
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workloads.errors import BudgetError, HostError, fault_of
from workloads.units import format_bytes

_ALIGNMENT = 4096
_MOST_SEEN = 256  # views kept for `seen_by_device`
#: Prefix of the name of a pool whose memory file's descriptor a process inherits,
#: followed by its number.
INHERITED = "descriptor:"
#: Environment variable with the folder of these descriptors, if another process of the
#: same run inherited them.
DESCRIPTORS_VARIABLE = "OUTCORE_DESCRIPTORS"
#: Reason for which a process ends by SIGSEGV where tables are hidden.
HIDDEN = (
    "the processor cannot read or write an emulated device's memory: copy() and "
    "gather() do"
)


class DevicePool:
    """Memory of one emulated device: `nbytes` under a `name`, unique on the host, by
    which `attach` finds it.

    The allocator lives in the attached process: one pool, one worker. `descriptor` is
    the memory file's, to pass on.
    """

    def __init__(self, descriptor: int, name: str, *, hidden: bool = False) -> None:
        self.name = name
        self.nbytes = os.fstat(descriptor).st_size
        self.descriptor = descriptor
        # Tables lie in the first mapping; the device uses them in the last. Hidden
        # tables have a first one of their own, which no code can read or write.
        if hidden and self.nbytes:
            self._mappings = [mmap.mmap(descriptor, self.nbytes, prot=0)]
        else:
            self._mappings = []
        self._mappings += [mmap.mmap(descriptor, self.nbytes)] if self.nbytes else []
        with warnings.catch_warnings():
            # torch warns of memory that cannot be written
            warnings.simplefilter("ignore")
            self._memory = [
                torch.frombuffer(mapping, dtype=torch.uint8)
                for mapping in self._mappings
            ]
        self._bases = [memory.data_ptr() for memory in self._memory]
        # by address and shape, for `seen_by_device`
        self._seen: dict[tuple[Any, ...], Tensor] = {}
        self._lock = threading.Lock()
        self._used: dict[int, int] = {}
        self.peak_bytes = 0  # most bytes allocated by this process so far

    @classmethod
    def create(
        cls, nbytes: int, name: str, *, touch: bool = True, hidden: bool = False
    ) -> DevicePool:
        """Make a pool of `nbytes` with all pages allocated; keep it open while workers
        use it.

        Without `touch`, pages are allocated on first use: for processes that measure
        nothing, and devices that may be larger than this host's memory. `hidden`: as
        for `attach`. Raises HostError where the host has too little free memory.
        """
        free = _free_bytes()
        if touch and nbytes > free:
            # The kernel would try all the same, and kill processes to free the pages.
            fault = (
                f"the emulated device needs {format_bytes(nbytes)}, "
                f"{format_bytes(free)} of memory are free"
            )
            raise HostError(fault, "lower --device-memory or free memory")
        descriptor = os.memfd_create(f"outcore-{name}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, nbytes)
            if nbytes and touch:
                # Allocates every page now and charges it to this process's cgroup.
                os.posix_fallocate(descriptor, 0, nbytes)
            return cls(descriptor, name, hidden=hidden)
        except OSError as error:
            os.close(descriptor)
            message = (
                f"the emulated device's {format_bytes(nbytes)} of shared memory cannot "
                "be had"
            )
            raise HostError.from_os(
                error, message, "lower --device-memory or free memory"
            ) from error

    @classmethod
    def attach(cls, name: str, *, hidden: bool = False) -> DevicePool:
        """Map the pool that another process of this user made under `name` and still
        holds.

        A `name` that begins with `INHERITED` is a descriptor that this process, or its
        ranks' launcher, inherited. An absolute path is the socket that passes the pool
        on, for containers, which inherit no descriptors. `hidden`: the processor can
        neither read nor write tables, as on a GPU; the accelerator does
        (`seen_by_device`). Raises HostError where no such pool exists, or its owner's
        open files cannot be read.
        """
        if name.startswith(INHERITED):
            return cls(_inherited(name.removeprefix(INHERITED)), name, hidden=hidden)
        if name.startswith("/"):
            return cls(_handed_over(Path(name)), name, hidden=hidden)
        for link in _open_memory_files(f"/memfd:outcore-{name} (deleted)"):
            try:
                return cls(os.open(link, os.O_RDWR | os.O_CLOEXEC), name, hidden=hidden)
            except OSError:
                continue
        raise HostError(
            f"no device pool called {name!r} can be opened",
            "keep its creator alive, and run both as the same user",
        )

    def allocate(self, nbytes: int) -> Tensor:
        """Allocate uint8 [nbytes] in the first free stretch that fits, at an offset
        aligned to 4096 bytes; raises BudgetError where there is none."""
        with self._lock:
            memory = self._open_memory()
            place = 0
            for offset, used in sorted(self._used.items()):
                if offset - place >= nbytes:
                    break
                place = -(-(offset + used) // _ALIGNMENT) * _ALIGNMENT
            if nbytes > self.nbytes - place:
                raise no_room(
                    nbytes, self.nbytes - sum(self._used.values()), self.nbytes
                )
            if nbytes == 0 or not memory:
                return torch.empty(0, dtype=torch.uint8)
            self._used[place] = nbytes
            self.peak_bytes = max(self.peak_bytes, sum(self._used.values()))
            return memory[0][place : place + nbytes]

    def seen_by_device(self, table: Tensor) -> Tensor:
        """Return a view of the table's bytes that can be read and written; other
        tensors as they are."""
        if len(self._bases) < 2 or (offset := self.offset_of(table)) is None:
            return table
        # Every mini-batch comes through here twice, mostly in one of few tables.
        key = offset, table.shape, table.stride(), table.dtype
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= _MOST_SEEN:
                self._seen = {}
            size = table.element_size()
            whole = self._memory[-1][: self.nbytes // size * size].view(table.dtype)
            seen = self._seen[key] = whole.as_strided(
                table.shape, table.stride(), offset // size
            )
        return seen

    def overwrite(self) -> None:
        """Overwrite the whole pool for every process that maps it: features become NaN
        or far-off numbers."""
        if memory := self._open_memory():
            memory[-1].fill_(0xFF)

    def free(self, table: Tensor) -> None:
        """Release a table of `allocate`, or any view that starts at the same byte;
        raises ValueError where there is none."""
        with self._lock:
            offset = self.offset_of(table)
            known = offset is not None and self._used.pop(offset, None) is not None
            if not known and table.numel():
                raise ValueError(
                    "the table was not allocated from this pool, or was freed before"
                )

    def offset_of(self, table: Tensor) -> int | None:
        """Return the byte offset in the pool at which the tensor begins; None if it
        lies elsewhere."""
        first = table.data_ptr()
        for base in self._bases:
            if 0 <= first - base < self.nbytes:
                return first - base
        return None

    @property
    def used_bytes(self) -> int:
        """Bytes allocated now."""
        with self._lock:
            return sum(self._used.values())

    def close(self) -> None:
        """Close the pool; its memory is freed once no process holds it."""
        if self.descriptor < 0:
            return
        os.close(self.descriptor)
        self.descriptor = -1
        mappings = self._mappings
        self._mappings = []
        self._memory = []
        self._bases = []
        self._seen = {}
        for mapping in mappings:
            # tensors still use the mapping, which ends with the last of them
            with suppress(BufferError):
                mapping.close()

    def __enter__(self) -> DevicePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_memory(self) -> list[Tensor]:
        if self.descriptor < 0:
            raise ValueError("the device pool is closed")
        return self._memory


def no_room(nbytes: int, left: int, total: int) -> BudgetError:
    """Return the error of a table of `nbytes` for which a device tier of `total` bytes
    has `left`."""
    return BudgetError(
        f"device memory: a table needs {format_bytes(nbytes)}, {format_bytes(left)} is "
        f"left of {format_bytes(total)}",
        "lower the device cache or raise --device-memory",
    )


def _inherited(number: str) -> int:
    """Open the memory file of the inherited descriptor `number` once more."""
    folder = os.environ.get(DESCRIPTORS_VARIABLE, "/proc/self/fd")
    try:
        return os.open(f"{folder}/{number}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        message = (
            f"the memory of an emulated device, descriptor {number}, cannot be opened"
        )
        raise HostError.from_os(error, message, "keep its creator alive") from error


def _handed_over(path: Path) -> int:
    """Receive the memory file's descriptor from the socket at `path`."""
    descriptors: list[int] = []
    folder = -1
    why = ""
    try:
        folder = os.open(path.parent, os.O_DIRECTORY | os.O_RDONLY)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as owner:
            # A socket's address holds 108 bytes, and the path may be longer.
            owner.connect(f"/proc/self/fd/{folder}/{path.name}")
            descriptors = socket.recv_fds(owner, 1, 1)[1]
    except OSError as error:
        why = f" ({fault_of(error)[0]})"
    finally:
        if folder >= 0:
            os.close(folder)
    if not descriptors:
        fault = f"no device pool is handed over at {path}{why}"
        raise HostError(fault, "keep its owner alive")
    return descriptors[0]


def _free_bytes() -> int:
    """Return the bytes available without swapping, by the kernel's estimate and this
    process's own cgroup."""
    meminfo = dict(
        line.split(":")
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    )
    free = int(meminfo["MemAvailable"].split()[0]) * 1024
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for folder in _own_cgroups():
            with suppress(OSError, ValueError):
                free = min(
                    free,
                    int((folder / limit).read_text())
                    - int((folder / used).read_text()),
                )
    return max(0, free)


def _own_cgroups() -> list[Path]:
    """List the folders of this process's memory cgroup (v1 and v2); the root where a
    container hides the path."""
    roots = {"": Path("/sys/fs/cgroup"), "memory": Path("/sys/fs/cgroup/memory")}
    folders = list(roots.values())
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            for name, root in roots.items():
                if name in controllers.split(","):
                    folders.append(root / path.lstrip("/"))
    return folders


def _open_memory_files(target: str) -> list[Path]:
    """Find the open files of a process that are the memory file `target`: of this one,
    its parent, or another one."""
    near = (str(os.getpid()), str(os.getppid()))
    processes = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    for process in sorted(processes, key=lambda entry: entry.name not in near):
        found = []
        with suppress(OSError):  # another user's, or ended meanwhile
            for descriptor in (process / "fd").iterdir():
                with suppress(OSError):
                    if str(descriptor.readlink()) == target:
                        found.append(descriptor)
        if found:
            return found
    return []
