"""`dgl+cache`: DGL's loader with PaGraph's static cache in device memory.

PaGraph's baseline that isolates the gain of partitioning: DGL gathers only the rows that miss the cache.
"""

from systems.engine.dgl import DglSystem, SamplerOption
from systems.engine.loading.cached_system import CacheOptions
from systems.interface import SystemInfo


class DglCacheOptions(CacheOptions, SamplerOption):
    """Options of `dgl+cache`."""


class DglCache(DglSystem):
    """DGL with the cache, on the whole graph and without pipelining (PaGraph, Section 5.4)."""

    info = SystemInfo(
        name="dgl+cache",
        paper="pagraph",
        summary="DGL's loader with PaGraph's static cache in device memory",
        devices=("cpu", "emulated"),
        options=DglCacheOptions,
    )


SYSTEM = DglCache
