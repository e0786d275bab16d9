"""`.npz` graphs in the layout of Shchur et al.'s GNN benchmark sets: `adj_*`, `attr_*` and `labels`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from workloads.errors import InputError, require
from workloads.importers.source import (
    EDGES_A_CHUNK,
    EdgeChunk,
    GraphSource,
    ImportOptions,
    clean_labels,
    feature_source,
    reading,
    reason_of,
)

_ADJACENCY = ("adj_indices", "adj_indptr", "adj_shape")


def open_npz(path: Path, options: ImportOptions) -> GraphSource:
    """Read a graph whose adjacency is a CSR matrix: an entry in row u and column v is the edge u -> v.

    `attr_data`, `attr_indices`, `attr_indptr` and `attr_shape` (a sparse feature matrix, written dense) and `labels`
    are optional. Weights (`adj_data`) are dropped; entries of weight zero are no edges. Raises DatasetError where the
    file is missing or truncated, InputError where arrays are missing, do not fit together, or hold Python objects.
    """
    arrays = _load(path)
    missing = [name for name in _ADJACENCY if name not in arrays]
    layout = "the layout is adj_data, adj_indices, adj_indptr, adj_shape"
    require(not missing, f"{path} holds no {', '.join(missing)}", layout)
    adjacency = _csr(arrays, "adj", path)
    num_nodes = adjacency.shape[0]
    if adjacency.shape[0] != adjacency.shape[1] or num_nodes == 0:
        raise InputError(f"{path}: adj_shape is {adjacency.shape}, not that of a graph")
    notes = []
    zeros = int(adjacency.nnz - np.count_nonzero(adjacency.data))
    if zeros:
        adjacency.eliminate_zeros()
        notes.append(f"{zeros} entries of weight zero left out")

    def edges() -> Iterator[EdgeChunk]:
        for start in range(0, adjacency.nnz, EDGES_A_CHUNK):
            stop = min(adjacency.nnz, start + EDGES_A_CHUNK)
            source = np.searchsorted(adjacency.indptr, np.arange(start, stop), side="right") - 1
            yield source, adjacency.indices[start:stop]

    features = None
    if any(name.startswith("attr_") for name in arrays):
        attributes = _csr(arrays, "attr", path)
        if attributes.shape[0] != num_nodes:
            raise InputError(f"{path}: attr_shape has {attributes.shape[0]} rows for {num_nodes} nodes")
        features = feature_source(
            attributes.shape,
            arrays["attr_data"].dtype if "attr_data" in arrays else attributes.dtype,
            lambda rows: (attributes[at : at + rows].toarray() for at in range(0, num_nodes, rows)),
        )
    labels, num_classes = (
        clean_labels(arrays["labels"], num_nodes, f"labels of {path.name}") if "labels" in arrays else (None, 0)
    )
    return GraphSource(num_nodes, edges, features, labels, num_classes, notes=notes)


def _load(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        with reading(path, "is no whole .npz file"), np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, AttributeError, TypeError) as error:  # the last: an .npy file that was renamed
        raise InputError(
            f"{path} holds more than plain arrays ({reason_of(error)})", "save it without Python objects"
        ) from None


def _csr(arrays: dict[str, npt.NDArray[Any]], name: str, path: Path) -> sp.csr_matrix:
    try:
        indices, indptr = arrays[f"{name}_indices"], arrays[f"{name}_indptr"]
        rows, columns = (int(size) for size in arrays[f"{name}_shape"])
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise InputError(
            f"{path}: the matrix {name}_* is not whole ({reason_of(error)})", "it needs data, indices, indptr, shape"
        ) from None
    data = arrays.get(f"{name}_data", np.ones(indices.shape, dtype=np.float32))
    sound = (
        indices.dtype.kind in "iu"
        and indptr.dtype.kind in "iu"
        and data.dtype.kind in "fiub"
        and rows > 0
        and indptr.shape == (rows + 1,)
        and indices.ndim == 1
        and data.shape == indices.shape
        and int(indptr[0]) == 0
        and int(indptr[-1]) == indices.shape[0]
        and bool((indptr[1:] >= indptr[:-1]).all())
        and (indices.shape[0] == 0 or (int(indices.min()) >= 0 and int(indices.max()) < columns))
    )
    require(sound, f"{path}: the arrays {name}_* do not make a {rows} x {columns} matrix", "download it again")
    # scipy has no float16, and takes no other byte order.
    native = [part.astype(part.dtype.newbyteorder("="), copy=False) for part in (data, indices, indptr)]
    native[0] = native[0].astype(np.promote_types(data.dtype, np.float32), copy=False)
    return sp.csr_matrix(tuple(native), shape=(rows, columns))
