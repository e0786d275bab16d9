"""`.npz` graphs in the layout of Shchur et al.'s GNN benchmark sets: `adj_*`, `attr_*`
and `labels`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from workloads.arraytypes import Array
from workloads.errors import InputError, require
from workloads.importers.seen import (
    FEATURES,
    LABELS,
    SPLITS,
    Uses,
    features_use,
    numbers_use,
    one_of,
    seen,
)
from workloads.importers.source import (
    EDGES_A_CHUNK,
    Arrays,
    EdgeChunk,
    FeatureRows,
    GraphSource,
    ImportOptions,
    SplitIds,
    clean_labels,
    feature_source,
    reading,
    reason_of,
    split_ids,
    split_use,
    table_source,
    weight_source,
)

_ADJACENCY = ("adj_indices", "adj_indptr", "adj_shape")
_ATTRIBUTES = ("attr_data", "attr_indices", "attr_indptr", "attr_shape")
_DENSE = (*FEATURES, "attr_matrix")
_SPLITS = [name for names in SPLITS.values() for name in names]
#: Arrays that are read; others may hold Python objects, such as names of nodes.
_KNOWN = (*_ADJACENCY, "adj_data", *_ATTRIBUTES, *_DENSE, *LABELS, *_SPLITS)


def open_npz(path: Path, options: ImportOptions) -> GraphSource:
    """Read a graph whose adjacency is a CSR matrix: an entry in row u and column v is
    the edge u -> v.

    Optional are weights (`adj_data`, unless all are one; entries of weight zero are no
    edges), features (`attr_data`, `attr_indices`, `attr_indptr` and `attr_shape`, a
    sparse matrix that is written dense; or `x` [N, D]), labels (`y` or `labels`), and
    splits as masks or ids; other usual names are known too, and notes name every array.
    Raises DatasetError where the file is missing or truncated, InputError where arrays
    are missing, do not fit together, or hold Python objects.
    """
    arrays, present = _load(path)
    missing = [name for name in _ADJACENCY if name not in arrays]
    layout = "the layout is adj_data, adj_indices, adj_indptr, adj_shape"
    layout = "read it by --format pyg" if "edge_index" in present else layout
    fault = f"{path} holds no {', '.join(missing)}"
    require(not missing, fault, layout)
    adjacency = _csr(arrays, "adj", path)
    num_nodes = adjacency.shape[0]
    if adjacency.shape[0] != adjacency.shape[1] or num_nodes == 0:
        fault = f"{path}: adj_shape is {adjacency.shape}, not that of a graph"
        raise InputError(fault)
    notes: list[str] = []
    uses = dict.fromkeys(_ADJACENCY, "edges")
    zeros = int(adjacency.nnz - np.count_nonzero(adjacency.data))
    if zeros:
        adjacency.eliminate_zeros()
        notes.append(f"{zeros} entries of weight zero left out")

    def edges() -> Iterator[EdgeChunk]:
        for start in range(0, adjacency.nnz, EDGES_A_CHUNK):
            stop = min(adjacency.nnz, start + EDGES_A_CHUNK)
            numbers = np.arange(start, stop)
            source = np.searchsorted(adjacency.indptr, numbers, side="right") - 1
            yield source, adjacency.indices[start:stop]

    weighted = bool((adjacency.data != 1).any())
    if "adj_data" in arrays:
        one = "edges, all of weight one"
        if weighted:
            uses["adj_data"] = numbers_use("edge weights", arrays["adj_data"].dtype)
        else:
            uses["adj_data"] = one
    features = _features(arrays, num_nodes, path, uses)
    labels = None
    num_classes = 0
    if name := one_of(LABELS, arrays, str(path)):
        labels, num_classes = clean_labels(
            arrays[name], num_nodes, f"{name} of {path.name}"
        )
        uses[name] = "labels"
    splits = _splits(arrays, num_nodes, path, uses)
    notes += seen(f"arrays of {path.name}", uses, present)
    weights = None
    if weighted:
        weights = weight_source(adjacency.data, adjacency.nnz, f"adj_data of {path}")
    return GraphSource(
        num_nodes,
        edges,
        features,
        labels,
        num_classes,
        splits,
        notes=notes,
        edge_weights=weights,
    )


def _features(
    arrays: Arrays, num_nodes: int, path: Path, uses: Uses
) -> FeatureRows | None:
    """Return the features, if there are any, and enter their arrays in `uses`."""
    sparse = [name for name in arrays if name in _ATTRIBUTES]
    dense = one_of(_DENSE, arrays, str(path))
    fault = f"{path} holds {dense} and {', '.join(sparse)}, which mean the same"
    require(not (sparse and dense), fault, "remove one of them")
    if sparse:
        attributes = _csr(arrays, "attr", path)
        kept = arrays["attr_data"].dtype if "attr_data" in arrays else attributes.dtype

        def rows_of(rows: int) -> Iterator[Array]:
            for at in range(0, num_nodes, rows):
                yield attributes[at : at + rows].toarray()

        features = feature_source(attributes.shape, kept, rows_of)
        whose = "attr_shape"
        whole = "attr_data"
    elif dense:
        kept = arrays[dense].dtype
        features = table_source(arrays[dense], f"{dense} of {path}")
        whose = whole = dense
    else:
        return None
    fault = f"{path}: {whose} has {features.num_rows} rows for {num_nodes} nodes"
    require(features.num_rows == num_nodes, fault, "give a row for each node")
    uses |= dict.fromkeys(sparse, "features")
    if whole in arrays:
        uses[whole] = features_use(features, kept)
    return features


def _splits(arrays: Arrays, num_nodes: int, path: Path, uses: Uses) -> SplitIds | None:
    """Return the splits, None where there is none, and enter their arrays in `uses`."""
    names = {part: one_of(known, arrays, str(path)) for part, known in SPLITS.items()}
    if not any(names.values()):
        return None
    splits: SplitIds = {}
    for part, name in names.items():
        chosen = arrays[name] if name else None
        splits[part] = split_ids(
            chosen, num_nodes, f"{name} of {path.name}", name or ""
        )
        if name is not None and chosen is not None:
            uses[name] = split_use(part, chosen, num_nodes, name)
    return splits


def _load(path: Path) -> tuple[Arrays, list[str]]:
    """Return the arrays with a known name, and the names of all."""
    try:
        with (
            reading(path, "is no whole .npz file"),
            np.load(path, allow_pickle=False) as file,
        ):
            return {name: file[name] for name in file.files if name in _KNOWN}, list(
                file.files
            )
    except (
        ValueError,
        AttributeError,
        TypeError,
    ) as error:  # the last: an .npy file that was renamed
        fault = f"{path} holds more than plain arrays ({reason_of(error)})"
        raise InputError(fault, "save it without Python objects") from None


def _csr(arrays: Arrays, name: str, path: Path) -> sp.csr_matrix:
    try:
        indices, indptr, shape = (
            arrays[f"{name}_{part}"] for part in ("indices", "indptr", "shape")
        )
    except KeyError as error:
        fault = f"{path}: the matrix {name}_* is not whole ({reason_of(error)})"
        raise InputError(fault, "it needs data, indices, indptr, shape") from None
    fault = (
        f"{path}: {name}_shape holds {shape.dtype} {shape.ravel()[:3]}, not two "
        "integers"
    )
    valid = shape.dtype.kind in "iu" and shape.shape == (2,)
    require(valid, fault, "save the rows and columns of the matrix")
    rows, columns = (int(size) for size in shape)
    data = arrays.get(f"{name}_data", np.ones(indices.shape, dtype=np.float32))
    whole = indices.dtype.kind in "iu" and indptr.dtype.kind in "iu"
    shaped = rows > 0 and indptr.shape == (rows + 1,) and indices.ndim == 1
    sound = whole and shaped and data.dtype.kind in "fiub"
    sound = sound and data.shape == indices.shape
    if sound:
        rises = bool((indptr[1:] >= indptr[:-1]).all())
        ends = int(indptr[0]) == 0 and int(indptr[-1]) == indices.shape[0]
        sound = rises and ends
    if sound and indices.shape[0]:
        sound = int(indices.min()) >= 0 and int(indices.max()) < columns
    fault = f"{path}: the arrays {name}_* do not make a {rows} x {columns} matrix"
    require(sound, fault, "download it again")
    # scipy has no float16, and takes no other byte order.
    native = [
        part.astype(part.dtype.newbyteorder("="), copy=False)
        for part in (data, indices, indptr)
    ]
    native[0] = native[0].astype(np.promote_types(data.dtype, np.float32), copy=False)
    return sp.csr_matrix(tuple(native), shape=(rows, columns))
