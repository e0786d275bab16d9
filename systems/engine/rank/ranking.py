"""Rankings of all nodes by their value for caching, computed out of core from the graph
in CSC.

A node's out-degree is its number of occurrences in `indices`. All rankings stream
`indices` from its first byte to its last by large direct reads; only arrays of one
entry a node are held.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from systems import _native
from systems.engine.io.memory import aligned_empty
from systems.engine.io.stream import stream
from systems.engine.io.topology import MAKE_AGAIN
from systems.engine.rank.pagerank import reverse_pagerank
from systems.interface import Progress, silent
from workloads.direct_files import small_maps
from workloads.errors import BudgetError, DatasetError, InputError
from workloads.units import format_bytes
from workloads.workload import Workload

Scores = NDArray[Any]
Method = Literal[
    "out-degree", "aligraph", "random", "reverse-pagerank", "weighted-reverse-pagerank"
]
METHODS: tuple[Method, ...] = get_args(Method)
_DEPTH = 16
_CHUNK_NODES = 1 << 18
_MOST_REQUEST_BYTES = 1 << 20
_LEAST_REQUEST_BYTES = 64 << 10


def top(scores: Scores, k: int) -> NDArray[np.int64]:
    """Return the `k` nodes of highest score, highest first, ties by id; all nodes if
    there are fewer than `k`.

    Args:
        scores: [N], any real dtype, without NaN.

    Returns:
        int64 [min(k, N)].
    """
    k = max(0, min(k, scores.shape[0]))
    if k == 0:
        return np.empty(0, dtype=np.int64)
    limit = np.partition(scores, scores.shape[0] - k)[scores.shape[0] - k]
    above = np.flatnonzero(scores > limit)
    equal = np.flatnonzero(scores == limit)[: k - above.shape[0]]
    chosen = np.sort(np.concatenate([above, equal]))
    # Sorting ascending with reversed ids, then reversing, puts equal scores in the
    # order of ids.
    backwards = chosen[::-1]
    return backwards[np.argsort(scores[backwards], kind="stable")][::-1]


def scores(
    workload: Workload,
    method: Method,
    *,
    budget_bytes: int | None = None,
    threads: int | None = None,
    progress: Progress = silent,
) -> Scores:
    """Compute the score of every node; nodes of higher score are more valuable to
    cache.

    Args:
        method: `out-degree` (PaGraph, Section 3.1); `aligraph`: out-degree over
            in-degree (AliGraph as cited by Ginex, Section 4.2; a node without
            in-neighbours counts as having one); `random`: drawn from the workload's
            seed; `reverse-pagerank`: until convergence; `weighted-reverse-pagerank`:
            five iterations from scores that favour the training nodes (Data Tiering,
            Section 3.1).
        budget_bytes: bytes that the computation may hold; None: unlimited.
        threads: threads of the computation; None: all cores. The scores are the same
            for any number.

    Returns:
        float64 [N]; for `out-degree` int32 or int64 [N].

    Raises:
        BudgetError: one or two numbers a node and the smallest buffers do not fit.
        InputError: the method is unknown.
    """
    if method == "out-degree":
        return out_degrees(workload, budget_bytes, progress)
    if method == "aligraph":
        return _degree_ratio(workload, budget_bytes, progress)
    if method == "random":
        return np.random.Generator(np.random.Philox(workload.seed)).random(
            workload.dataset.num_nodes
        )
    if method in ("weighted-reverse-pagerank", "reverse-pagerank"):
        weighted = method == "weighted-reverse-pagerank"
        count = 5 if weighted else None
        return reverse_pagerank(
            workload,
            weighted=weighted,
            iterations=count,
            budget_bytes=budget_bytes,
            threads=threads,
            progress=progress,
        )
    raise InputError(
        f"ranking is {method!r}, which is not known", f"use {', '.join(METHODS)}"
    )


def out_degrees(
    workload: Workload, budget_bytes: int | None = None, progress: Progress = silent
) -> NDArray[Any]:
    """Count each node's occurrences as an in-neighbour while `indices` streams by once.

    Args:
        budget_bytes: bytes of counts and buffers together; None: unlimited (32 MiB of
            buffers).

    Returns:
        int32 [N], or int64 [N] if the graph has 2^31 edges or more.

    Raises:
        BudgetError: the counts and the smallest buffers do not fit.
        DataIOError: `indices` cannot be read to its end.
        DatasetError: `indices` holds an id outside the graph.
    """
    dataset = workload.dataset
    dtype = np.dtype(np.int32 if dataset.num_edges < 2**31 else np.int64)
    request = _request_bytes(
        "out-degrees", dtype.itemsize * dataset.num_nodes, budget_bytes
    )
    counts = np.zeros(dataset.num_nodes, dtype=dtype)
    buffer = aligned_empty(2 * _DEPTH * request)
    offset = dataset.data_offset("indices")
    for at, piece in stream(
        dataset.file("indices"),
        offset,
        dataset.topology_bytes,
        buffer,
        request_bytes=request,
        depth=_DEPTH,
    ):
        sound = _native.count_ids(piece.view(dataset.index_dtype), counts)
        begin = (at - offset) // dataset.index_dtype.itemsize
        progress("counting out-degrees", begin / dataset.num_edges)
        if not sound:
            message = (
                f"{dataset.file('indices')} holds an id outside [0, "
                f"{dataset.num_nodes}) after position {begin}"
            )
            raise DatasetError(message, MAKE_AGAIN)
    return counts


def _degree_ratio(
    workload: Workload, budget_bytes: int | None, progress: Progress
) -> Scores:
    dataset = workload.dataset
    ratio_bytes = 8 * dataset.num_nodes
    left = None if budget_bytes is None else budget_bytes - ratio_bytes
    ratio = out_degrees(workload, left, progress).astype(np.float64)
    indptr = dataset.memmap("indptr")
    with small_maps(indptr):
        for first in range(0, dataset.num_nodes, _CHUNK_NODES):
            part = ratio[first : first + _CHUNK_NODES]
            part /= np.maximum(1, np.diff(indptr[first : first + len(part) + 1]))
    return ratio


def _request_bytes(what: str, held: int, budget_bytes: int | None) -> int:
    """Return the bytes of a read such that `held` and the stream's buffers (ring of
    pieces and reader's own) fit."""
    pieces = 2 * _DEPTH + 8
    request = _MOST_REQUEST_BYTES
    if budget_bytes is not None:
        while request > _LEAST_REQUEST_BYTES and held + pieces * request > budget_bytes:
            request //= 2
        if held + pieces * request > budget_bytes:
            raise BudgetError(
                f"{what}: {format_bytes(held + pieces * request)} are needed "
                f"({format_bytes(held)} for the nodes, the rest to read with), the "
                f"budget is {format_bytes(budget_bytes)}",
                "raise memory",
            )
    return request
