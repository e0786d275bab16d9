"""Study `page-accesses`: pages of features and topology for each mini-batch, cached or not.

A memory-mapped system's page faults are divided by these accesses (`ginex-fig4`).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.studies.base import Plain, StudyContext, WorkloadParams, sample_all, study

PAGE_BYTES = 4096


@study(
    "page-accesses",
    "Pages of features and topology that each mini-batch asks for",
    lambda params: 3.0 + 0.02 * params.epochs * (params.max_batches or 400),
)
def run(params: WorkloadParams, context: StudyContext) -> Plain:
    """Sample every mini-batch again and count the pages of its rows and neighbour lists.

    Returns:
        Columns of equal length, one entry a mini-batch in training order: `epoch`, `batch`, `nodes`, `feature_pages`
        (pages of each row; a page shared by two rows counts twice) and `topology_pages` (all pages of each list drawn
        from, at most one a draw).
    """
    workload = context.workload(params)
    dataset = workload.dataset
    indptr = dataset.load("indptr")
    rows: list[tuple[int, ...]] = []
    row_bytes = dataset.dim * dataset.feature_dtype.itemsize
    for epoch, index, batch in sample_all(workload, params.epochs, indptr=indptr, threads=len(os.sched_getaffinity(0))):
        if index == 0:
            context.progress(f"epoch {epoch}")
        pages = sum(
            list_pages(indptr, batch.nodes[: block.num_dst], np.diff(block.indptr), dataset.index_dtype.itemsize)
            for block in batch.blocks
        )
        rows.append((epoch, index, batch.num_nodes, row_pages(batch.nodes, row_bytes), pages))
    names = ("epoch", "batch", "nodes", "feature_pages", "topology_pages")
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def row_pages(nodes: npt.NDArray[np.int64], row_bytes: int) -> int:
    """Count the pages of the rows of `nodes` (int64 [n]), a shared page once for each row; features begin on a page."""
    first = nodes * row_bytes // PAGE_BYTES
    last = ((nodes + 1) * row_bytes - 1) // PAGE_BYTES
    return int((last - first + 1).sum())


def list_pages(
    indptr: npt.NDArray[np.int64], nodes: npt.NDArray[np.int64], draws: npt.NDArray[Any], item_bytes: int
) -> int:
    """Count the pages touched by draws from the lists of `nodes`: all pages of a list, but at most one a draw.

    Args:
        indptr, nodes, draws: int64 [N + 1], int64 [n], and the number of draws from each node's list, [n].
        item_bytes: bytes of an entry.
    """
    start, end = indptr[nodes], indptr[nodes + 1]
    some = end > start
    first = start[some] * item_bytes // PAGE_BYTES
    last = (end[some] * item_bytes - 1) // PAGE_BYTES
    return int(np.minimum(last - first + 1, draws[some]).sum())
