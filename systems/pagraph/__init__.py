"""`pagraph`: a static cache of out-degree in device memory, pipelined loading (Bai et
al., TPDS 2021)."""

from __future__ import annotations

from systems.interface import SystemInfo
from systems.parts import (
    HostRows,
    Neighbours,
    Path,
    PathSystem,
    Ranked,
    Ring,
    StaticDevice,
    host_graph,
)
from systems.parts.options import PipelineOptions


class PaGraph(PathSystem):
    """PaGraph of its paper. Several ranks share graph and features on the host; each
    caches for its own device.

    With `--partition self-reliant` a rank trains the nodes of its partition (Section
    3.2) and prefers to cache nodes that its partition can reach, which are fewer than
    those of the whole graph.
    """

    info = SystemInfo(
        name="pagraph",
        paper="pagraph",
        summary="static out-degree cache in device memory, misses copied from host "
        "memory while training goes on",
        options=PipelineOptions,
        data_parallel=True,
    )
    options: PipelineOptions

    def path(self) -> Path:
        """Graph and rows in host memory, the cache and a ring of misses on the
        device."""
        options = self.options
        graph = host_graph(options.host_store)
        return Path(
            sample=Neighbours(graph, self.workers, options.prefetch),
            tiers=[
                StaticDevice(
                    order=Ranked(options.ranking),
                    size=options.cache,
                    reserve=options.reserve,
                )
            ],
            rows=HostRows(store=options.host_store, threads=options.gather_threads),
            copy=Ring(ahead=options.ahead, buffers=options.buffers),
            fix=options.host_fix,
        )


SYSTEM = PaGraph
