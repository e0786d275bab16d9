"""Forecast of outcore's reads: Belady's misses over an epoch, and passes over graph and features by the cost model."""

from __future__ import annotations

import numpy as np

from systems.forecast import PAGE, Forecast, Trace, sequential
from systems.outcore.cost import predict
from systems.outcore.planner import OutcoreSizes


def forecast(trace: Trace, sizes: OutcoreSizes) -> Forecast:
    """Forecast the reads of a trace."""
    disk, shared_passes = sizes.runtime.disk, sizes.options.shared_passes  # one pass serves hops of several groups
    dataset, row, scale = trace.workload.dataset, trace.row_bytes, trace.scale
    missed = trace.row_misses("belady", sizes.slots)
    groups = -(-trace.num_batches // max(1, sizes.group))
    passes_each = 1 if shared_passes else len(trace.workload.sampler.fanout)
    scanned = _pages_of_groups(trace, sizes.group, once=shared_passes) * PAGE + passes_each * 8.0 * dataset.num_nodes
    passes = 2 * trace.graph_bytes * trace.num_batches + groups * scanned
    # Each group has a pass of its own over the table.
    found = predict(
        disk,
        uses=round(trace.rows / groups),
        misses=round(missed * scale / groups),
        row_bytes=row,
        table_bytes=dataset.feature_bytes,
        beside=sequential(passes / groups),
    )
    if found is not None and found.single < found.distribute:
        reads = trace.read_of(missed * scale, disk.logical_block_bytes) | sequential(passes)
        how = "reads what it misses row by row"
    else:
        table = found.table_pass.reads() if found is not None else sequential(dataset.feature_bytes)
        reads = sequential(passes + 2 * missed * scale * row)
        for size, count in table.items():
            reads[size] = reads.get(size, 0.0) + groups * count
        how = "passes over graph and features"
    # A row is stored in any free slot: the device's slots cross the bus when filled, the host's at every use.
    on_device = sizes.device_slots / max(1, sizes.slots)
    return Forecast(
        {size: count / scale for size, count in reads.items()},
        f"{how}; keeps {trace.hit_rate(missed)} of the accesses (Belady over the epoch)",
        rows_copied=(1.0 - on_device) * trace.accesses + on_device * missed,
    )


def _pages_of_groups(trace: Trace, group: int, *, once: bool) -> float:
    """Estimate the pages of `indices` that one group's passes read; `once`: one pass serves hops of several groups."""
    total, left, sampled = 0.0, 1.0, trace.sampled
    most = trace.workload.dataset.topology_bytes / PAGE + 1
    for hop in range(len(trace.hop_pages[0])):
        seen = len(np.unique(np.concatenate([pages[hop] for pages in trace.hop_pages[sampled:]]))) / most
        # A mini-batch leaves a share of the pages untouched; n mini-batches leave the n-th power of that share.
        untouched = max(0.0, 1.0 - seen) ** (min(group, trace.num_batches) / sampled)
        total += most * (1.0 - untouched)
        left *= untouched
    return most * (1.0 - left) if once else total
