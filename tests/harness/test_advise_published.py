"""Advice from published statistics: the implied graph has the published degrees, skew
and sizes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.advise.implied import ImpliedGraph
from harness.advise.published import GRAPHS, advise_published, make_holes, published
from harness.drives.whatif import device_of
from harness.settings import RunSettings
from tests.harness.run_tools import outcore_here
from workloads.errors import InputError

SMALL = replace(GRAPHS["papers100m"], num_nodes=1_000_003, num_edges=1_000_003 * 30)
FANOUT = (10, 10)
BATCH = 50


@pytest.fixture(scope="module")
def graph() -> ImpliedGraph:
    made = ImpliedGraph(
        SMALL.num_nodes, SMALL.num_edges, SMALL.accesses, FANOUT, seed=3
    )
    made.fit(BATCH)
    return made


def epoch(graph: ImpliedGraph, batches: int) -> list[np.ndarray]:
    ids = np.random.default_rng(0).permutation(SMALL.num_nodes)
    return [
        graph.sample(0, k, ids[BATCH * k : BATCH * (k + 1)]).nodes
        for k in range(batches)
    ]


def test_lists_follow_each_other_and_have_the_mean_length(graph: ImpliedGraph) -> None:
    begins = graph.indptr[np.arange(SMALL.num_nodes + 1)]
    assert begins[0] == 0
    assert (np.diff(begins) >= 0).all()
    assert begins[-1] <= SMALL.num_edges
    assert begins[-1] == pytest.approx(SMALL.num_edges, rel=1e-3)
    degrees = np.diff(begins)
    assert 0.7 < degrees.std() / degrees.mean() < 1.2  # about exponential


def skew(
    nodes: list[np.ndarray], num_nodes: int, ranks: list[float]
) -> list[tuple[float, float]]:
    """Return (share of nodes, share of accesses) at `ranks` over mini-batches' unique
    nodes, as DiskGNN's Table 3."""
    counts = np.zeros(num_nodes, dtype=np.int64)
    for part in nodes:
        counts[part] += 1
    cumulative = np.cumsum(np.sort(counts)[::-1])
    return [
        (rank, float(cumulative[max(1, round(rank * num_nodes)) - 1] / cumulative[-1]))
        for rank in ranks
    ]


def test_accesses_have_the_published_skew(graph: ImpliedGraph) -> None:
    found = skew(
        epoch(graph, 400), SMALL.num_nodes, [share for share, _ in SMALL.accesses]
    )
    for (rank, share), (_, wanted) in zip(found, SMALL.accesses, strict=True):
        assert share == pytest.approx(wanted, abs=0.04), rank


def test_a_mini_batch_is_a_mini_batch_and_the_same_every_time(
    graph: ImpliedGraph,
) -> None:
    seeds = np.arange(BATCH, dtype=np.int64)
    batch, again, other = (
        graph.sample(*where, seeds) for where in ((0, 1), (0, 1), (1, 1))
    )
    assert np.array_equal(batch.nodes, again.nodes)
    assert not np.array_equal(batch.nodes, other.nodes)
    assert len(np.unique(batch.nodes)) == batch.num_nodes
    assert np.array_equal(batch.nodes[:BATCH], seeds)
    assert batch.blocks[-1].num_dst == BATCH
    assert batch.blocks[0].num_src == batch.num_nodes
    for block in batch.blocks:
        assert np.diff(block.indptr).max() <= 10
        assert int(block.indices.max()) < block.num_src
        assert len(block.indptr) == block.num_dst + 1
        assert block.indptr[-1] == block.num_edges
    degrees = graph.indptr[seeds + 1] - graph.indptr[seeds]
    assert np.array_equal(np.diff(batch.blocks[-1].indptr), np.minimum(degrees, 10))


def test_outlines_have_the_full_size_and_take_no_room(tmp_path: Path) -> None:
    dataset = make_holes(
        tmp_path / "igb", GRAPHS["igb260m"], np.arange(100, dtype=np.int64)
    )
    assert dataset.feature_bytes == 269_000_000 * 4096
    assert sum(512 * file.stat().st_blocks for file in dataset.path.iterdir()) < 1 << 20
    assert dataset.load("train").tolist() == list(range(100))


def test_published_accesses_rise_to_all_of_them() -> None:
    for entry in GRAPHS.values():
        ranks, shares = zip(*entry.accesses, strict=True)
        assert ranks == tuple(sorted(ranks))
        assert shares == tuple(sorted(shares))
        assert (ranks[-1], shares[-1]) == (1, 1)


def test_systems_are_ranked_for_a_graph_of_which_only_statistics_are_known() -> None:
    settings = RunSettings(
        memory="0.1x",
        fanout=list(FANOUT),
        batch_size=BATCH,
        hidden=16,
        device="emulated:null",
        device_memory="64MiB",
        warmup=0,
        epochs=1,
    )
    profile = device_of("aws-nvme", Path("nowhere")).profile
    found, host = advise_published(
        SMALL, settings, profile, epochs=10, batches=5, cores=2
    )
    assert host == round(0.1 * SMALL.num_nodes * 512)
    ranked = {entry.system: entry for entry in found.ranked}
    assert {"ginex", "gnndrive", "diskgnn", "outcore", "ali+pg"} <= ranked.keys()
    assert found.trace.num_batches == math.ceil(
        round(SMALL.train_share * SMALL.num_nodes) / BATCH
    )
    # A tenth of the rows in memory serves most accesses, according to the published
    # skew.
    rows = found.trace.rows
    assert (
        ranked["ginex"].reads[512] < 0.35 * rows < ranked["gnndrive"].reads[512] <= rows
    )
    less, _ = advise_published(
        SMALL,
        settings.model_copy(update={"memory": "0.05x"}),
        profile,
        epochs=10,
        batches=5,
        cores=2,
        systems=["ginex"],
    )
    assert less.ranked[0].reads[512] > ranked["ginex"].reads[512]


def test_what_cannot_be_predicted_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no statistics of 'reddit'"):
        published("reddit")
    profile = device_of("aws-nvme", tmp_path).profile
    with pytest.raises(InputError, match="no budget for data"):
        advise_published(
            SMALL, RunSettings(memory="8GiB"), profile, epochs=1, batches=1, cores=1
        )
    for arguments, message in (
        (["papers100m", "--published", "--memory", "0.1x"], "--drive"),
        (["papers100m", "--memory", "0.1x", "--dim", "64"], "--dim is for --published"),
        (
            ["nothing", "--published", "--memory", "0.1x", "--drive", "aws-nvme"],
            "known: friendster",
        ),
    ):
        done = outcore_here(
            "advise", *arguments, "--json", data=tmp_path, results=tmp_path
        )
        assert done.returncode == 2
        error = json.loads(done.stdout)["error"]
        assert message in error["message"] + (error.get("fix") or "")
