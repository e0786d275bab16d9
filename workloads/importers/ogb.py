"""OGB folders in three layouts: text (arxiv, products), binary (papers100M), and LSC (MAG240M).

The arrays of papers100M's `.npz` file exceed memory, and a zip member cannot be mapped, so they are read as streams.
"""

from __future__ import annotations

import pickle
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workloads.errors import DatasetError, InputError, require
from workloads.importers.source import (
    EDGES_A_CHUNK,
    EdgeChunk,
    GraphSource,
    ImportOptions,
    IntArray,
    clean_labels,
    edge_array_source,
    feature_source,
    folders,
    load_array,
    reading,
    table_source,
)
from workloads.npyfile import read_header

# Datasets whose stored edges stand for both directions, from OGB's own list: the folder does not say so.
_STORED_ONCE = ("products", "proteins")
_CITES = "paper___cites___paper"
_NO_FILE = "is no whole .npz file"


def open_ogb(path: Path, options: ImportOptions) -> GraphSource:
    """Read an OGB dataset's folder (or a folder that holds only it).

    Layouts: `raw/edge.csv.gz`, `node-feat.csv.gz`, `node-label.csv.gz`, `num-node-list.csv.gz`; or `raw/data.npz` with
    `edge_index` and `node_feat`, and `raw/node-label.npz`; each with `split/<scheme>/{train,valid,test}.csv.gz` (or
    `split_dict.pt`). Or `processed/paper/node_feat.npy`, `node_label.npy` and
    `processed/paper___cites___paper/edge_index.npy` with `split_dict.pt`. Raises DatasetError where files are missing,
    truncated or corrupted, InputError for another layout or a task other than node classification on one graph.
    """
    for folder in folders(path):
        if (folder / "raw" / "edge.csv.gz").is_file():
            return _text_layout(folder, options)
        if (folder / "raw" / "data.npz").is_file():
            return _binary_layout(folder)
        if (folder / "processed" / "paper").is_dir() and (folder / "processed" / _CITES).is_dir():
            return _lsc_layout(folder)
    raise InputError(
        f"{path} has none of OGB's layouts (raw/edge.csv.gz, raw/data.npz, processed/{_CITES})",
        "give the unpacked folder of one dataset",
    )


def _text_layout(folder: Path, options: ImportOptions) -> GraphSource:
    raw = folder / "raw"
    num_nodes = _only(_csv(raw / "num-node-list.csv.gz").reshape(-1), folder)

    def edges() -> Iterator[EdgeChunk]:
        for frame in _frames(raw / "edge.csv.gz", EDGES_A_CHUNK, np.int64):
            require(frame.shape[1] == 2, f"{raw / 'edge.csv.gz'} has {frame.shape[1]} columns, not 2")
            yield frame[:, 0], frame[:, 1]

    features, feature_file = None, raw / "node-feat.csv.gz"
    if feature_file.is_file():
        shape = (num_nodes, next(_frames(feature_file, 1, np.float32)).shape[1])
        features = feature_source(shape, np.float32, lambda rows: _frames(feature_file, rows, np.float32))
    label_file = raw / "node-label.csv.gz"
    labels, num_classes = clean_labels(_csv(label_file), num_nodes, str(label_file))
    splits, notes = _splits(folder)
    symmetric = any(name in folder.resolve().name for name in _STORED_ONCE)
    return GraphSource(num_nodes, edges, features, labels, num_classes, splits, symmetric, notes)


def _binary_layout(folder: Path) -> GraphSource:
    data = folder / "raw" / "data.npz"
    names = member_names(data)
    edge_index = NpzMember(data, "edge_index")
    if len(edge_index.shape) != 2 or edge_index.shape[0] != 2:
        raise InputError(f"{data}: edge_index has shape {edge_index.shape}, not [2, E]")
    num_edges = edge_index.shape[1]
    num_nodes = _only(NpzMember(data, "num_nodes_list").load(), data)

    def edges() -> Iterator[EdgeChunk]:
        # All sources stand before all destinations, so the member is read twice, side by side.
        sources = edge_index.flat(EDGES_A_CHUNK, 0, num_edges)
        targets = edge_index.flat(EDGES_A_CHUNK, num_edges, 2 * num_edges)
        yield from zip(sources, targets, strict=True)

    features = None
    if "node_feat" in names:
        member = NpzMember(data, "node_feat")
        if len(member.shape) != 2 or member.shape[0] != num_nodes:
            raise InputError(f"node_feat has shape {member.shape} for {num_nodes} nodes")
        features = feature_source(member.shape, member.dtype, member.rows)
    label_file = folder / "raw" / "node-label.npz"
    labels, num_classes = clean_labels(NpzMember(label_file, "node_label").load(), num_nodes, str(label_file))
    splits, notes = _splits(folder)
    return GraphSource(num_nodes, edges, features, labels, num_classes, splits, False, notes)


def _lsc_layout(folder: Path) -> GraphSource:
    processed = folder / "processed"
    features = table_source(load_array(processed / "paper" / "node_feat.npy", "features"), "node_feat.npy")
    label_file = processed / "paper" / "node_label.npy"
    labels, num_classes = clean_labels(load_array(label_file, "labels"), features.num_rows, str(label_file))
    edge_index = load_array(processed / _CITES / "edge_index.npy", "edges")
    edges = edge_array_source(edge_index, "edge_index.npy", columns=False)
    splits = _load_splits(folder / "split_dict.pt")
    notes = ["papers and citations only; authors and institutions are left out"]
    return GraphSource(features.num_rows, edges, features, labels, num_classes, splits, False, notes)


def _only(counts: npt.NDArray[Any], path: Path) -> int:
    """Return the number of nodes of the only graph."""
    if counts.shape[0] != 1:
        raise InputError(f"{path} holds {counts.shape[0]} graphs", "only node classification on one graph is supported")
    return int(counts[0])


def _splits(folder: Path) -> tuple[dict[str, IntArray] | None, list[str]]:
    """Read the folder's only split scheme (`sales_ranking`, `time`, ...) and make its note for the manifest."""
    schemes = sorted(child for child in (folder / "split").glob("*") if child.is_dir())
    if not schemes:
        return None, []
    require(len(schemes) <= 1, f"{folder / 'split'} holds {len(schemes)} split schemes", "leave one of them there")
    if (schemes[0] / "split_dict.pt").is_file():
        return _load_splits(schemes[0] / "split_dict.pt"), [f"split {schemes[0].name}"]
    splits = {
        part: _csv(schemes[0] / f"{part}.csv.gz").reshape(-1).astype(np.int64) for part in ("train", "valid", "test")
    }
    return splits, [f"split {schemes[0].name}"]


def _frames(path: Path, rows: int, dtype: type[np.generic]) -> Iterator[npt.NDArray[Any]]:
    try:
        with reading(path, "is truncated or corrupted"):
            for frame in pd.read_csv(path, header=None, dtype=dtype, chunksize=rows, compression="gzip", engine="c"):
                yield frame.to_numpy()
    except pd.errors.EmptyDataError:
        return
    except (ValueError, pd.errors.ParserError) as error:
        raise InputError(f"{path} is not a table of numbers ({error})", "download it again") from None


def _csv(path: Path) -> npt.NDArray[Any]:
    """Read a small table of numbers as float64 (NaN where a cell is empty)."""
    parts = list(_frames(path, 1 << 20, np.float64))
    return np.concatenate(parts) if parts else np.empty(0)


def _array_types() -> list[Any]:
    """List the types of pickled integer arrays: torch's list of harmless types lacks numpy's."""
    rebuild = np._core.multiarray._reconstruct  # type: ignore[attr-defined]
    numbers = [type(np.dtype(name)) for name in ("int64", "int32", "uint32", "uint64")]
    return [rebuild, (rebuild, "numpy.core.multiarray._reconstruct"), np.ndarray, np.dtype, *numbers]


def _load_splits(path: Path) -> dict[str, npt.NDArray[np.int64]]:
    """Load the ids of a `split_dict.pt` without running its code; OGB-LSC's test ids are `test`, or in later releases
    as below."""
    import torch  # late: it takes seconds and 200 MB, and other importers do without

    damage = (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError)
    with reading(path, "cannot be read safely", damage), torch.serialization.safe_globals(_array_types()):
        content = torch.load(path, map_location="cpu", weights_only=True)
    require(isinstance(content, dict), f"{path} holds no dictionary of splits", "download it again", DatasetError)
    parts: dict[str, list[str]] = {"train": ["train"], "valid": ["valid"], "test": []}
    for names in (["test"], ["test-whole"], ["test-dev", "test-challenge"]):
        if all(name in content for name in names):
            parts["test"] = names
            break
    splits = {}
    for part, names in parts.items():
        if not names or any(name not in content for name in names):
            raise DatasetError(f"{path} holds no {part} ids", "download it again")
        splits[part] = np.concatenate([np.asarray(content[name]).reshape(-1) for name in names]).astype(np.int64)
    return splits


class NpzMember:
    """Array of an `.npz` file, read in order; `dtype` and `shape` are those of the whole array.

    Every call raises DatasetError where the file is missing, truncated or corrupted, and InputError where it holds no
    such array, or one in Fortran order or of Python objects.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, f"{path}: {name}.npy"
        self._member = f"{name}.npy"
        self._open().close()

    def rows(self, rows_a_chunk: int) -> Iterator[npt.NDArray[Any]]:
        """Yield all rows in chunks, as arrays [rows, ...]."""
        width = int(np.prod(self.shape[1:], dtype=np.int64))
        for part in self.flat(rows_a_chunk * width, 0, self.shape[0] * width):
            yield part.reshape(-1, *self.shape[1:])

    def load(self) -> npt.NDArray[Any]:
        """Return the whole array."""
        return next(self.rows(max(1, self.shape[0])), np.empty(self.shape, dtype=self.dtype))

    def flat(self, elements_a_chunk: int, first: int, last: int) -> Iterator[npt.NDArray[Any]]:
        """Yield elements `first` to `last` of the array in C order, in chunks; earlier ones are read and dropped."""
        with self._open() as file, reading(self._name, "is damaged"):
            skip = first * self.dtype.itemsize  # read rather than seek, so that the checksum at the end is compared
            while skip and (data := file.read(min(skip, 8 << 20))):
                skip -= len(data)
            for start in range(first, last, elements_a_chunk):
                count = min(elements_a_chunk, last - start) * self.dtype.itemsize
                data = file.read(count)
                if len(data) < count:
                    raise DatasetError(f"{self._name} is truncated", "download it again")
                yield np.frombuffer(data, dtype=self.dtype)

    def _open(self) -> IO[bytes]:
        """Open the array behind its header."""
        try:
            # Closing the archive leaves the member's own handle open until the member is closed.
            with reading(self._path, _NO_FILE), zipfile.ZipFile(self._path) as archive:
                file = archive.open(self._member)
        except KeyError:
            raise InputError(f"{self._path} holds no {self._member[:-4]}", "is it another dataset?") from None
        try:
            with reading(self._name, "is damaged", (ValueError, EOFError, zipfile.BadZipFile, zlib.error)):
                self.dtype, self.shape = read_header(file)
        except TypeError:
            raise InputError(f"{self._name} is not a plain array in C order") from None
        return file


def member_names(path: Path) -> list[str]:
    """List the arrays in an `.npz` file; raises DatasetError where the file is missing or no zip file."""
    with reading(path, _NO_FILE), zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]
