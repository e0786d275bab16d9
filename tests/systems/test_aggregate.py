"""The first layer's aggregates equal the plain oracle's, whatever the budget, the
threads and the model."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from systems.engine.store.first_layer import AggregateFacts, aggregate_first_layer
from tests.support import make_tiny
from tests.systems.support_systems import workload_of
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DataIOError, InputError
from workloads.making.writer import DatasetWriter
from workloads.models import first_layer_rows
from workloads.workload import ModelName, Workload


def of_model(dataset: Dataset, name: ModelName) -> Workload:
    workload = workload_of(dataset)
    return replace(workload, model=replace(workload.model, name=name))


def expected_rows(workload: Workload) -> np.ndarray:
    dataset = workload.dataset
    return first_layer_rows(
        workload.model,
        dataset.load("indptr"),
        dataset.load("indices"),
        dataset.load("features"),
        np.arange(dataset.num_nodes),
    )


@pytest.mark.parametrize("name", ["sage", "gcn"])
@pytest.mark.parametrize(
    ("dim", "dtype", "index_dtype"),
    [(16, "float32", "int32"), (129, "float16", "int64"), (1, "float32", "int32")],
)
def test_aggregates_are_the_oracles_in_any_number_of_rounds(
    tmp_path: Path, name: ModelName, dim: int, dtype: str, index_dtype: str
) -> None:
    dataset = make_tiny(
        tmp_path / "g",
        nodes=3000,
        edges=40_000,
        dim=dim,
        dtype=dtype,
        index_dtype=index_dtype,
    )
    workload = of_model(dataset, name)
    expected = expected_rows(workload)
    for budget, most, least in [
        (None, 1, 1),
        (40 << 20, 1, 1),
        (900_000, 100, 2 if dim > 1 else 1),
    ]:
        facts = AggregateFacts()
        path = aggregate_first_layer(
            workload, tmp_path / "t.npy", budget_bytes=budget, facts=facts
        )
        found = np.load(path)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
        assert least <= facts.rounds <= most


def hub_dataset(path: Path) -> Dataset:
    """Make a graph with a hub of 200,000 in-edges (1,000 nodes, itself among them, 200
    times each) and few others."""
    nodes = 1000
    dim = 8
    rng = np.random.default_rng(5)
    hub = np.tile(np.arange(nodes), 200)
    counts = np.zeros(nodes, dtype=np.int64)
    counts[[3, 500, 501]] = [4, len(hub), 2]
    with DatasetWriter(path) as writer:
        writer.write(
            "indptr", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        )
        writer.write(
            "indices", np.concatenate([[1, 2, 3, 3], hub, [501, 7]]).astype(np.int32)
        )
        writer.write("features", rng.standard_normal((nodes, dim)).astype(np.float32))
        writer.write("labels", np.zeros(nodes, dtype=np.int64))
        writer.write("train", np.arange(10, dtype=np.int64))
        writer.write("valid", np.empty(0, dtype=np.int64))
        writer.write("test", np.empty(0, dtype=np.int64))
    return Dataset.open(path)


@pytest.mark.parametrize("name", ["sage", "gcn"])
def test_a_node_with_more_neighbours_than_fit_is_done_in_several_rounds(
    tmp_path: Path, name: ModelName
) -> None:
    workload = of_model(hub_dataset(tmp_path / "g"), name)
    facts = AggregateFacts()
    path = aggregate_first_layer(
        workload, tmp_path / "t.npy", budget_bytes=1_000_000, facts=facts
    )
    assert facts.rounds > 1
    np.testing.assert_allclose(
        np.load(path), expected_rows(workload), rtol=1e-4, atol=1e-4
    )


def test_the_bytes_are_the_same_for_any_threads(
    tmp_path: Path, tiny_dataset: Dataset
) -> None:
    tables = [
        aggregate_first_layer(
            workload_of(tiny_dataset), tmp_path / f"{n}.npy", threads=n
        ).read_bytes()
        for n in (1, 2, 5)
    ]
    assert tables[0] == tables[1] == tables[2]


def test_pieces_that_no_edge_wants_are_not_read(tmp_path: Path) -> None:
    """All edges come from the first 1,000 of 100,000 nodes; all rows are read once, for
    the nodes themselves."""
    nodes = 100_000
    dim = 64
    dataset_path = tmp_path / "g"
    with DatasetWriter(dataset_path) as writer:
        writer.write("indptr", np.arange(nodes + 1, dtype=np.int64))
        writer.write(
            "indices",
            np.random.default_rng(0).integers(0, 1000, nodes).astype(np.int32),
        )
        writer.write("features", np.ones((nodes, dim), dtype=np.float32))
        writer.write("labels", np.zeros(nodes, dtype=np.int64))
        for number, part in enumerate(("train", "valid", "test")):
            writer.write(part, np.array([number]))  # type: ignore[arg-type]
    dataset = Dataset.open(dataset_path)
    facts = AggregateFacts()
    aggregate_first_layer(workload_of(dataset), tmp_path / "t.npy", facts=facts)
    assert facts.skipped_pieces == -(-nodes // (4 << 20 >> 8)) - 1
    assert (
        facts.reads.bytes_read
        < dataset.feature_bytes + (5 << 20) + 2 * dataset.topology_bytes
    )


def test_attention_cannot_be_aggregated_beforehand(
    tmp_path: Path, tiny_dataset: Dataset
) -> None:
    with pytest.raises(InputError, match="gat"):
        aggregate_first_layer(of_model(tiny_dataset, "gat"), tmp_path / "t.npy")


def test_a_budget_too_small_is_refused(tmp_path: Path, tiny_dataset: Dataset) -> None:
    with pytest.raises(BudgetError, match="first-layer aggregation"):
        aggregate_first_layer(
            workload_of(tiny_dataset), tmp_path / "t.npy", budget_bytes=100_000
        )


def test_a_truncated_feature_file_is_named(
    tmp_path: Path, tiny_dataset: Dataset
) -> None:
    shutil.copytree(tiny_dataset.path, tmp_path / "bad")
    dataset = Dataset.open(tmp_path / "bad")
    with dataset.file("features").open("r+b") as file:
        file.truncate(8192)
    with pytest.raises(DataIOError, match=r"features\.npy"):
        aggregate_first_layer(workload_of(dataset), tmp_path / "t.npy")
