"""The graph in memory: the memory it takes, its sampler, and a traced group of
mini-batches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.passes.group import Uses
from systems.engine.passes.sampling import Job
from systems.interface import PlanItem
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.sampling.neighbor import NeighborSampler
from workloads.workload import Workload


def graph_items(workload: Workload) -> tuple[PlanItem, ...]:
    """Plan neighbour lists and labels in memory; `indptr` is an item of its own."""
    dataset = workload.dataset
    lists = PlanItem("indices in memory", dataset.topology_bytes)
    labels = PlanItem("labels in memory", 8 * dataset.num_nodes)
    return lists, labels


def graph_bytes(workload: Workload) -> int:
    """Return the bytes of `indptr` and `indices`, which a pass over the graph reads at
    most."""
    return workload.dataset.topology_bytes + 8 * (workload.dataset.num_nodes + 1)


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph in memory.

    Attributes:
        sampler: sampler of its mini-batches; any thread may sample.
        indices: int32 or int64 [E], its neighbour lists.
    """

    sampler: NeighborSampler
    indices: npt.NDArray[Any]

    @classmethod
    def load(cls, workload: Workload) -> Graph:
        """Read `indptr`, `indices` and labels, each once.

        Raises:
            DatasetError: a file is shorter than its array.
        """
        dataset = workload.dataset
        indptr = dataset.load("indptr")
        indices = dataset.load("indices")
        labels = dataset.load("labels")
        return cls(
            make_sampler(workload, indptr=indptr, indices=indices, labels=labels),
            indices,
        )


def trace(graph: Graph, workload: Workload, job: Job, threads: int) -> Uses:
    """Sample a group and keep only the rows that it uses."""
    seeds = make_seed_plan(workload).batches(job.epoch)[
        job.first : job.first + job.count
    ]

    def nodes_of(number: int) -> npt.NDArray[np.uint32]:
        batch = graph.sampler.sample(job.epoch, job.first + number, seeds[number])
        return batch.nodes.astype(np.uint32)

    with ThreadPoolExecutor(threads, "outcore-trace") as pool:
        parts = list(pool.map(nodes_of, range(len(seeds))))
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    counts = np.array([len(part) for part in seeds], dtype=np.int64)
    return Uses(np.concatenate(parts), offsets, counts)
