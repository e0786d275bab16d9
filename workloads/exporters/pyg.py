"""PyG: one `.npy` file for each tensor of a `torch_geometric.data.Data`, which a
program maps."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

import numpy as np

from workloads.arraytypes import Array
from workloads.dataset import Dataset, Part
from workloads.direct_files import small_maps
from workloads.exporters.files import (
    ArrayFile,
    File,
    Values,
    checked_map,
    class_count,
    pieces,
    stored,
)
from workloads.importers.pyg import MASKS
from workloads.importers.source import csc_edges
from workloads.manifest import OPTIONAL

_NODES_A_PIECE = 1 << 24


def files_of(dataset: Dataset) -> list[File]:
    """Declare the files of a dataset: `x`, `edge_index` (sorted by destination), `y`,
    masks, `num_classes`, and `edge_weight` and the nodes' original `ids` if any."""
    edges = Values(
        "int64",
        (2, dataset.num_edges),
        lambda: chain(pieces(dataset, "indices"), _destinations(dataset)),
    )
    found = {
        "x": stored(dataset, "features"),
        "edge_index": edges,
        "y": stored(dataset, "labels"),
    }
    masks: dict[Part, str] = {part: MASKS[part] for part in ("train", "valid", "test")}
    for part, name in masks.items():
        mask = partial(_mask, dataset, part)
        found[name] = Values("bool", (dataset.num_nodes,), mask)
    for extra in OPTIONAL:
        if extra in dataset.manifest.files:
            found[extra] = stored(dataset, extra)
    return [
        *(ArrayFile(f"{name}.npy", values) for name, values in found.items()),
        class_count(dataset),
    ]


def _destinations(dataset: Dataset) -> Iterator[Array]:
    """Yield the destination of every edge, in the order of `indices`."""
    indptr = checked_map(dataset, "indptr")
    indices = dataset.memmap("indices")
    with small_maps(indptr):
        for _, targets in csc_edges(indptr, indices)():
            yield targets


def _mask(dataset: Dataset, part: Part) -> Iterator[Array]:
    """Yield whether each node is in the split."""
    for first in range(0, dataset.num_nodes, _NODES_A_PIECE):
        mask = np.zeros(min(_NODES_A_PIECE, dataset.num_nodes - first), dtype=bool)
        for ids in pieces(dataset, part):
            mask[ids[(ids >= first) & (ids < first + len(mask))] - first] = True
        yield mask
