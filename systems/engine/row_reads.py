"""How a system's readers read feature rows: options that several systems have, as a reader's arguments."""

from __future__ import annotations

from typing import Literal, Protocol, TypedDict

from systems.engine.topology import row_bytes
from workloads.workload import Workload


class RowReadOptions(Protocol):
    """The options of a system that reads rows; some have `merge_gap_bytes` too."""

    @property
    def io_depth(self) -> int:
        """Reads in flight for each reader."""

    @property
    def io_granularity(self) -> Literal["logical", "4096"]:
        """Smallest read."""

    @property
    def merge(self) -> bool:
        """Read neighbouring rows together."""

    @property
    def max_request_bytes(self) -> int:
        """Largest single read."""


class ReaderArguments(TypedDict):
    """What decides how a `RowReader` reads, and how large it is."""

    data_offset: int
    num_rows: int
    row_bytes: int
    depth: int
    granularity: Literal["logical", "4096"]
    merge: bool
    max_request_bytes: int
    merge_gap_bytes: int


def reader_arguments(workload: Workload, options: RowReadOptions) -> ReaderArguments:
    """Arguments of one reader of the feature table."""
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
