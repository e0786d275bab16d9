"""Format of the public code of Ginex, PyG+ and GNNDrive: raw arrays, their types and
shapes in `conf.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import numpy as np

from workloads import _native
from workloads.arraytypes import Array
from workloads.dataset import Dataset
from workloads.exporters.files import (
    ArrayFile,
    File,
    LinkFile,
    TextFile,
    Values,
    checked_map,
    pieces,
    stored,
)
from workloads.exporters.torch_file import TorchFile

#: Nodes whose out-degrees are counted in one pass over the edges, in 128 MiB.
NODES_A_PASS = 1 << 24
_EPSILON = 1e-8


def files_of(dataset: Dataset) -> list[File]:
    """Declare the files of a dataset, in the types that the native parts of that code
    expect.

    `nc_score.pth` is the score by which Ginex fills its neighbour cache. GNNDrive's
    code has the number of columns in the names of two files, which are there as links.
    That code does not read `ids.dat`, the nodes' original ids.
    """
    arrays = {
        "indptr": stored(dataset, "indptr"),
        "indices": stored(dataset, "indices", "int64"),
        "features": stored(dataset, "features", "float32"),
        "labels": stored(dataset, "labels", "float32"),
    }
    if "ids" in dataset.manifest.files:
        arrays["ids"] = stored(dataset, "ids")
    conf: dict[str, object] = {
        "num_nodes": dataset.num_nodes,
        "num_classes": dataset.num_classes,
    }
    for name, values in arrays.items():
        conf |= {f"{name}_shape": values.shape, f"{name}_dtype": values.dtype}
    splits = {part: stored(dataset, part) for part in ("train", "valid", "test")}
    files: list[File] = [
        ArrayFile(f"{name}.dat", values) for name, values in arrays.items()
    ]
    score = Values("float32", (dataset.num_nodes,), lambda: _scores(dataset))
    files += [TorchFile("split_idx.pth", splits), TorchFile("nc_score.pth", score)]
    files += [
        TextFile("conf.json", json.dumps(conf) + "\n"),
        LinkFile(f"conf-{dataset.dim}.json", "conf.json"),
    ]
    return [*files, LinkFile(f"features-{dataset.dim}.dat", "features.dat")]


def _scores(dataset: Dataset) -> Iterator[Array]:
    """Yield each node's out-degree over its in-degree, both with a small addend, in
    node order."""
    indptr = checked_map(dataset, "indptr")
    threads = len(os.sched_getaffinity(0))
    for first in range(0, dataset.num_nodes, NODES_A_PASS):
        last = min(dataset.num_nodes, first + NODES_A_PASS)
        out = np.zeros(last - first, dtype=np.int64)
        for ids in pieces(dataset, "indices"):
            inside = ids
            if len(out) < dataset.num_nodes:
                inside = ids[(ids >= first) & (ids < last)] - first
            _native.count_sources(inside, out, threads)
        into = np.diff(indptr[first : last + 1])
        epsilon = np.float32(_EPSILON)
        yield (out.astype(np.float32) + epsilon) / (into.astype(np.float32) + epsilon)
