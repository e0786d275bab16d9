"""Partitions are balanced, complete and self-contained, and better than chance on a
graph with communities."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems import _native
from systems.engine.rank.partition import (
    Partitioning,
    partition_training_nodes,
    plan_bytes,
)
from tests.systems.support_systems import workload_of
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DatasetError, InputError
from workloads.making.writer import DatasetWriter
from workloads.workload import Workload


def cross_partition_accesses(
    workload: Workload, partitioning: Partitioning, *, hops: int | None = None
) -> tuple[int, int]:
    """Count (outside accesses, all accesses): pairs of a training node and an L-hop
    in-neighbour or itself."""
    every, outside = _native.count_accesses(
        workload.dataset.memmap("indptr"),
        workload.dataset.memmap("indices"),
        partitioning.train,
        partitioning.partition_of,
        partitioning.hops if hops is None else hops,
        partitioning.members,
        2,
    )
    return outside, every


def make_graph(
    path: Path, nodes: int, edges: Iterable[tuple[int, int]], train: list[int]
) -> Dataset:
    """Make a dataset of (target, source) edges; the training nodes keep their order."""
    ordered = sorted(edges)
    targets = np.array([target for target, _ in ordered], dtype=np.int64)
    with DatasetWriter(path, replace=True) as writer:
        counts = np.bincount(targets, minlength=nodes)
        writer.write(
            "indptr", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        )
        writer.write(
            "indices", np.array([source for _, source in ordered], dtype=np.int32)
        )
        writer.write("features", np.zeros((nodes, 1), dtype=np.float32))
        writer.write("labels", np.zeros(nodes, dtype=np.int64))
        writer.write("train", np.array(train, dtype=np.int64))
        writer.write("valid", np.empty(0, dtype=np.int64))
        writer.write("test", np.empty(0, dtype=np.int64))
    return Dataset.open(path)


def in_neighbours(dataset: Dataset, node: int, hops: int) -> set[int]:
    indptr = dataset.load("indptr")
    indices = dataset.load("indices")
    found = {node}
    frontier = {node}
    for _ in range(hops):
        frontier = {
            int(s) for v in frontier for s in indices[indptr[v] : indptr[v + 1]]
        } - found
        found |= frontier
    return found


def greedy(
    dataset: Dataset, partitions: int, hops: int
) -> tuple[list[int], list[set[int]]]:
    """Partition by the simplest code of Algorithm 1."""
    train = dataset.load("train").tolist()
    average = len(train) / partitions
    room = -(-len(train) // partitions)
    own: list[set[int]] = [set() for _ in range(partitions)]
    whole: list[set[int]] = [set() for _ in range(partitions)]
    chosen = []
    for node in train:
        found = in_neighbours(dataset, node, hops)
        scores = [
            (
                len(own[p] & found) * (average - len(own[p])) / max(1, len(whole[p])),
                -len(whole[p]),
                -len(own[p]),
                -p,
            )
            for p in range(partitions)
            if len(own[p]) < room
        ]
        best = -max(scores)[3]
        chosen.append(best)
        own[best].add(node)
        whole[best] |= found
    return chosen, whole


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_partitions_are_algorithm_1s_balanced_and_self_reliant(
    tmp_path: Path, data: st.DataObject
) -> None:
    nodes = data.draw(st.integers(1, 90))
    node = st.integers(0, nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=150))
    train = data.draw(st.lists(node, min_size=1, max_size=nodes, unique=True))
    hops = data.draw(st.integers(0, 3))
    partitions = data.draw(st.integers(1, min(5, len(train))))
    dataset = make_graph(tmp_path / "g", nodes, edges, train)
    found = partition_training_nodes(
        workload_of(dataset),
        partitions,
        hops=hops,
        threads=data.draw(st.integers(1, 3)),
    )
    expected, members = greedy(dataset, partitions, hops)
    assert found.partition_of.tolist() == expected
    assert [set(found.nodes(p).tolist()) for p in range(partitions)] == members
    # Every training node once, no partition above its share, no access outside.
    assert sorted(
        np.concatenate([found.train_nodes(p) for p in range(partitions)]).tolist()
    ) == sorted(train)
    assert max(len(found.train_nodes(p)) for p in range(partitions)) <= -(
        -len(train) // partitions
    )
    assert cross_partition_accesses(workload_of(dataset), found)[0] == 0
    assert found.sizes.tolist() == [len(each) for each in members]
    assert found.replication_factor == sum(map(len, members)) / len(
        set().union(*members)
    )


@pytest.fixture(scope="module")
def communities(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Make eight communities of 250 nodes with one edge in fifty between them, training
    nodes shuffled."""
    rng = np.random.default_rng(2)
    nodes = 2000
    edges = 12_000
    targets = rng.integers(0, nodes, edges)
    sources = np.where(
        rng.random(edges) < 0.98,
        targets // 250 * 250 + rng.integers(0, 250, edges),
        rng.integers(0, nodes, edges),
    )
    path = tmp_path_factory.mktemp("partition") / "g"
    train = rng.permutation(nodes)[:400].tolist()
    return make_graph(
        path, nodes, zip(targets.tolist(), sources.tolist(), strict=True), train
    )


def test_communities_are_replicated_less_than_by_chance(communities: Dataset) -> None:
    workload = workload_of(communities)
    ours = partition_training_nodes(workload, 4, hops=2)
    chance = np.random.default_rng(0).permutation(np.arange(400) % 4)
    random = partition_training_nodes(workload, 4, hops=2, given=chance)
    assert random.partition_of.tolist() == chance.tolist()
    assert ours.replication_factor < 0.8 * random.replication_factor
    assert ours.train_balance == random.train_balance == 1.0


def test_an_access_outside_is_counted(communities: Dataset) -> None:
    workload = workload_of(communities)
    found = partition_training_nodes(workload, 4, hops=1)
    outside, every = cross_partition_accesses(workload, found)
    assert outside == 0
    assert every == sum(
        len(in_neighbours(communities, int(node), 1)) for node in found.train
    )
    # A partition for one hop lacks nodes of the second hop.
    assert cross_partition_accesses(workload, found, hops=2)[0] > 0
    node = int(found.train_nodes(2)[0])
    found.members[2, node // 64] ^= np.uint64(1 << (node % 64))
    assert cross_partition_accesses(workload, found)[0] >= 1


def test_a_partitioning_comes_back_from_its_file(
    tmp_path: Path, communities: Dataset
) -> None:
    found = partition_training_nodes(workload_of(communities), 3)
    found.save(tmp_path / "p.npz")
    again = Partitioning.load(tmp_path / "p.npz")
    assert again.hops == workload_of(communities).model.layers
    for partition in range(3):
        assert again.nodes(partition).tolist() == found.nodes(partition).tolist()
        assert (
            again.train_nodes(partition).tolist()
            == found.train_nodes(partition).tolist()
        )


def test_impossible_partitionings_are_refused(
    tmp_path: Path, communities: Dataset
) -> None:
    workload = workload_of(communities)
    with pytest.raises(InputError, match="partitions"):
        partition_training_nodes(workload, 0)
    needed = plan_bytes(communities.num_nodes, 4, 2)
    with pytest.raises(BudgetError, match="4 bitsets"):
        partition_training_nodes(workload, 4, threads=2, budget_bytes=needed - 1)
    shutil.copytree(communities.path, tmp_path / "bad")
    bad = Dataset.open(tmp_path / "bad")
    with bad.file("indices").open("r+b") as file:
        file.seek(bad.data_offset("indices"))
        file.write(np.full(bad.num_edges, -1, dtype=np.int32).tobytes())
    with pytest.raises(DatasetError, match=r"indices\.npy"):
        partition_training_nodes(workload_of(bad), 4)
