"""Importers on small folders in exactly the published layouts, and on damaged ones."""

from __future__ import annotations

import gzip
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError, OutcoreError
from workloads.importers import igb
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.node_data import NodeDataSpec
from workloads.making.salt import FOLDER

# u -> v; 3 -> 1 is there twice, 2 -> 2 is a loop, node 4 has no in-neighbour.
EDGES = np.array([[0, 1], [3, 1], [2, 2], [4, 0], [3, 1], [1, 3]])
IN_NEIGHBOURS = [[4], [0, 3], [2], [1], []]
LABELS = np.array([0, 1, 2, 1, 0])
FEATURES = np.arange(15, dtype=np.float32).reshape(5, 3) / 2


def imported(source: Path, target: Path, format_name: str, **options: Any) -> Dataset:
    options.setdefault("fractions", (0.4, 0.2, 0.2))
    node_data = NodeDataSpec(dim=4, classes=2)
    dataset = import_dataset(
        source, target, ImportSpec(format_name, node_data=node_data, **options)
    )
    assert dataset.verify() == []
    left = {path.name for path in target.parent.glob(".*")}
    assert left <= {FOLDER}
    return dataset


def lists(dataset: Dataset) -> list[list[int]]:
    indptr = dataset.load("indptr")
    indices = dataset.load("indices")
    return [indices[a:b].tolist() for a, b in pairwise(indptr)]


# --- .npz
# --------------------------------------------------------------------------------------


def write_npz(
    path: Path, *, attributes: bool = True, labelled: bool = True, **changed: Any
) -> Path:
    pairs = np.unique(EDGES, axis=0)
    adjacency = sp.csr_matrix(
        (np.ones(len(pairs), np.float32), (pairs[:, 0], pairs[:, 1])), shape=(5, 5)
    )
    arrays: dict[str, Any] = {
        "adj_data": adjacency.data,
        "adj_indices": adjacency.indices,
        "adj_indptr": adjacency.indptr,
        "adj_shape": np.array(adjacency.shape),
    }
    if attributes:
        table = sp.csr_matrix(FEATURES)
        arrays |= {
            "attr_data": table.data,
            "attr_indices": table.indices,
            "attr_indptr": table.indptr,
            "attr_shape": np.array(table.shape),
        }
    if labelled:
        arrays["labels"] = LABELS
    np.savez(path, **(arrays | changed))
    return path


def test_npz_rows_are_sources_and_columns_destinations(tmp_path: Path) -> None:
    dataset = imported(write_npz(tmp_path / "g.npz"), tmp_path / "data" / "g", "npz")
    assert lists(dataset) == IN_NEIGHBOURS
    np.testing.assert_array_equal(dataset.load("features"), FEATURES)
    np.testing.assert_array_equal(dataset.load("labels"), LABELS)
    assert dataset.num_classes == 3
    assert dataset.manifest.files["train"].shape == (2,)
    assert dataset.manifest.stats["result"]["num_edges"] == 5
    assert dataset.origin == "imported (npz)"


def test_npz_without_features_and_labels_gets_generated_ones_and_states_so(
    tmp_path: Path,
) -> None:
    source = write_npz(tmp_path / "g.npz", attributes=False, labelled=False)
    dataset = imported(source, tmp_path / "data" / "g", "npz")
    assert dataset.dim == 4
    assert dataset.num_classes == 2
    notes = " ".join(dataset.manifest.notes)
    assert "features generated" in notes
    assert "labels generated (homophilous, 2 classes)" in notes


def test_npz_features_as_float16_and_ids_as_int64_on_demand(tmp_path: Path) -> None:
    source = write_npz(tmp_path / "g.npz")
    dataset = imported(
        source, tmp_path / "g", "npz", feature_dtype="float16", index_dtype="int64"
    )
    assert dataset.feature_dtype == np.float16
    assert dataset.index_dtype == np.int64
    np.testing.assert_array_equal(dataset.load("features"), FEATURES.astype(np.float16))


@pytest.mark.parametrize("order", "<>")
def test_npz_arrays_of_any_byte_order_and_float16_are_read(
    tmp_path: Path, order: str
) -> None:
    with np.load(write_npz(tmp_path / "g.npz")) as file:
        arrays = {
            name: file[name].astype(file[name].dtype.newbyteorder(order))
            for name in file.files
        }
    np.savez(
        tmp_path / "g.npz",
        **arrays | {"attr_data": arrays["attr_data"].astype(f"{order}f2")},
    )
    dataset = imported(tmp_path / "g.npz", tmp_path / "data" / "g", "npz")
    assert lists(dataset) == IN_NEIGHBOURS
    assert dataset.feature_dtype == np.float16
    np.testing.assert_array_equal(dataset.load("features"), FEATURES)


def test_npz_entries_of_weight_zero_are_no_edges(tmp_path: Path) -> None:
    weights = np.ones(5, np.float32)
    weights[0] = 0  # the edge 0 -> 1
    dataset = imported(
        write_npz(tmp_path / "g.npz", adj_data=weights), tmp_path / "g", "npz"
    )
    assert lists(dataset) == [[4], [3], [2], [1], []]
    assert "1 entries of weight zero left out" in dataset.manifest.notes


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"adj_shape": np.array([5, 6])}, "not that of a graph"),
        ({"adj_indices": np.array([9, 1, 2, 3, 4])}, "do not make a 5 x 5 matrix"),
        ({"adj_indptr": np.array([0, 1])}, "do not make a 5 x 5 matrix"),
        ({"labels": np.zeros(4)}, "4 labels for 5 nodes"),
        ({"labels": np.full(5, 0.5)}, "not whole"),
        ({"labels": np.zeros((5, 2), dtype=int)}, "2 columns of labels"),
        ({"labels": np.array([None] * 5)}, "more than plain arrays"),
        ({"adj_shape": np.array([object(), 5])}, "more than plain arrays"),
        ({"attr_shape": np.array([4, 3]), "attr_indptr": np.zeros(5, int)}, "attr"),
        (
            {"adj_indptr": np.array([0, 2, 1, 3, 4, 5], dtype=np.uint64)},
            "do not make a 5 x 5 matrix",
        ),
        (
            {"adj_indices": np.zeros(5, dtype=[("a", "f4")])},
            "do not make a 5 x 5 matrix",
        ),
        ({"adj_indices": np.int64(1)}, "do not make a 5 x 5 matrix"),
        *(
            (
                {"adj_shape": np.array(shape)},
                "adj_shape holds .*, not two integers; save the rows and columns",
            )
            for shape in (
                [np.inf, 5],
                [2.7, 2],
                [5.0, 5.0],
                [5],
                [5, 5, 5],
                5,
                ["5", "5"],
            )
        ),
        (
            {"attr_shape": np.array([5.5, 3.0])},
            "attr_shape holds float64 .*, not two integers",
        ),
    ],
)
def test_inconsistent_npz_is_refused(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        imported(
            write_npz(tmp_path / "g.npz", **changed), tmp_path / "data" / "g", "npz"
        )
    assert list((tmp_path / "data").iterdir()) == []


def test_npz_truncated_or_lacking_arrays_is_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "g.npz")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DatasetError, match=r"no whole .npz file"):
        imported(path, tmp_path / "data" / "g", "npz")
    np.savez(path, labels=LABELS)
    with pytest.raises(InputError, match="holds no adj_indices, adj_indptr, adj_shape"):
        imported(path, tmp_path / "data" / "g", "npz")
    path.write_text("no zip")
    with pytest.raises(OutcoreError):
        imported(path, tmp_path / "data" / "g", "npz")


# --- SNAP
# --------------------------------------------------------------------------------------

SNAP = (
    "# Directed graph\n# "
    "FromNodeId\tToNodeId\n10\t11\n13\t11\n12\t12\n99\t10\n13\t11\n11\t13\n"
)


@pytest.mark.parametrize(
    "variant",
    ["tabs", "spaces", "commas", "gzip", "crlf", "percent", "no newline", "weights"],
)
def test_snap_variants_give_the_same_graph(tmp_path: Path, variant: str) -> None:
    text = {
        "spaces": SNAP.replace("\t", "   "),
        "commas": SNAP.replace("\t", ","),
        "crlf": SNAP.replace("\n", "\r\n"),
        "percent": SNAP.replace("#", "%"),
        "no newline": SNAP.rstrip("\n"),
        "weights": "".join(
            line + ("\n" if line.startswith("#") else "\t0.5\n")
            for line in SNAP.splitlines()
        ),
    }.get(variant, SNAP)
    path = tmp_path / ("g.txt.gz" if variant == "gzip" else "g.txt")
    path.write_bytes(
        gzip.compress(text.encode()) if variant == "gzip" else text.encode()
    )
    dataset = imported(path, tmp_path / "g", "snap")
    assert lists(dataset) == IN_NEIGHBOURS  # 10, 11, 12, 13, 99 became 0 to 4
    assert "1 duplicate edges removed" in dataset.manifest.notes
    assert any("numbered anew" in note for note in dataset.manifest.notes)


def test_snap_symmetric_and_duplicates_kept(tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text(SNAP)
    both = imported(tmp_path / "g.txt", tmp_path / "both", "snap", symmetric=True)
    assert lists(both) == [[1, 4], [0, 3], [2], [1], [0]]
    assert "every edge taken in both directions" in both.manifest.notes
    kept = imported(tmp_path / "g.txt", tmp_path / "kept", "snap", keep_duplicates=True)
    assert lists(kept) == [[4], [0, 3, 3], [2], [1], []]
    assert "duplicate edges kept" in kept.manifest.notes


def test_snap_ids_far_apart_take_memory_by_nodes_not_by_ids(tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text(f"7 {10**17}\n{10**17} {10**11}\n{10**11} 7\n")
    dataset = imported(tmp_path / "g.txt", tmp_path / "g", "snap")
    assert lists(dataset) == [[1], [2], [0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2\n3 x\n", r"line 2: '3 x' is not an edge"),
        ("# c\n1 2\n\n3\n", r"line 4: '3' is not an edge"),
        ("1 2\n-3 4\n", r"line 2: '-3 4' is not an edge"),
        ("1 2\n1.5 4\n", r"line 2: '1.5 4' is not an edge"),
        (
            "1 99999999999999999999\n",
            r"line 1: '1 99999999999999999999' is not an edge",
        ),
        ("# nothing\n", "holds no edge"),
        ("", "holds no edge"),
    ],
)
def test_snap_names_the_first_bad_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "g.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        imported(tmp_path / "g.txt", tmp_path / "data" / "g", "snap")
    assert list((tmp_path / "data").iterdir()) == []


def test_snap_truncated_gzip_is_refused(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(0, 10**6, (50_000, 2))
    whole = gzip.compress("\n".join(f"{u}\t{v}" for u, v in numbers.tolist()).encode())
    for name, data in (
        ("cut", whole[: len(whole) // 2]),
        ("flipped", whole[:-6] + b"123456"),
    ):
        path = tmp_path / f"{name}.txt.gz"
        path.write_bytes(data)
        with pytest.raises(DatasetError, match="truncated or corrupted"):
            imported(path, tmp_path / "data" / "g", "snap")


# --- OGB
# --------------------------------------------------------------------------------------

SPLIT = {"train": [0, 2], "valid": [3], "test": [1]}


def write_csv(path: Path, rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = np.asarray(rows)
    rows = rows.reshape(rows.shape[0], -1)
    lines = [
        ",".join("" if value != value else f"{value}" for value in row)
        for row in rows.tolist()
    ]
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))


def write_splits(folder: Path, scheme: str) -> None:
    for part, ids in SPLIT.items():
        write_csv(folder / "split" / scheme / f"{part}.csv.gz", ids)


def write_ogb_text(folder: Path, scheme: str) -> Path:
    raw = folder / "raw"
    write_csv(raw / "edge.csv.gz", EDGES)
    write_csv(raw / "num-node-list.csv.gz", [5])
    write_csv(raw / "num-edge-list.csv.gz", [len(EDGES)])
    write_csv(raw / "node-feat.csv.gz", FEATURES)
    write_csv(raw / "node-label.csv.gz", LABELS)
    write_splits(folder, scheme)
    return folder


def check_splits(dataset: Dataset) -> None:
    for part, ids in SPLIT.items():
        assert dataset.load(part).tolist() == ids  # type: ignore[arg-type]


def test_ogb_text_layout_of_arxiv(tmp_path: Path) -> None:
    dataset = imported(
        write_ogb_text(tmp_path / "ogbn_arxiv", "time"), tmp_path / "data" / "a", "ogb"
    )
    assert lists(dataset) == IN_NEIGHBOURS
    assert dataset.num_classes == 3
    np.testing.assert_array_equal(dataset.load("features"), FEATURES)
    np.testing.assert_array_equal(dataset.load("labels"), LABELS)
    check_splits(dataset)
    assert "split time" in dataset.manifest.notes


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("raw/node-feat", "1,2\n3,4\n5\n6,7\n8,9\n", "line 3 has 1 of 2 cells"),
        (
            "raw/node-feat",
            "1,2,3\r\n\r\n3,4,5\r\n5,6\r\n6,7,8\r\n8,9,8\r\n",
            "line 4 has 2 of 3 cells",
        ),
        ("split/time/train", "0,2\n", "has 2 columns of ids; give one id a line"),
        ("split/time/test", "1,\n", "has 2 columns of ids; give one id a line"),
    ],
)
def test_tables_of_ogb_with_lines_of_another_width_are_refused(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    folder = write_ogb_text(tmp_path / "ogbn_arxiv", "time")
    (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(InputError, match=message):
        imported(folder, tmp_path / "data" / "a", "ogb")


def test_an_empty_cell_of_features_is_no_missing_one(tmp_path: Path) -> None:
    folder = write_ogb_text(tmp_path / "ogbn_arxiv", "time")
    text = "1,2\n3,\n5,6\n\n6,nan\n8,9\n"
    (folder / "raw" / "node-feat.csv.gz").write_bytes(gzip.compress(text.encode()))
    dataset = imported(folder, tmp_path / "data" / "a", "ogb")
    assert "2 feature values are not finite" in dataset.manifest.notes


def test_ogb_products_stores_each_edge_once_for_both_directions(tmp_path: Path) -> None:
    write_ogb_text(tmp_path / "root" / "ogbn_products", "sales_ranking")
    # a folder that holds only this dataset
    dataset = imported(tmp_path / "root", tmp_path / "data" / "p", "ogb")
    assert lists(dataset) == [[1, 4], [0, 3], [2], [1], [0]]
    directed = imported(
        tmp_path / "root", tmp_path / "data" / "d", "ogb", symmetric=False
    )
    assert lists(directed) == IN_NEIGHBOURS


@pytest.mark.parametrize("compressed", [True, False])
def test_ogb_binary_layout_of_papers100m(tmp_path: Path, compressed: bool) -> None:
    folder = tmp_path / "papers100M-bin"
    (folder / "raw").mkdir(parents=True)
    save = np.savez_compressed if compressed else np.savez
    save(
        folder / "raw" / "data.npz",
        edge_index=EDGES.T.copy(),
        num_nodes_list=np.array([5]),
        num_edges_list=np.array([len(EDGES)]),
        node_feat=FEATURES,
        node_year=np.full((5, 1), 2019),
    )
    labels = LABELS.astype(np.float32).reshape(-1, 1)
    labels[4] = np.nan  # most of its papers have no label
    save(folder / "raw" / "node-label.npz", node_label=labels)
    write_splits(folder, "time")
    dataset = imported(folder, tmp_path / "data" / "p", "ogb")
    assert lists(dataset) == IN_NEIGHBOURS
    np.testing.assert_array_equal(dataset.load("features"), FEATURES)
    assert dataset.load("labels").tolist() == [0, 1, 2, 1, -1]
    check_splits(dataset)
    data = (folder / "raw" / "data.npz").read_bytes()
    (folder / "raw" / "data.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(DatasetError, match=r"no whole .npz file"):
        imported(folder, tmp_path / "data" / "q", "ogb")


def write_mag240m(folder: Path, splits: Any) -> Path:
    paper = folder / "processed" / "paper"
    cites = folder / "processed" / "paper___cites___paper"
    paper.mkdir(parents=True)
    cites.mkdir()
    np.save(paper / "node_feat.npy", FEATURES.astype(np.float16))
    labels = LABELS.astype(np.float32)
    labels[4] = np.nan
    np.save(paper / "node_label.npy", labels)
    np.save(cites / "edge_index.npy", EDGES.T.copy())
    torch.save(splits, folder / "split_dict.pt")
    return folder


@pytest.mark.parametrize(
    "kind", ["arrays", "tensors", "test-whole", "test-dev and test-challenge"]
)
def test_ogb_lsc_layout_of_mag240m(tmp_path: Path, kind: str) -> None:
    splits: dict[str, Any] = {part: np.array(ids) for part, ids in SPLIT.items()}
    if kind == "tensors":
        splits = {part: torch.tensor(ids) for part, ids in SPLIT.items()}
    elif kind == "test-whole":
        splits["test-whole"] = splits.pop("test")
    elif kind.startswith("test-dev"):
        # node 4 hides its label
        splits |= {"test-dev": splits.pop("test"), "test-challenge": np.array([4])}
    dataset = imported(
        write_mag240m(tmp_path / "mag240m_kddcup2021", splits),
        tmp_path / "data" / "m",
        "ogb",
    )
    assert lists(dataset) == IN_NEIGHBOURS
    assert dataset.feature_dtype == np.float16
    np.testing.assert_array_equal(dataset.load("features"), FEATURES.astype(np.float16))
    check_splits(dataset)
    hidden = "1 test nodes without a label left out"
    assert (hidden in dataset.manifest.notes) == kind.startswith("test-dev")


class Hostile:
    """Object of a hostile file that runs code when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.marker}",)


def test_a_hostile_split_file_is_refused_and_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    folder = write_mag240m(
        tmp_path / "mag", {"train": Hostile(marker), "valid": [], "test": []}
    )
    with pytest.raises(DatasetError, match=r"split_dict.pt cannot be read safely"):
        imported(folder, tmp_path / "data" / "m", "ogb")
    assert not marker.exists()
    torch.load(folder / "split_dict.pt", weights_only=False)
    assert marker.exists()  # it would have run


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1.5], "train ids that are no whole numbers"),
        (torch.tensor([1]).bfloat16(), "train of .*split_dict.pt is bfloat16"),
        (torch.tensor([1]).to_sparse(), "train of .*split_dict.pt is sparse"),
        ([[1], [1, 2]], "train of .*split_dict.pt is list"),
    ],
)
def test_ogb_splits_of_odd_types_are_refused(
    tmp_path: Path, ids: Any, message: str
) -> None:
    folder = write_mag240m(tmp_path / "mag", {"train": ids, "valid": [2], "test": [3]})
    with pytest.raises(OutcoreError, match=message):
        imported(folder, tmp_path / "data" / "m", "ogb")
    # One opcode more at the end, whose data are not there.
    torch.save({}, folder / "split_dict.pt", _use_new_zipfile_serialization=False)
    content = (folder / "split_dict.pt").read_bytes()
    (folder / "split_dict.pt").write_bytes(content[:-20] + b"J\x01")
    with pytest.raises(DatasetError, match=r"split_dict.pt cannot be read safely"):
        imported(folder, tmp_path / "data" / "m", "ogb")


def test_ogb_damage_is_named(tmp_path: Path) -> None:
    folder = write_ogb_text(tmp_path / "ogbn_arxiv", "time")
    label = folder / "raw" / "node-label.csv.gz"
    kept = label.read_bytes()
    label.write_bytes(kept[:-9])
    with pytest.raises(
        DatasetError, match=r"node-label.csv.gz is truncated or corrupted"
    ):
        imported(folder, tmp_path / "data" / "a", "ogb")
    label.unlink()
    with pytest.raises(DatasetError, match=r"node-label.csv.gz is missing"):
        imported(folder, tmp_path / "data" / "a", "ogb")
    label.write_bytes(kept)
    write_csv(folder / "raw" / "node-feat.csv.gz", FEATURES[:4])
    with pytest.raises(InputError, match="4 feature rows for 5 nodes"):
        imported(folder, tmp_path / "data" / "a", "ogb")
    write_csv(folder / "raw" / "node-feat.csv.gz", FEATURES)
    write_csv(folder / "raw" / "edge.csv.gz", [[0, 5]])
    with pytest.raises(
        InputError, match=r"edge.csv.gz: an edge names node 5, but there are 5 nodes"
    ):
        imported(folder, tmp_path / "data" / "a", "ogb")
    write_csv(folder / "raw" / "edge.csv.gz", EDGES)
    write_csv(folder / "split" / "time" / "valid.csv.gz", [0])
    with pytest.raises(
        InputError, match="the valid split names node 0, which another split names too"
    ):
        imported(folder, tmp_path / "data" / "a", "ogb")
    write_csv(folder / "split" / "time" / "valid.csv.gz", [1.5, np.nan])
    with pytest.raises(
        InputError, match=r"valid.csv.gz is not a table of numbers: '1.5' is no id"
    ):
        imported(folder, tmp_path / "data" / "a", "ogb")
    write_csv(folder / "raw" / "num-node-list.csv.gz", [np.inf])
    with pytest.raises(InputError, match=r"the number of nodes of .* is inf"):
        imported(folder, tmp_path / "data" / "a", "ogb")
    with pytest.raises(InputError, match="none of OGB's layouts"):
        imported(tmp_path / "data", tmp_path / "data" / "a", "ogb")
    assert list((tmp_path / "data").iterdir()) == []


# --- IGB
# --------------------------------------------------------------------------------------


def write_igb(folder: Path, *, headers: bool, dim: int) -> np.ndarray:
    paper = folder / "processed" / "paper"
    cites = folder / "processed" / "paper__cites__paper"
    paper.mkdir(parents=True)
    cites.mkdir()
    features = np.random.default_rng(0).standard_normal((5, dim)).astype(np.float32)
    tables = {
        "node_feat.npy": features,
        "node_label_19.npy": LABELS.astype(np.float32),
        "node_label_2K.npy": LABELS.astype(np.float32) + 1000,
    }
    for name, table in tables.items():
        if headers:
            np.save(paper / name, table)
        else:
            # large and full are published without npy header, though named .npy
            table.tofile(paper / name)
    np.save(cites / "edge_index.npy", EDGES)
    return features


@pytest.mark.parametrize(("headers", "dim"), [(True, 6), (False, 1024)])
def test_igb_layout_with_and_without_npy_headers(
    tmp_path: Path, headers: bool, dim: int
) -> None:
    features = write_igb(tmp_path / "igb" / "tiny", headers=headers, dim=dim)
    dataset = imported(tmp_path / "igb" / "tiny", tmp_path / "data" / "i", "igb")
    assert lists(dataset) == IN_NEIGHBOURS
    assert dataset.num_classes == 19
    np.testing.assert_array_equal(dataset.load("features"), features)
    np.testing.assert_array_equal(dataset.load("labels"), LABELS)
    assert [dataset.load(part).tolist() for part in ("train", "valid", "test")] == [
        [0, 1, 2],
        [3],
        [4],
    ]
    many = imported(tmp_path / "igb", tmp_path / "data" / "k", "igb", classes=2983)
    assert many.load("labels").tolist() == (LABELS + 1000).tolist()
    assert many.num_classes == 2983


@pytest.mark.parametrize(
    ("options", "labelled", "message"),
    [
        (
            {},
            3,
            "the first 3 papers are labelled, by the author's count (IGB's loader "
            "counts 4, padding of class 0",
        ),
        (
            {"labelled": "loader"},
            4,
            "the first 4 papers are labelled, by the count of IGB's loader, 1 of them "
            "padding",
        ),
    ],
)
def test_igb_labels_that_are_padding_are_in_no_split_unless_asked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    labelled: int,
    message: str,
) -> None:
    write_igb(tmp_path / "igb", headers=True, dim=4)
    many = tmp_path / "igb" / "processed" / "paper" / "node_label_2K.npy"
    # a value for every node, as in the full set
    np.save(many, np.array([7, 5, 9, 0, 0], np.float32))
    monkeypatch.setitem(igb.LABELLED, (5, 2983), {"author": 3, "loader": 4})
    dataset = imported(
        tmp_path / "igb", tmp_path / "data" / "i", "igb", classes=2983, **options
    )
    assert dataset.load("labels").tolist() == [7, 5, 9, 0, 0][:labelled] + [-1] * (
        5 - labelled
    )
    splits = np.concatenate([dataset.load(part) for part in ("train", "valid", "test")])
    assert splits.tolist() == list(range(labelled))
    assert [note for note in dataset.manifest.notes if note.startswith(message)]
    assert dataset.manifest.recipe["labelled"] == options.get("labelled", "author")


def test_igb_full_takes_what_its_author_states_and_offers_what_its_loader_counts() -> (
    None
):
    assert igb.LABELLED[269_346_174, 2983] == {
        "author": 153_383_374,
        "loader": 157_675_969,
    }
    assert igb.LABELLED[269_346_174, 19] == {
        "author": 227_130_858,
        "loader": 227_130_858,
    }
    test_nodes = 157_675_969 - int(0.6 * 157_675_969) - int(0.2 * 157_675_969)
    assert (157_675_969 - 153_383_374) / test_nodes == pytest.approx(0.136, abs=5e-4)


def test_a_choice_of_labelled_nodes_is_for_igb_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--labelled loader is for IGB"):
        imported(
            write_npz(tmp_path / "g.npz"),
            tmp_path / "data" / "g",
            "npz",
            labelled="loader",
        )
    with pytest.raises(InputError, match="--labelled is 'paper'"):
        imported(tmp_path / "igb", tmp_path / "data" / "i", "igb", labelled="paper")
    assert "labelled" not in ImportSpec("npz").recipe(write_npz(tmp_path / "h.npz"))


def test_igb_damage_is_named(tmp_path: Path) -> None:
    write_igb(tmp_path / "igb" / "tiny", headers=False, dim=1024)
    with pytest.raises(InputError, match="--classes is 7"):
        imported(tmp_path / "igb", tmp_path / "data" / "i", "igb", classes=7)
    features = tmp_path / "igb" / "tiny" / "processed" / "paper" / "node_feat.npy"
    with features.open("r+b") as file:
        file.truncate(5 * 4096 - 1)
    with pytest.raises(DatasetError, match=r"node_feat.npy is truncated"):
        imported(tmp_path / "igb", tmp_path / "data" / "i", "igb")
    features.unlink()
    with pytest.raises(DatasetError, match=r"node_feat.npy is missing"):
        imported(tmp_path / "igb", tmp_path / "data" / "i", "igb")
    write_igb(tmp_path / "igb" / "small", headers=True, dim=4)
    with pytest.raises(InputError, match=r"several sizes \(small, tiny\)"):
        imported(tmp_path / "igb", tmp_path / "data" / "i", "igb")
    with pytest.raises(InputError, match="not an IGB folder"):
        imported(tmp_path / "data", tmp_path / "data" / "i", "igb")


# --- all
# --------------------------------------------------------------------------------------


def test_an_unknown_format_and_a_missing_source_are_one_sentence(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        InputError, match="--format is 'csv', which is none of npz, snap, ogb, igb, pyg"
    ):
        imported(write_npz(tmp_path / "g.npz"), tmp_path / "data" / "g", "csv")
    for format_name in ("npz", "snap", "ogb", "igb", "pyg"):
        with pytest.raises(DatasetError, match="there is nothing at"):
            imported(tmp_path / "nowhere", tmp_path / "data" / "g", format_name)


def test_features_that_are_not_finite_are_counted(tmp_path: Path) -> None:
    data = FEATURES[FEATURES != 0].copy()
    data[:2] = np.inf, np.nan
    dataset = imported(
        write_npz(tmp_path / "g.npz", attr_data=data), tmp_path / "g", "npz"
    )
    assert "2 feature values are not finite" in dataset.manifest.notes
