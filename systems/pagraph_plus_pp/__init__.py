"""`pagraph+pp`: `pagraph` over first-layer aggregates (PaGraph, Section 5.1): wider
rows, one hop less."""

from __future__ import annotations

from systems.interface import Expectation, Options, SystemInfo
from systems.parts import (
    FirstLayer,
    HostRows,
    Neighbours,
    Path,
    PathSystem,
    Ranked,
    Ring,
    StaticDevice,
    first_layer_oracle,
    host_graph,
)
from systems.parts.options import PipelineOptions
from workloads.workload import Workload


class PaGraphPP(PathSystem):
    """PaGraph whose rows are first-layer aggregates."""

    info = SystemInfo(
        name="pagraph+pp",
        paper="pagraph",
        summary="pagraph with the first layer aggregated beforehand over all "
        "neighbours",
        faithful=False,
        options=PipelineOptions,
        artefact_share=1.0,
    )
    options: PipelineOptions
    aggregated = True

    @classmethod
    def oracle(cls, workload: Workload, options: Options) -> Expectation:
        """Return the first hops of the workload's mini-batches, and every node's
        aggregate."""
        return first_layer_oracle(workload)

    def path(self) -> Path:
        """Mini-batches without the first layer's hop, aggregates in host memory, the
        cache and a ring on the device."""
        options = self.options
        graph = host_graph(options.host_store)
        return Path(
            sample=Neighbours(graph, self.workers, options.prefetch, first_hops=True),
            tiers=[
                StaticDevice(
                    order=Ranked(options.ranking),
                    size=options.cache,
                    reserve=options.reserve,
                )
            ],
            rows=HostRows(
                FirstLayer(), store=options.host_store, threads=options.gather_threads
            ),
            copy=Ring(ahead=options.ahead, buffers=options.buffers),
            fix=options.host_fix,
        )


SYSTEM = PaGraphPP
