"""Choice of a way: what stays in memory, by the disk's seconds of an epoch, from counts
of two traced groups.

Three ways are compared, each with the sizes that its plan allows. `passes` holds no
part of the graph: all memory is for rows and buffers. `graph in memory` samples there,
and Belady's rule keeps rows from group to group. `resident` samples from the graph in
memory, too; the rows used most stay in memory, and the others are read alone. The two
ways with groups may pin the rows used most, where this leaves fewer reads.

The first traced group ranks the rows, and fills the slots of the two ways with groups.
The second one is counted: the misses of each way, and from these its reads and writes
of an epoch. Nothing is timed, so equal disk profiles give equal choices. Without
measured rates a request costs as much as `NOMINAL` says. A way is not counted where
the rows that no memory of its size can hold already cost more than another way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.io.topology import MAKE_AGAIN
from systems.engine.passes.group import Uses
from systems.engine.passes.sampling import Job
from systems.interface import DiskPoint, DiskProfile
from systems.outcore.cost import Sample, predict
from systems.outcore.graph import Graph, graph_bytes, trace
from systems.outcore.pins import NO_PINS, Nodes, misses_of, slot_planner
from systems.outcore.planner import OutcoreSizes
from systems.outcore.resident import ResidentSizes
from workloads.errors import DatasetError

Scores = npt.NDArray[np.float32]
_MIB = 1 << 20
# A group of less than this many times the traced one misses rows at the same places.
_ALIKE = 1.5
_MOST_TRACED = 256  # mini-batches of a traced group
#: Share of the slots that the mini-batches under way leave free, for pinned rows. In
#: the others Belady's rule keeps rows within a group.
_PINNED_SHARE = 0.95
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
        rows: uint32, the rows that stay in memory: row i in slot i. Those of the
            device's slots come first; in each tier they ascend. None: all rows in their
            order.
        seconds: predicted seconds of an epoch's reads and writes by way; empty where
            only one way fits.
    """

    sizes: OutcoreSizes
    rows: Nodes | None
    seconds: Mapping[str, float]


def way_of(sizes: OutcoreSizes) -> str:
    """Return the name of the way with these sizes."""
    if isinstance(sizes, ResidentSizes):
        return "resident"
    return "graph in memory" if sizes.graph_in_memory else "passes"


def choose(ways: Sequence[OutcoreSizes], graph: Graph) -> Choice:
    """Choose the way of least predicted seconds; of equal ones the last.

    Args:
        ways: sizes of the ways that fit, the resident way last.
        graph: the graph in memory.
    """
    last = ways[-1]
    assert isinstance(last, ResidentSizes)
    whole = last.reads_nothing
    if whole and not last.device_slots:
        return Choice(last, None, {})
    threads = last.threads
    count = min(_MOST_TRACED, *(sizes.group for sizes in ways))
    first = trace(graph, last.workload, Job(0, 0, count), threads)
    scores = score(first, graph, last.num_nodes)
    resident = hottest(scores, last.device_slots, last.resident)
    if whole:
        return Choice(last, resident, {})
    second = trace(graph, last.workload, Job(1, 0, count), threads)
    best: tuple[OutcoreSizes, Nodes] = (last, resident)
    seconds = {way_of(last): _resident_seconds(last, second, resident)}
    bounds = []
    for sizes in ways[:-1]:
        sure = _sure_misses(sizes, first, second, scores)
        bounds.append((_group_seconds(sizes, second, sure), sizes))
    for bound, sizes in sorted(bounds, key=lambda one: one[0]):
        least = min(seconds.values())
        if bound >= least:
            continue
        found, pinned = _with_pins(sizes, first, second, scores)
        seconds[way_of(sizes)] = found
        if found < least:
            best = (sizes, pinned)
    return Choice(*best, seconds)


def score(uses: Uses, graph: Graph, num_nodes: int) -> Scores:
    """Return each node's likely uses, float32 [num_nodes]: its uses in the trace, plus
    those that its share of the edges makes likely."""
    scores = np.bincount(uses.nodes, minlength=num_nodes).astype(np.float32)
    degrees = np.zeros(num_nodes, dtype=np.int64)
    if not _native.count_ids(graph.indices, degrees):
        raise DatasetError("`indices` holds an id of no node", MAKE_AGAIN)
    each = len(uses.nodes) / max(1, len(graph.indices))
    scores += degrees.astype(np.float32) * np.float32(each)
    return scores


def hottest(scores: Scores, on_device: int, count: int) -> Nodes:
    """Return the `count` nodes of the highest scores, uint32: first the `on_device`
    highest, then the others, each part ascending. Of equal scores the lower id."""
    chosen = _highest(scores, count)
    device = _highest(scores, min(on_device, count))
    nodes = np.concatenate([np.flatnonzero(device), np.flatnonzero(chosen & ~device)])
    return nodes.astype(np.uint32)


def _highest(scores: Scores, count: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the `count` highest scores."""
    if count >= len(scores):
        return np.ones(len(scores), dtype=bool)
    if count <= 0:
        return np.zeros(len(scores), dtype=bool)
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    chosen: npt.NDArray[np.bool_] = scores > least
    equal = np.flatnonzero(scores == least)
    chosen[equal[: count - int(np.count_nonzero(chosen))]] = True
    return chosen


def _rates(sizes: OutcoreSizes) -> DiskProfile:
    disk = sizes.runtime.disk
    measured = disk.sequential_bytes_per_s() > 0 and bool(disk.random_rates())
    return disk if measured else NOMINAL


def _resident_seconds(sizes: ResidentSizes, uses: Uses, resident: Nodes) -> float:
    """Predict the seconds of reading each miss alone."""
    held = np.zeros(sizes.num_nodes, dtype=bool)
    held[resident] = True
    missed = len(uses.nodes) - int(np.count_nonzero(held[uses.nodes]))
    request = -(-sizes.row // sizes.block_bytes) * sizes.block_bytes
    scale = sizes.bounds.num_batches / len(uses.seeds)
    return _rates(sizes).seconds({request: scale * missed})


def _sure_misses(sizes: OutcoreSizes, first: Uses, second: Uses, scores: Scores) -> int:
    """Return rows of the second group that are not in memory whatever is kept: neither
    used in the first group nor among the highest scores."""
    fresh = np.zeros(sizes.num_nodes, dtype=bool)
    fresh[second.nodes] = True
    fresh[first.nodes] = False
    fresh &= ~_highest(scores, sizes.slots)
    return int(np.count_nonzero(fresh))


def _with_pins(
    sizes: OutcoreSizes, first: Uses, second: Uses, scores: Scores
) -> tuple[float, Nodes]:
    """Predict the seconds of an epoch in groups; return them with the rows to pin, none
    where Belady's rule alone takes less."""
    spare = max(0, sizes.slots - sizes.slots_under_way)
    count = int(_PINNED_SHARE * spare)
    found = []
    for rows in (NO_PINS, hottest(scores, sizes.device_slots, count)):
        planner = slot_planner(sizes.slots, sizes.window, rows, threads=sizes.threads)
        misses = misses_of(planner, (first, second))
        seconds = _group_seconds(sizes, second, misses, planner.sampled_misses)
        del planner  # frees its memory before the next one is allocated
        found.append((seconds, rows))
    return min(found, key=lambda one: one[0])


def _group_seconds(
    sizes: OutcoreSizes, uses: Uses, missed: int, sampled: Sample | None = None
) -> float:
    """Predict the seconds of all groups of an epoch, their samples written and read
    back.

    Args:
        uses: the traced group.
        missed: its rows that miss.
        sampled: ids of the misses, as for `predict`.
    """
    disk = _rates(sizes)
    groups = math.ceil(sizes.bounds.num_batches / sizes.group)
    scale = sizes.bounds.num_batches / groups / len(uses.seeds)
    graph = {_MIB: graph_bytes(sizes.workload) / _MIB} if sizes.external else {}
    found = predict(
        disk,
        uses=round(scale * len(uses.nodes)),
        misses=round(scale * missed),
        row_bytes=sizes.row,
        table_bytes=sizes.workload.dataset.feature_bytes,
        block_bytes=sizes.block_bytes,
        sampled=sampled if scale < _ALIKE and missed else None,
        beside=graph,
    )
    assert found is not None
    # Without measured rates, groups are always distributed.
    one = found.distribute if disk is NOMINAL else min(found.single, found.distribute)
    share = sizes.uses(sizes.group) / (sizes.group * sizes.bounds.max_nodes)
    samples = share * sizes.bounds.num_batches * sizes.bounds.sampled_bytes
    return groups * one + 2 * samples / disk.sequential_bytes_per_s()
