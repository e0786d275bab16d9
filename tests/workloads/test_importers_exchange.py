"""Importers of other programs' folders: arrays, GraphBolt's `OnDiskDataset`, Parquet;
and what they refuse."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError, OutcoreError
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.node_data import NodeDataSpec

# Sources above destinations; 3 -> 1 is there twice, node 4 has no in-neighbour.
EDGES = np.array([[0, 3, 2, 4, 3, 1], [1, 1, 2, 0, 1, 3]])
IN_NEIGHBOURS = [[4], [0, 3, 3], [2], [1], []]
X = np.arange(15, dtype=np.float32).reshape(5, 3) / 2
Y = np.array([0, 1, 2, -1, 0])
TRAIN = np.array([0, 2])
VALID = np.array([1])
TEST = np.array([4])
INDPTR = np.array([0, 1, 4, 5, 6, 6])
INDICES = np.array([4, 0, 3, 3, 2, 1])


def imported(source: Path, target: Path, format_name: str, **options: Any) -> Dataset:
    node_data = NodeDataSpec(dim=4, classes=2)
    spec = ImportSpec(
        format_name, node_data=node_data, fractions=(0.4, 0.2, 0.2), **options
    )
    dataset = import_dataset(source, target, spec)
    assert dataset.verify() == []
    return dataset


def refused(source: Path, target: Path, format_name: str) -> str:
    """Import, which has to fail with one sentence and leave nothing; return the
    sentence."""
    with pytest.raises(OutcoreError) as caught:
        imported(source, target, format_name)
    assert type(caught.value) in (InputError, DatasetError)
    assert "\n" not in str(caught.value)
    assert list(target.parent.iterdir()) == []
    return str(caught.value)


def check(dataset: Dataset) -> None:
    """Check everything but the edges, which formats keep or join."""
    np.testing.assert_array_equal(dataset.load("features"), X)
    np.testing.assert_array_equal(dataset.load("labels"), Y)
    for part, ids in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        np.testing.assert_array_equal(dataset.load(part), ids)  # type: ignore[arg-type]
    assert dataset.num_classes == 3


def lists(dataset: Dataset) -> list[list[int]]:
    indptr = dataset.load("indptr")
    indices = dataset.load("indices")
    return [sorted(indices[a:b].tolist()) for a, b in pairwise(indptr)]


# --- arrays
# --------------------------------------------------------------------------------------


def save_arrays(folder: Path, torch_files: bool = False, **arrays: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        if torch_files:
            torch.save(torch.from_numpy(np.asarray(array)), folder / f"{name}.pt")
        else:
            np.save(folder / f"{name}.npy", array)
    return folder


def mask(ids: Any) -> Any:
    return np.isin(np.arange(5), ids)


@pytest.mark.parametrize("torch_files", [False, True])
def test_a_folder_under_pygs_names_or_in_csc_is_the_same_graph(
    tmp_path: Path, torch_files: bool
) -> None:
    masks = {
        "train_mask": mask(TRAIN),
        "val_mask": mask(VALID),
        "test_mask": mask(TEST),
    }
    one = save_arrays(
        tmp_path / "pyg", torch_files, edge_index=EDGES, x=X, y=Y, **masks
    )
    ids = {"train_idx": TRAIN, "valid": VALID, "test": TEST}
    other = save_arrays(
        tmp_path / "csc",
        torch_files,
        indptr=INDPTR,
        indices=INDICES,
        feat=X,
        labels=Y,
        **ids,
    )
    unsigned = {
        name: array.astype(np.uint64)
        for name, array in (("indptr", INDPTR), ("indices", INDICES))
    }
    third = save_arrays(tmp_path / "unsigned", torch_files, **unsigned, x=X, y=Y, **ids)
    for number, folder in enumerate((one, other, third)):
        dataset = imported(folder, tmp_path / "data" / str(number), "arrays")
        check(dataset)
        assert lists(dataset) == IN_NEIGHBOURS


def test_edges_alone_get_generated_features_labels_and_splits(tmp_path: Path) -> None:
    dataset = imported(
        save_arrays(tmp_path / "g", edge_index=EDGES), tmp_path / "data" / "g", "arrays"
    )
    assert (dataset.num_nodes, dataset.dim, dataset.num_classes) == (5, 4, 2)
    assert len(dataset.load("train")) == 2


def test_weights_in_csc_stay_with_their_edges(tmp_path: Path) -> None:
    weight = np.arange(6, dtype=np.float32)
    folder = save_arrays(
        tmp_path / "g", indptr=INDPTR, indices=INDICES, x=X, y=Y, edge_weight=weight
    )
    dataset = imported(folder, tmp_path / "data" / "g", "arrays")
    # 3 -> 1, there twice, is one edge of the sum
    assert dataset.load("edge_weight").tolist() == [0, 1, 5, 4, 5]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X, "y": Y}, "holds no edges"),
        ({"indptr": INDPTR}, "holds no edges"),
        (
            {"edge_index": EDGES, "x": X, "features": X},
            "features.npy and x.npy, which mean the same",
        ),
        ({"edge_index": EDGES.T, "x": X}, r"not \[2, E\] of integers"),
        (
            {"indptr": INDPTR[::-1], "indices": INDICES},
            "indptr does not rise from 0 to the 6 edges",
        ),
        (
            {"indptr": INDPTR, "indices": INDICES.astype(float)},
            "indptr and indices are int64",
        ),
        (
            {"edge_index": EDGES, "x": X[:4]},
            "an edge names node 4, but there are 4 nodes",
        ),
        ({"edge_index": EDGES, "x": X, "y": Y[:3]}, "3 labels for 5 nodes"),
        ({"edge_index": EDGES, "x": X, "train_mask": mask(TRAIN)[:3]}, "mask"),
        ({"edge_index": EDGES, "x": X, "train": TRAIN / 2}, "give ids as integers"),
        ({"edge_index": EDGES, "x": X, "edge_weight": np.ones(4)}, "edge_weight"),
    ],
)
def test_arrays_that_contradict_each_other_are_refused(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    folder = save_arrays(tmp_path / "g", **arrays)
    with pytest.raises(OutcoreError, match=message):
        imported(folder, tmp_path / "data" / "g", "arrays")
    assert list((tmp_path / "data").iterdir()) == []


def test_no_code_of_a_torch_file_is_run(tmp_path: Path) -> None:
    class Bad:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    folder = save_arrays(tmp_path / "g", x=X)
    torch.save(Bad(), folder / "edge_index.pt")
    assert "holds no dense tensor" in refused(folder, tmp_path / "data" / "g", "arrays")
    assert not (tmp_path / "ran").exists()


# --- graphbolt
# --------------------------------------------------------------------------------------


def save_graphbolt(folder: Path, edges: str = "csv", **changed: Any) -> Path:
    """Write a folder as a user of DGL 2.1.0 makes it by hand."""
    folder.mkdir()
    if edges == "csv":
        np.savetxt(folder / "edges.csv", EDGES.T, fmt="%d", delimiter=",")
    else:
        np.save(folder / "edges.npy", EDGES)
    np.save(folder / "feat.npy", X)
    sets = {}
    for name, ids in (
        ("train_set", TRAIN),
        ("validation_set", VALID),
        ("test_set", TEST),
    ):
        torch.save(torch.from_numpy(ids), folder / f"{name}.pt")
        np.save(folder / f"{name}-labels.npy", Y[ids])
        seeds = {"name": "seed_nodes", "format": "torch", "path": f"{name}.pt"}
        labels = {"name": "labels", "format": "numpy", "path": f"{name}-labels.npy"}
        sets[name] = [{"data": [seeds, labels]}]
    metadata = {
        "dataset_name": "g",
        "graph": {
            "nodes": [{"num": 5}],
            "edges": [
                {"format": edges, "path": f"edges.{'csv' if edges == 'csv' else 'npy'}"}
            ],
        },
        "feature_data": [
            {"domain": "node", "name": "feat", "format": "numpy", "path": "feat.npy"}
        ],
        "tasks": [{"name": "node_classification", "num_classes": 3, **sets}],
        **changed,
    }
    (folder / "metadata.yaml").write_text(json.dumps(metadata))
    return folder


@pytest.mark.parametrize("edges", ["csv", "numpy"])
def test_an_on_disk_dataset_made_by_hand_is_imported(
    tmp_path: Path, edges: str
) -> None:
    dataset = imported(
        save_graphbolt(tmp_path / "g", edges), tmp_path / "data" / "g", "graphbolt"
    )
    check(dataset)
    assert lists(dataset) == IN_NEIGHBOURS


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
def test_tensors_of_younger_types_are_read(tmp_path: Path, dtype: Any) -> None:
    entry = {"domain": "edge", "name": "weight", "format": "torch", "path": "weight.pt"}
    features = [
        {"domain": "node", "name": "feat", "format": "numpy", "path": "feat.npy"},
        entry,
    ]
    folder = save_graphbolt(tmp_path / "g", feature_data=features)
    torch.save(
        torch.from_numpy(np.full(EDGES.shape[1], 3, dtype)), folder / "weight.pt"
    )
    dataset = imported(folder, tmp_path / "data" / "g", "graphbolt")
    assert dataset.load("edge_weight").sum() == 3 * EDGES.shape[1]


def test_of_several_features_feat_is_taken_and_the_others_are_named(
    tmp_path: Path,
) -> None:
    features = [
        {"domain": "node", "name": name, "format": "numpy", "path": "feat.npy"}
        for name in ("year", "feat")
    ]
    dataset = imported(
        save_graphbolt(tmp_path / "g", feature_data=features),
        tmp_path / "data" / "g",
        "graphbolt",
    )
    assert "node features left out: year" in dataset.manifest.notes


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"graph": {"nodes": [{"num": 5}, {"num": 2}], "edges": [{}]}},
            "has several types of nodes or edges",
        ),
        (
            {
                "graph": {
                    "nodes": [{"num": 4}],
                    "edges": [{"format": "csv", "path": "edges.csv"}],
                }
            },
            "5 feature rows for 4",
        ),
        (
            {
                "graph": {
                    "nodes": [{"num": 5}],
                    "edges": [{"format": "csv", "path": "no.csv"}],
                }
            },
            "no.csv is missing",
        ),
        (
            {
                "graph": {
                    "nodes": [{"num": 5}],
                    "edges": [{"format": "csv", "path": "feat.npy"}],
                }
            },
            "line 1 is not text",
        ),
        ({"graph": {}}, "lacks the field 'nodes'"),
        (
            {"tasks": [{"train_set": [{"data": [{"name": "node_pairs"}]}]}]},
            "has no split of nodes",
        ),
        (
            {
                "feature_data": [
                    {"domain": "node", "name": "x", "format": "numpy", "path": "no.npy"}
                ]
            },
            "no.npy",
        ),
    ],
)
def test_an_on_disk_dataset_that_is_not_whole_is_refused(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    assert message in refused(
        save_graphbolt(tmp_path / "g", **changed), tmp_path / "data" / "g", "graphbolt"
    )


def test_a_topology_that_holds_other_objects_is_refused_and_not_run(
    tmp_path: Path,
) -> None:
    class Bad:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    topology = {"type": "FusedCSCSamplingGraph", "path": "graph.pt"}
    folder = save_graphbolt(tmp_path / "g", graph_topology=topology)
    torch.save(Bad(), folder / "graph.pt")
    assert "no code of a file is run" in refused(
        folder, tmp_path / "data" / "g", "graphbolt"
    )
    assert not (tmp_path / "ran").exists()
    (folder / "graph.pt").write_bytes(pickle.dumps([1, 2]))
    assert "graph.pt" in refused(folder, tmp_path / "data" / "g", "graphbolt")
    torch.save([1, 2], folder / "graph.pt")
    assert "is no FusedCSCSamplingGraph" in refused(
        folder, tmp_path / "data" / "g", "graphbolt"
    )


def test_a_folder_without_metadata_is_refused(tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    assert "metadata.yaml is missing" in refused(
        tmp_path / "g", tmp_path / "data" / "g", "graphbolt"
    )


# --- parquet
# --------------------------------------------------------------------------------------


def save_parquet(
    folder: Path, parts: bool = False, nodes: Any = None, **edges: Any
) -> Path:
    folder.mkdir()
    table = pa.table({"src": EDGES[0], "dst": EDGES[1], **edges})
    split = ["train", "validation", "train", None, "test"]
    labels = pa.array(Y, mask=Y < 0)
    if nodes is None:
        whole = pa.table(
            {"id": np.arange(5), "x": list(X), "y": labels, "split": split}
        )
    else:
        whole = nodes
    for name, content in (("edges", table), ("nodes", whole)):
        if content is not False and parts:
            (folder / name).mkdir()
            for number, (a, b) in enumerate(((0, 2), (2, len(content)))):
                pq.write_table(
                    content.slice(a, b - a), folder / name / f"part-{number}.parquet"
                )
        elif content is not False:
            pq.write_table(content, folder / f"{name}.parquet", row_group_size=2)
    return folder


@pytest.mark.parametrize("parts", [False, True])
def test_parquet_tables_of_edges_and_nodes_are_imported(
    tmp_path: Path, parts: bool
) -> None:
    source = save_parquet(tmp_path / "g", parts)
    check(dataset := imported(source, tmp_path / "data" / "g", "parquet"))
    assert lists(dataset) == [[4], [0, 3], [2], [1], []]
    kept = imported(source, tmp_path / "data" / "kept", "parquet", keep_duplicates=True)
    assert lists(kept) == IN_NEIGHBOURS


def test_a_parquet_file_of_edges_alone_is_a_graph_and_weights_are_summed(
    tmp_path: Path,
) -> None:
    folder = save_parquet(tmp_path / "g", nodes=False, weight=np.arange(6) / 2)
    for number, source in enumerate((folder, folder / "edges.parquet")):
        dataset = imported(source, tmp_path / "data" / str(number), "parquet")
        assert dataset.num_nodes == 5
        assert dataset.dim == 4
        assert dataset.load("edge_weight").tolist() == [1.5, 0.0, 2.5, 1.0, 2.5]


def test_a_node_table_of_float16_lists_keeps_their_type(tmp_path: Path) -> None:
    kind = pa.list_(pa.float16(), 3)
    nodes = pa.table({"x": pa.array(list(X.astype(np.float16)), kind)})
    dataset = imported(
        save_parquet(tmp_path / "g", nodes=nodes), tmp_path / "data" / "g", "parquet"
    )
    assert dataset.feature_dtype == np.float16
    np.testing.assert_array_equal(dataset.load("features"), X.astype(np.float16))


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (None, {"src": EDGES[0] / 2}, "column src of"),
        (None, {"src": pa.array([1, None, 2, 0, 0, 1])}, "1 nulls"),
        (None, {"source": EDGES[0]}, "src and source, which mean the same"),
        (None, {"dst": EDGES[1] + 5}, "an edge names node 8, but there are 5 nodes"),
        (
            pa.table({"id": np.arange(5)[::-1], "x": list(X)}),
            {},
            "does not count from 0",
        ),
        (
            pa.table({"x": [[1.0], [1.0, 2.0], [1.0], [1.0], [1.0]]}),
            {},
            "lists of unequal length",
        ),
        (pa.table({"x": ["a"] * 5}), {}, "give lists of numbers"),
        (pa.table({"x": list(X), "y": list("abcab")}), {}, "give class numbers"),
        (
            pa.table({"x": list(X), "split": ["train", "dev", "test", None, None]}),
            {},
            "holds 'dev'",
        ),
    ],
)
def test_parquet_tables_that_contradict_the_layout_are_refused(
    tmp_path: Path, nodes: Any, edges: dict[str, Any], message: str
) -> None:
    assert message in refused(
        save_parquet(tmp_path / "g", nodes=nodes, **edges),
        tmp_path / "data" / "g",
        "parquet",
    )


def test_a_damaged_or_missing_parquet_file_is_refused(tmp_path: Path) -> None:
    folder = save_parquet(tmp_path / "g")
    content = (folder / "edges.parquet").read_bytes()
    (folder / "edges.parquet").write_bytes(content[: len(content) // 2])
    assert "is no whole Parquet file" in refused(
        folder, tmp_path / "data" / "g", "parquet"
    )
    (folder / "edges.parquet").unlink()
    assert "there is no edges.parquet" in refused(
        folder, tmp_path / "data" / "g", "parquet"
    )
