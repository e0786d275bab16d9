"""Claims: every published row is judged from records of its declared setting; the
verdict follows from the number."""

from __future__ import annotations

import ast
import csv
import inspect
import json
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from harness.claims import judge_all, judge_one
from harness.claims.judge import explain, measured_text
from harness.claims.measured import Number
from harness.claims.published import (
    FILE,
    Claim,
    check,
    claims,
    distance,
    find_claim,
    verdict_of,
)
from harness.claims.registry import answers, claim
from harness.cli import build_app
from harness.compare.evidence import load_evidence
from harness.figures.base import catalogue
from harness.plan.experiment import load_experiment
from harness.settings import SharedSettings, check_options
from tests.harness.claim_records import MadeUp, profile
from tests.harness.records import make_record, save
from workloads.errors import InputError
from workloads.units import parse_bytes

MODEL = find_claim("gd-01")


def row(
    value: str,
    unit: str = "x",
    tolerance: str = "factor 2",
    bound: str = "",
    neutral: str | None = None,
) -> Claim:
    """Make a published row with this value."""
    natural = "1" if unit == "x" and bound not in ("above", "below") else ""
    return replace(
        MODEL,
        id="t-01",
        value=value,
        unit=unit,
        tolerance=tolerance,
        bound=bound,
        neutral=natural if neutral is None else neutral,
    )


def made(system: str, seconds: list[float], **config: Any) -> Any:
    """Make a record of a system's cell of the figure that judges `MODEL`."""
    planned = [cell for cell in MadeUp(profile()).cells(MODEL) if cell.system == system]
    # At dimension 128, and on the accelerator.
    (cell,) = [
        cell
        for cell in planned
        if (cell.settings.dataset, cell.settings.device) == ("kron-2m", "emulated:a10g")
    ]
    settings = cell.settings.model_dump(
        include={*SharedSettings.model_fields} - {"options"}
    )
    settings |= {
        "dataset": str(cell.settings.dataset),
        "layers": len(cell.settings.fanout),
    }
    settings["device_memory_bytes"] = parse_bytes(cell.settings.device_memory)
    options = check_options(
        system, {**cell.settings.options, **config.pop("options", {})}
    )
    return make_record(system, seconds, **{**settings, "options": options, **config})


def fill(root: Path, pyg: float = 40.0, gnndrive: float = 10.0) -> None:
    """Write five runs of pyg+ and gnndrive and an out-of-memory run of ginex, in the
    headline's setting."""
    for number, noise in enumerate((1.0, 1.01, 1.02, 1.03, 1.04)):
        pair = (
            made("pyg+", [pyg * noise], round=number),
            made("gnndrive", [gnndrive * noise], round=number),
        )
        save(root, *pair)
    save(root, made("ginex", [], status="oom"))


def test_every_claim_is_answered_by_a_function_or_states_why_no_run_can() -> None:
    known = claims()
    assert set(answers()) == {claim.id for claim in known.values() if not claim.not_run}
    assert {claim.figure for claim in known.values()} <= set(catalogue())


def test_every_column_of_the_file_is_one_that_is_read() -> None:
    with FILE.open(newline="", encoding="utf-8") as stream:
        header = next(csv.reader(stream))
    assert header == list(Claim.__dataclass_fields__)


def test_without_records_nothing_is_judged_and_each_states_why(tmp_path: Path) -> None:
    found = judge_all(load_evidence(tmp_path))
    assert [judged.id for judged in found] == list(claims())
    assert {judged.verdict for judged in found} == {"not run"}
    assert all(len(judged.reason) > 10 for judged in found)
    reasons = {judged.id: judged.reason for judged in found}
    assert "`make bench PROFILE=quick FIGURES=gnndrive-fig8`" in reasons["gd-01"]
    assert "`make bench PROFILE=quick FIGURES=gnndrive-tab2`" in reasons["gd-03"]
    assert "no distributed run" in reasons["gx-15"]
    assert "gives Ginex the mini-batches" in reasons["dg-01"]


@pytest.mark.parametrize(
    ("claim", "seen", "verdict"),
    [
        (row("4.0"), 3.0, "reproduced"),
        (row("4.0"), 1.5, "direction only"),
        (row("4.0"), 15.9, "direction only"),
        (row("4.0"), 16.1, "not reproduced"),
        (row("4.0"), 0.9, "not reproduced"),
        (row("16.9"), 2.0, "not reproduced"),
        (row("1.1", tolerance="factor 1.25", neutral=""), 0.95, "reproduced"),
        (row("1.0", tolerance="factor 1.25"), 1.2, "reproduced"),
        (row("1.0", tolerance="factor 1.25"), 1.5, "direction only"),
        (row("1.0", tolerance="factor 1.25"), 5.0, "not reproduced"),
        (row("5", bound="at least"), 50.0, "reproduced"),
        (row("5", bound="at least"), 4.9, "direction only"),
        (row("5", bound="at least"), 1.2, "not reproduced"),
        (row("1.0", bound="at most", neutral=""), 0.1, "reproduced"),
        (row("1.0", bound="at most", neutral=""), 1.01, "direction only"),
        (row("1.0", bound="at most", neutral=""), 4.1, "not reproduced"),
        (row("1", tolerance="", bound="above"), 1.001, "reproduced"),
        (row("1", tolerance="", bound="above"), 1.0, "not reproduced"),
        (row("1", tolerance="", bound="below"), 1.001, "not reproduced"),
        (row("1.23–1.47"), 1.3, "reproduced"),
        (row("1.23–1.47"), 1.5, "direction only"),
        (row("1.23–1.47"), 0.9, "not reproduced"),
        (row("85–90", "%", "10 points"), 85.0, "reproduced"),
        (row("85–90", "%", "10 points"), 77.0, "direction only"),
        (row("85–90", "%", "10 points"), 64.0, "not reproduced"),
        (row("97.3", "%", "10 points"), 88.0, "reproduced"),
        (row("97.3", "%", "10 points"), 80.0, "direction only"),
        (row("97.3", "%", "10 points"), 60.0, "not reproduced"),
        (row("20", "%", "10 points", "at most"), -2.0, "reproduced"),
        (row("20", "%", "10 points", "at most"), 21.0, "direction only"),
        (row("20", "%", "10 points", "at most"), 41.0, "not reproduced"),
        (row("35", "%", "10 points", "at least"), 34.0, "direction only"),
        (row("31", "s", neutral=""), 40.0, "reproduced"),
        (row("31", "s", neutral=""), 400.0, "not reproduced"),
        (row("33", "%", "10 points", neutral="0"), -1.0, "not reproduced"),
        (row("0", "points", "0.5 points"), -0.4, "reproduced"),
        (row("0", "points", "0.5 points"), -0.9, "direction only"),
        (row("0", "points", "0.5 points"), -50.0, "not reproduced"),
        (row("1.9", "points", "0.5 points", neutral="0"), -0.1, "not reproduced"),
        (row("1.9", "points", "0.5 points", neutral="0"), 1.0, "direction only"),
    ],
)
def test_the_verdict_follows_from_distance_and_direction(
    claim: Claim, seen: float, verdict: str
) -> None:
    assert verdict_of(claim, seen) == verdict


@settings(deadline=None)
@given(
    st.sampled_from(list(claims().values())), st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)
)
def test_further_from_the_published_value_is_never_a_better_verdict(
    claim: Claim, one: float, other: float
) -> None:
    rank = ["reproduced", "direction only", "not reproduced"]
    low, high = claim.ends
    near, far = sorted((one, other), key=lambda seen: distance(claim, seen))
    if (near >= low and far >= low) or (near <= high and far <= high):
        assert rank.index(verdict_of(claim, near)) <= rank.index(verdict_of(claim, far))


@settings(deadline=None)
@given(st.sampled_from(list(claims().values())), st.floats(-1e6, 1e6))
def test_nothing_beyond_a_bound_is_reproduced_and_nothing_beyond_twice_the_tolerance_is_kept(
    claim: Claim, seen: float
) -> None:
    low, high = claim.ends
    verdict = verdict_of(claim, seen)
    if claim.is_interval and not low <= seen <= high:
        assert verdict != "reproduced"
    if distance(claim, seen) > 2.001:
        assert verdict == "not reproduced"


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (
            {"tolerance": "factor 2000000", "neutral": ""},
            "no possible number is 'not reproduced'",
        ),
        (
            {"tolerance": "60 points", "unit": "%", "value": "50", "neutral": ""},
            "no possible number is 'not reproduced'",
        ),
        (
            {
                "value": "120",
                "unit": "%",
                "bound": "at least",
                "tolerance": "10 points",
            },
            "is 'reproduced'",
        ),
        ({"tolerance": "direction"}, "tolerance 'direction'"),
        ({"tolerance": ""}, "no tolerance"),
        ({"tolerance": "factor 1"}, "tolerance 'factor 1'"),
        ({"bound": "or more"}, "bound is 'or more'"),
        ({"value": "580 / 205"}, "value '580 / 205' cannot be read"),
        ({"value": "<"}, "value '<' cannot be read"),
        ({"setting": "modell=sage"}, "setting modell"),
        ({"setting": "sage"}, "setting 'sage' cannot be read"),
        ({"read": "hearsay"}, "read is 'hearsay'"),
        ({"read": "computed"}, "not stated how"),
        ({"emulated": "yes"}, "emulated is 'yes'"),
    ],
)
def test_a_row_that_cannot_be_judged_or_cannot_fail_is_refused(
    change: dict[str, str], reported: str
) -> None:
    with pytest.raises(InputError) as refused:
        check(replace(MODEL, **change))
    assert reported in str(refused.value)


def test_no_claim_has_two_functions() -> None:
    answers()
    with pytest.raises(ValueError, match="claim gd-01 has two functions"):
        claim("gd-01")(answers()["gd-02"].function)


def test_no_two_claims_have_one_function_of_the_same_records() -> None:
    """One published quantity, one measured quantity: equal functions are of different
    runs, studies or arguments."""
    seen: dict[str, str] = {}
    for id_, answer in answers().items():
        row = claims()[id_]
        source = "bench" if row.runs == "bench" else row.figure
        body = ast.parse(textwrap.dedent(inspect.getsource(answer.function))).body[0]
        assert isinstance(body, ast.FunctionDef)
        code = [ast.unparse(statement) for statement in body.body[1:]]
        quantity = repr(
            [
                code,
                answer.arguments,
                answer.study,
                answer.figure,
                source,
                sorted(row.chosen.items()),
            ]
        )
        assert seen.setdefault(quantity, id_) == id_, (
            f"{id_} measures what {seen[quantity]} measures"
        )


def test_a_ratio_has_a_range_below_five_samples_and_a_bootstrap_interval_from_five_on() -> (
    None
):
    few = Number.median([4.0, 6.0], [1.0, 2.0])
    many = Number.median([4.0] * 5, [2.0] * 5)
    assert (few.kind, few.low, few.high) == ("range", 2.0, 6.0)
    assert (many.kind, many.value, many.low, many.high) == (
        "bootstrap95",
        2.0,
        2.0,
        2.0,
    )
    less = few.saved
    more = few.added
    assert less.low <= less.value <= less.high
    assert (less.low, less.high) == (50.0, pytest.approx(100 - 100 / 6))
    assert (more.low, more.high) == (-less.high, -less.low)


def test_altered_records_change_the_verdict(tmp_path: Path) -> None:
    verdicts = {}
    for name, pyg in (
        ("as published", 160.0),
        ("less", 50.0),
        ("little", 30.0),
        ("turned", 5.0),
    ):
        fill(tmp_path / name, pyg=pyg)
        verdicts[name] = judge_one("gd-01", load_evidence(tmp_path / name)).verdict
    assert verdicts == {
        "as published": "reproduced",
        "less": "direction only",
        "little": "not reproduced",
        "turned": "not reproduced",
    }


@pytest.mark.parametrize("verdict", ["INVALID", "SPOILT"])
def test_the_ratio_is_of_comparable_runs_only(tmp_path: Path, verdict: str) -> None:
    fill(tmp_path)
    save(tmp_path, made("pyg+", [9999.0], verdict=verdict))
    judged = judge_one("gd-01", load_evidence(tmp_path))
    assert judged.measured == pytest.approx(4.0)
    assert judged.interval_kind == "bootstrap95"
    assert judged.found is not None
    assert len(judged.found.runs) == 10


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        ("INVALID", "(1 invalid run left out)"),
        ("SPOILT", "(1 run spoilt by other programs left out)"),
    ],
)
def test_a_claim_without_a_run_that_counts_names_why_the_others_do_not(
    tmp_path: Path, verdict: str, reason: str
) -> None:
    save(tmp_path, made("pyg+", [160.0]), made("gnndrive", [10.0], verdict=verdict))
    judged = judge_one("gd-01", load_evidence(tmp_path))
    assert judged.verdict == "not run"
    assert "no run of gnndrive" in judged.reason
    assert reason in judged.reason


def test_the_setting_is_the_declared_one_and_not_what_most_runs_have(
    tmp_path: Path,
) -> None:
    fill(tmp_path)
    for noise in range(
        30
    ):  # more and newer runs, in a setting that no profile declares
        for system, seconds in (("pyg+", 10.0), ("gnndrive", 400.0)):
            save(tmp_path, made(system, [seconds + noise], batch_size=999))
    judged = judge_one("gd-01", load_evidence(tmp_path))
    assert judged.measured == pytest.approx(4.0)
    assert judged.setting == "profile quick, runs of gnndrive-fig8, model=sage dim=128"


def test_records_of_other_settings_alone_leave_a_claim_not_run(tmp_path: Path) -> None:
    for system, seconds in (("pyg+", 160.0), ("gnndrive", 10.0)):
        save(tmp_path, made(system, [seconds], memory="+96MiB"))
    judged = judge_one("gd-01", load_evidence(tmp_path))
    assert judged.verdict == "not run"
    assert "no run of its setting" in judged.reason


def test_an_ablation_never_stands_for_the_system(tmp_path: Path) -> None:
    fill(tmp_path)
    for _ in range(30):
        save(tmp_path, made("gnndrive", [100.0], options={"merge": False}))
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
    assert "as printed" in text
    assert "judged in: profile quick, runs of gnndrive-fig8" in text
    assert "4 x [" in measured_text(judged)
    assert "MiB in" in text
    assert "EMULATED" in text
    assert "aws-nvme/16" in text
    assert judged.found is not None
    assert judged.found.runs[0] in text


def test_an_unknown_claim_names_the_nearest() -> None:
    with pytest.raises(InputError, match="gd-01"):
        find_claim("gd-001")


def test_the_command_prints_every_claim_as_json_and_one_explained(
    tmp_path: Path,
) -> None:
    fill(tmp_path)
    runner = CliRunner()
    root = ["--results-root", str(tmp_path)]
    done = runner.invoke(build_app(), ["claims", "--json", *root])
    found = {entry["id"]: entry for entry in json.loads(done.stdout)["claims"]}
    assert list(found) == list(claims())
    assert found["gd-01"]["measured"] == pytest.approx(4.0)
    assert {
        "id",
        "verdict",
        "paper_value",
        "measured",
        "interval",
        "interval_kind",
        "reason",
    } <= set(found["gd-01"])
    explained = runner.invoke(build_app(), ["claims", "--explain", "gd-01", *root])
    assert "GNNDrive is faster than PyG+" in explained.stdout
    assert (
        runner.invoke(build_app(), ["claims", "--verdict", "emulated", *root]).exit_code
        == 0
    )
    assert (
        runner.invoke(build_app(), ["claims", "--paper", "gnndrve", *root]).exit_code
        != 0
    )
    assert (
        runner.invoke(build_app(), ["claims", "--profile", "quik", *root]).exit_code
        != 0
    )


def test_the_command_judges_the_profile_as_it_was_when_the_runs_were_made(
    tmp_path: Path,
) -> None:
    fill(tmp_path)
    kept = load_experiment("quick").model_dump(mode="json")
    kept["gallery"]["base"]["run"]["dataset"] = "kron-3m"
    kept["gallery"]["base"]["datasets"] = {
        "kron-3m": kept["gallery"]["base"]["datasets"]["kron-2m"]
    }
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "quick.json").write_text(json.dumps(kept))

    def measured(*more: str) -> Any:
        done = CliRunner().invoke(
            build_app(), ["claims", "--json", "--results-root", str(tmp_path), *more]
        )
        return {entry["id"]: entry for entry in json.loads(done.stdout)["claims"]}[
            "gd-01"
        ]["measured"]

    assert measured() is None
    assert measured("--profile", "quick") == pytest.approx(4.0)


def test_catching_up_is_judged_only_where_a_budget_holds_the_features(
    tmp_path: Path,
) -> None:
    def save_pair(dataset: str, memory: str, share: float, pyg: float) -> None:
        for system, seconds in (("pyg+", pyg), ("gnndrive", 10.0)):
            batches = 16 if memory.startswith("+") else 40
            own = {
                "memory": memory,
                "max_batches": batches,
                "batch_size": 50,
                "device_memory_bytes": 128 * 2**20,
            }
            record = made(system, [seconds], dim=512, **own)
            record.config.dataset.name = dataset
            cap = round(share * record.config.dataset.num_nodes * 2048)
            save(
                tmp_path,
                record.model_copy(
                    update={
                        "memory": record.memory.model_copy(update={"budget_bytes": cap})
                    }
                ),
            )

    save_pair("kron-2m-d512", "+64MiB", 0.5, 30.0)
    judged = judge_one("gd-19", load_evidence(tmp_path))
    assert judged.verdict == "not run"
    assert "50 %" in judged.reason
    save_pair("kron-2m-d512-small", "1.2x", 1.2, 9.0)
    assert judge_one("gd-19", load_evidence(tmp_path)).verdict == "reproduced"
