"""Tables of rows in files, and the arguments of their readers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from systems.engine.io.topology import check_length
from workloads.dataset import Dataset
from workloads.workload import Workload

_BYTES = np.dtype(np.uint8)


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
        path, offset = dataset.file("features"), dataset.data_offset("features")
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
        return {"data_offset": self.data_offset, "num_rows": self.num_rows, "row_bytes": self.row_bytes}

    def check(self) -> None:
        """Raise DataIOError, with path and end offset, if the file is missing or shorter than its rows."""
        check_length(self.path, self.data_offset + self.nbytes)


def reader_arguments(workload: Workload, options: Any) -> dict[str, Any]:
    """Return the arguments that determine the reads and the size of a reader of the feature table.

    Args:
        options: options of a system, with `io_depth`, `io_granularity`, `merge` and `max_request_bytes`; some also have
            `merge_gap_bytes`.
    """
    return {
        **RowTable.of(workload.dataset).place,
        "depth": options.io_depth,
        "granularity": options.io_granularity,
        "merge": options.merge,
        "max_request_bytes": options.max_request_bytes,
        "merge_gap_bytes": getattr(options, "merge_gap_bytes", 0),
    }
