"""OGB folders in three layouts: text (arxiv, products), binary (papers100M), and LSC
(MAG240M).

The arrays of papers100M's `.npz` file exceed memory, so they are read as streams.
"""

from __future__ import annotations

import csv
import pickle
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workloads.arraytypes import Array, Int64Array
from workloads.errors import DatasetError, InputError, require
from workloads.importers.edge_text import edge_chunks
from workloads.importers.npz_member import NpzMember, member_names
from workloads.importers.packed import DAMAGE, unpacked
from workloads.importers.seen import edges_use, features_use, files_in, seen
from workloads.importers.source import (
    TORCH_DAMAGE,
    GraphSource,
    ImportOptions,
    SplitIds,
    as_array,
    clean_labels,
    count_of,
    edge_array_source,
    feature_source,
    folders,
    load_array,
    reading,
    reason_of,
    table_source,
)
from workloads.manifest import MAX_NODES

# Datasets whose stored edges stand for both directions, by OGB's own list; their
# folders do not record it.
_STORED_ONCE = ("products", "proteins")
_CITES = "paper___cites___paper"


def open_ogb(path: Path, options: ImportOptions) -> GraphSource:
    """Read an OGB dataset's folder (or a folder that holds only it).

    Layouts: `raw/edge.csv.gz`, `node-feat.csv.gz`, `node-label.csv.gz`,
    `num-node-list.csv.gz`; or `raw/data.npz` with `edge_index` and `node_feat`, and
    `raw/node-label.npz`; each with `split/<scheme>/{train,valid,test}.csv.gz` (or
    `split_dict.pt`). Or `processed/paper/node_feat.npy`, `node_label.npy` and
    `processed/paper___cites___paper/edge_index.npy` with `split_dict.pt`. Raises
    DatasetError where files are missing, truncated or corrupted, InputError for another
    layout or a task other than node classification on one graph.
    """
    for folder in folders(path):
        if (folder / "raw" / "edge.csv.gz").is_file():
            return _text_layout(folder, options)
        if (folder / "raw" / "data.npz").is_file():
            return _binary_layout(folder)
        if (folder / "processed" / "paper").is_dir() and (
            folder / "processed" / _CITES
        ).is_dir():
            return _lsc_layout(folder)
    fault = (
        f"{path} has none of OGB's layouts (raw/edge.csv.gz, raw/data.npz, "
        f"processed/{_CITES})"
    )
    raise InputError(fault, "give the unpacked folder of one dataset")


def _text_layout(folder: Path, options: ImportOptions) -> GraphSource:
    raw = folder / "raw"
    num_nodes = _only(_csv(raw / "num-node-list.csv.gz"), folder)

    edge_file = raw / "edge.csv.gz"

    edges = partial(edge_chunks, edge_file)
    features = None
    feature_file = raw / "node-feat.csv.gz"
    if feature_file.is_file():
        first = next(_frames(feature_file, 1, np.float32), None)
        if first is None:
            raise DatasetError(f"{feature_file} holds no features", "download it again")
        shape = (num_nodes, first.shape[1])
        features = feature_source(
            shape, np.float32, lambda rows: _frames(feature_file, rows, np.float32)
        )
    label_file = raw / "node-label.csv.gz"
    labels, num_classes = clean_labels(_csv(label_file), num_nodes, str(label_file))
    splits, notes, uses = _splits(folder)
    uses |= {
        raw / "num-node-list.csv.gz": "number of nodes",
        edge_file: "edges",
        label_file: "labels",
    }
    if features is not None:
        uses[feature_file] = "features"
    notes += _files_seen(folder, uses)
    symmetric = any(name in folder.resolve().name for name in _STORED_ONCE)
    return GraphSource(
        num_nodes,
        edges,
        features,
        labels,
        num_classes,
        splits,
        symmetric,
        notes,
        edges_name=str(edge_file),
    )


def _binary_layout(folder: Path) -> GraphSource:
    data = folder / "raw" / "data.npz"
    names = member_names(data)
    edge_index = NpzMember(data, "edge_index")
    edges = edge_index.edges()
    members = {
        "edge_index": edges_use(edge_index.shape),
        "num_nodes_list": "number of nodes",
    }
    num_nodes = _only(NpzMember(data, "num_nodes_list").load(), data)

    features = None
    if "node_feat" in names:
        member = NpzMember(data, "node_feat")
        if len(member.shape) != 2 or member.shape[0] != num_nodes:
            fault = (
                f"node_feat of {data} has shape {member.shape} for {num_nodes} nodes"
            )
            raise InputError(fault, "give a row for each node")
        features = member.features()
        members["node_feat"] = features_use(features, member.dtype)
    label_file = folder / "raw" / "node-label.npz"
    labels, num_classes = clean_labels(
        NpzMember(label_file, "node_label").load(), num_nodes, str(label_file)
    )
    splits, notes, uses = _splits(folder)
    uses |= {data: "a graph", label_file: "labels"}
    notes += [
        *seen(f"arrays of {data.name}", members, names),
        *_files_seen(folder, uses),
    ]
    return GraphSource(
        num_nodes,
        edges,
        features,
        labels,
        num_classes,
        splits,
        False,
        notes,
        edges_name=f"edge_index of {data}",
    )


def _lsc_layout(folder: Path) -> GraphSource:
    processed = folder / "processed"
    feature_file = processed / "paper" / "node_feat.npy"
    table = load_array(feature_file)
    features = table_source(table, str(feature_file))
    label_file = processed / "paper" / "node_label.npy"
    labels, num_classes = clean_labels(
        load_array(label_file), features.num_rows, str(label_file)
    )
    edge_file = processed / _CITES / "edge_index.npy"
    edge_index = load_array(edge_file)
    edges = edge_array_source(edge_index, str(edge_file), columns=False)
    split_file = folder / "split_dict.pt"
    splits = _load_splits(split_file)
    notes = ["papers and citations only; authors and institutions are left out"]
    uses = {
        edge_file: edges_use(edge_index.shape),
        feature_file: features_use(features, table.dtype),
        label_file: "labels",
        split_file: "splits",
    }
    notes += _files_seen(folder, uses)
    return GraphSource(
        features.num_rows,
        edges,
        features,
        labels,
        num_classes,
        splits,
        False,
        notes,
        edges_name=str(edge_file),
    )


def _only(counts: Array, path: Path) -> int:
    """Return the number of nodes of the only graph."""
    if counts.size != 1:
        fault = f"{path} holds {counts.size} graphs"
        raise InputError(fault, "only node classification on one graph is supported")
    return count_of(counts, MAX_NODES, f"the number of nodes of {path}")


def _files_seen(folder: Path, uses: dict[Path, str]) -> list[str]:
    """Return the notes of the folder's files, read or left out."""
    return seen(
        "files",
        {str(file.relative_to(folder)): use for file, use in uses.items()},
        files_in(folder),
    )


def _splits(folder: Path) -> tuple[SplitIds | None, list[str], dict[Path, str]]:
    """Read the folder's only split scheme (`sales_ranking`, `time`, ...); return its
    splits, its note for the manifest, and its files with their use."""
    schemes = sorted(child for child in (folder / "split").glob("*") if child.is_dir())
    if not schemes:
        return None, [], {}
    fault = f"{folder / 'split'} holds {len(schemes)} split schemes"
    require(len(schemes) <= 1, fault, "keep a single scheme there")
    notes = [f"split {schemes[0].name}"]
    whole = schemes[0] / "split_dict.pt"
    if whole.is_file():
        return _load_splits(whole), notes, {whole: "splits"}
    files = {part: schemes[0] / f"{part}.csv.gz" for part in ("train", "valid", "test")}
    splits = {part: _ids(file) for part, file in files.items()}
    return splits, notes, {file: f"{part} ids" for part, file in files.items()}


def _frames(path: Path, rows: int, dtype: type[np.generic]) -> Iterator[Array]:
    """Yield a table of numbers, [rows, columns]; a quote is no sign of its own, so that
    none joins lines."""
    try:
        with (
            reading(path, "is truncated or corrupted", DAMAGE),
            path.open("rb", buffering=0) as raw,
        ):
            text = unpacked(raw, path)
            for frame in pd.read_csv(
                text,
                header=None,
                dtype=dtype,
                chunksize=rows,
                quoting=csv.QUOTE_NONE,
                engine="c",
            ):
                # a cell without a number, or a line without the cell
                if frame.iloc[:, -1].isna().any():
                    _check_widths(path, frame.shape[1])
                yield frame.to_numpy()
    except pd.errors.EmptyDataError:
        return
    except (ValueError, OverflowError, pd.errors.ParserError) as error:
        fault = f"{path} is not a table of numbers ({reason_of(error)})"
        raise InputError(fault, "download it again") from None


def _check_widths(path: Path, columns: int) -> None:
    """Raise InputError where a line of a table has fewer cells than `columns`, which a
    reader fills."""
    with path.open("rb", buffering=0) as raw:
        for number, line in enumerate(unpacked(raw, path), 1):
            cells = line.count(b",") + 1
            fault = f"{path}, line {number} has {cells} of {columns} cells"
            require(cells == columns or not line.strip(), fault, "download it again")


def _csv(path: Path, dtype: type[np.generic] = np.float64) -> Array:
    """Read a small table of numbers (as float64: NaN where a cell is empty)."""
    parts = list(_frames(path, 1 << 20, dtype))
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)


def _ids(path: Path) -> Int64Array:
    """Read the ids of a split, an id a line, as digits: a number such as `7.0` or `1e3`
    is refused."""
    table = _csv(path, np.str_)
    columns = table.shape[1] if table.ndim == 2 else 1
    fault = f"{path} has {columns} columns of ids"
    require(columns == 1, fault, "give one id a line")
    words = table.reshape(-1)
    for word in words:
        fault = f"{path} is not a table of numbers: {str(word)[:60]!r} is no id"
        require(re.fullmatch("[0-9]{1,18}", str(word)), fault, "download it again")
    return words.astype(np.int64)


def _array_types() -> list[Any]:
    """List the types of pickled integer arrays: torch's list of harmless types lacks
    numpy's."""
    rebuild = np._core.multiarray._reconstruct  # type: ignore[attr-defined]
    numbers = [type(np.dtype(name)) for name in ("int64", "int32", "uint32", "uint64")]
    return [
        rebuild,
        (rebuild, "numpy.core.multiarray._reconstruct"),
        np.ndarray,
        np.dtype,
        *numbers,
    ]


def _load_splits(path: Path) -> SplitIds:
    """Load the ids of a `split_dict.pt` without running its code; OGB-LSC's test ids
    are `test`, or in later releases as below."""
    import torch  # late: it takes seconds and 200 MB, and other importers do without

    damage = (pickle.UnpicklingError, *TORCH_DAMAGE)
    with (
        reading(path, "cannot be read safely", damage),
        torch.serialization.safe_globals(_array_types()),
    ):
        content = torch.load(path, map_location="cpu", weights_only=True)
    fault = f"{path} holds no dictionary of splits"
    require(isinstance(content, dict), fault, "download it again", DatasetError)
    parts: dict[str, list[str]] = {"train": ["train"], "valid": ["valid"], "test": []}
    for names in (["test"], ["test-whole"], ["test-dev", "test-challenge"]):
        if all(name in content for name in names):
            parts["test"] = names
            break
    splits = {}
    for part, names in parts.items():
        if not names or any(name not in content for name in names):
            fault = f"{path} holds no {part} ids"
            raise DatasetError(fault, "download it again")
        arrays = [
            as_array(content[name], f"{name} of {path}").reshape(-1) for name in names
        ]
        whole = all(ids.dtype.kind in "iu" for ids in arrays)
        fault = f"{path} holds {part} ids that are no whole numbers"
        require(whole, fault, "download it again", DatasetError)
        splits[part] = np.concatenate(arrays).astype(np.int64)
    return splits
