"""The static neighbour cache of `ali+pg` and `ginex`: the in-neighbour lists of
important nodes, kept in memory.

Important nodes are often sampled and cheap to keep: those of highest out-degree /
in-degree (AliGraph's metric for direct neighbours; Ginex, Section 3.2). An address
table gives the start of a node's list in one flat array, or -1, so a look-up is one
read of memory. The cache is computed and written once, out of core, and kept as an
artefact; loading it is one sequential read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import RowReader
from systems.engine.io.row_reads import RowTable
from systems.engine.io.stream import stream
from systems.engine.rank.ranking import out_degrees
from systems.engine.store.artefacts import Prepared, identity, prepare
from workloads.dataset import Dataset
from workloads.workload import Workload

Address = npt.NDArray[np.int64]
Lists = npt.NDArray[Any]

_PIECE = 256 << 10
_PIECES = 8
_CHUNK = 1 << 18  # nodes processed at a time


@dataclass(frozen=True)
class NeighbourCachePlan:
    """Maximum size of a neighbour cache, computed without reading the graph.

    Attributes:
        nodes: most nodes that it can hold (each has at least one in-neighbour).
        list_bytes: most bytes of the lists.
        table_bytes: bytes of the address table, int64 [N]; 0 without a cache.
    """

    nodes: int
    list_bytes: int
    table_bytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of lists and address table."""
        return self.list_bytes + self.table_bytes


def plan_neighbour_cache(workload: Workload, nbytes: int) -> NeighbourCachePlan:
    """Split `nbytes` into address table and lists; empty if the table and one list
    entry do not fit."""
    item = workload.dataset.index_dtype.itemsize
    table = 8 * workload.dataset.num_nodes
    lists = min(max(0, nbytes - table) // item * item, workload.dataset.topology_bytes)
    if not lists:
        return NeighbourCachePlan(0, 0, 0)
    return NeighbourCachePlan(
        min(workload.dataset.num_nodes, lists // item), lists, table
    )


def building_bytes(workload: Workload) -> int:
    """Return the bytes that building takes beside `indptr`, before the cache itself is
    in memory."""
    dataset = workload.dataset
    return (
        5 * dataset.num_nodes
        + (_PIECES + 8) * _PIECE
        + 64 * min(_CHUNK, dataset.num_nodes)
    )


def build(
    workload: Workload,
    artefacts: Path,
    plan: NeighbourCachePlan,
    *,
    indptr: npt.NDArray[np.int64] | None = None,
    disk_budget: int | None = None,
) -> Prepared:
    """Build the cache of a workload's graph on disk, unless it exists; `facts` has
    `nodes` and `entries`.

    Args:
        artefacts: `Runtime.artefacts`, which keeps the finished cache.
        indptr: int64 [N + 1], if in memory already; None: loaded for building.
        disk_budget: most bytes of the cache on disk.

    Raises:
        DataIOError: `indices` cannot be read or the cache cannot be written.
        BudgetError: the cache is larger than the disk budget.
    """
    dataset = workload.dataset
    capacity = plan.list_bytes // dataset.index_dtype.itemsize

    def make(folder: Path) -> dict[str, int]:
        pointers = dataset.load("indptr") if indptr is None else indptr
        degrees = out_degrees(
            workload, 8 * dataset.num_nodes + (4 << 20)
        )  # counts, and 4 MiB of read buffers
        chosen = choose(pointers, degrees, capacity)
        return {
            "nodes": int(np.count_nonzero(chosen)),
            "entries": _write(dataset, folder, pointers, chosen),
        }

    key = identity(
        workload, list_bytes=plan.list_bytes, metric="out-degree / in-degree"
    )
    return prepare(artefacts, "neighbour-cache", key, make, disk_budget=disk_budget)


def load(dataset: Dataset, built: Prepared) -> tuple[Address, Lists]:
    """Load address table (int64 [N], -1: not cached) and lists (dtype of `indices`), as
    `cached=` of a sampler.

    Uses sequential direct reads into new memory, as at the start of each of Ginex's
    superbatch sample stages.

    Raises:
        DataIOError: a file cannot be read.
    """
    address = _read(built.path / "address", 8 * dataset.num_nodes).view(np.int64)
    nbytes = int(built.facts["entries"]) * dataset.index_dtype.itemsize
    return address, _read(built.path / "lists", nbytes).view(dataset.index_dtype)


def _write(
    dataset: Dataset,
    folder: Path,
    indptr: npt.NDArray[np.int64],
    chosen: npt.NDArray[np.bool_],
) -> int:
    """Write the address table and the chosen nodes' lists; return the entries of all
    lists.

    The lists are copied by sequential reads of the pieces of `indices` that contain
    any.
    """
    item = dataset.index_dtype.itemsize
    per_piece = _PIECE // item
    # Entries of chosen lists before each piece: the destination of its part; equal
    # neighbours mark an empty piece.
    before = np.zeros(-(-dataset.num_edges // per_piece) + 1, dtype=np.int64)
    starts = np.minimum(
        np.arange(len(before), dtype=np.int64) * per_piece, dataset.num_edges
    )
    first = (
        np.searchsorted(indptr, starts, side="right") - 1
    )  # node whose list the piece begins in
    first = np.minimum(first, dataset.num_nodes - 1)
    total = 0
    with (folder / "address").open("wb") as file:
        for begin, end in _chunks(dataset.num_nodes):
            sizes = np.where(chosen[begin:end], np.diff(indptr[begin : end + 1]), 0)
            offsets = total + np.cumsum(sizes) - sizes
            np.where(chosen[begin:end], offsets, -1).astype(np.int64).tofile(file)
            here = np.flatnonzero((first >= begin) & (first < end))
            nodes = first[here]
            before[here] = offsets[nodes - begin] + np.where(
                chosen[nodes], starts[here] - indptr[nodes], 0
            )
            total += int(sizes.sum())
    before[-1] = total
    wanted = np.flatnonzero(np.diff(before) > 0)
    path = dataset.file("indices")
    offset = dataset.data_offset("indices")
    buffer = aligned_empty(_PIECES * _PIECE)
    pieces = stream(
        path,
        offset,
        dataset.topology_bytes,
        buffer,
        request_bytes=_PIECE,
        depth=_PIECES // 2,
        only=wanted,
    )
    with (folder / "lists").open("wb") as file:
        for at, piece in pieces:
            number = (at - offset) // _PIECE
            low = number * per_piece
            high = min(low + per_piece, dataset.num_edges)
            span = slice(
                int(first[number]), int(np.searchsorted(indptr, high, side="left"))
            )
            bounds = np.clip(indptr[span.start : span.stop + 1], low, high)
            mask = np.repeat(chosen[span], np.diff(bounds))
            file.seek(int(before[number]) * item)
            piece.view(dataset.index_dtype)[mask].tofile(file)
        file.truncate(total * item)
    return total


def choose(
    indptr: npt.NDArray[np.int64], out_degree: npt.NDArray[Any], capacity: int
) -> npt.NDArray[np.bool_]:
    """Choose the nodes of highest out-degree / in-degree whose lists hold at most
    `capacity` entries: bool [N].

    Highest first, equal ones by id, up to the first that does not fit; nodes without
    in-neighbours are never chosen. Positive floats order like their bits, so two
    histograms find the last score that fits, without sorting.
    """
    num_nodes = len(out_degree)
    chosen = np.zeros(num_nodes, dtype=bool)

    def scores() -> Iterator[
        tuple[int, int, npt.NDArray[np.uint32], npt.NDArray[np.int64]]
    ]:
        for begin, end in _chunks(num_nodes):
            sizes = np.diff(indptr[begin : end + 1])
            ratio = np.divide(
                out_degree[begin:end], sizes, out=np.zeros(end - begin), where=sizes > 0
            )
            yield begin, end, ratio.astype(np.float32).view(np.uint32), sizes

    def last_fitting(shift: int, prefix: int | None, room: int) -> tuple[int, int]:
        """Return the highest digit at which the entries no longer fit (-1: all fit),
        and the capacity left above it."""
        entries = np.zeros(1 << 16, dtype=np.int64)
        for _, _, bits, sizes in scores():
            inside = slice(None) if prefix is None else bits >> 16 == prefix
            found = np.bincount(
                (bits[inside] >> shift) & 0xFFFF,
                weights=sizes[inside],
                minlength=1 << 16,
            )
            entries += found.astype(np.int64)
        above = np.cumsum(entries[::-1])[::-1]
        over = np.flatnonzero(above > room)
        if not len(over):
            return -1, room - int(above[0])
        digit = int(over[-1])
        return digit, room - (int(above[digit + 1]) if digit + 1 < len(above) else 0)

    high, room = last_fitting(16, None, capacity)
    if high < 0:
        for begin, end, _, sizes in scores():
            chosen[begin:end] = sizes > 0
        return chosen
    low, room = last_fitting(0, high, room)
    threshold = high << 16 | low
    for begin, end, bits, sizes in scores():
        chosen[begin:end] = (bits > threshold) & (sizes > 0)
        tied = np.flatnonzero((bits == threshold) & (sizes > 0))
        fitting = int(np.searchsorted(np.cumsum(sizes[tied]), room, side="right"))
        chosen[begin + tied[:fitting]] = True
        room = room - int(sizes[tied[:fitting]].sum()) if fitting == len(tied) else 0
    return chosen


def _chunks(count: int) -> Iterator[tuple[int, int]]:
    for begin in range(0, count, _CHUNK):
        yield begin, min(count, begin + _CHUNK)


def _read(path: Path, nbytes: int) -> npt.NDArray[np.uint8]:
    memory = aligned_empty(nbytes)
    if nbytes:
        own: dict[str, Any] = {
            "max_request_bytes": 1 << 20,
            "buffer_bytes": 8 << 20,
            "register_buffers": False,
        }
        with RowReader(
            path, **RowTable(path, 0, nbytes, 1).place, depth=8, threads=8, **own
        ) as reader:
            reader.read_range(0, nbytes, memory)
    return memory
