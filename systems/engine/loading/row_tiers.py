"""Feature rows in host memory, and a static cache of them in device memory.

Host rows are loaded whole, as in the papers' in-memory systems: anonymous memory, so that under a cap that is too small
the kernel ends the run, which is the correct outcome. Or they are memory-mapped and come through the page cache, so
that a table larger than memory runs too.

PaGraph's cache (Section 3.1 and "Cache Initialization" of Section 4) is filled once with the rows of highest rank and
never changed. Its size is found after the first trained mini-batch, from the device memory then free minus a reserve; a
plan counts its maximum. Its rows and the buffers that misses are copied into are one device table, into which a
mini-batch's node alias list points, so no assembling copy is needed. On the processor, host memory serves as device
memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.cache.static_cache import Lookup, look_up
from systems.engine.io.arrays import gather
from systems.engine.io.memory import madvise
from systems.engine.io.row_reads import RowTable
from systems.engine.loading.gather_loader import torch_dtype
from systems.interface import PlanItem, Tier
from workloads.accelerator import Accelerator
from workloads.direct_files import PAGE, padded
from workloads.errors import InputError, require
from workloads.ranks import RankGroup
from workloads.units import parse_bytes

HostStore = Literal["memory", "mapped"]
Ids = npt.NDArray[np.int64]
Ranking = Callable[[int], Ids]
_FILL_BYTES = 1 << 20


class HostFeatures:
    """The rows of a file as an array, gathered from by systems or read by the device itself.

    Args:
        store: `memory` loads the rows, `mapped` maps them without read-ahead.
        reads_itself: accelerator that reads the rows by zero-copy; rows are pinned if it needs that.
        group: ranks of the run, which share one copy of loaded rows; None: one process.

    Attributes:
        array: [num_rows, dim].

    Raises:
        DataIOError: the file is missing or shorter than its rows.
        InputError: mapped rows would have to be pinned.
    """

    def __init__(
        self,
        source: RowTable,
        store: HostStore,
        reads_itself: Accelerator | None = None,
        group: RankGroup | None = None,
    ) -> None:
        source.check()
        self.source = source
        self.store = store
        self._reader = reads_itself
        if store == "mapped":
            said = "a CUDA device cannot read memory-mapped rows by itself: they cannot be pinned"
            require(reads_itself is None or reads_itself.kind != "cuda", said, "use host_store=memory")
            self.array: npt.NDArray[Any] = _mapped(source)
        elif group is not None:
            memory = torch.from_numpy(group.shared(source.nbytes))
            if group.rank == 0:
                _into(source, memory)
            group.barrier()
            self.array = memory.numpy().view(source.dtype).reshape(source.num_rows, source.dim)
        elif reads_itself is not None:
            self.array = _into(source, reads_itself.host_buffer(source.nbytes))
        else:
            self.array = np.fromfile(
                source.path, source.dtype, source.num_rows * source.dim, offset=source.data_offset
            ).reshape(source.num_rows, source.dim)

    @staticmethod
    def items(source: RowTable, store: HostStore) -> tuple[PlanItem, ...]:
        """Plan the rows; mapped rows are page cache, which uses memory that the plan leaves."""
        return (PlanItem("features", source.nbytes),) if store == "memory" else ()

    @property
    def tensor(self) -> torch.Tensor:
        """Tensor over the array's memory, never to be written to."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of read-only maps
            return torch.from_numpy(self.array)

    def gather(self, nodes: npt.NDArray[np.int64], out: npt.NDArray[Any], threads: int) -> None:
        """Copy rows `nodes` (int64 [n]) to the first rows of `out`, on `threads` threads.

        Raises:
            DataIOError: the mapped file was truncated.
        """
        if self.store == "mapped":
            self.source.check()
        gather(self.array, nodes, out, threads)

    def close(self) -> None:
        """Unpin the rows; their memory is freed with its last reference. May be called more than once."""
        if self._reader is not None and self.store == "memory":
            self._reader.free_host(torch.from_numpy(self.array))

    def tier(self) -> str:
        """Return the tier of its rows in `Counters.hits`: `host`, or `page_cache` where the kernel decides."""
        return "host" if self.store == "memory" else "page_cache"


def _mapped(source: RowTable) -> npt.NDArray[Any]:
    if source.nbytes == 0:
        return np.empty((source.num_rows, source.dim), source.dtype)
    array = np.memmap(source.path, source.dtype, "r", source.data_offset, (source.num_rows, source.dim))
    madvise(array, "random")
    return array


def _into(source: RowTable, buffer: torch.Tensor) -> npt.NDArray[Any]:
    """Read the rows into host memory that the device can read; it must be pinned before it is filled."""
    target: memoryview[int] = memoryview(buffer.numpy())  # type: ignore[arg-type]
    with source.path.open("rb") as file:
        file.seek(source.data_offset)
        if file.readinto(target[: source.nbytes]) < source.nbytes:
            source.check()
            raise EOFError(f"{source.path} ended while it was read")
    rows: npt.NDArray[Any] = buffer.view(torch_dtype(source.dtype)).view(source.num_rows, source.dim).numpy()
    return rows


@dataclass(frozen=True)
class CacheSizes:
    """Limits of a device cache.

    Attributes:
        most_rows: most cache rows; the actual number is found after the first mini-batch.
        buffer_rows: rows beside the cache, for misses.
        reserve_bytes: device memory to leave free.
        limit_bytes: bytes of device memory, None if unlimited.
        keeps_map: whether a map from nodes to cache rows is kept; without one, the lowest ids are cached.
    """

    source: RowTable
    most_rows: int
    buffer_rows: int
    reserve_bytes: int
    limit_bytes: int | None
    tier: Tier
    keeps_map: bool = True

    def items(self) -> tuple[PlanItem, ...]:
        """Plan buffers, cache, and on the host the map from nodes to cache rows."""
        buffers, cached = self.buffer_rows * self.source.row_bytes, self.most_rows * self.source.row_bytes
        found = PlanItem("device buffers", buffers, self.tier), PlanItem("device cache", padded(cached), self.tier)
        if not self.most_rows:
            return found
        filling = min(_FILL_BYTES, cached) if self.tier == "device" else 0
        mapping = 4 * self.source.num_rows if self.keeps_map else 0
        return (*found, PlanItem("cache map", mapping), PlanItem("cache filling", filling))


def check_share(value: str) -> str:
    """Validate an option that sizes a cache: `auto`, `0.25x` of the rows, or a size such as 32MiB.

    Raises:
        ValueError: the value has none of these forms.
    """
    if value != "auto":
        try:
            wanted_rows(value, 1, 1)
        except (InputError, ValueError) as error:
            raise ValueError(f"{error}; or write auto, or a share of all rows such as 0.25x") from None
    return value


def wanted_rows(value: str, num_rows: int, row_bytes: int) -> int:
    """Return the rows of a cache of this size, as in `check_share`."""
    if value.lower().endswith("x"):
        share = float(value[:-1])
        if not 0 <= share <= 1:
            raise ValueError(f"a share of the rows is from 0x to 1x, not {value}")
        return int(share * num_rows)
    return parse_bytes(value, "cache") // max(1, row_bytes)


class DeviceCache:
    """Device table of a run: cache rows first, then the buffers.

    Args:
        ranking: returns the `k` nodes to cache.

    Attributes:
        rows: cache rows; 0 until `fill_rest`.
        is_final: whether the size is final.
        table: [rows + buffers, dim] in device memory.
    """

    def __init__(self, accelerator: Accelerator, sizes: CacheSizes, ranking: Ranking) -> None:
        self._accelerator = accelerator
        self._sizes = sizes
        self._ranking = ranking
        self.rows = 0
        self.is_final = sizes.most_rows == 0
        self._slot_of: npt.NDArray[np.int32] | None = None
        self.table = self._allocate(0)

    def _allocate(self, cached: int) -> torch.Tensor:
        sizes = self._sizes
        return self._accelerator.allocate(cached + sizes.buffer_rows, sizes.source.dim, torch_dtype(sizes.source.dtype))

    def buffer(self, start: int, count: int) -> torch.Tensor:
        """View `count` rows of the buffers from `start` on, [count, dim]."""
        first = self.rows + start
        return self.table[first : first + count]

    def lookup(self, nodes: Ids) -> Lookup:
        """Find the cached nodes among `nodes` (int64 [n]), and their rows."""
        if not self._sizes.keeps_map:
            return Lookup(np.where(nodes < self.rows, nodes, -1), np.flatnonzero(nodes >= self.rows))
        return look_up(self._slot_of, nodes)

    def fill_rest(self, features: HostFeatures, threads: int) -> None:
        """Size the cache by the device memory free now, and fill it; call after the first mini-batch was trained.

        Replaces the table, with cache rows in front of its buffers: no thread may use it meanwhile.
        """
        sizes, row = self._sizes, max(1, self._sizes.source.row_bytes)
        self.is_final = True
        count = sizes.most_rows
        free = free_bytes(self._accelerator, sizes.limit_bytes)
        if free is not None:
            # The current table is freed before the new one is allocated.
            count = max(0, min(count, (free - sizes.reserve_bytes) // PAGE * PAGE // row))
        if count == 0:
            return
        nodes = np.sort(self._ranking(count))
        self._release()
        self.table = self._allocate(len(nodes))
        self.rows = len(nodes)
        self._fill(nodes, features, threads)
        if sizes.keeps_map:
            self._slot_of = np.full(sizes.source.num_rows, -1, dtype=np.int32)
            self._slot_of[nodes] = np.arange(len(nodes), dtype=np.int32)

    def _fill(self, nodes: Ids, features: HostFeatures, threads: int) -> None:
        source = self._sizes.source
        if self._accelerator.kind == "cpu":
            features.gather(nodes, self.table.numpy()[: len(nodes)], threads)
            return
        step = max(1, min(len(nodes), _FILL_BYTES // max(1, source.row_bytes)))
        staging = np.empty((step, source.dim), source.dtype)
        for begin in range(0, len(nodes), step):
            part = nodes[begin : begin + step]
            features.gather(part, staging, threads)
            rows = torch.from_numpy(staging[: len(part)])
            self._accelerator.copy(self.table[begin : begin + len(part)], rows).wait()

    def _release(self) -> None:
        table, self.table = self.table, torch.empty(0)
        if table.numel():
            self._accelerator.free(table)

    def close(self) -> None:
        """Free the table. May be called more than once."""
        self._release()
        self._slot_of = None


def free_bytes(accelerator: Accelerator, limit: int | None) -> int | None:
    """Return the free device memory as PaGraph defines it: total minus training's peak (which the calibration measures
    and subtracts for every system) minus the tables; None if unlimited."""
    return None if limit is None else limit - accelerator.used_bytes
