"""Result of an importer: a graph as a stream of edges, with its features, labels and
splits if it has any."""

from __future__ import annotations

import errno
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from workloads.arraytypes import (
    Array,
    ArrayShape,
    ArrayStream,
    DType,
    IdStream,
    Int64Array,
    IntegerArray,
)
from workloads.direct_files import read_ahead
from workloads.errors import DatasetError, InputError, require
from workloads.importers.packed import DAMAGE, file_packing, refuse_packed_as
from workloads.making.progress import Progress, no_progress
from workloads.manifest import MAX_CLASSES, MAX_NODES

EdgeChunk = tuple[IntegerArray, IntegerArray]
"""Source ids and destination ids of some edges, of equal length."""
EdgeStream = Callable[[], Iterator[EdgeChunk]]
"""Function that yields all edges in chunks; it can be called more than once."""
Arrays = dict[str, Array]
"""Arrays by their names."""
SplitIds = dict[str, Int64Array]
"""Node ids of `train`, `valid` and `test`."""

NO_IDS: Int64Array = np.empty(0, dtype=np.int64)
EDGES_A_CHUNK = 1 << 20
FEATURE_BYTES_A_CHUNK = 16 << 20
# First bytes of a file of `torch.save`: before torch 1.6, and since then.
_OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"
_ZIP = b"PK"
#: Errors of `torch.load` for a damaged file.
TORCH_DAMAGE = (
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    struct.error,
)
WHOLE_IDS = (
    "give ids as integers (.astype(np.int64), which is exact for floats below 2**53 "
    "only)"
)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class FeatureRows:
    """A feature table [num_rows, dim] as a stream of row ranges."""

    num_rows: int
    dim: int
    dtype: DType  # element type to write, float32 or float16
    # the rows in order, [rows, dim]; may be called more than once
    chunks: ArrayStream


@dataclass(frozen=True)
class GraphSource:
    """A graph that can be read in bounded memory."""

    num_nodes: int  # N; edge ids are in [0, N)
    # yields all edges in chunks; called more than once
    edges: EdgeStream
    features: FeatureRows | None = None  # None: to be generated
    # int64 [N], -1 for unlabelled; None: to be generated
    labels: Int64Array | None = None
    num_classes: int = 0  # without labels: number to generate; 0: unknown
    # int64 node ids of `train`, `valid` and `test`, empty ones too; None: none is
    # given, so they are drawn.
    splits: SplitIds | None = None
    # whether every edge stands for both directions in this format
    symmetric: bool = False
    notes: list[str] = field(default_factory=list)  # for the manifest
    # attributes of a graph in memory that are not read
    unread: list[str] = field(default_factory=list)
    # whether repeated edges are edges of their own in this format, without weights
    keep_duplicates: bool = False
    # Weights of the edges, float, in chunks of the same lengths as `edges`; None:
    # unweighted.
    edge_weights: ArrayStream | None = None
    edges_name: str = "the graph"  # file or array of the edges, for messages
    # Original ids of the nodes, int64 [N] in chunks; None: the nodes kept their
    # numbers.
    ids: IdStream | None = None

    def __post_init__(self) -> None:
        """Check the number of nodes, which ids or a file may have made up; raises
        InputError with the limit."""
        fault = (
            f"{self.edges_name} has {self.num_nodes} nodes, and a dataset has 1 to "
            f"{MAX_NODES}"
        )
        valid = 1 <= self.num_nodes <= MAX_NODES
        require(valid, fault, "number the nodes from 0 without gaps")


@dataclass(frozen=True)
class ImportOptions:
    """Options of an importer."""

    scratch: Path  # folder for temporary files, removed by the caller
    # most bytes for edge buffers; node arrays (up to 16 bytes a node) come on top
    max_memory: int = 1 << 30
    # number of classes, which chooses among label files (IGB: 19 or 2983; 0: the
    # smaller)
    classes: int = 0
    # source of the count of labelled nodes, where `author` and `loader` differ (IGB)
    labelled: str = "author"
    progress: Progress = no_progress
    # whether the user wants every edge in both directions; None: as the source states
    symmetric: bool | None = None


def folders(path: Path) -> list[Path]:
    """Return the folder `path` and its subfolders; no folder if it is a file."""
    if path.is_dir():
        return [path, *sorted(child for child in path.iterdir() if child.is_dir())]
    return []


@contextmanager
def reading(
    path: Path,
    fault: str,
    damage: tuple[type[Exception], ...] = (EOFError, zlib.error, zipfile.BadZipFile),
    missing: str = "check that the download was unpacked whole",
    fix: str = "download it again",
) -> Iterator[None]:
    """Check that `path` is no folder, pipe or device, and turn errors of reading it
    within the block into DatasetErrors: `path`, `fault` and the error make the message
    for errors of `damage`, with `fix`; `missing` is the fix where the file is
    missing."""
    expected: tuple[type[Exception], ...] = (OSError, *damage)
    try:
        if path.exists() and not path.is_file():
            raise DatasetError(
                f"{path} is {'a folder' if path.is_dir() else 'no regular file'}",
                "give a file there",
            )
        yield
    except (FileNotFoundError, NotADirectoryError):
        refuse_packed_as(path)
        raise DatasetError(f"{path} is missing", missing) from None
    except expected as error:
        # of a file that is written meanwhile
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            raise
        # seeking before a damaged archive
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise DatasetError.from_os(error, f"{path} cannot be read") from None
        packing = None if isinstance(error, DAMAGE) else file_packing(path)
        # `.npz` and `.pt` files are zip archives
        if packing is not None and packing.name != "zip":
            raise DatasetError(
                f"{path} is packed by {packing.name}", f"unpack it first: {packing.fix}"
            ) from None
        raise DatasetError(f"{path} {fault} ({reason_of(error)})", fix) from None


def reason_of(error: Exception) -> str:
    """Return the beginning of an error's text, within a line, for an error message."""
    first = next(
        (line for line in str(error).split("\n") if line.strip()), type(error).__name__
    )
    return " ".join(first.split()).partition(". ")[0][:120]


def load_array(path: Path) -> Array:
    """Map a `.npy` file read-only, never unpickling; raises DatasetError where it is
    missing or holds no plain numbers."""
    damage = (ValueError, EOFError, SyntaxError, TokenError, TypeError, OverflowError)
    objects = f"{path} holds Python objects"
    with reading(
        path,
        "is no whole .npy file of numbers",
        damage,
        fix="download it or numpy.save it again",
    ):
        try:
            array: Array = npy_format.open_memmap(path, mode="r")
        except ValueError as error:
            valid = "Python objects" not in str(error)
            require(valid, objects, "numpy.save it as numbers (.astype(np.int64))")
            raise
    return array


def load_torch(path: Path, fault: str, **options: Any) -> Any:
    """Load a file of `torch.save` with its tensors mapped; `options` go to
    `torch.load`. Raises DatasetError where the file is missing, damaged (`path` and
    `fault` make the message), or of torch before 1.6, which cannot be mapped."""
    import torch  # late: it takes seconds and 200 MB, and other importers do without

    with reading(path, fault, TORCH_DAMAGE, fix="download it or torch.save it again"):
        with path.open("rb") as file:
            begin = file.read(len(_OLD_TORCH))
        old = f"{path} is in the format of torch before 1.6, which cannot be mapped"
        valid = begin != _OLD_TORCH
        require(
            valid,
            old,
            "torch.save(torch.load(PATH), PATH) writes it anew",
            DatasetError,
        )
        if not begin.startswith(_ZIP):
            raise ValueError("it begins like another file")
        return torch.load(path, map_location="cpu", mmap=True, **options)


def as_array(value: Any, what: str) -> Array:
    """Return the memory of a tensor, or a list of numbers, as an array; raises
    InputError for values that numpy cannot hold (a sparse, bfloat16, quantized, nested
    or meta tensor, lists of unequal length)."""
    import torch

    try:
        # A tensor may stand for the negatives of its memory: the imaginary part of a
        # conjugate does.
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().resolve_neg().numpy()
        return np.asarray(value)
    except (RuntimeError, TypeError, NotImplementedError, ValueError):
        kind = type(value).__name__
        if isinstance(value, torch.Tensor):
            kinds = {
                "nested": value.is_nested,
                "sparse": value.layout is not torch.strided,
                "empty": value.is_meta,
            }
            kind = next(
                (kind for kind, is_it in kinds.items() if is_it),
                str(value.dtype).removeprefix("torch."),
            )
        fault = f"{what} is {kind}"
        raise InputError(
            fault, "give it dense (.to_dense()), as float16, float32 or integers"
        ) from None


def feature_source(
    shape: ArrayShape, dtype: npt.DTypeLike, read: Callable[[int], Iterable[Array]]
) -> FeatureRows:
    """Stream feature rows (float16 stays, other numbers become float32) of a source of
    that shape and dtype; `read(rows)` yields the source's rows in order, at most `rows`
    at a time."""
    # in either byte order
    kept = np.dtype(np.float16 if np.dtype(dtype).type is np.float16 else np.float32)
    widest = max(np.dtype(dtype).itemsize, kept.itemsize)
    row_bytes = max(1, shape[1]) * widest
    rows = max(1, FEATURE_BYTES_A_CHUNK // row_bytes)

    def chunks() -> Iterator[Array]:
        for part in read(rows):
            # values beyond float32 become infinite, which the writer counts
            with np.errstate(over="ignore"):
                yield np.ascontiguousarray(part, dtype=kept)

    return FeatureRows(shape[0], shape[1], kept, chunks)


def check_table(table: Any, what: str) -> None:
    """Check shape and dtype of an array's header; raises InputError unless it holds
    rows [N, D] of numbers."""
    if len(table.shape) != 2 or table.shape[1] == 0 or table.dtype.kind not in "fiu":
        fault = (
            f"{what} has shape {table.shape} and dtype {table.dtype}, not rows of "
            "numbers"
        )
        raise InputError(fault, "give [N, D], a row for each node")


def table_source(table: Array, what: str) -> FeatureRows:
    """Stream the feature rows of an array or memory map [N, D]; raises InputError for
    another shape or no numbers."""
    check_table(table, what)

    def read(rows: int) -> Iterator[Array]:
        for at in range(0, table.shape[0], rows):
            read_ahead(table[at + rows : at + 2 * rows])
            yield table[at : at + rows]

    return feature_source(table.shape, table.dtype, read)


def check_edges(array: Any, what: str, *, columns: bool = False) -> None:
    """Check shape and dtype of an array's header; raises InputError unless it holds
    integers [2, E] ([E, 2] for `columns`)."""
    expected = "[E, 2]" if columns else "[2, E]"
    fault = (
        f"{what} has shape {array.shape} and dtype {array.dtype}, not {expected} of "
        "integers"
    )
    require(array.dtype.kind in "iu", fault, WHOLE_IDS)
    axis = 1 if columns else 0
    table = len(array.shape) == 2
    if table and array.shape[axis] == 2:
        return
    transposed = table and array.shape[1 - axis] == 2
    fix = "give sources and destinations"
    if transposed:
        fix = "transpose it: np.ascontiguousarray(edges.T)"
    raise InputError(fault, fix)


def edge_array_source(array: Array, what: str, *, columns: bool) -> EdgeStream:
    """Stream the edges, sources and destinations, of an array [2, E] (`columns=False`)
    or [E, 2] (`columns=True`); raises InputError for another shape or no integers."""
    check_edges(array, what, columns=columns)
    pairs = array.T if columns else array

    def chunks() -> Iterator[EdgeChunk]:
        for start in range(0, pairs.shape[1], EDGES_A_CHUNK):
            part = np.asarray(pairs[:, start : start + EDGES_A_CHUNK])
            yield part[0], part[1]

    return chunks


def check_weights(weights: Any, num_edges: int, what: str) -> None:
    """Check shape and dtype of an array's header; raises InputError unless it holds a
    number for every edge, [E] or [E, 1]."""
    sound = (
        weights.shape in ((num_edges,), (num_edges, 1)) and weights.dtype.kind in "fiu"
    )
    fault = f"{what} is {weights.dtype} {list(weights.shape)}"
    fix = f"give a number for every edge, [{num_edges}]"
    require(sound, fault, fix)


def weight_source(weights: Array, num_edges: int, what: str) -> ArrayStream:
    """Stream the edges' weights in chunks of the same lengths as the edges; raises
    InputError as `check_weights`."""
    check_weights(weights, num_edges, what)
    flat = weights.reshape(-1)
    return lambda: (
        flat[start : start + EDGES_A_CHUNK]
        for start in range(0, num_edges, EDGES_A_CHUNK)
    )


def holds_ids(values: Any, num_nodes: int) -> bool:
    """Return whether an array (or its header) can be the original ids of the nodes:
    integers [N] or [N, 1]."""
    return values.dtype.kind in "iu" and values.shape in ((num_nodes,), (num_nodes, 1))


def id_source(values: Array, what: str) -> IdStream:
    """Stream the original ids of nodes, an array that `holds_ids`; raises InputError
    for an id from 2^63 on."""
    flat = values.reshape(-1)

    def chunks() -> Iterator[Int64Array]:
        for start in range(0, len(flat), EDGES_A_CHUNK):
            part = flat[start : start + EDGES_A_CHUNK]
            largest = int(part.max())
            fault = f"{what} holds {largest}"
            require(largest <= np.iinfo(np.int64).max, fault, "give ids below 2^63")
            yield part.astype(np.int64)

    return chunks


def csc_edges(indptr: Array, indices: Array) -> EdgeStream:
    """Stream the edges of neighbour lists: the in-neighbours of node `v` are
    `indices[indptr[v]:indptr[v + 1]]`."""

    def chunks() -> Iterator[EdgeChunk]:
        for start in range(0, len(indices), EDGES_A_CHUNK):
            stop = min(len(indices), start + EDGES_A_CHUNK)
            # Numbers of the array's own type: for others numpy would convert the array.
            first = (
                int(np.searchsorted(indptr, indptr.dtype.type(start), side="right")) - 1
            )
            last = int(np.searchsorted(indptr, indptr.dtype.type(stop), side="left"))
            borders = np.clip(indptr[first : last + 1], start, stop)
            lengths = np.diff(borders.astype(np.int64)).astype(np.int64)
            targets = np.repeat(np.arange(first, last), lengths)
            yield np.asarray(indices[start:stop]), targets

    return chunks


def check_csc(indptr: Array, indices: Array, what: str) -> int:
    """Check neighbour lists and return the number of nodes; raises InputError where
    pointers and lists contradict each other."""
    flat = indptr.ndim == indices.ndim == 1
    whole = all(array.dtype.kind in "iu" for array in (indptr, indices))
    pointers = f"{indptr.dtype} {list(indptr.shape)}"
    lists = f"{indices.dtype} {list(indices.shape)}"
    fault = f"{what}: indptr and indices are {pointers} and {lists}"
    require(whole, fault, WHOLE_IDS)
    require(flat and len(indptr) > 1, fault, "give whole numbers, [N + 1] and [E]")
    sound = int(indptr[0]) == 0 and int(indptr[-1]) == len(indices)
    for start in range(0, len(indptr), EDGES_A_CHUNK):
        part = indptr[start : start + EDGES_A_CHUNK + 1]
        sound = sound and bool((part[1:] >= part[:-1]).all())
    require(
        sound,
        f"{what}: indptr does not rise from 0 to the {len(indices)} edges",
        "save it again",
    )
    return len(indptr) - 1


def check_ids(ids: Array, num_nodes: int, what: str) -> None:
    """Check that ids are of nodes; raises InputError with an id that is not, and the
    limit."""
    for end in (ids.max(), ids.min()) if len(ids) else ():
        fault = f"{what} names node {end}, but there are {num_nodes} nodes"
        fix = f"give ids from 0 to {num_nodes - 1}"
        require(0 <= int(end) < num_nodes, fault, fix)


def named_nodes(edges: EdgeStream, what: str) -> int:
    """Count the nodes of a graph without node data: up to the largest id; raises
    InputError for a negative id, or without edges."""
    largest = -1
    for chunk in edges():
        for ids in chunk:
            least = int(ids.min(initial=0))
            fault = f"{what}: an edge names node {least}"
            require(least == 0, fault, "number the nodes from 0")
            largest = max(largest, int(ids.max(initial=0)) if len(ids) else -1)
    fault = f"{what} holds no edge"
    require(largest >= 0, fault, "give edges, or features of the nodes")
    return largest + 1


def count_of(value: Any, most: int, what: str) -> int:
    """Return a count from a file; raises InputError unless it is a single whole number
    from 1 to `most`."""
    array = np.asarray(value)
    single = array.size == 1 and array.dtype.kind in "iuf"
    number = array.item() if single else value
    sound = single and 1 <= number <= most and number % 1 == 0
    fault = f"{what} is {array.item() if array.size == 1 else value}"

    fix = f"give a whole number from 1 to {most}"
    require(sound, fault, fix)
    return int(array.item())


def stated_classes(stated: Any, found: int, what: str) -> int:
    """Return the stated number of classes, of which `found` have labels; raises
    InputError where it is less than `found` or not a valid count."""
    classes = count_of(stated, MAX_CLASSES, what)
    fault = f"{what} is {classes}, but the labels are of {found} classes"
    fix = f"give {found} or more"
    require(classes >= found, fault, fix)
    return classes


def clean_labels(values: Array, num_nodes: int, what: str) -> tuple[Int64Array, int]:
    """Return labels as int64, with -1 for unlabelled (NaN or negative), and the number
    of classes; raises InputError where there are not `num_nodes`, several columns, or a
    label that is no whole number below `MAX_CLASSES`."""
    flat = np.asarray(values)
    if flat.ndim == 2 and flat.shape[1] != 1:
        fault = f"{what} has {flat.shape[1]} columns of labels"
        raise InputError(fault, "give a single label for each node")
    flat = flat.reshape(-1)
    fix = "number the classes from 0, -1 where a node has none"
    fault = f"{what} has {flat.shape[0]} labels for {num_nodes} nodes"
    require(flat.shape[0] == num_nodes, fault, "give a label for each node")
    fault = f"{what} holds {flat.dtype}, not class numbers"
    require(flat.dtype.kind in "fiu", fault, fix)
    most = np.fmax.reduce(flat) if num_nodes else np.int64(-1)
    fault = f"{what} holds class {most}, and there may be {MAX_CLASSES} classes"
    require(not float(most) >= MAX_CLASSES, fault, fix)
    if flat.dtype.kind == "f":
        known = flat >= 0
        whole = np.array_equal(flat[known], np.floor(flat[known]))
        fault = f"{what} holds numbers that are not whole, so they are not classes"
        require(whole, fault, fix)
        labels = np.full(num_nodes, -1, dtype=np.int64)
        labels[known] = flat[known].astype(np.int64)
    else:
        labels = np.maximum(flat.astype(np.int64), -1)
    return labels, int(labels.max(initial=-1)) + 1


def is_mask(chosen: Array, num_nodes: int, name: str) -> bool:
    """Whether a split is given as a mask: bool; or zeros and ones alone for all nodes,
    unless its name is that of ids (`train_idx`). Under a name of neither, such integers
    of one or two nodes may be ids: they are a mask as uint8, torch's type of masks
    before 1.2."""
    if chosen.dtype == np.bool_:
        return True
    if (
        chosen.dtype.kind not in "iu"
        or chosen.shape != (num_nodes,)
        or name.endswith("_idx")
    ):
        return False
    flags = bool(((chosen == 0) | (chosen == 1)).all())
    return flags and (
        name.endswith("_mask") or num_nodes > 2 or chosen.dtype == np.uint8
    )


def split_ids(chosen: Array | None, num_nodes: int, what: str, name: str) -> Int64Array:
    """Return the ids of a split, given as ids or as a mask (`is_mask`); none without
    one. Raises InputError for others, for ids under the `name` of a mask, and for a
    possible mask under the name of ids."""
    if chosen is None:
        return NO_IDS
    found = f"{what} is {chosen.dtype} {list(chosen.shape)}"
    if is_mask(chosen, num_nodes, name):
        fault = f"{found}, a mask for {num_nodes} nodes"
        fix = f"give [{num_nodes}]"
        require(chosen.shape == (num_nodes,), fault, fix)
        return np.flatnonzero(chosen)
    fault = f"{found}, and no mask of {num_nodes} nodes"
    fix = f"give bool [{num_nodes}], or name ids train_idx, val_idx, test_idx"
    require(not name.endswith("_mask"), fault, fix)
    fix = f"{WHOLE_IDS}, or a bool mask [{num_nodes}]"
    require(chosen.dtype.kind in "iu", found, fix)
    fix = f"give ids [M], or a bool mask [{num_nodes}]"
    require(chosen.ndim == 1, found, fix)
    check_ids(chosen, num_nodes, what)
    either = name.endswith("_idx") and num_nodes > 2 and is_mask(chosen, num_nodes, "")
    fault = f"{what} holds zeros and ones alone for all {num_nodes} nodes, like a mask"
    valid = not either
    require(
        valid,
        fault,
        "name a mask train_mask, val_mask, test_mask, and give each id once",
    )
    return chosen.astype(np.int64)


def split_use(part: str, chosen: Array, num_nodes: int, name: str) -> str:
    """Return the use of a split's array, for the notes."""
    return f"{part} mask" if is_mask(chosen, num_nodes, name) else f"{part} ids"
