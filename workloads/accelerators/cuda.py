"""CUDA device: streams for copies, structures and zero-copy reads, pinned host memory
of exactly the requested size."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from workloads.accelerator import (
    Accelerator,
    Event,
    Kind,
    LaneSpan,
    aligned_host_tensor,
)
from workloads.accelerators.pinned import HostRing, PinnedMemory
from workloads.accelerators.pool import no_room
from workloads.accelerators.timeline import CudaEvent, Timeline
from workloads.arraytypes import Array
from workloads.direct_files import PAGE, padded
from workloads.errors import BudgetError, HostError
from workloads.feature_table import SplitTable, Table, gather_parts
from workloads.units import format_bytes

# The rows of an indexed copy arrive piece by piece in two device buffers: while one
# piece crosses the bus, the rows of the piece before it are written to their places. A
# smaller piece crosses faster than Python starts the next one.
_ARRIVAL_BYTES = 8 << 20
_ARRIVAL_ROWS = 1 << 15
_INDEX_RING_BYTES = 2 << 20
# Torch reserves device memory in segments, of which each may be this much larger than
# its tensors together.
_SEGMENT_BYTES = 32 << 20
GatherRows = Callable[[Tensor, Tensor, Tensor, Tensor], None]


class _Arrival:
    """Device buffer of one piece of an indexed copy."""

    def __init__(self, device: torch.device) -> None:
        self.rows = torch.empty(_ARRIVAL_BYTES, dtype=torch.uint8, device=device)
        self.there = torch.cuda.Event()  # type: ignore[no-untyped-call]  # they have crossed the bus
        self.free = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # they are in their places


class _Upload:
    """Buffer in pinned memory and its copy on the device, for small arrays of one
    mini-batch at a time; both grow."""

    def __init__(self, accelerator: CudaAccelerator, stream: torch.cuda.Stream) -> None:
        self._accelerator = accelerator
        self._stream = stream
        self._host = torch.empty(0, dtype=torch.uint8)
        self._there = torch.empty(0, dtype=torch.uint8, device=accelerator.torch_device)
        self._sent = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]

    def send(self, arrays: Sequence[Array]) -> list[Tensor]:
        """Start one copy of all arrays on the stream; return them as device tensors,
        valid until the next call."""
        ends = list(itertools.accumulate(padded(array.nbytes, 16) for array in arrays))
        self._sent.synchronize()  # the last copy has left the host's buffer
        if ends and ends[-1] > self._host.nbytes:
            self._grow(padded(ends[-1] * 5 // 4))
        found = []
        for array, end in zip(arrays, ends, strict=True):
            values = torch.from_numpy(array)
            begin = end - padded(array.nbytes, 16)
            here, there = (
                memory[begin : begin + array.nbytes]
                .view(values.dtype)
                .view(array.shape)
                for memory in (self._host, self._there)
            )
            here.copy_(values)  # by several threads
            found.append(there)
        if ends:
            with torch.cuda.stream(self._stream):
                self._there[: ends[-1]].copy_(self._host[: ends[-1]], non_blocking=True)
        self._sent.record(self._stream)
        return found

    def _grow(self, nbytes: int) -> None:
        # waits for the device, which may read the old copy
        self._accelerator.free_host(self._host)
        # another stream may still use what torch would give for the current one
        with torch.cuda.stream(self._stream):
            self._there = torch.empty(
                nbytes, dtype=torch.uint8, device=self._accelerator.torch_device
            )
        self._host = self._accelerator.host_buffer(nbytes)


class CudaAccelerator(Accelerator):
    """CUDA device with tables in device memory; trains on the current stream and copies
    on others.

    `copy` may overwrite a slot once the training step that read it has returned: steps
    end by fetching the loss, which waits for the compute stream.

    Args:
        name: `cuda` or `cuda:N`.
        memory_bytes: device memory of the run; None: all that is free.
        training_bytes: part of it that training takes beside the tables, as the
            calibration measured it. Given, torch refuses to hold more than
            `memory_bytes`; None: not measured.
    """

    def __init__(
        self,
        name: str,
        memory_bytes: int | None = None,
        training_bytes: int | None = None,
    ) -> None:
        if not torch.cuda.is_available():
            raise HostError(
                "device cuda: no CUDA device is usable here", "use cpu or emulated:a10g"
            )
        index = int(name.partition(":")[2] or 0)
        if index >= torch.cuda.device_count():
            fault = (
                f"device {name}: this host has {torch.cuda.device_count()} CUDA devices"
            )
            raise HostError(fault, "use cuda:0")
        self.name = name
        self.kind: Kind = "cuda"
        self.gathers_ahead = True
        self.torch_device = torch.device("cuda", index)
        self._index = index
        free, total = torch.cuda.mem_get_info(self.torch_device)
        given = free if memory_bytes is None else memory_bytes
        if training_bytes is not None:
            torch.cuda.set_per_process_memory_fraction(
                min(1.0, given / total), self.torch_device
            )
        self.training_bytes = training_bytes or 0
        self.memory_bytes: int | None = max(0, given - self.training_bytes)
        self._used_bytes = 0
        self._lock = threading.Lock()
        with self._guard():
            self._copying, self._placing, self._gathering = (
                self._stream() for _ in range(3)
            )
            # Structures of the mini-batch in training go before rows of later ones.
            structures = self._stream(priority=-1)
        self._streams = (self._copying, self._placing, self._gathering, structures)
        self._pinned = PinnedMemory(torch.cuda.cudart(), self.synchronize)  # type: ignore[no-untyped-call]
        self._timeline = Timeline(self.torch_device)
        self._arrivals: list[_Arrival] = []
        self._turn = 0
        self._scatters = threading.Lock()
        ring = self.host_buffer(_INDEX_RING_BYTES)
        self._indices = HostRing(ring)
        self._ring_there = self.map_host(ring)
        self._results = self.host_buffer(PAGE).view(torch.float64)
        self._fetched = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self._structures = structures
        self._structure = _Upload(self, structures)
        self._alias = _Upload(self, structures)
        self._alias_ahead = _Upload(self, self._gathering)
        self._kernels: dict[tuple[int, torch.dtype], GatherRows | None] = {}
        self._notes: dict[str, str] = {}

    def _guard(self) -> torch.cuda.device:
        """Make this device the calling thread's for the body; pinning, mapping and
        launches go to the current one."""
        # torch takes a number at once, and asks much about a name
        return torch.cuda.device(self._index)

    def _stream(self, priority: int = 0) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.torch_device, priority=priority)  # type: ignore[no-untyped-call]

    @property
    def used_bytes(self) -> int:
        """Bytes of the tables allocated now."""
        with self._lock:
            return self._used_bytes

    @property
    def peak_bytes(self) -> int:
        """Most bytes that torch reserved on the device: tables, training, and room that
        it keeps for reuse."""
        return int(torch.cuda.max_memory_reserved(self.torch_device))

    @property
    def peak_beside_tables(self) -> int:
        """Most bytes reserved beside the tables allocated now, with room for torch's
        segments around later tables."""
        return max(0, self.peak_bytes - self.used_bytes) + _SEGMENT_BYTES

    def allocate(self, rows: int, dim: int, dtype: torch.dtype) -> Tensor:
        """Allocate a table in device memory; raises BudgetError past `memory_bytes` or
        past the free device memory."""
        nbytes = rows * dim * dtype.itemsize
        with self._lock:
            assert self.memory_bytes is not None
            left = self.memory_bytes - self._used_bytes
            if nbytes > left:
                raise no_room(nbytes, left, self.memory_bytes)
            try:
                # Torch aligns to 512 bytes only.
                raw = torch.empty(
                    nbytes + PAGE, dtype=torch.uint8, device=self.torch_device
                )
            except torch.cuda.OutOfMemoryError as error:
                fault = (
                    f"device memory: a table needs {format_bytes(nbytes)}, which "
                    f"{self.name} has not free"
                )
                raise BudgetError(
                    fault, "end what else uses the device, or lower --device-memory"
                ) from error
            # Torch may reuse memory that the compute stream still reads.
            now = torch.cuda.current_stream(self._index)
            for stream in self._streams:
                stream.wait_stream(now)
            self._used_bytes += nbytes
        first = -raw.data_ptr() % PAGE
        return raw[first : first + nbytes].view(dtype).view(rows, dim)

    def free(self, table: Tensor) -> None:
        """Count the table's bytes as free; torch frees them with the last reference."""
        for stream in self._streams:
            table.record_stream(stream)
        with self._lock:
            self._used_bytes -= table.numel() * table.element_size()

    def host_buffer(self, nbytes: int) -> Tensor:
        """Allocate page-aligned pinned memory of exactly `nbytes` (torch's pinned pool
        rounds up to a power of two)."""
        # Whole pages: one that two buffers share could not be pinned twice.
        buffer = aligned_host_tensor(padded(nbytes))[:nbytes]
        self.pin(buffer)
        return buffer

    def pin(self, buffer: Tensor) -> None:
        """Pin page-aligned host memory until `free_host` or `close`. Raises HostError
        where the host refuses."""
        with self._guard():
            self._pinned.add(buffer)

    def free_host(self, buffer: Tensor) -> None:
        """Unpin memory of `host_buffer` or `pin` once the device is idle: kernels may
        read it, not only copies."""
        with self._guard():
            self._pinned.remove(buffer)

    def copy(
        self,
        dst: Tensor,
        src: Tensor,
        dst_rows: Tensor | None = None,
        *,
        batch: int = -1,
    ) -> Event:
        """Copy on the copy stream; with `dst_rows` through device buffers, whose rows
        another stream places."""
        with self._guard():
            if dst_rows is not None:
                return self._scatter(dst, src, dst_rows, batch)
            span = self._timeline.open("copy", batch, self._copying)
            with torch.cuda.stream(self._copying):
                dst[: src.shape[0]].copy_(src, non_blocking=True)
            self._timeline.close(span, self._copying)
            return CudaEvent(span.end, src)

    def _scatter(self, dst: Tensor, src: Tensor, dst_rows: Tensor, batch: int) -> Event:
        """Copy `src` to rows of `dst`: piece by piece to a device buffer, and from
        there to its rows."""
        row_bytes = src.shape[1] * src.element_size()
        step = max(1, min(_ARRIVAL_ROWS, _ARRIVAL_BYTES // max(1, row_bytes)))
        places = dst_rows.numpy()
        with self._scatters:
            if not self._arrivals:
                self._arrivals = [_Arrival(self.torch_device) for _ in range(2)]
                self._copying.wait_stream(torch.cuda.current_stream(self._index))
            before = torch.cuda.current_stream(self._index)
            span = self._timeline.open("copy", batch, self._copying)
            try:
                for first in range(0, src.shape[0], step):
                    part = src[first : first + step]
                    to = places[first : first + step]
                    arrival = self._arrivals[self._turn]
                    self._turn = 1 - self._turn
                    rows = (
                        arrival.rows[: part.shape[0] * row_bytes]
                        .view(src.dtype)
                        .view(part.shape)
                    )
                    self._copying.wait_event(arrival.free)
                    torch.cuda.set_stream(self._copying)
                    rows.copy_(part, non_blocking=True)
                    arrival.there.record(self._copying)
                    self._placing.wait_event(arrival.there)
                    torch.cuda.set_stream(self._placing)
                    self._indices.send(to, partial(self._place, dst, arrival, rows))
            finally:
                torch.cuda.set_stream(before)
            self._timeline.close(span, self._placing)
        return CudaEvent(span.end, src)

    def _place(
        self, dst: Tensor, arrival: _Arrival, rows: Tensor, first: int, nbytes: int
    ) -> Event:
        """Write rows that have arrived to their places, which the kernel reads from the
        ring, on the current stream."""
        dst.index_copy_(
            0, self._ring_there[first : first + nbytes].view(torch.int64), rows
        )
        arrival.free.record(self._placing)
        return CudaEvent(arrival.free)

    def gather(self, table: Table, rows: Tensor) -> Tensor:
        """Gather `table[rows]` on the current stream."""
        if not isinstance(table, SplitTable):
            return torch.index_select(
                table, 0, rows.to(self.torch_device, non_blocking=True)
            )
        out = torch.empty(
            rows.shape[0], table.shape[1], dtype=table.dtype, device=self.torch_device
        )
        with self._guard(), self.span("zero-copy"):
            self._gather_split(
                table, rows, out, self._alias, torch.cuda.current_stream(self._index)
            )
        return out

    def gather_ahead(
        self, out: Tensor, table: Table, rows: Tensor, *, batch: int = -1
    ) -> Event:
        """Gather `table[rows]` into the first rows of `out` on a stream of its own,
        beside training."""
        assert isinstance(table, SplitTable)
        with self._guard(), torch.cuda.stream(self._gathering):
            span = self._timeline.open("zero-copy", batch, self._gathering)
            self._gather_split(table, rows, out, self._alias_ahead, self._gathering)
            self._timeline.close(span, self._gathering)
        return CudaEvent(span.end)

    def _gather_split(
        self,
        table: SplitTable,
        rows: Tensor,
        out: Tensor,
        alias: _Upload,
        stream: torch.cuda.Stream,
    ) -> None:
        """Gather rows of a split table on `stream`, the current one; the kernel reads
        the host part over the bus."""
        host = self.map_host(table.host)
        kernel = self._kernel(out.shape[1], out.dtype)
        if kernel is None:
            gather_parts(table.device, host, rows, out)
            return
        if alias is self._alias:  # its rows cross the bus on another stream
            self._structures.wait_stream(stream)
        (there,) = alias.send([rows.numpy()])
        if alias is self._alias:
            stream.wait_stream(self._structures)
        kernel(table.device, host, there, out)

    def map_host(self, buffer: Tensor) -> Tensor:
        """Map pinned host memory (any view of `host_buffer`, which stays alive) for the
        device without a copy; each read crosses the bus row by row."""
        with self._guard():
            return torch.as_tensor(_Mapped(buffer), device=self.torch_device)

    def upload(self, arrays: Sequence[Array]) -> list[Tensor]:
        """Copy a mini-batch's structure in one piece, ahead of the rows of later
        mini-batches."""
        with self._guard():
            now = torch.cuda.current_stream(self._index)
            self._structures.wait_stream(now)
            found = self._structure.send(arrays)
            now.wait_stream(self._structures)
        return found

    def fetch(self, values: Tensor) -> list[float]:
        """Copy the numbers to the host after all work of the current stream, and sleep
        until they are there."""
        with self._guard():
            there = self._results[: values.shape[0]]
            there.copy_(values.double(), non_blocking=True)
            self._fetched.record(torch.cuda.current_stream(self._index))
            self._fetched.synchronize()
        found: list[float] = there.tolist()
        return found

    @contextmanager
    def span(self, lane: str, batch: int = -1) -> Iterator[None]:
        """Time the work that the body starts on the current stream."""
        stream = torch.cuda.current_stream(self._index)
        span = self._timeline.open(lane, batch, stream)
        yield
        self._timeline.close(span, stream)

    def seconds(self, action: Callable[[], object]) -> float:
        """Return the seconds of an action by CUDA events on the current stream, without
        the wait of the host."""
        with self._guard():
            now = torch.cuda.current_stream(self._index)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            self.synchronize()
            begin.record(now)
            action()
            end.record(now)
            self.synchronize()
            return float(begin.elapsed_time(end)) / 1e3

    def warm_up(self, dim: int, dtype: torch.dtype) -> None:
        """Compile the gather kernel for these rows and copy some, so that what the
        driver loads is there afterwards."""
        self._kernel(dim, dtype)
        # no table of the budget
        table = torch.empty(2, dim, dtype=dtype, device=self.torch_device)
        staging = self.host_buffer(table.nbytes)
        self.synchronize()
        for places in (None, torch.arange(2)):
            self.copy(table, staging.view(dtype).view(2, dim), places).wait()
        self.lanes()
        self.free_host(staging)

    def _kernel(self, dim: int, dtype: torch.dtype) -> GatherRows | None:
        """Return the Triton kernel for these rows, compiled on first use; None where it
        cannot be compiled."""
        if (dim, dtype) not in self._kernels:
            self._kernels[dim, dtype] = self._compiled(dim, dtype)
        return self._kernels[dim, dtype]

    def _compiled(self, dim: int, dtype: torch.dtype) -> GatherRows | None:
        """Try the kernel on a table of four rows. Triton needs a C compiler, Python.h
        and libcuda at its first launch, and fails in as many ways as hosts lack
        them."""
        buffer = self.host_buffer(2 * dim * dtype.itemsize)
        try:
            from workloads.accelerators.triton_gather import gather_rows

            with self._guard():
                host = buffer.view(dtype).view(2, dim).fill_(2)
                own = torch.ones(2, dim, dtype=dtype, device=self.torch_device)
                out = torch.empty(4, dim, dtype=dtype, device=self.torch_device)
                rows = torch.tensor([3, 0, 2, 1], device=self.torch_device)
                gather_rows(own, self.map_host(host), rows, out)
                if out[:, 0].tolist() != [2, 1, 2, 1]:
                    raise RuntimeError("it returns other rows")
        except Exception as error:
            why = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            self._notes["zero_copy"] = (
                "by torch's index_select: the Triton kernel cannot be used here "
                f"({why})"
            )
            return None
        finally:
            self.free_host(buffer)
        return gather_rows

    def notes(self) -> dict[str, str]:
        """Return the reason why zero-copy reads do not use the Triton kernel, if so."""
        return self._notes

    def synchronize(self) -> None:
        """Wait for every stream of the device."""
        torch.cuda.synchronize(self.torch_device)

    def lanes(self) -> list[LaneSpan]:
        """Return the spans of copies, training and zero-copy reads since the last call,
        by CUDA events."""
        with self._guard():
            return self._timeline.drain()

    def close(self) -> None:
        """Wait for all work, then unpin all pinned memory."""
        self.synchronize()
        self._arrivals = []
        with self._guard():
            self._pinned.close()


class _Mapped:
    """Host memory under unified addressing, described so that torch makes a device
    tensor over it without a copy."""

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
