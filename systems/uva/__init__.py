"""`uva`: features in host memory, which the device reads by zero-copy; no feature row
in device memory.

The baseline of Data Tiering (Min et al., KDD 2022): every row crosses the bus when a
kernel reads it.
"""

from __future__ import annotations

from systems.interface import SystemInfo
from systems.parts import HostRows, Neighbours, Path, PathSystem, ZeroCopy, host_graph
from systems.parts.options import HostOptions


class Uva(PathSystem):
    """Zero-copy reads of all rows, as with DGL's unified tensors."""

    info = SystemInfo(
        name="uva",
        paper="data-tiering",
        summary="features in host memory, read by the device without copies "
        "(zero-copy)",
        options=HostOptions,
    )
    options: HostOptions

    def path(self) -> Path:
        """Graph and rows in host memory, read by the device itself."""
        options = self.options
        graph = host_graph(options.host_store)
        rows = HostRows(
            store=options.host_store, threads=options.gather_threads, by_device=True
        )
        return Path(
            sample=Neighbours(graph, self.workers, options.prefetch),
            rows=rows,
            copy=ZeroCopy(rows=rows),
            fix=options.host_fix,
        )


SYSTEM = Uva
