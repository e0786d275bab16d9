"""Generated graphs in every format of arrays and tables: an import equals a short
reference, or it is refused."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError, OutcoreError
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.node_data import NodeDataSpec

WHOLE = ["i1", "u1", "<i4", ">i4", "<u4", "<i8", ">i8", "<u8", ">u8"]
ODD = ["<f4", ">f8", "?", "O"]
PARTS = ("train", "valid", "test")
INDEXES = [
    "none",
    "range",
    "stored",
    "named",
    "shuffled",
    "from 1",
    "repeated",
    "id",
    "id back",
]


@dataclass(frozen=True)
class Graph:
    """A drawn graph and its form."""

    num_nodes: int
    edges: np.ndarray  # int64 [2, E]
    weights: np.ndarray | None
    labels: np.ndarray  # int64 [N], negative: unknown
    split: np.ndarray | None  # int64 [N]: 0, 1, 2 for train, valid, test, 3 for none
    dtype: str  # of ids
    label_dtype: str
    weight_dtype: str
    split_kind: str  # mask, number or ids
    transposed: bool
    fortran: bool
    index: str  # of the table of nodes
    symmetric: bool
    keep_duplicates: bool


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    num_nodes = draw(st.integers(1, 6))
    ids = st.integers(0, num_nodes - 1)
    pairs = draw(st.lists(st.tuples(ids, ids), min_size=1, max_size=8))
    edges = np.array(pairs, dtype=np.int64).T
    weights = None
    if draw(st.booleans()):
        weights = np.array(
            draw(st.lists(st.integers(0, 5), min_size=len(pairs), max_size=len(pairs)))
        )
    nodes = {"min_size": num_nodes, "max_size": num_nodes}
    labels = np.array(draw(st.lists(st.integers(-2, 3), **nodes)))
    split = None
    if draw(st.booleans()):
        split = np.array(draw(st.lists(st.integers(0, 3), **nodes)))
    return Graph(
        num_nodes,
        edges,
        weights,
        labels,
        split,
        dtype=draw(st.sampled_from([*WHOLE, *WHOLE, *ODD])),
        label_dtype=draw(st.sampled_from(["i1", "<i8", ">i4", "<f4", ">f8"])),
        weight_dtype=draw(st.sampled_from(["u1", "<i8", "<f2", ">f4", "<f8"])),
        split_kind=draw(st.sampled_from(["mask", "number", "ids"])),
        transposed=draw(st.sampled_from([False, False, False, True])),
        fortran=draw(st.booleans()),
        index=draw(
            st.sampled_from(
                [
                    "none",
                    "range",
                    "stored",
                    "named",
                    "shuffled",
                    "from 1",
                    "repeated",
                    "id",
                    "id back",
                ]
            )
        ),
        symmetric=draw(st.booleans()),
        keep_duplicates=draw(st.booleans()),
    )


def features_of(graph: Graph) -> np.ndarray:
    return np.arange(graph.num_nodes * 2, dtype=np.float32).reshape(-1, 2) + 1


def ids_array(graph: Graph, columns: bool) -> np.ndarray:
    """Return the edges in the drawn type and order of memory, `columns` as [E, 2] (the
    other way if transposed)."""
    array = graph.edges.T if columns != graph.transposed else graph.edges
    return np.array(array.astype(graph.dtype), order="F" if graph.fortran else "C")


def labels_array(graph: Graph) -> np.ndarray:
    if np.dtype(graph.label_dtype).kind == "f":
        return np.where(graph.labels < 0, np.nan, graph.labels).astype(
            graph.label_dtype
        )
    return graph.labels.astype(graph.label_dtype)


def split_arrays(graph: Graph, val: str = "val") -> dict[str, np.ndarray]:
    if graph.split is None:
        return {}
    found = {}
    for code, part in enumerate(("train", val, "test")):
        mask = graph.split == code
        kinds = {
            "mask": mask,
            "number": mask.astype(np.uint8),
            "ids": np.flatnonzero(mask)[::-1],
        }
        found[f"{part}_{'idx' if graph.split_kind == 'ids' else 'mask'}"] = kinds[
            graph.split_kind
        ]
    return found


def named_arrays(graph: Graph) -> dict[str, np.ndarray]:
    if graph.weights is None:
        weighted = {}
    else:
        weighted = {"edge_weight": graph.weights.astype(graph.weight_dtype)}
    return {
        "x": features_of(graph),
        "y": labels_array(graph),
        **split_arrays(graph),
        **weighted,
    }


def write_arrays(folder: Path, graph: Graph) -> Path:
    folder.mkdir()
    for name, array in {
        "edge_index": ids_array(graph, False),
        **named_arrays(graph),
    }.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=True)
    return folder


def write_tensors(folder: Path, graph: Graph) -> Path:
    folder.mkdir()
    for name, array in {
        "edge_index": ids_array(graph, False),
        **named_arrays(graph),
    }.items():
        native = array.astype(array.dtype.newbyteorder("="))
        if array.dtype == object:
            np.save(folder / f"{name}.npy", array, allow_pickle=True)
        else:
            torch.save(torch.from_numpy(native), folder / f"{name}.pt")
    return folder


def write_pyg(folder: Path, graph: Graph) -> Path:
    file = folder.with_suffix(".npz")
    np.savez(file, edge_index=ids_array(graph, False), **named_arrays(graph))
    return file


def csr(graph: Graph, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pointers and ids of lists by row 0 or 1 of the edges, in the drawn type,
    and the order of the edges."""
    order = np.argsort(graph.edges[rows], kind="stable")
    pointers = np.searchsorted(graph.edges[rows][order], np.arange(graph.num_nodes + 1))
    return (
        pointers.astype(graph.dtype),
        graph.edges[1 - rows][order].astype(graph.dtype),
        order,
    )


def write_csc(folder: Path, graph: Graph) -> Path:
    folder.mkdir()
    indptr, indices, order = csr(graph, 1)
    named = named_arrays(graph)
    if "edge_weight" in named:
        named["edge_weight"] = named["edge_weight"][order]
    for name, array in {"indptr": indptr, "indices": indices, **named}.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=True)
    return folder


def write_npz(folder: Path, graph: Graph) -> Path:
    indptr, indices, order = csr(graph, 0)
    named = named_arrays(graph)
    weights = named.pop("edge_weight", None)
    named |= {} if weights is None else {"adj_data": weights[order]}
    shape = np.array([graph.num_nodes, graph.num_nodes])
    file = folder.with_suffix(".npz")
    np.savez(file, adj_indptr=indptr, adj_indices=indices, adj_shape=shape, **named)
    return file


def write_parquet(folder: Path, graph: Graph) -> Path:
    folder.mkdir()
    native = np.dtype(graph.dtype).newbyteorder("=")
    columns = [ids.astype(native) for ids in graph.edges]
    source, target = (
        pa.array(ids.tolist() if native.kind == "O" else ids) for ids in columns
    )
    if graph.weights is None:
        weighted = {}
    else:
        weighted = {"weight": graph.weights.astype(graph.weight_dtype.strip("<>"))}
    pq.write_table(
        pa.table({"src": source, "dst": target, **weighted}), folder / "edges.parquet"
    )
    frame = pd.DataFrame({"x": list(features_of(graph)), "y": graph.labels})
    if graph.split is not None and graph.split_kind == "ids":
        words = np.array(["train", "val", "test", ""])
        frame["split"] = words[graph.split]
    elif graph.split is not None:
        frame = frame.assign(**split_arrays(graph))
    count = graph.num_nodes
    changes: dict[str, Callable[[], pd.DataFrame]] = {
        "stored": lambda: frame.set_axis(np.arange(count)),
        "named": lambda: frame.rename_axis("paper"),
        "shuffled": lambda: frame.iloc[::-1],
        "from 1": lambda: frame.set_axis(np.arange(1, count + 1)),
        "repeated": lambda: frame.set_axis(np.zeros(count, dtype=int)),
        "id": lambda: frame.assign(id=np.arange(count)),
        "id back": lambda: frame.assign(id=np.arange(count)[::-1]),
    }
    table = changes.get(graph.index, lambda: frame)()
    table.to_parquet(
        folder / "nodes.parquet", index={"none": False, "stored": True}.get(graph.index)
    )
    return folder


def write_graphbolt(folder: Path, graph: Graph) -> Path:
    folder.mkdir()
    np.save(folder / "edges.npy", ids_array(graph, False), allow_pickle=True)
    np.save(folder / "x.npy", features_of(graph))
    tables: dict[str, Any] = {
        "nodes": [{"num": graph.num_nodes}],
        "edges": [{"format": "numpy", "path": "edges.npy"}],
    }
    if graph.fortran:  # another way to give the edges
        text = "".join(
            f"{u},{v}\n" for u, v in graph.edges.T.astype(graph.dtype).tolist()
        )
        (folder / "edges.csv").write_text(text)
        tables["edges"] = [{"format": "csv", "path": "edges.csv"}]
    if graph.weights is not None:
        np.save(folder / "w.npy", graph.weights.astype(graph.weight_dtype))
        tables["feature_data"] = [
            {"domain": "edge", "name": "weight", "format": "numpy", "path": "w.npy"}
        ]
    split = np.zeros(graph.num_nodes, dtype=int) if graph.split is None else graph.split
    sets = {}
    for code, name in enumerate(("train_set", "validation_set", "test_set")):
        ids = np.flatnonzero(split == code)
        np.save(folder / f"{name}.npy", ids)
        np.save(folder / f"{name}-y.npy", labels_array(graph)[ids])
        entries = (("seeds", f"{name}.npy"), ("labels", f"{name}-y.npy"))
        sets[name] = [
            {
                "data": [
                    {"name": kind, "format": "numpy", "path": path}
                    for kind, path in entries
                ]
            }
        ]
    features = [{"domain": "node", "name": "feat", "format": "numpy", "path": "x.npy"}]
    metadata = {"graph": tables, "tasks": [sets], "feature_data": features}
    (folder / "metadata.yaml").write_text(json.dumps(metadata))
    return folder


def write_igb(folder: Path, graph: Graph) -> Path:
    paper = folder / "processed" / "paper"
    cites = folder / "processed" / "paper__cites__paper"
    paper.mkdir(parents=True)
    cites.mkdir()
    np.save(paper / "node_feat.npy", features_of(graph))
    np.save(paper / "node_label_19.npy", labels_array(graph))
    np.save(cites / "edge_index.npy", ids_array(graph, True), allow_pickle=True)
    return folder


def write_ogb(folder: Path, graph: Graph) -> Path:
    def save(name: str, table: Any) -> None:
        rows = [np.atleast_1d(row).tolist() for row in np.asarray(table)]
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        (folder / name).write_bytes(gzip.compress(text.encode()))

    save("raw/edge.csv.gz", ids_array(graph, True))
    save("raw/num-node-list.csv.gz", [graph.num_nodes])
    save("raw/node-feat.csv.gz", features_of(graph))
    save("raw/node-label.csv.gz", labels_array(graph))
    split = np.zeros(graph.num_nodes, dtype=int) if graph.split is None else graph.split
    for code, part in enumerate(PARTS):
        save(f"split/time/{part}.csv.gz", np.flatnonzero(split == code))
    return folder


WRITERS: dict[str, tuple[str, Callable[[Path, Graph], Path]]] = {
    "arrays": ("arrays", write_arrays),
    "tensors": ("arrays", write_tensors),
    "csc": ("arrays", write_csc),
    "npz": ("npz", write_npz),
    "pyg": ("pyg", write_pyg),
    "parquet": ("parquet", write_parquet),
    "graphbolt": ("graphbolt", write_graphbolt),
    "igb": ("igb", write_igb),
    "ogb": ("ogb", write_ogb),
}
UNWEIGHTED = ("igb", "ogb")  # formats without weights
GIVEN_SPLITS = ("igb", "ogb", "graphbolt")  # formats whose splits are never drawn


def reference(
    graph: Graph, kind: str
) -> tuple[Counter[tuple[int, int]], dict[tuple[int, int], float] | None]:
    """Return how often each edge has to be there, and the weight of each."""
    weights = None if graph.weights is None or kind in UNWEIGHTED else graph.weights
    ones = np.ones(graph.edges.shape[1], dtype=int)
    rows = np.vstack([graph.edges, ones if weights is None else weights]).T
    entries = [(u, v, weight) for u, v, weight in rows.tolist()]
    if kind == "npz":
        entries = [entry for entry in entries if entry[2] != 0]
        weights = weights if any(entry[2] != 1 for entry in entries) else None
    entries += [(v, u, w) for u, v, w in entries if graph.symmetric and u != v]
    count = Counter((u, v) for u, v, _ in entries)
    sums = {edge: sum(w for u, v, w in entries if (u, v) == edge) for edge in count}
    keeps = graph.keep_duplicates or kind in (
        "arrays",
        "tensors",
        "csc",
        "pyg",
        "graphbolt",
    )
    kept = count if keeps and weights is None else Counter(dict.fromkeys(count, 1))
    return kept, None if weights is None else sums


def check(dataset: Dataset, graph: Graph, kind: str) -> None:
    """Compare a dataset with the graph that it was imported from."""
    indptr = dataset.load("indptr")
    indices = dataset.load("indices")
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(indptr))
    found = list(zip(indices.tolist(), targets.tolist(), strict=True))
    count, sums = reference(graph, kind)
    assert Counter(found) == count
    assert ("edge_weight" in dataset.manifest.files) == (sums is not None)
    if sums is not None:
        assert dataset.load("edge_weight").tolist() == [sums[edge] for edge in found]
    np.testing.assert_array_equal(dataset.load("features"), features_of(graph))
    labels = np.maximum(graph.labels, -1)
    split = graph.split
    if kind in ("graphbolt", "ogb") and split is None:
        split = np.zeros(graph.num_nodes, dtype=int)
    if kind == "graphbolt":  # holds labels of the nodes in its sets alone
        labels = np.where(split == 3, -1, labels)
    np.testing.assert_array_equal(dataset.load("labels"), labels)
    if split is not None and kind != "igb":
        for code, part in enumerate(PARTS):
            wanted = np.flatnonzero((split == code) & (labels >= 0))
            assert dataset.load(part).tolist() == wanted.tolist()  # type: ignore[arg-type]


def has_to_be_refused(graph: Graph, kind: str) -> bool:
    """Whether the form of the graph is invalid in a format: then no import may pass."""
    if np.dtype(graph.dtype).kind not in "iu":
        text = kind in ("ogb", "parquet") or (kind == "graphbolt" and graph.fortran)
        # integers among objects are written as integers
        if not (text and graph.dtype == "O"):
            return True
    count = graph.edges.shape[1]
    by_pairs = kind in ("arrays", "tensors", "pyg", "igb", "ogb") or (
        kind == "graphbolt" and not graph.fortran
    )
    if by_pairs and graph.transposed and count != 2:
        return True
    back = graph.index in ("shuffled", "id back") and graph.num_nodes > 1
    repeated = graph.index == "repeated" and graph.num_nodes > 1
    return kind == "parquet" and (back or repeated or graph.index == "from 1")


def may_be_refused(graph: Graph, kind: str) -> bool:
    """Whether an import may end with a sentence although the form is valid."""
    weighted = graph.weights is not None and kind not in UNWEIGHTED
    unlabelled = bool((graph.labels < 0).all())
    if weighted and graph.keep_duplicates:
        return True
    if kind in ("pyg",):  # needs bool masks, a training node, and C order
        numbers = graph.split is not None and graph.split_kind == "number"
        no_training = graph.split is None or not (graph.split == 0).any()
        return numbers or no_training or (graph.fortran and graph.edges.size > 1)
    no_split = graph.split is None and kind not in GIVEN_SPLITS
    return no_split and unlabelled


@given(graph=graphs(), kind=st.sampled_from(sorted(WRITERS)))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_an_import_equals_the_reference_or_is_refused(graph: Graph, kind: str) -> None:
    format_name, write = WRITERS[kind]
    pairs = kind not in ("csc", "npz", "parquet") and not (
        kind == "graphbolt" and graph.fortran
    )
    two = pairs and graph.transposed and graph.edges.shape[1] == 2
    with tempfile.TemporaryDirectory() as folder:
        source = write(Path(folder) / "g", graph)
        spec = ImportSpec(
            format_name,
            symmetric=graph.symmetric,
            keep_duplicates=graph.keep_duplicates,
            node_data=NodeDataSpec(dim=2, classes=2),
            fractions=(0.5, 0.2, 0.2),
        )
        target = Path(folder) / "data" / "g"
        try:
            dataset = import_dataset(source, target, spec)
        except OutcoreError as error:
            assert type(error) in (InputError, DatasetError)
            assert error.fix
            assert "\n" not in str(error)
            assert list(target.parent.iterdir()) == []
            assert (
                has_to_be_refused(graph, kind) or may_be_refused(graph, kind) or two
            ), str(error)
            return
        assert dataset.verify() == []
        assert not has_to_be_refused(graph, kind)
        if two:  # 2 x 2 is read as the format has it, which a note states
            # a text has rows alone
            assert (
                any("2 x 2" in note for note in dataset.manifest.notes) or kind == "ogb"
            )
            return
        check(dataset, graph, kind)
