"""Options of `ali+pg`; the splits are those that the Ginex paper tried (Section 4.1, Comparison Baselines)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from systems.engine.io.row_reads import RowReadOptions
from systems.engine.loading.sized import SamplingOptions
from systems.interface import auto, size

SPLITS = (0, 25, 50, 75, 100)


class AliPlusPgOptions(SamplingOptions, RowReadOptions):
    """Options of `ali+pg`."""

    split: Literal["auto", "0", "25", "50", "75", "100"] = Field(
        "auto",
        description="per cent of the caches' memory for the neighbour cache, the rest for the feature cache; `auto` "
        "takes the best by simulation, found once for a setting",
    )
    cache: str = size(
        "auto",
        description="memory of both caches: `auto`: all that is left of the host budget (a quarter of the graph and "
        "features without one); or a size such as 32MiB",
    )
    tune_batches: int = Field(0, ge=0, description="mini-batches of the first epoch that `auto` simulates; 0: all")
    sampling_workers: int = auto(most=256, description="mini-batches sampled beside each other")
    list_threads: int = auto(
        8, most=256, description="threads that share each of them and wait for pages of uncached lists"
    )
    io_depth: int = Field(256, ge=1, le=4096, description="reads in flight for each extractor")
    prefetch: int = Field(1, ge=1, le=64, description="sampled mini-batches that may wait for each sampler")
    extractors: int = Field(
        0,
        ge=0,
        le=64,
        description="mini-batches read beside each other; 0: two, or one where a small budget holds no more",
    )
    device_buffers: int = Field(2, ge=1, le=64, description="mini-batches on the device, fewer where they do not fit")
