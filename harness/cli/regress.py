"""`outcore regress`: compare two commits or two folders, keep baselines, find steps in a history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.common import (
    DATA,
    RESULTS,
    DataRoot,
    Json,
    Progress,
    Quiet,
    ResultsRoot,
    Verbose,
    print_json,
    unwind_on_signals,
)

if TYPE_CHECKING:
    from harness.plan.experiment import Experiment
    from harness.regress.decision import Comparison, Rules
    from harness.regress.history import History
    from harness.regress.store import Store

app = typer.Typer(
    help="Epoch-time regressions: exit code 1 only for *regressed*, 3 where a side cannot be built.",
    no_args_is_help=True,
)

MinEffect = Annotated[float, typer.Option(help="share by which a time has to move", min=0.0, max=10.0)]
Alpha = Annotated[float, typer.Option(help="chance of one false decision over all metrics together", min=1e-6, max=0.5)]
Seed = Annotated[int, typer.Option(help="of the order and the resampling")]
Gate = Annotated[str, typer.Option(help="all, or exact: times are shown and decide nothing")]
Output = Annotated[
    list[str] | None,
    typer.Option("--output", "-o", help="KIND=FILE: markdown, junit, json, github-benchmark, bmf or asv (a folder)"),
]

Baselines = Annotated[Path | None, typer.Option(help="folder of baselines; default RESULTS/baselines")]
Branch = Annotated[str, typer.Option(help="keep baselines on this branch instead, like outcore-baselines")]
Checkout = Annotated[Path, typer.Option("--repository", help="the git checkout")]


@app.command()
def check(
    base: Annotated[str, typer.Option("--base", help="commit to hold HEAD against, like origin/main or HEAD~1")],
    head: Annotated[str, typer.Option(help="commit that is checked")] = "HEAD",
    profile: Annotated[str, typer.Option(help="a profile, or an experiment in YAML")] = "ci",
    systems: Annotated[str, typer.Option(help="only these systems, separated by commas")] = "",
    time_budget: Annotated[str, typer.Option(help="measure no longer than this, like 600s or 20min")] = "600s",
    pairs: Annotated[int, typer.Option(help="pairs of runs a system at most", min=1)] = 60,
    chunk: Annotated[int, typer.Option(help="systems in one call; fewer bring both sides nearer", min=1)] = 4,
    min_effect: MinEffect = 0.03,
    alpha: Alpha = 0.02,
    gate: Gate = "all",
    seed: Seed = 0,
    repository: Checkout = Path(),
    work: Annotated[Path | None, typer.Option(help="records and logs of the check; default RESULTS/regress")] = None,
    cache: Annotated[Path | None, typer.Option(help="builds, kept; default build/regress in the checkout")] = None,
    allow_dirty: Annotated[bool, typer.Option("--allow-dirty", help="measure HEAD without the tree's changes")] = False,
    output: Output = None,
    data_root: DataRoot = DATA,
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Build two commits, run the same experiment on both in turns, and decide each metric."""
    from harness.plan.experiment import load_experiment
    from harness.regress.check import CheckPlan
    from harness.regress.check import check as run_check
    from harness.regress.git import Repository
    from harness.settings import parse_seconds

    outputs = _outputs(output)
    path = Path(profile)
    experiment = load_experiment(path if path.suffix in (".yaml", ".yml") else profile)
    top = Repository(repository).path
    plan = CheckPlan(
        repository=top,
        base=base,
        head=head,
        experiment=_only(experiment, systems),
        data_root=data_root,
        work=work or results_root / "regress",
        cache=cache or top / "build" / "regress",
        time_budget_s=parse_seconds(time_budget, "time budget"),
        rules=_rules(min_effect, alpha, seed, gate),
        pairs=pairs,
        chunk=chunk,
        allow_dirty=allow_dirty,
    )
    unwind_on_signals()
    progress = Progress(quiet=quiet or json_, verbose=verbose)
    found = run_check(plan, progress.keep)
    progress.done()
    _tell(found, outputs, json_=json_)


@app.command()
def compare(
    base: Annotated[Path | None, typer.Option(help="results root to hold it against; else the baselines")] = None,
    baselines: Baselines = None,
    branch: Branch = "",
    min_effect: MinEffect = 0.03,
    alpha: Alpha = 0.02,
    gate: Gate = "all",
    seed: Seed = 0,
    repository: Checkout = Path(),
    output: Output = None,
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Hold the runs of a results root against another root's, or against the baselines of this machine."""
    from harness.regress.folders import compare_folders, compare_history

    outputs, rules = _outputs(output), _rules(min_effect, alpha, seed, gate)
    if base is not None:
        _tell(compare_folders(base, results_root, rules), outputs, json_=json_)
        return
    history = _history(baselines, branch, results_root, repository)
    _tell(compare_history(results_root, history, rules), outputs, json_=json_)


@app.command()
def record(
    baselines: Baselines = None,
    branch: Branch = "",
    repository: Checkout = Path(),
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Keep the runs of a results root as the baseline of their commit on this machine."""
    from harness.regress import history
    from harness.regress.folders import read_runs
    from harness.regress.git import Repository

    notes: list[str] = []
    records = read_runs(results_root, notes)
    kept = history.record(records, _store(baselines, branch, results_root, repository), Repository(repository))
    if json_:
        print_json({"kept": kept, "runs": len(records), "notes": notes})
        return
    for line in [*notes, *(f"kept {place}" for place in kept)]:
        print(line)


@app.command()
def trend(
    baselines: Baselines = None,
    branch: Branch = "",
    host: Annotated[str, typer.Option(help="fingerprint of a machine; else the one with most entries")] = "",
    min_effect: MinEffect = 0.03,
    repository: Checkout = Path(),
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Find steps in the baselines of one machine, name the commits they lie between, and draw `outcore-trend`."""
    import time

    from harness.compare.evidence import load_evidence
    from harness.figures.base import chosen, render
    from harness.regress.trend import trends
    from harness.regress.trend_record import keep
    from workloads.errors import InputError

    began = time.monotonic()
    history = _history(baselines, branch, results_root, repository)
    counts = {entry.host: len(history.of(entry.host)) for entry in history.entries}
    if not counts:
        raise InputError("there is no history", "keep baselines with `outcore regress record`")
    if host and host not in counts:
        raise InputError(f"there is no history of machine {host!r}", f"there is {', '.join(sorted(counts))}")
    series = trends(history, min_effect=min_effect, hosts=[host or max(counts, key=lambda name: counts[name])])
    keep(results_root, series, min_effect, time.monotonic() - began)
    drawn = render(chosen("outcore-trend"), load_evidence(results_root), results_root / "figures")[0]
    if json_:
        print_json(
            {
                "series": [entry.to_json() for entry in series],
                "notes": history.notes,
                "figure": {"status": drawn.status, "reason": drawn.reason, "files": list(map(str, drawn.files))},
            }
        )
        return
    from harness.regress.outputs.terminal import print_trend
    from harness.table import console

    print_trend(series, history.notes, console())
    print(f"figure outcore-trend: {drawn.files[0] if drawn.files else drawn.reason}")


def _store(baselines: Path | None, branch: str, results_root: Path, repository: Path) -> Store:
    from harness.regress.git import Repository
    from harness.regress.store import BranchStore, FolderStore
    from workloads.errors import InputError

    if branch and baselines is not None:
        raise InputError("--baselines and --branch are two places for one history", "give one of them")
    return (
        BranchStore(Repository(repository), branch) if branch else FolderStore(baselines or results_root / "baselines")
    )


def _history(baselines: Path | None, branch: str, results_root: Path, repository: Path) -> History:
    from harness.regress.git import Repository
    from harness.regress.history import load
    from workloads.errors import OutcoreError

    store = _store(baselines, branch, results_root, repository)
    try:
        known = Repository(repository)
    except OutcoreError:
        known = None  # without a checkout, commits are ordered by their dates
    return load(store, known)


def _rules(min_effect: float, alpha: float, seed: int, gate: str) -> Rules:
    from harness.regress.decision import Rules
    from workloads.errors import InputError

    if gate not in ("all", "exact"):
        raise InputError(f"--gate is {gate!r}", "choose all or exact")
    return Rules(min_effect=min_effect, alpha=alpha, seed=seed, gate_times=gate == "all")


def _only(experiment: Experiment, systems: str) -> Experiment:
    """Return the experiment with the named systems only; with all of its systems if none is named."""
    from harness.settings import unknown_name

    wanted = [name.strip() for name in systems.split(",") if name.strip()]
    if not wanted:
        return experiment
    named = [entry if isinstance(entry, str) else str(entry.get("name")) for entry in experiment.systems]
    for name in wanted:
        if name not in named:
            raise unknown_name("system of this experiment", f"system {name!r}", name, sorted(set(named)))
    kept = [entry for entry, name in zip(experiment.systems, named, strict=True) if name in wanted]
    return experiment.model_copy(update={"systems": kept})


def _outputs(given: list[str] | None) -> list[tuple[str, Path]]:
    from harness.regress.outputs import KINDS
    from workloads.errors import InputError

    found = []
    for text in given or []:
        kind, sign, file = text.partition("=")
        if not sign or not file or kind not in KINDS:
            raise InputError(f"--output {text!r} is not KIND=FILE", f"KIND is one of {', '.join(KINDS)}")
        found.append((kind, Path(file)))
    return found


def _tell(found: Comparison, outputs: list[tuple[str, Path]], *, json_: bool) -> None:
    from harness.regress.outputs import write

    for kind, path in outputs:
        write(kind, path, found)
    if json_:
        print_json(found.to_json())
    else:
        from harness.regress.outputs.terminal import print_comparison
        from harness.table import console

        print_comparison(found, console())
    if found.exit_code:
        raise typer.Exit(found.exit_code)
