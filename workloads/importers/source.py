"""Result of an importer: a graph as a stream of edges, with its features, labels and splits if it has any."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.direct_files import read_ahead
from workloads.errors import DatasetError, InputError, require

EdgeChunk = tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]
"""Source ids and destination ids of some edges, of equal length."""
IntArray = npt.NDArray[np.int64]

EDGES_A_CHUNK = 1 << 20
FEATURE_BYTES_A_CHUNK = 16 << 20


@dataclass(frozen=True)
class FeatureRows:
    """A feature table [num_rows, dim] as a stream of row ranges."""

    num_rows: int
    dim: int
    dtype: np.dtype[Any]  # element type to write, float32 or float16
    chunks: Callable[[], Iterator[npt.NDArray[Any]]]  # the rows in order, [rows, dim]; may be called more than once


@dataclass(frozen=True)
class GraphSource:
    """A graph that can be read in bounded memory."""

    num_nodes: int  # N; edge ids are in [0, N)
    edges: Callable[[], Iterator[EdgeChunk]]  # yields all edges in chunks; called more than once
    features: FeatureRows | None = None  # None: to be generated
    labels: IntArray | None = None  # int64 [N], -1 for unlabelled; None: to be generated
    num_classes: int = 0  # 0 without labels
    splits: dict[str, IntArray] | None = None  # int64 node ids of `train`, `valid` and `test`; None: to be drawn
    symmetric: bool = False  # whether every edge stands for both directions in this format
    notes: list[str] = field(default_factory=list)  # for the manifest
    keep_duplicates: bool = False  # whether repeated edges are edges of their own in this format, without weights
    # Weights of the edges, float, in chunks as long as those of `edges`; None: there are none.
    edge_weights: Callable[[], Iterator[npt.NDArray[Any]]] | None = None


@dataclass(frozen=True)
class ImportOptions:
    """Options of an importer."""

    scratch: Path  # folder for temporary files, removed by the caller
    max_memory: int = 1 << 30  # most bytes for edge buffers; node arrays (up to 16 bytes a node) come on top
    classes: int = 0  # number of classes, which chooses among label files (IGB: 19 or 2983; 0: the smaller)
    labelled: str = "author"  # whose count of labelled nodes to take, where `author` and `loader` differ (IGB)
    progress: Callable[[str, float], None] = lambda stage, fraction: None


def folders(path: Path) -> list[Path]:
    """Return the folder `path` and those in it; none if it is a file."""
    return [path, *sorted(child for child in path.iterdir() if child.is_dir())] if path.is_dir() else []


@contextmanager
def reading(
    path: Path | str,
    fault: str,
    damage: tuple[type[Exception], ...] = (EOFError, zlib.error, OSError, zipfile.BadZipFile),
    missing: str = "check that the download was unpacked whole",
) -> Iterator[None]:
    """Turn errors of reading a source file within the block into DatasetErrors: `path` (with a prefix), `fault`
    and the error make the message for errors of `damage`, and `missing` is the fix where the file is missing."""
    try:
        yield
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing", missing) from None
    except damage as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DatasetError(f"{path} {fault} ({reason})", "download it again") from None


def load_array(path: Path, what: str) -> npt.NDArray[Any]:
    """Map a `.npy` file read-only, never unpickling; raises DatasetError where it is missing or holds no plain
    numbers."""
    with reading(f"{what}: {path}", "cannot be read as .npy", (ValueError, OSError, EOFError)):
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def feature_source(
    shape: tuple[int, ...], dtype: npt.DTypeLike, read: Callable[[int], Iterable[npt.NDArray[Any]]]
) -> FeatureRows:
    """Stream feature rows (float16 stays, other numbers become float32) of a source of that shape and dtype;
    `read(rows)` yields the source's rows in order, at most `rows` at a time."""
    kept = np.dtype(np.float16 if dtype == np.float16 else np.float32)
    rows = max(1, FEATURE_BYTES_A_CHUNK // (max(1, shape[1]) * max(np.dtype(dtype).itemsize, kept.itemsize)))
    return FeatureRows(
        shape[0], shape[1], kept, lambda: (np.ascontiguousarray(part, dtype=kept) for part in read(rows))
    )


def check_table(table: Any, what: str) -> None:
    """Check shape and dtype of an array's header; raises InputError unless it holds rows [N, D] of numbers."""
    if len(table.shape) != 2 or table.shape[1] == 0 or table.dtype.kind not in "fiu":
        raise InputError(f"{what} has shape {table.shape} and dtype {table.dtype}, not rows of numbers")


def table_source(table: npt.NDArray[Any], what: str) -> FeatureRows:
    """Stream the feature rows of an array or memory map [N, D]; raises InputError for another shape or no numbers."""
    check_table(table, what)

    def read(rows: int) -> Iterator[npt.NDArray[Any]]:
        for at in range(0, table.shape[0], rows):
            read_ahead(table[at + rows : at + 2 * rows])
            yield table[at : at + rows]

    return feature_source(table.shape, table.dtype, read)


def check_edges(array: Any, what: str, *, columns: bool = False) -> None:
    """Check shape and dtype of an array's header; raises InputError unless it holds integers [2, E] ([E, 2] for
    `columns`)."""
    if len(array.shape) != 2 or array.shape[1 if columns else 0] != 2 or array.dtype.kind not in "iu":
        expected = "[E, 2]" if columns else "[2, E]"
        raise InputError(f"{what} has shape {array.shape} and dtype {array.dtype}, not {expected} of integers")


def edge_array_source(array: npt.NDArray[Any], what: str, *, columns: bool) -> Callable[[], Iterator[EdgeChunk]]:
    """Stream the edges, sources and destinations, of an array [2, E] (`columns=False`) or [E, 2] (`columns=True`);
    raises InputError for another shape or no integers."""
    check_edges(array, what, columns=columns)
    pairs = array.T if columns else array

    def chunks() -> Iterator[EdgeChunk]:
        for start in range(0, pairs.shape[1], EDGES_A_CHUNK):
            part = np.asarray(pairs[:, start : start + EDGES_A_CHUNK])
            yield part[0], part[1]

    return chunks


def csc_edges(indptr: npt.NDArray[Any], indices: npt.NDArray[Any]) -> Callable[[], Iterator[EdgeChunk]]:
    """Stream the edges of neighbour lists: the in-neighbours of node `v` are `indices[indptr[v]:indptr[v + 1]]`."""

    def chunks() -> Iterator[EdgeChunk]:
        for start in range(0, len(indices), EDGES_A_CHUNK):
            stop = min(len(indices), start + EDGES_A_CHUNK)
            # Numbers of the array's own type: for others numpy would convert the array.
            first = int(np.searchsorted(indptr, indptr.dtype.type(start), side="right")) - 1
            last = int(np.searchsorted(indptr, indptr.dtype.type(stop), side="left"))
            lengths = np.diff(np.clip(indptr[first : last + 1], start, stop))
            yield np.asarray(indices[start:stop]), np.repeat(np.arange(first, last), lengths)

    return chunks


def check_csc(indptr: npt.NDArray[Any], indices: npt.NDArray[Any], what: str) -> int:
    """Check neighbour lists and return the number of nodes; raises InputError where pointers and lists contradict each
    other."""
    numbers = all(array.ndim == 1 and array.dtype.kind in "iu" for array in (indptr, indices))
    fault = (
        f"{what}: indptr and indices are {indptr.dtype} {list(indptr.shape)} and {indices.dtype} {list(indices.shape)}"
    )
    require(numbers and len(indptr) > 1, fault, "give whole numbers, [N + 1] and [E]")
    sound = int(indptr[0]) == 0 and int(indptr[-1]) == len(indices)
    for start in range(0, len(indptr), EDGES_A_CHUNK):
        part = indptr[start : start + EDGES_A_CHUNK + 1]
        sound = sound and bool((part[1:] >= part[:-1]).all())
    require(sound, f"{what}: indptr does not rise from 0 to the {len(indices)} edges", "save it again")
    return len(indptr) - 1


def clean_labels(values: npt.NDArray[Any], num_nodes: int, what: str) -> tuple[IntArray, int]:
    """Return labels as int64, with -1 for unlabelled (NaN or negative), and the number of classes; raises InputError
    where there are not `num_nodes`, several columns, or a label that is not a whole number."""
    flat = np.asarray(values)
    if flat.ndim == 2 and flat.shape[1] != 1:
        raise InputError(f"{what} has {flat.shape[1]} columns of labels", "only one label a node is supported")
    flat = flat.reshape(-1)
    require(flat.shape[0] == num_nodes, f"{what} has {flat.shape[0]} labels for {num_nodes} nodes")
    require(flat.dtype.kind in "fiu", f"{what} holds {flat.dtype}, not class numbers")
    if flat.dtype.kind == "f":
        known = np.isfinite(flat) & (flat >= 0)
        if not np.array_equal(flat[known], np.floor(flat[known])):
            raise InputError(f"{what} holds numbers that are not whole, so they are not classes")
        labels = np.full(num_nodes, -1, dtype=np.int64)
        labels[known] = flat[known].astype(np.int64)
    else:
        labels = np.maximum(flat.astype(np.int64), -1)
    return labels, int(labels.max(initial=-1)) + 1
