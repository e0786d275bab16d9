"""PaGraph's studies of a small graph agree with counting by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.settings import strict
from harness.studies.accesses import cumulative
from harness.studies.base import StudyContext, StudyNeed, resolve_study
from harness.studies.partition_quality import hit_ratio
from tests.support import make_tiny
from workloads.errors import InputError
from workloads.sampling.make import make_sampler, make_seed_plan

SETTINGS: dict[str, Any] = {"dataset": "tiny", "fanout": [2, 2], "batch_size": 50}


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> StudyContext:
    root = tmp_path_factory.mktemp("studies")
    make_tiny(root / "tiny", nodes=3000, edges=30000, dim=4)
    scratch = root / "scratch"
    scratch.mkdir()
    return StudyContext(root, root / "results", scratch)


def run(context: StudyContext, name: str, **params: Any) -> dict[str, Any]:
    study, checked = resolve_study(StudyNeed(name, {**SETTINGS, **params}))
    return study.run(checked, context)


def accesses(context: StudyContext, **params: Any) -> np.ndarray:
    """Count the reads of each node's row in a plain loop."""
    _, checked = resolve_study(StudyNeed("access-frequency", {**SETTINGS, **params}))
    workload = context.workload(checked)
    counts = np.zeros(workload.dataset.num_nodes, dtype=np.int64)
    for epoch in range(checked.epochs):
        for index, seeds in enumerate(make_seed_plan(workload).batches(epoch)):
            for node in (
                make_sampler(workload).sample(epoch, index, seeds).nodes.tolist()
            ):
                counts[node] += 1
    return counts


@pytest.mark.parametrize(
    "params",
    [{}, {"sampler": "layerwise", "fanout": [40, 40]}, {"epochs": 2, "max_batches": 3}],
)
def test_frequency_is_what_a_plain_loop_counts(
    context: StudyContext, params: dict[str, Any]
) -> None:
    found = run(context, "access-frequency", **params)
    counts = accesses(context, **params)
    assert found["accesses"] == counts.sum()
    assert found["most"] == counts.max()
    assert found["repeated"] == pytest.approx((counts > 1).mean())
    assert found["visited"] == pytest.approx((counts > 0).mean())
    for times, share in found["cdf"]:
        assert share == pytest.approx((counts[counts > 0] <= times).mean())
    assert found["cdf"][-1] == [int(counts.max()), 1.0]


def test_rows_read_often_have_more_out_edges(context: StudyContext) -> None:
    found = run(context, "access-frequency")
    assert found["out_degree_repeated"] > found["out_degree_others"]


def test_a_long_tail_is_thinned_and_keeps_its_ends() -> None:
    counts = np.arange(5000)
    points = cumulative(counts)
    assert len(points) <= 200
    assert points[0][0] == 1
    assert points[-1] == [4999, 1.0]
    assert all(share == pytest.approx(times / 4999) for times, share in points)
    assert cumulative(np.zeros(5, dtype=np.int64)) == []


def test_hit_ratio_is_the_share_of_accesses_to_cached_rows(
    context: StudyContext,
) -> None:
    shares = [0.0, 0.1, 0.5, 1.0]
    found = run(context, "device-cache-hits", shares=shares)
    counts = accesses(context)
    best = np.sort(counts)[::-1]
    for share, ratio in zip(shares, found["hit_ratio"]["optimal"], strict=True):
        assert ratio == pytest.approx(
            best[: round(share * len(counts))].sum() / counts.sum()
        )
    for name in ("PaGraph", "AliGraph", "random"):
        ratios = found["hit_ratio"][name]
        assert ratios[0] == 0.0
        assert ratios[-1] == pytest.approx(1.0)
        assert all(
            ratio <= most + 1e-9
            for ratio, most in zip(ratios, found["hit_ratio"]["optimal"], strict=True)
        )
    # On a skewed graph out-degree predicts accesses; a random choice does not.
    assert found["hit_ratio"]["PaGraph"][1] > 1.5 * found["hit_ratio"]["random"][1]


def test_a_share_above_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"shares.*less than or equal to 1"):
        resolve_study(StudyNeed("device-cache-hits", {**SETTINGS, "shares": [1.5]}))


def test_partitions_hold_what_they_state_and_one_is_the_whole(
    context: StudyContext,
) -> None:
    from systems.engine.rank.partition import partition_training_nodes

    found = run(context, "partition-quality", partitions=[1, 3], cached_share=0.1)
    one, three = found["partitions"]
    study, checked = resolve_study(StudyNeed("partition-quality", SETTINGS))
    parts = partition_training_nodes(context.workload(checked), 3)
    assert three["share"] == pytest.approx(parts.sizes.mean() / 3000)
    reached = len(set().union(*(parts.nodes(k).tolist() for k in range(3))))
    assert three["redundant"] == pytest.approx(
        parts.sizes.mean() / 3000 - reached / 3 / 3000
    )
    assert three["replication"] == pytest.approx(parts.sizes.sum() / reached)
    assert one["redundant"] == pytest.approx(0.0)
    assert one["replication"] == 1.0
    assert min(one["seconds"], three["seconds"]) > 0
    assert study.seconds(checked) > 0


def test_a_device_that_caches_its_partition_hits_more_than_one_that_caches_for_all(
    context: StudyContext,
) -> None:
    make_tiny(context.data_root / "sparse", nodes=20_000, edges=40_000, dim=1)
    found = run(
        context,
        "partition-quality",
        dataset="sparse",
        partitions=[4],
        cached_share=0.05,
    )
    entry = found["partitions"][0]
    assert entry["hit_ratio"] > entry["hit_ratio_shared"]


def test_hits_of_all_devices_are_counted_together(context: StudyContext) -> None:
    _, checked = resolve_study(StudyNeed("access-frequency", SETTINGS))
    workload = context.workload(checked)
    nodes = np.arange(workload.dataset.num_nodes)
    assert hit_ratio(workload, 1, 2, nodes, len(nodes), None) == pytest.approx(1.0)
    assert hit_ratio(workload, 1, 2, nodes, 0, None) == pytest.approx(0.0)


def test_facts_are_the_manifests(context: StudyContext) -> None:
    study, checked = resolve_study(StudyNeed("dataset-facts", {"dataset": "tiny"}))
    found = study.run(checked, context)
    dataset = context.dataset("tiny")
    assert (found["num_nodes"], found["num_edges"], found["dim"]) == (3000, 30000, 4)
    assert found["feature_bytes"] == 3000 * 4 * 4
    assert found["total_bytes"] == sum(
        file.stat().st_size for file in Path(dataset.path).glob("*.npy")
    )
    assert found["train_share"] == pytest.approx(len(dataset.load("train")) / 3000)
    assert strict(study.params, {"dataset": "tiny"}, "") == checked
