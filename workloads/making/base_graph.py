"""Base graph of an expansion: a dataset by name or path, an `.npz` graph or a SNAP edge list."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from workloads.dataset import Dataset, find_dataset
from workloads.errors import BudgetError
from workloads.importers import ImportOptions, importer
from workloads.kronecker import BaseGraph
from workloads.making.csc import collect_csc
from workloads.making.node_data import Progress
from workloads.npyfile import file_digest
from workloads.units import format_bytes


def base_digest(base: str, data_root: Path) -> str:
    """Return the base's digest: a dataset's fingerprint or a file's XXH3.

    Raises:
        DatasetError: no such dataset or file exists.
    """
    return file_digest(Path(base)) if Path(base).is_file() else find_dataset(base, data_root).fingerprint


def load_base(base: str, data_root: Path, scratch: Path, max_memory: int, progress: Progress) -> BaseGraph:
    """Load the base graph into memory, with the labels and features that it has.

    Args:
        base: a file (`.npz`, else a SNAP edge list), or a dataset's name or path.
        data_root: folder of the datasets that are given by name.
        scratch: folder for temporary files, cleaned by the caller.
        max_memory: most bytes to hold.
        progress: called with the stage and its done fraction.

    Raises:
        DatasetError, InputError: the base is missing or damaged.
        BudgetError: the base's features do not fit `max_memory`.
    """
    path = Path(base)
    if not path.is_file():
        return _of_dataset(find_dataset(base, data_root), max_memory)
    read = importer("npz" if path.suffix == ".npz" else "snap")
    graph = read(path, ImportOptions(scratch, max_memory, progress=progress))
    indptr, indices = collect_csc(graph.edges, graph.num_nodes)
    features = None
    if graph.features is not None:
        # Sparse: dense bags of words would exceed the expansion's own buffers.
        chunks = (sp.csr_matrix(chunk.astype(np.float32, copy=False)) for chunk in graph.features.chunks())
        features = sp.csr_matrix(sp.vstack(list(chunks)))
    return BaseGraph(indptr, indices, graph.labels, features, graph.num_classes, path.name)


def _of_dataset(dataset: Dataset, max_memory: int) -> BaseGraph:
    generated = any(note.startswith("features generated") for note in dataset.manifest.notes)
    features = None
    if not generated:
        if dataset.feature_bytes * 2 > max_memory:
            raise BudgetError(
                f"expanding {dataset.name!r} holds its features twice, 2 x {format_bytes(dataset.feature_bytes)}, and "
                f"--max-memory is {format_bytes(max_memory)}",
                "raise --max-memory",
            )
        features = dataset.load("features").astype(np.float32, copy=False)
    labels = dataset.load("labels")
    return BaseGraph(
        dataset.load("indptr"), dataset.load("indices"), labels, features, dataset.num_classes, dataset.name
    )
