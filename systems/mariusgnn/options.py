"""Options of MariusGNN."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from systems.parts.options import SamplingOptions

NAME = "mariusgnn"
#: Bytes a node that partitioning the graph holds: `indptr`, the node's partition, and
#: pieces derived from both.
HELD_BYTES = 12
REQUEST_BYTES = 64 << 10  # largest read through a reader's own buffer
Ordering = Literal["random", "rotation", "sequential", "fixed"]


class MariusOptions(SamplingOptions):
    """Options of `mariusgnn`."""

    partitions: int = Field(
        0,
        ge=0,
        le=256,
        description="p: partitions of the nodes; fewer where a partition would be "
        "no whole "
        "sectors; 0: 32, and more "
        "where the budget would not hold a handful of them",
    )
    buffer: int = Field(
        0,
        ge=0,
        le=256,
        description="c: partitions in memory at once; 0: as many as the budget holds",
    )
    ordering: Ordering = Field(
        "random",
        description="which partitions join those of the training nodes in an epoch: "
        "`random` draws them anew; "
        "`rotation` takes the next ones, so that all have their turn soonest; "
        "`sequential` moves on by one, which "
        "reads least; `fixed` never changes them",
    )
    io_depth: int = Field(
        32,
        ge=2,
        le=1024,
        description="reads kept in flight: three of four for rows, the others for edge "
        "buckets",
    )
    gather_threads: int = Field(
        0,
        ge=0,
        le=256,
        description="threads that gather one mini-batch; 0: one for each core",
    )
    request_bytes: int = Field(
        1 << 20,
        ge=4096,
        le=1 << 24,
        description="bytes of one read of a partition or buckets",
    )
    batch_slack: float = Field(
        1.25,
        ge=1,
        le=16,
        description="rows of a mini-batch's table, as a multiple of the largest "
        "mini-batch "
        "of the whole graph: without "
        "its hubs, what is buffered can give larger ones",
    )


def depths(options: MariusOptions) -> tuple[int, int]:
    """Return the reads in flight of rows, and of lists and edge buckets."""
    topology = max(1, options.io_depth // 4)
    return options.io_depth - topology, topology
