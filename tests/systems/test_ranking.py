"""Rankings: what they promise, against NumPy and SciPy doing the same in memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systems.engine.ranking import out_degrees, top
from tests.support import make_tiny
from tests.systems.support_systems import workload_of
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DataIOError, DatasetError


@given(st.lists(st.integers(0, 5) | st.floats(-2, 2), max_size=40), st.integers(0, 45))
def test_top_is_the_highest_first_and_equal_ones_by_id(values: list[float], k: int) -> None:
    scores = np.array(values, dtype=np.float64)
    expected = sorted(range(len(values)), key=lambda node: (-scores[node], node))[:k]
    assert top(scores, k).tolist() == expected


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_out_degrees_are_counted(tmp_path: Path, index_dtype: str) -> None:
    dataset = make_tiny(tmp_path / "g", nodes=3000, edges=60_000, index_dtype=index_dtype)
    expected = np.bincount(dataset.load("indices"), minlength=dataset.num_nodes)
    assert out_degrees(workload_of(dataset)).tolist() == expected.tolist()
    assert out_degrees(workload_of(dataset), 4 << 20).tolist() == expected.tolist()


def test_a_budget_too_small_for_the_counts_is_refused(tiny_dataset: Dataset) -> None:
    with pytest.raises(BudgetError, match="out-degrees"):
        out_degrees(workload_of(tiny_dataset), 4 * tiny_dataset.num_nodes)


def test_a_truncated_edge_list_is_named(tmp_path: Path) -> None:
    dataset = make_tiny(tmp_path / "g")
    with dataset.file("indices").open("r+b") as file:
        file.truncate(8192)
    with pytest.raises(DataIOError, match=r"indices\.npy"):
        out_degrees(workload_of(dataset))


def test_an_id_that_is_no_node_is_named(tmp_path: Path, tiny_dataset: Dataset) -> None:
    shutil.copytree(tiny_dataset.path, tmp_path / "bad")
    dataset = Dataset.open(tmp_path / "bad")
    with dataset.file("indices").open("r+b") as file:
        file.seek(dataset.data_offset("indices") + 4 * 77)
        file.write(np.int32(-1).tobytes())
    with pytest.raises(DatasetError, match=r"indices\.npy"):
        out_degrees(workload_of(dataset))
