"""IGB's homogeneous folders: papers and citations, with 19 or 2983 classes, split
60/20/20 in node order."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from workloads.arraytypes import Array
from workloads.errors import DatasetError, InputError, require
from workloads.importers.seen import edges_use, features_use, files_in, seen
from workloads.importers.source import (
    GraphSource,
    ImportOptions,
    clean_labels,
    edge_array_source,
    folders,
    load_array,
    reading,
    table_source,
)

_LABEL_FILES = {19: "node_label_19.npy", 2983: "node_label_2K.npy"}
# the width of the tables that are published without a header (large, full)
_RAW_DIM = 1024
# The full set has labels for its first nodes only; the file has a value for every node.
# Its loader counts 157,675,969 papers with one of 2983 classes; from 153,383,374 on all
# are class 0, which its author calls padding (IGB-Datasets, issue 57). Split in node
# order, that is 13.6 % of the test nodes.
LABELLED = {
    (269_346_174, 19): {"author": 227_130_858, "loader": 227_130_858},
    (269_346_174, 2983): {"author": 153_383_374, "loader": 157_675_969},
}


def open_igb(path: Path, options: ImportOptions) -> GraphSource:
    """Read IGB's homogeneous graph of one size, from its folder or from a folder around
    it alone.

    The layout is
    `<size>/processed/paper/{node_feat.npy, node_label_19.npy, node_label_2K.npy}` and
    `<size>/processed/paper__cites__paper/edge_index.npy` ([E, 2], source and
    destination). The tables of `large` and `full` carry no npy header (float32, 1024
    columns; labels float32); both kinds are read. `options.classes` chooses the labels,
    19 (default) or 2983, and `options.labelled` the source of their number. Raises
    DatasetError where files are missing or damaged, InputError for another layout or
    other `classes`.
    """
    folder = _find(path)
    classes = options.classes or 19
    fault = f"--classes is {classes}, and IGB has labels of 19 or 2983 classes"
    require(classes in _LABEL_FILES, fault, "give --classes 19 or 2983")
    feature_file = folder / "paper" / "node_feat.npy"
    table = _table(feature_file, _RAW_DIM)
    features = table_source(table, str(feature_file))
    num_nodes = features.num_rows
    label_file = folder / "paper" / _LABEL_FILES[classes]
    labels, found = clean_labels(_table(label_file, 0), num_nodes, str(label_file))
    notes = ["split 60/20/20 in node order, as IGB's loader does"]
    if counts := LABELLED.get((num_nodes, classes)):
        labels[counts[options.labelled] :] = -1
        notes.append(_labelled_note(counts, options.labelled))
    edges_file = folder / "paper__cites__paper" / "edge_index.npy"
    pairs = load_array(edges_file)
    edges = edge_array_source(pairs, str(edges_file), columns=True)
    uses = {
        edges_file: edges_use(pairs.shape, columns=True),
        feature_file: features_use(features, table.dtype),
        label_file: "labels",
    }
    used_files = {str(file.relative_to(path)): use for file, use in uses.items()}
    notes += seen("files", used_files, files_in(path))
    known = np.flatnonzero(labels >= 0)
    train = int(known.shape[0] * 0.6)
    valid = int(known.shape[0] * 0.2)
    splits = {
        "train": known[:train],
        "valid": known[train : train + valid],
        "test": known[train + valid :],
    }
    num_classes = max(classes, found)
    return GraphSource(
        num_nodes,
        edges,
        features,
        labels,
        num_classes,
        splits,
        False,
        notes,
        edges_name=str(edges_file),
    )


def _labelled_note(counts: dict[str, int], whose: str) -> str:
    """Describe the number of labelled papers by the author's and the loader's count."""
    note = f"the first {counts[whose]} papers are labelled"
    if len(set(counts.values())) == 1:
        return note
    if whose == "author":
        loader = counts["loader"]
        count = (
            f"by the author's count (IGB's loader counts {loader}, padding of class 0"
        )
        return f"{note}, {count} among them)"
    padding = counts["loader"] - counts["author"]
    author = counts["author"]
    count = f"by the count of IGB's loader, {padding} of them padding of class 0"
    return f"{note}, {count} (the author counts {author})"


def _find(path: Path) -> Path:
    if (path / "paper").is_dir():
        return path
    found = [
        folder for folder in folders(path) if (folder / "processed" / "paper").is_dir()
    ]
    if len(found) > 1:
        names = ", ".join(folder.name for folder in found)
        fault = f"{path} holds several sizes ({names})"
        raise InputError(fault, "give one of these folders")
    require(
        found,
        f"{path} is not an IGB folder (it holds no processed/paper)",
        "give the folder of one size",
    )
    return found[0] / "processed"


def _table(path: Path, raw_dim: int) -> Array:
    """Map a table with or without npy header; without one it is float32 with `raw_dim`
    columns (0: flat)."""
    with (
        reading(path, "cannot be read", missing="check that the download is whole"),
        path.open("rb") as file,
    ):
        has_header = file.read(6) == b"\x93NUMPY"
    if has_header:
        return load_array(path)
    size = path.stat().st_size
    width = 4 * max(1, raw_dim)
    if size == 0 or size % width:
        fault = f"{path} is truncated: {size} bytes are no whole rows of {width}"
        raise DatasetError(fault, "download it again")
    shape = (size // width, raw_dim) if raw_dim else (size // width,)
    return np.memmap(path, dtype=np.float32, mode="r", shape=shape)
