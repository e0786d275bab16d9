"""PaGraph: hot rows stay in device memory, the others are gathered on the host and copied while training goes on."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from systems.engine.cached_system import CachedSystem, CacheOptions
from systems.interface import SystemInfo


class PaGraphOptions(CacheOptions):
    """Options of `pagraph`."""

    pipeline: bool = Field(True, description="load a mini-batch while others are trained (Section 3.3)")
    device_buffers: int = Field(
        3, ge=1, le=64, description="mini-batches on the device with pipelining, fewer where they do not fit"
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
    def _buffers_wanted(self) -> int:
        return self.options.device_buffers if self.options.pipeline else 1
