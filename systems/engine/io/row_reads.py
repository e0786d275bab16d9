"""Tables of rows in files, and the reading of feature rows: options, readers with their
memory, a pool of readers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from pydantic import Field

from systems.engine.io.reader import Granularity, RowReader
from systems.engine.io.topology import check_length
from systems.interface import Options
from workloads.dataset import Dataset
from workloads.workload import Workload

_BYTES = np.dtype(np.uint8)


class RowReadOptions(Options):
    """Options of a system that reads rows; some also have `merge_gap_bytes`."""

    io_depth: int = Field(
        128, ge=1, le=4096, description="reads in flight for each reader"
    )
    io_granularity: Granularity = Field(
        "logical",
        description="smallest read: the device's logical block, or 4096 as the "
        "papers' code "
        "has it",
    )
    merge: bool = Field(True, description="read neighbouring rows together")
    max_request_bytes: int = Field(
        131072, ge=4096, le=1 << 22, description="largest single read"
    )


@dataclass(frozen=True)
class RowTable:
    """A table in a file: row `i` lies at `data_offset + i * row_bytes`."""

    path: Path
    data_offset: int
    num_rows: int
    row_bytes: int
    dtype: np.dtype[Any] = _BYTES

    @classmethod
    def of(cls, dataset: Dataset) -> RowTable:
        """Return the feature table of a dataset."""
        dtype = dataset.feature_dtype
        path = dataset.file("features")
        offset = dataset.data_offset("features")
        return cls(path, offset, dataset.num_nodes, dataset.dim * dtype.itemsize, dtype)

    @property
    def dim(self) -> int:
        """Columns."""
        return self.row_bytes // self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.num_rows * self.row_bytes

    @property
    def place(self) -> dict[str, Any]:
        """Arguments by which a `RowReader` finds the rows."""
        return {
            "data_offset": self.data_offset,
            "num_rows": self.num_rows,
            "row_bytes": self.row_bytes,
        }

    def check(self) -> None:
        """Raise DataIOError, with path and end offset, if the file is missing or
        shorter than its rows."""
        check_length(self.path, self.data_offset + self.nbytes)


def reader_arguments(workload: Workload, options: RowReadOptions) -> dict[str, Any]:
    """Return the arguments that determine the reads and the size of a reader of the
    feature table."""
    return {
        **RowTable.of(workload.dataset).place,
        "depth": options.io_depth,
        "granularity": options.io_granularity,
        "merge": options.merge,
        "max_request_bytes": options.max_request_bytes,
        "merge_gap_bytes": getattr(options, "merge_gap_bytes", 0),
    }


def feature_reader(workload: Workload, options: RowReadOptions) -> RowReader:
    """Open a reader of the feature table.

    Raises:
        DataIOError: the file cannot be opened.
    """
    return RowReader(
        workload.dataset.file("features"), **reader_arguments(workload, options)
    )


def feature_reader_bytes(
    workload: Workload, options: RowReadOptions, num_ids: int
) -> int:
    """Return the host memory of a reader of the feature table, for reads of up to
    `num_ids` rows."""
    path = workload.dataset.file("features")
    return RowReader.plan_bytes(
        **reader_arguments(workload, options), num_ids=num_ids, path=path
    )


class _Reader(Protocol):
    mode: str

    def close(self) -> None: ...


Held = TypeVar("Held", bound=_Reader)


class ReaderPool(Generic[Held]):
    """Readers, made at once; each thread borrows an idle one, of which there are as
    many as threads."""

    def __init__(self, make: Callable[[], Held], count: int) -> None:
        self._all = [make() for _ in range(count)]
        self._idle = deque(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def mode(self) -> str:
        """Read mode of the readers."""
        return ", ".join(sorted({reader.mode for reader in self._all}))

    @contextmanager
    def borrow(self) -> Iterator[Held]:
        """Lend an idle reader for the body."""
        reader = self._idle.popleft()
        try:
            yield reader
        finally:
            self._idle.append(reader)

    def close(self) -> None:
        """Close all readers."""
        for reader in self._all:
            reader.close()
        self._all.clear()
        self._idle.clear()
