"""Memory that training reads, and the copies into it: one table of cached rows and
buffers.

On the processor the table is host memory, and the disk reads into its buffers. For a
device with its own memory the disk reads into staging buffers, one copy brings a
mini-batch's rows to the device, and the device reads the host cache, a part of the
table, itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from systems.diskgnn.fit import Fit
from systems.diskgnn.layout import Addresses
from systems.diskgnn.sizes import DiskGnnSizes
from systems.engine.io.arrays import as_rows, torch_dtype
from systems.engine.pipeline import Pipeline, RowRing
from workloads.accelerator import Event
from workloads.direct_files import PAGE, padded
from workloads.feature_table import SplitTable, Table

Rows = npt.NDArray[np.uint8]


@dataclass
class Staging:
    """Host memory into which one mini-batch's rows are read from disk.

    Attributes:
        first, count: begin and length of its piece of the ring.
        memory: uint8, whole pages.
    """

    first: int
    count: int
    memory: Rows
    row_bytes: int

    def single_start(self, packed: int) -> int:
        """Return the row at which single rows begin: after the last page of the packed
        rows."""
        return -(-padded(packed * self.row_bytes) // self.row_bytes)

    def single(self, packed: int, count: int) -> Rows:
        """Return the memory for rows that are read one by one: uint8 [count,
        row_bytes]."""
        start = self.single_start(packed)
        return self.memory[
            start * self.row_bytes : (start + count) * self.row_bytes
        ].reshape(count, self.row_bytes)


@dataclass
class Assembled:
    """A mini-batch's rows in the table.

    Attributes:
        rows: int64 [num_nodes], row of the table for each node.
        first, count: begin and length of its piece of the ring of buffers.
        events: copies that may be under way; the staging buffer may be reused after
            them.
    """

    rows: torch.Tensor
    first: int
    count: int
    events: list[Event] = field(default_factory=list)


class HostMemory:
    """Caches and batch buffers of one episode in host memory; the disk reads into the
    batch buffers themselves.

    Both batch buffers and staging buffers are pieces of rings, each as long as its
    mini-batch needs: pieces of the largest size would be half empty. Where rows may be
    read one by one (`singles`), their number is known too late, and each piece has the
    largest size.

    Attributes:
        table: [rows, dim], on the accelerator's device, or there and in host memory
            that the device reads.
    """

    table: Table

    def __init__(self, sizes: DiskGnnSizes, fit: Fit, *, singles: bool) -> None:
        dataset = sizes.workload.dataset
        self._accelerator = sizes.runtime.accelerator
        self._singles = singles
        self._levels = fit.levels
        self._row_bytes = sizes.row
        self._dim = dataset.dim
        self._dtype = torch_dtype(dataset.feature_dtype)
        self._buffered = fit.buffers * fit.buffer_rows
        self._buffers = RowRing(self._buffered)
        self._allocate(sizes, fit)

    def _allocate(self, sizes: DiskGnnSizes, fit: Fit) -> None:
        self._align = sizes.align
        self._largest = fit.buffer_rows
        self._start = padded(fit.levels.direct, sizes.align)
        self._memory = self._accelerator.allocate(
            self._start + self._buffered, self._dim, self._dtype
        )
        self.table = self._memory
        self._bytes = as_rows(self._memory, self._row_bytes)

    def load(self, name: str, pieces: Iterable[tuple[int, Rows]]) -> None:
        """Fill a cache (`device_cache`, `host_cache`) from pieces: position of the
        first row, and rows."""
        for first, rows in pieces:
            self._bytes[first : first + len(rows)] = rows

    def begin(self, pipe: Pipeline) -> None:
        """Begin an epoch: all buffers are free, and every wait for one ends when `pipe`
        stops."""
        self._buffers = RowRing(self._buffered)
        pipe.on_stop(self._buffers.stop)

    def take_staging(self, packed: int) -> Staging:
        """Return a free staging buffer for a mini-batch with `packed` packed rows; wait
        for one. Raises `Stopped`."""
        # A piece is a multiple of the rows that fill whole pages.
        count = self._largest if self._singles else padded(packed, self._align)
        first = self._buffers.take(count)
        start = self._start + first
        return Staging(
            first,
            count,
            self._bytes[start : start + count].reshape(-1),
            self._row_bytes,
        )

    def take(self, rows: int) -> int:
        """Return the begin of a buffer for the next mini-batch's `rows` from disk, once
        free. Raises `Stopped`.

        Without a device it is 0: the staging buffer is the batch buffer.
        """
        return 0

    def assemble(
        self, staging: Staging, room: int, addresses: Addresses, packed: int, batch: int
    ) -> Assembled:
        """Copy the mini-batch's rows into the table, without waiting for the copies.
        Any thread may call it.

        Args:
            room: result of `take`.
            packed: number of packed rows in the staging buffer.
        """
        base = self._start + staging.first
        direct = self._levels.direct
        rows = addresses.place.astype(np.int64)
        gap = staging.single_start(packed) - packed
        rows += np.where(
            rows >= direct + packed, base + gap, np.where(rows >= direct, base, 0)
        )
        rows -= np.where(addresses.place >= direct, direct, 0)
        return Assembled(torch.from_numpy(rows), staging.first, staging.count)

    def copied(self, staging: Staging) -> None:
        """Free the staging buffer, from which all copies are complete, unless training
        reads it as batch buffer."""

    def give_back(self, assembled: Assembled) -> None:
        """Free the buffer of a trained mini-batch."""
        self._buffers.give_back(assembled.first, assembled.count)

    def close(self) -> None:
        """Free the table."""
        self._accelerator.free(self._memory)


class DeviceMemory(HostMemory):
    """Buffers and hottest rows on the device, the host cache and the staging buffers in
    host memory.

    The device reads the host cache's rows itself (UVA, Sections 4.1 and 6), so only
    rows from disk are copied. The table begins with the buffers, so that a cached row's
    place is its rank plus one offset in either part.
    """

    def _allocate(self, sizes: DiskGnnSizes, fit: Fit) -> None:
        row = self._row_bytes
        self._memory = self._accelerator.allocate(
            self._buffered + fit.levels.direct, self._dim, self._dtype
        )
        # Staging buffers are read in whole pages, so the rest of the last page belongs
        # to them.
        self._largest = -(-fit.staging_rows * row // PAGE)
        self._pages = max(self._largest, fit.staging * fit.staging_rows * row // PAGE)
        # One allocation, staging buffers first: huge pages fit whole, and the disk
        # should read into them only.
        staged = self._pages * PAGE
        cached = fit.levels.host * row
        self._host = self._accelerator.host_buffer(padded(staged + cached))
        self._bytes = as_rows(self._host[:staged], 1).reshape(-1)
        self._cache = self._shaped(self._host[staged : staged + cached])
        self.table = SplitTable(self._memory, self._cache) if cached else self._memory
        self._staging = RowRing(self._pages)

    def _shaped(self, memory: torch.Tensor) -> torch.Tensor:
        return memory.view(self._dtype).view(-1, self._dim)

    def load(self, name: str, pieces: Iterable[tuple[int, Rows]]) -> None:
        """Store the host cache's rows, or copy each piece of the device cache to the
        device."""
        for first, rows in pieces:
            if name == "host_cache":
                as_rows(self._cache, self._row_bytes)[first : first + len(rows)] = rows
            else:
                start = self._buffered + first
                source = self._shaped(torch.from_numpy(rows.reshape(-1)))
                self._accelerator.copy(
                    self._memory[start : start + len(rows)], source
                ).wait()

    def begin(self, pipe: Pipeline) -> None:
        """Reset the ring of the staging buffers' pages and the ring of the device's
        rows."""
        super().begin(pipe)
        self._staging = RowRing(self._pages)
        pipe.on_stop(self._staging.stop)

    def take_staging(self, packed: int) -> Staging:
        """Take pages of host memory."""
        count = self._largest if self._singles else -(-packed * self._row_bytes // PAGE)
        first = self._staging.take(count)
        return Staging(
            first,
            count,
            self._bytes[first * PAGE : (first + count) * PAGE],
            self._row_bytes,
        )

    def take(self, rows: int) -> int:
        """Take rows of the device."""
        return self._buffers.take(rows)

    def assemble(
        self, staging: Staging, room: int, addresses: Addresses, packed: int, batch: int
    ) -> Assembled:
        """Copy the rows from disk to the device; cached rows are in place."""
        single = len(addresses.single)
        row = self._row_bytes
        cached = self._levels.cached
        rows = addresses.place.astype(np.int64)
        rows += np.where(addresses.place < cached, self._buffered, room - cached)
        start = staging.single_start(packed)
        events = []
        for begin, at, count in ((0, room, packed), (start, room + packed, single)):
            if count:
                place = staging.first * PAGE + begin * row
                source = self._shaped(self._host[place : place + count * row])
                events.append(
                    self._accelerator.copy(
                        self._memory[at : at + count], source, batch=batch
                    )
                )
        return Assembled(torch.from_numpy(rows), room, packed + single, events)

    def copied(self, staging: Staging) -> None:
        """Free the staging buffer's pages."""
        self._staging.give_back(staging.first, staging.count)

    def close(self) -> None:
        """Free the device's table, and unpin the host's memory."""
        super().close()
        self._accelerator.free_host(self._host)
