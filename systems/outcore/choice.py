"""Choice of a way: what stays in memory, by the disk's seconds of an epoch, from counts
of two traced groups.

Three ways are compared, each with the sizes that its plan allows. `passes` holds no
part of the graph: all memory is for rows and buffers. `graph in memory` samples there,
and Belady's rule keeps rows from group to group. `resident` samples from the graph in
memory, too; the rows used most stay in memory, and the others are read alone.

The first traced group ranks the rows, and fills the slots of the two ways with groups.
The second one is counted: the misses of each way, and from these its reads and writes
of an epoch. Nothing is timed, so equal disk profiles give equal choices. Without
measured rates a request costs as much as `NOMINAL` says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.io.topology import MAKE_AGAIN
from systems.engine.passes.preparer import Uses
from systems.engine.passes.sampling import Job
from systems.interface import DiskPoint, DiskProfile
from systems.outcore.cost import predict
from systems.outcore.graph import Graph, graph_bytes, trace
from systems.outcore.planner import OutcoreSizes
from systems.outcore.resident import ResidentSizes
from workloads.errors import DatasetError

Ids = npt.NDArray[np.int64]
_MIB = 1 << 20
_MOST_TRACED = 256  # mini-batches of a traced group
#: A device of 1 GB/s that streams 64 KiB in the time of one short request.
NOMINAL = DiskProfile(
    (
        DiskPoint(4096, 128, 15_000, 61e6),
        DiskPoint(65536, 128, 15_000, 983e6),
        DiskPoint(_MIB, 16, 950, 1e9, "sequential"),
    )
)


@dataclass(frozen=True)
class Choice:
    """The chosen way.

    Attributes:
        sizes: its sizes.
        order: int64, the rows that stay in memory, hottest first; None: all rows in
            their order, or none.
        seconds: predicted seconds of an epoch's reads and writes by way; empty where
            only one way fits.
    """

    sizes: OutcoreSizes
    order: Ids | None
    seconds: Mapping[str, float]


def way_of(sizes: OutcoreSizes) -> str:
    """Return the name of the way with these sizes."""
    if isinstance(sizes, ResidentSizes):
        return "resident"
    return "graph in memory" if sizes.graph_in_memory else "passes"


def choose(ways: Sequence[OutcoreSizes], graph: Graph) -> Choice:
    """Choose the way of least predicted seconds; of equal ones the last.

    Args:
        ways: sizes of the ways that fit, one or more of them with the graph in memory.
        graph: the graph in memory.
    """
    last = ways[-1]
    whole = isinstance(last, ResidentSizes) and last.reads_nothing
    if whole and not last.device_slots:
        return Choice(last, None, {})
    workload = last.workload
    threads = last.threads
    count = min(_MOST_TRACED, *(sizes.group for sizes in ways))
    first = trace(graph, workload, Job(0, 0, count), threads)
    order = (
        rank(first, graph, last.num_nodes) if isinstance(last, ResidentSizes) else None
    )
    if whole:
        return Choice(last, order, {})
    second = trace(graph, workload, Job(1, 0, count), threads)
    seconds = {way_of(sizes): _seconds(sizes, first, second, order) for sizes in ways}
    best = min(reversed(ways), key=lambda sizes: seconds[way_of(sizes)])
    if not isinstance(best, ResidentSizes) or order is None:
        return Choice(best, None, seconds)
    return Choice(best, order[: best.resident], seconds)


def rank(uses: Uses, graph: Graph, num_nodes: int) -> Ids:
    """Return all nodes, int64 [num_nodes], those first that mini-batches are likely to
    use most.

    The score of a node is its number of uses in the trace, plus the uses that its share
    of the edges makes likely.
    """
    scores = np.bincount(uses.nodes, minlength=num_nodes).astype(np.float32)
    degrees = np.zeros(num_nodes, dtype=np.int64)
    if not _native.count_ids(graph.indices, degrees):
        raise DatasetError("`indices` holds an id of no node", MAKE_AGAIN)
    each = len(uses.nodes) / max(1, len(graph.indices))
    scores += degrees.astype(np.float32) * np.float32(each)
    del degrees
    return np.argsort(-scores, kind="stable")


def _seconds(
    sizes: OutcoreSizes, first: Uses, second: Uses, order: Ids | None
) -> float:
    """Predict the disk's seconds of one epoch."""
    if isinstance(sizes, ResidentSizes):
        assert order is not None
        return _resident_seconds(sizes, second, order)
    return _group_seconds(sizes, first, second)


def _rates(sizes: OutcoreSizes) -> DiskProfile:
    disk = sizes.runtime.disk
    measured = disk.sequential_bytes_per_s() > 0 and bool(disk.random_rates())
    return disk if measured else NOMINAL


def _resident_seconds(sizes: ResidentSizes, uses: Uses, order: Ids) -> float:
    """Predict the seconds of reading each miss alone."""
    held = np.zeros(sizes.num_nodes, dtype=bool)
    held[order[: sizes.resident]] = True
    missed = len(uses.nodes) - int(np.count_nonzero(held[uses.nodes]))
    request = -(-sizes.row // sizes.block_bytes) * sizes.block_bytes
    scale = sizes.bounds.num_batches / len(uses.seeds)
    return _rates(sizes).seconds({request: scale * missed})


def _group_seconds(sizes: OutcoreSizes, first: Uses, second: Uses) -> float:
    """Predict the seconds of all groups of an epoch, their samples written and read
    back."""
    disk = _rates(sizes)
    traced = len(second.seeds)
    planner = _native.SlotPlanner(sizes.slots, sizes.window, True, sizes.threads)
    for uses in (first, second):
        planner.plan(uses.nodes, uses.offsets, uses.seeds)
    missed = len(second.nodes) - planner.hits
    groups = math.ceil(sizes.bounds.num_batches / sizes.group)
    scale = sizes.bounds.num_batches / groups / traced
    graph = {_MIB: graph_bytes(sizes.workload) / _MIB} if sizes.external else {}
    found = predict(
        disk,
        uses=round(scale * len(second.nodes)),
        misses=round(scale * missed),
        row_bytes=sizes.row,
        table_bytes=sizes.workload.dataset.feature_bytes,
        block_bytes=sizes.block_bytes,
        sampled=planner.sampled_misses if scale < 1.5 and missed else None,
        beside=graph,
    )
    assert found is not None
    # Without measured rates, groups are always distributed.
    one = found.distribute if disk is NOMINAL else min(found.single, found.distribute)
    share = sizes.uses(sizes.group) / (sizes.group * sizes.bounds.max_nodes)
    samples = share * sizes.bounds.num_batches * sizes.bounds.sampled_bytes
    return groups * one + 2 * samples / disk.sequential_bytes_per_s()
