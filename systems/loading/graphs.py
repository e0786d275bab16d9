"""Graphs that are no dataset yet, PyG's `Data` or a file of one: written as a dataset,
out of core, for a loader."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from systems.interface import Progress, silent
from systems.loading.request import memory_bytes
from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError
from workloads.importers.pyg import data_source, open_pyg
from workloads.importers.seen import left_out
from workloads.importers.source import GraphSource
from workloads.making.importing import ImportSpec, write_graph
from workloads.npyfile import file_digest
from workloads.tempfolder import TemporaryFolder

_MEMORY = 1 << 30  # most bytes for edges while they are sorted
_SUFFIXES = (".npz", ".pt", ".pth")


def as_dataset(
    graph: Any,
    artefacts: Path | str | None,
    memory: str | int | None,
    supervised: bool,
    resources: contextlib.ExitStack,
    edge_weight: bool = False,
    progress: Progress = silent,
) -> Dataset | Path | str:
    """Write a graph as a dataset; a dataset, its folder or its name are returned as
    they are.

    Args:
        graph: `torch_geometric.data.Data` in memory or memory-mapped, or a file
            (`.npz`, `.pt`) of one.
        artefacts: folder that keeps the dataset under its content's digest; None: a
            temporary folder, beside the file or under `$OUTCORE_DATA`.
        memory, supervised: as for `Loader` and `data_source`.
        resources: removes the temporary folder.
        edge_weight: whether weights of edges are handed out.
        progress: called with the stage of writing and its completed share.

    Raises:
        InputError, DatasetError: the graph lacks something, or contradicts itself.

    Warns:
        UserWarning: attributes of the graph that no mini-batch will have.
    """
    if isinstance(graph, Dataset):
        return graph
    file = Path(graph) if isinstance(graph, str | Path) else None
    if file is not None and not (file.suffix in _SUFFIXES and file.is_file()):
        return graph  # type: ignore[no-any-return]
    opener: Callable[..., GraphSource] = (
        partial(open_pyg, file) if file else partial(data_source, graph)
    )
    found = opener(supervised=supervised)  # before anything is written
    _warn_of_left_out(found, file.name if file else "data", edge_weight)
    assert found.features is not None
    feature_bytes = found.num_nodes * found.features.dim * found.features.dtype.itemsize
    root = (
        Path(artefacts)
        if artefacts
        else file.parent
        if file
        else Path(os.environ.get("OUTCORE_DATA", "data"))
    )
    digest = "" if artefacts is None else file_digest(file) if file else _digest(found)
    if digest and found.ids is not None:
        digest += "-ids"  # an older Outcore wrote the same graph without them
    spec = ImportSpec("pyg")
    recipe = spec.recipe_of(file.name if file else type(graph).__name__, digest)
    limit = min(_MEMORY, memory_bytes(memory, feature_bytes) or _MEMORY)
    if artefacts is None:
        try:
            root.mkdir(parents=True, exist_ok=True)
            # A folder in it, since it is locked, as each writer locks the folder that
            # it writes into.
            root = resources.enter_context(TemporaryFolder(root, "loader")) / "graph"
        except OSError as error:
            fix = "give artefacts=, a folder on a disk with room for the graph"
            raise InputError.from_os(error, f"{root} cannot be written", fix) from error
    target = root / f"graph-{digest or 'pyg'}"
    if not target.exists():
        try:
            return write_graph(
                lambda _: found,
                target,
                spec,
                recipe,
                max_memory=limit,
                progress=progress,
            )
        except DatasetError:
            if not target.exists():  # another process may have written it meanwhile
                raise
    return Dataset.open(target)


def _warn_of_left_out(graph: GraphSource, what: str, edge_weight: bool) -> None:
    """Warn once of all attributes of a graph, named `what`, that mini-batches will not
    have."""
    faults = left_out(f"fields of {what}", graph.unread, most=len(graph.unread))
    if graph.edge_weights is not None and not edge_weight:
        faults.append("edge_weight is not handed out unless edge_weight=True is given")
    if faults:
        fix = "index what you keep of the nodes by a mini-batch's n_id"
        warnings.warn(f"{'; '.join(faults)}; {fix}", UserWarning, stacklevel=4)


def _digest(graph: GraphSource) -> str:
    """Return the digest of a graph's content, 16 hexadecimal digits."""
    digest = xxhash.xxh3_64(f"{graph.num_nodes} {graph.num_classes}".encode())
    for ends in graph.edges():
        for ids in ends:
            digest.update(np.ascontiguousarray(ids, dtype=np.int64).data)
    for weights in graph.edge_weights() if graph.edge_weights else ():
        digest.update(np.ascontiguousarray(weights, dtype=np.float32).data)
    assert graph.features is not None
    assert graph.splits is not None
    digest.update(f"{graph.features.dim} {graph.features.dtype}".encode())
    for rows in graph.features.chunks():
        digest.update(rows.data)
    for original in graph.ids() if graph.ids else ():
        digest.update(original.data)
    assert graph.labels is not None
    for ids in (graph.labels, *graph.splits.values()):
        digest.update(f"{len(ids)}".encode())
        digest.update(np.ascontiguousarray(ids, dtype=np.int64).data)
    return digest.hexdigest()
