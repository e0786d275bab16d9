"""A sink for topologies that writes raw files, so that generators are tested without
the dataset format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import xxhash

from workloads.kronecker import BaseGraph, GenerateSpec, TopologyPlan, plan_topology
from workloads.npyfile import padded_header


class FileSink:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.digests: dict[str, str | None] = {}
        self.shapes: dict[str, tuple[np.dtype[Any], int]] = {}

    def begin(self, part: Any, dtype: npt.DTypeLike, count: int) -> tuple[Path, int]:
        self.shapes[part] = (np.dtype(dtype), count)
        (self.folder / part).write_bytes(padded_header(np.dtype(dtype), (count,)))
        return self.folder / part, 4096

    def finish(self, part: Any, xxh3: str | None = None) -> None:
        dtype, count = self.shapes[part]
        os.truncate(self.folder / part, 4096 + count * dtype.itemsize)
        self.digests[part] = xxh3

    def load(self, part: str) -> npt.NDArray[Any]:
        return np.load(self.folder / part)

    def file_digest(self, part: str) -> str:
        return xxhash.xxh3_64((self.folder / part).read_bytes()).hexdigest()


def generate(
    folder: Path, spec: GenerateSpec
) -> tuple[TopologyPlan, npt.NDArray[np.int64], npt.NDArray[Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    sink = FileSink(folder)
    plan = plan_topology(spec)
    plan.write(sink, lambda stage, fraction: None)
    indptr = sink.load("indptr")
    indices = sink.load("indices")
    assert indptr.shape == (plan.num_nodes + 1,)
    assert indices.shape == (plan.num_edges,)
    assert sink.digests == {
        part: sink.file_digest(part) for part in ("indptr", "indices")
    }
    return plan, indptr, indices


def as_matrix(indptr: npt.NDArray[Any], indices: npt.NDArray[Any]) -> sp.csc_matrix:
    """Make the matrix of a CSC graph: sources are rows, targets columns."""
    nodes = indptr.shape[0] - 1
    return sp.csc_matrix(
        (np.ones(indices.shape[0], dtype=np.int64), indices, indptr),
        shape=(nodes, nodes),
    )


def base_of(matrix: Any, **more: Any) -> BaseGraph:
    csc = sp.csc_matrix(matrix)
    csc.sort_indices()
    return BaseGraph(csc.indptr.astype(np.int64), csc.indices.astype(np.int32), **more)


def lists_ascend(
    indptr: npt.NDArray[Any], indices: npt.NDArray[Any], strictly: bool = True
) -> bool:
    steps = np.diff(indices.astype(np.int64))
    inside = np.ones(indices.shape[0] - 1, dtype=bool)
    starts = indptr[1:-1]
    inside[starts[(starts > 0) & (starts < indices.shape[0])] - 1] = False
    return bool((steps[inside] > 0).all() if strictly else (steps[inside] >= 0).all())
