"""Shared memory that stands for an emulated device's memory, allocated outside the run's memory cap.

Pages of shared memory are charged to the cgroup that first touches them (methodology rule 5), so the orchestrator makes
the pool with `DevicePool.create` and the worker inside the cap maps it with `DevicePool.attach`. The pool is an unnamed
memory file (memfd), found through its creator's open files, so nothing remains after either process fails.
"""

from __future__ import annotations

import mmap
import os
import socket
import threading
from pathlib import Path

import torch

from workloads.errors import BudgetError, HostError
from workloads.units import format_bytes

_ALIGNMENT = 4096


class DevicePool:
    """Memory of one emulated device: `nbytes` under a `name`, unique on the host, by which `attach` finds it.

    The allocator lives in the attached process: one pool, one worker.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self.nbytes = os.fstat(descriptor).st_size
        self._descriptor = descriptor
        self._memory: mmap.mmap | None = mmap.mmap(descriptor, self.nbytes) if self.nbytes else None
        self._lock = threading.Lock()
        self._used: dict[int, int] = {}

    @classmethod
    def create(cls, nbytes: int, name: str, *, touch: bool = True) -> DevicePool:
        """Make a pool of `nbytes` with all pages allocated; keep it open while workers use it.

        Without `touch`, pages are allocated on first use: for processes that measure nothing, and devices that may be
        larger than this host's memory.

        Raises:
            HostError: the host has too little free memory.
        """
        free = _free_bytes()
        if touch and nbytes > free:
            # The kernel would try all the same, and kill processes to free the pages.
            raise HostError(
                f"the emulated device needs {format_bytes(nbytes)}, {format_bytes(free)} of memory are free",
                "lower --device-memory or free memory",
            )
        descriptor = os.memfd_create(f"outcore-{name}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, nbytes)
            if nbytes and touch:
                # Allocates every page now and charges it to this process's cgroup.
                os.posix_fallocate(descriptor, 0, nbytes)
            return cls(descriptor, name)
        except OSError as error:
            os.close(descriptor)
            raise HostError(
                f"the emulated device's {format_bytes(nbytes)} of shared memory cannot be had ({error.strerror})",
                "lower --device-memory or free memory",
            ) from error

    @classmethod
    def attach(cls, name: str) -> DevicePool:
        """Map the pool that another process of this user made under `name` and still holds.

        An absolute path as `name` is the socket that passes the pool on, for containers, which see no other process.

        Raises:
            HostError: no such pool exists, or its owner's open files cannot be read.
        """
        if name.startswith("/"):
            return cls(_handed_over(Path(name)), name)
        for link in _open_memory_files(f"/memfd:outcore-{name} (deleted)"):
            try:
                return cls(os.open(link, os.O_RDWR | os.O_CLOEXEC), name)
            except OSError:
                continue
        raise HostError(
            f"no device pool called {name!r} can be opened", "keep its creator alive, and run both as the same user"
        )

    def allocate(self, nbytes: int) -> torch.Tensor:
        """Allocate uint8 [nbytes] in the first free stretch that fits, at an offset aligned to 4096 bytes.

        Raises:
            BudgetError: the pool has no free stretch of that length.
        """
        with self._lock:
            memory = self._open_memory()
            place = 0
            for offset, used in sorted(self._used.items()):
                if offset - place >= nbytes:
                    break
                place = _round_up(offset + used)
            if nbytes > self.nbytes - place:
                taken = sum(self._used.values())
                raise BudgetError(
                    f"device memory: a table needs {format_bytes(nbytes)}, {format_bytes(self.nbytes - taken)} is left "
                    f"of {format_bytes(self.nbytes)}",
                    "lower the device cache or raise --device-memory",
                )
            if nbytes == 0 or memory is None:
                return torch.empty(0, dtype=torch.uint8)
            self._used[place] = nbytes
            return torch.frombuffer(memory, dtype=torch.uint8, offset=place, count=nbytes)

    def overwrite(self) -> None:
        """Overwrite the whole pool for every process that maps it: features become NaN or far-off numbers."""
        if memory := self._open_memory():
            torch.frombuffer(memory, dtype=torch.uint8).fill_(0xFF)

    def free(self, table: torch.Tensor) -> None:
        """Release a table of `allocate`, or any view that starts at the same byte.

        Raises:
            ValueError: no table is allocated there.
        """
        with self._lock:
            offset = self.offset_of(table)
            known = offset is not None and self._used.pop(offset, None) is not None
            if not known and table.numel():
                raise ValueError("the table was not allocated from this pool, or was freed before")

    def offset_of(self, table: torch.Tensor) -> int | None:
        """Return the byte offset in the pool at which the tensor begins; None if it lies elsewhere."""
        if self._memory is None:
            return None
        offset = table.data_ptr() - self._base()
        return offset if 0 <= offset < self.nbytes else None

    @property
    def descriptor(self) -> int:
        """File descriptor of the memory file, to pass to another process."""
        return self._descriptor

    @property
    def used_bytes(self) -> int:
        """Bytes allocated now."""
        with self._lock:
            return sum(self._used.values())

    def close(self, unlink: bool = True) -> None:
        """Close the pool; its memory is freed once no process holds it. `unlink` has no effect."""
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        memory, self._memory = self._memory, None
        if memory is not None:
            try:
                memory.close()
            except BufferError:
                pass  # tensors still use the mapping, which ends with the last of them

    def __enter__(self) -> DevicePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_memory(self) -> mmap.mmap | None:
        if self._descriptor < 0:
            raise ValueError("the device pool is closed")
        return self._memory

    def _base(self) -> int:
        if not hasattr(self, "_base_address"):
            assert self._memory is not None
            self._base_address = torch.frombuffer(self._memory, dtype=torch.uint8, count=1).data_ptr()
        return self._base_address


def _handed_over(path: Path) -> int:
    """Receive the memory file's descriptor from the socket at `path`."""
    try:
        folder = os.open(path.parent, os.O_DIRECTORY | os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as owner:
                # A socket's address holds 108 bytes, and the path may be longer.
                owner.connect(f"/proc/self/fd/{folder}/{path.name}")
                descriptors = socket.recv_fds(owner, 1, 1)[1]
        finally:
            os.close(folder)
    except OSError as error:
        raise HostError(
            f"no device pool is handed over at {path} ({error.strerror})", "keep its owner alive"
        ) from error
    if not descriptors:
        raise HostError(f"no device pool is handed over at {path}", "keep its owner alive")
    return descriptors[0]


def _free_bytes() -> int:
    """Return the bytes available without swapping, by the kernel's estimate and this process's own cgroup."""
    free = 1 << 62
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        for folder in _own_cgroups():
            try:
                free = min(free, int((folder / limit).read_text()) - int((folder / used).read_text()))
            except (OSError, ValueError):
                continue
    return max(0, free)


def _own_cgroups() -> list[Path]:
    """List the folders of this process's memory cgroup (v1 and v2); the root where a container hides the path."""
    folders = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")]
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return folders
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            folders.append(Path("/sys/fs/cgroup") / path.lstrip("/"))
        elif "memory" in controllers.split(","):
            folders.append(Path("/sys/fs/cgroup/memory") / path.lstrip("/"))
    return folders


def _round_up(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _open_memory_files(target: str) -> list[Path]:
    """Find open files of processes that are the memory file `target`, in this process and its ancestors first."""
    found: list[Path] = []
    ancestors: list[int] = []
    pid = os.getpid()
    while pid > 0:
        ancestors.append(pid)
        pid = _parent(pid)
    others = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    for pid in dict.fromkeys(ancestors + sorted(others)):
        try:
            descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                if str(descriptor.readlink()) == target:
                    found.append(descriptor)
            except OSError:
                continue
        if found:
            break
    return found


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])
