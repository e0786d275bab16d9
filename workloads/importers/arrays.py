"""Folders of arrays, `NAME.npy` or `NAME.pt` each, under the names of PyG's `Data` or of neighbour lists in CSC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.errors import InputError, require
from workloads.importers.source import (
    EDGES_A_CHUNK,
    GraphSource,
    ImportOptions,
    IntArray,
    check_csc,
    clean_labels,
    csc_edges,
    edge_array_source,
    load_array,
    reading,
    table_source,
)

Array = npt.NDArray[Any]
_NAMES = {
    "edges": ("edge_index",),
    "indptr": ("indptr", "colptr"),
    "indices": ("indices", "row"),
    "features": ("x", "features", "feat"),
    "labels": ("y", "labels", "label"),
    "weights": ("edge_weight",),
    "train": ("train_mask", "train", "train_idx"),
    "valid": ("val_mask", "valid", "val", "valid_idx", "val_idx"),
    "test": ("test_mask", "test", "test_idx"),
}


def open_arrays(path: Path, options: ImportOptions) -> GraphSource:
    """Read a folder of `.npy` files or of tensors that `torch.save` wrote; they are mapped, so they may exceed memory.

    Edges: `edge_index` [2, E] (source above destination), or `indptr` [N + 1] and `indices` [E], each node's
    in-neighbours. Features `x` [N, D], labels `y` [N], a split as mask [N] or as ids, `edge_weight` [E]; other usual
    names are known too. Raises DatasetError where a file is damaged, InputError where edges are missing or arrays
    contradict each other.
    """
    require(path.is_dir(), f"{path} is no folder", "give the folder of the .npy or .pt files")
    files = {file.stem: file for file in sorted(path.iterdir()) if file.suffix in (".npy", ".pt")}
    found: dict[str, Array] = {}
    for part, names in _NAMES.items():
        there = [name for name in names if name in files]
        require(len(there) < 2, f"{path} holds {' and '.join(there)}, which mean the same", "remove all but one")
        if there:
            found[part] = _mapped(files[there[0]])
    if "edges" in found:
        edges = edge_array_source(found["edges"], f"edge_index of {path}", columns=False)
        num_edges, num_nodes = found["edges"].shape[1], 0
    elif "indptr" in found and "indices" in found:
        num_nodes = check_csc(found["indptr"], found["indices"], str(path))
        edges, num_edges = csc_edges(found["indptr"], found["indices"]), len(found["indices"])
    else:
        raise InputError(f"{path} holds no edges", "give edge_index, or indptr and indices, as .npy or .pt files")
    features = table_source(found["features"], f"features of {path}") if "features" in found else None
    num_nodes = num_nodes or (features.num_rows if features else len(found.get("labels", ())))
    if not num_nodes:
        num_nodes = 1 + max((int(max(part.max() for part in chunk)) for chunk in edges()), default=-1)
    require(num_nodes > 0, f"{path} holds no node", "give edges, or features x")
    labels, num_classes = None, 0
    if "labels" in found:
        labels, num_classes = clean_labels(found["labels"], num_nodes, f"labels of {path}")
    splits = {part: _ids(found.get(part), num_nodes, f"{part} of {path}") for part in ("train", "valid", "test")}
    weights = found.get("weights")
    if weights is not None:
        sound = weights.shape in ((num_edges,), (num_edges, 1)) and weights.dtype.kind in "fiu"
        require(sound, f"edge_weight of {path} is {weights.dtype} {list(weights.shape)}", f"give [{num_edges}] numbers")
    return GraphSource(
        num_nodes,
        edges,
        features,
        labels,
        num_classes,
        splits if len(splits["train"]) else None,
        keep_duplicates=True,
        edge_weights=None if weights is None else lambda: _chunks(weights),
    )


def _chunks(weights: Array) -> Any:
    flat = weights.reshape(-1)
    return (flat[start : start + EDGES_A_CHUNK] for start in range(0, len(flat), EDGES_A_CHUNK))


def _mapped(file: Path) -> Array:
    """Map one array; no code of a file is run."""
    if file.suffix == ".npy":
        return load_array(file, file.name)
    import pickle

    import torch

    try:
        with reading(file, "is no tensor that torch.save wrote", (RuntimeError, EOFError, OSError, ValueError)):
            tensor = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError:
        tensor = None
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or tensor.dtype is torch.bfloat16:
        raise InputError(f"{file} holds no dense tensor of numbers", "save one tensor alone: torch.save(tensor, PATH)")
    array: Array = tensor.detach().numpy()
    return array


def _ids(chosen: Array | None, num_nodes: int, what: str) -> IntArray:
    """Return the ids of a split, given as ids or as a mask; none without one."""
    if chosen is None:
        return np.empty(0, dtype=np.int64)
    if chosen.dtype == np.bool_:
        require(chosen.shape == (num_nodes,), f"{what} is a mask {list(chosen.shape)} for {num_nodes} nodes")
        return np.flatnonzero(chosen)
    whole = chosen.ndim == 1 and chosen.dtype.kind in "iu"
    require(whole, f"{what} is {chosen.dtype} {list(chosen.shape)}", "give ids, or a mask")
    return chosen.astype(np.int64)
