"""`dgl`: DGL's loader over graph and features in memory; the baseline of PaGraph's
paper.

DGL as its users run it: mini-batches are sampled ahead; DGL's DataLoader gathers and
copies while training waits.
"""

from __future__ import annotations

from systems.engine.dgl import require_dgl
from systems.interface import SystemInfo
from systems.parts import HostRows, Path, PathSystem, Ring
from systems.parts.kinds.dgl import DglGraph, DglRows, dgl_sample
from systems.parts.options import HostOptions, SamplerOption, dgl_samples


class DglOptions(HostOptions, SamplerOption):
    """Options of `dgl`."""


class Dgl(PathSystem):
    """DGL, which gathers all rows on the host and copies them to the device (PaGraph,
    Sections 2.3 and 5)."""

    info = SystemInfo(
        name="dgl",
        paper="pagraph",
        summary="DGL's loader over graph and features in memory",
        devices=("cpu", "emulated"),
        options=DglOptions,
    )
    options: DglOptions

    @classmethod
    def load_libraries(cls) -> None:
        """Import DGL."""
        require_dgl(cls.info.name)

    def path(self) -> Path:
        """DGL's graph, rows that its DataLoader gathers, one mini-batch at a time on
        the device."""
        options = self.options
        graph = DglGraph(store=options.host_store, dgl_samples=dgl_samples(options))
        held = HostRows(store=options.host_store, threads=options.gather_threads)
        return Path(
            sample=dgl_sample(graph, self.workers, options.prefetch),
            rows=DglRows(graph=graph, held=held),
            copy=Ring(),
            fix=options.host_fix,
        )


SYSTEM = Dgl
