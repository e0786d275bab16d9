"""`graphbolt`: the newest arrangement of DGL's GraphBolt for features on disk, made of
this repository's parts.

As in GraphBolt (DGL 2.1 and later): the graph in memory, rows read asynchronously from
disk past the page cache, and a demand cache in host memory, overlapped with sampling
and training.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from systems.engine.io.row_reads import RowReadOptions
from systems.interface import SystemInfo
from systems.parts import (
    Demand,
    DirectRows,
    Loaded,
    Neighbours,
    Path,
    PathSystem,
    SamplingOptions,
    Tables,
)
from systems.parts.kinds.demand import Policy
from systems.parts.options import check_share

_WAVE = 256


class GraphBoltOptions(SamplingOptions, RowReadOptions):
    """Options of `graphbolt`."""

    cache: Annotated[str, AfterValidator(check_share)] = Field(
        "auto",
        description="host memory of the cache: `auto`: all that is left of the "
        "host budget "
        "(a quarter of the rows "
        "without one); a share of the rows, as 0.25x; or a size such as 32MiB, "
        "bookkeeping included",
    )
    policy: Policy = Field(
        "sieve", description="which row goes where the cache is full"
    )
    waves: bool = Field(
        False,
        description="read as GraphBolt does: one read of whole 4,096-byte blocks "
        "for each "
        "row, 256 submitted together "
        "and all awaited before the next; False: the queue is kept full, "
        "neighbouring rows are read together",
    )
    extractors: int = Field(
        2, ge=1, le=64, description="mini-batches read beside each other"
    )
    copy_threads: int = Field(
        0,
        ge=0,
        le=256,
        description="threads that copy rows of one mini-batch; 0: the cores",
    )
    device_buffers: int = Field(
        2,
        ge=1,
        le=64,
        description="mini-batches on the device, fewer where they do not fit",
    )


class GraphBolt(PathSystem):
    """GraphBolt's in-memory graph, feature cache and reads of features from disk."""

    info = SystemInfo(
        name="graphbolt",
        summary="graph in memory, rows read from disk behind a demand cache in host "
        "memory (SIEVE and others)",
        options=GraphBoltOptions,
    )
    options: GraphBoltOptions

    def path(self) -> Path:
        """Graph in memory, rows from the cache, the others by several readers."""
        options = self.options
        reads = options
        wave = 0
        if options.waves:
            wave = _WAVE
            reads = options.model_copy(
                update={"io_depth": _WAVE, "io_granularity": "4096", "merge": False}
            )
        on_host = self.runtime.accelerator.kind == "cpu"
        extractors = options.extractors
        return Path(
            sample=Neighbours(Loaded(), self.workers, options.prefetch),
            tiers=[
                Demand(
                    policy=options.policy,
                    size=options.cache,
                    threads=options.copy_threads,
                )
            ],
            rows=DirectRows(options=reads, readers=extractors, wave=wave),
            copy=Tables(
                extractors, host=extractors + on_host, device=options.device_buffers
            ),
            fix="raise memory, or lower extractors, io_depth, batch size or fan-out",
        )


SYSTEM = GraphBolt
