"""Claims: every published row is judged from records alone, and the verdict follows from the numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.claims import judge_all, judge_one
from harness.claims.explain import explain, measured_text
from harness.claims.judge import verdict_of
from harness.claims.measured import ratio
from harness.claims.published import Claim, claims, find_claim
from harness.claims.query import queries
from harness.cli import build_app
from harness.figures.base import catalogue
from harness.figures.evidence import load_evidence
from tests.harness.records import make_record, save
from workloads.errors import InputError


def row(value: str, unit: str = "x", tolerance: str = "factor 2", metric: str = "epoch_time_ratio") -> Claim:
    """A published row with this value."""
    return Claim("t-01", "paper", "here", "a claim", metric, "a", "b", "anything", value, unit, tolerance)


def fill(root: Path, pyg: float = 40.0, gnndrive: float = 10.0) -> None:
    """Five measured epochs of three systems in one setting."""
    for noise in (1.0, 1.01, 1.02, 1.03, 1.04):
        save(root, make_record("pyg+", [pyg * noise]))
        save(root, make_record("gnndrive", [gnndrive * noise]))
    save(root, make_record("ginex", [], status="oom"))


def test_every_published_claim_has_a_query_and_a_figure_of_the_catalogue() -> None:
    known = catalogue()
    assert set(queries()) == set(claims())
    assert {query.figure for query in queries().values()} <= set(known)


def test_every_published_value_and_tolerance_is_understood() -> None:
    for claim in claims().values():
        if claim.tolerance != "direction":
            assert claim.numbers, claim.id
            assert claim.factor is not None or claim.points is not None, claim.id


def test_without_records_nothing_is_judged_and_each_says_why(tmp_path: Path) -> None:
    found = judge_all(load_evidence(tmp_path))
    assert [judged.id for judged in found] == list(claims())
    assert {judged.verdict for judged in found} == {"not run"}
    assert all(len(judged.reason) > 10 for judged in found)


@pytest.mark.parametrize(
    ("claim", "values", "verdict"),
    [
        (row("4.0"), [3.0], "reproduced"),
        (row("4.0"), [1.5], "direction only"),
        (row("4.0"), [9.0], "direction only"),
        (row("4.0"), [0.9], "not reproduced"),
        (row("1.0"), [0.7], "reproduced"),
        (row("1.0"), [2.5], "direction only"),
        (row("5", "x or more"), [50.0], "reproduced"),
        (row("5", "x or more"), [2.0], "direction only"),
        (row("1.0", "x or less"), [0.1], "reproduced"),
        (row("1.23 / 1.47"), [1.2, 1.5], "reproduced"),
        (row("1.23 / 1.47"), [0.9, 1.5], "not reproduced"),
        (row("580 / 205 / 76.3", "s", "ratios within factor 2", "epoch_time"), [60.0, 25.0, 8.0], "reproduced"),
        (row("580 / 205 / 76.3", "s", "ratios within factor 2", "epoch_time"), [60.0, 50.0, 8.0], "direction only"),
        (row("580 / 205 / 76.3", "s", "ratios within factor 2", "epoch_time"), [8.0, 25.0, 60.0], "not reproduced"),
        (row("85–90", "%", "10 points", "miss_ratio"), [77.0], "reproduced"),
        (row("85–90", "%", "10 points", "miss_ratio"), [70.0], "direction only"),
        (row("85–90", "%", "10 points", "miss_ratio"), [30.0], "not reproduced"),
        (row("10", "% or less", "10 points", "stage_share"), [3.0], "reproduced"),
        (row("10", "% or less", "10 points", "stage_share"), [30.0], "direction only"),
        (row("10", "% or less", "10 points", "stage_overhead"), [-2.0], "reproduced"),
        (row("35", "% or more", "10 points", "access_share"), [80.0], "reproduced"),
        (row("31", "s", "ratios within factor 2", "reorder_time"), [40.0], "reproduced"),
        (row("31", "s", "ratios within factor 2", "reorder_time"), [400.0], "not reproduced"),
        (row("87 / 95", "%", "10 points", "traffic_reduction"), [80.0], "reproduced"),
        (row("10", "% or less", "10 points", "stage_overhead"), [-2.0], "reproduced"),
        (row("35", "% or more", "10 points", "access_share"), [80.0], "reproduced"),
        (row("31", "s", "ratios within factor 2", "reorder_time"), [40.0], "reproduced"),
        (row("31", "s", "ratios within factor 2", "reorder_time"), [400.0], "not reproduced"),
        (row("87 / 95", "%", "10 points", "traffic_reduction"), [-1.0], "not reproduced"),
        (row("0", "points", "0.5 points", "accuracy_difference"), [-0.4], "reproduced"),
        (row("0", "points", "0.5 points", "accuracy_difference"), [-0.6], "direction only"),
        (row("1.9", "points", "0.5 points", "accuracy_difference"), [-0.6], "not reproduced"),
    ],
)
def test_the_verdict_follows_from_direction_and_tolerance(claim: Claim, values: list[float], verdict: str) -> None:
    assert verdict_of(claim, values) == verdict


def test_a_claim_of_direction_is_what_holds() -> None:
    assert verdict_of(row("<", "", "direction"), [], holds=True) == "reproduced"
    assert verdict_of(row("<", "", "direction"), [], holds=False) == "not reproduced"


def test_a_ratio_has_a_range_below_five_samples_and_a_bootstrap_interval_from_five_on() -> None:
    few, many = ratio([4.0, 6.0], [1.0, 2.0]), ratio([4.0] * 5, [2.0] * 5)
    assert (few.kind, few.low, few.high) == ("range", 2.0, 6.0)
    assert (many.kind, many.value, many.low, many.high) == ("bootstrap95", 2.0, 2.0, 2.0)


def test_altered_records_change_the_verdict(tmp_path: Path) -> None:
    verdicts = {}
    for name, pyg in (("as published", 160.0), ("less", 30.0), ("turned", 5.0)):
        fill(tmp_path / name, pyg=pyg)
        verdicts[name] = judge_one("gd-01", load_evidence(tmp_path / name)).verdict
    assert verdicts == {"as published": "reproduced", "less": "direction only", "turned": "not reproduced"}


def test_the_ratio_is_of_comparable_runs_only(tmp_path: Path) -> None:
    fill(tmp_path)
    save(tmp_path, make_record("gnndrive", [1.0], batch_size=999))
    save(tmp_path, make_record("pyg+", [9999.0], verdict="INVALID"))
    judged = judge_one("gd-01", load_evidence(tmp_path))
    assert judged.measured == pytest.approx(4.0)
    assert judged.interval_kind == "bootstrap95"
    assert judged.found is not None and len(judged.found.runs) == 10


def test_an_ablation_never_stands_for_the_system(tmp_path: Path) -> None:
    fill(tmp_path)
    for _ in range(3):
        save(tmp_path, make_record("gnndrive", [100.0], options={"merge": False}))
    assert judge_one("gd-01", load_evidence(tmp_path)).measured == pytest.approx(4.0)


def test_a_system_out_of_memory_is_the_reason(tmp_path: Path) -> None:
    fill(tmp_path)
    judged = judge_one("gd-02", load_evidence(tmp_path))
    assert judged.verdict == "not run"
    assert "ginex ended as oom" in judged.reason


def test_an_explanation_shows_runs_stages_and_what_differs(tmp_path: Path) -> None:
    fill(tmp_path)
    judged = judge_one("gd-01", load_evidence(tmp_path))
    text = "\n".join(explain(judged))
    assert "paper: 16.9 x" in text
    assert "4 [" in measured_text(judged)
    assert "MiB in" in text
    assert "EMULATED" in text
    assert "aws-nvme/16" in text
    assert judged.found is not None and judged.found.runs[0] in text


def test_an_unknown_claim_names_the_nearest() -> None:
    with pytest.raises(InputError, match="gd-01"):
        find_claim("gd-001")


def test_the_command_prints_every_claim_as_json_and_one_explained(tmp_path: Path) -> None:
    fill(tmp_path)
    runner, root = CliRunner(), ["--results-root", str(tmp_path)]
    done = runner.invoke(build_app(), ["claims", "--json", *root])
    found = {entry["id"]: entry for entry in json.loads(done.stdout)["claims"]}
    assert list(found) == list(claims())
    assert found["gd-01"]["measured"] == pytest.approx(4.0)
    assert {"id", "verdict", "paper_value", "measured", "interval", "interval_kind", "reason"} <= set(found["gd-01"])
    explained = runner.invoke(build_app(), ["claims", "--explain", "gd-01", *root])
    assert "GNNDrive is faster than PyG+" in explained.stdout
    assert runner.invoke(build_app(), ["claims", "--paper", "gnndrve", *root]).exit_code != 0


def test_catching_up_is_judged_only_where_a_budget_holds_the_features(tmp_path: Path) -> None:
    def save_pair(cap: int, pyg: float) -> None:
        for system, seconds in (("pyg+", pyg), ("gnndrive", 10.0)):
            record = make_record(system, [seconds], memory=f"+{cap}")
            save(tmp_path, record.model_copy(update={"memory": record.memory.model_copy(update={"budget_bytes": cap})}))

    config = make_record("pyg+", [1.0]).config.dataset
    features = config.num_nodes * config.dim * 4
    save_pair(features // 2, 30.0)
    judged = judge_one("gd-19", load_evidence(tmp_path))
    assert judged.verdict == "not run" and "50 %" in judged.reason
    save_pair(features, 11.0)
    assert judge_one("gd-19", load_evidence(tmp_path)).verdict == "reproduced"
