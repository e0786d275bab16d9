"""Host memory pinned for a CUDA device: the registry of pinned buffers, and a ring for
small arrays under way."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from workloads.accelerator import Event
from workloads.arraytypes import Array
from workloads.direct_files import padded
from workloads.errors import HostError, require
from workloads.units import format_bytes

# cudaHostRegisterPortable | cudaHostRegisterMapped: pinned for every device, and
# readable by its kernels.
_FLAGS = 3
_PIECE = 64


class Driver(Protocol):
    """Functions of the CUDA runtime as `torch.cuda.cudart()` has them; each returns an
    error code, 0 for success."""

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> Any:
        """Pin whole pages."""

    def cudaHostUnregister(self, address: int) -> Any:
        """Unpin what was pinned at this address."""


class PinnedMemory:
    """Registry of pinned buffers, each held until it is removed. Any thread may call
    it.

    Args:
        driver: pins and unpins.
        idle: waits until the device neither copies nor reads any host memory; called
            before a buffer is unpinned.
    """

    def __init__(self, driver: Driver, idle: Callable[[], object]) -> None:
        self._driver = driver
        self._idle = idle
        self._lock = threading.Lock()
        self._held: dict[int, Tensor] = {}
        # Memory that is freed while it is pinned could not be pinned again by its next
        # owner.
        weakref.finalize(self, _unpin, driver, self._held)

    @property
    def nbytes(self) -> int:
        """Bytes pinned now."""
        with self._lock:
            return sum(buffer.nbytes for buffer in self._held.values())

    def add(self, buffer: Tensor) -> None:
        """Pin page-aligned memory, its last page whole. Raises HostError where the host
        refuses."""
        if not buffer.nbytes:
            return
        code = int(
            self._driver.cudaHostRegister(
                buffer.data_ptr(), padded(buffer.nbytes), _FLAGS
            )
        )
        fault = (
            f"{format_bytes(buffer.nbytes)} of staging memory cannot be pinned (CUDA "
            f"error {code})"
        )
        valid = code == 0
        require(
            valid,
            fault,
            "raise the memlock limit or make the staging buffer smaller",
            HostError,
        )
        with self._lock:
            self._held[buffer.data_ptr()] = buffer

    def remove(self, buffer: Tensor) -> None:
        """Unpin the buffer that starts where `buffer` does, once the device is idle;
        ignore memory not pinned."""
        with self._lock:
            held = self._held.pop(buffer.data_ptr(), None) if buffer.nbytes else None
        if held is not None:
            self._idle()
            self._driver.cudaHostUnregister(held.data_ptr())

    def close(self) -> None:
        """Unpin every buffer."""
        with self._lock:
            held = list(self._held.values())
        for buffer in held:
            self.remove(buffer)


def _unpin(driver: Driver, held: dict[int, Tensor]) -> None:
    """Unpin the buffers of a registry that nothing refers to any more."""
    while held:
        driver.cudaHostUnregister(held.popitem()[0])


class HostRing:
    """Ring of host memory for small arrays on their way to a device; bytes are reused
    once the device has read them.

    Args:
        memory: uint8 [n], pinned.
    """

    def __init__(self, memory: Tensor) -> None:
        self._memory = memory
        self._bytes = memory.numpy()
        self._lock = threading.Lock()
        self._next = 0
        # (begin, end, completion), oldest first
        self._under_way: deque[tuple[int, int, Event]] = deque()

    def send(self, array: Array, start: Callable[[int, int], Event]) -> Event:
        """Put `array` into the ring and start the device's reading of it.

        Args:
            array: contiguous array of at most the ring's bytes.
            start: function that receives the array's first byte in the ring and its
                number of bytes, and returns the event at which the device has read
                them.
        """
        size = -(-array.nbytes // _PIECE) * _PIECE
        if size > self._memory.nbytes:
            raise ValueError(
                f"{array.nbytes} bytes for a ring of {self._memory.nbytes}"
            )
        with self._lock:
            begin = self._next if self._next + size <= self._memory.nbytes else 0
            end = begin + size
            while self._under_way and self._under_way[0][2].done():
                self._under_way.popleft()
            while any(
                first < end and begin < last for first, last, _ in self._under_way
            ):
                self._under_way.popleft()[2].wait()
            flat = np.ascontiguousarray(array).reshape(-1)
            self._bytes[begin : begin + array.nbytes] = flat.view(np.uint8)
            event = start(begin, array.nbytes)
            self._under_way.append((begin, end, event))
            self._next = end
            return event
