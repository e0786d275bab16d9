"""`new-system`: rows read from disk when a mini-batch needs them; graph and labels in
memory."""

from __future__ import annotations

import outcore


class Options(outcore.SamplingOptions, outcore.RowReadOptions):
    """Options, given as `-o io_depth=64`; add your own as fields with a default and a
    description."""


class NewSystem(outcore.PathSystem):
    """Mini-batches sampled ahead, their rows read directly at full queue depth, and
    copied to the device while others train."""

    info = outcore.SystemInfo(
        name="new-system", summary="rows read from disk, no cache", options=Options
    )
    options: Options

    def path(self) -> outcore.Path:
        """List the parts in the order in which a mini-batch passes them."""
        options = self.options
        graph = outcore.Loaded()
        return outcore.Path(
            sample=outcore.Neighbours(graph, self.workers, options.prefetch),
            tiers=[],  # caches, the nearest to the trainer first
            rows=outcore.DirectRows(options=options, readers=2),
            copy=outcore.Tables(extractors=2, host=3),
        )


SYSTEM = NewSystem
