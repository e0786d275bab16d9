"""DGL's GraphBolt: folders of an `OnDiskDataset`, as its author made them or as DGL
preprocessed them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from workloads.arraytypes import Array, IdStream, Int64Array, JsonDict
from workloads.errors import DatasetError, InputError, require
from workloads.importers.edge_text import edge_chunks
from workloads.importers.seen import (
    ORIGINAL_IDS,
    Uses,
    edges_use,
    features_use,
    files_in,
    numbers_use,
    seen,
)
from workloads.importers.source import (
    NO_IDS,
    EdgeStream,
    FeatureRows,
    GraphSource,
    ImportOptions,
    as_array,
    check_csc,
    check_ids,
    clean_labels,
    count_of,
    csc_edges,
    edge_array_source,
    holds_ids,
    id_source,
    load_array,
    load_torch,
    reading,
    reason_of,
    stated_classes,
    table_source,
    weight_source,
)
from workloads.manifest import MAX_NODES
from workloads.parsing import ParseError, parse_yaml

_SETS = {"train": "train_set", "valid": "validation_set", "test": "test_set"}
_SEEDS = ("seed_nodes", "seeds")
_WEIGHTS = ("edge_weight", "weight")
_ORIGINAL_ID = "_ORIGINAL_EDGE_ID"  # of DGL, not of the graph
_NODE_IDS = "ids"  # node feature of our exports
# Functions and types of a pickled tensor; torch's younger types, such as uint64, take
# the third version.
_HARMLESS = {
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_tensor_v3"),
    ("torch.storage", "UntypedStorage"),
    *(("torch", name) for name in ("uint16", "uint32", "uint64")),
}
_FIX = "give the folder of an OnDiskDataset of one type of nodes and one type of edges"


def open_graphbolt(path: Path, options: ImportOptions) -> GraphSource:
    """Read a homogeneous `OnDiskDataset`: the preprocessed topology if present, else
    its edges (CSV or NumPy).

    Features are the node feature `feat`, or the first, original ids of the nodes the
    node feature `ids` [N, 1], weights the edge feature `edge_weight` or `weight`, and
    notes name the others; labels and splits are from the first task, and other
    nodes are unlabelled. No code of a file is run. Raises DatasetError where a file is
    missing or damaged, InputError where the graph has several types or a file's content
    contradicts another.
    """
    made = path / "preprocessed" / "metadata.yaml"
    raw = path / "metadata.yaml"
    file = made if made.is_file() else raw
    with reading(
        file, "is no YAML", (ParseError,), missing=_FIX, fix="correct the file"
    ):
        metadata = parse_yaml(file.read_bytes())
    fault = f"{file} is no metadata of an OnDiskDataset"
    require(isinstance(metadata, dict), fault, _FIX)
    try:
        return _graph(path, metadata, str(file.relative_to(path)))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        lacks = "has another layout than DGL's"
        if isinstance(error, KeyError):
            lacks = f"lacks the field {error}"
        fault = f"{file} {lacks}"
        raise InputError(fault, _FIX) from None


def _graph(path: Path, metadata: JsonDict, metadata_file: str) -> GraphSource:
    notes: list[str] = []
    weights = None
    uses = {metadata_file: "metadata"}  # file in the folder -> its use
    entries = metadata.get("feature_data") or []
    inner = (metadata.get("graph") or {}).get("feature_data") or []
    of_edges = [entry for entry in [*entries, *inner] if entry["domain"] == "edge"]
    by_edge = {entry["name"]: entry for entry in of_edges}
    if "graph_topology" in metadata:
        topology_file = metadata["graph_topology"]["path"]
        edges_file = _file(path, topology_file)
        uses[topology_file] = "neighbour lists"
        edge_uses = {}
        indptr, indices, attributes = _topology(edges_file)
        num_nodes = check_csc(indptr, indices, str(edges_file))
        if name := _weight_name(attributes):
            weight = as_array(attributes[name], f"{name} of {edges_file}")
            weights = weight_source(weight, len(indices), f"{name} of {edges_file}")
            edge_uses[name] = numbers_use("edge weights", weight.dtype)
        edges = csc_edges(indptr, indices)
        # Features outside the topology are in the order of the edges before DGL sorted
        # them.
        edge_features = list(dict.fromkeys([*attributes, *by_edge]))
    else:
        nodes = metadata["graph"]["nodes"]
        found = metadata["graph"]["edges"]
        fault = f"{path} has several types of nodes or edges"
        require(len(nodes) == 1 and len(found) == 1, fault, _FIX)
        num_nodes = count_of(
            nodes[0]["num"], MAX_NODES, f"num, of the nodes of {path},"
        )
        edges_file = _file(path, found[0]["path"])
        edges, uses[found[0]["path"]] = _edges(edges_file, found[0]["format"])
        edge_features = list(by_edge)
        edge_uses = {}
        if name := _weight_name(by_edge):
            weight = _array(path, by_edge[name])
            count = sum(len(sources) for sources, _ in edges())
            weights = weight_source(weight, count, f"feature {name} of {path}")
            edge_uses[name] = numbers_use("edge weights", weight.dtype)
            uses[by_edge[name]["path"]] = "edge weights"
    own_features = [name for name in edge_features if name != _ORIGINAL_ID]
    notes += seen("edge features", edge_uses, own_features)
    inner_names = [entry["name"] for entry in inner if entry["domain"] == "node"]
    notes += seen("node features of the graph", {}, inner_names)
    of_nodes = [entry for entry in entries if entry["domain"] == "node"]
    node_uses: Uses = {}
    id_entry, ids = _original_ids(path, of_nodes, num_nodes)
    if id_entry is not None:
        uses[id_entry["path"]] = node_uses[_NODE_IDS] = ORIGINAL_IDS
    others = [entry for entry in of_nodes if entry is not id_entry]
    features = _features(path, others, num_nodes, node_uses, uses)
    notes += seen("node features", node_uses, [entry["name"] for entry in of_nodes])
    tasks = metadata.get("tasks") or [{}]
    if len(tasks) > 1:
        notes.append(f"of {len(tasks)} tasks the first is taken")
    labels = np.full(num_nodes, -1, dtype=np.int64)
    sets = {part: tasks[0].get(name) or [] for part, name in _SETS.items()}
    splits = {part: _split(path, part, sets[part], labels, uses) for part in _SETS}
    classes = int(labels.max(initial=-1)) + 1
    given = [
        entry for of_part in sets.values() for one in of_part for entry in one["data"]
    ]
    known = classes > 0 or any(entry.get("name") == "labels" for entry in given)
    if known and (stated := tasks[0].get("num_classes")) is not None:
        classes = stated_classes(stated, classes, f"num_classes of {path}")
    used_files = {str(Path(name)): use for name, use in uses.items()}
    notes += seen("files", used_files, files_in(path))
    return GraphSource(
        num_nodes,
        edges,
        features,
        labels if known else None,
        classes,
        splits if tasks[0].keys() & _SETS.values() else None,
        notes=notes,
        keep_duplicates=True,
        edge_weights=weights,
        edges_name=str(edges_file),
        ids=ids,
    )


def _original_ids(
    path: Path, entries: list[JsonDict], num_nodes: int
) -> tuple[JsonDict | None, IdStream | None]:
    """Return the node feature that holds the original ids of the nodes, and the ids;
    None without them."""
    for entry in entries:
        if entry["name"] == _NODE_IDS:
            values = _array(path, entry)
            if holds_ids(values, num_nodes):
                return entry, id_source(values, f"feature {_NODE_IDS} of {path}")
    return None, None


def _weight_name(features: Mapping[str, Any]) -> str:
    """Return the name of the weights among edge features; empty without them."""
    return next((name for name in _WEIGHTS if name in features), "")


def _array(path: Path, entry: JsonDict) -> Array:
    """Map an array that the metadata name."""
    file = _file(path, entry["path"])
    if entry["format"] == "numpy":
        return load_array(file)
    return as_array(_loaded(file), str(file))


def _file(path: Path, name: str) -> Path:
    """Return a file that the metadata name; raises InputError where it is outside the
    folder, since the digest by which an import is known is of the files in it."""
    inside = not Path(name).is_absolute() and ".." not in Path(name).parts
    fault = f"{path}: the metadata name {name}, a file outside its folder"
    require(inside, fault, "move or link it into the folder")
    return path / name


def _features(
    path: Path, entries: list[JsonDict], num_nodes: int, node_uses: Uses, uses: Uses
) -> FeatureRows | None:
    """Return the features, if there are any, and enter their name in `node_uses`, their
    file in `uses`."""
    chosen = next(
        (entry for entry in entries if entry["name"] == "feat"),
        entries[0] if entries else None,
    )
    if chosen is None:
        return None
    array = _array(path, chosen)
    table = table_source(array, f"feature {chosen['name']} of {path}")
    uses[chosen["path"]] = "features"
    node_uses[chosen["name"]] = features_use(table, array.dtype)
    fault = f"{path} has {table.num_rows} feature rows for {num_nodes} nodes"
    require(table.num_rows == num_nodes, fault, "give a row for each node")
    return table


def _split(
    path: Path, part: str, sets: list[JsonDict], labels: Int64Array, uses: Uses
) -> Int64Array:
    """Return the node ids of a split, and enter their labels; the files are entered in
    `uses`."""
    if not sets:
        return NO_IDS
    fault = f"{path} has a split of several types of nodes"
    require(len(sets) == 1, fault, _FIX)
    arrays = {entry.get("name"): entry for entry in sets[0]["data"]}
    name = next((name for name in _SEEDS if name in arrays), None)
    fault = f"{path} has no split of nodes (it holds {', '.join(map(str, arrays))})"
    require(name, fault, _FIX)
    ids = np.asarray(_array(path, arrays[name]))
    file = path / arrays[name]["path"]
    uses[arrays[name]["path"]] = f"{part} ids"
    whole = ids.ndim == 1 and ids.dtype.kind in "iu"
    fault = f"{file} is {ids.dtype} {list(ids.shape)}"
    require(whole, fault, "give ids of nodes as integers, [M]")
    check_ids(ids, len(labels), str(file))
    ids = ids.astype(np.int64)
    if "labels" in arrays:
        uses[arrays["labels"]["path"]] = f"{part} labels"
        labels_entry = arrays["labels"]
        labels_file = str(path / labels_entry["path"])
        given, _ = clean_labels(_array(path, labels_entry), len(ids), labels_file)
        labels[ids] = given
        odd = ids[labels[ids] != given]
        fault = (
            f"{file} names node {odd.min(initial=len(labels))} twice, with two labels"
        )
        require(not len(odd), fault, "keep one")
    return ids


def _edges(file: Path, kind: str) -> tuple[EdgeStream, str]:
    """Return the edges of a file, and its use."""
    if kind == "numpy":
        array = load_array(file)
        return edge_array_source(array, str(file), columns=False), edges_use(
            array.shape
        )
    fault = f"{file} is {kind}"
    require(kind == "csv", fault, "give edges as csv or numpy")
    columns = (
        "give source and destination alone, weights as the edge feature edge_weight"
    )
    return partial(edge_chunks, file, columns), "edges"


class _Plain:
    """Object of a class of DGL, as the state that was pickled."""

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Unpickler of graphs and tensors alone."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of the file; raises InputError for classes other than graphs
        and tensors."""
        if (
            module.startswith("dgl.graphbolt.") and name.endswith("SamplingGraph")
        ) or name == "ScriptObject":
            return _Plain
        if (module, name) in _HARMLESS or (
            module == "torch" and name.endswith("Storage")
        ):
            return super().find_class(module, name)
        fault = f"the file holds {module}.{name}, and no code of a file is run"
        raise InputError(fault, "preprocess it anew by DGL")


def _loaded(file: Path) -> Any:
    """Return the content of a file of torch, its tensors mapped."""
    # `torch.load` wants a module, of which it takes the unpickler alone.
    module: Any = SimpleNamespace(Unpickler=_Unpickler, __name__="pickle")
    try:
        return load_torch(
            file, "is no whole file of torch", weights_only=False, pickle_module=module
        )
    except pickle.UnpicklingError as error:
        fault = f"{file} is no whole file of torch ({reason_of(error)})"
        raise DatasetError(fault, "preprocess it anew by DGL") from None


def _topology(file: Path) -> tuple[Array, Array, JsonDict]:
    """Return `indptr`, `indices` and the edges' features of a preprocessed topology."""
    try:
        state, _ = _loaded(file).state["_c_csc_graph"].state
        tensors = state["independent_tensors"]
        attributes = dict(state.get("edge_attributes") or {})
        several = "node_type_offset" in tensors or "type_per_edge" in tensors
        found = (
            as_array(tensors["indptr"], str(file)),
            as_array(tensors["indices"], str(file)),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        fault = f"{file} is no FusedCSCSamplingGraph ({reason_of(error)})"
        raise DatasetError(fault, "preprocess it anew by DGL") from None
    fault = f"{file} has several types of nodes or edges"
    require(not several, fault, _FIX)
    return *found, attributes
