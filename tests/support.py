"""Small datasets for tests, made by numpy alone, so that tests of other parts do not
depend on the generators."""

from __future__ import annotations

import fcntl
import gc
import importlib.util
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from workloads.dataset import Dataset
from workloads.making.writer import DatasetWriter
from workloads.sampling.distinct import distinct

HAS_DGL = importlib.util.find_spec("dgl") is not None
#: DGL 1.1.3, which the systems load through, has wheels up to Python 3.11.
needs_dgl = pytest.mark.skipif(not HAS_DGL, reason="DGL is not installed")


def make_tiny(
    path: Path,
    nodes: int = 2000,
    edges: int = 20000,
    dim: int = 16,
    dtype: str = "float32",
    classes: int = 5,
    train_fraction: float = 0.2,
    seed: int = 0,
    index_dtype: str = "int32",
) -> Dataset:
    """Make a skewed, homophilous graph without duplicate edges, with learnable features
    (class centre plus noise).

    Some nodes have no in-neighbours, some are hubs. Splits: `train_fraction` train, 10
    % valid, 10 % test.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, nodes)
    by_class = [np.flatnonzero(labels == k) for k in range(classes)]
    edges = min(edges, nodes * nodes // 4)
    codes = np.empty(0, dtype=np.int64)
    while codes.shape[0] < edges:
        draws = edges * 2
        target = (nodes * rng.random(draws) ** 2).astype(np.int64)
        source = (nodes * rng.random(draws) ** 3).astype(np.int64)
        for k in range(classes):  # seven edges in ten stay inside a class
            own = np.flatnonzero((labels[target] == k) & (rng.random(draws) < 0.7))
            if by_class[k].size:
                source[own] = by_class[k][
                    (by_class[k].size * rng.random(own.size) ** 2).astype(np.int64)
                ]
        codes = distinct(np.concatenate([codes, target * nodes + source]))
    codes = np.sort(rng.choice(codes, edges, replace=False))
    indptr = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(codes // nodes, minlength=nodes), out=indptr[1:])
    centres = rng.standard_normal((classes, dim))
    if nodes * dim < 1 << 24:
        noise = rng.standard_normal((nodes, dim))
    else:  # so many draws would take seconds, so rows are windows of a pool
        pool = rng.standard_normal(1 << 20, dtype=np.float32)
        noise = sliding_window_view(pool, dim)[rng.integers(0, pool.size - dim, nodes)]
        centres = centres.astype(np.float32)
    noise += centres[labels]
    features = noise.astype(dtype, copy=False)
    order = rng.permutation(nodes)
    first = max(1, int(nodes * train_fraction))
    second = min(nodes, first + nodes // 10)
    third = min(nodes, second + nodes // 10)
    with DatasetWriter(path, recipe={"source": "test", "seed": seed}) as writer:
        writer.write("indptr", indptr)
        writer.write("indices", (codes % nodes).astype(index_dtype))
        writer.write("features", features)
        writer.write("labels", labels.astype(np.int64))
        writer.write("train", np.sort(order[:first]).astype(np.int64))
        writer.write("valid", np.sort(order[first:second]).astype(np.int64))
        writer.write("test", np.sort(order[second:third]).astype(np.int64))
        writer.num_classes = classes
    return Dataset.open(path)


def write_over(nbytes: int) -> None:
    """Collect garbage and overwrite freed memory of this size, so that a stale view of
    it reads 0xFF."""
    gc.collect()
    kept = [
        np.full(size, 0xFF, dtype=np.uint8)
        for size in (nbytes // 2, nbytes, nbytes, 2 * nbytes)
        for _ in range(8)
    ]
    del kept


def default_signals() -> None:
    """Restore default signal handlers: a test run in the background passes ignored
    signals on to its children."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def mounted(folder: Path, kind: str, *options: str) -> Iterator[Path]:
    """Mount a file system in memory at a new folder; skips the test where that needs
    root."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", kind, *options, kind, folder], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"needs root to mount {kind} ({done.stderr.strip()})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@contextmanager
def session_lock(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """Hold a lock among all processes of the test session; yield the temporary folder
    that they share."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield shared


def made_once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """Return a folder that all processes of the test session share; the first one fills
    it by `make`."""
    with session_lock(factory, name) as shared:
        folder = shared / name
        if not (done := shared / f"{name}.done").exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            done.touch()
    return folder
