"""Loaders of several ranks: every node of an unshuffled split once between them, or a
warning of what is left out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systems.loading.shares import share_of, uneven_nodes
from tests.support import make_tiny
from tests.systems.loading_tools import leaves_nothing, make
from workloads.dataset import Dataset
from workloads.errors import InputError

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Make a graph of 110 nodes: 11 of them are of the test split."""
    return make_tiny(
        tmp_path_factory.mktemp("ranks") / "graph", nodes=110, edges=600, seed=3
    )


@pytest.fixture(autouse=True, scope="module")
def nothing_left(graph: Dataset) -> Iterator[None]:
    with leaves_nothing(graph):
        yield


def by_rank(
    graph: Dataset, world: int, **settings: Any
) -> tuple[list[list[list[int]]], list[str]]:
    """Return the seed nodes of each rank's mini-batches, and the warnings of all
    ranks."""
    found = []
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", UserWarning)
        for rank in range(world):
            with make(graph, rank=rank, world=world, **settings) as loader:
                batches = [batch.n_id[: batch.batch_size].tolist() for batch in loader]
                assert len(batches) == len(loader)
                found.append(batches)
    return found, [
        str(warning.message) for warning in raised if warning.category is UserWarning
    ]


def nodes_of(found: list[list[list[int]]]) -> list[int]:
    return sorted(node for batches in found for batch in batches for node in batch)


@pytest.mark.parametrize("world", [1, 2, 3, 5, 13])
@pytest.mark.parametrize("batch_size", [3, 100])
def test_every_test_node_is_handed_out_once_whatever_the_ranks(
    graph: Dataset, world: int, batch_size: int
) -> None:
    test = graph.load("test").tolist()
    assert len(test) == 11
    found, fault = by_rank(graph, world, split="test", batch_size=batch_size)
    assert nodes_of(found) == sorted(test)
    assert all(0 < len(batch) <= batch_size for batches in found for batch in batches)
    assert fault == []


@pytest.mark.parametrize("system", ["gnndrive", "diskgnn"])
def test_a_rank_without_nodes_is_an_empty_loader_of_any_system(
    graph: Dataset, system: str
) -> None:
    with make(
        graph, system=system, nodes=[4, 9], rank=0, world=3, memory="64MiB"
    ) as loader:
        assert len(loader) == 0
        assert list(loader) == []
        assert list(loader) == []
        assert loader.epoch == 2
        assert loader.counters()["rows"] == 0
        assert loader.chosen == {}
        assert loader.plan.total("host") <= 64 << 20
    found, _ = by_rank(graph, 3, system=system, nodes=[4, 9])
    assert nodes_of(found) == [4, 9]


def test_ranks_hand_out_the_neighbours_that_one_process_draws(graph: Dataset) -> None:
    """A rank's share does not change which neighbours a node draws."""

    def edges_of(rank: int, world: int, batch_size: int) -> set[tuple[int, int]]:
        with make(
            graph,
            split="test",
            rank=rank,
            world=world,
            batch_size=batch_size,
            fanout=[3],
        ) as loader:
            pairs = [batch.n_id[batch.edge_index].T.tolist() for batch in loader]
        return {(source, target) for batch in pairs for source, target in batch}

    assert edges_of(0, 2, 3) | edges_of(1, 2, 3) == edges_of(0, 1, 6)


def test_shuffled_ranks_have_equal_numbers_of_mini_batches_and_warn_of_nodes_left_out(
    graph: Dataset,
) -> None:
    found, fault = by_rank(graph, 3, nodes=range(11), shuffle=True, batch_size=3)
    assert [len(batches) for batches in found] == [1, 1, 1]
    (warning,) = fault
    assert warning.startswith("2 of 11 seed nodes are left out of each epoch")
    assert "shuffle=False" in warning
    assert len(nodes_of(found)) == 9
    _, fault = by_rank(graph, 3, nodes=range(12), shuffle=True, batch_size=3)
    assert fault == []


def test_ranks_with_unequal_numbers_of_mini_batches_are_a_warning_in_training(
    graph: Dataset,
) -> None:
    found, fault = by_rank(graph, 3, nodes=range(11), batch_size=3)
    assert sorted(len(batches) for batches in found) == [1, 2, 2]
    (warning,) = fault
    assert warning.startswith("1 of 3 ranks have one mini-batch fewer")
    assert "drop_last=True" in warning


@pytest.mark.parametrize("shuffle", [True, False])
def test_drop_last_gives_equal_numbers_without_a_warning(
    graph: Dataset, shuffle: bool
) -> None:
    found, fault = by_rank(
        graph, 3, nodes=range(11), batch_size=3, drop_last=True, shuffle=shuffle
    )
    assert [[len(batch) for batch in batches] for batches in found] == [[3], [3], [3]]
    assert fault == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"world": 0}, "world is 0; give the number of processes"),
        ({"rank": 3, "world": 3}, "rank is 3 of 3; give a rank from 0 to"),
        ({"rank": -1}, "rank is -1; give a whole number"),
        (
            {"world": 12, "shuffle": True},
            "11 training nodes for 12 rank.*use fewer ranks",
        ),
        (
            {"world": 12, "drop_last": True},
            "drop_last leaves nothing of 11 seed nodes.*lower batch_size or world",
        ),
    ],
)
def test_impossible_ranks_are_refused(
    graph: Dataset, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        make(graph, **{"nodes": range(11), **settings})


@given(
    num_nodes=st.integers(0, 200),
    batch_size=st.integers(1, 60),
    world=st.integers(1, 9),
    most=st.integers(0, 5),
)
def test_shares_are_a_partition_and_uneven_only_by_the_last_step(
    num_nodes: int, batch_size: int, world: int, most: int
) -> None:
    nodes = np.random.default_rng(num_nodes).permutation(1000)[:num_nodes]
    shares = [share_of(nodes, batch_size, rank, world) for rank in range(world)]
    assert sorted(np.concatenate(shares).tolist()) == sorted(nodes.tolist())
    counts = [-(-len(share) // batch_size) for share in shares]
    if most:
        counts = [min(count, most) for count in counts]
    assert max(counts) - min(counts) == (
        1 if uneven_nodes(num_nodes, batch_size, world, most) else 0
    )


@pytest.mark.slow("systems/loading", "examples", seconds=25)
def test_the_example_evaluates_all_test_nodes_in_three_processes(
    graph: Dataset,
) -> None:
    arguments = [
        "examples/train.py",
        str(graph.path),
        "--epochs",
        "1",
        "--batch-size",
        "3",
        "--memory",
        "64MiB",
    ]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    done = subprocess.run(
        [sys.executable, *torchrun, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": ".", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["test_nodes"] == 11
