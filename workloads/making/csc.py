"""Neighbour lists (CSC by destination) of a stream of edges, built in bounded memory
into a dataset's files; with the edges' weights, if they have any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
import numpy.typing as npt

from workloads.arraytypes import (
    Array,
    ArrayStream,
    DType,
    Float32Array,
    Int64Array,
    IntegerArray,
)
from workloads.importers.source import EDGES_A_CHUNK, EdgeStream, check_ids
from workloads.making.progress import Progress, no_progress
from workloads.making.writer import DatasetWriter
from workloads.npyfile import write_all
from workloads.sampling.distinct import distinct

_KEY = np.dtype(np.int64)
_WEIGHTED = np.dtype([("key", _KEY), ("weight", np.float32)])
_MAX_BUCKETS = 500  # files open at once
_LEAST_RANGE = 1 << 16  # edges; smaller ranges only cost time


@dataclass(frozen=True)
class CscResult:
    """Counts of the edges of `build_csc`: written edges, repeated edges left out,
    written self-loops, and weights that are no finite numbers."""

    num_edges: int
    duplicates: int
    self_loops: int
    infinite: int


def build_csc(
    edges: EdgeStream,
    num_nodes: int,
    writer: DatasetWriter,
    *,
    index_dtype: npt.DTypeLike = "int32",
    max_memory: int = 1 << 30,
    symmetric: bool = False,
    keep_duplicates: bool = False,
    weights: ArrayStream | None = None,
    other_bytes: int = 0,
    name: str = "the graph",
    progress: Progress = no_progress,
) -> CscResult:
    """Write `indptr` and `indices`: for each node its in-neighbours, ascending; with
    weights `edge_weight` too.

    Two passes over the edges: the first counts in-degrees and cuts the destinations
    into ranges whose edges fit `max_memory`; the second appends each edge to the file
    of its range. Then each range is sorted by itself.

    Args:
        edges: yields all edges in chunks; called twice, with equal results.
        num_nodes: N; at most `MAX_NODES`, since a pair of ids in a range must fit 63
            bits.
        writer: writer of the dataset; its folder holds the temporary files (8 bytes an
            edge, 12 with weights).
        index_dtype: int32 or int64.
        max_memory: most bytes for edges in memory. Degrees and `indptr` (16 bytes a
            node) come on top.
        symmetric: whether to add the reverse of each edge, with its weight, except of
            self-loops, which are their own. Of an edge that is given in both directions
            each direction is then there twice, a repeated edge.
        keep_duplicates: whether to keep repeated edges.
        weights: yields the edges' weights, in chunks of the same lengths as `edges`;
            repeated edges are merged, with the sum of their weights.
        other_bytes: bytes of the dataset's other parts, so that a disk too small is
            rejected before any write.
        name: of the edges, for messages.
        progress: called with the stage and its done fraction.

    Raises:
        InputError: an id is outside [0, N).
        DatasetError: the disk is too small.
    """
    writer.require_space(8 * num_nodes + other_bytes)
    degrees = np.zeros(num_nodes, dtype=np.int64)
    total = 0
    for source, target, _ in _directed(edges, symmetric):
        _check_edges(source, target, num_nodes, name)
        np.add.at(degrees, target, 1)
        total += target.shape[0]
    progress("counting edges", 1.0)
    record: DType = _KEY if weights is None else _WEIGHTED
    lasting = np.dtype(index_dtype).itemsize + (0 if weights is None else 4)
    writer.require_space(
        total * (record.itemsize + lasting) + 8 * num_nodes + other_bytes
    )
    # Sorting takes as much again, with weights also the order and the sums.
    bounds = _ranges(
        degrees, max(_LEAST_RANGE, max_memory // (16 if weights is None else 48))
    )
    del degrees

    duplicates = self_loops = written = infinite = 0
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    path, offset = writer.begin("indices", index_dtype, total)
    files = _spill(
        _directed(edges, symmetric, weights),
        bounds,
        num_nodes,
        writer.folder,
        total,
        progress,
    )
    with ExitStack() as stack:
        out = stack.enter_context(path.open("r+b", buffering=0))
        out.seek(offset)
        if weights is not None:
            path, offset = writer.begin("edge_weight", np.float32, total)
            out_weights = stack.enter_context(path.open("r+b", buffering=0))
            out_weights.seek(offset)
        for index, file in enumerate(files):
            first = int(bounds[index])
            keys = np.fromfile(file, dtype=record)
            file.unlink()
            if weights is None:
                if not (keys[:-1] <= keys[1:]).all():  # lists in order need no sorting
                    keys.sort()
            else:
                repeated = keys.shape[0]
                keys, sums = _summed(keys)
                duplicates += repeated - keys.shape[0]
                infinite += int(np.count_nonzero(~np.isfinite(sums)))
                write_all(out_weights, sums)
            before = -1
            for start in range(0, keys.shape[0], EDGES_A_CHUNK):
                part = keys[start : start + EDGES_A_CHUNK]
                tail = int(part[-1])
                if not keep_duplicates:
                    fresh = np.empty(part.shape[0], dtype=bool)
                    fresh[0] = part[0] != before
                    np.not_equal(part[1:], part[:-1], out=fresh[1:])
                    duplicates += int(part.shape[0] - fresh.sum())
                    part = part[fresh]
                before = tail
                if not len(part):
                    continue
                # division by a scalar, faster in numpy than `divmod`
                target = part // num_nodes + first
                source = part - (target - first) * num_nodes
                self_loops += int(np.count_nonzero(target == source))
                low = int(target[0])
                into = np.bincount(target - low)
                indptr[low + 1 : low + 1 + len(into)] += into
                write_all(out, source.astype(index_dtype))
                written += part.shape[0]
            progress("sorting neighbour lists", (index + 1) / len(files))
    np.cumsum(indptr, out=indptr)
    writer.finish("indices", count=written)
    if weights is not None:
        writer.finish("edge_weight", count=written)
    writer.write("indptr", indptr)
    return CscResult(written, duplicates, self_loops, infinite)


def collect_csc(
    edges: EdgeStream, num_nodes: int, symmetric: bool = False
) -> tuple[Int64Array, IntegerArray]:
    """Build the neighbour lists of a small graph in memory: `indptr` int64 [N + 1],
    `indices` [E] without duplicates; `symmetric` takes each edge in both directions.
    Raises InputError where an id is outside [0, N)."""
    parts = []
    for source, target, _ in _directed(edges, symmetric):
        _check_edges(source, target, num_nodes, "the graph")
        parts.append(_keys(target.astype(np.int64), num_nodes, source))
    if not parts:
        parts.append(np.empty(0, dtype=np.int64))
    keys = distinct(np.concatenate(parts))
    target, source = np.divmod(keys, num_nodes)
    degrees = np.bincount(target + 1, minlength=num_nodes + 1)
    indptr = np.cumsum(degrees, dtype=np.int64)
    return indptr, source.astype(
        np.int32 if num_nodes <= np.iinfo(np.int32).max else np.int64
    )


def _directed(
    edges: EdgeStream, symmetric: bool, weights: ArrayStream | None = None
) -> Iterator[tuple[IntegerArray, IntegerArray, Array | None]]:
    """Yield the edges as sources, destinations and weights; if `symmetric`, each chunk
    is followed by its edges in reverse, without self-loops."""
    kept: Iterator[Array | None] = repeat(None) if weights is None else weights()
    for (source, target), weight in zip(edges(), kept, strict=weights is not None):
        yield source, target, weight
        if not symmetric:
            continue
        reversible = source != target
        if reversible.all():
            yield target, source, weight
            continue
        reverse_weight = None if weight is None else weight[reversible]
        yield target[reversible], source[reversible], reverse_weight


def _keys(target: Int64Array, num_nodes: int, source: IntegerArray) -> Int64Array:
    """Return each edge as a number; in int64, since numpy adds int64 and uint64 as
    floats."""
    keys: Int64Array = np.add(
        target * num_nodes, source, dtype=np.int64, casting="unsafe"
    )
    return keys


def _summed(records: Array) -> tuple[Int64Array, Float32Array]:
    """Return the ascending distinct keys of weighted edges, and the sum of the weights
    of each."""
    order = np.argsort(records["key"], kind="stable")
    keys = records["key"][order]
    if not len(keys):
        return keys, np.empty(0, dtype=np.float32)
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    with np.errstate(over="ignore", invalid="ignore"):  # counted
        return keys[first], np.add.reduceat(records["weight"][order], first)


def _check_edges(
    source: IntegerArray, target: IntegerArray, num_nodes: int, name: str
) -> None:
    for ids in (source, target):
        check_ids(ids, num_nodes, f"{name}: an edge")


def _ranges(degrees: Int64Array, edges_a_range: int) -> Int64Array:
    """Cut the destinations into ranges of about `edges_a_range` edges at most: borders,
    int64 [ranges + 1]."""
    ends = np.cumsum(degrees)
    total = int(ends[-1])
    wanted = min(_MAX_BUCKETS, max(1, -(-total // edges_a_range)))
    cuts = (
        np.searchsorted(ends, np.arange(1, wanted) * (total / wanted), side="left") + 1
    )
    inner = cuts[(cuts > 0) & (cuts < degrees.shape[0])]
    borders = np.concatenate([[0], inner, [degrees.shape[0]]])
    return np.unique(borders).astype(np.int64)


def _spill(
    edges: Iterator[tuple[IntegerArray, IntegerArray, Array | None]],
    bounds: Int64Array,
    num_nodes: int,
    folder: Path,
    total: int,
    progress: Progress,
) -> list[Path]:
    """Append each edge, as a number (destination within its range, source) and its
    weight, to its range's file."""
    paths = [folder / f"range-{index}.tmp" for index in range(bounds.shape[0] - 1)]
    done = 0
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb", buffering=0)) for path in paths]
        for source, target, weight in edges:
            wide = target.astype(np.int64)
            owner = None
            if len(files) > 1:
                owner = np.searchsorted(bounds, wide, side="right") - 1
            keys: Array = _keys(
                wide if owner is None else wide - bounds[owner], num_nodes, source
            )
            if weight is not None:
                pairs = np.empty(len(keys), dtype=_WEIGHTED)
                # counted: values beyond float32 become infinite
                with np.errstate(over="ignore"):
                    pairs["key"] = keys
                    pairs["weight"] = weight
                keys = pairs
            if owner is None:
                write_all(files[0], keys)
            else:
                # 16 bits: numpy's radix sort
                keys = keys[np.argsort(owner.astype(np.uint16), kind="stable")]
                borders = np.concatenate(
                    [[0], np.cumsum(np.bincount(owner, minlength=len(files)))]
                )
                for index, file in enumerate(files):
                    if borders[index] < borders[index + 1]:
                        write_all(file, keys[borders[index] : borders[index + 1]])
            done += target.shape[0]
            progress("grouping edges", done / max(1, total))
    return paths
