"""Graphs in PyG's words: a `torch_geometric.data.Data`, in memory or saved, or an `.npz` file of the same names."""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.errors import HostError, InputError, require
from workloads.importers.npz_member import NpzMember, member_names
from workloads.importers.seen import edges_use, features_use, numbers_use, seen
from workloads.importers.source import (
    GraphSource,
    ImportOptions,
    IntArray,
    as_array,
    check_weights,
    clean_labels,
    count_of,
    edge_array_source,
    load_torch,
    split_ids,
    table_source,
    told_classes,
    weight_source,
)
from workloads.manifest import MAX_NODES

Field = npt.NDArray[Any] | NpzMember
#: A dataset's split -> PyG's name of its mask.
MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
#: The same -> names of its ids, where there is no mask.
_IDS = {"train": ("train_idx",), "valid": ("val_idx", "valid_idx"), "test": ("test_idx",)}
_SPLITS = [name for part, mask in MASKS.items() for name in (mask, *_IDS[part])]
_FIELDS = ("edge_index", "edge_weight", "num_nodes", "num_classes", "x", "y", *_SPLITS)


def open_pyg(path: Path, options: ImportOptions | None = None, *, supervised: bool = True) -> GraphSource:
    """Read a graph of a file: `.npz`, or what `torch.save` or an `InMemoryDataset` wrote.

    An `.npz` file is read as a stream, any other is mapped, so both may exceed memory; no code of a file is run.
    `supervised` and the errors are those of `data_source`; raises also DatasetError where the file is missing or
    damaged, HostError where it needs torch_geometric and that is not installed.
    """
    if path.suffix == ".npz":
        names = member_names(path)
        fields: dict[str, Field] = {name: NpzMember(path, name) for name in _FIELDS if name in names}
        return _graph(fields, path.name, supervised, names)
    import torch

    try:
        from torch_geometric.data import data, storage
    except ModuleNotFoundError:
        raise HostError(f"{path} is read by torch_geometric", "pip install torch_geometric") from None
    # torch_geometric declares `Data` itself as harmless, and not what it consists of.
    harmless = [data.DataEdgeAttr, data.DataTensorAttr, storage.GlobalStorage]
    try:
        with torch.serialization.safe_globals(harmless):
            content = load_torch(path, "is no graph that torch.save wrote", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        fault = f"{path} holds {found[1] if found else 'objects'}, and no code of a file is run"
        numpy = found and found[1].startswith("numpy")
        kept = "torch.from_numpy of each array" if numpy else "torch.save(data.to_dict(), PATH)"
        raise InputError(fault, f"save its tensors alone: {kept}") from None
    if isinstance(content, tuple):  # (graphs, slices, class) of an InMemoryDataset
        single = len(content) == 3 and content[1] is None
        require(single, f"{path} holds several graphs", "save one of them: torch.save(dataset[0], PATH)")
        content = content[0]
    return data_source(content, path.name, supervised=supervised)


def data_source(data: Any, what: str = "data", *, supervised: bool = True) -> GraphSource:
    """Read a `torch_geometric.data.Data` (or a dictionary of its tensors); memory maps are streamed.

    Reads `edge_index` [2, E] (source above destination), `edge_weight` [E] if there is one, `x` [N, D], `y` [N],
    `num_classes` and `train_mask`, `val_mask`, `test_mask` [N], or `train_idx`, `val_idx`, `test_idx`; a note names
    other fields. Repeated edges stay, as in PyG; those with weights become one.

    Args:
        data: the graph.
        what: its name in messages.
        supervised: whether `y` and `train_mask` are required; without them there are no labels and no training nodes.

    Raises:
        InputError: a tensor is missing, or has another shape or dtype.
    """
    if not isinstance(data, Mapping):
        known = getattr(sys.modules.get("torch_geometric.data"), "Data", ())
        fix = "give a torch_geometric.data.Data, one graph with one type of nodes (of a dataset: dataset[0])"
        require(isinstance(data, known), f"{what} is a {type(data).__name__}", fix)
        data = data.to_dict()
    fields = {name: as_array(data[name], f"{name} of {what}") for name in _FIELDS if data.get(name) is not None}
    present = [str(name) for name in data if data[name] is not None]
    return _graph(fields, what, supervised, present)


def _graph(fields: Mapping[str, Field], what: str, supervised: bool, present: list[str]) -> GraphSource:
    edge_index, x, y = (fields.get(name) for name in ("edge_index", "x", "y"))
    fix = "give it as [2, E], sources above destinations (transforms.ToSparseTensor takes it away)"
    if edge_index is None:
        raise InputError(f"{what} has no edge_index", fix)
    if x is None:
        raise InputError(f"{what} has no x", "give a feature row for every node, [N, D]")
    if isinstance(edge_index, NpzMember):
        edges = edge_index.edges()
    else:
        edges = edge_array_source(edge_index, f"edge_index of {what}", columns=False)
    features = x.features() if isinstance(x, NpzMember) else table_source(x, f"x of {what}")
    uses = {"edge_index": edges_use(edge_index.shape), "x": features_use(features, x.dtype)}
    num_nodes = features.num_rows
    if "num_nodes" in fields:
        uses["num_nodes"] = "number of nodes"
        num_nodes = count_of(_whole(fields["num_nodes"]), MAX_NODES, f"num_nodes of {what}")
    fault = f"x of {what} has {features.num_rows} rows for {num_nodes} nodes"
    require(features.num_rows == num_nodes, fault, "give a row for every node")
    require(num_nodes > 0, f"{what} has no node", "give a row of x for every node")
    if y is None:
        require(not supervised, f"{what} has no y", "give the class of every node, [N], -1 where it is unknown")
        labels, num_classes = np.full(num_nodes, -1, dtype=np.int64), 0
    else:
        labels, num_classes = clean_labels(_whole(y), num_nodes, f"y of {what}")
        uses["y"] = "labels"
        if "num_classes" in fields:
            uses["num_classes"] = "number of classes"
            num_classes = told_classes(_whole(fields["num_classes"]), num_classes, f"num_classes of {what}")
    names = {part: next((n for n in (mask, *_IDS[part]) if n in fields), mask) for part, mask in MASKS.items()}
    splits = {part: _chosen(fields.get(name), name, what, num_nodes) for part, name in names.items()}
    uses |= {name: f"{part} {name.rpartition('_')[2]}" for part, name in names.items() if name in fields}
    if supervised and not len(splits["train"]):
        fault = "chooses no node" if names["train"] in fields else "is missing"
        raise InputError(f"{names['train']} of {what} {fault}", "give bool [N] (transforms.RandomNodeSplit makes one)")
    weights = None
    if "edge_weight" in fields:
        weights = _weights(fields["edge_weight"], edge_index.shape[1], what)
        uses["edge_weight"] = numbers_use("edge weights", fields["edge_weight"].dtype)
    notes = seen(f"fields of {what}", uses, sorted(present))
    found = GraphSource(num_nodes, edges, features, labels, num_classes, splits, notes=notes)
    return replace(found, keep_duplicates=True, edge_weights=weights, edges_name=f"edge_index of {what}")


def _weights(weight: Field, num_edges: int, what: str) -> Callable[[], Iterator[npt.NDArray[Any]]]:
    if not isinstance(weight, NpzMember):
        return weight_source(weight, num_edges, f"edge_weight of {what}")
    check_weights(weight, num_edges, f"edge_weight of {what}")
    return weight.chunks


def _whole(field: Field) -> npt.NDArray[Any]:
    return field.load() if isinstance(field, NpzMember) else field


def _chosen(field: Field | None, name: str, what: str, num_nodes: int) -> IntArray:
    """Return the ids of a split's nodes, given as a mask or as ids; none without them."""
    if field is None or name not in MASKS.values():
        return split_ids(None if field is None else _whole(field), num_nodes, f"{name} of {what}", name)
    fix = "choose one of its columns (mask[:, 0])" if len(field.shape) == 2 else "give a boolean for every node"
    fault = f"{name} of {what} is {field.dtype} {list(field.shape)}, not bool [{num_nodes}]"
    require(field.dtype == np.bool_ and field.shape == (num_nodes,), fault, fix)
    return np.flatnonzero(_whole(field))
