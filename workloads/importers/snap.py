"""SNAP edge lists as text: two ids a line, `#` or `%` comments, plain or compressed,
streamed in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from workloads.arraytypes import Int64Array
from workloads.errors import require
from workloads.importers.edge_header import direction
from workloads.importers.edge_text import EdgeText
from workloads.importers.source import (
    EDGES_A_CHUNK,
    EdgeChunk,
    GraphSource,
    ImportOptions,
)
from workloads.manifest import RENUMBERED
from workloads.npyfile import write_all
from workloads.sampling.distinct import distinct


def open_snap(path: Path, options: ImportOptions) -> GraphSource:
    """Read a text edge list; a line `u v` is the edge u -> v, separated by blanks,
    tabs, a comma or a semicolon.

    Compression (gzip, bzip2, xz) and encoding (UTF-8, UTF-16 with a mark) are known by
    the first bytes. Edges of a header that states an undirected graph stand for both
    directions. Nodes are renumbered without gaps, in the order of their ids, which are
    kept as `ids`. The text is parsed once, into a temporary file of 16 bytes an edge;
    the table of ids takes up to 12 bytes for each number up to the largest id, or,
    where ids are so sparse that this exceeds `options.max_memory`, 8 bytes a node.
    Raises DatasetError where the file is missing or its compressed data are damaged,
    InputError where a line, named by its number, is not two ids in digits below 2^63,
    the header leaves directions unclear and the options too, or there is no edge.
    """
    binary = options.scratch / "edges.tmp"
    text = EdgeText.open(path)
    symmetric, notes = direction(text.header, options.symmetric, path)
    with binary.open("wb", buffering=0) as out:
        for part in text.pairs(options.progress):
            write_all(out, part)
    if text.undirected and not symmetric:  # stated below the first edge
        symmetric, notes = direction(
            replace(text.header, first_edge=text.undirected), options.symmetric, path
        )
    fault = f"{path} holds no edge"
    require(text.num_edges, fault, "write two ids a line")
    largest = text.largest
    pairs = np.memmap(binary, dtype=np.int64, mode="r").reshape(-1, 2)
    slices = [
        (start, start + EDGES_A_CHUNK)
        for start in range(0, pairs.shape[0], EDGES_A_CHUNK)
    ]
    if (largest + 1) * 12 <= max(options.max_memory, 64 << 20):
        present = np.zeros(largest + 1, dtype=bool)
        for start, stop in slices:
            present[pairs[start:stop].reshape(-1)] = True
        number = np.cumsum(present) - 1
        num_nodes = int(number[-1]) + 1
    else:
        number = None
        names = np.empty(0, dtype=np.int64)
        for start, stop in slices:
            names = distinct(np.concatenate([names, pairs[start:stop].reshape(-1)]))
        num_nodes = names.shape[0]

    def edges() -> Iterator[EdgeChunk]:
        for start, stop in slices:
            part = np.asarray(pairs[start:stop])
            fresh = number[part] if number is not None else np.searchsorted(names, part)
            yield fresh[:, 0], fresh[:, 1]

    def ids() -> Iterator[Int64Array]:
        if number is None:
            yield names
            return
        for start in range(0, largest + 1, EDGES_A_CHUNK):
            yield start + np.flatnonzero(present[start : start + EDGES_A_CHUNK])

    gaps = largest + 1 - num_nodes
    if gaps:
        notes.append(
            f"{RENUMBERED} ({gaps} unused up to {largest}); the part ids holds the "
            "original ones"
        )
    notes += text.notes()
    original = ids if gaps else None
    return GraphSource(
        num_nodes,
        edges,
        symmetric=symmetric,
        notes=notes,
        ids=original,
        edges_name=str(path),
    )
