"""Random small graphs as files of every format that is imported, most sound, some odd, drawn by seed."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from ruamel.yaml import YAML

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
WHOLE = ["i1", "u1", "<i2", ">u2", "<i4", ">i4", "<u4", "<i8", "<i8", "<i8", ">i8", "<u8", ">u8"]
ODD = ["<f4", ">f8", "<f2", "?", "O"]
NUMBERS = ["<f2", ">f2", "<f4", "<f4", ">f4", "<f8", "i1", "u1", ">i4", "<i8", "<u8"]
ODD_IDS = [
    "7.0",
    "1e3",
    "-1",
    "+1",
    "0x1",
    "１",
    "9223372036854775808",
    "18446744073709551616",
    '"1"',
    "1_0",
    "nan",
    "",
]
BIG_IDS = [2**31, 2**32, 2**53 + 1, 2**62 + 1, 2**63 - 1]


class Draw:
    """Draws of one case, by its seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def rarely(self, share: float = 0.05) -> bool:
        """Return whether an odd thing happens."""
        return bool(self.random.random() < share)

    def whole(self, first: int, last: int) -> int:
        """Return an integer in [first, last]."""
        return int(self.random.integers(first, last + 1))

    def one(self, *choices: Any) -> Any:
        """Return one of the choices."""
        return choices[self.whole(0, len(choices) - 1)]

    def form(self, values: Array, dtype: str) -> Array:
        """Return the values in a type and a random order in memory."""
        with np.errstate(all="ignore"):
            return np.array(values.astype(dtype), order=self.one("C", "C", "F"))

    def whole_type(self) -> str:
        """Return a type of integers, rarely another."""
        return str(self.one(*ODD) if self.rarely(0.04) else self.one(*WHOLE))


def draw_arrays(draw: Draw) -> tuple[int, Arrays]:
    """Return a number of nodes and arrays under PyG's names; `edge_index` is [2, E], rarely [E, 2]."""
    nodes = draw.whole(1, 7)
    count = draw.whole(1, 9)
    edges = draw.random.integers(0, nodes, (2, count))
    if draw.rarely():
        edges[draw.whole(0, 1), 0] = draw.one(-1, nodes, 2**31, 2**63 - 1, -(2**63))
    if draw.rarely():
        edges = edges.T
    found = {"edge_index": draw.form(edges, draw.whole_type())}
    rows = max(1, nodes + (draw.one(-1, 1) if draw.rarely(0.03) else 0))
    table = draw.random.integers(-99, 100, (rows, draw.whole(1, 3))) / draw.one(1, 1, 7)
    if draw.rarely(0.03):
        table = table[:, 0]
    found["x"] = draw.form(table, draw.one(*ODD[3:]) if draw.rarely(0.03) else draw.one(*NUMBERS))
    labels = draw.random.integers(-1, 4, nodes).astype(float)
    label_type = draw.one(*ODD[3:]) if draw.rarely(0.03) else draw.one(*NUMBERS)
    if np.dtype(label_type).kind == "u":
        labels = np.abs(labels)
    if np.dtype(label_type).kind == "f":
        labels[labels < 0] = draw.one(np.nan, -1)
    if draw.rarely(0.03):
        labels[0] = draw.one(0.5, 100, 2**40, -5)
    if draw.rarely(0.1):
        labels = labels[:, None]
    found["y"] = draw.form(labels, label_type)
    if draw.rarely(0.75):
        found |= draw_splits(draw, nodes)
    if draw.rarely(0.4):
        shape = draw.one((count,), (count,), (count, 1))
        weights = draw.random.integers(0, 6, shape) / draw.one(1, 1, 7)
        found["edge_weight"] = draw.form(weights, "O" if draw.rarely(0.03) else draw.one(*NUMBERS))
    if draw.rarely(0.4):
        ids = np.array([draw.whole(0, 9) + draw.one(0, *BIG_IDS[:4]) for _ in range(nodes)], dtype=object)
        if draw.rarely():
            ids[0] = draw.one(2**63, 2**64 - 1)
        kind = "O" if draw.rarely() else "<u8" if max(ids) >= 2**63 else draw.one("<i8", ">i8", "<u8", ">u8")
        found["ids"] = draw.form(ids, kind)
    if draw.rarely(0.2):
        found["num_nodes"] = np.array(nodes + draw.one(0, 0, 0, 1))
    if draw.rarely(0.1):
        found["edge_attr"] = np.ones((count, 2))
    return nodes, found


def draw_splits(draw: Draw, nodes: int) -> Arrays:
    """Return arrays of splits as masks or ids."""
    parts = draw.random.integers(0, 4, nodes)
    kind = draw.one("mask", "mask", "number", "ids")
    found = {}
    for code, part in enumerate(("train", "val", "test")):
        mask = parts == code
        if draw.rarely(0.03):
            mask[:] = True
        ids = draw.random.permutation(np.flatnonzero(mask))
        if kind == "ids" and len(ids) and draw.rarely():
            ids[0] = draw.one(-1, nodes, ids[-1])
        forms = {"mask": mask, "number": mask.astype(draw.one("u1", "<i8", ">i4", "<f4")), "ids": ids}
        name = f"{part}_{'idx' if kind == 'ids' else 'mask'}"
        found[name] = ids.astype(draw.whole_type()) if kind == "ids" else forms[kind]
    if draw.rarely(0.1):
        del found[next(iter(found))]
    return found


def lists(draw: Draw, edges: Array, nodes: int, row: int) -> tuple[Array, Array, Array]:
    """Return pointers and neighbours of edges [2, E] by their `row`, and the order of the edges in them."""
    order = np.argsort(edges[row], kind="stable")
    pointers = np.searchsorted(edges[row][order], np.arange(nodes + 1))
    kind = draw.whole_type()
    return draw.form(pointers, kind), draw.form(edges[1 - row][order], kind), order


def save_tensor(path: Path, array: Array) -> None:
    """Save an array as a tensor in native byte order, objects by numpy."""
    if array.dtype.kind == "O":
        np.save(path.with_suffix(".npy"), array, allow_pickle=True)
        return
    torch.save(torch.from_numpy(np.array(array.astype(array.dtype.newbyteorder("=")))), path)


def write_arrays(folder: Path, draw: Draw) -> Path:
    """Write a folder of arrays: edges, or neighbour lists."""
    nodes, found = draw_arrays(draw)
    edges = found["edge_index"]
    sound = edges.shape[0] == 2 and edges.dtype.kind in "iu" and bool(((edges >= 0) & (edges < nodes)).all())
    if sound and draw.rarely(0.3):
        del found["edge_index"]
        found["indptr"], found["indices"], order = lists(draw, edges.astype(np.int64), nodes, 1)
        if "edge_weight" in found:
            found["edge_weight"] = found["edge_weight"][order]
    for name in list(found):
        if name not in ("edge_index", "indptr", "indices") and draw.rarely(0.1):
            del found[name]
    folder.mkdir()
    for name, array in found.items():
        if draw.rarely(0.2):
            save_tensor(folder / f"{name}.pt", array)
        else:
            np.save(folder / f"{name}.npy", array, allow_pickle=True)
    return folder


def write_npz(folder: Path, draw: Draw) -> Path:
    """Write a CSR matrix with node data as `.npz`."""
    nodes, found = draw_arrays(draw)
    edges = draw.random.integers(0, nodes, (2, draw.whole(1, 9)))
    indptr, indices, _ = lists(draw, edges, nodes, 0)
    for name in ("edge_index", "num_nodes", "edge_weight"):
        found.pop(name, None)
    found |= {"adj_indptr": indptr, "adj_indices": indices, "adj_shape": np.array([nodes, nodes])}
    if draw.rarely(0.6):
        weights: Array = np.asarray(draw.random.integers(0, 4, edges.shape[1]))
        found["adj_data"] = draw.form(weights, draw.one("?", "<f2", ">f4", "<f8", "u1", "<i8", ">u8"))
    file = folder.with_suffix(".npz")
    draw.one(np.savez, np.savez_compressed)(file, **found)
    return file


def write_pyg(folder: Path, draw: Draw) -> Path:
    """Write PyG's fields as `.npz`, or as a dictionary of tensors or a `Data` in `.pt`."""
    nodes, found = draw_arrays(draw)
    if draw.rarely(0.8):
        found = {name: array for name, array in found.items() if not name.endswith(("_mask", "_idx"))}
        train = draw.random.random(nodes) < 0.6
        found |= {"train_mask": train, "test_mask": ~train}
    whole = {name: array for name, array in found.items() if array.dtype.kind != "O"}
    if draw.rarely(0.5):
        file = folder.with_suffix(".npz")
        draw.one(np.savez, np.savez_compressed)(file, **found)
        return file
    tensors = {
        name: torch.from_numpy(np.array(array.astype(array.dtype.newbyteorder("=")))) for name, array in whole.items()
    }
    file = folder.with_suffix(".pt")
    torch.save(tensors, file)
    return file


def write_parquet(folder: Path, draw: Draw) -> Path:
    """Write tables of edges and nodes with the indexes, types and parts that pandas and Arrow write."""
    folder.mkdir()
    nodes, found = draw_arrays(draw)
    edges = draw.random.integers(0, nodes, (2, draw.whole(1, 9)))
    if draw.rarely():
        edges[0, 0] = draw.one(-1, nodes, 2**40, 2**63 - 1)
    kind = draw.one("<i8", "<i8", "i1", "<i4", "<u8", "<u2", "<f8") if edges.max() < 100 else "<i8"
    columns: dict[str, Any] = {"src": pa.array(edges[0].astype(kind)), "dst": pa.array(edges[1].astype(kind))}
    if draw.rarely(0.04):
        columns["src"] = draw.one(columns["src"].dictionary_encode(), columns["src"].cast(pa.string()))
    if draw.rarely(0.03):
        columns["dst"] = pa.array([None, *edges[1][1:].tolist()])
    if draw.rarely(0.4):
        columns["weight"] = pa.array(draw.random.integers(0, 6, edges.shape[1]).astype(draw.one("<f4", "<f8", "<i4")))
    if draw.rarely(0.3):
        columns = dict(reversed(columns.items()))
    packing = draw.one("snappy", "gzip", "zstd", "none", "brotli")
    pq.write_table(pa.table(columns), folder / "edges.parquet", compression=packing, row_group_size=draw.whole(1, 5))
    if draw.rarely(0.1):
        return folder
    frame = pd.DataFrame({"y": draw.random.integers(0, 4, nodes)})
    table = np.asarray(found["x"]).reshape(len(found["x"]), -1)[:nodes].astype(np.float32)
    if len(table) == nodes:
        frame["x"] = list(table)
    if draw.rarely(0.3):
        frame["y"] = frame["y"].astype("Int64").where(draw.random.random(nodes) < 0.7)
    if draw.rarely(0.4):
        frame["split"] = [draw.one("train", "val", "valid", "test", None) for _ in range(nodes)]
        if draw.rarely(0.3):
            frame["split"] = frame["split"].astype("category")
    elif draw.rarely(0.5):
        frame["train_mask"] = draw.random.random(nodes) < 0.5
    frame = draw_index(draw, frame)
    store = draw.one(None, None, True, False)
    if draw.rarely(0.3) and nodes > 1:
        (folder / "nodes").mkdir()
        cut = draw.whole(1, nodes - 1)
        for part, rows in enumerate((frame.iloc[:cut], frame.iloc[cut:])):
            again = rows.reset_index(drop=True) if draw.rarely(0.2) else rows
            again.to_parquet(folder / "nodes" / f"part-{part}.parquet", index=store, compression=packing)
    else:
        frame.to_parquet(folder / "nodes.parquet", index=store, compression=packing)
    return folder


def draw_index(draw: Draw, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with another index, order or column of ids."""
    count = len(frame)
    kind = draw.one(
        "",
        "",
        "",
        "ids",
        "shuffled",
        "shuffled ids",
        "named",
        "from 1",
        "step",
        "text",
        "levels",
        "float",
        "reset",
        "paper",
    )
    if kind in ("shuffled", "named", "reset", "paper"):
        frame = frame.iloc[draw.random.permutation(count)]
    if kind in ("ids", "shuffled ids"):
        frame["id"] = np.arange(count)
    if kind in ("reset", "paper"):
        frame = frame.rename_axis({"paper": kind}.get(kind)).reset_index()
    if kind == "shuffled ids":
        frame = frame.sample(frac=1, random_state=draw.whole(0, 99)).reset_index(drop=True)
    changes: dict[str, Any] = {
        "named": frame.index.rename("paper"),
        "from 1": pd.RangeIndex(1, count + 1),
        "step": pd.RangeIndex(0, 2 * count, 2),
        "text": pd.Index([f"n{at}" for at in range(count)]),
        "levels": pd.MultiIndex.from_arrays([np.arange(count), np.arange(count)]),
        "float": pd.Index(np.arange(count) * 1.0),
    }
    return frame.set_axis(changes[kind]) if kind in changes else frame


def write_lines(draw: Draw, pairs: list[tuple[int, int]]) -> bytes:
    """Return a list of edges as text: comments, quotes, odd ids, ends of lines, encodings, compression."""
    separator = draw.one(" ", "\t", "\t", ",", ", ", ";", "  ", " \t")
    lines = []
    if draw.rarely(0.3):
        comments = ["# a list", "% x", '# "quoted', "#", "# Undirected graph", "# Directed graph: a.txt"]
        lines.append(draw.one(*comments, "# FromNodeId\tToNodeId", "# Nodes: 3 Edges: 4"))
    if draw.rarely(0.15):
        lines.append(separator.join(draw.one(("src", "dst"), ("dst", "src"), ("from", "to"), ("a", "b"), ("", "src"))))
    for source, target in pairs:
        ends = [str(source), str(target)]
        if draw.rarely(0.02):
            ends[draw.whole(0, 1)] = draw.one(*ODD_IDS)
        if draw.rarely(0.02):
            ends[0] = ends[0].zfill(draw.whole(5, 19))
        if draw.rarely(0.15):
            ends.append(draw.one('"', '"a b', "0.5", "x", "é", "'", '5" disk', "# 3", "\\", "nan", ""))
        text = draw.one(*[separator] * 30, " ", ",").join(ends)
        lines.append(draw.one(*[""] * 8, " ", "\t") + text + draw.one(*[""] * 8, " ", "\t"))
        if draw.rarely():
            lines.append(draw.one("", "  ", "# between", "# undirected", "%", '#"', "end", "\x0c", "\x00"))
    end = draw.one("\n", "\n", "\n", "\r\n", "\r")
    text = end.join(lines) + draw.one(end, "")
    encoding = draw.one(*["utf-8"] * 8, "utf-8-sig", "utf-16", "utf-32", "latin-1", "utf-16-le")
    content = text.encode(encoding, "replace")
    packed: bytes = draw.one(*[bytes] * 5, gzip.compress, bz2.compress, lzma.compress)(content)
    if draw.rarely(0.03):
        packed = draw.one(packed[:-3], packed + packed, b"\x28\xb5\x2f\xfd" + packed, gzip.compress(packed))
    return packed


def write_snap(folder: Path, draw: Draw) -> Path:
    """Write a text list of edges with ids up to 2^63."""
    pool = [draw.whole(0, 9) + draw.one(0, 0, 0, *BIG_IDS[:4]) for _ in range(draw.whole(1, 6))]
    if draw.rarely():
        pool.append(2**63 - 1)
    pairs = [(draw.one(*pool), draw.one(*pool)) for _ in range(draw.whole(1, 9))]
    file = folder.with_suffix(draw.one(".txt", ".txt", ".csv", ".GZ", ".txt.gz", ""))
    file.write_bytes(write_lines(draw, pairs))
    return file


def csv_lines(draw: Draw, table: Array, odd: float = 0.01) -> bytes:
    """Return a table of numbers as CSV, rarely with odd cells, quotes, blank and unequal lines."""
    lines = []
    for row in [np.atleast_1d(row).tolist() for row in table]:
        cells = [str(cell) for cell in row]
        if draw.rarely(odd):
            cells[draw.whole(0, len(cells) - 1)] = draw.one(*ODD_IDS, "a", "1,2", "NA", " 1", "True")
        if draw.rarely(odd):
            cells = draw.one(cells[:-1], [*cells, "1"], [*cells, ""], [f'"{cells[0]}', *cells[1:]], [f"#{cells[0]}"])
        lines.append(",".join(cells))
        if draw.rarely(odd):
            lines.append(draw.one("", "# x", "  ", ","))
    end = draw.one("\n", "\n", "\r\n")
    text = end.join(lines) + str(draw.one(end, end, ""))
    encoding = str(draw.one(*["utf-8"] * 9, "utf-8-sig"))
    content: bytes = text.encode(encoding)
    return content


def write_graphbolt(folder: Path, draw: Draw) -> Path:
    """Write an `OnDiskDataset` as its author makes it, with edges as NumPy or CSV."""
    folder.mkdir()
    nodes, found = draw_arrays(draw)
    graph: dict[str, Any] = {"nodes": [{"num": nodes}], "edges": [{"format": "numpy", "path": "edges.npy"}]}
    np.save(folder / "edges.npy", found["edge_index"], allow_pickle=True)
    if draw.rarely(0.4):
        pairs = draw.random.integers(0, nodes, (draw.whole(1, 9), 2))
        (folder / "edges.csv").write_bytes(csv_lines(draw, pairs))
        graph["edges"] = [{"format": "csv", "path": "edges.csv"}]
        found.pop("edge_weight", None)
    entries = []
    names = {"feat": ("node", "x"), "weight": ("edge", "edge_weight"), "ids": ("node", "ids")}
    for name, (domain, key) in names.items():
        if key not in found or draw.rarely(0.1):
            continue
        kind = draw.one("numpy", "numpy", "torch") if found[key].dtype.kind != "O" else "numpy"
        path = f"{name}.{'npy' if kind == 'numpy' else 'pt'}"
        np.save(folder / path, found[key], allow_pickle=True) if kind == "numpy" else save_tensor(
            folder / path, found[key]
        )
        entries.append({"domain": domain, "name": name, "format": kind, "path": path})
    parts = draw.random.integers(0, 4, nodes)
    sets = {}
    for code, name in enumerate(("train_set", "validation_set", "test_set")):
        ids = draw.random.permutation(np.flatnonzero(parts == code))
        if len(ids) and draw.rarely():
            ids[0] = draw.one(-1, nodes, 0)
        np.save(folder / f"{name}.npy", ids.astype(draw.whole_type()), allow_pickle=True)
        labels = found["y"][np.clip(ids, 0, nodes - 1)]
        np.save(folder / f"{name}-y.npy", labels, allow_pickle=True)
        data = [{"name": "seeds", "format": "numpy", "path": f"{name}.npy"}]
        data.append({"name": "labels", "format": "numpy", "path": f"{name}-y.npy"})
        sets[name] = [{"data": data}]
    metadata = {"graph": graph, "tasks": [sets], "feature_data": entries}
    with (folder / "metadata.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(metadata, file)
    return folder


def write_ogb(folder: Path, draw: Draw) -> Path:
    """Write OGB's text layout."""
    nodes, found = draw_arrays(draw)
    pairs = draw.random.integers(0, nodes, (draw.whole(1, 9), 2))
    rows = found["x"].reshape(len(found["x"]), -1).astype(np.float64)
    labels = found["y"].astype(np.float64).reshape(len(found["y"]), -1)
    parts = draw.random.integers(0, 4, nodes)
    files: dict[str, Array] = {"raw/edge": pairs, "raw/num-node-list": np.array([nodes]), "raw/node-feat": rows}
    whole = np.where(np.isnan(labels), -1, labels).astype(np.int64)
    files["raw/node-label"] = labels if np.isnan(labels).any() or draw.rarely(0.2) else whole
    for code, part in enumerate(("train", "valid", "test")):
        files[f"split/time/{part}"] = np.flatnonzero(parts == code)
    for name, table in files.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = csv_lines(draw, table).replace(b"nan", draw.one(b"nan", b"", b"NaN"))
        path.write_bytes(draw.one(*[gzip.compress] * 8, bytes, bz2.compress)(content))
    return folder


def write_igb(folder: Path, draw: Draw) -> Path:
    """Write IGB's layout, whose edges are [E, 2]."""
    paper, cites = folder / "processed" / "paper", folder / "processed" / "paper__cites__paper"
    paper.mkdir(parents=True)
    cites.mkdir()
    _, found = draw_arrays(draw)
    np.save(paper / "node_feat.npy", found["x"], allow_pickle=True)
    np.save(paper / "node_label_19.npy", found["y"], allow_pickle=True)
    np.save(cites / "edge_index.npy", found["edge_index"].T, allow_pickle=True)
    return folder


WRITERS = {
    "snap": write_snap,
    "arrays": write_arrays,
    "npz": write_npz,
    "pyg": write_pyg,
    "parquet": write_parquet,
    "graphbolt": write_graphbolt,
    "ogb": write_ogb,
    "igb": write_igb,
}
