"""First-layer aggregation and reordering run under a kernel cap of half their table's
bytes, interpreter included."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.isolation import Limits
from systems.data_tiering.reorder import reorder
from systems.engine.io.memory import evict
from systems.engine.rank.ranking import top
from systems.engine.store.first_layer import aggregate_first_layer
from tests.harness.cap_tools import CAPPING, MIB, REPOSITORY, needs_cap, on_disk
from tests.systems.support_systems import workload_of
from workloads.dataset import PARTS, Dataset
from workloads.making.writer import DatasetWriter

NODES = 216_000
DIM = 512
DEGREE = 4
BUDGET = 40 * MIB
PROGRAM = """
import sys
import numpy as np
from pathlib import Path
from systems.engine.store.first_layer import aggregate_first_layer
from systems.data_tiering.reorder import reorder
from systems.engine.rank.ranking import top
from workloads.dataset import Dataset
from workloads.workload import ModelSpec, SamplerSpec, Workload
what, source, target, budget = sys.argv[1:]
dataset = Dataset.open(source)
if what == "aggregate":
    workload = Workload(dataset, SamplerSpec(fanout=(5,)), ModelSpec(name="gcn", layers=1))
    aggregate_first_layer(workload, target, budget_bytes=int(budget))
else:
    scores = np.random.default_rng(0).random(dataset.num_nodes)
    print(reorder(dataset, top(scores, len(scores)), Path(target), budget_bytes=int(budget)).fingerprint)
"""


@pytest.fixture(scope="module")
def wide() -> Iterator[Dataset]:
    """Make 216,000 rows of 512 float32: a table of 422 MiB, aggregates of the same
    size; neighbours have near ids."""
    for folder in on_disk():
        rng = np.random.default_rng(1)
        with DatasetWriter(folder / "wide") as writer:
            writer.write(
                "indptr", np.arange(0, NODES * DEGREE + 1, DEGREE, dtype=np.int64)
            )
            near = np.repeat(np.arange(NODES), DEGREE) + rng.integers(
                -3000, 3000, NODES * DEGREE
            )
            writer.write("indices", (near % NODES).astype(np.int32))
            block = rng.standard_normal((4000, DIM)).astype(np.float32)
            with writer.stream("features", np.float32, (NODES, DIM)) as stream:
                for number in range(NODES // len(block)):
                    stream.write(np.roll(block, number, axis=1))
            writer.write("labels", np.zeros(NODES, dtype=np.int64))
            for start, part in enumerate(("train", "valid", "test")):
                writer.write(part, np.arange(start, NODES, 50, dtype=np.int64))  # type: ignore[arg-type]
        yield Dataset.open(folder / "wide")


def in_half(dataset: Dataset, what: str, target: Path, cap_bytes: int) -> str:
    """Run the program cold, under a cap of half the table; return its stdout."""
    for part in PARTS:
        evict(dataset.file(part))
    argv = [
        sys.executable,
        "-c",
        PROGRAM,
        what,
        str(dataset.path),
        str(target),
        str(BUDGET),
    ]
    with CAPPING[0]().create(f"{what}-cap", Limits(memory_bytes=cap_bytes)) as cap:
        done = subprocess.run(
            cap.command(argv),
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
            cwd=Path(REPOSITORY),
        )
        memory = cap.memory()
    assert done.returncode == 0, done.stderr[-2000:]
    assert memory.oom_kills == 0
    return done.stdout.strip()


@pytest.mark.slow("systems/engine/store/first_layer.py", "systems/engine/io")
@needs_cap
@pytest.mark.timeout(240)
def test_aggregation_runs_under_half_of_its_tables_bytes(wide: Dataset) -> None:
    target = wide.path.parent / "aggregates.npy"
    in_half(wide, "aggregate", target, wide.feature_bytes // 2)
    workload = workload_of(wide, fanout=(5,))
    workload = replace(workload, model=replace(workload.model, name="gcn"))
    expected = np.load(
        aggregate_first_layer(workload, target.with_name("expected.npy")), mmap_mode="r"
    )
    found = np.load(target, mmap_mode="r")
    for first in range(0, NODES, 40_000):  # its sums are made in another order
        np.testing.assert_allclose(
            found[first : first + 40_000], expected[first : first + 40_000], atol=1e-4
        )
    target.unlink()


@pytest.mark.slow("systems/data_tiering", "systems/engine/io")
@needs_cap
@pytest.mark.timeout(240)
def test_reordering_runs_under_half_of_its_tables_bytes(wide: Dataset) -> None:
    scores = np.random.default_rng(0).random(NODES)
    expected = reorder(
        wide, top(scores, len(scores)), wide.path.parent / "reordered"
    ).fingerprint
    assert (
        in_half(wide, "reorder", wide.path.parent / "capped", wide.feature_bytes // 2)
        == expected
    )
