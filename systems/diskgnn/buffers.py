"""The memory that training reads and how rows get there: one table of cached rows and buffers.

On the processor the table is host memory, and disks read into its buffers; for a device of its own they read into
staging buffers, from which one copy brings a mini-batch's rows over, and the host cache is a part of the table that the
device reads itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from systems.diskgnn.fit import Fit
from systems.diskgnn.planner import Sizes, rounded_up
from systems.diskgnn.structure import Addresses
from systems.engine.arrays import as_rows
from systems.engine.device_cache import RowRing
from systems.engine.gather_loader import torch_dtype
from systems.engine.memory import aligned_empty
from systems.engine.pipeline import Pipeline
from workloads.accelerator import Accelerator, Event
from workloads.dataset import Dataset
from workloads.feature_table import SplitTable, Table

Rows = npt.NDArray[np.uint8]
_PAGE = 4096


@dataclass
class Landing:
    """Where the disk's rows of one mini-batch land, in host memory.

    Attributes:
        first, count: what was taken of the ring it is from.
        memory: uint8, whole pages.
        row_bytes: of a feature row.
    """

    first: int
    count: int
    memory: Rows
    row_bytes: int

    def single_start(self, packed: int) -> int:
        """Row of the first row that is read by itself: behind the last page of the packed ones."""
        return -(-(-(-packed * self.row_bytes // _PAGE) * _PAGE) // self.row_bytes)

    def features(self, nbytes: int) -> Rows:
        """Room for the packed rows, in whole pages."""
        return self.memory[:nbytes]

    def single(self, packed: int, count: int) -> Rows:
        """Room for rows that are read one by one: uint8 [count, row_bytes]."""
        start = self.single_start(packed)
        return self.memory[start * self.row_bytes : (start + count) * self.row_bytes].reshape(count, self.row_bytes)


@dataclass
class Assembled:
    """A mini-batch's rows in the table.

    Attributes:
        rows: int64 [num_nodes], row of each node.
        first, count: what was taken of the ring of its buffer.
        events: copies that may be under way; afterwards the landing may be used again.
    """

    rows: torch.Tensor
    first: int
    count: int
    events: list[Event] = field(default_factory=list)


class Memory(ABC):
    """Allocates everything for one episode; see the two kinds below.

    Landings and buffers are pieces of rings, each as long as its mini-batch needs: of the largest one's size they would
    stand half empty. Where rows may be read one by one, how many is known too late, and each has the largest's size.

    Attributes:
        table: [rows, dim], on the accelerator's device, or there and in host memory that it reads.
    """

    table: Table

    @abstractmethod
    def load(self, name: str, pieces: Iterable[tuple[int, Rows]]) -> None:
        """Fill a cache (`device_cache`, `host_cache`) from its first rows and rows."""

    @abstractmethod
    def begin(self, pipe: Pipeline) -> None:
        """An epoch begins: all landings and buffers are free, and nobody waits for one once `pipe` stops."""

    @abstractmethod
    def land(self, packed: int) -> Landing:
        """Room for the rows of the next mini-batch, `packed` of them packed, waiting for it. Raises `Stopped`."""

    @abstractmethod
    def take(self, rows: int) -> int:
        """Room in the table for the next mini-batch's rows that come from disk, waiting for it. Raises `Stopped`."""

    @abstractmethod
    def assemble(self, landing: Landing, room: int, addresses: Addresses, packed: int, batch: int) -> Assembled:
        """Bring the mini-batch's rows into the table, without waiting for the copies. Any thread may.

        Args:
            room: of `take`.
            packed: packed rows in the landing.
        """

    @abstractmethod
    def copied(self, landing: Landing) -> None:
        """The mini-batch's copies are done: the disk may read into its landing again."""

    @abstractmethod
    def give_back(self, assembled: Assembled) -> None:
        """The mini-batch was trained."""

    @abstractmethod
    def close(self) -> None:
        """Free it all."""


class HostMemory(Memory):
    """The table is host memory and its buffers are the landings: nothing is copied."""

    def __init__(self, dataset: Dataset, sizes: Sizes, fit: Fit, accelerator: Accelerator, *, singles: bool) -> None:
        self._accelerator = accelerator
        self._direct = fit.levels.direct
        self._align = sizes.align
        self._start = rounded_up(self._direct, sizes.align)
        self._buffered = fit.buffers * fit.buffer_rows
        self._largest = fit.buffer_rows
        self._singles = singles
        self._row_bytes = dataset.dim * dataset.feature_dtype.itemsize
        total = self._start + self._buffered
        self._memory = accelerator.allocate(total, dataset.dim, torch_dtype(dataset.feature_dtype))
        self.table = self._memory
        self._bytes = as_rows(self._memory, self._row_bytes)
        self._ring = RowRing(self._buffered)

    def load(self, name: str, pieces: Iterable[tuple[int, Rows]]) -> None:
        """Into the front of the table."""
        for first, rows in pieces:
            self._bytes[first : first + len(rows)] = rows

    def begin(self, pipe: Pipeline) -> None:
        """A ring of rows; pieces are multiples of as many as fill whole pages."""
        self._ring = RowRing(self._buffered)
        pipe.on_stop(self._ring.stop)

    def land(self, packed: int) -> Landing:
        """A buffer of the table."""
        count = self._largest if self._singles else rounded_up(packed, self._align)
        first = self._ring.take(count)
        start = self._start + first
        return Landing(first, count, self._bytes[start : start + count].reshape(-1), self._row_bytes)

    def take(self, rows: int) -> int:
        """Nothing: the landing is the room."""
        return 0

    def assemble(self, landing: Landing, room: int, addresses: Addresses, packed: int, batch: int) -> Assembled:
        """Only the alias list has to be made."""
        base = self._start + landing.first
        rows = addresses.place.astype(np.int64)
        gap = landing.single_start(packed) - packed
        rows += np.where(rows >= self._direct + packed, base + gap, np.where(rows >= self._direct, base, 0))
        rows -= np.where(addresses.place >= self._direct, self._direct, 0)
        return Assembled(torch.from_numpy(rows), landing.first, landing.count)

    def copied(self, landing: Landing) -> None:
        """It is the buffer that is trained on, so it is not free yet."""

    def give_back(self, assembled: Assembled) -> None:
        """The buffer is a landing again."""
        self._ring.give_back(assembled.first, assembled.count)

    def close(self) -> None:
        """Free the table."""
        self._accelerator.free(self._memory)


class DeviceMemory(Memory):
    """Buffers and hottest rows on the device, the host cache and the landings in host memory.

    The device reads the host cache's rows itself (UVA, Sections 4.1 and 6), so only what came from disk is copied. In
    the table buffers come first, so that a cached row's place in it is its rank and one offset, whichever part has it.
    """

    def __init__(self, dataset: Dataset, sizes: Sizes, fit: Fit, accelerator: Accelerator, *, singles: bool) -> None:
        self._accelerator = accelerator
        self._levels = fit.levels
        self._buffered = fit.buffers * fit.buffer_rows
        self._singles = singles
        self._row_bytes = row = dataset.dim * dataset.feature_dtype.itemsize
        self._dtype = torch_dtype(dataset.feature_dtype)
        self._dim = dataset.dim
        self._device = accelerator.allocate(self._buffered + fit.levels.direct, dataset.dim, self._dtype)
        # Whole pages are read into a landing; what its rows leave of the last one is part of it all the same.
        self._largest = -(-fit.staging_rows * row // _PAGE)
        self._pages = max(self._largest, fit.staging * fit.staging_rows * row // _PAGE)
        # In one allocation, landings first: huge pages carry whole ones only, and the disk should meet no others.
        landings, cached = self._pages * _PAGE, fit.levels.host * row
        self._host = accelerator.host_buffer(rounded_up(landings + cached, _PAGE))
        self._bytes = as_rows(self._host[:landings], 1).reshape(-1)
        self._cache = self._shaped(self._host[landings : landings + cached])
        self.table = SplitTable(self._device, self._cache) if cached else self._device
        self._landings, self._buffers = RowRing(self._pages), RowRing(self._buffered)

    def _shaped(self, memory: torch.Tensor) -> torch.Tensor:
        return memory.view(self._dtype).view(-1, self._dim)

    def load(self, name: str, pieces: Iterable[tuple[int, Rows]]) -> None:
        """The host cache as it is, the device cache by a copy of each piece."""
        for first, rows in pieces:
            if name == "host_cache":
                as_rows(self._cache, self._row_bytes)[first : first + len(rows)] = rows
            else:
                start = self._buffered + first
                source = self._shaped(torch.from_numpy(rows.reshape(-1)))
                self._accelerator.copy(self._device[start : start + len(rows)], source).wait()

    def begin(self, pipe: Pipeline) -> None:
        """A ring of pages to land in and one of rows on the device."""
        self._landings, self._buffers = RowRing(self._pages), RowRing(self._buffered)
        pipe.on_stop(self._landings.stop)
        pipe.on_stop(self._buffers.stop)

    def land(self, packed: int) -> Landing:
        """Pages of host memory."""
        count = self._largest if self._singles else -(-packed * self._row_bytes // _PAGE)
        first = self._landings.take(count)
        return Landing(first, count, self._bytes[first * _PAGE : (first + count) * _PAGE], self._row_bytes)

    def take(self, rows: int) -> int:
        """Rows of the device."""
        return self._buffers.take(rows)

    def assemble(self, landing: Landing, room: int, addresses: Addresses, packed: int, batch: int) -> Assembled:
        """Copy what came from disk; the device finds the rest where it is."""
        single, row, cached = len(addresses.single), self._row_bytes, self._levels.cached
        rows = addresses.place.astype(np.int64)
        rows += np.where(addresses.place < cached, self._buffered, room - cached)
        start, events = landing.single_start(packed), []
        for begin, at, count in ((0, room, packed), (start, room + packed, single)):
            if count:
                place = landing.first * _PAGE + begin * row
                source = self._shaped(self._host[place : place + count * row])
                events.append(self._accelerator.copy(self._device[at : at + count], source, batch=batch))
        return Assembled(torch.from_numpy(rows), room, packed + single, events)

    def copied(self, landing: Landing) -> None:
        """Its pages are free."""
        self._landings.give_back(landing.first, landing.count)

    def give_back(self, assembled: Assembled) -> None:
        """Its rows on the device are free."""
        self._buffers.give_back(assembled.first, assembled.count)

    def close(self) -> None:
        """Free the table; host memory goes with its last use."""
        self._accelerator.free(self._device)


def graph_memory(count: int, nbytes: int) -> list[Rows]:
    """Page-aligned room for chunks' graphs, beside each other, so that huge pages carry them."""
    each = rounded_up(nbytes, _PAGE)
    memory = aligned_empty(count * each)
    return [memory[number * each : number * each + nbytes] for number in range(count)]
