"""The static caches: neighbour lists by out-degree / in-degree, feature rows by
ranking; exact, bounded, reused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from systems.engine.cache import neighbour_cache
from systems.engine.cache.neighbour_cache import build, choose, plan_neighbour_cache
from systems.engine.cache.static_cache import StaticCache
from tests.support import make_tiny
from tests.systems.support_systems import workload_of
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DataIOError


def reference_choice(dataset: Dataset, capacity: int) -> set[int]:
    """Choose as the paper says: sort by the metric, take lists until one does not
    fit."""
    sizes = np.diff(dataset.load("indptr"))
    outs = np.bincount(dataset.load("indices"), minlength=dataset.num_nodes)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = (outs / sizes).astype(np.float32)
    order = [v for v in np.lexsort((np.arange(len(score)), -score)) if sizes[v]]
    taken: set[int] = set()
    for node in order:
        capacity -= int(sizes[node])
        if capacity < 0:
            break
        taken.add(int(node))
    return taken


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("share", [0.05, 0.4, 1.0])
def test_cached_lists_are_the_graphs_and_the_highest_ranked(
    tmp_path: Path, index_dtype: str, share: float
) -> None:
    dataset = make_tiny(
        tmp_path / "d", nodes=40_000, edges=300_000, dim=1, index_dtype=index_dtype
    )
    workload = workload_of(dataset)
    plan = plan_neighbour_cache(
        workload, 8 * dataset.num_nodes + int(share * dataset.topology_bytes)
    )
    address, lists = neighbour_cache.load(
        dataset, build(workload, tmp_path / "artefacts", plan)
    )
    assert lists.nbytes <= plan.list_bytes
    assert address.nbytes == plan.table_bytes
    cached = np.flatnonzero(address >= 0)
    assert set(cached.tolist()) == reference_choice(
        dataset, plan.list_bytes // dataset.index_dtype.itemsize
    )
    indptr = dataset.load("indptr")
    indices = dataset.load("indices")
    for node in cached:
        size = indptr[node + 1] - indptr[node]
        assert (
            lists[address[node] : address[node] + size]
            == indices[indptr[node] : indptr[node + 1]]
        ).all()
    assert sum(int(indptr[v + 1] - indptr[v]) for v in cached) == len(lists)
    if share == 1.0:
        assert len(lists) == dataset.num_edges


def test_equal_scores_are_taken_by_id_until_one_does_not_fit() -> None:
    indptr = np.array([0, 2, 4, 6, 6, 8])
    chosen = choose(indptr, np.array([2, 2, 2, 9, 1], dtype=np.int32), 5)
    assert chosen.tolist() == [True, True, False, False, False]
    assert not choose(indptr, np.array([2, 2, 2, 9, 1], dtype=np.int32), 1).any()


def test_the_kept_cache_is_reused_and_another_size_is_another(
    tmp_path: Path, tiny_dataset: Dataset
) -> None:
    workload = workload_of(tiny_dataset)
    plan = plan_neighbour_cache(workload, 40_000)
    assert not build(workload, tmp_path, plan).reused
    again = build(workload, tmp_path, plan)
    assert again.reused
    assert not build(workload, tmp_path, plan_neighbour_cache(workload, 50_000)).reused
    with pytest.raises(BudgetError, match="neighbour-cache"):
        build(
            workload, tmp_path, plan_neighbour_cache(workload, 45_000), disk_budget=100
        )
    (again.path / "lists").write_bytes(b"")
    assert not build(workload, tmp_path, plan).reused


def test_no_room_for_the_address_table_is_no_cache(tiny_dataset: Dataset) -> None:
    plan = plan_neighbour_cache(workload_of(tiny_dataset), 8 * tiny_dataset.num_nodes)
    assert (plan.nodes, plan.nbytes) == (0, 0)


@pytest.mark.parametrize("dim", [1, 127, 768])
def test_cached_rows_are_the_tables(tmp_path: Path, dim: int) -> None:
    dataset = make_tiny(tmp_path / "d", nodes=1500, dim=dim)
    workload = workload_of(dataset)
    ranking = np.random.default_rng(0).permutation(1500)[:400]
    table = torch.zeros(410, dim)
    cache = StaticCache.build(workload, ranking, table)
    assert (cache.stats.unique_rows, cache.stats.bytes_useful) == (400, 400 * dim * 4)
    nodes = np.random.default_rng(1).permutation(1500)[:700]
    found = cache.lookup(nodes)
    features = dataset.load("features")
    hits = np.flatnonzero(found.slots >= 0)
    assert (table.numpy()[found.slots[hits]] == features[nodes[hits]]).all()
    assert set(nodes[hits].tolist()) == set(ranking.tolist()) & set(nodes.tolist())
    assert sorted(np.concatenate([hits, found.misses]).tolist()) == list(range(700))
    assert cache.plan_bytes(workload, 400) == 400 * dim * 4 + 1500 * 4
    assert cache.capacity_of(workload, cache.plan_bytes(workload, 400)) == 400


def test_filling_from_a_truncated_file_names_it(tmp_path: Path) -> None:
    dataset = make_tiny(tmp_path / "d")
    with dataset.file("features").open("r+b") as file:
        file.truncate(8192)
    with pytest.raises(DataIOError, match=r"features\.npy"):
        StaticCache.build(
            workload_of(dataset), np.arange(1000), np.zeros((1000, 16), np.float32)
        )


def test_a_node_cached_twice_is_refused(tiny_dataset: Dataset) -> None:
    with pytest.raises(ValueError, match="twice"):
        StaticCache.build(
            workload_of(tiny_dataset), np.array([1, 1]), np.zeros((2, 16), np.float32)
        )
