"""What is given to an import is kept exactly, or refused in one sentence with the
fix."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.data import Data

from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError, OutcoreError
from workloads.exporters import export_dataset
from workloads.importers import source as sources
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.node_data import NodeDataSpec

N = 6
EDGES = np.array([[0, 3, 2, 4, 5, 1], [1, 1, 2, 0, 1, 3]])
X = np.arange(12, dtype=np.float32).reshape(N, 2)
Y = np.array([0, 1, 2, -1, 0, 1])
GRAPH: dict[str, Any] = {"edge_index": EDGES, "x": X, "y": Y}
NONE = np.zeros(N, dtype=bool)
VALID = np.arange(N) == 1
TEST = np.arange(N) > 3


def imported(source: Path, format_name: str = "arrays", **options: Any) -> Dataset:
    spec = ImportSpec(
        format_name,
        node_data=NodeDataSpec(dim=4, classes=2),
        fractions=(0.4, 0.2, 0.2),
        **options,
    )
    target = (
        source.parent
        / "data"
        / f"{source.name}-{len(list(source.parent.glob('data/*')))}"
    )
    dataset = import_dataset(source, target, spec)
    assert dataset.verify() == []
    return dataset


def refused(source: Path, format_name: str = "arrays", **options: Any) -> str:
    """Import, which has to fail with one sentence and leave nothing; return the
    sentence."""
    with pytest.raises(OutcoreError) as caught:
        imported(source, format_name, **options)
    assert type(caught.value) in (InputError, DatasetError)
    assert caught.value.fix
    assert "\n" not in str(caught.value)
    assert list((source.parent / "data").glob("*")) == []
    return str(caught.value)


def arrays(folder: Path, **changed: Any) -> Path:
    """Save arrays as `.npy` and tensors as `.pt`; None leaves one out."""
    folder.mkdir()
    for name, value in (GRAPH | changed).items():
        if isinstance(value, torch.Tensor):
            torch.save(value, folder / f"{name}.pt")
        elif value is not None:
            np.save(folder / f"{name}.npy", value)
    return folder


def graphbolt(
    folder: Path,
    *,
    num: Any = N,
    edges: str = "",
    by_edge: dict[str, Any] | None = None,
    top: bool = False,
    seeds: Any = None,
    **task: Any,
) -> Path:
    """Write a folder as a user of DGL makes it by hand, with valid and test nodes
    alone; `by_edge` are edge features, at the `top` or in the graph, and `seeds` other
    test nodes than those of the labels 0 and 1."""
    folder.mkdir()
    (folder / "e.csv").write_text(edges or "".join(f"{u},{v}\n" for u, v in EDGES.T))
    sets: dict[str, Any] = {}
    for name, mask in (("validation_set", VALID), ("test_set", TEST)):
        np.save(folder / f"{name}.npy", np.flatnonzero(mask))
        np.save(folder / f"{name}-y.npy", Y[mask])
        if name == "test_set" and seeds is not None:
            np.save(folder / "test_set.npy", seeds)
        entries = (("seeds", f"{name}.npy"), ("labels", f"{name}-y.npy"))
        sets[name] = [
            {
                "data": [
                    {"name": kind, "format": "numpy", "path": path}
                    for kind, path in entries
                ]
            }
        ]
    features = []
    for name, values in (by_edge or {}).items():
        np.save(folder / f"{name}.npy", values)
        features.append(
            {
                "domain": "edge",
                "type": None,
                "name": name,
                "format": "numpy",
                "path": f"{name}.npy",
            }
        )
    graph: dict[str, Any] = {
        "nodes": [{"num": num}],
        "edges": [{"format": "csv", "path": "e.csv"}],
    }
    metadata = {"graph": graph, "tasks": [sets | task]}
    (metadata if top else graph)["feature_data"] = features
    (folder / "metadata.yaml").write_text(json.dumps(metadata))
    return folder


def parquet(folder: Path, edges: list[Any] | None = None, **nodes: Any) -> Path:
    """Write tables of edges (one part for each of `edges`, columns by name) and, if it
    has columns, of nodes."""
    (folder / "edges").mkdir(parents=True)
    for number, part in enumerate(edges or [{}]):
        table = pa.table(
            {"src": EDGES[0], "dst": EDGES[1]} | part
            if isinstance(part, dict)
            else part
        )
        pq.write_table(table, folder / "edges" / f"{number}.parquet")
    if nodes:
        pq.write_table(
            pa.table(nodes), folder / "nodes.parquet", write_page_checksum=True
        )
    return folder


# --- splits and labels
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["masks", "ids", "no train", "graphbolt", "parquet"])
def test_given_splits_are_kept_where_they_leave_no_node_to_train_on(
    tmp_path: Path, how: str
) -> None:
    if how == "graphbolt":
        dataset = imported(graphbolt(tmp_path / "g"), how)
    elif how == "parquet":
        words = np.where(VALID, "valid", np.where(TEST, "test", ""))
        dataset = imported(parquet(tmp_path / "g", x=list(X), y=Y, split=words), how)
    else:
        train = {"masks": NONE, "ids": np.empty(0, dtype=np.int64), "no train": None}[
            how
        ]
        dataset = imported(
            arrays(tmp_path / "g", train=train, valid=VALID, test_mask=TEST)
        )
    found = [dataset.load(part).tolist() for part in ("train", "valid", "test")]  # type: ignore[arg-type]
    assert found == [[], [1], [4, 5]]
    assert "no node to train on: the train split is empty" in dataset.manifest.notes
    for format_name, back in (
        ("pyg", "arrays"),
        ("dgl", "arrays"),
        ("graphbolt", "graphbolt"),
    ):
        export_dataset(dataset, tmp_path / format_name, format_name)
        again = imported(tmp_path / format_name, back)
        assert [
            again.load(part).tolist() for part in ("train", "valid", "test")
        ] == found  # type: ignore[arg-type]
        assert again.content == dataset.content or format_name == "graphbolt"


def test_splits_are_drawn_where_none_is_given_and_a_note_states_so(
    tmp_path: Path,
) -> None:
    dataset = imported(arrays(tmp_path / "g"))
    assert len(dataset.load("train")) == 2
    assert (
        "splits drawn at random (0.4, 0.2, 0.2 of the labelled nodes)"
        in dataset.manifest.notes
    )


def test_a_graph_without_any_label_stays_so_or_gets_labels_on_demand(
    tmp_path: Path,
) -> None:
    unknown = np.full(N, -1)
    nobody = {"train": NONE, "valid": NONE, "test": NONE}
    assert "use --labels" in refused(arrays(tmp_path / "g", y=unknown))
    kept = imported(arrays(tmp_path / "kept", y=unknown, **nobody))
    export_dataset(kept, tmp_path / "out", "pyg")
    export_dataset(kept, tmp_path / "dgls", "graphbolt")
    for folder, back in (("out", "arrays"), ("dgls", "graphbolt")):
        assert imported(tmp_path / folder, back).content == kept.content
    for folder in ("g", "out"):
        dataset = imported(tmp_path / folder, new_labels=True)
        assert dataset.load("labels").min() >= 0
        assert len(dataset.load("train"))
    assert "new_labels" not in kept.manifest.recipe
    assert dataset.manifest.recipe["new_labels"]


@pytest.mark.parametrize("format_name", ["pyg", "dgl", "graphbolt"])
def test_the_number_of_classes_outlives_an_export(
    tmp_path: Path, format_name: str
) -> None:
    masks = {"train_mask": np.arange(N) < 3, "val_mask": NONE, "test_mask": NONE}
    dataset = imported(arrays(tmp_path / "g", num_classes=np.array(50), **masks))
    export_dataset(dataset, tmp_path / "out", format_name)
    back = "graphbolt" if format_name == "graphbolt" else "arrays"
    assert dataset.num_classes == imported(tmp_path / "out", back).num_classes == 50
    assert imported(tmp_path / "out", back, classes=60).num_classes == 60
    with pytest.raises(
        InputError, match="--classes is 40, but the labels are of 50 classes"
    ):
        imported(tmp_path / "out", back, classes=40)


def test_counts_of_an_array_each_are_taken_and_other_files_named(
    tmp_path: Path,
) -> None:
    counts = {"num_nodes": np.array(9), "num_classes": np.array(5)}
    folder = arrays(tmp_path / "g", x=None, y=None, **counts, edge_attr=X)
    (folder / "deep").mkdir()
    dataset = imported(folder)
    assert (
        dataset.num_nodes,
        dataset.num_classes,
        imported(folder, classes=3).num_classes,
    ) == (9, 5, 2)
    assert "files left out: deep, edge_attr.npy" in dataset.manifest.notes


@pytest.mark.parametrize("kind", ["npz", "dict", "Data"])
def test_pygs_ids_and_number_of_classes_are_taken_and_other_fields_named(
    tmp_path: Path, kind: str
) -> None:
    ids = {
        "train_idx": np.flatnonzero(TEST),
        "val_idx": np.array([0]),
        "test_idx": np.array([2]),
    }
    graph = {
        **GRAPH,
        **ids,
        "test_mask": VALID,
        "num_classes": np.array(50),
        "edge_attr": X,
    }
    file = tmp_path / ("g.npz" if kind == "npz" else "g.pt")
    if kind == "npz":
        np.savez(file, **graph)
    else:
        tensors = {name: torch.from_numpy(array) for name, array in graph.items()} | {
            "num_classes": 50
        }
        torch.save(tensors if kind == "dict" else Data(**tensors), file)
    dataset = imported(file, "pyg")
    found = [dataset.load(part).tolist() for part in ("train", "valid", "test")]  # type: ignore[arg-type]
    assert (found, dataset.num_classes) == ([[4, 5], [0], [1]], 50)
    assert (
        f"fields of {file.name} left out: edge_attr, test_idx" in dataset.manifest.notes
    )


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
def test_zeros_and_ones_for_all_nodes_are_a_mask(tmp_path: Path, dtype: str) -> None:
    dataset = imported(arrays(tmp_path / "g", train_mask=TEST.astype(dtype)))
    assert dataset.load("train").tolist() == [4, 5]
    two = arrays(
        tmp_path / "two",
        edge_index=EDGES[:, :0],
        x=X[:2],
        y=Y[:2],
        train=np.array([0, 1], dtype=dtype),
    )
    assert imported(two).load("train").tolist() == ([1] if dtype == "uint8" else [0, 1])


def test_floats_keep_their_type_in_either_byte_order_and_infinite_weights_are_reported(
    tmp_path: Path,
) -> None:
    weight = np.array([1.0, np.nan, 1e300, np.inf, -1.0, 0.0])
    dataset = imported(arrays(tmp_path / "g", x=X.astype(">f2"), edge_weight=weight))
    assert dataset.feature_dtype == np.float16
    np.testing.assert_array_equal(dataset.load("features"), X)
    assert "3 edge weights are not finite" in dataset.manifest.notes


# --- arrays that are refused
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y": np.where(Y == 2, 1e300, Y)}, "y.npy holds class 1e+300, and there "
            "may be 1048576 classes"),
        ({"y": np.where(Y == 2, np.inf, Y)}, "holds class inf"),
        ({"y": np.where(Y == 2, 2**64 - 1, Y.clip(0).astype(np.uint64))}, "holds class "
            "18446744073709551615"),
        ({"y": np.where(Y == 2, 2**63 - 1, Y)}, "holds class 9223372036854775807"),
        ({"num_classes": np.array(10**12)}, "num_classes.npy is 1000000000000"),
        ({"num_classes": np.array(2)}, "num_classes.npy is 2, but the labels are "
            "of 3 classes"),
        ({"edge_index": np.where(EDGES == 5, 2**40, EDGES), "x": None, "y": None}, "has 1099511627777 nodes"),
        ({"edge_index": EDGES.astype(np.uint64) - np.uint64(1), "x": None, "y": None}, "has 18446744073709551616"),
        ({"edge_index": -1 - EDGES, "x": None, "y": None}, "edge_index.npy: an "
            "edge names node -6"),
        ({"edge_index": EDGES + 1}, "index.npy: an edge names node 6, but there "
            "are 6 nodes; give ids from "
            "0 to 5"),
        ({"train": np.array([1, -2])}, "train.npy names node -2, but there are 6 "
            "nodes"),
        ({"features": torch.from_numpy(X)}, "holds features.pt and x.npy, which "
            "mean the same"),
        ({"x": torch.from_numpy(X).to(torch.float8_e4m3fn)}, "x.pt is float8_e4m3fn; "
            "give it "
            "dense"),
        ({"x": torch.from_numpy(X).to(torch.complex64).conj()}, "x.pt is complex64"),
        ({"num_nodes": np.array(7), "y": None}, "there are 6 feature rows for 7 nodes"),
        ({"num_nodes": np.array(5), "x": None, "y": None}, "an edge names node 5, "
            "but there are 5 nodes"),
        ({"indptr": np.arange(N + 1), "indices": EDGES[0]}, "indptr.npy both hold "
            "the edges"),
        ({"edge_index": None, "indptr": np.arange(N + 1), "indices": EDGES[0], "num_nodes": np.array(7)},
         "num_nodes.npy is 7, but the neighbour lists have 6 nodes"),
        ({"x": torch.empty(N, 2, device="meta")}, "x.pt is empty"),
    ],
)  # fmt: skip
def test_arrays_that_a_dataset_cannot_hold_are_refused(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    assert message in refused(arrays(tmp_path / "g", **changed))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["quantized", "nested"])
def test_tensors_that_are_no_array_are_refused(tmp_path: Path, kind: str) -> None:
    x = torch.from_numpy(X)
    if kind == "quantized":
        odd = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    else:
        odd = torch.nested.nested_tensor([x])
    assert {"quantized": "is qint8", "nested": "is nested"}[kind] in refused(
        arrays(tmp_path / "g", x=odd)
    )


@pytest.mark.parametrize("num_nodes", [np.empty(0), np.nan, "abc", 7.5, 10**15])
def test_a_count_in_an_npz_file_is_a_whole_number(
    tmp_path: Path, num_nodes: Any
) -> None:
    np.savez(
        tmp_path / "g.npz", **GRAPH, train_mask=TEST, num_nodes=np.array(num_nodes)
    )
    assert "num_nodes of g.npz is" in refused(tmp_path / "g.npz", "pyg")


def test_a_saved_list_of_unequal_length_is_refused(tmp_path: Path) -> None:
    torch.save(
        {"edge_index": EDGES.tolist(), "x": X.tolist(), "y": [[1], [1, 2]]},
        tmp_path / "g.pt",
    )
    assert "y of g.pt is list" in refused(tmp_path / "g.pt", "pyg")


def test_a_tensor_that_stands_for_the_negatives_of_its_memory_is_resolved(
    tmp_path: Path,
) -> None:
    x = torch.complex(torch.zeros(N, 2), torch.from_numpy(X)).conj().imag
    assert x.is_neg()
    dataset = imported(arrays(tmp_path / "g", x=x))
    np.testing.assert_array_equal(dataset.load("features"), -X)


def test_a_saved_dictionary_of_arrays_is_refused_with_a_fix_that_helps(
    tmp_path: Path,
) -> None:
    torch.save(GRAPH, tmp_path / "g.pt")
    assert (
        "and no code of a file is run; save its tensors alone: torch.from_numpy"
        in refused(tmp_path / "g.pt", "pyg")
    )


# --- GraphBolt and Parquet
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        *(
            ({"num": num}, "num, of the nodes of")
            for num in ("abc", 0, -5, float("nan"), float("inf"), 5.5, 10**15, None)
        ),
        *(
            ({"num_classes": stated}, "num_classes of")
            for stated in ("abc", 10**12, -5, 1, 2.5)
        ),
        (
            {"edges": f"{'9' * 23},1\n"},
            "9,1' is not an edge; write two ids a line, each of at most 19 digits",
        ),
        ({"edges": f"{2**63},1\n"}, f"e.csv, line 1: '{2**63},1' is not an edge"),
        *(
            ({"edges": f"0,{odd}\n"}, f"e.csv, line 1: '0,{odd}' is not")
            for odd in ("1.0", "1e0", "true", "x", "")
        ),
        ({"edges": "0,6\n"}, "e.csv: an edge names node 6, but there are 6 nodes"),
        (
            {"edges": "0,1,0.5\n1,2,0.5\n"},
            "columns, such as '0.5'; give source and destination alone",
        ),
        ({"edges": "0,5,1\n1,4,2\n"}, "e.csv has more than two columns"),
        ({"edges": "0\n1\n"}, "e.csv, line 1: '0' is not an edge"),
        ({"edges": "0,1\n1,2,0.5\n"}, "e.csv has more than two columns"),
        ({"edges": "0.0,1.0\n"}, "e.csv, line 1: '0.0,1.0' is not an edge"),
        (
            {"edges": "src,dst\n0,1\n"},
            "e.csv begins with the names of columns; remove this line",
        ),
        ({"by_edge": {"weight": np.ones(5)}}, "feature weight of"),
        ({"seeds": [4, 4]}, "test_set.npy names node 4 twice, with two labels"),
        ({"test_set": 5}, "metadata.yaml has another layout than DGL's"),
        ({"test_set": [{}]}, "metadata.yaml lacks the field 'data'"),
    ],
)
def test_odd_metadata_is_refused(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    assert message in refused(graphbolt(tmp_path / "g", **changed), "graphbolt")


@pytest.mark.parametrize("top", [False, True])
@pytest.mark.parametrize("name", ["edge_weight", "weight"])
def test_edge_weights_of_graphbolt_are_kept_and_other_edge_features_named(
    tmp_path: Path, name: str, top: bool
) -> None:
    weight = np.arange(6) / 2
    dataset = imported(
        graphbolt(tmp_path / "g", by_edge={"year": weight, name: weight}, top=top),
        "graphbolt",
    )
    assert dataset.load("edge_weight").tolist() == [
        weight[at] for at in np.lexsort((EDGES[0], EDGES[1]))
    ]
    assert "edge features left out: year" in dataset.manifest.notes


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [
        ([{"src": EDGES[0] + 2**45}], {}, "edges has 35184372088838 nodes"),
        ([{"src": -EDGES[0] - 1}], {}, "edges: an edge names node -6"),
        ([{"weight": X[:, 0]}, {}], {}, "1.parquet has no column weight"),
        (
            [{}, pa.table({"source": EDGES[0], "dst": EDGES[1]})],
            {},
            "src and source, which mean the same",
        ),
        (
            [pa.table([EDGES[0], EDGES[0], EDGES[1]], names=["src", "src", "dst"])],
            {},
            "several columns src",
        ),
        ([], {"x": list(X), "split": [["train"]] * N}, "column split of"),
        ([], {"x": list(X), "split": [{"a": 1}] * N}, "column split of"),
        (
            [],
            {"x": list(X), "y": np.where(Y == 2, 10**12, Y)},
            "holds class 1000000000000",
        ),
    ],
)
def test_odd_tables_are_refused(
    tmp_path: Path, edges: list[Any], nodes: dict[str, Any], message: str
) -> None:
    assert message in refused(parquet(tmp_path / "g", edges, **nodes), "parquet")


def test_parquet_parts_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "g")
    (folder / "nodes").mkdir()
    for node in range(N):
        table = pa.table({"x": [X[node]], "y": [node], "year": [1]})
        pq.write_table(table, folder / "nodes" / f"part-{7 + node}.parquet")
    (folder / "nodes" / "_SUCCESS").touch()
    (folder / "nodes" / ".part-0.parquet.crc").touch()
    (folder / "README.md").touch()
    dataset = imported(folder, "parquet")
    assert dataset.load("labels").tolist() == list(range(N))
    np.testing.assert_array_equal(dataset.load("features"), X)
    assert {
        "columns of nodes left out: year",
        "other files left out: README.md",
    } <= set(dataset.manifest.notes)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "edges/split=train/0.parquet",
            "edges holds split=train, which is no .parquet file",
        ),
        ("edges/1.parq", "edges holds 1.parq, which is no .parquet file"),
        (
            "edges.parquet",
            "holds edges.parquet and the folder edges, which mean the same",
        ),
        ("nodes.parq", "nodes.parq is not read; name the table nodes.parquet"),
        ("nodes/_0.parquet", "nodes holds no .parquet file"),
    ],
)
def test_parquet_files_that_would_not_be_read_are_refused(
    tmp_path: Path, path: str, message: str
) -> None:
    folder = parquet(tmp_path / "g")
    (folder / path).parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"src": [0], "dst": [1]}), folder / path)
    assert message in refused(folder, "parquet")


@pytest.mark.parametrize("name", ["id", "ID", "Id", "nid", "index", "node", "node_id"])
def test_ids_of_parquet_nodes_count_from_0_under_every_name(
    tmp_path: Path, name: str
) -> None:
    folder = parquet(tmp_path / "g", **{"x": list(X), name: np.arange(N)[::-1]})
    assert f"column {name} of" in refused(folder, "parquet")


@pytest.mark.parametrize("kind", [pa.uint8(), pa.uint64(), pa.int32()])
def test_labels_of_any_integer_type_may_be_null(tmp_path: Path, kind: Any) -> None:
    labels = pa.array([int(label) if label >= 0 else None for label in Y], kind)
    dataset = imported(parquet(tmp_path / "g", x=list(X), y=labels), "parquet")
    np.testing.assert_array_equal(dataset.load("labels"), Y)


def test_checksums_of_parquet_pages_are_compared(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "g", x=list(X), y=Y)
    content = bytearray((folder / "nodes.parquet").read_bytes())
    content[content.index(X[4:].tobytes())] ^= 1
    (folder / "nodes.parquet").write_bytes(content)
    assert "nodes.parquet is no whole Parquet file" in refused(folder, "parquet")


# --- files that cannot be read
# --------------------------------------------------------------------------------------


def test_what_is_no_file_of_an_array_is_refused_with_a_fix_that_helps(
    tmp_path: Path,
) -> None:
    folder = arrays(tmp_path / "g")
    file = folder / "x.npy"
    np.savez(tmp_path / "zip.npz", X)
    for content in (
        b"hello, pickle",
        (tmp_path / "zip.npz").read_bytes(),
        b"",
        file.read_bytes()[:-4],
    ):
        file.write_bytes(content)
        message = refused(folder)
        assert "x.npy is no whole .npy file" in message
        assert "numpy.save it again" in message
        assert "allow_pickle" not in message
    file.unlink()
    for make, message in (
        (file.mkdir, "is a folder"),
        (lambda: os.mkfifo(file), "is no regular file"),
    ):
        make()
        assert message in refused(folder)
        file.rmdir() if file.is_dir() else file.unlink()
    torch.save(
        torch.from_numpy(X), folder / "x.pt", _use_new_zipfile_serialization=False
    )
    assert "torch before 1.6" in (message := refused(folder))
    assert "torch.save(torch.load(PATH), PATH)" in message
    (folder / "x.pt").write_bytes(b"hello")
    assert "x.pt is no tensor that torch.save wrote" in refused(folder)
    assert "more than plain arrays" in refused(folder / "y.npy", "npz")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "x.npy"), "Permission denied; "),
        (OSError(5, "Input/output error"), "Input/output error; "),
        (MemoryError(), "takes more memory than there is"),
    ],
)
@pytest.mark.parametrize("place", ["load_array", "iterdir"])
def test_what_the_system_refuses_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    error: Exception,
    message: str,
) -> None:
    folder = arrays(tmp_path / "g")

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    with monkeypatch.context() as patch:
        if place == "iterdir":
            patch.setattr(Path, place, fail)
        else:
            patch.setattr(sources.npy_format, "open_memmap", fail)
        with pytest.raises(DatasetError, match=message) as caught:
            imported(folder)
    assert "download" not in str(caught.value)
