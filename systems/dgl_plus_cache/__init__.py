"""`dgl+cache`: DGL's loader with PaGraph's static cache in device memory.

PaGraph's baseline that isolates the gain of partitioning: DGL gathers only the rows
that miss the cache.
"""

from __future__ import annotations

from systems.engine.dgl import require_dgl
from systems.interface import SystemInfo
from systems.parts import HostRows, Path, PathSystem, Ranked, Ring, StaticDevice
from systems.parts.kinds.dgl import DglGraph, DglRows, dgl_sample
from systems.parts.options import CacheOptions, SamplerOption, dgl_samples


class DglCacheOptions(CacheOptions, SamplerOption):
    """Options of `dgl+cache`."""


class DglCache(PathSystem):
    """DGL with the cache, on the whole graph and without pipelining (PaGraph, Section
    5.4)."""

    info = SystemInfo(
        name="dgl+cache",
        paper="pagraph",
        summary="DGL's loader with PaGraph's static cache in device memory",
        devices=("cpu", "emulated"),
        options=DglCacheOptions,
    )
    options: DglCacheOptions

    @classmethod
    def load_libraries(cls) -> None:
        """Import DGL."""
        require_dgl(cls.info.name)

    def path(self) -> Path:
        """DGL's graph, the cache on the device, misses that DGL's DataLoader gathers,
        one mini-batch at a time."""
        options = self.options
        graph = DglGraph(store=options.host_store, dgl_samples=dgl_samples(options))
        held = HostRows(store=options.host_store, threads=options.gather_threads)
        cache = StaticDevice(
            order=Ranked(options.ranking), size=options.cache, reserve=options.reserve
        )
        return Path(
            sample=dgl_sample(graph, self.workers, options.prefetch),
            tiers=[cache],
            rows=DglRows(graph=graph, held=held),
            copy=Ring(),
            fix=options.host_fix,
        )


SYSTEM = DglCache
