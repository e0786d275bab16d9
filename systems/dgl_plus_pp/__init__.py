"""`dgl+pp`: `dgl` over rows that are first-layer aggregates (PaGraph, Section 5.1)."""

from __future__ import annotations

from systems.engine.dgl import require_dgl
from systems.interface import Expectation, Options, SystemInfo
from systems.parts import (
    FirstLayer,
    HostRows,
    Neighbours,
    Path,
    PathSystem,
    Ring,
    first_layer_oracle,
)
from systems.parts.kinds.dgl import DglGraph, DglRows
from systems.parts.options import HostOptions
from workloads.workload import Workload


class DglPP(PathSystem):
    """DGL over first-layer aggregates; without the choice of DGL's sampler, since the
    oracle uses ours."""

    info = SystemInfo(
        name="dgl+pp",
        paper="pagraph",
        summary="DGL's loader with the first layer aggregated beforehand over all "
        "neighbours",
        devices=("cpu", "emulated"),
        faithful=False,
        options=HostOptions,
        artefact_share=1.0,
    )
    options: HostOptions
    aggregated = True

    @classmethod
    def load_libraries(cls) -> None:
        """Import DGL."""
        require_dgl(cls.info.name)

    @classmethod
    def oracle(cls, workload: Workload, options: Options) -> Expectation:
        """Return the first hops of the workload's mini-batches, and every node's
        aggregate."""
        return first_layer_oracle(workload)

    def path(self) -> Path:
        """Mini-batches without the first layer's hop, aggregates that DGL's DataLoader
        gathers."""
        options = self.options
        graph = DglGraph(store=options.host_store)
        held = HostRows(
            FirstLayer(), store=options.host_store, threads=options.gather_threads
        )
        return Path(
            sample=Neighbours(graph, self.workers, options.prefetch, first_hops=True),
            rows=DglRows(graph=graph, held=held),
            copy=Ring(),
            fix=options.host_fix,
        )


SYSTEM = DglPP
