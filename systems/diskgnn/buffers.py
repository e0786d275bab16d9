"""The memory that training reads and how rows get there: one table, cached rows in front and buffers behind them.

On the processor the table is host memory, and disks read into its buffers; on a device of its own they read into
staging buffers, from which one copy brings a mini-batch's rows over, beside those of the host cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from systems.diskgnn.fit import Fit
from systems.diskgnn.planner import Sizes
from systems.diskgnn.structure import Addresses
from systems.engine.arrays import as_rows
from systems.engine.gather import gather
from systems.engine.gather_loader import torch_dtype
from systems.engine.memory import aligned_empty
from workloads.accelerator import Accelerator, Event
from workloads.dataset import Dataset

Rows = npt.NDArray[np.uint8]
_PAGE = 4096
_BOUNCE = 1 << 20


@dataclass
class Landing:
    """Where the disk's rows of one mini-batch land, in host memory.

    Attributes:
        number: of the buffer.
        memory: uint8 [rows, row_bytes], page-aligned.
    """

    number: int
    memory: Rows

    def single_start(self, packed: int) -> int:
        """Row of the first row that is read by itself: behind the last page of the packed ones."""
        row = int(self.memory.shape[1])
        return -(-(-(-packed * row // _PAGE) * _PAGE) // row)

    def features(self, nbytes: int) -> Rows:
        """Room for the packed rows, in whole pages."""
        return self.memory.reshape(-1)[:nbytes]

    def single(self, packed: int, count: int) -> Rows:
        """Room for rows that are read one by one."""
        start = self.single_start(packed)
        return self.memory[start : start + count]


@dataclass
class Assembled:
    """A mini-batch's rows in the table.

    Attributes:
        rows: int64 [num_nodes], row of each node.
        number: of the table's buffer.
        events: copies that may be under way; afterwards the landing may be used again.
    """

    rows: torch.Tensor
    number: int
    events: list[Event] = field(default_factory=list)


class Memory(ABC):
    """Allocates everything for one episode; see the two kinds below.

    Attributes:
        table: [rows, dim], on the accelerator's device.
        landings: how many mini-batches' rows may be read from disk at a time.
        staged: landings are other memory than the table's buffers.
    """

    table: torch.Tensor
    landings: int
    staged: bool

    @abstractmethod
    def load(self, name: str, pieces: Iterable[tuple[int, Rows]]) -> None:
        """Fill a cache (`device_cache`, `host_cache`) from its first rows and rows."""

    @abstractmethod
    def landing(self, number: int) -> Landing:
        """Landing `number`."""

    @abstractmethod
    def assemble(self, landing: Landing, number: int, addresses: Addresses, packed: int, batch: int) -> Assembled:
        """Bring the mini-batch's rows into buffer `number` of the table, without waiting for the copies.

        Args:
            packed: packed rows in the landing.
        """

    @abstractmethod
    def close(self) -> None:
        """Free it all."""


class HostMemory(Memory):
    """The table is host memory and its buffers are the landings: nothing is copied."""

    def __init__(self, dataset: Dataset, sizes: Sizes, fit: Fit, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._direct = fit.levels.direct
        self._start = -(-self._direct // sizes.align) * sizes.align
        self._rows = fit.buffer_rows
        self.landings = fit.buffers
        self.staged = False
        total = self._start + fit.buffers * fit.buffer_rows
        self.table = accelerator.allocate(total, dataset.dim, torch_dtype(dataset.feature_dtype))
        self._bytes = as_rows(self.table, dataset.dim * dataset.feature_dtype.itemsize)

    def load(self, name: str, pieces: Iterable[tuple[int, Rows]]) -> None:
        """Into the front of the table."""
        for first, rows in pieces:
            self._bytes[first : first + len(rows)] = rows

    def landing(self, number: int) -> Landing:
        """A buffer of the table."""
        first = self._start + number * self._rows
        return Landing(number, self._bytes[first : first + self._rows])

    def assemble(self, landing: Landing, number: int, addresses: Addresses, packed: int, batch: int) -> Assembled:
        """Only the alias list has to be made."""
        base = self._start + landing.number * self._rows
        rows = addresses.place.astype(np.int64)
        gap = landing.single_start(packed) - packed
        rows += np.where(rows >= self._direct + packed, base + gap, np.where(rows >= self._direct, base, 0))
        rows -= np.where(addresses.place >= self._direct, self._direct, 0)
        return Assembled(torch.from_numpy(rows), landing.number)

    def close(self) -> None:
        """Free the table."""
        self._accelerator.free(self.table)


class DeviceMemory(Memory):
    """The table is on the device; host memory holds the host cache, staging buffers and two small ones to gather in."""

    def __init__(self, dataset: Dataset, sizes: Sizes, fit: Fit, accelerator: Accelerator, threads: int) -> None:
        self._accelerator = accelerator
        self._levels = fit.levels
        self._rows = fit.buffer_rows
        self._threads = threads
        self._row_bytes = dataset.dim * dataset.feature_dtype.itemsize
        self._dtype = torch_dtype(dataset.feature_dtype)
        self._dim = dataset.dim
        self.landings = fit.staging
        self.staged = True
        self.table = accelerator.allocate(fit.levels.direct + fit.buffers * fit.buffer_rows, dataset.dim, self._dtype)
        # Whole pages are read into a landing; what its rows leave of the last one is part of it all the same.
        self._staging = self._landings(fit.staging, fit.staging_rows)
        self._cache = self._host(fit.levels.host) if fit.levels.host else None
        self._bounce_rows = max(1, _BOUNCE // self._row_bytes)
        self._bounce = [self._host(self._bounce_rows) for _ in range(2)]
        self._under_way: list[Event | None] = [None, None]

    def _host(self, rows: int) -> torch.Tensor:
        flat = self._accelerator.host_buffer(-(-rows * self._row_bytes // _PAGE) * _PAGE)
        return flat[: rows * self._row_bytes].view(self._dtype).view(rows, self._dim)

    def _landings(self, count: int, rows: int) -> list[torch.Tensor]:
        """Landings beside each other in one allocation, so that huge pages carry them."""
        each = -(-rows * self._row_bytes // _PAGE) * _PAGE
        flat = self._accelerator.host_buffer(count * each)
        parts = [flat[number * each : number * each + rows * self._row_bytes] for number in range(count)]
        return [part.view(self._dtype).view(rows, self._dim) for part in parts]

    def load(self, name: str, pieces: Iterable[tuple[int, Rows]]) -> None:
        """The host cache as it is, the device cache by a copy of each piece."""
        for first, rows in pieces:
            if name == "host_cache":
                assert self._cache is not None
                as_rows(self._cache, self._row_bytes)[first : first + len(rows)] = rows
            else:
                source = torch.from_numpy(rows).view(self._dtype).view(len(rows), self._dim)
                self._accelerator.copy(self.table[first : first + len(rows)], source).wait()

    def landing(self, number: int) -> Landing:
        """A staging buffer."""
        return Landing(number, as_rows(self._staging[number], self._row_bytes))

    def assemble(self, landing: Landing, number: int, addresses: Addresses, packed: int, batch: int) -> Assembled:
        """Copy what came from disk, then what the host cache has."""
        direct, single, host = self._levels.direct, len(addresses.single), len(addresses.host)
        first = direct + number * self._rows
        rows = addresses.place.astype(np.int64)
        rows[rows >= direct] += first - direct
        source, events = self._staging[landing.number], []
        start = landing.single_start(packed)
        for begin, at, count in ((0, 0, packed), (start, packed, single)):
            if count:
                target = self.table[first + at : first + at + count]
                events.append(self._accelerator.copy(target, source[begin : begin + count], batch=batch))
        for at in range(0, host, self._bounce_rows):
            part = addresses.host[at : at + self._bounce_rows]
            events.append(self._from_cache(part, first + packed + single + at, batch))
        return Assembled(torch.from_numpy(rows), number, events)

    def _from_cache(self, slots: npt.NDArray[np.int32], target: int, batch: int) -> Event:
        assert self._cache is not None
        bounce, last = self._bounce[0], self._under_way[0]
        if last is not None:
            last.wait()
        part = bounce[: len(slots)]
        gather(self._cache, slots.astype(np.int64), part, self._threads)
        event = self._accelerator.copy(self.table[target : target + len(slots)], part, batch=batch)
        self._bounce.reverse()
        self._under_way = [self._under_way[1], event]
        return event

    def close(self) -> None:
        """Free the table; host buffers go with their last use."""
        self._accelerator.free(self.table)
        self._staging.clear()
        self._bounce.clear()
        self._cache = None


def graph_memory(nbytes: int) -> Rows:
    """Page-aligned room for one chunk's graph."""
    return aligned_empty(nbytes)
