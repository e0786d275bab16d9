from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harness.regress.git import Repository
from harness.regress.history import compare_folders, compare_history, load, record
from harness.regress.store import BranchStore, FolderStore
from harness.results.store import write_run
from tests.harness.regress.git_made import commit, git, repository
from tests.harness.regress.samples_made import made, session
from workloads.errors import InputError

OTHER = {"cpu": {"model": "another", "usable": 64}, "memory": {"total_bytes": 1 << 40}}


def _save(root: Path, records) -> Path:
    for entry in records:
        write_run(root, entry, {})
    return root


@pytest.fixture(params=["folder", "branch"])
def store(request, tmp_path: Path):
    folder = repository(tmp_path / "r")
    if request.param == "folder":
        return FolderStore(tmp_path / "baselines")
    return BranchStore(Repository(folder), "outcore-baselines")


def _commits(tmp_path: Path, count: int) -> list[str]:
    return [commit(tmp_path / "r", f"change {number}") for number in range(count)]


def _record(store, tmp_path: Path, hashes: list[str], **more) -> None:
    for number, hash_ in enumerate(hashes):
        record(
            session(3, seed=number + 1, commit=hash_, **more),
            store,
            Repository(tmp_path / "r"),
        )


def test_baselines_come_back_as_they_were_kept_from_folder_and_branch(
    store, tmp_path: Path
):
    hashes = _commits(tmp_path, 3)
    _record(store, tmp_path, hashes)
    history = load(store, Repository(tmp_path / "r"))
    assert [entry.commit for entry in history.entries] == hashes
    assert len(history.entries[0].cells[0].runs) == 3
    assert history.notes == []
    # A branch is written without touching the checkout.
    assert git(tmp_path / "r", "status", "--porcelain") == ""


def test_a_run_is_held_against_history_of_its_own_machine_only(store, tmp_path: Path):
    hashes = _commits(tmp_path, 7)
    _record(store, tmp_path, hashes[:6])
    _record(store, tmp_path, hashes[:6], host=OTHER, epoch=0.2)
    history = load(store, Repository(tmp_path / "r"))
    same = compare_history(
        _save(tmp_path / "same", session(6, seed=90, commit=hashes[6])), history
    )
    assert same.decision == "same"
    slow = compare_history(
        _save(tmp_path / "slow", session(6, seed=91, epoch=1.2, commit=hashes[6])),
        history,
    )
    assert slow.decision == "regressed"


def test_another_machines_baseline_gives_exact_facts_and_no_times(
    store, tmp_path: Path
):
    hashes = _commits(tmp_path, 7)
    _record(store, tmp_path, hashes[:6], host=OTHER)
    history = load(store)
    found = compare_history(
        _save(tmp_path / "a", session(6, seed=90, epoch=9.0, commit=hashes[6])), history
    )
    assert found.decision == "same"
    assert any("no baseline of this machine" in note for note in found.notes)
    more = compare_history(
        _save(tmp_path / "b", session(6, seed=91, requests=5001, commit=hashes[6])),
        history,
    )
    assert more.decision == "regressed"


def test_no_history_decides_nothing_and_states_how_to_begin(store, tmp_path: Path):
    found = compare_history(_save(tmp_path / "a", session(3)), load(store))
    assert (found.decision, found.exit_code) == ("undecided", 0)
    assert "outcore regress record" in found.notes[0]


def test_corrupt_entries_are_left_out_and_counted(tmp_path: Path):
    repository(tmp_path / "r")
    store = FolderStore(tmp_path / "b")
    hashes = _commits(tmp_path, 2)
    _record(store, tmp_path, hashes)
    names = store.names()
    good = (tmp_path / "b" / names[0]).read_text()
    bad = json.loads(good)
    bad["cells"][0]["runs"][0]["noisy"]["epoch"] = "fast"
    host = names[0].split("/")[0]
    entries = {
        f"{host}/{'0' * 16}-{'0' * 8}.json": good[: len(good) // 2],
        f"{host}/{'1' * 16}-{'0' * 8}.json": json.dumps(bad),
        f"{host}/{'2' * 16}-{'0' * 8}.json": good,  # of another commit than its name has
        f"{host}/{'3' * 16}-{'0' * 8}.json": "\x00\x01",
        f"{host}/../../escape.json": good,
        f"{host}/notes.json": good,
    }
    for name, text in entries.items():
        path = tmp_path / "b" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "b" / host / f"{'4' * 16}-{'0' * 8}.json").symlink_to(
        tmp_path / "b" / names[0]
    )
    history = load(store, Repository(tmp_path / "r"))
    assert [entry.commit for entry in history.entries] == hashes
    assert history.notes[0].startswith("5 entries of the history cannot be read")


def test_order_is_of_the_commits_even_where_a_clock_was_wrong(tmp_path: Path):
    folder = repository(tmp_path / "r")
    dates = ["2030-01-01T00:00:00Z", "2001-01-01T00:00:00Z", "2026-01-01T00:00:00Z"]
    hashes = [commit(folder, f"at {date}", date=date) for date in dates]
    store = FolderStore(tmp_path / "b")
    _record(store, tmp_path, hashes)
    assert [entry.commit for entry in load(store, Repository(folder)).entries] == hashes


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ({"commit": None}, "outside a git"),
        ({"commit": "a" * 40, "dirty": True}, "changed files"),
    ],
)
def test_runs_that_no_commit_stands_for_are_not_kept(tmp_path: Path, code, message):
    repository(tmp_path / "r")
    run = made()
    run.environment["code"] = code
    with pytest.raises(InputError, match=message):
        record([run], FolderStore(tmp_path / "b"), Repository(tmp_path / "r"))
    assert not (tmp_path / "b").exists()


def test_a_session_between_entries_that_differ_is_not_called_a_regression(
    tmp_path: Path,
):
    """Sessions differ by 5 % here, runs within a session by 0.4 %: only the former is
    the usual variation."""
    repository(tmp_path / "r")
    store = FolderStore(tmp_path / "b")
    rng = np.random.default_rng(3)
    for number, hash_ in enumerate(_commits(tmp_path, 12)):
        record(
            session(
                3,
                seed=number + 1,
                commit=hash_,
                epoch=float(np.exp(rng.normal(0, 0.05))),
            ),
            store,
            Repository(tmp_path / "r"),
        )
    history = load(store, Repository(tmp_path / "r"))
    found = compare_history(
        _save(tmp_path / "a", session(6, seed=90, epoch=1.05)), history
    )
    assert (
        next(metric for metric in found.metrics if metric.name == "epoch").decision
        == "undecided"
    )


def test_two_folders_are_compared_without_pairs_and_across_machines_without_times(
    tmp_path: Path,
):
    one = _save(tmp_path / "one", session(8, seed=1))
    two = _save(tmp_path / "two", session(8, seed=2, epoch=1.2))
    assert compare_folders(one, two).decision == "regressed"
    far = _save(tmp_path / "far", session(8, seed=3, epoch=3.0, host=OTHER))
    found = compare_folders(one, far)
    assert found.decision == "same"
    assert "another machine" in found.notes[0]
    with pytest.raises(InputError, match="no runs"):
        compare_folders(one, tmp_path / "empty")
