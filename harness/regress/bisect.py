"""`regress bisect`: the first bad commit between two, by `git bisect` in a worktree of
its own and the gate's decision on each commit that it asks for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.regress.decision import Comparison, Decision, MetricResult
from harness.regress.git import Repository
from harness.regress.measure.build import BuildError
from workloads.errors import HostError, InputError

#: Answers of git's protocol: a good commit, a bad one, one that cannot be judged.
Answer = Literal["good", "bad", "skip"]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Tested:
    """A commit that was compared with the good one. `line`: its short hash and
    subject; `why`: the numbers or the error behind the answer."""

    commit: str
    line: str
    answer: Answer
    why: str = ""


@dataclass(frozen=True)
class Bisection:
    """Result of a search.

    Attributes:
        good, bad: short hash and subject of both ends.
        decision: decision on the bad end, compared with the good one.
        regressed: names of the metrics that regressed from good to bad, the worst
            first; without any there is nothing to search for.
        candidates: lines of the commits of which one is the first bad commit, oldest
            last; one, unless commits beside it could not be judged.
        tested: every commit that was tested, in order.
    """

    good: str
    bad: str
    decision: Decision
    regressed: list[str] = field(default_factory=list)
    candidates: list[str] = field(default_factory=list)
    tested: list[Tested] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON; `first_bad` is None where several commits are
        left."""
        only = self.candidates[0] if len(self.candidates) == 1 else None
        return {"first_bad": only, **asdict(self)}


def bisect(
    repository: Repository,
    good: str,
    bad: str,
    compare: Callable[[str, Collection[str]], Comparison],
    folder: Path,
    progress: Progress = lambda text: None,
) -> Bisection:
    """Search the first commit after `good`, up to `bad`, that regresses one of the
    metrics that `bad` regresses.

    Args:
        compare: (commit, systems) -> the gate's comparison of the commit with `good`,
            of these systems alone; empty: of all.
        folder: place of git's worktree; removed afterwards.

    Raises:
        InputError: an unknown commit, or `good` is no ancestor of `bad`.
        HostError: `bad` cannot be compared here, or git failed.
    """
    commits = {"good": repository.commit(good), "bad": repository.commit(bad)}
    if not repository.is_ancestor(commits["good"], commits["bad"]):
        raise InputError(
            f"{good} is no ancestor of {bad}, so no commit lies between them",
            f"give a good commit of its history, like git merge-base {good} {bad}",
        )
    ends = {side: repository.line(commit) for side, commit in commits.items()}
    whole = compare(commits["bad"], ())
    wanted = _regressed(whole)
    names = [metric.metric for metric in wanted]
    if not wanted:
        return Bisection(ends["good"], ends["bad"], whole.decision)
    # A label begins with the name of the system; instruction counts have none.
    cells = {metric.cell for metric in wanted} - {"native"}
    systems = {cell.split()[0] for cell in cells}
    tested: list[Tested] = []

    def judge(commit: str) -> Answer:
        line = repository.line(commit)
        try:
            answer, why = answer_of(compare(commit, systems), names)
        except BuildError as error:
            answer, why = "skip", error.message
        tested.append(Tested(commit, line, answer, why))
        progress(f"{line}: {answer} ({why})")
        return answer

    left = search(repository, commits["good"], commits["bad"], judge, folder)
    lines = [repository.line(commit) for commit in left]
    decision = whole.decision
    return Bisection(ends["good"], ends["bad"], decision, names, lines, tested)


def _regressed(found: Comparison) -> list[MetricResult]:
    """Return the gating metrics that regressed, the largest ratio first."""
    metrics = [
        metric
        for metric in found.metrics
        if metric.gates and metric.decision == "regressed"
    ]
    return sorted(metrics, key=lambda metric: -(metric.ratio or 0.0))


def answer_of(found: Comparison, names: Collection[str]) -> tuple[Answer, str]:
    """Return git's answer for a comparison by the named metrics, with its reason.

    One that regressed makes the commit bad, one that is undecided or missing makes it
    a commit to skip. Instruction counts are missing where native sources are equal.
    """
    by_name = {metric.metric: metric for metric in found.metrics}
    undecided = ""
    for name in names:
        metric = by_name.get(name)
        if metric is None:
            native = name.startswith("native / ")
            undecided = undecided or ("" if native else f"{name} is missing")
        elif metric.decision == "regressed":
            moved = f" {metric.ratio:.3f} times" if metric.ratio else ""
            return "bad", f"{name}{moved}"
        elif metric.decision == "undecided":
            undecided = undecided or f"{name} is undecided"
    return ("skip", undecided) if undecided else ("good", "no longer regressed")


def search(
    repository: Repository,
    good: str,
    bad: str,
    judge: Callable[[str], Answer],
    folder: Path,
) -> list[str]:
    """Return the commits of which one is the first bad commit, newest first: one,
    unless commits that were skipped lie beside it.

    `git bisect` runs without a checkout in a worktree in `folder`, whose state is its
    own: neither the user's branch nor a search of the user's is touched.
    """
    if folder.exists():
        repository.remove_worktree(folder)
        shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    repository.add_worktree(folder, bad)
    try:
        git = Repository(folder)
        git.text("bisect", "start", "--no-checkout", bad, good)
        skipped: set[str] = set()
        left = _left(git)
        # The newest one is known to be bad.
        while set(left[1:]) - skipped:
            commit = git.text("rev-parse", "BISECT_HEAD")
            answer = judge(commit)
            # An error too, where only skipped commits are left.
            git.maybe("bisect", answer, commit)
            if answer == "skip":
                skipped.add(commit)
                continue
            before = left
            left = _left(git)
            if left == before:
                raise HostError("git bisect took no answer", "start the search again")
        return left
    finally:
        repository.remove_worktree(folder)


def _left(git: Repository) -> list[str]:
    """Return the commits that may be the first bad one, the known bad one first."""
    goods = "--glob=refs/bisect/good-*"
    found = git.text("rev-list", "refs/bisect/bad", "--not", goods).splitlines()
    if not found:
        raise HostError("git bisect lost its place", "start the search again")
    return found
