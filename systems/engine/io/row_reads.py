"""Reading of feature rows as several systems do it: their options, and the readers' arguments and memory."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from systems.engine.io.reader import Granularity, RowReader
from systems.engine.io.topology import row_bytes
from systems.interface import Options
from workloads.workload import Workload


class RowReadOptions(Options):
    """Options of a system that reads rows; some also have `merge_gap_bytes`."""

    io_depth: int = Field(128, ge=1, le=4096, description="reads in flight for each reader")
    io_granularity: Granularity = Field(
        "logical", description="smallest read: the device's logical block, or 4096 as the papers' code has it"
    )
    merge: bool = Field(True, description="read neighbouring rows together")
    max_request_bytes: int = Field(131072, ge=4096, le=1 << 22, description="largest single read")


def reader_arguments(workload: Workload, options: RowReadOptions) -> dict[str, Any]:
    """Return the arguments of a reader of the feature table that determine its reads and its size."""
    return {
        "data_offset": workload.dataset.data_offset("features"),
        "num_rows": workload.dataset.num_nodes,
        "row_bytes": row_bytes(workload),
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
    return RowReader(workload.dataset.file("features"), **reader_arguments(workload, options))


def feature_reader_bytes(workload: Workload, options: RowReadOptions, num_ids: int) -> int:
    """Return the host memory of a reader of the feature table, for reads of up to `num_ids` rows."""
    path = workload.dataset.file("features")
    return RowReader.plan_bytes(**reader_arguments(workload, options), num_ids=num_ids, path=path)
