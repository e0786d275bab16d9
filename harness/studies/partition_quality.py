"""Study `partition-quality`: time, replicas and hit ratios of PaGraph's self-reliant
partitions (Fig. 17, Table 5)."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import Field

from harness.studies.base import StudyContext, WorkloadParams, study
from workloads.arraytypes import JsonDict

if TYPE_CHECKING:
    from workloads.workload import Workload

Ids = npt.NDArray[np.int64]


class PartitionParams(WorkloadParams):
    """The workload, the numbers of partitions, and the share of all rows that each
    device caches."""

    partitions: list[int] = Field(default_factory=lambda: [1, 2, 4, 8], min_length=1)
    cached_share: float = Field(default=0.2, ge=0, le=1)


def hit_ratio(
    workload: Workload,
    epochs: int,
    world: int,
    ranking: Ids,
    rows: int,
    partition: Path | None,
) -> float:
    """Divide the hits of all devices by their accesses; each device caches `rows` rows.

    With a partition file a device caches the highest-ranked nodes of its own partition,
    as `pagraph`; without one all devices cache the same rows, as `dgl+cache`, and share
    the seed nodes of every step evenly.

    Args:
        world, rows: number of devices, and of rows in each cache.
        ranking: int64 [N], node ids, best first.
    """
    from systems.engine.cache.policies import RowTrace, simulate_static
    from systems.engine.rank.partition import Partitioning

    misses = accesses = 0
    parts = None if partition is None else Partitioning.load(partition)
    for rank in range(world):
        order = ranking
        if parts is not None:
            own = np.zeros(len(ranking), dtype=bool)
            own[parts.nodes(rank)] = True
            order = np.concatenate([ranking[own[ranking]], ranking[~own[ranking]]])
        trace = RowTrace.record(
            replace(workload, rank=rank, world=world, partition=partition), epochs
        )
        misses += int(simulate_static(trace, order, [rows]).misses[0])
        accesses += trace.accesses
    return 1.0 - misses / max(1, accesses)


@study(
    "partition-quality",
    "Cost, replicas and hit ratio of self-reliant partitions",
    lambda params: 12.0 * len(params.partitions),
)
def run(params: PartitionParams, context: StudyContext) -> JsonDict:
    """Partition the graph, and replay each device's mini-batches against its cache.

    Returns:
        `partitions`: for each number of them `count`, `seconds`, `hit_ratio` (of
            partitioned devices),
        `hit_ratio_shared` (of devices that share the whole graph), `share` (mean over
        partitions of their nodes over all nodes), `redundant` (`share` less that of an
        even split without replicas), `replication` (factor), `balance` (of training
        nodes); `cached_share`; `hops`.
    """
    from systems.engine.rank.partition import partition_training_nodes
    from systems.engine.rank.ranking import out_degrees, top

    workload = context.workload(params)
    nodes = workload.dataset.num_nodes
    ranking = top(out_degrees(workload), nodes)
    rows = round(params.cached_share * nodes)
    found = []
    for count in params.partitions:
        context.progress(f"{count} partitions")
        begin = time.perf_counter()
        parts = partition_training_nodes(workload, count)
        seconds = time.perf_counter() - begin
        file = context.scratch / f"{count}.npz"
        parts.save(file)
        distinct = float(parts.sizes.sum()) / parts.replication_factor
        share = float(parts.sizes.mean()) / nodes
        entry = {
            "count": count,
            "seconds": seconds,
            "share": share,
            "redundant": share - distinct / count / nodes,
        }
        for name, partition in (("hit_ratio", file), ("hit_ratio_shared", None)):
            entry[name] = hit_ratio(
                workload, params.epochs, count, ranking, rows, partition
            )
        found.append(
            {
                **entry,
                "replication": parts.replication_factor,
                "balance": parts.train_balance,
            }
        )
    return {
        "partitions": found,
        "cached_share": params.cached_share,
        "hops": len(params.fanout),
    }
