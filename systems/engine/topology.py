"""How systems hold the graph's structure: `indptr` in memory, `indices` memory-mapped (or loaded), and what that costs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from systems.interface import PlanItem
from workloads.errors import DataIOError
from workloads.sampling.make import BatchBounds
from workloads.workload import Workload


def indptr_item(workload: Workload) -> PlanItem:
    """The index pointers, int64 [num_nodes + 1], which every disk-based system keeps in memory."""
    return PlanItem("indptr", 8 * (workload.dataset.num_nodes + 1))


def sampled_bytes(workload: Workload, bounds: BatchBounds) -> int:
    """Bytes of the largest sampled mini-batch: node ids, the blocks' index pointers and indices, labels."""
    nodes = 8 * bounds.max_nodes
    pointers = 8 * (bounds.max_nodes + len(workload.sampler.fanout))
    return nodes + pointers + 4 * bounds.max_edges + 8 * workload.sampler.batch_size


def sampling_items(workload: Workload, bounds: BatchBounds, *, workers: int, waiting: int) -> tuple[PlanItem, ...]:
    """Sampled mini-batches under way: in `workers` samplers (twice: result and working space) and `waiting` in queues."""
    one = sampled_bytes(workload, bounds)
    return (PlanItem("sampling workspace", 2 * workers * one), PlanItem("sampled mini-batches", waiting * one))


def row_bytes(workload: Workload) -> int:
    """Bytes of one feature row."""
    return workload.dataset.dim * workload.dataset.feature_dtype.itemsize


class MappedFiles:
    """Checks that memory-mapped files still have the bytes that their maps promise.

    A map beyond the end of a file that shrank raises SIGBUS, which no error message survives; so systems that map look
    before each mini-batch.
    """

    def __init__(self, workload: Workload, parts: Iterable[str]) -> None:
        dataset = workload.dataset
        count = {"indices": dataset.num_edges, "features": dataset.num_nodes * dataset.dim}
        item = {"indices": dataset.index_dtype.itemsize, "features": dataset.feature_dtype.itemsize}
        self._expected: list[tuple[Path, int]] = [
            (dataset.file(part), dataset.data_offset(part) + count[part] * item[part]) for part in parts
        ]

    def check(self) -> None:
        """Raises DataIOError: a file is shorter than its map, or gone; names it and the offset where it ends."""
        for path, expected in self._expected:
            try:
                size = os.stat(path).st_size  # noqa: PTH116 - once a mini-batch
            except OSError as error:
                raise DataIOError(
                    f"cannot read {path}: {error.strerror}", path=str(path), offset=0, errno=error.errno or 0
                ) from error
            if size < expected:
                raise DataIOError(
                    f"{path} ends at offset {size}, {expected} bytes were expected: it was truncated",
                    path=str(path),
                    offset=size,
                    fix="restore it and run `outcore data verify`",
                )
