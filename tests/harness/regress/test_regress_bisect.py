"""The first bad commit of small histories, by git's own search and the gate's own
decisions."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from harness.cli.regress import print_bisection
from harness.regress.bisect import Bisection, answer_of, bisect
from harness.regress.decision import Comparison
from harness.regress.git import Repository
from harness.regress.judge import compare
from harness.regress.measure.build import BuildError
from tests.harness.regress.git_made import commit, git, repository
from tests.harness.regress.samples_made import cells, made, session
from workloads.errors import InputError


class _Gate:
    """A gate on commits whose file `pace` holds the seconds of an epoch of ginex;
    `broken` in it: the commit cannot be built, `noisy`: its runs are too few."""

    def __init__(self, folder: Path, good: str) -> None:
        self._folder = folder
        self._good = good
        self.asked: list[tuple[str, set[str]]] = []

    def __call__(self, commit_: str, systems: Collection[str]) -> Comparison:
        self.asked.append((commit_, set(systems)))
        sides = [self._runs(one) for one in (self._good, commit_)]
        return compare(*sides, paired=True)

    def _runs(self, commit_: str):
        pace = git(self._folder, "show", f"{commit_}:pace")
        if pace == "broken":
            raise BuildError("its native modules do not compile")
        if pace == "noisy":
            return cells(session(3, system="ginex"), session(3, system="diskgnn"))
        ginex = session(6, epoch=float(pace), system="ginex")
        return cells(ginex, session(6, system="diskgnn"))


def _history(folder: Path, *paces: str) -> list[str]:
    """Commit each pace; return the hashes, the first commit's first."""
    repository(folder, {"pace": "1.0"})
    first = git(folder, "rev-parse", "HEAD")
    later = [
        commit(folder, f"change {number}", {"pace": pace})
        for number, pace in enumerate(paces, start=1)
    ]
    return [first, *later]


def _search(folder: Path, good: str, bad: str) -> tuple[Bisection, _Gate]:
    gate = _Gate(folder, good)
    tree = folder.parent / "tree"
    found = bisect(Repository(folder), good, bad, gate, tree)
    assert not tree.exists()
    assert "prunable" not in git(folder, "worktree", "list", "--porcelain")
    return found, gate


@pytest.mark.parametrize("at", [1, 4, 9])
def test_the_first_slow_commit_is_found_in_a_logarithm_of_steps(at: int, tmp_path):
    paces = ["1.0"] * (at - 1) + ["1.2"] * (10 - at)
    hashes = _history(tmp_path / "r", *paces)
    found, gate = _search(tmp_path / "r", hashes[0], hashes[-1])
    assert found.candidates == [Repository(tmp_path / "r").line(hashes[at])]
    slower = {"ginex +20MiB / epoch", "ginex +20MiB / warm-up"}
    assert set(found.regressed) == slower
    assert found.decision == "regressed"
    assert len(found.tested) <= 4
    # The whole experiment once, then the system that regressed alone.
    assert gate.asked[0] == (hashes[-1], set())
    assert all(systems == {"ginex"} for _, systems in gate.asked[1:])
    assert found.to_json()["first_bad"] == found.candidates[0]


def test_a_slow_commit_of_a_merged_branch_is_found(tmp_path: Path):
    folder = tmp_path / "r"
    hashes = _history(folder, "1.0", "1.0")
    git(folder, "checkout", "-q", "-b", "side", hashes[1])
    slow = commit(folder, "slow on a branch", {"pace": "1.3"})
    commit(folder, "more of the branch", {"other": "x"})
    git(folder, "checkout", "-q", "main")
    commit(folder, "beside it", {"third": "x"})
    git(folder, "merge", "-q", "-X", "theirs", "-m", "merge", "side")
    found, _ = _search(folder, hashes[0], git(folder, "rev-parse", "HEAD"))
    assert found.candidates == [Repository(folder).line(slow)]


@pytest.mark.parametrize("pace", ["broken", "noisy"])
def test_commits_that_cannot_be_judged_are_skipped_and_named(pace: str, tmp_path):
    hashes = _history(tmp_path / "r", "1.0", pace, "1.2", "1.2", "1.2")
    found, _ = _search(tmp_path / "r", hashes[0], hashes[-1])
    line = Repository(tmp_path / "r").line
    assert set(found.candidates) == {line(hashes[2]), line(hashes[3])}
    (skipped,) = (tested for tested in found.tested if tested.answer == "skip")
    assert skipped.commit == hashes[2]
    assert "compile" in skipped.why or "undecided" in skipped.why
    assert found.to_json()["first_bad"] is None


def test_without_a_regression_there_is_no_search(tmp_path: Path, capsys):
    hashes = _history(tmp_path / "r", "1.0", "1.0")
    found, gate = _search(tmp_path / "r", hashes[0], hashes[-1])
    assert (found.candidates, found.regressed) == ([], [])
    assert len(gate.asked) == 1
    print_bisection(found)
    assert "no bad commit" in capsys.readouterr().out


def test_a_search_of_the_users_own_and_the_checkout_are_untouched(tmp_path: Path):
    folder = tmp_path / "r"
    hashes = _history(folder, *["1.0"] * 4, *["1.2"] * 3)
    git(folder, "bisect", "start", hashes[-1], hashes[1])
    before = git(folder, "rev-parse", "HEAD"), git(folder, "bisect", "log")
    _search(folder, hashes[0], hashes[-1])
    assert (git(folder, "rev-parse", "HEAD"), git(folder, "bisect", "log")) == before
    assert git(folder, "status", "--porcelain") == ""


def test_a_good_commit_of_another_branch_is_refused(tmp_path: Path):
    folder = tmp_path / "r"
    hashes = _history(folder, "1.0")
    git(folder, "checkout", "-q", "-b", "side", hashes[0])
    side = commit(folder, "side", {"other": "x"})
    with pytest.raises(InputError, match="no ancestor") as error:
        bisect(Repository(folder), side, "main", _Gate(folder, side), tmp_path / "t")
    assert "merge-base" in error.value.fix


def test_the_result_names_the_commit_and_how_much_each_was_slower(tmp_path, capsys):
    hashes = _history(tmp_path / "r", "1.0", "1.2", "1.2")
    found, _ = _search(tmp_path / "r", hashes[0], hashes[-1])
    print_bisection(found)
    printed = capsys.readouterr().out
    assert "first bad commit: " in printed.splitlines()[-1]
    assert hashes[2][:7] in printed.splitlines()[-1]
    assert "1.2" in next(tested.why for tested in found.tested if tested.why)


def test_a_run_that_fails_for_another_reason_is_no_answer_on_a_time():
    good = cells([made()])
    failed = cells([made(status="failed", reason="boom")])
    found = compare(good, failed, paired=True)
    assert answer_of(found, ["diskgnn +20MiB / epoch"])[0] == "skip"
    assert answer_of(found, ["diskgnn +20MiB / status"])[0] == "bad"
    assert answer_of(found, ["native / reader instructions"])[0] == "good"
