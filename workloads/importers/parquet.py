"""Parquet: a table of edges, and one of nodes with features, labels and splits, streamed by row groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from workloads.errors import InputError, require
from workloads.importers.source import (
    EDGES_A_CHUNK,
    EdgeChunk,
    FeatureRows,
    GraphSource,
    ImportOptions,
    IntArray,
    clean_labels,
    feature_source,
    left_out,
    named_nodes,
    reading,
)

Array = npt.NDArray[Any]
_SOURCE, _TARGET = ("src", "source"), ("dst", "destination", "target")
_FEATURES, _LABELS, _SPLIT = ("x", "features", "feat"), ("y", "labels", "label"), ("split",)
_WEIGHT, _ID = ("edge_weight", "weight"), ("id", "ID", "node", "node_id")
_SPLITS = {"train": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}
_DAMAGE = (pa.ArrowException, ValueError)


def open_parquet(path: Path, options: ImportOptions) -> GraphSource:
    """Read a folder with `edges.parquet` and, if there, `nodes.parquet` (or folders `edges`, `nodes` of parts), or a
    file of edges alone. Parts are read in the order of their names, digits as numbers; names that begin with `.` or `_`
    are skipped.

    Edges: integer columns `src` and `dst`, and `weight` if there is one. Nodes, in the order of their ids: `x`,
    lists of D numbers; `y`, integers, null where unknown; `split`, `train`, `valid` or `test`; `id`, if there, counts
    from 0. Notes name other columns and files. Raises DatasetError where a file is damaged, InputError where columns
    are missing or contradict each other.
    """
    edges = _Table(path if path.is_file() else path / "edges")
    source, target = edges.column(_SOURCE), edges.column(_TARGET)
    if source is None or target is None:
        raise InputError(f"{edges.name} has no columns src and dst", "name the columns of edges so")
    weight, nodes = edges.column(_WEIGHT), None if path.is_file() else _Table(path / "nodes", optional=True)

    def pairs() -> Iterator[EdgeChunk]:
        for batch in edges.batches([source, target], EDGES_A_CHUNK):
            yield _whole(batch, source, edges.name), _whole(batch, target, edges.name)

    def weights() -> Iterator[Array]:
        for batch in edges.batches([source, str(weight)], EDGES_A_CHUNK):
            yield _numbers(batch, str(weight), edges.name)

    found_weights = weights if weight else None
    notes = edges.left_out() + ([] if path.is_file() else _other_files(path))
    if nodes is None or not nodes.files:
        num_nodes = named_nodes(pairs, edges.name)
        return GraphSource(num_nodes, pairs, notes=notes, edge_weights=found_weights, edges_name=edges.name)
    num_nodes = nodes.rows
    require(num_nodes, f"{nodes.name} holds no node", "give one row for each node")
    _check_ids(nodes)
    features, splits, (labels, num_classes) = _features(nodes), _splits(nodes), _labels(nodes)
    return GraphSource(
        num_nodes,
        pairs,
        features,
        labels,
        num_classes,
        splits,
        notes=[*notes, *nodes.left_out()],
        edge_weights=found_weights,
        edges_name=edges.name,
    )


class _Table:
    """Parquet file `PATH.parquet`, `PATH` itself, or the files of the folder `PATH`, as one table."""

    def __init__(self, path: Path, optional: bool = False) -> None:
        whole = path if path.is_file() else path.with_name(f"{path.name}.parquet")
        twice = f"{path.parent} holds {whole.name} and the folder {path.name}, which mean the same"
        require(not (path.is_dir() and whole.exists()), twice, "remove one of them")
        self.files = [whole] if whole.exists() else _parts(path) if path.is_dir() else []
        self.name, self.rows = str(whole if whole.exists() else path), 0
        fix = "give a folder with edges.parquet, or a file of edges"
        require(self.files or optional, f"there is no {whole.name} in {path.parent}", fix)
        self._columns: list[list[str]] = []
        self._used: set[str] = set()
        for file in self.files:
            with self._reading(file):
                self.rows += pq.read_metadata(file).num_rows
                self._columns.append(pq.read_schema(file).names)

    def column(self, names: tuple[str, ...]) -> str | None:
        """Return the name under which all parts of the table have a column; None without it."""
        found = [name for name in names if any(name in columns for columns in self._columns)]
        require(len(found) < 2, f"{self.name} has columns {' and '.join(found)}, which mean the same", "drop one")
        self._used.update(found)
        for file, columns in zip(self.files, self._columns, strict=True):
            for name in found:
                fault = f"{file} has {'several columns' if name in columns else 'no column'} {name}"
                require(columns.count(name) == 1, fault, "give every part of the table one")
        return found[0] if found else None

    def left_out(self) -> list[str]:
        """Return a note that names the columns that were not asked for, if there are any."""
        names = dict.fromkeys(name for columns in self._columns for name in columns if name not in self._used)
        return left_out(f"columns of {Path(self.name).name}", list(names))

    def batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        """Yield some columns of all rows, at most `rows` at a time."""
        for file in self.files:
            options: dict[str, Any] = {"pre_buffer": False, "page_checksum_verification": True}
            with self._reading(file), pq.ParquetFile(file, **options) as parts:
                yield from parts.iter_batches(batch_size=rows, columns=columns, use_threads=False)

    @staticmethod
    def _reading(file: Path) -> AbstractContextManager[None]:
        return reading(file, "is no whole Parquet file", _DAMAGE, fix="download or write it again")


def _parts(folder: Path) -> list[Path]:
    """Return the files of a table; raises InputError where the folder holds something else, or nothing."""
    found = _shown(folder)
    odd = next((part.name for part in found if part.suffix != ".parquet" or part.is_dir()), "")
    fix = "give the parts of the table as .parquet files in one folder, without subfolders"
    require(not odd, f"{folder} holds {odd}, which is no .parquet file", fix)
    require(found, f"{folder} holds no .parquet file", fix)
    return found


def _shown(folder: Path) -> list[Path]:
    """List what other readers of Parquet would not skip, `part-2` before `part-11`, as writers number their parts."""

    def order(path: Path) -> tuple[list[Any], str]:
        pieces: list[Any] = re.split("([0-9]+)", path.name)  # text and digits in turn
        pieces[1::2] = map(int, pieces[1::2])
        return pieces, path.name

    return sorted((path for path in folder.iterdir() if path.name[0] not in "._"), key=order)


def _other_files(folder: Path) -> list[str]:
    """Return a note that names what is in the folder besides the tables; raises InputError for a table that ends
    otherwise than in `.parquet`."""
    names = ("edges", "nodes")
    others = [path for path in _shown(folder) if path.name not in (*names, *(f"{name}.parquet" for name in names))]
    for path in others:
        require(path.stem not in names, f"{path} is not read", f"name the table {path.stem}.parquet, or remove it")
    return left_out("other files", [path.name for path in others])


def _numbers(batch: Any, column: str, what: str) -> Array:
    array = batch.column(column)
    sound = array.null_count == 0 and (pa.types.is_integer(array.type) or pa.types.is_floating(array.type))
    require(sound, f"column {column} of {what} is {array.type} with {array.null_count} nulls", "give numbers, no nulls")
    found: Array = array.to_numpy(zero_copy_only=False)
    return found


def _whole(batch: Any, column: str, what: str) -> Array:
    found = _numbers(batch, column, what)
    require(found.dtype.kind in "iu", f"column {column} of {what} is {found.dtype}", "give node ids, whole numbers")
    return found


def _check_ids(nodes: _Table) -> None:
    if (column := nodes.column(_ID)) is None:
        return
    done = 0
    for batch in nodes.batches([column], EDGES_A_CHUNK):
        ids = _whole(batch, column, nodes.name)
        ordered = np.array_equal(ids, np.arange(done, done + len(ids)))
        require(ordered, f"column {column} of {nodes.name} does not count from 0", "sort the nodes by id, without gaps")
        done += len(ids)


def _features(nodes: _Table) -> FeatureRows | None:
    """Stream the feature rows, lists of equal length."""
    if (column := nodes.column(_FEATURES)) is None:
        return None
    first = next(nodes.batches([column], 1)).column(column)
    kind = first.type
    lists = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind)
    numbers = lists and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))
    require(numbers and first.null_count == 0, f"column {column} of {nodes.name} is {kind}", "give lists of numbers")
    dim = len(first[0])
    require(dim > 0, f"column {column} of {nodes.name} begins with an empty list", "give lists of numbers")

    def rows(count: int) -> Iterator[Array]:
        for batch in nodes.batches([column], count):
            lists = batch.column(column)
            values, fixed = lists.flatten(), pa.types.is_fixed_size_list(kind)
            equal = lists.type == kind and (fixed or bool((np.diff(lists.offsets.to_numpy()) == dim).all()))
            sound = equal and lists.null_count == values.null_count == 0 and len(values) == dim * len(lists)
            require(
                sound,
                f"column {column} of {nodes.name} has lists of unequal length or type, or nulls",
                f"give {dim} each",
            )
            yield values.to_numpy(zero_copy_only=False).reshape(-1, dim)

    return feature_source((nodes.rows, dim), kind.value_type.to_pandas_dtype(), rows)


def _labels(nodes: _Table) -> tuple[IntArray | None, int]:
    if (column := nodes.column(_LABELS)) is None:
        return None, 0
    parts: list[IntArray] = []
    classes = 0
    for batch in nodes.batches([column], EDGES_A_CHUNK):
        array = batch.column(column)
        require(
            pa.types.is_integer(array.type), f"column {column} of {nodes.name} is {array.type}", "give class numbers"
        )
        labels = np.full(len(array), -1, dtype=np.int64)
        known = array.is_valid().to_numpy(zero_copy_only=False)
        values = array.drop_null().to_numpy(zero_copy_only=False)
        labels[known], found = clean_labels(values, len(values), f"column {column} of {nodes.name}")
        parts, classes = [*parts, labels], max(classes, found)
    return np.concatenate(parts), classes


def _splits(nodes: _Table) -> dict[str, IntArray] | None:
    if (column := nodes.column(_SPLIT)) is None:
        return None
    found: dict[str, list[Array]] = {part: [] for part in ("train", "valid", "test")}
    done = 0
    for batch in nodes.batches([column], EDGES_A_CHUNK):
        words = batch.column(column)
        kind = words.type.value_type if pa.types.is_dictionary(words.type) else words.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
        fix = "give train, valid or test, or null"
        require(text, f"column {column} of {nodes.name} is {words.type}", fix)
        words = words.dictionary_encode()
        places = words.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for code, word in enumerate(words.dictionary.to_pylist()):
            fault = f"column {column} of {nodes.name} holds {word!r}"
            require(word in _SPLITS or not word, fault, fix)
            if word in _SPLITS:
                found[_SPLITS[word]].append(done + np.flatnonzero(places == code))
        done += len(batch)
    empty = np.empty(0, dtype=np.int64)
    return {part: np.concatenate([empty, *ids]) for part, ids in found.items()}
