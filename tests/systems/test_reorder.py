"""A reordered dataset is the same graph with renumbered nodes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from systems.data_tiering.reorder import ReorderFacts, reorder
from systems.engine.rank.ranking import scores, top
from tests.support import make_tiny
from tests.systems.support_systems import workload_of
from workloads.dataset import PARTS, Dataset
from workloads.errors import BudgetError, DataIOError, DatasetError


def assert_isomorphic(old: Dataset, new: Dataset, order: np.ndarray) -> None:
    indptr = old.load("indptr")
    new_indptr = new.load("indptr")
    indices = old.load("indices")
    new_indices = new.load("indices")
    for node, name in enumerate(order):
        new_list = order[new_indices[new_indptr[node] : new_indptr[node + 1]]]
        assert new_list.tolist() == indices[indptr[name] : indptr[name + 1]].tolist()
    assert new.load("features").tobytes() == old.load("features")[order].tobytes()
    assert new.load("labels").tolist() == old.load("labels")[order].tolist()
    for part in PARTS[4:]:
        assert order[new.load(part)].tolist() == old.load(part).tolist()


@pytest.mark.parametrize(
    ("dtype", "dim", "index_dtype"),
    [("float32", 16, "int32"), ("float16", 129, "int64")],
)
def test_the_graph_is_the_same_under_other_names_for_any_budget(
    tmp_path: Path, dtype: str, dim: int, index_dtype: str
) -> None:
    nodes = 4000
    edges = 60_000
    old = make_tiny(
        tmp_path / "old",
        nodes=nodes,
        edges=edges,
        dim=dim,
        dtype=dtype,
        index_dtype=index_dtype,
    )
    order = top(scores(workload_of(old), "weighted-reverse-pagerank"), nodes)
    digests = set()
    for number, budget in enumerate([None, 1 << 20, 400_000]):
        facts = ReorderFacts()
        new = reorder(
            old,
            order,
            tmp_path / f"new-{number}",
            budget_bytes=budget,
            threads=2,
            facts=facts,
        )
        assert_isomorphic(old, new, order)
        assert new.verify() == []
        assert np.load(new.path / "order.npy").tolist() == order.tolist()
        digests.add(new.fingerprint)
        assert sorted(path.name for path in new.path.iterdir()) == sorted(
            ["dataset.json", "order.npy", *(f"{part}.npy" for part in PARTS)]
        )
        if budget is None:
            assert (facts.feature_windows, facts.edge_windows, facts.scratch) == (
                1,
                1,
                False,
            )
    assert len(digests) == 1
    assert facts.edge_windows > 1
    assert facts.feature_windows > 1


def test_many_windows_go_through_scratch_files(tmp_path: Path) -> None:
    old = make_tiny(tmp_path / "old", nodes=4000, edges=20_000, dim=256)
    order = np.random.default_rng(0).permutation(4000)
    facts = ReorderFacts()
    new = reorder(old, order, tmp_path / "new", budget_bytes=1 << 20, facts=facts)
    assert facts.scratch
    assert_isomorphic(old, new, order)


def test_an_order_that_is_no_permutation_is_refused(
    tmp_path: Path, tiny_dataset: Dataset
) -> None:
    order = np.arange(tiny_dataset.num_nodes)
    for bad in (order[1:], np.where(order == 3, 4, order), order + 1):
        with pytest.raises(ValueError, match="no permutation"):
            reorder(tiny_dataset, bad, tmp_path / "new")


def test_a_budget_without_room_for_the_nodes_is_refused(
    tmp_path: Path, tiny_dataset: Dataset
) -> None:
    with pytest.raises(BudgetError, match="for the nodes"):
        reorder(tiny_dataset, np.arange(2000), tmp_path / "new", budget_bytes=64_000)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("part", ["indices", "features"])
def test_a_truncated_part_leaves_no_dataset(
    tmp_path: Path, tiny_dataset: Dataset, part: str
) -> None:
    shutil.copytree(tiny_dataset.path, tmp_path / "bad")
    dataset = Dataset.open(tmp_path / "bad")
    with dataset.file(part).open("r+b") as file:  # type: ignore[arg-type]
        file.truncate(8192)
    with pytest.raises((DataIOError, DatasetError), match=part):
        reorder(dataset, np.arange(2000)[::-1].copy(), tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["bad"]
