"""DGL's GraphBolt: an `OnDiskDataset` that is preprocessed already, for DGL 2.1.0 and
later.

The folder holds `metadata.yaml`, the topology as DGL pickles it, features and splits;
`preprocessed`, where DGL looks, has a copy of `metadata.yaml`, and digests by which DGL
finds out whether the folder was changed after preprocessing. `OnDiskDataset(path)`
compares them, and `OnDiskDataset(path, force_preprocess=False)` does not. Where they
differ, DGL removes `preprocessed`, so that folder holds nothing else.

The digests are a JSON object: the MD5 of each file by its path, which begins with the
path that `OnDiskDataset` was given (DGL 2.1.0 and later, `dataset_hash_value.txt`). So
they fit one path alone, that of the export.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np

from workloads.arraytypes import Array, JsonDict
from workloads.dataset import Dataset, Part
from workloads.exporters.files import (
    ArrayFile,
    DigestFile,
    File,
    TextFile,
    Values,
    checked_map,
    pieces,
    readable,
    stored,
)
from workloads.exporters.torch_file import TorchFile

GRAPH = "fused_csc_sampling_graph.pt"
#: Version of the pickled state of a graph, and the registered name of its class.
STATE_VERSION = 6199
NATIVE_CLASS = "__torch__.torch.classes.graphbolt.FusedCSCSamplingGraph"
SETS: dict[Part, str] = {
    "train": "train_set",
    "valid": "validation_set",
    "test": "test_set",
}
_INT32 = np.iinfo(np.int32).max


class _Graph:
    """Stand-in of DGL's Python object of a graph."""

    def __init__(self, native: _Native) -> None:
        self._c_csc_graph = native


class _Native:
    """Stand-in of the native object in it, which is pickled as its state and the name
    of its class."""

    def __init__(self, state: JsonDict) -> None:
        self._state = state

    def __getstate__(self) -> tuple[JsonDict, str]:
        return self._state, NATIVE_CLASS


_RENAMED = {
    _Graph: ("dgl.graphbolt.impl.fused_csc_sampling_graph", "FusedCSCSamplingGraph"),
    _Native: ("torch", "ScriptObject"),
}


def files_of(dataset: Dataset) -> list[File]:
    """Declare the files of a dataset: ids as int32 where they fit, as DGL itself stores
    them."""
    ids = "int32" if dataset.num_nodes <= _INT32 else "int64"
    pointers = "int32" if dataset.num_edges <= _INT32 else "int64"
    version = Values("int64", (1,), lambda: [np.array([STATE_VERSION])])
    tensors = {
        "version_number": version,
        "indptr": stored(dataset, "indptr", pointers),
        "indices": stored(dataset, "indices", ids),
    }
    state: JsonDict = {"independent_tensors": tensors}
    if "edge_weight" in dataset.manifest.files:
        state["edge_attributes"] = {"edge_weight": stored(dataset, "edge_weight")}
    files: list[File] = [TorchFile(GRAPH, _Graph(_Native(state)), _RENAMED)]
    files.append(ArrayFile("feat.npy", stored(dataset, "features")))
    features = [_feature("feat", "feat.npy")]
    if "ids" in dataset.manifest.files:
        values = stored(dataset, "ids")
        # DGL wants features of two dimensions.
        files.append(
            ArrayFile(
                "ids.npy", Values(values.dtype, (dataset.num_nodes, 1), values.pieces)
            )
        )
        features.append(_feature("ids", "ids.npy"))
    task: JsonDict = {"name": "node_classification", "num_classes": dataset.num_classes}
    labels = cache(partial(checked_map, dataset, "labels"))  # read once for all sets
    # An empty set marks a graph without splits: readers then draw none.
    bare = not any(dataset.manifest.files[part].shape[0] for part in SETS)
    for part, name in SETS.items():
        count = dataset.manifest.files[part].shape[0]
        if not count and not (part == "train" and bare):
            continue
        known = Values("int64", (count,), partial(_labels, dataset, part, labels))
        files += [
            ArrayFile(f"{part}-seeds.npy", stored(dataset, part, ids)),
            ArrayFile(f"{part}-labels.npy", known),
        ]
        task[name] = [
            {
                "data": [
                    _array("seed_nodes", f"{part}-seeds.npy"),
                    _array("labels", f"{part}-labels.npy"),
                ]
            }
        ]
    metadata = {
        "dataset_name": dataset.name,
        "include_original_edge_id": False,
        "graph_topology": {"type": "FusedCSCSamplingGraph", "path": GRAPH},
        "feature_data": features,
        "tasks": [task],
    }
    # JSON, which YAML includes: quoted, a name like `no` or `1:30` is text by every
    # version of YAML.
    text = json.dumps(metadata, indent=2) + "\n"
    copies = [
        TextFile(name, text) for name in ("metadata.yaml", "preprocessed/metadata.yaml")
    ]
    return [*files, *copies, DigestFile("preprocessed/dataset_hash_value.txt")]


def labels_left_out(dataset: Dataset) -> int:
    """Count the labels of nodes outside the three sets, which the format cannot
    hold."""
    known = sum(
        int(np.count_nonzero(piece >= 0))
        for piece in readable(pieces(dataset, "labels"))
    )
    return known - sum(dataset.manifest.files[part].shape[0] for part in SETS)


def _feature(name: str, path: str) -> JsonDict:
    return {"domain": "node", "in_memory": False, **_array(name, path)}


def _array(name: str, path: str) -> dict[str, str]:
    return {"name": name, "format": "numpy", "path": path}


def _labels(
    dataset: Dataset, part: Part, labels: Callable[[], Array]
) -> Iterator[Array]:
    """Yield the labels of a split's nodes."""
    for nodes in pieces(dataset, part):
        yield labels()[nodes]
