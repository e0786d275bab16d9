"""Rows, columns and directions are never mixed up in silence: the order of nodes,
transposed edges, self-loops."""

from __future__ import annotations

import gzip
import importlib
import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch

from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError
from workloads.making.importing import ImportSpec, import_dataset

N = 4
# 0 -> 1, 2 -> 2, and 3 -> 1 in both directions.
EDGES = np.array([[0, 2, 3, 1], [1, 2, 1, 3]])
WEIGHTS = np.array([3.0, 5.0, 2.0, 7.0], dtype=np.float32)
X = np.arange(2 * N, dtype=np.float32).reshape(N, 2)
Y = np.array([0, 1, 2, 1])
MASKS = {
    "train_mask": np.array([1, 0, 0, 0], bool),
    "val_mask": np.array([0, 1, 0, 0], bool),
}


def imported(source: Path, format_name: str, **options: Any) -> Dataset:
    target = (
        source.parent
        / "data"
        / f"{source.name}-{len(list(source.parent.glob('data/*')))}"
    )
    dataset = import_dataset(source, target, ImportSpec(format_name, **options))
    assert dataset.verify() == []
    return dataset


def notes_of(dataset: Dataset) -> str:
    return " | ".join(dataset.manifest.notes)


def lists(dataset: Dataset) -> list[list[int]]:
    indptr = dataset.load("indptr")
    indices = dataset.load("indices")
    return [indices[a:b].tolist() for a, b in pairwise(indptr)]


# --- both directions
# --------------------------------------------------------------------------------------


def as_arrays(folder: Path, weights: Any) -> Path:
    folder.mkdir()
    np.save(folder / "edge_index.npy", EDGES)
    np.save(folder / "x.npy", X)
    if weights is not None:
        np.save(folder / "edge_weight.npy", weights)
    return folder


def as_csc(folder: Path, weights: Any) -> Path:
    folder.mkdir()
    order = np.lexsort((EDGES[0], EDGES[1]))
    np.save(folder / "indptr.npy", np.searchsorted(EDGES[1][order], np.arange(N + 1)))
    np.save(folder / "indices.npy", EDGES[0][order])
    np.save(folder / "x.npy", X)
    if weights is not None:
        np.save(folder / "edge_weight.npy", weights[order])
    return folder


def as_npz(folder: Path, weights: Any) -> Path:
    values = np.ones(4, np.float32) if weights is None else weights
    matrix = sp.csr_matrix((values, (EDGES[0], EDGES[1])), shape=(N, N))
    parts = {
        "adj_data": matrix.data,
        "adj_indices": matrix.indices,
        "adj_indptr": matrix.indptr,
    }
    np.savez(folder.with_suffix(".npz"), **parts, adj_shape=np.array(matrix.shape), x=X)
    return folder.with_suffix(".npz")


def as_pyg(folder: Path, weights: Any) -> Path:
    weighted = {} if weights is None else {"edge_weight": weights}
    np.savez(
        folder.with_suffix(".npz"), edge_index=EDGES, x=X, y=Y, **MASKS, **weighted
    )
    return folder.with_suffix(".npz")


def as_parquet(folder: Path, weights: Any) -> Path:
    folder.mkdir()
    weighted = {} if weights is None else {"weight": weights}
    pq.write_table(
        pa.table({"src": EDGES[0], "dst": EDGES[1], **weighted}),
        folder / "edges.parquet",
    )
    pq.write_table(pa.table({"x": list(X)}), folder / "nodes.parquet")
    return folder


def as_graphbolt(folder: Path, weights: Any) -> Path:
    folder.mkdir()
    np.save(folder / "edges.npy", EDGES)
    graph: dict[str, Any] = {
        "nodes": [{"num": N}],
        "edges": [{"format": "numpy", "path": "edges.npy"}],
    }
    if weights is not None:
        np.save(folder / "weight.npy", weights)
        entry = {
            "domain": "edge",
            "name": "weight",
            "format": "numpy",
            "path": "weight.npy",
        }
        graph["feature_data"] = [entry]
    (folder / "metadata.yaml").write_text(json.dumps({"graph": graph}))
    return folder


def as_ogb(folder: Path, weights: Any) -> Path:
    paper = folder / "processed" / "paper"
    cites = folder / "processed" / "paper___cites___paper"
    paper.mkdir(parents=True)
    cites.mkdir()
    np.save(paper / "node_feat.npy", X)
    np.save(paper / "node_label.npy", Y)
    np.save(cites / "edge_index.npy", EDGES)
    splits = {"train": np.array([0]), "valid": np.array([1]), "test": np.array([2])}
    torch.save(splits, folder / "split_dict.pt")
    return folder


def as_igb(folder: Path, weights: Any) -> Path:
    paper = folder / "processed" / "paper"
    cites = folder / "processed" / "paper__cites__paper"
    paper.mkdir(parents=True)
    cites.mkdir()
    np.save(paper / "node_feat.npy", X)
    np.save(paper / "node_label_19.npy", Y)
    np.save(cites / "edge_index.npy", EDGES.T.copy())
    return folder


WEIGHTED: dict[str, tuple[str, Callable[[Path, Any], Path]]] = {
    "arrays": ("arrays", as_arrays),
    "csc": ("arrays", as_csc),
    "npz": ("npz", as_npz),
    "pyg": ("pyg", as_pyg),
    "parquet": ("parquet", as_parquet),
    "graphbolt": ("graphbolt", as_graphbolt),
}
MAKERS = WEIGHTED | {"ogb": ("ogb", as_ogb), "igb": ("igb", as_igb)}


@pytest.mark.parametrize("kind", MAKERS)
def test_both_directions_hold_a_self_loop_once(tmp_path: Path, kind: str) -> None:
    format_name, make = MAKERS[kind]
    source = make(tmp_path / "g", None)
    kept = imported(source, format_name, symmetric=True, keep_duplicates=True)
    # 1 - 3 is there in both directions, and so twice in each: kept as given.
    assert lists(kept) == [[1], [0, 3, 3], [2], [1, 1]]
    assert "1 self-loops" in notes_of(kept)


@pytest.mark.parametrize("kind", WEIGHTED)
def test_both_directions_hold_the_weight_of_a_self_loop_once(
    tmp_path: Path, kind: str
) -> None:
    format_name, make = WEIGHTED[kind]
    dataset = imported(make(tmp_path / "g", WEIGHTS), format_name, symmetric=True)
    assert lists(dataset) == [[1], [0, 3], [2], [1]]
    # 3 -> 1 of weight 2 and 1 -> 3 of weight 7 are both an edge in both directions: 9.
    assert dataset.load("edge_weight").tolist() == [3, 3, 9, 5, 9]


# --- what was seen
# --------------------------------------------------------------------------------------


def test_npz_weights_features_labels_and_masks_are_taken_and_every_array_is_named(
    tmp_path: Path,
) -> None:
    source = as_npz(tmp_path / "g", WEIGHTS)
    with np.load(source) as file:
        arrays = {name: file[name] for name in file.files if name != "x"}
    masks = MASKS | {"test_mask": np.array([0, 0, 1, 0], np.uint8)}
    np.savez(
        source,
        **arrays,
        features=X.astype(np.float64),
        y=Y,
        **masks,
        edge_attr=X,
        node_names=np.arange(N),
    )
    dataset = imported(source, "npz")
    np.testing.assert_array_equal(dataset.load("features"), X)
    np.testing.assert_array_equal(dataset.load("labels"), Y)
    assert [dataset.load(part).tolist() for part in ("train", "valid", "test")] == [
        [0],
        [1],
        [2],
    ]  # type: ignore[arg-type]
    assert dataset.load("edge_weight").tolist() == [3, 2, 5, 7]
    notes = notes_of(dataset)
    assert "arrays of g.npz left out: edge_attr, node_names" in notes
    for use in (
        "adj_data as edge weights",
        "features as features (float64 kept as float32)",
        "test_mask as test mask",
    ):
        assert use in notes


def test_npz_arrays_that_are_not_read_may_hold_anything_and_repeated_ids_are_counted(
    tmp_path: Path,
) -> None:
    source = as_npz(tmp_path / "g", None)
    with np.load(source) as file:
        arrays = {name: file[name] for name in file.files if name != "x"}
    names = np.array(["a", None, 1, 2.0], dtype=object)
    ids = np.array([3, 0, 3, 3, 0])
    np.savez(
        source,
        **arrays,
        attr_matrix=X,
        attr_names=names,
        node_names=names,
        y=Y,
        train_idx=ids,
    )
    dataset = imported(source, "npz")
    np.testing.assert_array_equal(dataset.load("features"), X)
    assert dataset.load("train").tolist() == [0, 3]
    assert "3 repeated ids of the train split left out" in dataset.manifest.notes
    assert "arrays of g.npz left out: attr_names, node_names" in dataset.manifest.notes


def test_npz_weights_that_are_all_one_are_no_weights(tmp_path: Path) -> None:
    dataset = imported(as_npz(tmp_path / "g", None), "npz")
    assert "edge_weight" not in dataset.manifest.files
    assert "adj_data as edges, all of weight one" in notes_of(dataset)


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({"features": X}, "holds x and features, which mean the same"),
        ({"y": Y, "labels": Y}, "holds y and labels, which mean the same"),
        ({"attr_data": Y}, "holds x and attr_data, which mean the same"),
        ({"train_mask": np.array([0, 1, 2, 0])}, "and no mask of 4 nodes"),
        ({"train_idx": np.array([0.0, 1.0])}, "give ids as integers"),
        ({"train_idx": np.array([[0], [1]])}, r"give ids \[M\], or a bool mask"),
        (
            {"train_idx": np.array([0, 1, 1, 0])},
            "holds zeros and ones alone for all 4 nodes, like a mask",
        ),
        (
            {"adj_shape": np.array([4.0, 4.0])},
            "adj_shape holds float64 .*, not two integers",
        ),
    ],
)
def test_npz_arrays_that_contradict_each_other_are_refused(
    tmp_path: Path, added: dict[str, Any], message: str
) -> None:
    source = as_npz(tmp_path / "g", None)
    with np.load(source) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(source, **(arrays | added))
    with pytest.raises(InputError, match=message):
        imported(source, "npz")


@pytest.mark.parametrize("kind", MAKERS)
def test_every_format_names_what_it_read_and_what_it_left_out(
    tmp_path: Path, kind: str
) -> None:
    format_name, make = MAKERS[kind]
    source = make(tmp_path / "g", WEIGHTS)
    if source.is_dir():
        np.save(source / "year.npy", Y)
    else:
        with np.load(source) as file:
            arrays = {name: file[name] for name in file.files}
        np.savez(source, **arrays, year=Y)
    notes = imported(source, format_name).manifest.notes
    assert [
        note
        for note in notes
        if (" read: " in note and "edge" in note) or "sources" in note
    ]
    assert [note for note in notes if " left out: " in note and "year" in note]


def test_names_that_cannot_be_printed_are_escaped(tmp_path: Path) -> None:
    folder = as_arrays(tmp_path / "g", None)
    for name in (b"a\nb.txt", b"\xff.npy"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).touch()
    notes = imported(folder, "arrays").manifest.notes
    assert r"files left out: a\nb.txt, \udcff.npy" in notes


# --- the order of nodes
# --------------------------------------------------------------------------------------


def frame_folder(folder: Path, frame: pd.DataFrame, **options: Any) -> Path:
    folder.mkdir()
    pq.write_table(
        pa.table({"src": EDGES[0], "dst": EDGES[1]}), folder / "edges.parquet"
    )
    frame.to_parquet(folder / "nodes.parquet", **options)
    return folder


def nodes_frame(index: Any = None) -> pd.DataFrame:
    split = ["train", "valid", "test", None]
    return pd.DataFrame({"x": list(X), "y": Y, "split": split}, index=index)


def check_nodes(dataset: Dataset) -> None:
    np.testing.assert_array_equal(dataset.load("features"), X)
    np.testing.assert_array_equal(dataset.load("labels"), Y)
    assert [dataset.load(part).tolist() for part in ("train", "valid", "test")] == [
        [0],
        [1],
        [2],
    ]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame,
        lambda frame: frame.sample(frac=1, random_state=1).sort_index(),
        lambda frame: (
            frame.sample(frac=1, random_state=1).sort_index().rename_axis("paper")
        ),
        lambda frame: frame.set_index(np.arange(N, dtype=np.uint8)),
        lambda frame: frame.rename_axis("node_id"),
        lambda frame: frame.set_axis(list("dcba")).assign(id=np.arange(N)),
        lambda frame: frame.assign(rank=[3, 1, 2, 0], id=np.arange(N)),
        lambda frame: frame.assign(
            share=[3.5, 1.0, np.nan, 0.0], year=[3, 1, 2, 3], paper=[0, 1, 2, 3]
        ),
        lambda frame: frame.rename_axis("paper").reset_index(),
    ],
)
def test_a_frame_in_the_order_of_its_nodes_is_imported(
    tmp_path: Path, change: Any
) -> None:
    check_nodes(
        imported(frame_folder(tmp_path / "g", change(nodes_frame())), "parquet")
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.sample(frac=1, random_state=1),
        lambda frame: frame.sample(frac=1, random_state=1).rename_axis("paper"),
        lambda frame: frame.sample(frac=1, random_state=1).rename_axis("node_id"),
        lambda frame: frame.iloc[::-1],
        lambda frame: frame.set_axis(np.arange(1, N + 1)),
        lambda frame: frame.set_axis(pd.RangeIndex(1, N + 1)),
        lambda frame: frame.set_axis(pd.RangeIndex(0, 2 * N, 2)),
        lambda frame: frame.set_axis([0, 1, 1, 3]),
        lambda frame: frame.set_axis([0, 1, 2, 7]),
        lambda frame: frame.set_axis([0.0, 1.0, 2.0, 3.0]),
        lambda frame: frame.set_axis(list("abcd")),
        lambda frame: frame.set_axis(pd.date_range("2020", periods=N)),
        lambda frame: frame.set_index(["split", "y"]),
        lambda frame: frame.assign(id=[3, 2, 1, 0]),
        lambda frame: frame.assign(node_id=[0.0, 1.0, 2.0, 3.0]),
        lambda frame: frame.assign(id=[0, 1, 2, 2**63]).astype({"id": "uint64"}),
        lambda frame: frame.sample(frac=1, random_state=1).reset_index(),
        lambda frame: (
            frame.sample(frac=1, random_state=1).rename_axis("paper").reset_index()
        ),
        lambda frame: frame[frame.index != 1].reset_index(),
        lambda frame: frame.assign(paper=np.array([3, 1, 2, 0], np.uint8)),
        lambda frame: frame.assign(paper=[3.0, 1.0, 2.0, 0.0]),
    ],
)
def test_a_frame_in_another_order_is_refused_with_its_fix(
    tmp_path: Path, change: Any
) -> None:
    folder = frame_folder(tmp_path / "g", change(nodes_frame()))
    with pytest.raises(
        InputError, match=r"sort_index|reset_index|sort the nodes by"
    ) as caught:
        imported(folder, "parquet")
    assert "\n" not in str(caught.value)


def test_an_index_is_checked_without_the_metadata_of_pandas(tmp_path: Path) -> None:
    folder = frame_folder(tmp_path / "g", nodes_frame().sample(frac=1, random_state=1))
    table = pq.read_table(folder / "nodes.parquet")
    pq.write_table(table.replace_schema_metadata(None), folder / "nodes.parquet")
    with pytest.raises(InputError, match="the index, __index_level_0__,"):
        imported(folder, "parquet")


@pytest.mark.parametrize(
    "metadata",
    [b"x", b"7", b'"a"', b'{"index_columns": 5}', b'{"index_columns": [5]}', b"\xff"],
)
def test_damaged_metadata_of_pandas_are_refused(
    tmp_path: Path, metadata: bytes
) -> None:
    folder = frame_folder(tmp_path / "g", nodes_frame())
    table = pq.read_table(folder / "nodes.parquet").replace_schema_metadata(
        {b"pandas": metadata}
    )
    pq.write_table(table, folder / "nodes.parquet")
    with pytest.raises(DatasetError, match=r"nodes.parquet is no whole Parquet file"):
        imported(folder, "parquet")


@pytest.mark.parametrize("index", ["continued", "each from 0", "stored", "none"])
def test_parts_of_a_frame_follow_each_other(tmp_path: Path, index: str) -> None:
    folder = frame_folder(tmp_path / "g", nodes_frame())
    (folder / "nodes.parquet").unlink()
    (folder / "nodes").mkdir()
    frame = nodes_frame(np.arange(N)) if index == "stored" else nodes_frame()
    for number, part in enumerate((frame[:1], frame[1:])):
        again = part.reset_index(drop=True) if index == "each from 0" else part
        keep = {"none": False, "stored": True}.get(index)
        again.to_parquet(folder / "nodes" / f"{number}.parquet", index=keep)
    check_nodes(imported(folder, "parquet"))
    swapped = folder / "nodes" / "2.parquet"
    (folder / "nodes" / "0.parquet").rename(swapped)
    if index in ("continued", "stored"):
        with pytest.raises(InputError, match=r"the index.*sort_index"):
            imported(folder, "parquet")


def test_masks_of_a_frame_are_splits(tmp_path: Path) -> None:
    frame = nodes_frame().drop(columns="split").assign(**MASKS, test_mask=[0, 0, 1, 0])
    check_nodes(imported(frame_folder(tmp_path / "g", frame), "parquet"))
    for odd in (
        [0, 1, 2, 0],
        [0.0, 1.0, 0.0, 0.0],
        [True, None, False, False],
        list("abcd"),
    ):
        changed = frame.assign(test_mask=pd.Series(odd))
        folder = frame_folder(tmp_path / f"odd{len(list(tmp_path.iterdir()))}", changed)
        with pytest.raises(InputError, match="give true or false for every node"):
            imported(folder, "parquet")


# --- edges the other way round
# --------------------------------------------------------------------------------------


def transposed(kind: str, folder: Path, edges: Any) -> Path:
    """Write a graph whose edges have another shape than the format's."""
    source = MAKERS[kind][1](folder, None)
    if source.suffix == ".npz":
        np.savez(source, edge_index=edges, x=X, y=Y, **MASKS)
        return source
    files = {
        "graphbolt": "edges.npy",
        "ogb": "processed/paper___cites___paper/edge_index.npy",
    }
    files |= {
        "igb": "processed/paper__cites__paper/edge_index.npy",
        "arrays": "edge_index.npy",
    }
    np.save(source / files[kind], edges)
    return source


@pytest.mark.parametrize("kind", ["arrays", "pyg", "graphbolt", "ogb", "igb"])
def test_transposed_edges_are_refused_with_transpose_it(
    tmp_path: Path, kind: str
) -> None:
    more = np.concatenate([EDGES, EDGES[:, :1]], axis=1)
    wrong = more if kind == "igb" else np.ascontiguousarray(more.T)
    with pytest.raises(InputError, match=r"; transpose it: np.ascontiguousarray"):
        imported(transposed(kind, tmp_path / "g", wrong), MAKERS[kind][0])


@pytest.mark.parametrize("kind", ["arrays", "pyg", "graphbolt", "ogb", "igb"])
def test_edges_of_2_by_2_are_read_as_the_format_has_them_and_a_note_states_so(
    tmp_path: Path, kind: str
) -> None:
    dataset = imported(
        transposed(kind, tmp_path / "g", np.array([[0, 1], [2, 3]])), MAKERS[kind][0]
    )
    rows = kind == "igb"
    assert lists(dataset) == ([[], [0], [], [2]] if rows else [[], [], [0], [1]])
    assert (
        f"2 x 2: {'a source and a destination a row' if rows else 'sources above destinations'}"
        in notes_of(dataset)
    )


@pytest.mark.parametrize("kind", ["arrays", "pyg", "graphbolt", "ogb", "igb"])
@pytest.mark.parametrize("dtype", ["f8", "f4", ">f2", "bool", "c16"])
def test_ids_that_are_no_integers_are_refused(
    tmp_path: Path, kind: str, dtype: str
) -> None:
    edges = (EDGES.T if kind == "igb" else EDGES).astype(dtype)
    with pytest.raises(
        InputError, match=r"of integers; give ids as integers \(.astype"
    ):
        imported(transposed(kind, tmp_path / "g", edges), MAKERS[kind][0])


@pytest.mark.parametrize("dtype", [">i8", ">u4", "u8", "i1", "u2"])
@pytest.mark.parametrize("kind", ["arrays", "graphbolt", "igb", "pyg"])
def test_integer_ids_of_any_type_are_read(
    tmp_path: Path, kind: str, dtype: str
) -> None:
    edges = np.ascontiguousarray(EDGES.T if kind == "igb" else EDGES).astype(dtype)
    dataset = imported(transposed(kind, tmp_path / "g", edges), MAKERS[kind][0])
    assert lists(dataset) == [[], [0, 3], [2], [1]]


@pytest.mark.parametrize(
    ("name", "values", "ids"),
    [
        ("train_mask", np.array([0, 1]), [1]),
        ("train_mask", np.array([0, 1], np.uint8), [1]),
        ("train_idx", np.array([0, 1]), [0, 1]),
        ("train", np.array([0, 1]), [0, 1]),
        ("train", np.array([0, 1], np.uint8), [1]),
    ],
)
def test_zeros_and_ones_of_two_nodes_are_what_their_name_states(
    tmp_path: Path, name: str, values: Any, ids: list[int]
) -> None:
    folder = tmp_path / "g"
    folder.mkdir()
    named = {"edge_index": EDGES[:, :0], "x": X[:2], "y": Y[:2], name: values}
    for stem, array in named.items():
        np.save(folder / f"{stem}.npy", array)
    dataset = imported(folder, "arrays")
    assert dataset.load("train").tolist() == ids
    assert f"{name}.npy as train {'mask' if ids == [1] else 'ids'}" in notes_of(dataset)


def test_ids_under_the_name_of_a_mask_are_refused(tmp_path: Path) -> None:
    folder = as_arrays(tmp_path / "g", None)
    for odd in (np.array([0, 1, 2, 3]), np.array([1, 2]), np.array([0.0, 1, 0, 0])):
        np.save(folder / "train_mask.npy", odd)
        with pytest.raises(
            InputError,
            match=r"no mask of 4 nodes; give bool \[4\], or name ids train_idx",
        ):
            imported(folder, "arrays")


PACKED = [
    ("arrays", "edge_index.npy", "gzip"),
    ("arrays", "edge_index.pt", "bz2"),
    ("arrays", "x.npy", "lzma"),
    ("parquet", "edges.parquet", "gzip"),
    ("parquet", "nodes.parquet", "bz2"),
    ("parquet", "edges/0.parquet", "gzip"),
    ("igb", "processed/paper/node_feat.npy", "gzip"),
]


@pytest.mark.parametrize(("format_name", "name", "module"), PACKED)
def test_a_packed_file_in_place_of_one_that_is_read_is_refused_with_the_fix(
    tmp_path: Path, format_name: str, name: str, module: str
) -> None:
    if format_name == "arrays":
        source = as_arrays(tmp_path / "g", None)
        if name.endswith(".pt"):
            (source / "edge_index.npy").rename(source / "edge_index.pt")
    else:
        if format_name == "parquet":
            source = as_parquet(tmp_path / "g", None)
        else:
            source = tmp_path / "g"
    if name.startswith("edges/"):
        (source / "edges").mkdir()
        (source / "edges.parquet").rename(source / name)
    file = source / name
    file.parent.mkdir(parents=True, exist_ok=True)
    content = file.read_bytes() if file.exists() else b"rows"
    packed = file.with_name(f"{file.name}.z")  # known by its content, not by its name
    packed.write_bytes(importlib.import_module(module).compress(content))
    file.unlink(missing_ok=True)
    kind = {"bz2": "bzip2", "lzma": "xz"}.get(module, module)
    with pytest.raises(
        InputError,
        match=f"{packed.name} is packed by {kind}; unpack it to {file.name} first: "
        f"{kind} -d",
    ):
        imported(source, format_name)


def test_a_packed_file_under_the_name_itself_is_named_by_its_outer_packing(
    tmp_path: Path,
) -> None:
    file = as_npz(tmp_path / "g", None)
    # of a zip archive, as every .npz file is
    file.write_bytes(gzip.compress(file.read_bytes()))
    with pytest.raises(
        InputError, match=r"g\.npz is packed by gzip; unpack it first: gzip -d"
    ):
        imported(file, "npz")


def test_a_packed_copy_beside_the_file_itself_is_left_out_by_name(
    tmp_path: Path,
) -> None:
    source = as_arrays(tmp_path / "g", None)
    (source / "x.npy.gz").write_bytes(gzip.compress((source / "x.npy").read_bytes()))
    assert "files left out: x.npy.gz" in imported(source, "arrays").manifest.notes
