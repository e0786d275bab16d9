"""Parquet: a table of edges, and one of nodes with features, labels and splits, streamed by row groups."""

from __future__ import annotations

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
    named_nodes,
    reading,
)

Array = npt.NDArray[Any]
_SOURCE, _TARGET = ("src", "source"), ("dst", "destination", "target")
_FEATURES, _LABELS, _SPLIT = ("x", "features", "feat"), ("y", "labels", "label"), ("split",)
_WEIGHT, _ID = ("edge_weight", "weight"), ("id", "node")
_SPLITS = {"train": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}
_DAMAGE = (pa.ArrowException, ValueError)


def open_parquet(path: Path, options: ImportOptions) -> GraphSource:
    """Read a folder with `edges.parquet` and, if there, `nodes.parquet` (or folders `edges`, `nodes` of parts), or a
    file of edges alone.

    Edges: integer columns `src` and `dst`, and `weight` if there is one. Nodes, in the order of their ids: `x`,
    lists of D numbers; `y`, integers, null where unknown; `split`, `train`, `valid` or `test`; `id`, if there, counts
    from 0. Raises DatasetError where a file is damaged, InputError where columns are missing or contradict each other.
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

    if nodes is None or not nodes.files:
        num_nodes = named_nodes(pairs, edges.name)
        return GraphSource(num_nodes, pairs, edge_weights=weights if weight else None, edges_name=edges.name)
    num_nodes = nodes.rows
    require(num_nodes, f"{nodes.name} holds no node", "give one row for each node")
    _check_ids(nodes)
    labels, num_classes = _labels(nodes)
    return GraphSource(
        num_nodes,
        pairs,
        _features(nodes),
        labels,
        num_classes,
        _splits(nodes),
        edge_weights=weights if weight else None,
        edges_name=edges.name,
    )


class _Table:
    """Parquet file `PATH.parquet`, `PATH` itself, or the files of the folder `PATH`, as one table."""

    def __init__(self, path: Path, optional: bool = False) -> None:
        whole = path if path.is_file() else path.with_name(f"{path.name}.parquet")
        parts = sorted(path.iterdir()) if path.is_dir() and not whole.exists() else []
        self.files = [whole] if whole.exists() else [part for part in parts if part.suffix == ".parquet"]
        self.name, self.rows = str(whole if whole.exists() else path), 0
        fix = "give a folder with edges.parquet, or a file of edges"
        require(self.files or optional, f"there is no {whole.name} in {path.parent}", fix)
        self._columns: list[list[str]] = []
        for file in self.files:
            with self._reading(file):
                self.rows += pq.read_metadata(file).num_rows
                self._columns.append(pq.read_schema(file).names)

    def column(self, names: tuple[str, ...]) -> str | None:
        """Return the name under which all parts of the table have a column; None without it."""
        found = [name for name in names if any(name in columns for columns in self._columns)]
        require(len(found) < 2, f"{self.name} has columns {' and '.join(found)}, which mean the same", "drop one")
        for file, columns in zip(self.files, self._columns, strict=True):
            for name in found:
                fault = f"{file} has {'several columns' if name in columns else 'no column'} {name}"
                require(columns.count(name) == 1, fault, "give every part of the table one")
        return found[0] if found else None

    def batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        """Yield some columns of all rows, at most `rows` at a time."""
        for file in self.files:
            options: dict[str, Any] = {"pre_buffer": False, "page_checksum_verification": True}
            with self._reading(file), pq.ParquetFile(file, **options) as parts:
                yield from parts.iter_batches(batch_size=rows, columns=columns, use_threads=False)

    @staticmethod
    def _reading(file: Path) -> AbstractContextManager[None]:
        return reading(file, "is no whole Parquet file", _DAMAGE, fix="download or write it again")


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
