from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harness.compare.evidence import load_evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.base import catalogue
from harness.figures.render import render
from harness.records.record import Record
from harness.regress.git import Repository
from harness.regress.history import load, record
from harness.regress.store import FolderStore
from harness.regress.studies import keep, keep_own
from harness.regress.trend import Point, exact_steps, steps_of, trends
from harness.results.store import runs_folder
from tests.harness.regress.git_made import commit, repository
from tests.harness.regress.samples_made import session


def _points(values) -> list[Point]:
    return [
        Point(f"{index:040x}", index, float(value), 3)
        for index, value in enumerate(values)
    ]


@pytest.mark.parametrize("effect", [0.05, 0.1, -0.1])
def test_a_step_is_found_at_its_commit_and_of_its_size(effect):
    rng = np.random.default_rng(1)
    values = np.exp(rng.normal(0, 0.01, 60))
    values[35:] *= 1 + effect
    (step,) = steps_of(_points(values), 0.03)
    assert abs(step.index - 35) <= 1
    assert step.ratio == pytest.approx(1 + effect, abs=0.015)
    assert (
        step.commits == f"{step.index - 1:040x}"[:12] + ".." + f"{step.index:040x}"[:12]
    )


def test_noise_alone_has_no_step():
    rng = np.random.default_rng(2)
    assert (
        sum(
            len(steps_of(_points(np.exp(rng.normal(0, 0.02, 50))), 0.03))
            for _ in range(40)
        )
        <= 1
    )


def test_one_odd_session_is_an_outlier_and_no_step():
    rng = np.random.default_rng(3)
    values = np.exp(rng.normal(0, 0.01, 40))
    values[20] *= 1.5
    assert steps_of(_points(values), 0.03) == []


def test_two_steps_are_reported_apart():
    rng = np.random.default_rng(4)
    values = np.exp(rng.normal(0, 0.01, 60))
    values[20:40] *= 1.2
    first, second = steps_of(_points(values), 0.03)
    assert abs(first.index - 20) <= 1
    assert abs(second.index - 40) <= 1


def test_short_series_show_no_steps_and_exact_counts_every_one():
    assert steps_of(_points([1, 1, 9, 9]), 0.03) == []
    (step,) = exact_steps(_points([10, 10, 11, 11]))
    assert (step.index, step.before_value, step.value) == (2, 10, 11)


def write_record(root: Path, run: Record) -> None:
    folder = runs_folder(root) / run.run_id
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps(run.to_json()))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    folder = repository(tmp_path / "r")
    store = FolderStore(tmp_path / "b")
    hashes = [commit(folder, f"change {number}") for number in range(14)]
    for number, hash_ in enumerate(hashes):
        slow = 1.15 if number >= 9 else 1.0
        runs = session(3, seed=number + 1, epoch=slow, commit=hash_) + session(
            3,
            seed=100 + number,
            system="ginex",
            commit=hash_,
            requests=5000 + (number >= 5),
        )
        record(runs, store, Repository(folder))
    series = trends(load(store, Repository(folder)))
    keep(tmp_path / "res", series, 0.03, 0.1)
    (tmp_path / "hashes").write_text("\n".join(hashes))
    return tmp_path


def test_a_history_names_the_commits_between_which_it_became_slower(kept: Path):
    hashes = (kept / "hashes").read_text().split()
    result = load_evidence(kept / "res").study("regress-trend").result
    found = {(s["system"], s["name"]): s["steps"] for s in result["series"]}
    assert [step["commits"] for step in found["diskgnn", "epoch"]] == [
        f"{hashes[8][:12]}..{hashes[9][:12]}"
    ]
    assert found["ginex", "epoch"] == []
    assert [step["commits"] for step in found["ginex", "io_requests"]] == [
        f"{hashes[4][:12]}..{hashes[5][:12]}"
    ]


def test_the_figure_is_drawn_from_the_kept_trend_and_follows_it(kept: Path):
    figure = catalogue()["outcore-trend"]
    evidence = load_evidence(kept / "res")
    (rendered,) = render([figure], evidence, kept / "figures")
    assert rendered.status == "drawn"
    text = (kept / "figures" / "outcore-trend.csv").read_text()
    assert ".." in text
    assert "diskgnn" in text
    evidence.study("regress-trend").result["series"][0]["points"][0]["value"] *= 2
    altered = figure.draw(evidence)
    assert altered.data["seconds"].iloc[0] != float(text.splitlines()[1].split(",")[2])
    hashes = (kept / "hashes").read_text().split()
    assert altered.finding.startswith("Largest change: diskgnn ")
    assert altered.finding.endswith(f"{hashes[8][:12]}..{hashes[9][:12]}")
    import matplotlib.pyplot as plt

    plt.close("all")


def test_without_a_history_the_figure_states_what_makes_one(tmp_path: Path):
    with pytest.raises(NotDrawn, match="regress record"):
        catalogue()["outcore-trend"].draw(load_evidence(tmp_path))


def test_a_bench_looks_at_its_own_runs_beside_the_baselines(tmp_path: Path):
    folder = repository(tmp_path / "r")
    root = tmp_path / "res"
    git = Repository(folder)
    hashes = [commit(folder, f"change {number}") for number in range(3)]
    kept, own, newest = (
        session(2, seed=n, commit=hash_) for n, hash_ in enumerate(hashes)
    )
    for number, run in enumerate(
        [*kept, *own, *newest, *session(1, seed=9, commit="")]
    ):
        run.run_id = f"20260101-{number:06d}-000-diskgnn-r0"
        write_record(root, run)
    record(kept, FolderStore(root / "baselines"), git)
    keep_own(root, git)
    (epoch,) = (
        s
        for s in load_evidence(root).study("regress-trend").result["series"]
        if s["name"] == "epoch"
    )
    assert [(point["commit"], point["runs"]) for point in epoch["points"]] == [
        (hash_, 2) for hash_ in hashes
    ]
    assert FolderStore(root / "baselines").names()
    assert len(FolderStore(root / "baselines").names()) == 1
    (file,) = (root / "studies").glob("regress-trend-*.json")
    before = file.stat().st_mtime_ns
    keep_own(root, git)
    assert file.stat().st_mtime_ns == before
    (rendered,) = render(
        [catalogue()["outcore-trend"]], load_evidence(root), tmp_path / "figures"
    )
    assert rendered.status == "drawn"


def test_commits_without_an_order_stand_by_their_runs_dates(tmp_path: Path):
    runs = session(2, commit="b" * 40) + session(2, seed=1, commit="a" * 40)
    for number, run in enumerate(runs):
        run.run_id = f"20260101-{number:06d}-000-diskgnn-r0"
        run.started_at = f"2026-01-0{1 + number}T00:00:00.000+00:00"
        write_record(tmp_path, run)
    keep_own(tmp_path, None)
    (epoch,) = (
        s
        for s in load_evidence(tmp_path).study("regress-trend").result["series"]
        if s["name"] == "epoch"
    )
    assert [point["commit"][0] for point in epoch["points"]] == ["b", "a"]
    with pytest.raises(NotDrawn, match="2 of at least 3 commits"):
        catalogue()["outcore-trend"].draw(load_evidence(tmp_path))


def test_runs_of_changed_files_alone_are_no_history(tmp_path: Path):
    write_record(tmp_path, session(1)[0])
    keep_own(tmp_path, None)
    assert not (tmp_path / "studies").exists()
