"""Graphs in PyG's words: a `torch_geometric.data.Data`, in memory or saved, or an
`.npz` file of the same names."""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from workloads.arraytypes import Array, ArrayStream, Int64Array
from workloads.errors import HostError, InputError, require
from workloads.importers.npz_member import NpzMember, member_names
from workloads.importers.seen import (
    ORIGINAL_IDS,
    edges_use,
    features_use,
    numbers_use,
    seen,
)
from workloads.importers.source import (
    GraphSource,
    ImportOptions,
    as_array,
    check_weights,
    clean_labels,
    count_of,
    edge_array_source,
    holds_ids,
    id_source,
    load_torch,
    split_ids,
    stated_classes,
    table_source,
    weight_source,
)
from workloads.manifest import MAX_NODES

Field = Array | NpzMember
#: A dataset's split -> PyG's name of its mask.
MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
#: The same -> names of its ids, where there is no mask.
_IDS = {
    "train": ("train_idx",),
    "valid": ("val_idx", "valid_idx"),
    "test": ("test_idx",),
}
_SPLITS = [name for part, mask in MASKS.items() for name in (mask, *_IDS[part])]
_ONE_TYPE = "a torch_geometric.data.Data, one graph with one type of nodes"
#: Names of the original ids of nodes: ours in exports, and PyG's in a mini-batch or
#: subgraph.
_ORIGINAL_IDS = ("ids", "n_id")
_FIELDS = ("edge_index", "edge_weight", "num_nodes", "num_classes", "x", "y", *_SPLITS)


def open_pyg(
    path: Path, options: ImportOptions | None = None, *, supervised: bool = True
) -> GraphSource:
    """Read a graph of a file: `.npz`, or a file that `torch.save` or an
    `InMemoryDataset` wrote.

    An `.npz` file is read as a stream, any other is mapped, so both may exceed memory;
    no code of a file is run. `supervised` and the errors are as for `data_source`;
    raises also DatasetError where the file is missing or damaged, HostError where it
    needs torch_geometric and that is not installed.
    """
    if path.suffix == ".npz":
        names = member_names(path)
        members: dict[str, Field] = {
            name: NpzMember(path, name) for name in _FIELDS if name in names
        }
        for name in _ORIGINAL_IDS:
            with suppress(InputError):  # of another kind, such as texts: left out
                members[name] = NpzMember(path, name)
        return _graph(members, path.name, supervised, names)
    import torch

    try:
        from torch_geometric.data import data, storage
    except ModuleNotFoundError:
        raise HostError(
            f"{path} is read by torch_geometric", "pip install torch_geometric"
        ) from None
    # torch_geometric declares `Data` itself as harmless, but not its members.
    storages = [
        storage.BaseStorage,
        storage.GlobalStorage,
        storage.NodeStorage,
        storage.EdgeStorage,
    ]
    harmless = [data.DataEdgeAttr, data.DataTensorAttr, *storages]
    try:
        with torch.serialization.safe_globals(harmless):
            content = load_torch(
                path, "is no graph that torch.save wrote", weights_only=True
            )
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        name = found[1] if found else "objects"
        if name.endswith("HeteroData"):
            raise typed_graph(str(path), "HeteroData") from None
        fault = f"{path} holds {name}, and no code of a file is run"
        kept = "torch.save({'edge_index': ..., 'x': ..., 'y': ...}, PATH)"
        if name.startswith("numpy"):
            kept = "torch.from_numpy of each array"
        raise InputError(fault, f"save its tensors alone: {kept}") from None
    if isinstance(content, tuple):  # (graphs, slices, class) of an InMemoryDataset
        single = len(content) == 3 and content[1] is None
        require(
            single,
            f"{path} holds several graphs",
            "save one of them: torch.save(dataset[0], PATH)",
        )
        content = content[0]
    return data_source(content, path.name, supervised=supervised)


def data_source(
    data: Any, what: str = "data", *, supervised: bool = True
) -> GraphSource:
    """Read a `torch_geometric.data.Data` (or a dictionary of its tensors); memory maps
    are streamed.

    Reads `edge_index` [2, E] (source above destination), `edge_weight` [E] if there is
    one, `x` [N, D], `y` [N], `num_classes` and `train_mask`, `val_mask`, `test_mask`
    [N], or `train_idx`, `val_idx`, `test_idx`, and `ids` or `n_id` [N], the nodes'
    original ids; a note names other fields. Repeated edges are kept, as in PyG; with
    weights they are merged.

    Args:
        data: the graph.
        what: its name in messages.
        supervised: whether `y` and `train_mask` are required; without them there are no
            labels and no training nodes.

    Raises:
        InputError: a tensor is missing, or has another shape or dtype.
    """
    check_untyped(data, what)
    if not isinstance(data, Mapping):
        known = getattr(sys.modules.get("torch_geometric.data"), "Data", ())
        fix = f"give {_ONE_TYPE} (of a dataset: dataset[0])"
        fault = f"{what} is a {type(data).__name__}"
        require(isinstance(data, known), fault, fix)
        data = data.to_dict()
        check_untyped(data, what)
    known = [name for name in _FIELDS if data.get(name) is not None]
    # not a list of names
    known += [name for name in _ORIGINAL_IDS if hasattr(data.get(name), "dtype")]
    fields = {name: as_array(data[name], f"{name} of {what}") for name in known}
    present = [str(name) for name in data if data[name] is not None]
    return _graph(fields, what, supervised, present)


def typed_graph(what: str, kind: str = "") -> InputError:
    """Return the error that a graph, of class `kind`, has types of nodes or edges."""
    found = f"is a {kind}" if kind else "has types of nodes or edges"
    fault = f"{what} {found}, and typed (heterogeneous) graphs are not supported yet"
    return InputError(
        fault, f"give {_ONE_TYPE}: the edge_index, x, y and masks of one type"
    )


def check_untyped(data: Any, what: str) -> None:
    """Check that a graph has one type of nodes and of edges.

    Raises:
        InputError: it is a HeteroData, a DGL graph of several types, or a dictionary of
            one: tensors by type.
    """
    if isinstance(data, Mapping):
        if any(isinstance(data.get(name), Mapping) for name in ("edge_index", "x")):
            raise typed_graph(what)
        by_type = any(isinstance(part, Mapping) for part in data.values())
        of_types = by_type or any(
            isinstance(name, tuple) or name in ("edge_index_dict", "x_dict")
            for name in data
        )
        if of_types and data.get("edge_index") is None:
            raise typed_graph(what)
    elif type(data).__name__ == "HeteroData":
        raise typed_graph(what, "HeteroData")
    elif type(data).__module__.partition(".")[0] == "dgl" and hasattr(
        data, "canonical_etypes"
    ):
        if len(data.canonical_etypes) > 1 or len(data.ntypes) > 1:
            raise typed_graph(what, "DGLGraph with several types")
        fix = (
            "give a torch_geometric.data.Data of "
            "edge_index=torch.stack(graph.edges()), and x, y and masks of its ndata"
        )
        raise InputError(f"{what} is a graph of DGL", fix)


def _graph(
    fields: Mapping[str, Field], what: str, supervised: bool, present: list[str]
) -> GraphSource:
    edge_index, x, y = (fields.get(name) for name in ("edge_index", "x", "y"))
    if edge_index is None:
        moved = ""
        if "adj_t" in present:
            moved = " (transforms.ToSparseTensor puts adj_t in its place)"
        fix = f"give it as [2, E], sources above destinations{moved}"
        raise InputError(f"{what} has no edge_index", fix)
    if x is None:
        raise InputError(
            f"{what} has no x", "give a feature row for every node, [N, D]"
        )
    if isinstance(edge_index, NpzMember):
        edges = edge_index.edges()
    else:
        edges = edge_array_source(edge_index, f"edge_index of {what}", columns=False)
    if isinstance(x, NpzMember):
        features = x.features()
    else:
        features = table_source(x, f"x of {what}")
    uses = {
        "edge_index": edges_use(edge_index.shape),
        "x": features_use(features, x.dtype),
    }
    num_nodes = features.num_rows
    if "num_nodes" in fields:
        uses["num_nodes"] = "number of nodes"
        num_nodes = count_of(
            _whole(fields["num_nodes"]), MAX_NODES, f"num_nodes of {what}"
        )
    fault = f"x of {what} has {features.num_rows} rows for {num_nodes} nodes"
    require(features.num_rows == num_nodes, fault, "give a row for every node")
    require(num_nodes > 0, f"{what} has no node", "give a row of x for every node")
    if y is None:
        valid = not supervised
        require(
            valid,
            f"{what} has no y",
            "give the class of every node, [N], -1 where it is unknown",
        )
        labels = np.full(num_nodes, -1, dtype=np.int64)
        num_classes = 0
    else:
        labels, num_classes = clean_labels(_whole(y), num_nodes, f"y of {what}")
        uses["y"] = "labels"
        if "num_classes" in fields:
            uses["num_classes"] = "number of classes"
            num_classes = stated_classes(
                _whole(fields["num_classes"]), num_classes, f"num_classes of {what}"
            )
    names = {}
    for part, mask in MASKS.items():
        given = [name for name in (mask, *_IDS[part]) if name in fields]
        names[part] = given[0] if given else mask
    splits = {
        part: _chosen(fields.get(name), name, what, num_nodes)
        for part, name in names.items()
    }
    for part, name in names.items():
        if name in fields:
            uses[name] = f"{part} {name.rpartition('_')[2]}"
    if supervised and not len(splits["train"]):
        fault = "chooses no node" if names["train"] in fields else "is missing"
        raise InputError(
            f"{names['train']} of {what} {fault}",
            "give bool [N] (transforms.RandomNodeSplit makes one)",
        )
    weights = None
    if "edge_weight" in fields:
        weights = _weights(fields["edge_weight"], edge_index.shape[1], what)
        uses["edge_weight"] = numbers_use("edge weights", fields["edge_weight"].dtype)
    taken = next(
        (
            name
            for name in _ORIGINAL_IDS
            if name in fields and holds_ids(fields[name], num_nodes)
        ),
        "",
    )
    ids = None
    if taken:
        ids = id_source(_whole(fields[taken]), f"{taken} of {what}")
        uses[taken] = ORIGINAL_IDS
    present = sorted(present)
    notes = seen(f"fields of {what}", uses, present)
    unread = [name for name in present if name not in uses]
    found = GraphSource(
        num_nodes,
        edges,
        features,
        labels,
        num_classes,
        splits,
        notes=notes,
        unread=unread,
        ids=ids,
    )
    return replace(
        found,
        keep_duplicates=True,
        edge_weights=weights,
        edges_name=f"edge_index of {what}",
    )


def _weights(weight: Field, num_edges: int, what: str) -> ArrayStream:
    if not isinstance(weight, NpzMember):
        return weight_source(weight, num_edges, f"edge_weight of {what}")
    check_weights(weight, num_edges, f"edge_weight of {what}")
    return weight.chunks


def _whole(field: Field) -> Array:
    return field.load() if isinstance(field, NpzMember) else field


def _chosen(field: Field | None, name: str, what: str, num_nodes: int) -> Int64Array:
    """Return the ids of a split's nodes, given as a mask or as ids; none without
    them."""
    if field is None or name not in MASKS.values():
        return split_ids(
            None if field is None else _whole(field),
            num_nodes,
            f"{name} of {what}",
            name,
        )
    fix = "give a boolean for every node"
    if len(field.shape) == 2:
        fix = "choose one of its columns (mask[:, 0])"
    fault = (
        f"{name} of {what} is {field.dtype} {list(field.shape)}, not bool [{num_nodes}]"
    )
    require(field.dtype == np.bool_ and field.shape == (num_nodes,), fault, fix)
    return np.flatnonzero(_whole(field))
