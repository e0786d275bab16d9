"""`pyg+`: PyG's pipeline over memory maps, at its strongest: no read-ahead, parallel
sampling and page faults.

As in the Ginex and GNNDrive papers: `indptr` in memory, `indices` and `features`
memory-mapped, read-ahead off, and many more gathering threads than cores, so that their
page faults keep the disk busy.
"""

from __future__ import annotations

from pydantic import Field

from systems.engine.io.faults import FaultMeter
from systems.interface import SystemInfo, auto
from systems.parts import Mapped, MappedRows, Neighbours, Path, PathSystem, Tables
from systems.parts.options import SamplingOptions

# Eight samplers are as fast as the 32 processes of the authors' code, and hold a
# quarter of the memory.
_SAMPLERS = 8


class PygPlusOptions(SamplingOptions):
    """Options of `pyg+`."""

    prefetch: int = auto(
        2,
        most=64,
        description="sampled mini-batches that may wait for each sampler (PyG's 2)",
    )
    sampling_workers: int = auto(
        most=256,
        description="threads that sample, each with one page fault under way: up "
        "to eight "
        "where they take no more than "
        "an eighth of the budget",
    )
    extract_threads: int = Field(
        0,
        ge=0,
        le=1024,
        description="threads that gather one mini-batch, each with one page fault "
        "under "
        "way; 0: 128, as the Ginex "
        "authors' code has on their machine, or as many as a sixteenth of the "
        "budget holds, at least twice the cores",
    )
    host_buffers: int = Field(
        0,
        ge=0,
        le=64,
        description="gathered mini-batches on the host; 0: two on cpu, one to copy "
        "from "
        "elsewhere",
    )
    device_buffers: int = Field(
        2,
        ge=1,
        le=64,
        description="mini-batches on the device, fewer where they do not fit",
    )
    read_ahead: bool = Field(
        False,
        description="leave the kernel's read-ahead on (only to show that it hurts)",
    )


class PygPlus(PathSystem):
    """PyG+ of the Ginex and GNNDrive papers."""

    info = SystemInfo(
        name="pyg+",
        paper="ginex",
        summary="PyG over memory-mapped indices and features; the page cache decides",
        options=PygPlusOptions,
        deterministic_counters=False,
    )
    options: PygPlusOptions

    def path(self) -> Path:
        """Graph and rows through the page cache, rows gathered by many threads into the
        mini-batches' tables."""
        options = self.options
        meter = FaultMeter()
        graph = Mapped(read_ahead=options.read_ahead)
        return Path(
            sample=Neighbours(
                graph, self.workers, options.prefetch, rather=_SAMPLERS, meter=meter
            ),
            rows=MappedRows(
                threads=options.extract_threads,
                read_ahead=options.read_ahead,
                meter=meter,
            ),
            copy=Tables(host=options.host_buffers, device=options.device_buffers),
            fix="raise memory or lower the batch size",
        )


SYSTEM = PygPlus
