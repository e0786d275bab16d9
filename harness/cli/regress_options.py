"""Options of the verbs of `outcore regress`: how to measure, how to decide, where
baselines lie."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import OnBoth, OnResults, Options
from harness.plan.experiment import Experiment, load_experiment
from harness.progress import Progress
from harness.regress.decision import Comparison, Rules
from harness.regress.git import Repository, checkout
from harness.regress.history import History, load
from harness.regress.outputs import KINDS
from harness.regress.store import BranchStore, FolderStore, Store
from harness.settings import parse_seconds, unknown_name
from workloads.errors import InputError

Checkout = Annotated[Path, typer.Option("--repository", help="the git checkout")]


@dataclass(frozen=True, kw_only=True)
class Deciding(Options):
    """Options of the decisions."""

    min_effect: Annotated[
        float, typer.Option(help="least relative change of a time", min=0.0, max=10.0)
    ] = 0.03
    alpha: Annotated[
        float,
        typer.Option(
            help="chance of one false decision over all metrics together",
            min=1e-6,
            max=0.5,
        ),
    ] = 0.02
    gate: Annotated[
        str, typer.Option(help="all, or exact: times are shown and decide nothing")
    ] = "all"
    seed: Annotated[int, typer.Option(help="of the order of runs")] = 0

    def rules(self) -> Rules:
        """Return the parameters of the decisions; raise InputError for an unknown
        gate."""
        if self.gate not in ("all", "exact"):
            raise InputError(f"--gate is {self.gate!r}", "choose all or exact")
        return Rules(
            min_effect=self.min_effect,
            alpha=self.alpha,
            seed=self.seed,
            gate_times=self.gate == "all",
        )


@dataclass(frozen=True, kw_only=True)
class Judging(Deciding):
    """Options of the decisions and of their outputs."""

    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            help="KIND=FILE: markdown, junit, json, github-benchmark, bmf, asv (a "
            "folder)",
        ),
    ] = None

    def outputs(self) -> list[tuple[str, Path]]:
        """Return (kind, path) of each output; raise InputError for an unknown kind."""
        found = []
        for text in self.output or []:
            kind, sign, file = text.partition("=")
            if not sign or not file or kind not in KINDS:
                raise InputError(
                    f"--output {text!r} is not KIND=FILE",
                    f"KIND is one of {', '.join(KINDS)}",
                )
            found.append((kind, Path(file)))
        return found


@dataclass(frozen=True, kw_only=True)
class Baselines(Options):
    """Options of the place of baselines."""

    baselines: Annotated[
        Path | None, typer.Option(help="folder of baselines; default RESULTS/baselines")
    ] = None
    branch: Annotated[
        str, typer.Option(help="baselines are on this branch, like outcore-baselines")
    ] = ""

    def store_in(self, results_root: Path, repository: Path) -> Store:
        """Return the store of baselines; raise InputError where two are given."""
        if self.branch and self.baselines is not None:
            raise InputError(
                "--baselines and --branch are two places for one history",
                "give one of them",
            )
        if self.branch:
            return BranchStore(Repository(repository), self.branch)
        return FolderStore(self.baselines or results_root / "baselines")

    def history_in(self, results_root: Path, repository: Path) -> History:
        """Return the baselines in the order of their commits; without a checkout, by
        date."""
        return load(self.store_in(results_root, repository), checkout(repository))


@dataclass(frozen=True, kw_only=True)
class OnBaselines(Baselines, OnResults):
    """Options of a verb that uses baselines."""

    repository: Checkout = Path()

    def store(self) -> Store:
        """Return the store of baselines."""
        return self.store_in(self.results_root, self.repository)

    def history(self) -> History:
        """Return the baselines."""
        return self.history_in(self.results_root, self.repository)


@dataclass(frozen=True, kw_only=True)
class Measuring(Options):
    """Options of a measurement of two commits."""

    profile: Annotated[
        str, typer.Option(help="a profile, or an experiment in YAML")
    ] = "ci"
    systems: Annotated[
        str, typer.Option(help="only these systems, separated by commas")
    ] = ""
    time_budget: Annotated[
        str, typer.Option(help="measure no longer than this, like 600s or 20min")
    ] = "600s"
    pairs: Annotated[
        int, typer.Option(help="pairs of runs a system at most", min=1)
    ] = 60
    chunk: Annotated[
        int,
        typer.Option(help="systems in one call; fewer bring both sides nearer", min=1),
    ] = 4
    repository: Checkout = Path()
    work: Annotated[
        Path | None,
        typer.Option(help="records and logs of the check; default RESULTS/regress"),
    ] = None
    cache: Annotated[
        Path | None,
        typer.Option(help="builds, kept; default build/regress in the checkout"),
    ] = None
    allow_dirty: Annotated[
        bool,
        typer.Option("--allow-dirty", help="measure HEAD without the tree's changes"),
    ] = False
    changed: Annotated[
        bool, typer.Option("--changed", help="run only systems whose code differs")
    ] = False

    def checkout(self) -> Repository:
        """Return the git checkout."""
        return Repository(self.repository)

    def experiment(self) -> Experiment:
        """Return the experiment with the chosen systems; raise InputError for an
        unknown one."""
        wanted = [name.strip() for name in self.systems.split(",")]
        return _only(load_experiment(self.profile), [name for name in wanted if name])

    def folder(self, call: OnBoth) -> Path:
        """Return the folder of records and logs."""
        return self.work or call.results_root / "regress"

    def builds(self) -> Path:
        """Return the folder of builds."""
        return self.cache or self.checkout().path / "build" / "regress"

    def compare(
        self,
        base: str,
        head: str,
        rules: Rules,
        call: OnBoth,
        progress: Progress,
        *,
        systems: Collection[str] = (),
        work: Path | None = None,
    ) -> Comparison:
        """Build, run and compare two commits, with the named systems alone if any is
        named; `work` in place of `folder`."""
        from harness.regress.check import check

        return check(
            base,
            head,
            _only(self.experiment(), systems),
            checkout=self.checkout().path,
            data_root=call.data_root,
            work=work or self.folder(call),
            cache=self.builds(),
            profiles=call.results_root / "cache",
            time_budget_s=parse_seconds(self.time_budget, "time budget"),
            rules=rules,
            pairs=self.pairs,
            chunk=self.chunk,
            allow_dirty=self.allow_dirty,
            only_changed=self.changed,
            progress=progress,
        )


def _only(experiment: Experiment, wanted: Collection[str]) -> Experiment:
    """Return the experiment with the named systems only; with all of its systems if
    none is named."""
    if not wanted:
        return experiment
    named = [
        entry if isinstance(entry, str) else str(entry.get("name"))
        for entry in experiment.systems
    ]
    for name in wanted:
        if name not in named:
            raise unknown_name(
                "system of this experiment",
                f"system {name!r}",
                name,
                sorted(set(named)),
            )
    kept = [
        entry
        for entry, name in zip(experiment.systems, named, strict=True)
        if name in wanted
    ]
    return experiment.model_copy(update={"systems": kept})
