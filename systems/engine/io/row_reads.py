"""Conversion of options that several systems share to a reader's arguments for feature rows."""

from __future__ import annotations

from typing import Literal, Protocol, TypedDict

from systems.engine.io.topology import row_bytes
from workloads.workload import Workload


class RowReadOptions(Protocol):
    """Options of a system that reads rows; some also have `merge_gap_bytes`."""

    @property
    def io_depth(self) -> int:
        """Reads in flight for each reader."""

    @property
    def io_granularity(self) -> Literal["logical", "4096"]:
        """Granularity of reads."""

    @property
    def merge(self) -> bool:
        """Whether adjacent rows are read together."""

    @property
    def max_request_bytes(self) -> int:
        """Largest single read."""


class ReaderArguments(TypedDict):
    """Arguments of a `RowReader` that determine its reads and its size."""

    data_offset: int
    num_rows: int
    row_bytes: int
    depth: int
    granularity: Literal["logical", "4096"]
    merge: bool
    max_request_bytes: int
    merge_gap_bytes: int


def reader_arguments(workload: Workload, options: RowReadOptions) -> ReaderArguments:
    """Return the arguments of a reader of the feature table."""
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
