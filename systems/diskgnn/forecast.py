"""Forecast of DiskGNN's reads: the rows outside the caches, packed by mini-batch, and the preparation of all epochs."""

from __future__ import annotations

import numpy as np

from systems.diskgnn.fit import fit
from systems.diskgnn.planner import DiskGnnSizes
from systems.diskgnn.ranking import AccessCounts, miss_curve, slots_of
from systems.forecast import PAGE, Forecast, Trace, sequential


def forecast(trace: Trace, sizes: DiskGnnSizes, page_cache_bytes: int) -> Forecast:
    """Forecast the reads of a trace; rows are ranked by its accesses.

    Args:
        page_cache_bytes: bytes through which preparation samples the graph.
    """
    nodes, runtime = trace.workload.dataset.num_nodes, sizes.runtime
    counts = AccessCounts(nodes)
    every = [part.astype(np.int64) for part in trace.nodes]
    for part in every:
        counts.add(part)
    wanted = sizes.table_rows + sizes.host_rows
    ranked = counts.hottest(wanted) if trace.hot is None else trace.hot(wanted)
    levels = fit(sizes, miss_curve(every, slots_of(ranked, nodes), len(ranked))).levels
    held, on_device = np.zeros((2, nodes), dtype=bool)
    held[ranked[: levels.cached]] = True
    on_device[ranked[: levels.direct]] = True
    missed = trace.missed(held)
    packed = missed * trace.row_bytes + trace.sampled * trace.graph_bytes + 12 * trace.accesses
    # Every epoch is sampled anew and packed by one pass over the features.
    times = runtime.epochs * trace.scale
    written = trace.workload.dataset.feature_bytes + times * packed
    return Forecast(
        sequential(packed),
        f"caches {trace.hit_rate(missed)} of the accesses, the rest lies packed by mini-batch",
        rows_copied=trace.missed(on_device),
        prepare_reads={PAGE: times * trace.graph_pages(page_cache_bytes)} | sequential(written),
        prepare_s=runtime.epochs * trace.num_batches * trace.sample_s / max(1, runtime.cores),
    )
