"""Small graphs for conformance checks, made by numpy alone: hubs, isolated nodes, rows that all differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.check.case import Case
from workloads.dataset import Dataset
from workloads.making.writer import DatasetWriter


def make_dataset(folder: Path, case: Case) -> Dataset:
    """Open the dataset of a case; make it in `folder` at first use."""
    shape = (case.nodes, case.edges, case.train, case.dim, case.dtype, case.index_dtype)
    path = folder / "-".join(str(part) for part in shape)
    if not path.is_dir():
        _write(path, case)
    return Dataset.open(path)


def _write(path: Path, case: Case) -> None:
    rng = np.random.default_rng(7)
    nodes = case.nodes
    # Squared uniforms make hubs at low ids and leave high ids nearly alone.
    target = (nodes * rng.random(case.edges * 2) ** 2).astype(np.int64)
    source = (nodes * rng.random(case.edges * 2) ** 2).astype(np.int64)
    codes = rng.permutation(np.unique(target * nodes + source))[: case.edges]
    codes.sort()
    indptr = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(codes // nodes, minlength=nodes), out=indptr[1:])
    order = rng.permutation(nodes)
    with DatasetWriter(path, recipe={"source": "outcore check"}) as writer:
        writer.write("indptr", indptr)
        writer.write("indices", (codes % nodes).astype(case.index_dtype))
        writer.write("features", rng.standard_normal((nodes, case.dim)).astype(case.dtype))
        writer.write("labels", rng.integers(0, 4, nodes))
        writer.write("train", np.sort(order[: case.train]))
        writer.write("valid", np.sort(order[case.train : case.train + 50]))
        writer.write("test", np.sort(order[case.train + 50 : case.train + 100]))
        writer.num_classes = 4
