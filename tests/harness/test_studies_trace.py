"""Studies of traces agree with the mini-batches: miss ratios, coverage, requested
pages, expansions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.records.study import StudyRecord
from harness.studies.accesses import (
    MEASURED,
    PAGE_BYTES,
    POLICIES,
    SCORES,
    covered,
    list_pages,
    read_ratios,
    row_pages,
)
from harness.studies.base import StudyNeed, make_study
from workloads.dataset import Dataset
from workloads.errors import InputError
from workloads.making.make import MakeSpec, make_dataset
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import ModelSpec, SamplerSpec, Workload

SMALL = {"dataset": "tiny", "fanout": [4, 4], "batch_size": 10, "epochs": 2}


def made(study: str, dataset: Dataset, results: Path, **params: Any) -> StudyRecord:
    """Make a study of the tiny dataset."""
    need = StudyNeed(
        study,
        {**({} if study == "expansion" else SMALL), "dataset": dataset.name, **params},
    )
    return make_study(need, dataset.path.parent, results)


def batches(dataset: Dataset) -> list[tuple[int, int, Any]]:
    """Sample (epoch, index, mini-batch) of the workload in `SMALL` directly."""
    spec = SamplerSpec(fanout=(4, 4), batch_size=10)
    workload = Workload(dataset, spec, ModelSpec(layers=2))
    sampler = make_sampler(workload)
    plan = make_seed_plan(workload)
    return [
        (k, i, sampler.sample(k, i, seeds))
        for k in range(2)
        for i, seeds in enumerate(plan.batches(k))
    ]


@pytest.fixture(scope="module")
def misses(
    tiny_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    return made("miss-ratios", tiny_dataset, tmp_path_factory.mktemp("misses")).result


@pytest.fixture(scope="module")
def coverage(
    tiny_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    return made(
        "access-coverage", tiny_dataset, tmp_path_factory.mktemp("coverage")
    ).result


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "belady"])
def test_belady_never_reads_more_than_another_policy(
    policy: str, misses: dict[str, Any]
) -> None:
    best = read_ratios(misses, "belady")
    other = read_ratios(misses, policy)
    assert len(best) == len(misses["shares"])
    assert all(least <= more + 1e-12 for least, more in zip(best, other, strict=True))
    assert best != other  # on a trace of repeated rows the two differ at some size


@pytest.mark.parametrize("policy", ["belady", "lru", "degree"])
def test_a_larger_cache_of_a_stack_policy_misses_no_more(
    policy: str, misses: dict[str, Any]
) -> None:
    # FIFO, CLOCK and their kin may miss more in a larger cache; these three never do.
    found = next(
        entry["misses"] for entry in misses["policies"] if entry["policy"] == policy
    )
    assert all(later <= earlier for earlier, later in pairwise(found))
    assert found[-1] < found[0]


def test_the_trace_is_the_workloads(
    tiny_dataset: Dataset, misses: dict[str, Any], coverage: dict[str, Any]
) -> None:
    sampled = [batch.nodes for _, _, batch in batches(tiny_dataset)]
    for result in (misses, coverage):
        assert result["batches"] == len(sampled)
        assert result["accesses"] == sum(map(len, sampled))
        assert result["unique_rows"] == len(np.unique(np.concatenate(sampled)))


def test_no_cache_reads_less_than_each_row_once(misses: dict[str, Any]) -> None:
    least = misses["unique_rows"] / misses["accesses"]
    for policy in POLICIES:
        if policy != "degree":
            assert min(read_ratios(misses, policy)) >= least - 1e-12


@pytest.mark.parametrize("score", [*SCORES, MEASURED])
def test_coverage_rises_with_the_share_of_rows_to_all(
    score: str, coverage: dict[str, Any]
) -> None:
    shares = coverage["coverage"][score]
    assert all(later >= earlier for earlier, later in pairwise(shares))
    assert shares[-1] == pytest.approx(1.0)
    assert shares[0] < 1.0


@pytest.mark.parametrize("score", SCORES)
def test_no_score_covers_more_than_the_accesses_themselves(
    score: str, coverage: dict[str, Any]
) -> None:
    known = coverage["coverage"][score]
    best = coverage["coverage"][MEASURED]
    assert all(share <= most + 1e-12 for share, most in zip(known, best, strict=True))
    # A random score would cover the same share of accesses as of rows.
    at = coverage["shares"].index(0.1)
    assert known[at] > 0.15


def test_covered_counts_the_first_rows() -> None:
    assert covered(np.array([6, 3, 1, 0]), [0.25, 0.5, 0.75, 1.0]) == [
        0.6,
        0.9,
        1.0,
        1.0,
    ]


def test_pages_asked_for_are_those_of_rows_and_lists(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    result = made("page-accesses", tiny_dataset, tmp_path).result
    indptr = tiny_dataset.load("indptr")
    row_bytes = tiny_dataset.dim * 4
    item = tiny_dataset.index_dtype.itemsize
    sampled = batches(tiny_dataset)
    assert list(zip(result["epoch"], result["batch"], strict=True)) == [
        (k, i) for k, i, _ in sampled
    ]
    for at, (_, _, batch) in enumerate(sampled[:6]):
        rows = sum(
            (node + 1) * row_bytes - 1 - node * row_bytes // 4096 * 4096 >= 4096
            for node in batch.nodes.tolist()
        )
        assert result["feature_pages"][at] == batch.num_nodes + rows
        pages = 0
        for block in batch.blocks:
            for node, draws in zip(
                batch.nodes[: block.num_dst].tolist(),
                np.diff(block.indptr).tolist(),
                strict=True,
            ):
                touched = {
                    byte // PAGE_BYTES
                    for byte in range(indptr[node] * item, indptr[node + 1] * item)
                }
                pages += min(len(touched), draws)
        assert result["topology_pages"][at] == pages


def test_a_row_that_spans_two_pages_asks_for_both() -> None:
    nodes = np.array([0, 1, 2, 3], dtype=np.int64)
    assert row_pages(nodes, 4096) == 4
    # 3 KiB rows: bytes 0-3071, 3072-6143 (two pages), 6144-9215 (two pages),
    # 9216-12287.
    assert row_pages(nodes, 3072) == 6


def test_a_long_list_asks_for_no_more_pages_than_draws() -> None:
    indptr = np.array([0, 5000, 5000, 5010], dtype=np.int64)
    assert list_pages(indptr, np.array([0, 1, 2]), np.array([3, 0, 10]), 4) == 3 + 0 + 1
    assert list_pages(indptr, np.array([0]), np.array([100]), 4) == 5


def test_an_expansion_is_reported_beside_its_base(tmp_path: Path) -> None:
    make_dataset(
        tmp_path / "data" / "grown",
        MakeSpec("fractal", nodes=1200, edges=9000, dim=4, classes=3, seed=2),
    )
    result = make_study(
        StudyNeed("expansion", {"dataset": "grown"}), tmp_path / "data", tmp_path
    ).result
    dataset = Dataset.open(tmp_path / "data" / "grown")
    assert result["kind"] == "fractal"
    assert result["num_nodes"] == dataset.num_nodes
    assert result["num_edges"] == dataset.num_edges
    assert result["copies"] == pytest.approx(
        dataset.num_nodes / result["base"]["num_nodes"]
    )
    on_disk = sum(path.stat().st_size for path in dataset.path.glob("*.npy"))
    assert result["total_bytes"] == on_disk
    assert 0 < result["result"]["top1_degree_share"] < 1


@pytest.mark.parametrize(
    ("study", "params", "message"),
    [
        ("miss-ratios", {"policies": ["lru", "magic"]}, "magic"),
        ("miss-ratios", {"shares": [0.1, 1.5]}, "less than or equal to 1"),
        ("miss-ratios", {"shares": []}, "shares"),
        ("access-coverage", {"shares": [0.0]}, "greater than 0"),
        ("access-coverage", {"scores": ["beauty"]}, "beauty"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(
    study: str,
    params: dict[str, Any],
    message: str,
    tiny_dataset: Dataset,
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match=message):
        made(study, tiny_dataset, tmp_path, **params)


def test_the_same_parameters_give_the_same_result(
    tiny_dataset: Dataset,
    tmp_path: Path,
    misses: dict[str, Any],
    coverage: dict[str, Any],
) -> None:
    assert made("miss-ratios", tiny_dataset, tmp_path / "a").result == misses
    assert made("access-coverage", tiny_dataset, tmp_path / "b").result == coverage
