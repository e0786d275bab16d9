"""Feature rows in host memory: loaded whole, as in the papers' in-memory systems, or memory-mapped.

Loaded rows are anonymous memory: under a cap that is too small the kernel ends the run, which is the correct outcome.
Mapped rows come through the page cache, so a table larger than memory runs too.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.io.gather import gather
from systems.engine.io.memory import madvise
from systems.engine.io.row_reads import RowTable
from systems.engine.loading.gather_loader import torch_dtype
from systems.interface import PlanItem
from workloads.accelerator import Accelerator
from workloads.errors import InputError
from workloads.ranks import RankGroup

HostStore = Literal["memory", "mapped"]
_READ_BYTES = 8 << 20


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
        if store == "mapped":
            if reads_itself is not None and reads_itself.kind == "cuda":
                raise InputError(
                    "a CUDA device cannot read memory-mapped rows by itself: they cannot be pinned",
                    "use host_store=memory",
                )
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
    with source.path.open("rb", buffering=0) as file:
        file.seek(source.data_offset)
        done = 0
        while done < source.nbytes:
            count = file.readinto(target[done : done + _READ_BYTES])
            if not count:
                source.check()
                raise EOFError(f"{source.path} ended while it was read")
            done += count
    rows: npt.NDArray[Any] = buffer.view(torch_dtype(source.dtype)).view(source.num_rows, source.dim).numpy()
    return rows
