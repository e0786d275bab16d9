"""Randomised fractal expansion of a base graph, the method behind Ginex's datasets."""

from __future__ import annotations

import numpy as np

from workloads import _native
from workloads.arraytypes import Array, Float64Array
from workloads.errors import require
from workloads.kronecker.kronecker import sorted_base
from workloads.kronecker.rmat import rmat_base, rmat_base_bytes
from workloads.kronecker.spec import BaseGraph, GenerateSpec, TopologyPlan
from workloads.making.direct_stream import STREAM_BYTES
from workloads.making.progress import Progress
from workloads.making.writer import PartWriter, TopologySink

LOWEST_KEEP = 0.01
HIGHEST_KEEP = 0.95
_DEFAULT_EXPAND = 4
_BATCH_BYTES = 32 << 20


def plan_fractal(spec: GenerateSpec, progress: Progress) -> TopologyPlan:
    """Plan the expansion: n x n blocks, each a thinned base with fresh row and column
    permutations.

    N is n times the base's nodes; E follows from base and n and is counted before
    anything is written. Without a base an R-MAT graph is drawn, sized so that E comes
    near `edges`. Raises InputError where the sizes cannot be reached or `edges` is
    given with a base, BudgetError where `max_memory` does not hold the base, its SVD or
    the buffers.
    """
    if spec.base is None:
        base, copies, keep = _drawn_base(spec, progress)
    else:
        fix = "the edges follow from base and size"
        valid = not spec.edges
        require(valid, "--edges does not go with --kind fractal and --base", fix)
        base = sorted_base(spec.base, spec)
        copies = spec.copies_of(base)
        _check_copies(copies, base.num_nodes)
        progress("singular values", 0.0)
        keep = keep_matrix(base, copies, spec)
    nodes = copies * base.num_nodes
    dtype = spec.dtype_for(nodes)
    base_bytes = base.num_edges * 4 + base.num_nodes * 8
    held = base_bytes + copies * copies * 140 + STREAM_BYTES
    # A batch of columns is held three times while its pieces are joined.
    batch_bytes = min(_BATCH_BYTES, max(0, spec.max_memory - held) // 4)
    spec.require("the base graph, the permutations and the buffers", held + (4 << 20))
    by_column = np.ascontiguousarray(keep.T).reshape(-1)
    stream = _native.FractalStream(base.indptr, base.indices, by_column, spec.seed)
    progress("counting", 0.0)
    edges = int(stream.count_edges(spec.num_threads))
    mean_degree = max(1.0, edges / nodes)
    columns = int(batch_bytes / mean_degree / dtype.itemsize)
    batch = max(512, min(nodes, columns))

    def write(sink: TopologySink, progress: Progress) -> None:
        make = stream.make32 if dtype == np.int32 else stream.make64
        room = np.empty(0, dtype=dtype)
        end = 0
        with (
            PartWriter(sink, "indptr", np.int64, nodes + 1) as indptr,
            PartWriter(sink, "indices", dtype, edges) as indices,
        ):
            indptr.write(np.zeros(1, dtype=np.int64))
            for first in range(0, nodes, batch):
                last = min(nodes, first + batch)
                degrees = np.empty(last - first, dtype=np.int64)
                made = int(make(first, degrees, spec.num_threads))
                if made > room.shape[0]:
                    room = np.empty(made + made // 16, dtype=dtype)
                lists = room[:made]
                stream.take(lists, spec.num_threads)
                np.cumsum(degrees, out=degrees)
                degrees += end
                end = int(degrees[-1])
                indptr.write(degrees)
                indices.write(lists)
                progress("edges", last / nodes)

    all_edges = copies * copies * base.num_edges
    details = {
        "base_nodes": base.num_nodes,
        "base_edges": base.num_edges,
        "copies": copies,
        "kept_share": round(edges / all_edges, 6),
    }
    return TopologyPlan(nodes, edges, dtype, base, write, details)


def keep_matrix(
    base: BaseGraph, copies: int, spec: GenerateSpec | None = None
) -> Float64Array:
    """Compute the matrix of keep-probabilities A for n = `copies`, clipped to [0.01,
    0.95], in `spec.max_memory`.

    B is the base graph with sources as rows and targets as columns. Its truncated SVD B
    = U S V' has as many singular values as copies. U and V are shrunk to that many rows
    by averaging and made orthogonal again (the nearest orthogonal matrix); A = |U S V'|
    is scaled to a maximum of 1. Belletti et al. 2019, section 4. Entry (r, c) of the
    result [n, n] is the probability of an edge from block r to block c, rounded to six
    digits so that it does not depend on the order of a library's sums.
    """
    import scipy.sparse as sp
    from scipy.sparse.linalg import svds

    _check_copies(copies, base.num_nodes)
    if spec is not None:
        vectors = 2 * max(2 * copies + 1, 20) + 2 * copies
        needed = base.num_edges * 28 + base.num_nodes * (24 + 8 * vectors)
        spec.require("the SVD of the base graph", needed)
    weights = np.ones(base.num_edges, dtype=np.float64)
    shape = (base.num_nodes, base.num_nodes)
    matrix = sp.csc_matrix((weights, base.indices, base.indptr), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    if copies < base.num_nodes - 1:
        generator = np.random.Generator(np.random.Philox(key=0))
        start = generator.standard_normal(base.num_nodes)
        u, s, vt = svds(matrix, k=copies, v0=start, tol=1e-5)
    else:
        u, s, vt = np.linalg.svd(matrix.toarray())
    order = np.argsort(-s)[:copies]
    left = _shrunk(u[:, order])
    right = _shrunk(vt[order].T)
    matrix_a = np.abs(left @ np.diag(s[order]) @ right.T)
    scaled = matrix_a / matrix_a.max()
    clipped = np.clip(scaled, LOWEST_KEEP, HIGHEST_KEEP)
    return np.asarray(np.round(clipped, 6), dtype=np.float64)


def _shrunk(vectors: Array) -> Float64Array:
    """Average [N, n] singular vectors to [n, n] and make them orthogonal."""
    rows, copies = vectors.shape
    starts = np.arange(copies) * rows // copies
    sizes = np.diff(np.append(starts, rows))
    mean = np.add.reduceat(vectors, starts, axis=0) / sizes[:, None]
    u, _, vt = np.linalg.svd(mean)
    return np.asarray(u @ vt, dtype=np.float64)


def _check_copies(copies: int, base_nodes: int) -> None:
    most = min(base_nodes, 4096)
    fault = f"--kind fractal makes 2 to {most} copies of this base, got {copies}"
    require(2 <= copies <= most, fault, "change --expand or --nodes")


def _drawn_base(
    spec: GenerateSpec, progress: Progress
) -> tuple[BaseGraph, int, Float64Array]:
    nodes, edges = spec.drawn_size()
    copies = spec.expand or min(_DEFAULT_EXPAND, max(2, nodes // 2))
    base_nodes = -(-nodes // copies)
    _check_copies(copies, base_nodes)
    progress("base graph", 0.0)
    # The kept share depends on the drawn base: a small base estimates it, and a full
    # base that misses is redrawn once.
    shrink = max(1, min(16, base_nodes // 4096))
    guess = max(1, round(2 * edges / (copies * copies * shrink)))
    small = rmat_base(
        max(copies + 1, base_nodes // shrink),
        guess,
        spec.seed,
        spec.num_threads,
        permute=False,
    )
    base_edges = max(
        copies, round(edges / float(keep_matrix(small, copies, spec).sum()))
    )
    for _ in range(2):
        spec.require("drawing a base graph", rmat_base_bytes(base_nodes, base_edges))
        # Ids in order of the R-MAT quadrants: shrunk singular vectors of shuffled ids
        # would be noise.
        base = rmat_base(
            base_nodes, base_edges, spec.seed, spec.num_threads, permute=False
        )
        keep = keep_matrix(base, copies, spec)
        expected = float(keep.sum()) * base_edges
        if abs(expected - edges) <= 0.05 * edges:
            break
        base_edges = max(copies, round(edges / float(keep.sum())))
    return base, copies, keep
