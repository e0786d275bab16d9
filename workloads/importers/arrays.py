"""Folders of arrays, `NAME.npy` or `NAME.pt` each, under the names of PyG's `Data` or
of neighbour lists in CSC."""

from __future__ import annotations

from pathlib import Path

from workloads.arraytypes import Array
from workloads.errors import InputError, require
from workloads.importers.packed import refuse_packed_as
from workloads.importers.seen import (
    FEATURES,
    LABELS,
    ORIGINAL_IDS,
    SPLITS,
    WEIGHTS,
    Uses,
    edges_use,
    features_use,
    numbers_use,
    seen,
)
from workloads.importers.source import (
    Arrays,
    GraphSource,
    ImportOptions,
    SplitIds,
    as_array,
    check_csc,
    clean_labels,
    count_of,
    csc_edges,
    edge_array_source,
    holds_ids,
    id_source,
    load_array,
    load_torch,
    named_nodes,
    split_ids,
    split_use,
    stated_classes,
    table_source,
    weight_source,
)
from workloads.manifest import MAX_NODES

_ENDINGS = (".npy", ".pt")
_NAMES = {
    "edges": ("edge_index",),
    "indptr": ("indptr", "colptr"),
    "indices": ("indices", "row"),
    "features": FEATURES,
    "labels": LABELS,
    "weights": WEIGHTS,
    **SPLITS,
    "classes": ("num_classes",),
    "nodes": ("num_nodes",),
    "ids": ("ids", "n_id"),
}


def open_arrays(path: Path, options: ImportOptions) -> GraphSource:
    """Read a folder of `.npy` files or of tensors that `torch.save` wrote; they are
    mapped, so they may exceed memory.

    Edges: `edge_index` [2, E] (source above destination), or `indptr` [N + 1] and
    `indices` [E], each node's in-neighbours. Features `x` [N, D], labels `y` [N] and
    `num_classes` if it is larger, a split as mask [N] or as ids,
    `edge_weight` [E], `num_nodes`, `ids` [N], the nodes' original ids; other usual
    names are known too, and a note names other files. Raises DatasetError where a file
    is damaged, InputError where edges are missing or arrays contradict each other.
    """
    fault = f"{path} is no folder"
    require(path.is_dir(), fault, "give the folder of the .npy or .pt files")
    files = [file for file in sorted(path.iterdir()) if file.suffix in _ENDINGS]
    found: Arrays = {}
    name: dict[str, str] = {}
    for part, names in _NAMES.items():
        there = [file for file in files if file.stem in names]
        fault = (
            f"{path} holds {' and '.join(file.name for file in there)}, which mean the "
            "same"
        )
        require(len(there) < 2, fault, "remove all but one")
        if there:
            found[part] = _mapped(there[0])
            name[part] = str(there[0])
            continue
        for packed in (f"{stem}{ending}" for stem in names for ending in _ENDINGS):
            refuse_packed_as(path / packed)
    edges_name = name.get("edges") or name.get("indices", "")
    uses: Uses = {}  # part -> use
    if "edges" in found:
        lists = next((name[part] for part in ("indptr", "indices") if part in name), "")
        fault = f"{edges_name} and {lists} both hold the edges"
        require(not lists, fault, "remove one of them")
        edges = edge_array_source(found["edges"], edges_name, columns=False)
        num_edges = found["edges"].shape[1]
        num_nodes = 0
        uses["edges"] = edges_use(found["edges"].shape)
    elif "indptr" in found and "indices" in found:
        num_nodes = check_csc(found["indptr"], found["indices"], str(path))
        edges = csc_edges(found["indptr"], found["indices"])
        num_edges = len(found["indices"])
        uses |= {"indptr": "pointers of neighbour lists", "indices": "in-neighbours"}
    else:
        raise InputError(
            f"{path} holds no edges",
            "give edge_index, or indptr and indices, as .npy or .pt files",
        )
    features = None
    if "features" in found:
        features = table_source(found["features"], name["features"])
        uses["features"] = features_use(features, found["features"].dtype)
    if "nodes" in found:
        given = count_of(found["nodes"], MAX_NODES, name["nodes"])
        fault = (
            f"{name['nodes']} is {given}, but the neighbour lists have {num_nodes} "
            "nodes"
        )
        fix = f"give {num_nodes}, or leave it out"
        require(num_nodes in (0, given), fault, fix)
        num_nodes = given
        uses["nodes"] = "number of nodes"
    num_nodes = num_nodes or (
        features.num_rows
        if features
        else found["labels"].size
        if "labels" in found
        else 0
    )
    num_nodes = num_nodes or named_nodes(edges, edges_name)
    labels = None
    num_classes = 0
    if "labels" in found:
        labels, num_classes = clean_labels(found["labels"], num_nodes, name["labels"])
        uses["labels"] = "labels"
    if "classes" in found:
        num_classes = stated_classes(found["classes"], num_classes, name["classes"])
        uses["classes"] = "number of classes"
    splits: SplitIds = {}
    for part in SPLITS:
        stem = Path(name.get(part, "")).stem
        splits[part] = split_ids(found.get(part), num_nodes, name.get(part, ""), stem)
        if part in found:
            uses[part] = split_use(part, found[part], num_nodes, stem)
    weights = None
    if "weights" in found:
        weights = weight_source(found["weights"], num_edges, name["weights"])
        uses["weights"] = numbers_use("edge weights", found["weights"].dtype)
    ids = None
    if "ids" in found:
        fault = f"{name['ids']} is {found['ids'].dtype} {list(found['ids'].shape)}"
        fix = (
            f"give the original id of every node, integers [{num_nodes}], or leave it "
            "out"
        )
        require(holds_ids(found["ids"], num_nodes), fault, fix)
        ids = id_source(found["ids"], name["ids"])
        uses["ids"] = ORIGINAL_IDS
    used_files = {Path(name[part]).name: use for part, use in uses.items()}
    present = [file.name for file in sorted(path.iterdir())]
    return GraphSource(
        num_nodes,
        edges,
        features,
        labels,
        num_classes,
        splits if found.keys() & splits.keys() else None,
        notes=seen("files", used_files, present),
        keep_duplicates=True,
        edge_weights=weights,
        edges_name=edges_name,
        ids=ids,
    )


def _mapped(file: Path) -> Array:
    """Map an array; no code of a file is run."""
    if file.suffix == ".npy":
        return load_array(file)
    import pickle

    import torch

    try:
        tensor = load_torch(
            file, "is no tensor that torch.save wrote", weights_only=True
        )
    except pickle.UnpicklingError:
        tensor = None
    if not isinstance(tensor, torch.Tensor):
        raise InputError(
            f"{file} holds no dense tensor of numbers",
            "save one tensor alone: torch.save(tensor, PATH)",
        )
    return as_array(tensor, str(file))
