"""`regress check`: build two commits, run the same experiment on both, make one
decision per metric."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from harness.plan.datasets import ensure, recipes_of
from harness.plan.experiment import Experiment, PlannedRun, cells
from harness.regress.decision import Comparison, MetricResult, Rules
from harness.regress.git import Repository
from harness.regress.judge import compare
from harness.regress.measure import instructions
from harness.regress.measure.build import Built, build
from harness.regress.measure.codes import codes, same_code
from harness.regress.measure.schedule import Budget, Pairs, Together, interleave
from harness.regress.measure.side import Side, copy_profiles
from harness.regress.outputs import write
from harness.regress.samples import (
    ConfigSamples,
    RunSample,
    cell_label,
    distinct,
    fingerprints,
    is_deterministic,
)
from harness.results.store import scan
from harness.run.turns import Turns
from workloads.dataset import find_dataset
from workloads.errors import HostError, InputError

Progress = Callable[[str], None]


def check(
    base: str,
    head: str,
    experiment: Experiment,
    *,
    checkout: Path,
    data_root: Path,
    work: Path,
    cache: Path,
    profiles: Path,
    time_budget_s: float,
    rules: Rules,
    pairs: int,
    chunk: int,
    allow_dirty: bool,
    only_changed: bool = False,
    progress: Progress = lambda text: None,
) -> Comparison:
    """Build both commits, run the experiment on both in interleaved pairs, and compare
    their metrics.

    Args:
        base, head: git revisions of the two sides.
        checkout: folder inside the git checkout.
        work: folder for records, logs and the comparison (`check.json`); emptied first.
        cache: folder for builds, reused by later checks.
        profiles: cache folder with device profiles; a recent one serves both sides.
        pairs, chunk: maximum number of pairs per cell, and of cells per call; 1 pair
            with `rules.gate_times` off compares exact metrics alone.
        allow_dirty: whether to leave out uncommitted changes.
        only_changed: whether to run only the cells whose code differs between both
            sides, by the fingerprints that a record has of it.

    Raises:
        InputError: unknown commit, shallow clone, or uncommitted changes without
            `allow_dirty`.
        BuildError: a side cannot be built (exit 3).
    """
    repository = Repository(checkout)
    work = work.resolve()
    commits = {"base": repository.commit(base), "head": repository.commit(head)}
    # Whatever git may refuse is asked before the runs, whose decision must be kept.
    history = _about(repository, commits)
    lines = {side: repository.line(commit) for side, commit in commits.items()}
    declared = repository.declared(*commits.values())
    notes = _dirty(repository, allow_dirty) if head == "HEAD" else []
    if commits["base"] == commits["head"]:
        notes.append("both sides are the same commit: whatever differs is noise")
    planned = list(cells(experiment))
    for name, recipe in recipes_of([experiment]).items():
        ensure(
            name, recipe, data_root, progress
        )  # for both sides, by the running commit's generator
    built = {
        side: build(repository, commit, cache, side, progress)
        for side, commit in commits.items()
    }
    unchanged: list[MetricResult] = []
    if only_changed:
        planned, unchanged = _changed(planned, built)
    shutil.rmtree(work, ignore_errors=True)
    copy_profiles(profiles, work / "profiles")
    data = data_root.resolve() / ".outcore" / "regress"
    sides = {name: Side(name, built[name], work, data) for name in commits}
    began = time.time()
    budget = Budget(time_budget_s)
    try:
        paths = [
            find_dataset(str(cell.settings.dataset), data_root).path.resolve()
            for cell in planned
        ]
        in_turns = pairs > 1 and _can_take_turns(sides, set(paths), data_root, notes)
        tables = [data / f"tables-{number}" for number in range(2)]
        if in_turns:
            progress("copying the datasets, one for each side")
            for path, folder in itertools.product(
                set(paths), tables
            ):  # so that sides share no cached pages
                shutil.copytree(path, folder / path.name, dirs_exist_ok=True)
        for index, (cell, path) in enumerate(zip(planned, paths, strict=True)):
            place = path.name if in_turns else str(path)
            planned[index] = replace(
                cell, settings=cell.settings.model_copy(update={"dataset": place})
            )

        def run(
            side: str, part: Any, pair: int = 0, turns: str | None = None
        ) -> list[RunSample]:
            if in_turns:  # alternate the copies: one may be placed better on the disk
                sides[side].use(tables[(pair + (side == "head")) % 2])
            cells_of_part = [planned[index] for index in part]
            # Digests of all features once: they are off the epoch's clock, but the
            # system's threads go on meanwhile.
            return sides[side].run(
                cells_of_part, work / "profiles", turns, verify=pair == 0
            )

        together = _together(sides, run) if in_turns else None
        systems = [cell.system for cell in planned]
        made = interleave(
            systems,
            run,
            rules,
            budget,
            chunk=chunk,
            most=pairs,
            progress=progress,
            together=together,
        )
    finally:
        shutil.rmtree(data, ignore_errors=True)
    # Only for a note: durations come from the monotonic clock.
    jump = time.time() - began - budget.spent
    if abs(jump) > 1.0:
        notes.append(
            f"the clock was set by {jump:+.0f} s during the check; times are of the "
            "monotonic clock"
        )
    before, after = (_cells(planned, made, side) for side in commits)
    found = compare(before, after, rules, paired=True, declared=declared)
    metrics = [*unchanged, *found.metrics, *_instructions(built, notes, progress)]
    notes += (
        [f"the time budget of {time_budget_s:.0f} s was spent"]
        if not budget.allows(0)
        else []
    )
    details = {
        "profile": experiment.name,
        **history,
        "seconds": budget.spent,
        "time_budget_s": time_budget_s,
        "pairs": [len(pair.base) for pair in made],
        "pairs_in_turns": [
            sum(bool(run.epochs_s) for run in pair.base) for pair in made
        ],
        "rules": asdict(rules),
        "runs": {
            side: [run.run_id for pair in made for run in getattr(pair, side)]
            for side in commits
        },
        "host": min(
            fingerprints(record for _, record in scan(sides["head"].results)),
            default="",
        ),
    }
    result = Comparison(metrics, lines["base"], lines["head"], notes, details)
    write("json", work / "check.json", result)
    return result


def _changed(
    planned: Sequence[PlannedRun], built: Mapping[str, Built]
) -> tuple[list[PlannedRun], list[MetricResult]]:
    """Return the cells whose code differs between both sides, and a metric for each
    other one."""
    before, after = (codes(built[side], planned) for side in ("base", "head"))
    is_same = [one == other for one, other in zip(before, after, strict=True)]
    same = [same_code(cell) for cell in itertools.compress(planned, is_same)]
    differing = [
        cell for cell, equal in zip(planned, is_same, strict=True) if not equal
    ]
    return differing, same


def _about(repository: Repository, commits: Mapping[str, str]) -> dict[str, Any]:
    """Return the commits of both sides with their dates and links, and the commits
    between them, newest first."""
    dates = {side: repository.committed_at(commit) for side, commit in commits.items()}
    return {
        "commits": dict(commits),
        "dates": dates,
        "links": links(repository, commits),
        "range": repository.between(commits["base"], commits["head"]),
    }


def _instructions(
    built: Mapping[str, Built], notes: list[str], progress: Progress
) -> list[MetricResult]:
    """Count instructions of the native parts if their sources differ and valgrind is
    installed."""
    if built["base"].native == built["head"].native:
        return []
    if not instructions.is_there():
        notes.append(
            "native code differs; its instructions were not counted, since valgrind is "
            "not installed"
        )
        return []
    progress("counting instructions of the native parts")
    try:
        counts = {
            side: instructions.count(built[side].python) for side in ("base", "head")
        }
    except HostError as error:
        notes.append(
            f"native code differs; its instructions were not counted: {error.message}"
        )
        return []
    return instructions.compare_counts(counts["base"], counts["head"])


def _dirty(repository: Repository, allow_dirty: bool) -> list[str]:
    """Return a note on uncommitted changes, which a check leaves out; raise InputError
    without `allow_dirty`."""
    changed = repository.text("diff", "--name-only", "HEAD").splitlines()
    if not changed:
        return []
    if not allow_dirty:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise InputError(
            f"the tree has changes that no commit holds ({changed[0]}{more}), and a "
            "check measures commits",
            "commit them, or give --allow-dirty to measure HEAD without them",
        )
    return [
        f"{len(changed)} changed files were left out: HEAD was measured without them"
    ]


def _can_take_turns(
    sides: Mapping[str, Side], paths: set[Path], data_root: Path, notes: list[str]
) -> bool:
    """Return whether epochs of both sides can alternate on these datasets; if not, add
    the reason to `notes`."""
    needed = 2 * sum(file.stat().st_size for path in paths for file in path.iterdir())
    if older := [name for name, side in sides.items() if not side.takes_turns]:
        notes.append(
            f"{older[0]} cannot take turns by epoch yet: runs alternated, which is "
            "less certain on a busy machine"
        )
    elif len({path.name for path in paths}) < len(paths):
        notes.append(
            "datasets of one name lie in several folders: runs alternated, not epochs"
        )
    elif (
        2 * needed > shutil.disk_usage(data_root).free
    ):  # artefacts need space beside the copies
        notes.append(
            "no room for a copy of the datasets for each side: runs alternated, not "
            "epochs"
        )
    else:
        return True
    return False


def _together(
    sides: Mapping[str, Side], run: Callable[..., list[RunSample]]
) -> Together:
    """Return a function that starts both sides at once and lets their epochs
    alternate."""

    def together(
        part: Sequence[int], pair: int, order: tuple[str, str]
    ) -> dict[str, list[RunSample]]:
        def one(side: str) -> list[RunSample]:
            try:
                return run(side, part, pair, turns.address)
            finally:
                turns.all_here()  # the other side must not wait for a failed one

        with Turns(parties=2) as turns, ThreadPoolExecutor(2, "outcore-side") as pool:
            futures = {side: pool.submit(one, side) for side in order}
            try:
                return {side: future.result() for side, future in futures.items()}
            except BaseException:
                for side in order:
                    sides[side].stop()
                raise

    return together


def _cells(
    planned: list[PlannedRun], pairs: list[Pairs], side: str
) -> dict[str, ConfigSamples]:
    """Return cells by their index in the experiment, which is equal on both sides even
    if setting names differ."""
    found = {}
    for index, (cell, pair) in enumerate(zip(planned, pairs, strict=True)):
        key = f"{index:06d}"
        label = cell_label(cell.system, cell.settings.memory)
        system = cell.system
        found[key] = ConfigSamples(
            key, label, system, is_deterministic(system), getattr(pair, side)
        )
    return distinct(found)


def links(repository: Repository, commits: Mapping[str, str]) -> dict[str, str]:
    """Return URLs of the commits and the CI run, by the CI's variables or git's
    `origin`; empty if unknown."""
    server = os.environ.get("GITHUB_SERVER_URL")
    name = os.environ.get("GITHUB_REPOSITORY")
    home = os.environ.get("CI_PROJECT_URL") or (
        f"{server}/{name}" if server and name else ""
    )
    origin = repository.maybe("remote", "get-url", "origin") or ""
    public = re.fullmatch(
        r"(?:https://|git@)(github\.com|gitlab\.com)[:/]([\w.-]+(?:/[\w.-]+)+?)(?:\.git)?/?",
        origin,
    )
    if not home and public:
        home = f"https://{public[1]}/{public[2]}".removesuffix(".git")
    if not home:
        return {}
    between = (
        "/-/commit/"
        if "gitlab" in home or os.environ.get("CI_PROJECT_URL")
        else "/commit/"
    )
    found = {side: f"{home}{between}{commit}" for side, commit in commits.items()}
    run = os.environ.get("GITHUB_RUN_ID")
    if run and server:
        found["run"] = f"{home}/actions/runs/{run}"
    elif os.environ.get("CI_JOB_URL"):
        found["run"] = os.environ["CI_JOB_URL"]
    return found
