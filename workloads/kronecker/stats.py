"""Measures of a graph: degree skew, clustering and label homophily, to compare a base
with its expansion."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass

import numpy as np

from workloads import _native
from workloads.arraytypes import Array, Int64Array
from workloads.direct_files import read_ahead, small_maps

_CHUNK = 1 << 20
_CLUSTERING_NODES = 2000
_CLUSTERING_PAIRS = 50
_HOMOPHILY_NODES = 200_000


@dataclass(frozen=True)
class GraphStats:
    """Measures of a graph; homophily is None without labels."""

    num_nodes: int
    num_edges: int
    mean_degree: float
    max_degree: int  # largest in-degree
    # share of all edges that lead into the 1 % of nodes of highest in-degree
    top1_degree_share: float
    gini: float  # Gini coefficient of the in-degrees
    # share of all edges from the 1 % of nodes of highest out-degree (a cache's hits,
    # about)
    top1_source_share: float
    # mean local clustering of sampled nodes, with links of either direction
    clustering: float
    homophily: float | None  # share of sampled edges whose ends have the same label
    # the same share for labels spread over the edges' ends at random
    homophily_by_chance: float | None


def graph_stats(
    indptr: Int64Array,
    indices: Array,
    labels: Int64Array | None = None,
    threads: int = 0,
) -> GraphStats:
    """Measure a graph by its in-neighbours; the arrays may be memory-mapped, all of
    `indices` is read, and 8 N bytes are taken. `labels` is int64 [N], negative for
    unlabelled nodes; `threads` 0: one a processor."""
    threads = threads or len(os.sched_getaffinity(0))
    nodes = indptr.shape[0] - 1
    edges = indices.shape[0]
    top1, gini, most = degree_skew(_degree_histogram(indptr))
    out_degrees = np.zeros(nodes, dtype=np.int64)
    for start in range(0, edges, 16 * _CHUNK):
        read_ahead(indices[start + 16 * _CHUNK : start + 32 * _CHUNK])
        _native.count_sources(
            indices[start : start + 16 * _CHUNK], out_degrees, threads
        )
    source_share = degree_skew(np.bincount(out_degrees))[0]
    rng = np.random.Generator(np.random.Philox(key=0))
    sample = np.sort(
        rng.choice(nodes, min(nodes, _CLUSTERING_NODES), replace=False)
    ).astype(np.int64)
    # Where the lists of all sampled nodes ascend, all lists are assumed to.
    lists = (indices[indptr[v] : indptr[v + 1]] for v in sample.tolist())
    ascend = all(bool((np.diff(ids) >= 0).all()) for ids in lists)
    clustering = _native.clustering(
        indptr, indices, sample, _CLUSTERING_PAIRS, ascend, 0, threads
    )
    agreeing = None
    chance = None
    if labels is not None:
        sample = np.sort(
            rng.choice(nodes, min(nodes, _HOMOPHILY_NODES), replace=False)
        ).astype(np.int64)
        same, counted = _native.homophily(
            indptr, indices, np.ascontiguousarray(labels), sample, threads
        )
        agreeing = same / counted if counted else None
        chance = _agreement_by_chance(indptr, indices, labels, sample)
    return GraphStats(
        nodes,
        edges,
        edges / max(1, nodes),
        most,
        top1,
        gini,
        source_share,
        float(clustering),
        agreeing,
        chance,
    )


def measure(
    indptr: Int64Array, indices: Array, labels: Int64Array | None
) -> dict[str, float | int | None]:
    """Measure a graph for its manifest, as `graph_stats`."""
    with small_maps(indptr, indices, labels):
        return asdict(graph_stats(indptr, indices, labels))


def degree_skew(histogram: Array) -> tuple[float, float, int]:
    """Compute the top 1 % of nodes' edge share, the Gini coefficient and the largest
    degree from a histogram."""
    degrees = np.flatnonzero(histogram)
    counts = histogram[degrees].astype(np.float64)
    nodes = counts.sum()
    total = float((counts * degrees).sum())
    if total == 0:
        return 0.0, 0.0, 0
    wanted = max(1.0, np.ceil(0.01 * nodes))
    most_first = counts[::-1]
    taken = np.clip(wanted - (np.cumsum(most_first) - most_first), 0, most_first)
    share = float((taken * degrees[::-1]).sum())
    # Twice the area under the Lorenz curve, by trapezia over groups of equal degree.
    mass = np.cumsum(counts * degrees) / total
    mass_before = np.concatenate([[0.0], mass[:-1]])
    heights = mass + mass_before
    area = float((counts / nodes * heights).sum())
    return share / total, float(1 - area), int(degrees[-1])


def _degree_histogram(indptr: Int64Array) -> Int64Array:
    histogram = np.zeros(1, dtype=np.int64)
    for start in range(0, indptr.shape[0] - 1, _CHUNK):
        degrees = np.diff(indptr[start : start + _CHUNK + 1])
        counted = np.bincount(degrees, minlength=histogram.shape[0])
        counted[: histogram.shape[0]] += histogram
        histogram = counted
    return histogram


def _agreement_by_chance(
    indptr: Int64Array, indices: Array, labels: Int64Array, sample: Int64Array
) -> float | None:
    """Sum over classes the product of their shares among targets and sources of the
    sampled nodes' edges."""
    some = sample[:: max(1, sample.shape[0] // 5000)]
    starts = indptr[some]
    ends = indptr[some + 1]
    borders = zip(starts.tolist(), ends.tolist(), strict=True)
    sources = np.concatenate([indices[start:end] for start, end in borders])
    at_source = labels[sources]
    at_target = np.repeat(labels[some], ends - starts)
    kept = (at_source >= 0) & (at_target >= 0)
    if not kept.any():
        return None
    classes = int(max(at_source.max(), at_target.max())) + 1
    shares = [
        np.bincount(side[kept], minlength=classes) / kept.sum()
        for side in (at_source, at_target)
    ]
    return float(shares[0] @ shares[1])
