"""`ali+pg`: PyG+ with AliGraph's neighbour cache and PaGraph's feature cache (baseline
of the Ginex paper).

At its strongest: the best split of the caches' memory, direct reads that never pause.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from systems.ali_plus_pg.split import Split
from systems.engine.io.row_reads import RowReadOptions
from systems.interface import SystemInfo, auto, size
from systems.parts import (
    DirectRows,
    NeighbourLists,
    Neighbours,
    Path,
    PathSystem,
    StaticHost,
    Tables,
)
from systems.parts.options import SamplingOptions


class AliPlusPgOptions(SamplingOptions, RowReadOptions):
    """Options of `ali+pg`."""

    split: Literal["auto", "0", "25", "50", "75", "100"] = Field(
        "auto",
        description="per cent of the caches' memory for the neighbour cache, the "
        "rest for "
        "the feature cache; `auto` "
        "takes the best by simulation, found once for a setting",
    )
    cache: str = size(
        "auto",
        description="memory of both caches: `auto`: all that is left of the host "
        "budget (a "
        "quarter of the graph and "
        "features without one); or a size such as 32MiB",
    )
    tune_batches: int = Field(
        0,
        ge=0,
        description="mini-batches of the first epoch that `auto` simulates; 0: all",
    )
    sampling_workers: int = auto(
        most=256, description="mini-batches sampled beside each other"
    )
    list_threads: int = auto(
        8,
        most=256,
        description="threads that share each of them and wait for pages of "
        "uncached lists",
    )
    io_depth: int = Field(
        256, ge=1, le=4096, description="reads in flight for each extractor"
    )
    prefetch: int = Field(
        1,
        ge=1,
        le=64,
        description="sampled mini-batches that may wait for each sampler",
    )
    extractors: int = Field(
        0,
        ge=0,
        le=64,
        description="mini-batches read beside each other; 0: two, or one where a small "
        "budget holds no more",
    )
    device_buffers: int = Field(
        2,
        ge=1,
        le=64,
        description="mini-batches on the device, fewer where they do not fit",
    )


class AliPlusPg(PathSystem):
    """Ali+PG of the Ginex paper."""

    info = SystemInfo(
        name="ali+pg",
        paper="ginex",
        summary="static caches of neighbour lists and feature rows; direct reads of "
        "what they miss",
        options=AliPlusPgOptions,
    )
    options: AliPlusPgOptions

    def path(self) -> Path:
        """Neighbour lists and rows from their caches, other lists through pages, other
        rows by several readers."""
        if self.options.extractors:
            return self._path(self.options.extractors)
        path = self._path(2)
        host = self.budget.host
        return (
            path
            if host is None or self.fixed_bytes(path) <= host // 2
            else self._path(1)
        )

    def chosen(self) -> dict[str, int | str]:
        """Return the base's values, and the mini-batches read beside each other."""
        return {**super().chosen(), "extractors": self.planned().path.copy.extractors}

    def _path(self, extractors: int) -> Path:
        options = self.options
        on_host = self.runtime.accelerator.kind == "cpu"
        split = Split(
            wanted=options.split,
            cache=options.cache,
            batches=options.tune_batches,
            reads=options,
            list_threads=options.list_threads,
        )
        graph = NeighbourLists(list_threads=options.list_threads, share=split)
        return Path(
            sample=Neighbours(graph, self.workers, options.prefetch),
            tiers=[StaticHost(share=split)],
            rows=DirectRows(options=options, readers=extractors),
            copy=Tables(
                extractors, host=extractors + on_host, device=options.device_buffers
            ),
            fix="raise memory, or lower extractors, list_threads, io_depth, batch "
            "size or fan-out",
        )


SYSTEM = AliPlusPg
