"""PaGraph: hot rows stay in device memory, the others are gathered on the host and copied while training goes on."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from systems.engine.cached_system import CachedSystem, CacheOptions
from systems.interface import SystemInfo


class PaGraphOptions(CacheOptions):
    """Options of `pagraph`."""

    pipeline: bool = Field(True, description="load a mini-batch while others are trained (Section 3.3)")
    device_buffers: float = Field(
        0,
        ge=0,
        le=64,
        description="largest mini-batches that the device holds beside the cache, at least one; 0: two, or one where "
        "two take more than a quarter of the device",
    )


class PaGraph(CachedSystem):
    """PaGraph of its paper. Its partitions (Section 3.2) are of several devices; on one there is one partition."""

    info: ClassVar[SystemInfo] = SystemInfo(
        name="pagraph",
        paper="pagraph",
        summary="static out-degree cache in device memory, misses copied from host memory while training goes on",
        devices=("cpu", "cuda", "emulated"),
        faithful=True,
        options=PaGraphOptions,
    )
    options: PaGraphOptions

    @property
    def _ahead(self) -> int:
        # One trained, one ready, one copied and two gathered: the ring of rows and the staging buffers say how many.
        return 5 if self.options.pipeline else 1

    @property
    def _buffers(self) -> float:
        return self.options.device_buffers if self.options.pipeline else 1
