"""The graph in memory or memory-mapped: `indptr` loaded, `indices` mapped (or loaded),
and their memory plans."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from systems.interface import MemoryBudget, PlanItem, Runtime
from workloads.dataset import Dataset
from workloads.errors import DataIOError, DatasetError
from workloads.ranks import RankGroup
from workloads.sampling.bounds import Bounds
from workloads.sampling.make import advise_random, make_sampler
from workloads.sampling.neighbor import NeighborSampler
from workloads.workload import Workload

#: Index pointers and entries of neighbour lists in memory, as for `NeighborSampler`.
CachedLists = tuple[
    npt.NDArray[np.int64], npt.NDArray[np.int32] | npt.NDArray[np.int64]
]
# A thread blocked on page faults: 16 KiB of kernel stack, about as much of its own, an
# arena's first pages, and the page tables of three mappings; 110 KiB were measured
# without the kernel's part.
_THREAD_BYTES = 160 << 10

MAKE_AGAIN = "`outcore data verify` names every fault; make or import it again"


def damaged(dataset: Dataset) -> DatasetError:
    """Make the error of a graph whose files contradict each other."""
    return DatasetError(
        f"{dataset.file('indices')} or {dataset.file('indptr')} is not of this graph",
        MAKE_AGAIN,
    )


def indptr_item(workload: Workload) -> PlanItem:
    """Plan the index pointers, int64 [num_nodes + 1], which every disk-based system
    keeps in memory."""
    return PlanItem("indptr", 8 * (workload.dataset.num_nodes + 1))


def map_item(workload: Workload, *, features: bool = False) -> PlanItem:
    """Plan the page tables of maps of `indices`, labels and, if wanted, features.

    A page table has one page for each 2 MiB touched, kept after the pages are dropped.
    """
    dataset = workload.dataset
    mapped = (
        dataset.topology_bytes
        + 8 * dataset.num_nodes
        + (dataset.feature_bytes if features else 0)
    )
    return PlanItem("page tables of maps", mapped // 512)


def mapped_sampler(
    workload: Workload,
    *,
    read_ahead: bool = False,
    indptr: npt.NDArray[np.int64] | None = None,
    cached: CachedLists | None = None,
    threads: int = 1,
) -> NeighborSampler:
    """Make a sampler with `indptr` in memory, `indices` and labels memory-mapped, by
    default without read-ahead.

    Args:
        indptr: int64 [num_nodes + 1] if it is in memory already.
        cached: neighbour lists that are in memory.
        threads: threads that share one mini-batch; more than cores wait for more pages
            at once.
    """
    dataset = workload.dataset
    indices = dataset.memmap("indices")
    labels = dataset.memmap("labels")
    if not read_ahead:
        advise_random(indices)
        advise_random(labels)
    return make_sampler(
        workload,
        indptr=indptr,
        indices=indices,
        labels=labels,
        cached=cached,
        threads=threads,
    )


def loaded(
    dataset: Dataset,
    part: Literal["indptr", "indices", "labels"],
    group: RankGroup | None,
) -> npt.NDArray[Any]:
    """Load a part of the dataset: a private copy, or one shared by all ranks, which
    rank 0 loads."""
    if group is None:
        return dataset.load(part)
    like = dataset.memmap(part)
    memory = group.shared(like.nbytes).view(like.dtype)
    if group.rank == 0:
        memory[:] = dataset.load(part)
    group.barrier()
    return memory


#: Names of the buffers of `sampling_items`.
SAMPLING_BUFFERS = (
    "sampling workspace",
    "threads that share a mini-batch's lists",
    "sampled mini-batches",
    "seed nodes",
)


def sampling_items(
    bounds: Bounds, *, workers: int, waiting: int, list_threads: int = 1
) -> tuple[PlanItem, ...]:
    """Plan the sampled mini-batches in flight: with `workers` samplers, `waiting` in
    queues, and one in training.

    Args:
        list_threads: threads that share one mini-batch (`mapped_sampler`'s `threads`).
    """
    helpers = workers * list_threads_bytes(bounds, list_threads)
    return (
        PlanItem(
            "sampling workspace",
            workers * (bounds.scratch_bytes + bounds.sampled_bytes),
        ),
        *(
            [PlanItem("threads that share a mini-batch's lists", helpers)]
            if helpers
            else []
        ),
        PlanItem("sampled mini-batches", (waiting + 1) * bounds.sampled_bytes),
        PlanItem("seed nodes", bounds.seed_bytes),
    )


def list_threads_bytes(bounds: Bounds, list_threads: int) -> int:
    """Return the bytes of the threads beside a sampler's own that share its
    mini-batches.

    Each has a stack, its part of the allocator's arenas, kernel memory, and a list of
    its new nodes, 8 bytes each. These lists grow by halves to the largest part a thread
    ever had: three times the nodes in all.
    """
    return (list_threads - 1) * _THREAD_BYTES + (
        24 * bounds.max_nodes if list_threads > 1 else 0
    )


def device_limit(runtime: Runtime, budget: MemoryBudget) -> int | None:
    """Return the bytes of device memory for tables, beside what training takes; None
    where the host is the device."""
    limits = (budget.device, runtime.accelerator.memory_bytes)
    return min((limit for limit in limits if limit is not None), default=None)


class DatasetFiles:
    """Check that files are as long as their memory maps.

    A map beyond the end of a file that shrank raises SIGBUS, which kills the process
    without an error message, so systems with maps check before each mini-batch.
    """

    def __init__(
        self,
        workload: Workload,
        parts: Iterable[Literal["indices", "labels", "features"]],
    ) -> None:
        dataset = workload.dataset
        data = {
            "indices": dataset.topology_bytes,
            "labels": 8 * dataset.num_nodes,
            "features": dataset.feature_bytes,
        }
        self._expected = [
            (dataset.file(part), dataset.data_offset(part) + data[part])
            for part in parts
        ]

    def check(self) -> None:
        """Raise DataIOError, with path and end offset, if a file is missing or shorter
        than its map."""
        for path, expected in self._expected:
            check_length(path, expected)


def check_length(path: Path, expected: int) -> None:
    """Raise DataIOError, with path and end offset, if the file is missing or has fewer
    than `expected` bytes."""
    try:
        size = os.stat(path).st_size  # noqa: PTH116 - once a mini-batch
    except OSError as error:
        failed = DataIOError.of(error, f"cannot read {path}", path)
        failed.offset = 0
        raise failed from error
    if size < expected:
        message = (
            f"{path} ends at offset {size}, {expected} bytes were expected: it was "
            "truncated"
        )
        raise DataIOError(
            message,
            path=str(path),
            offset=size,
            fix="restore it and run `outcore data verify`",
        )
