"""Parquet: a table of edges and a table of nodes with features, labels and splits,
streamed by row groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workloads.arraytypes import Array, Int64Array, JsonDict
from workloads.errors import InputError, require
from workloads.importers.packed import refuse_packed_as
from workloads.importers.seen import (
    FEATURES,
    LABELS,
    WEIGHTS,
    Uses,
    features_use,
    numbers_use,
    seen,
)
from workloads.importers.source import (
    EDGES_A_CHUNK,
    NO_IDS,
    WHOLE_IDS,
    EdgeChunk,
    FeatureRows,
    GraphSource,
    ImportOptions,
    SplitIds,
    clean_labels,
    feature_source,
    named_nodes,
    reading,
)

_SOURCE = ("src", "source")
_TARGET = ("dst", "destination", "target")
_SPLIT = ("split",)
_ID = ("id", "ID", "Id", "node", "node_id", "nid", "index")
_MASKS = {
    "train": ("train_mask",),
    "valid": ("val_mask", "valid_mask"),
    "test": ("test_mask",),
}
#: Names under which pandas stores an index without a name.
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
_SPLITS = {
    "train": "train",
    "valid": "valid",
    "val": "valid",
    "validation": "valid",
    "test": "test",
}
_IDS_USE = "node ids"
_FEW = 2  # nodes: too few for their numbers to show an order
_DAMAGE = (pa.ArrowException, ValueError)


def open_parquet(path: Path, options: ImportOptions) -> GraphSource:
    """Read a folder with `edges.parquet` and, if there, `nodes.parquet` (or folders
    `edges`, `nodes` of parts), or a file of edges alone. Parts are read in the order of
    their names, digits as numbers; names that begin with `.` or `_` are skipped.

    Edges: integer columns `src` and `dst`, and `weight` if present. Nodes, in the
    order of their ids: `x`, lists of D numbers; `y`, integers, null where unknown;
    `split`, `train`, `valid` or `test`, or masks; `id` or, without it, the index that
    pandas stores, counts from 0; another column that numbers the rows in another order
    is refused. Notes name all columns and files. Raises DatasetError where a file is
    damaged, InputError where columns are missing or contradict each other, or rows are
    in another order.
    """
    edges = _Table(path if path.is_file() else path / "edges")
    source = edges.column(_SOURCE, "sources")
    target = edges.column(_TARGET, "destinations")
    if source is None or target is None:
        raise InputError(
            f"{edges.name} has no columns src and dst", "name the columns of edges so"
        )
    weight = edges.column(WEIGHTS, "edge weights")
    nodes = None if path.is_file() else _Table(path / "nodes", optional=True)

    def pairs() -> Iterator[EdgeChunk]:
        for batch in edges.batches([source, target], EDGES_A_CHUNK):
            yield _whole(batch, source, edges.name), _whole(batch, target, edges.name)

    def weights() -> Iterator[Array]:
        for batch in edges.batches([source, str(weight)], EDGES_A_CHUNK):
            yield _numbers(batch, str(weight), edges.name)

    found_weights = weights if weight else None
    if weight:
        edges.uses[weight] = _weight_use(edges, weight)
    notes = edges.seen() + ([] if path.is_file() else _other_files(path))
    if nodes is None or not nodes.files:
        num_nodes = named_nodes(pairs, edges.name)
        return GraphSource(
            num_nodes,
            pairs,
            notes=notes,
            edge_weights=found_weights,
            edges_name=edges.name,
        )
    num_nodes = nodes.rows
    fault = f"{nodes.name} holds no node"
    require(num_nodes, fault, "give one row for each node")
    _check_order(nodes)
    features, splits, (labels, num_classes) = (
        _features(nodes),
        _splits(nodes),
        _labels(nodes),
    )
    _check_unread(nodes)
    return GraphSource(
        num_nodes,
        pairs,
        features,
        labels,
        num_classes,
        splits,
        notes=[*notes, *nodes.seen()],
        edge_weights=found_weights,
        edges_name=edges.name,
    )


class _Table:
    """Parquet file `PATH.parquet`, `PATH` itself, or the files of the folder `PATH`, as
    one table."""

    def __init__(self, path: Path, optional: bool = False) -> None:
        whole = path if path.is_file() else path.with_name(f"{path.name}.parquet")
        twice = (
            f"{path.parent} holds {whole.name} and the folder {path.name}, which mean "
            "the same"
        )
        require(not (path.is_dir() and whole.exists()), twice, "remove one of them")
        self.files: list[Path] = []
        if whole.exists():
            self.files = [whole]
        elif path.is_dir():
            self.files = _parts(path)
        self.name = str(whole if whole.exists() else path)
        self.rows = 0
        if not self.files:
            refuse_packed_as(whole)
        fix = "give a folder with edges.parquet, or a file of edges"
        fault = f"there is no {whole.name} in {path.parent}"
        require(self.files or optional, fault, fix)
        self._columns: list[list[str]] = []
        self.uses: Uses = {}  # column -> its use
        # of each file: columns, or ranges, that are the index of a pandas frame
        self.indexes: list[list[Any]] = []
        for file in self.files:
            with self._reading(file):
                self.rows += pq.read_metadata(file).num_rows
                schema = pq.read_schema(file)
                self._columns.append(schema.names)
                self.indexes.append(_indexes(schema))

    def column(self, names: tuple[str, ...], use: str) -> str | None:
        """Return the name under which all parts of the table have a column, and note
        its use; None without it."""
        found = [
            name for name in names if any(name in columns for columns in self._columns)
        ]
        fault = f"{self.name} has columns {' and '.join(found)}, which mean the same"
        require(len(found) < 2, fault, "drop one")
        self.uses |= dict.fromkeys(found, use)
        for file, columns in zip(self.files, self._columns, strict=True):
            for name in found:
                fault = (
                    f"{file} has "
                    f"{'several columns' if name in columns else 'no column'} {name}"
                )
                valid = columns.count(name) == 1
                require(valid, fault, "give it to every part of the table")
        return found[0] if found else None

    def unread(self) -> list[str]:
        """Return the names of the columns that all parts have once and that are
        unread."""
        in_all = set(self._columns[0])
        for columns in self._columns:
            in_all = {name for name in in_all if columns.count(name) == 1}
        return [name for name in self._columns[0] if name in in_all - self.uses.keys()]

    def seen(self) -> list[str]:
        """Return notes that name the columns, with their use, and the unread
        columns."""
        names = dict.fromkeys(name for columns in self._columns for name in columns)
        return seen(f"columns of {Path(self.name).name}", self.uses, names)

    def batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        """Yield some columns of all rows, at most `rows` at a time."""
        for file in self.files:
            options: JsonDict = {
                "pre_buffer": False,
                "page_checksum_verification": True,
            }
            with self._reading(file), pq.ParquetFile(file, **options) as parts:
                yield from parts.iter_batches(
                    batch_size=rows, columns=columns, use_threads=False
                )

    @staticmethod
    def _reading(file: Path) -> AbstractContextManager[None]:
        return reading(
            file, "is no whole Parquet file", _DAMAGE, fix="download or write it again"
        )


def _parts(folder: Path) -> list[Path]:
    """Return the files of a table; raises InputError where the folder holds something
    else, or nothing."""
    found = _shown(folder)
    odd = next(
        (part.name for part in found if part.suffix != ".parquet" or part.is_dir()), ""
    )
    for part in found:
        if part.suffix != ".parquet":
            refuse_packed_as(part.with_suffix(""))
    fix = (
        "give the parts of the table as .parquet files in one folder, without "
        "subfolders"
    )
    fault = f"{folder} holds {odd}, which is no .parquet file"
    require(not odd, fault, fix)
    fault = f"{folder} holds no .parquet file"
    require(found, fault, fix)
    return found


def _shown(folder: Path) -> list[Path]:
    """List the files that other readers of Parquet do not skip, `part-2` before
    `part-11`, as writers number their parts."""

    def order(path: Path) -> tuple[list[Any], str]:
        pieces: list[Any] = re.split("([0-9]+)", path.name)  # text and digits in turn
        pieces[1::2] = map(int, pieces[1::2])
        return pieces, path.name

    return sorted(
        (path for path in folder.iterdir() if path.name[0] not in "._"), key=order
    )


def _other_files(folder: Path) -> list[str]:
    """Return a note that lists the other files of the folder; raises
    InputError for a table that ends otherwise than in `.parquet`."""
    names = ("edges", "nodes")
    tables = {*names, *(f"{name}.parquet" for name in names)}
    others = [path for path in _shown(folder) if path.name not in tables]
    for path in others:
        fault = f"{path} is not read"
        fix = f"name the table {path.stem}.parquet, or remove it"
        require(path.stem not in names, fault, fix)
    return seen("other files", {}, [path.name for path in others])


def _numbers(batch: Any, column: str, what: str) -> Array:
    array = batch.column(column)
    sound = array.null_count == 0 and _is_number(array.type)
    fault = f"column {column} of {what} is {array.type} with {array.null_count} nulls"
    require(sound, fault, "give numbers, no nulls")
    found: Array = array.to_numpy(zero_copy_only=False)
    return found


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _whole(batch: Any, column: str, what: str) -> Array:
    """Return a column of whole numbers without nulls; raises InputError for others."""
    found = _numbers(batch, column, what)
    fault = f"column {column} of {what} is {found.dtype}"
    require(found.dtype.kind in "iu", fault, WHOLE_IDS)
    return found


def _indexes(schema: pa.Schema) -> list[Any]:
    """Return the index of the pandas frame that a file was written from: names of
    columns, or the description of a range; empty where none is stored. Raises
    ValueError where the metadata of pandas are damaged."""
    metadata = schema.pandas_metadata or {}
    stored: Any = None
    if isinstance(metadata, dict):
        stored = metadata.get("index_columns", [])
    sound = isinstance(stored, list)
    sound = sound and all(isinstance(index, (str, dict)) for index in stored)
    if not sound:
        raise ValueError("its metadata of pandas name no index")
    columns = schema.names
    found = [index for index in stored if isinstance(index, dict) or index in columns]
    unnamed = [name for name in columns if _UNNAMED_INDEX.fullmatch(name)]
    return found + [name for name in unnamed if name not in found]


def _weight_use(edges: _Table, column: str) -> str:
    """Return the use of a column of weights, for the notes."""
    kind = pq.read_schema(edges.files[0]).field(column).type
    numbers = _is_number(kind)
    if not numbers:
        return "edge weights"
    return numbers_use("edge weights", kind.to_pandas_dtype())


def _check_order(nodes: _Table) -> None:
    """Check that rows are in the order of the node ids, which a column of ids or the
    index of a pandas frame gives; raises InputError where they are not."""
    if (column := nodes.column(_ID, _IDS_USE)) is not None:
        fix = (
            f"sort the nodes by {column}, without gaps or repeats, or drop it if it is "
            "no node id"
        )
        _check_counting(nodes, column, f"column {column}", fix)
        return
    fix = (
        "write frame.sort_index() if the index is the node id, "
        "frame.reset_index(drop=True) if the rows are in order"
    )
    several = next((index for index in nodes.indexes if len(index) > 1), [])
    fault = f"{nodes.name} has an index of {len(several)} levels"
    require(not several, fault, "write frame.reset_index(drop=True)")
    columns = {
        index[0] for index in nodes.indexes if index and isinstance(index[0], str)
    }
    fault = f"parts of {nodes.name} have indexes {' and '.join(sorted(columns))}"
    require(len(columns) < 2, fault, fix)
    for column in columns:
        nodes.column((column,), "node ids, the index of a frame")
        _check_counting(nodes, column, f"the index, {column},", fix)
    done = 0
    for file, index in zip(nodes.files, nodes.indexes, strict=True):
        rows = pq.read_metadata(file).num_rows
        for stored in index if not columns else ():
            # A part that counts from 0 by itself has no index of its own: the order of
            # parts is that of the nodes.
            rises = stored.get("step") == 1 or rows < 2
            counts = rises and stored.get("start") in (0, done)
            fault = (
                f"the index of {file} is {stored.get('start')}, ... by "
                f"{stored.get('step')}, not 0, 1, ..."
            )
            require(counts, fault, fix)
        done += rows


def _check_unread(nodes: _Table) -> None:
    """Raise InputError where no column of ids is known and an unread column holds each
    number from 0 once, in another order: ids under another name, such as an index that
    became a column. Two nodes are too few to decide."""
    ordered = nodes.rows <= _FEW or _IDS_USE in nodes.uses.values()
    for column in () if ordered else nodes.unread():
        fault = (
            f"column {column} of {nodes.name} holds each number from 0 once, in "
            "another order than the rows"
        )
        fix = f"sort the nodes by {column} if it is the node id, else drop this column"
        require(not _is_shuffled(nodes, column), fault, fix)


def _is_shuffled(nodes: _Table, column: str) -> bool:
    """Return whether a column holds the numbers from 0 to N - 1, each once, in another
    order than that of the rows."""
    found = np.zeros(nodes.rows, dtype=bool)
    done = 0
    ordered = True
    for batch in nodes.batches([column], EDGES_A_CHUNK):
        array = batch.column(column)
        numbers = _is_number(array.type)
        if not numbers or array.null_count:
            return False
        values = array.to_numpy(zero_copy_only=False)
        if not ((values >= 0) & (values < nodes.rows)).all():
            return False
        ids = values.astype(np.int64)
        if not np.array_equal(ids, values):
            return False
        found[ids] = True
        ordered = ordered and np.array_equal(ids, np.arange(done, done + len(ids)))
        done += len(ids)
    return bool(found.all()) and not ordered


def _check_counting(nodes: _Table, column: str, what: str, fix: str) -> None:
    done = 0
    for batch in nodes.batches([column], EDGES_A_CHUNK):
        array = batch.column(column)
        whole = pa.types.is_integer(array.type) and array.null_count == 0
        fault = f"{what} of {nodes.name} is {array.type} with {array.null_count} nulls"
        require(whole, fault, fix)
        ids = array.to_numpy(zero_copy_only=False)
        ordered = np.array_equal(ids, np.arange(done, done + len(ids)))
        fault = f"{what} of {nodes.name} does not count from 0"
        require(ordered, fault, fix)
        done += len(ids)


def _features(nodes: _Table) -> FeatureRows | None:
    """Stream the feature rows, lists of equal length."""
    if (column := nodes.column(FEATURES, "features")) is None:
        return None
    first = next(nodes.batches([column], 1)).column(column)
    kind = first.type
    lists = (
        pa.types.is_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_large_list(kind)
    )
    numbers = lists and _is_number(kind.value_type)
    fault = f"column {column} of {nodes.name} is {kind}"
    require(numbers and first.null_count == 0, fault, "give lists of numbers")
    dim = len(first[0])
    fault = f"column {column} of {nodes.name} begins with an empty list"
    require(dim > 0, fault, "give lists of numbers")

    def rows(count: int) -> Iterator[Array]:
        for batch in nodes.batches([column], count):
            lists = batch.column(column)
            values = lists.flatten()

            equal = lists.type == kind
            if equal and not pa.types.is_fixed_size_list(kind):
                lengths = np.diff(lists.offsets.to_numpy())
                equal = bool((lengths == dim).all())
            nulls = lists.null_count + values.null_count
            sound = equal and nulls == 0 and len(values) == dim * len(lists)
            fault = (
                f"column {column} of {nodes.name} has lists of unequal length or type, "
                "or nulls"
            )
            fix = f"give {dim} each"
            require(sound, fault, fix)
            yield values.to_numpy(zero_copy_only=False).reshape(-1, dim)

    numbers_type = kind.value_type.to_pandas_dtype()
    features = feature_source((nodes.rows, dim), numbers_type, rows)
    nodes.uses[column] = features_use(features, numbers_type)
    return features


def _labels(nodes: _Table) -> tuple[Int64Array | None, int]:
    if (column := nodes.column(LABELS, "labels")) is None:
        return None, 0
    parts: list[Int64Array] = []
    classes = 0
    for batch in nodes.batches([column], EDGES_A_CHUNK):
        array = batch.column(column)
        fault = f"column {column} of {nodes.name} is {array.type}"
        require(pa.types.is_integer(array.type), fault, "give class numbers")
        labels = np.full(len(array), -1, dtype=np.int64)
        known = array.is_valid().to_numpy(zero_copy_only=False)
        values = array.drop_null().to_numpy(zero_copy_only=False)
        what = f"column {column} of {nodes.name}"
        labels[known], found = clean_labels(values, len(values), what)
        parts = [*parts, labels]
        classes = max(classes, found)
    return np.concatenate(parts), classes


def _splits(nodes: _Table) -> SplitIds | None:
    if (column := nodes.column(_SPLIT, "split")) is None:
        return _masks(nodes)
    found: dict[str, list[Array]] = {part: [] for part in ("train", "valid", "test")}
    done = 0
    for batch in nodes.batches([column], EDGES_A_CHUNK):
        words = batch.column(column)
        if pa.types.is_dictionary(words.type):
            kind = words.type.value_type
        else:
            kind = words.type
        text = (
            pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
            or pa.types.is_null(kind)
        )
        fix = "give train, valid or test, or null"
        fault = f"column {column} of {nodes.name} is {words.type}"
        require(text, fault, fix)
        words = words.dictionary_encode()
        places = words.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for code, word in enumerate(words.dictionary.to_pylist()):
            fault = f"column {column} of {nodes.name} holds {word!r}"
            require(word in _SPLITS or not word, fault, fix)
            if word in _SPLITS:
                found[_SPLITS[word]].append(done + np.flatnonzero(places == code))
        done += len(batch)
    return {part: np.concatenate([NO_IDS, *ids]) for part, ids in found.items()}


def _masks(nodes: _Table) -> SplitIds | None:
    """Return the splits that columns of masks give, None without such columns."""
    columns = {
        part: nodes.column(names, f"{part} mask") for part, names in _MASKS.items()
    }
    if not any(columns.values()):
        return None
    return {
        part: NO_IDS if column is None else _mask(nodes, column)
        for part, column in columns.items()
    }


def _mask(nodes: _Table, column: str) -> Int64Array:
    parts: list[Int64Array] = []
    done = 0
    for batch in nodes.batches([column], EDGES_A_CHUNK):
        array = batch.column(column)
        fault = (
            f"column {column} of {nodes.name} is {array.type} with {array.null_count} "
            "nulls"
        )
        kind = pa.types.is_boolean(array.type) or pa.types.is_integer(array.type)
        valid = kind and array.null_count == 0
        require(valid, fault, "give true or false for every node")
        values = array.to_numpy(zero_copy_only=False)
        flags = bool(((values == 0) | (values == 1)).all())
        fault = f"column {column} of {nodes.name} holds more than 0 and 1"
        require(flags, fault, "give true or false for every node")
        parts.append(done + np.flatnonzero(values))
        done += len(values)
    return np.concatenate([NO_IDS, *parts])
