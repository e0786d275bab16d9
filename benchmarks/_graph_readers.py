"""Short readers of the formats that are imported, in plain Python: what an import has to equal."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq
import torch
from ruamel.yaml import YAML

Array = npt.NDArray[Any]
Edge = tuple[int, int]
PARTS = {"train": ("train",), "valid": ("val", "valid"), "test": ("test",)}
OPENERS = {b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress, b"\xfd7zXZ": lzma.decompress}
MARKS = {b"\xff\xfe\0\0": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


class OddError(Exception):
    """The files hold no graph without doubt: an import has to be refused."""


@dataclass
class Graph:
    """Graph of a source; None where the source has no such part."""

    edges: list[Edge]
    nodes: int
    weights: list[float] | None = None
    features: Array | None = None
    labels: list[int] | None = None
    splits: dict[str, list[int]] | None = None
    ids: list[int] | None = None
    symmetric: bool = False
    keeps_duplicates: bool = False
    notes: dict[str, str] = field(default_factory=dict)

    def expected(self, symmetric: bool | None, keep_duplicates: bool) -> tuple[Counter[Edge], dict[Edge, float]]:
        """Return how often each edge has to be there, and the sum of its weights."""
        weights = self.weights or [1.0] * len(self.edges)
        entries = list(zip(self.edges, weights, strict=True))
        if self.symmetric if symmetric is None else symmetric:
            entries += [((v, u), weight) for (u, v), weight in entries if u != v]
        sums: dict[Edge, float] = {}
        for edge, weight in entries:
            sums[edge] = sums.get(edge, 0.0) + weight
        keep = (keep_duplicates or self.keeps_duplicates) and self.weights is None
        return (Counter(edge for edge, _ in entries) if keep else Counter(sums.keys())), sums


def sure(fact: Any) -> None:
    """Raise OddError unless the fact holds."""
    if not fact:
        raise OddError


def read_text(path: Path) -> str:
    """Return the text of a file, of any compression and encoding."""
    content = path.read_bytes()
    while opener := next((OPENERS[begin] for begin in OPENERS if content.startswith(begin)), None):
        content = opener(content)
    encoding = next((MARKS[mark] for mark in MARKS if content.startswith(mark)), "latin-1")
    return content.decode(encoding)


def read_snap(path: Path) -> Graph:
    """Read a text list of edges."""
    lines = [line.strip(" \t") for line in re.split("\r\n|\r|\n", read_text(path))]
    comments = [line for line in lines if line[:1] in ("#", "%")]
    lines = [line for line in lines if line and line[:1] not in ("#", "%")]
    if lines and not re.match("[-+0-9]", lines[0]):
        sure(re.fullmatch(r"(src|from|a)\W+(dst|to|b)", lines.pop(0)))
    pairs = [re.match(r"([0-9]+)(?:[ \t]*[,;][ \t]*|[ \t]+)([0-9]+)(?=$|[\s,;#%])", line, re.ASCII) for line in lines]
    sure(pairs)
    found = [(int(pair[1]), int(pair[2])) for pair in pairs if pair]
    sure(len(found) == len(lines) and max(map(max, found)) < 2**63)
    ids = sorted({end for edge in found for end in edge})
    number = {id_: at for at, id_ in enumerate(ids)}
    undirected = any("undirected" in line.lower() for line in comments)
    edges = [(number[u], number[v]) for u, v in found]
    return Graph(edges, len(ids), ids=ids if ids[-1] >= len(ids) else None, symmetric=undirected)


def whole(array: Array) -> list[Any]:
    """Return the integers of an array."""
    sure(array.dtype.kind in "iu")
    return array.tolist()  # type: ignore[no-any-return]


def edges_of(array: Array) -> list[Edge]:
    """Return the edges of [2, E]."""
    sure(array.ndim == 2 and array.shape[0] == 2)
    return list(zip(*whole(array), strict=True))


def spread(pointers: Array, others: Array, *, by_source: bool) -> list[Edge]:
    """Return the edges of neighbour lists."""
    ends, found = whole(pointers), whole(others)
    lists = [(row, found[at]) for row in range(len(ends) - 1) for at in range(ends[row], ends[row + 1])]
    return lists if by_source else [(v, u) for u, v in lists]


def table_of(array: Array) -> Array:
    """Return a feature table as it is stored."""
    sure(array.ndim == 2 and array.dtype.kind in "fiu" and array.shape[1] > 0)
    with np.errstate(all="ignore"):
        return array.astype(np.float16 if array.dtype.type is np.float16 else np.float32)


def labels_of(array: Array) -> list[int]:
    """Return labels, -1 where there is none."""
    sure(array.dtype.kind in "fiu" and (array.ndim == 1 or array.shape[1:] == (1,)))
    found = [-1 if not value >= 0 else value for value in array.reshape(-1).tolist()]
    sure(all(value == int(value) for value in found if np.isfinite(value)) and all(map(np.isfinite, found)))
    return [int(value) for value in found]


def split_of(name: str, array: Array, nodes: int) -> list[int]:
    """Return the ids of a split."""
    sure(array.dtype.kind in "biu" and array.ndim == 1)
    if name.endswith("_mask"):
        sure(len(array) == nodes and set(array.tolist()) <= {0, 1})
        return [at for at, chosen in enumerate(array.tolist()) if chosen]
    sure(array.dtype.kind != "b" or len(array) == nodes)
    ids = whole(array) if array.dtype.kind != "b" else np.flatnonzero(array).tolist()
    sure(all(0 <= id_ < nodes for id_ in ids))
    return ids


def named(arrays: dict[str, Array], edges: list[Edge], nodes: int, *, weighted: bool = True) -> Graph:
    """Return the graph of edges and arrays under PyG's names."""
    nodes = int(arrays["num_nodes"]) if "num_nodes" in arrays else nodes
    for name in ("x", "y"):
        nodes = nodes or len(arrays.get(name, ()))
    graph = Graph(edges, nodes or 1 + max(map(max, edges)))
    nodes = graph.nodes
    sure(all(0 <= end < nodes for edge in edges for end in edge))
    if "x" in arrays:
        graph.features = table_of(arrays["x"])
        sure(len(graph.features) == nodes)
    if "y" in arrays:
        graph.labels = labels_of(arrays["y"])
        sure(len(graph.labels) == nodes)
    given = {
        part: next((f"{p}{end}" for p in names for end in ("_mask", "_idx") if f"{p}{end}" in arrays), "")
        for part, names in PARTS.items()
    }
    if any(given.values()):
        graph.splits = {part: split_of(name, arrays[name], nodes) if name else [] for part, name in given.items()}
    if weighted and "edge_weight" in arrays:
        weights = arrays["edge_weight"]
        sure(weights.dtype.kind in "fiu" and weights.shape in ((len(edges),), (len(edges), 1)))
        graph.weights = weights.reshape(-1).tolist()
    return graph


def with_ids(graph: Graph, ids: Array | None, *, must: bool) -> Graph:
    """Return the graph with original ids, if the array can be those (which it must be, or is left out)."""
    if ids is None:
        return graph
    fits = ids.dtype.kind in "iu" and ids.shape in ((graph.nodes,), (graph.nodes, 1))
    sure(fits or not must)
    if fits:
        graph.ids = ids.reshape(-1).tolist()
        sure(max(graph.ids) < 2**63)
    return graph


def read_arrays(path: Path) -> Graph:
    """Read a folder of arrays."""
    found = {file.stem: np.load(file, allow_pickle=True) for file in path.glob("*.npy")}
    found |= {file.stem: torch.load(file).numpy() for file in path.glob("*.pt")}
    if "edge_index" in found:
        graph = named(found, edges_of(found["edge_index"]), 0)
    else:
        edges = spread(found["indptr"], found["indices"], by_source=False)
        graph = named(found, edges, len(found["indptr"]) - 1)
        sure(graph.nodes == len(found["indptr"]) - 1)
    graph.keeps_duplicates = True
    return with_ids(graph, found.get("ids"), must=True)


def read_npz(path: Path) -> Graph:
    """Read a CSR matrix with node data."""
    found = dict(np.load(path, allow_pickle=True))
    edges = spread(found["adj_indptr"], found["adj_indices"], by_source=True)
    weights = found.get("adj_data", np.ones(len(edges))).tolist()
    kept = [at for at, weight in enumerate(weights) if weight != 0]
    graph = named(found, [edges[at] for at in kept], int(found["adj_shape"][0]), weighted=False)
    chosen = [float(weights[at]) for at in kept]
    graph.weights = chosen if any(weight != 1 for weight in chosen) else None
    return graph


def read_pyg(path: Path) -> Graph:
    """Read PyG's fields."""
    if path.suffix == ".npz":
        found = dict(np.load(path, allow_pickle=True))
    else:
        found = {name: tensor.numpy() for name, tensor in torch.load(path).items()}
    graph = named(found, edges_of(found["edge_index"]), 0)
    graph.keeps_duplicates = True
    sure(graph.labels is not None and graph.splits is not None)
    return with_ids(graph, found.get("ids"), must=False)


def read_parquet(path: Path) -> Graph:
    """Read tables of edges and nodes."""
    table = pq.read_table(path / "edges.parquet")
    sure(all(str(table[name].type).strip("u").startswith("int") for name in ("src", "dst")))
    edges = list(zip(table["src"].to_pylist(), table["dst"].to_pylist(), strict=True))
    sure(all(None not in edge for edge in edges))
    weights = [float(value) for value in table["weight"].to_pylist()] if "weight" in table.column_names else None
    files = sorted(path.glob("nodes*/*.parquet")) or sorted(path.glob("nodes.parquet"))
    if not files:
        sure(min(map(min, edges)) >= 0)
        return Graph(edges, 1 + max(map(max, edges)), weights)
    frames = [pd.read_parquet(file) for file in files]
    again = all(frame.index.equals(pd.RangeIndex(len(frame))) for frame in frames)
    frame = pd.concat(frames, ignore_index=again)
    counts = list(range(len(frame)))
    sure(frame.get("id", frame.index).tolist() == counts)
    for name in set(frame) & {"index", "paper"}:
        sure(frame[name].tolist() == counts or (len(counts) < 3 and name == "paper"))
    sure(all(0 <= end < len(frame) for edge in edges for end in edge))
    graph = Graph(edges, len(frame), weights)
    graph.features = np.stack(list(frame["x"])).astype(np.float32) if "x" in frame else None
    graph.labels = [-1 if pd.isna(value) else int(value) for value in frame["y"]]
    if "split" in frame:
        words = frame["split"].tolist()
        graph.splits = {part: [at for at, word in enumerate(words) if word in names] for part, names in PARTS.items()}
    elif "train_mask" in frame:
        graph.splits = {"train": np.flatnonzero(frame["train_mask"]).tolist(), "valid": [], "test": []}
    return graph


def read_csv(path: Path, columns: int = 0) -> list[list[str]]:
    """Return the cells of a table of CSV, of equal width."""
    rows = [line.split(",") for line in re.split("\r\n|\n", read_text(path)) if line.strip()]
    sure(all(len(row) == (columns or len(rows[0])) for row in rows))
    return rows


def ids_of(cells: list[str]) -> list[int]:
    """Return ids that are digits alone."""
    sure(all(re.fullmatch("[0-9]+", cell.strip(" \t"), re.ASCII) for cell in cells))
    return [int(cell) for cell in cells]


def number_of(cell: str) -> float:
    """Return the number of a cell, NaN where it is empty or says so."""
    if cell.strip() in ("", "nan", "NaN", "NA"):
        return float("nan")
    sure(re.fullmatch(r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?|[0-9]+\.", cell.strip(), re.ASCII))
    return float(cell)


def read_graphbolt(path: Path) -> Graph:
    """Read an `OnDiskDataset` of one type."""
    metadata = YAML(typ="safe", pure=True).load(path / "metadata.yaml")
    features = {entry["name"]: path / entry["path"] for entry in metadata["feature_data"]}
    found = {
        name: np.load(file, allow_pickle=True) if file.suffix == ".npy" else torch.load(file).numpy()
        for name, file in features.items()
    }
    kinds = {"feat": "x", "weight": "edge_weight"}
    arrays = {kinds.get(name, name): array for name, array in found.items()}
    entry = metadata["graph"]["edges"][0]
    nodes = metadata["graph"]["nodes"][0]["num"]
    if entry["format"] == "csv":
        lines = [line for line in re.split("\r\n|\n", read_text(path / "edges.csv")) if not line.startswith("#")]
        rows = [line.strip(" \t").split(",") for line in lines if line.strip()]
        sure(all(len(row) == 2 for row in rows))
        edges = [(u, v) for u, v in (ids_of(row) for row in rows)]
    else:
        edges = edges_of(np.load(path / "edges.npy", allow_pickle=True))
    ids = arrays.pop("ids", None)
    graph = named(arrays, edges, nodes)
    graph.keeps_duplicates = True
    labels, graph.splits = [-1] * nodes, {}
    for part, name in {"train": "train_set", "valid": "validation_set", "test": "test_set"}.items():
        chosen = split_of("", np.load(path / f"{name}.npy", allow_pickle=True), nodes)
        for id_, label in zip(chosen, labels_of(np.load(path / f"{name}-y.npy", allow_pickle=True)), strict=True):
            labels[id_] = label
        graph.splits[part] = chosen
    graph.labels = labels
    if (
        graph.features is None
        and ids is not None
        and not (ids.dtype.kind in "iu" and ids.shape in ((nodes,), (nodes, 1)))
    ):
        graph.features = table_of(ids)  # the only feature
        return graph
    return with_ids(graph, ids, must=False)


def read_ogb(path: Path) -> Graph:
    """Read OGB's text layout."""
    (count,) = read_csv(path / "raw" / "num-node-list.csv.gz", 1)
    nodes = int(number_of(count[0]))
    text = read_text(path / "raw" / "edge.csv.gz")
    rows = [line.strip(" \t").split(",") for line in re.split("\r\n|\n", text) if line.strip() and line[0] != "#"]
    sure(all(len(row) == 2 for row in rows))
    edges = [(u, v) for u, v in (ids_of(row) for row in rows)]
    table = [[number_of(cell) for cell in row] for row in read_csv(path / "raw" / "node-feat.csv.gz")]
    values = [number_of(cell) for (cell,) in read_csv(path / "raw" / "node-label.csv.gz", 1)]
    graph = named({"x": np.array(table), "y": np.array(values)}, edges, nodes)
    files = {part: path / "split" / "time" / f"{part}.csv.gz" for part in PARTS}
    graph.splits = {part: ids_of([cell for (cell,) in read_csv(file, 1)]) for part, file in files.items()}
    sure(all(id_ < nodes for ids in graph.splits.values() for id_ in ids))
    return graph


def read_igb(path: Path) -> Graph:
    """Read IGB's layout."""
    paper = path / "processed" / "paper"
    edges = np.load(path / "processed" / "paper__cites__paper" / "edge_index.npy", allow_pickle=True)
    sure(edges.ndim == 2 and edges.shape[1] == 2)
    arrays = {"x": np.load(paper / "node_feat.npy", allow_pickle=True)}
    arrays["y"] = np.load(paper / "node_label_19.npy", allow_pickle=True)
    return named(arrays, edges_of(edges.T), 0)


READERS = {
    "snap": read_snap,
    "arrays": read_arrays,
    "npz": read_npz,
    "pyg": read_pyg,
    "parquet": read_parquet,
    "graphbolt": read_graphbolt,
    "ogb": read_ogb,
    "igb": read_igb,
}
