"""A ranking runs under a kernel cap of half the bytes of the edges, interpreter and
page cache included."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.isolation import Limits
from systems.engine.io.memory import evict
from systems.engine.rank.pagerank import reverse_pagerank
from tests.harness.cap_tools import CAPPING, MIB, REPOSITORY, needs_cap, on_disk
from tests.systems.support_systems import workload_of
from workloads.dataset import Dataset
from workloads.making.writer import DatasetWriter

NODES = 500_000
DEGREE = 120
BUDGET = 40 * MIB
PROGRAM = """
import sys, hashlib
from systems.engine.rank.pagerank import reverse_pagerank
from workloads.dataset import Dataset
from workloads.workload import ModelSpec, SamplerSpec, Workload
workload = Workload(Dataset.open(sys.argv[1]), SamplerSpec(), ModelSpec())
scores = reverse_pagerank(workload, weighted=True, iterations=2, budget_bytes=int(sys.argv[2]))
print(hashlib.sha256(scores.tobytes()).hexdigest())
"""


@pytest.fixture(scope="module")
def large_dataset() -> Iterator[Dataset]:
    """Make a graph of 60 M edges with int64 ids, 458 MiB."""
    for folder in on_disk():
        with DatasetWriter(folder / "large") as writer:
            writer.write(
                "indptr", np.arange(0, NODES * DEGREE + 1, DEGREE, dtype=np.int64)
            )
            block = np.random.default_rng(0).integers(0, NODES, 1_000_000)
            with writer.stream("indices", np.int64, NODES * DEGREE) as stream:
                for number in range(NODES * DEGREE // len(block)):
                    stream.write((block + 7919 * number) % NODES)
            writer.write("features", np.zeros((NODES, 1), dtype=np.float16))
            writer.write("labels", np.zeros(NODES, dtype=np.int64))
            for start, part in enumerate(("train", "valid", "test")):
                writer.write(part, np.arange(start, NODES, 50, dtype=np.int64))  # type: ignore[arg-type]
        yield Dataset.open(folder / "large")


@pytest.mark.slow("systems/engine/rank")
@needs_cap
def test_weighted_reverse_pagerank_runs_under_half_the_edges_bytes(
    large_dataset: Dataset,
) -> None:
    import hashlib

    workload = workload_of(large_dataset)
    expected = hashlib.sha256(
        reverse_pagerank(workload, weighted=True, iterations=2).tobytes()
    ).hexdigest()
    for part in ("indptr", "indices"):
        evict(large_dataset.file(part))  # type: ignore[arg-type]
    cap_bytes = large_dataset.topology_bytes // 2
    argv = [sys.executable, "-c", PROGRAM, str(large_dataset.path), str(BUDGET)]
    with CAPPING[0]().create("ranking-cap", Limits(memory_bytes=cap_bytes)) as cap:
        done = subprocess.run(
            cap.command(argv),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=Path(REPOSITORY),
        )
        memory = cap.memory()
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected
    assert memory.oom_kills == 0
