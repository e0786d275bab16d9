"""CUDA device: a separate stream for copies, pinned staging memory of exactly the requested size, CUDA events."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import torch
from torch import Tensor

from workloads.accelerator import Accelerator, Event, Kind, aligned_host_tensor
from workloads.accelerators.pool import no_room
from workloads.errors import BudgetError, HostError, require
from workloads.feature_table import SplitTable, Table, gather_parts
from workloads.units import format_bytes

# Most columns that a program copies at once: a warp's 32 loads of 16 bytes are 512 bytes.
_MAX_COLUMNS = 1024


class CudaEvent(Event):
    """Completion of a copy on the copy stream. `wait` blocks the caller, not the device, and releases the GIL."""

    def __init__(self, event: torch.cuda.Event, source: Tensor) -> None:
        self._event = event
        self._source: Tensor | None = source  # has to live until the device has read it

    def wait(self) -> None:
        """Wait until the copy is done."""
        self._event.synchronize()
        self._source = None

    def done(self) -> bool:
        """Return whether the copy is done."""
        return bool(self._event.query())  # type: ignore[no-untyped-call]


class CudaAccelerator(Accelerator):
    """CUDA device with tables in device memory; trains on the current stream and copies on another.

    `copy` may overwrite a slot once the training step that read it has returned: steps end by fetching the loss, which
    waits for the compute stream.
    """

    def __init__(self, name: str, memory_bytes: int | None = None) -> None:
        if not torch.cuda.is_available():
            raise HostError("device cuda: no CUDA device is usable here", "use cpu or emulated:a10g")
        index = int(name.partition(":")[2] or 0)
        if index >= torch.cuda.device_count():
            raise HostError(f"device {name}: this host has {torch.cuda.device_count()} CUDA devices", "use cuda:0")
        self.name = name
        self.kind: Kind = "cuda"
        self.torch_device = torch.device("cuda", index)
        free, _ = torch.cuda.mem_get_info(self.torch_device)
        self.memory_bytes: int | None = free if memory_bytes is None else memory_bytes
        self._used_bytes = 0
        self._lock = threading.Lock()
        self._copy_stream = torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]
        self._pinned: list[Tensor] = []

    def allocate(self, rows: int, dim: int, dtype: torch.dtype) -> Tensor:
        """Allocate a table in device memory; raises BudgetError past `memory_bytes` or past the free device memory."""
        nbytes = rows * dim * dtype.itemsize
        with self._lock:
            assert self.memory_bytes is not None
            left = self.memory_bytes - self._used_bytes
            if nbytes > left:
                raise no_room(nbytes, left, self.memory_bytes)
            try:
                table = torch.empty(rows, dim, dtype=dtype, device=self.torch_device)
            except torch.cuda.OutOfMemoryError as error:
                raise BudgetError(
                    f"device memory: a table needs {format_bytes(nbytes)}, which {self.name} has not free",
                    "end what else uses the device, or lower --device-memory",
                ) from error
            # Torch may reuse memory that the compute stream still reads.
            self._copy_stream.wait_stream(torch.cuda.current_stream(self.torch_device))
            self._used_bytes += nbytes
        return table

    def free(self, table: Tensor) -> None:
        """Count the table's bytes as free; torch frees them with the last reference."""
        table.record_stream(self._copy_stream)
        with self._lock:
            self._used_bytes -= table.numel() * table.element_size()

    def host_buffer(self, nbytes: int) -> Tensor:
        """Allocate page-aligned pinned memory of exactly `nbytes` (torch's pinned pool rounds up to a power of two)."""
        buffer = aligned_host_tensor(nbytes)
        if nbytes:
            self.pin(buffer)
        return buffer

    def pin(self, buffer: Tensor) -> None:
        """Pin page-aligned host memory until `close`. Raises HostError where the host refuses."""
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        code = runtime.cudaHostRegister(buffer.data_ptr(), buffer.nbytes, 0)
        fault = f"{format_bytes(buffer.nbytes)} of staging memory cannot be pinned (CUDA error {int(code)})"
        require(int(code) == 0, fault, "raise the memlock limit or make the staging buffer smaller", HostError)
        with self._lock:
            self._pinned.append(buffer)

    def copy(self, dst: Tensor, src: Tensor, dst_rows: Tensor | None = None, *, batch: int = -1) -> Event:
        """Copy on the copy stream; with `dst_rows` through a device buffer of the same size."""
        with torch.cuda.stream(self._copy_stream):
            if dst_rows is None:
                dst[: src.shape[0]].copy_(src, non_blocking=True)
            else:
                # Allocated and used on one stream, so torch reuses their memory in the right order.
                arrived = torch.empty(src.shape, dtype=src.dtype, device=self.torch_device)
                arrived.copy_(src, non_blocking=True)
                dst.index_copy_(0, dst_rows.to(self.torch_device), arrived)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._copy_stream)
        return CudaEvent(event, src)

    def gather(self, table: Table, rows: Tensor) -> Tensor:
        """Gather `table[rows]` on the current stream."""
        if isinstance(table, SplitTable):
            return gather_split(table.device, self.map_host(table.host), rows)
        return torch.index_select(table, 0, rows.to(self.torch_device, non_blocking=True))

    def map_host(self, buffer: Tensor) -> Tensor:
        """Map pinned host memory (any view of `host_buffer`, which stays alive) for the device without a copy; each
        read crosses the bus row by row."""
        return torch.as_tensor(_Mapped(buffer), device=self.torch_device)

    def synchronize(self) -> None:
        """Wait for every stream of the device."""
        torch.cuda.synchronize(self.torch_device)

    def close(self) -> None:
        """Wait for copies, then unpin all pinned memory."""
        self._copy_stream.synchronize()
        with self._lock:
            pinned, self._pinned = self._pinned, []
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        for buffer in pinned:
            runtime.cudaHostUnregister(buffer.data_ptr())


class _Mapped:
    """Host memory under unified addressing, described so that torch makes a device tensor over it without a copy."""

    def __init__(self, buffer: Tensor) -> None:
        self._buffer = buffer
        kinds = {torch.uint8: "|u1", torch.float16: "<f2", torch.float32: "<f4"}
        self.__cuda_array_interface__ = {
            "shape": tuple(buffer.shape),
            "typestr": kinds[buffer.dtype],
            "data": (buffer.data_ptr(), False),
            "strides": None,
            "version": 2,
        }


def gather_split(device_rows: Tensor, host_rows: Tensor, rows: Tensor) -> Tensor:
    """Gather rows of a split table: row r is `device_rows[r]`, or `host_rows[r - len(device_rows)]` past its end.

    The host part is pinned and mapped, so the device's own loads fetch it over the bus row by row (zero-copy; data
    tiering, section 4). With Triton one kernel reads both parts, each row by whole, aligned, consecutive loads; without
    it torch's `index_select` runs once for each part. `device_rows` is [d, dim] in device memory (d may be 0),
    `host_rows` [h, dim] mapped by `CudaAccelerator.map_host`, `rows` int64 [n] on the host, and the result [n, dim] in
    device memory, on the current stream.
    """
    kernel = _kernel() if host_rows.is_cuda else None
    dim = host_rows.shape[1]
    out = torch.empty(rows.shape[0], dim, dtype=host_rows.dtype, device=host_rows.device)
    if kernel is None:
        gather_parts(device_rows, host_rows, rows, out)
    elif out.numel():
        there = rows.to(host_rows.device, non_blocking=True)
        width = min(_MAX_COLUMNS, 1 << (dim - 1).bit_length())
        kernel[(rows.shape[0], -(-dim // width))](device_rows, host_rows, there, out, device_rows.shape[0], dim, width)
    return out


@cache
def _kernel() -> Any:
    """Import the Triton kernel on first use, which takes a second and 100 MB; None without Triton."""
    try:
        from workloads.accelerators.triton_gather import gather_kernel
    except ImportError:
        return None
    return gather_kernel
