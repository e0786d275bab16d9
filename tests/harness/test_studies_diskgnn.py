"""DiskGNN's studies agree with its planner, and change with their inputs as theory
predicts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.studies.base import StudyNeed, make_study
from workloads.dataset import Dataset
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import ModelSpec, SamplerSpec, Workload

SMALL: dict[str, Any] = {"fanout": [4, 4], "batch_size": 10}
ROW = 512


def made(study: str, dataset: Dataset, folder: Path, **params: Any) -> dict[str, Any]:
    width = {} if study == "access-share" else {"row_bytes": ROW}
    need = StudyNeed(study, {**SMALL, **width, "dataset": dataset.name, **params})
    return make_study(need, dataset.path.parent, folder).result


def node_lists(dataset: Dataset) -> list[np.ndarray]:
    """Sample the first epoch's mini-batches directly and return their nodes."""
    workload = Workload(
        dataset, SamplerSpec(fanout=(4, 4), batch_size=10), ModelSpec(layers=2)
    )
    sampler = make_sampler(workload)
    plan = make_seed_plan(workload)
    return [
        sampler.sample(0, index, seeds).nodes
        for index, seeds in enumerate(plan.batches(0))
    ]


def test_shares_are_of_the_accesses_that_the_mini_batches_make(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    lists = node_lists(tiny_dataset)
    result = made("access-share", tiny_dataset, tmp_path, bounds=[0.05, 0.2])
    counts = np.sort(
        np.bincount(np.concatenate(lists), minlength=tiny_dataset.num_nodes)
    )[::-1]
    edges = [0, round(0.05 * len(counts)), round(0.2 * len(counts)), len(counts)]
    expected = [counts[low:high].sum() / counts.sum() for low, high in pairwise(edges)]
    assert result["shares"] == pytest.approx(expected)
    assert sum(result["shares"]) == pytest.approx(1.0)
    assert (result["batches"], result["accesses"]) == (len(lists), counts.sum())
    assert result["touched"] == pytest.approx((counts > 0).mean())


def test_a_wider_fan_out_touches_more(tiny_dataset: Dataset, tmp_path: Path) -> None:
    narrow = made("access-share", tiny_dataset, tmp_path, fanout=[2, 2])
    wide = made("access-share", tiny_dataset, tmp_path, fanout=[8, 8])
    assert wide["touched"] > narrow["touched"]
    assert wide["rows_per_batch"] > narrow["rows_per_batch"]


def test_packing_takes_a_row_for_each_access_that_memory_does_not_serve(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    shares = [0.0, 0.1, 0.3, 0.6, 1.0]
    lists = node_lists(tiny_dataset)
    points = made("disk-space", tiny_dataset, tmp_path, memory_shares=shares)["points"]
    counts = np.sort(
        np.bincount(np.concatenate(lists), minlength=tiny_dataset.num_nodes)
    )[::-1]
    for share, point in zip(shares, points, strict=True):
        assert point["packed_bytes"] == counts[round(share * len(counts)) :].sum() * ROW
        assert point["packed_x"] == pytest.approx(
            point["packed_bytes"] / (ROW * len(counts))
        )


def test_more_memory_never_takes_more_disk_and_disk_caches_never_more_than_packing(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    points = made(
        "disk-space", tiny_dataset, tmp_path, memory_shares=[0.0, 0.1, 0.2, 0.5, 1.0]
    )["points"]
    for less, more in pairwise(points):
        assert more["packed_bytes"] <= less["packed_bytes"]
        assert more["least_bytes"] <= less["least_bytes"]
    assert all(point["least_bytes"] <= point["packed_bytes"] for point in points)
    assert points[0]["least_bytes"] < points[0]["packed_bytes"]
    assert points[-1]["packed_bytes"] == 0


def test_the_least_space_is_each_row_once(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    point = made("disk-space", tiny_dataset, tmp_path, memory_shares=[0.0])["points"][0]
    assert (
        point["least_bytes"]
        == len(np.unique(np.concatenate(node_lists(tiny_dataset)))) * ROW
    )


def test_a_third_hop_takes_more_disk(tiny_dataset: Dataset, tmp_path: Path) -> None:
    two, three = (
        made("disk-space", tiny_dataset, tmp_path, memory_shares=[0.1], fanout=fanout)[
            "points"
        ][0]["packed_x"]
        for fanout in ([3, 3], [3, 3, 3])
    )
    assert three > two


@pytest.fixture(scope="module")
def layouts(
    tiny_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[int, bool], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("amplification")
    result = made(
        "amplification", tiny_dataset, folder, segments=[4, 10], memory_share=0.02
    )
    assert {layout["segment"] for layout in result["layouts"]} == {
        result["batches"],
        4,
        10,
    }
    return {
        (layout["segment"], layout["reordered"]): layout for layout in result["layouts"]
    }


def test_reordering_reads_less_and_stores_the_same(
    layouts: dict[tuple[int, bool], dict[str, Any]],
) -> None:
    for segment in {segment for segment, _ in layouts}:
        plain = layouts[segment, False]
        reordered = layouts[segment, True]
        assert reordered["disk_bytes"] == plain["disk_bytes"]
        assert reordered["useful_bytes"] == plain["useful_bytes"]
        assert reordered["read_bytes"] < plain["read_bytes"]


def test_shorter_segments_read_less_and_store_more(
    layouts: dict[tuple[int, bool], dict[str, Any]],
) -> None:
    lengths = sorted({segment for segment, _ in layouts})
    for shorter, longer in pairwise(lengths):
        assert (
            layouts[shorter, True]["read_bytes"] < layouts[longer, True]["read_bytes"]
        )
        assert (
            layouts[shorter, True]["disk_bytes"] > layouts[longer, True]["disk_bytes"]
        )


def test_every_mini_batch_is_held_against_one_cache_in_the_order_of_ids(
    layouts: dict[tuple[int, bool], dict[str, Any]],
) -> None:
    whole = max(segment for segment, _ in layouts)
    assert set(layouts[whole, False]["reduction"]) == {0.0}
    assert max(layouts[4, True]["reduction"]) > 0.0
    for layout in layouts.values():
        assert layout["reduction"] == sorted(layout["reduction"])
        assert layout["amplification"] >= 1.0
        assert layout["amplification"] == pytest.approx(
            layout["read_bytes"] / layout["useful_bytes"]
        )


def test_reads_of_a_row_are_not_amplified(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    finest = made(
        "amplification", tiny_dataset, tmp_path, segments=[10], granularity=512
    )["layouts"]
    assert all(layout["cache_amplification"] == pytest.approx(1.0) for layout in finest)


def test_the_searches_keep_the_limit_and_brute_force_reads_no_more(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    cases = made(
        "packing-search",
        tiny_dataset,
        tmp_path,
        memory_share=0.02,
        limits=[0.5, 0.8, 1.0],
    )["cases"]
    for case in cases:
        quick = case["heuristic"]
        brute = case["brute_force"]
        assert max(quick["disk_bytes"], brute["disk_bytes"]) <= case["limit_bytes"]
        assert brute["amplification"] <= quick["amplification"]
        assert min(brute["seconds"], quick["seconds"]) > 0
    # With room for everything all is packed; with less room, segments are longer and
    # reads larger.
    assert cases[-1]["heuristic"]["segment"] == 1
    for tighter, wider in pairwise(cases):
        assert tighter["heuristic"]["segment"] >= wider["heuristic"]["segment"]
        assert (
            tighter["heuristic"]["amplification"] >= wider["heuristic"]["amplification"]
        )


def test_a_limit_below_each_row_once_has_no_layout(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    (case,) = made(
        "packing-search", tiny_dataset, tmp_path, memory_share=0.0, limits=[0.01]
    )["cases"]
    assert case["heuristic"] is None
    assert case["brute_force"] is None
