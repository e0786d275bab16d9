"""R-MAT (Graph500) graphs: out of core for `--kind rmat`, in memory as the default base
of the expansions."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from workloads import _native
from workloads.arraytypes import Int64Array
from workloads.errors import InputError, require
from workloads.kronecker.spec import (
    DEFAULT_MEAN_DEGREE,
    BaseGraph,
    GenerateSpec,
    TopologyPlan,
)
from workloads.making.direct_stream import STREAM_BYTES
from workloads.making.progress import Progress
from workloads.making.writer import PartWriter, TopologySink


def plan_rmat(spec: GenerateSpec, progress: Progress) -> TopologyPlan:
    """Plan a Graph500 R-MAT graph (a, b, c, d = .57, .19, .19, .05; ids permuted):
    exact N and E.

    Duplicate edges and self-loops are kept, as in Graph500. Edges are drawn again for
    each range of columns that fits `max_memory`, so time grows with E^2 / max_memory
    once the graph is larger than that. Raises InputError where `nodes` is missing or
    above 2^32, or options of the expansions are given, BudgetError where `max_memory`
    does not hold `indptr` and the longest list.
    """
    valid = spec.nodes
    require(
        valid, "--kind rmat needs --nodes", "give for example --nodes 2M --edges 40M"
    )
    if spec.base is not None or spec.expand:
        raise InputError(
            "--kind rmat takes no --base and no --expand",
            "use --kind kronecker or fractal",
        )
    fault = f"--kind rmat takes at most 2^32 nodes, got {spec.nodes}"
    require(spec.nodes <= 1 << 32, fault, "use --kind kronecker")
    nodes = spec.nodes
    edges = spec.edges or DEFAULT_MEAN_DEGREE * nodes
    dtype = spec.dtype_for(nodes)
    fixed = 8 * (nodes + 1) + STREAM_BYTES
    spec.require("the degrees of all nodes and the write buffers", fixed)

    graph = _native.Rmat(nodes, edges, spec.seed, True, spec.communities)

    def labels(first: int, count: int) -> Int64Array:
        out = np.empty(count, dtype=np.int64)
        graph.labels(first, out)
        return out

    def write(sink: TopologySink, progress: Progress) -> None:
        progress("degrees", 0.0)
        indptr = np.zeros(nodes + 1, dtype=np.int64)
        graph.count(indptr, spec.num_threads)
        ranges = _column_ranges(indptr, spec, fixed, dtype.itemsize)
        with PartWriter(sink, "indptr", np.int64, nodes + 1) as writer:
            writer.write(indptr)
        with PartWriter(sink, "indices", dtype, edges) as writer:
            for first, last in ranges:
                progress("edges", float(indptr[first]) / max(1, edges))
                lists = np.empty(int(indptr[last] - indptr[first]), dtype=dtype)
                used = np.zeros(last - first, dtype=np.uint32)
                graph.fill(indptr, first, last, lists, used, spec.num_threads)
                del used
                writer.write(lists)
                del lists
        progress("edges", 1.0)

    details = {
        "a": 0.57,
        "b": 0.19,
        "c": 0.19,
        "d": 0.05,
        "communities": spec.communities,
    }
    return TopologyPlan(
        nodes, edges, dtype, None, write, details, labels if spec.communities else None
    )


def _column_ranges(
    indptr: Int64Array, spec: GenerateSpec, fixed: int, itemsize: int
) -> list[tuple[int, int]]:
    """Cut the columns into ranges whose lists, and four bytes a column for fill marks,
    fit the rest of the bound."""
    nodes = indptr.shape[0] - 1
    room = spec.max_memory - fixed
    first = 0

    def size(last: int) -> int:
        return int(indptr[last] - indptr[first]) * itemsize + 4 * (last - first)

    ranges = []
    while first < nodes:
        # the last column whose range still fits
        last = bisect_right(range(nodes + 1), room, lo=first, key=size) - 1
        if last <= first:
            spec.require("its longest list", fixed + size(first + 1))
        ranges.append((first, last))
        first = last
    return ranges


def rmat_base(
    nodes: int,
    edges: int,
    seed: int,
    threads: int,
    *,
    permute: bool = True,
    communities: int = 0,
) -> BaseGraph:
    """Draw an R-MAT graph of exactly `edges` edges in memory, without duplicates and
    self-loops; raises InputError where a graph of this size has fewer distinct edges.

    Args:
        nodes, edges: N and E.
        seed, threads: seed of the draws, and number of threads.
        permute: whether to relabel the nodes at random; else low ids have high degrees.
        communities: number of classes to plant, which become the labels.
    """
    draws = int(edges * 1.15) + 64
    for _ in range(8):
        graph = _native.Rmat(nodes, draws, seed, permute, communities)
        indptr = np.zeros(nodes + 1, dtype=np.int64)
        graph.count(indptr, threads)
        indices = np.empty(draws, dtype=np.int32)
        graph.fill(indptr, 0, nodes, indices, np.zeros(nodes, dtype=np.uint32), threads)
        target = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(indptr))
        keep = indices != target
        fresh = indices[1:] != indices[:-1]
        fresh |= target[1:] != target[:-1]
        keep[1:] &= fresh
        found = int(np.count_nonzero(keep))
        if found >= edges:
            surplus = np.random.Generator(np.random.Philox(key=seed)).choice(
                found, found - edges, replace=False
            )
            keep[np.flatnonzero(keep)[surplus]] = False
            labels = np.empty(nodes, dtype=np.int64) if communities else None
            if labels is not None:
                graph.labels(0, labels)
            np.cumsum(np.bincount(target[keep], minlength=nodes), out=indptr[1:])
            return BaseGraph(
                indptr, indices[keep], labels, num_classes=communities, name="rmat"
            )
        draws = int(draws * 1.6)
    fault = f"{nodes} nodes have no room for {edges} different R-MAT edges"
    raise InputError(fault, "ask for fewer edges or more nodes")


def rmat_base_bytes(nodes: int, edges: int) -> int:
    """Return the peak bytes of drawing a base graph."""
    return nodes * 24 + int(edges * 1.15) * 14
