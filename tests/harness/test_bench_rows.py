"""The table of a bench has every planned run, wherever its record was made, and one run
counts for each."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli.bench import figures_of
from harness.cli.run_tables import print_headline
from harness.compare.comparable import comparable
from harness.compare.evidence import Evidence
from harness.compare.rows import rows_of
from harness.plan.experiment import PlannedRun, cells, parse_experiment, resolve
from harness.records.record import Record
from harness.report.headline import who_is_ahead
from harness.results.newest import without_replaced
from harness.results.table import runs_table
from tests.harness.records import make_record
from tests.harness.run_tools import MISBEHAVING, SETTINGS, outcore, share_cache
from tests.support import make_tiny
from workloads.errors import InputError

RUN = {**SETTINGS, "memory": "+1MiB"}
SYSTEMS = ["pyg+", "in-memory", "gnndrive", "ginex", "diskgnn"]
MINE = {"name": "mine", "run": RUN, "systems": SYSTEMS}
_COUNT = itertools.count()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rows")
    make_tiny(root / "tiny")
    return root


def ran(planned: PlannedRun, data: Path, seconds: list[float], **more: Any) -> Record:
    """Return a record of a planned run; `experiment` names the sweep that made it,
    `code` of `more` its time."""
    labels = {name: more.pop(name) for name in ("experiment", "axes") if name in more}
    config = resolve(planned, data, "cgroup1").model_copy(update=labels)
    made = make_record(planned.system, seconds, **more)
    own = {
        "run_id": f"20260301-{next(_COUNT):06d}-{planned.system}",
        "config": config,
        "cell": config.cell,
    }
    return made.model_copy(update={**own, "config_hash": config.config_hash})


def plan(**changes: Any) -> list[PlannedRun]:
    return list(cells(parse_experiment({**MINE, **changes})))


def test_every_planned_run_is_a_row_wherever_its_record_was_made(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyg, memory, gnndrive, ginex, diskgnn = plan()
    records = [
        ran(
            pyg,
            data,
            [10.5, 10.5],
            experiment="an earlier sweep",
            axes={"model": "sage"},
        ),
        ran(memory, data, [], experiment="an earlier sweep", status="oom"),
        ran(gnndrive, data, [1.0, 1.0], experiment="", axes={}),
        ran(ginex, data, [1.77, 1.77], experiment="mine", verdict="INVALID"),
        ran(plan(run={**RUN, "batch_size": 41})[0], data, [0.1], experiment="mine"),
    ]
    found = rows_of(parse_experiment(MINE), records)
    assert [record.run_id for record in found.records] == [
        record.run_id for record in records[:4]
    ]
    assert [run.system for run in found.not_run] == [diskgnn.system]
    print_headline(found.records, "mine", wide=True)
    table = capsys.readouterr().out
    assert table.count(" 1.00 ") == 1
    assert " 10.50 " in table
    assert " oom " in table
    assert " INVALID " in table
    ahead = who_is_ahead([record.to_json() for record in found.records], "mine")[0]
    assert ahead.startswith("gnndrive takes 1 s")
    assert "10.5 times as fast as pyg+" in ahead


def test_the_table_ranks_what_the_sentence_ranks_over_all_seeds_and_reused_samples_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seeds = [
        make_record("gnndrive", [seconds], seed=seed)
        for seed, seconds in ((0, 9.0), (1, 1.0))
    ]
    replay = make_record("diskgnn", [0.5])
    replay.facts = replay.facts.model_copy(update={"samples_reused": True})
    records = [*seeds, replay, make_record("ginex", [4.0])]
    print_headline(records, "mine", wide=False)
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows[0].startswith("ginex 4 [4, 4] 1.00"), rows
    assert rows[1].startswith("gnndrive 5 [1, 9] 1.25"), rows
    assert (
        rows[2].startswith("diskgnn (samples reused) 0.5 [0.5, 0.5] –")
        and len(rows) == 3
    ), rows
    ahead = who_is_ahead([record.to_json() for record in records], "mine")[0]
    assert ahead.startswith("ginex takes 4 s")
    assert "1.25 times as fast as gnndrive" in ahead


def test_the_sentence_names_the_options_that_stand_for_a_system_with_several_sets() -> (
    None
):
    sets = [
        make_record("gnndrive", [9.0 / count], options={"extractors": count})
        for count in (2, 3)
    ]
    records = [record.to_json() for record in [*sets, make_record("ginex", [4.0])]]
    lines = who_is_ahead(records, "mine")
    assert lines[-1].startswith(
        "Of 2 option sets of gnndrive this is the one nearest its defaults: extractors="
    )
    assert not any("option sets" in line for line in who_is_ahead(records[1:], "mine"))


def test_two_notations_of_a_cell_are_one_row_and_each_round_is_its_own(
    data: Path,
) -> None:
    entries = ["gnndrive", {"name": "gnndrive", "memory": "+1048576"}]
    experiment = parse_experiment({**MINE, "systems": entries, "rounds": 2})
    runs = list(cells(experiment))
    records = [ran(runs[1], data, [1.0])]
    found = rows_of(experiment, records)
    assert [record.run_id for record in found.records] == [records[0].run_id]
    assert [run.round for run in found.not_run] == [1]


def standing(records: list[dict[str, Any]], run: PlannedRun) -> list[str]:
    """Return the ids of a planned run's records that figures and claims are made of."""
    return list(Evidence(runs_table(records)).runs_of(run)["run_id"])


def test_a_run_made_again_replaces_the_earlier_one_in_table_sentence_and_figures(
    data: Path,
) -> None:
    (pyg, *_) = plan()
    old = ran(pyg, data, [1.77], experiment="mine")
    new = ran(pyg, data, [0.975], experiment="mine")
    other = ran(pyg, data, [0.9]).model_copy(
        update={"environment": {"cpu": {"model": "B", "usable": 2}}}
    )
    records = [record.to_json() for record in (new, other, old)]
    assert [one["run_id"] for one in without_replaced(records)] == [
        new.run_id,
        other.run_id,
    ]
    assert standing(records, pyg) == [new.run_id, other.run_id]
    groups = [[one["run_id"] for one in members] for _, members in comparable(records)]
    assert groups == [[new.run_id], [other.run_id]]
    found = rows_of(parse_experiment(MINE), [old, new])
    assert [record.run_id for record in found.records] == [new.run_id]
    assert found.passed_over == []


@pytest.mark.parametrize(
    "changes",
    [{"status": "failed", "verdict": "INVALID"}, {"verdict": "SPOILT"}],
    ids=str,
)
def test_a_repetition_that_does_not_count_replaces_nothing_and_is_named(
    data: Path, changes: dict[str, str]
) -> None:
    (pyg, *_) = plan()
    old = ran(pyg, data, [1.77])
    new = ran(pyg, data, [0.975], **changes)
    found = rows_of(parse_experiment(MINE), [old, new])
    assert [record.run_id for record in found.records] == [old.run_id]
    assert [record.run_id for record in found.passed_over] == [new.run_id]
    assert standing([old.to_json(), new.to_json()], pyg) == [old.run_id]


def test_a_run_with_more_time_replaces_one_that_ran_out_of_it(data: Path) -> None:
    short, long = (
        plan(run={**RUN, "timeout": timeout})[0] for timeout in ("1s", "600s")
    )
    out = ran(short, data, [], status="timeout")
    done = ran(long, data, [5.0])
    assert [
        one["run_id"] for one in without_replaced([out.to_json(), done.to_json()])
    ] == [done.run_id]


def test_figures_of_an_experiment_are_drawn_by_name_and_a_wrong_name_is_refused() -> (
    None
):
    asked = parse_experiment({**MINE, "figures": ["outcore-roofline", "headline"]})
    ids = [figure.id for figure in figures_of(asked)]
    assert ids[0] == "outcore-roofline"
    assert len(ids) > 1
    with pytest.raises(InputError, match="outcore-rooflin"):
        figures_of(parse_experiment({**MINE, "figures": ["outcore-rooflin"]}))


@pytest.mark.slow(
    "harness/cli/bench.py", "harness/run/sweep.py", "harness/compare", seconds=40
)
def test_a_bench_shows_runs_of_other_commands_marks_finished_ones_and_prints_its_figures(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    roots = {"data": tmp_path / "data", "results": tmp_path / "results"}
    make_tiny(roots["data"] / "tiny")
    share_cache(roots["results"], tmp_path_factory)
    first = tmp_path / "first.yaml"
    second = tmp_path / "second.yaml"
    first.write_text(
        json.dumps({"name": "first", "run": SETTINGS, "systems": [MISBEHAVING]})
    )
    both = {
        "name": "second",
        "run": SETTINGS,
        "systems": [MISBEHAVING, "in-memory"],
        "figures": ["outcore-roofline"],
    }
    second.write_text(json.dumps(both))
    made = json.loads(
        outcore("bench", str(first), "--figures", "none", "--json", **roots).stdout
    )
    dry = outcore("bench", str(second), "--dry-run", **roots).stdout.splitlines()
    assert [line.endswith(", done") for line in dry[:2]] == [
        "Misbehaving" in line for line in dry[:2]
    ]
    shown = outcore("bench", str(second), **roots).stdout
    lines = shown.splitlines()
    rows = [
        line
        for line in lines
        if line.startswith(("tests.", "in-memory ")) and " takes " not in line
    ]
    assert len(rows) == 2
    assert "figure outcore-roofline: " in shown
    assert "report: " in shown
    again = json.loads(
        outcore(
            "bench", str(second), "--figures", "none", "--fresh", "--json", **roots
        ).stdout
    )
    assert again["skipped"] == 0
    assert len(again["rows"]) == 2
    assert made["rows"][0] not in again["rows"]
    assert again["outdated"]["report"]
    assert (roots["results"] / "report.html").is_file()
