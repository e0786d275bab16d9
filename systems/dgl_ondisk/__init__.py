"""`dgl-ondisk`: DGL's loader, each row read from disk by itself, no cache; a baseline
of DiskGNN (Section 5.1)."""

from __future__ import annotations

from pydantic import Field

from systems.engine.dgl import require_dgl
from systems.engine.io.reader import Granularity
from systems.interface import SystemInfo
from systems.parts import Path, PathSystem, Ring, SingleRows
from systems.parts.kinds.dgl import DglGraph, DglRows, dgl_sample
from systems.parts.options import SamplerOption, SamplingOptions, dgl_samples


class DglOnDiskOptions(SamplingOptions, SamplerOption):
    """Options of `dgl-ondisk`."""

    io_depth: int = Field(128, ge=1, le=4096, description="reads in flight")
    io_granularity: Granularity = Field(
        "logical",
        description="smallest read: the device's logical block, or 4096 as the "
        "papers' code "
        "has it",
    )


class DglOnDisk(PathSystem):
    """DGL over a memory-mapped graph and rows on disk."""

    info = SystemInfo(
        name="dgl-ondisk",
        paper="diskgnn",
        summary="DGL's loader, each row read from disk, no cache of its own",
        devices=("cpu", "emulated"),
        options=DglOnDiskOptions,
    )
    options: DglOnDiskOptions

    @classmethod
    def load_libraries(cls) -> None:
        """Import DGL."""
        require_dgl(cls.info.name)

    def path(self) -> Path:
        """DGL's graph through the page cache, each row read by itself, one mini-batch
        at a time."""
        options = self.options
        graph = DglGraph(store="mapped", dgl_samples=dgl_samples(options))
        held = SingleRows(depth=options.io_depth, granularity=options.io_granularity)
        return Path(
            sample=dgl_sample(graph, self.workers, options.prefetch),
            rows=DglRows(graph=graph, held=held),
            copy=Ring(),
            fix="raise memory, or lower cache, batch size or fan-out",
        )


SYSTEM = DglOnDisk
