"""Is an honest run ever INVALID, and is a disturbed one SPOILT? Many small runs, quiet
and beside load.

    python benchmarks/honest_runs.py [--runs 200] [--phase quiet|load|both] \\
        [--repeat 1] [--seed 1] [--folder DIR]

Settings are drawn at random: graph, feature dimension, sampler, budget, device, disk
class, ranks and isolation, for all systems in turn. Each runs quiet and beside load. A
setting that its system refuses is drawn again. Three promises are judged:

1. no run is INVALID, and none fails;
2. a run whose epoch takes more than 1.3 times as long as that of its setting's fastest
   quiet run is SPOILT;
3. at most 2 % of the quiet runs are SPOILT.

Prints the counts and every run that breaks one, and exits with code 1 if there is one.
The folder keeps all outcomes (`runs.jsonl`) and the judgement (`promises.json`):
another call with the same seed makes the missing runs alone.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from _busy import LOADS, busy
from _honest_outcomes import OFF, Book, Outcome, Promises, facts_of, judge
from plan_promise import Shape, make

from harness.isolation.docker.backend import Docker
from harness.plan.datasets import Recipe, ensure
from harness.plan.experiment import PlannedRun, resolve
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.settings import RunSettings
from systems.registry import load, names
from workloads.dataset import Dataset
from workloads.errors import OutcoreError

#: Draws of a setting before its number is given up.
DRAWS = 6

KRONECKER = "kronecker"
RECIPE = Recipe(
    kind="kronecker", nodes="200k", edges="3M", dim=128, train_fraction=0.05
)
SHAPES = [
    Shape("hubs", dim=1, train=0.1),
    Shape("hubs", dim=16, train=0.1),
    Shape("hubs", nodes=40_000, dim=1024, train=0.2),
    Shape("star", dim=128, train=0.1),
    Shape("isolated", dim=16, train=0.1),
    Shape("loops", dim=128, train=0.1),
]
GRAPHS = [KRONECKER, *(shape.name for shape in SHAPES)]
WORKLOADS = [
    {"sampler": "neighbor", "fanout": [10, 10]},
    {"sampler": "neighbor", "fanout": [5, 5, 5]},
    {"sampler": "layerwise", "fanout": [800, 800]},
]
DEVICES = ["cpu", "emulated:a10g", "emulated:null"]
#: Budgets, of which a draw takes one of three: the first three at first, higher ones
#: after each refusal.
MEMORY = [
    "+32MiB",
    "+64MiB",
    "+128MiB",
    "+256MiB",
    "+384MiB",
    "+512MiB",
    "+512MiB",
    "+512MiB",
]
DISK_CLASSES = ["none", "none", "aws-nvme/16", "aws-gp3/2"]
SHOWN = ("dataset", "sampler", "memory", "device", "disk_class", "ranks")


@dataclass(frozen=True)
class Setting:
    """One drawn setting; `docker`: whether it runs in a container."""

    number: int
    attempt: int
    system: str
    docker: bool
    run: dict[str, Any]

    @property
    def label(self) -> str:
        """Name for a reader."""
        values = [str(self.run[name]) for name in SHOWN]
        return " ".join(
            [
                f"#{self.number}",
                self.system,
                *values,
                "docker" if self.docker else "cgroup",
            ]
        )

    @property
    def planned(self) -> PlannedRun:
        """Run for the harness."""
        return PlannedRun(self.system, RunSettings.model_validate(self.run))


def draw(arguments: argparse.Namespace, number: int, attempt: int = 0) -> Setting:
    """Draw a setting: the parts that must all occur by its number, the others anew at
    each attempt."""
    of_number = random.Random(f"{arguments.seed} {number}")
    of_attempt = random.Random(f"{arguments.seed} {number} {attempt}")
    system = arguments.systems[number % len(arguments.systems)]
    info = load(system).info
    device = of_attempt.choice(DEVICES)
    in_container = of_number.random() < arguments.docker
    run = {
        "dataset": of_number.choice(GRAPHS),
        "ranks": of_number.choice([1, 2]) if info.data_parallel else 1,
        "disk_class": of_number.choice(DISK_CLASSES),
        "device": device,
        "device_memory": None if device == "cpu" else "64MiB",
        "memory": of_attempt.choice(MEMORY[attempt : attempt + 3]),
        "batch_size": of_attempt.choice([50, 100, 200]),
        "max_batches": of_attempt.choice([60, 120]),
        "epochs": 3,
        "hidden": 16,
        "seed": number,
        "timeout": "120s",
        **of_attempt.choice(WORKLOADS),
    }
    return Setting(number, attempt, system, in_container, run)


def outcome_of(series: Series, setting: Setting, kind: str, repeat: int) -> Outcome:
    """Run a setting beside load of a kind; return its outcome, or the reason why it is
    refused."""
    drawn = (setting.number, setting.attempt, setting.label, kind, repeat)
    try:
        config = resolve(setting.planned, series.data_root, series.isolation.name)
        dataset = Dataset.open(series.data_root / config.dataset.name)
        with busy(kind, series.data_root):
            record = execute(series, config, dataset, refuse=True)
    except OutcoreError as error:
        return Outcome(*drawn, refused=str(error))
    if record.status == "unsupported":
        return Outcome(*drawn, refused=record.reason)
    return Outcome(*drawn, **facts_of(record))


def runs_of(arguments: argparse.Namespace, number: int) -> list[tuple[str, int]]:
    """Return load and repetition of each run of a setting. Every second setting runs
    beside load first, so that it is calibrated there."""
    quiet = [("", repeat) for repeat in range(arguments.repeat)]
    loaded = [(list(LOADS)[number % len(LOADS)], 0)]
    if arguments.phase != "both":
        return quiet if arguments.phase == "quiet" else loaded
    return loaded + quiet if number % 2 else quiet + loaded


def make_missing(
    series: Series,
    settings: Sequence[Setting],
    arguments: argparse.Namespace,
    book: Book,
) -> None:
    """Make the runs that the book lacks."""
    configs = [
        resolve(one.planned, series.data_root, series.isolation.name)
        for one in settings
    ]
    series.prepare(configs, Dataset.open(series.data_root / KRONECKER))
    wanted = [
        (one.number, *run) for one in settings for run in runs_of(arguments, one.number)
    ]
    missing = [run for run in wanted if not book.has_run(*run)]
    began = time.monotonic()
    for made, (number, kind, repeat) in enumerate(missing, start=1):
        for attempt in range(book.attempt(number), DRAWS):
            outcome = outcome_of(series, draw(arguments, number, attempt), kind, repeat)
            book.add(outcome)
            if not outcome.refused:
                break
        if made % 10 == 0:
            verdicts = Counter(run.verdict for run in book.outcomes if not run.refused)
            seconds = (time.monotonic() - began) / made
            print(
                f"{made} of {len(missing)} runs, {seconds:.1f} s each: "
                f"{dict(verdicts)}",
                flush=True,
            )


def refuse_others(arguments: argparse.Namespace, book: Book) -> None:
    """Exit where the book has runs of other settings than those that the arguments
    draw."""
    for outcome in book.outcomes:
        if outcome.label != draw(arguments, outcome.number, outcome.attempt).label:
            sys.exit(
                f"{arguments.folder} has runs of other settings, such as "
                f"{outcome.label}: choose another --folder"
            )


def make_all(arguments: argparse.Namespace, book: Book) -> None:
    """Make the datasets and all missing runs, those in containers last."""
    data = arguments.folder / "data"
    ensure(KRONECKER, RECIPE, data, print)
    for shape in SHAPES:
        make(data, shape)
    if arguments.docker and not (found := Docker.available()).ok:
        print(f"NO RUN IN A CONTAINER: {found.reason}", flush=True)
        arguments.docker = 0.0
    refuse_others(arguments, book)
    count = arguments.runs // len(runs_of(arguments, 0))
    settings = [draw(arguments, number) for number in range(count)]
    for isolation in ("auto", "docker"):
        chosen = [one for one in settings if one.docker == (isolation == "docker")]
        if chosen:
            with Series(
                arguments.folder / isolation, data, isolation=isolation
            ) as series:
                make_missing(series, chosen, arguments, book)


def show(found: Promises, outcomes: Sequence[Outcome]) -> None:
    """Print the rules that runs break, each run that breaks a promise, and the
    counts."""
    broken = Counter(name for run in outcomes for name in run.broken)
    for name, count in broken.most_common():
        print(f"  {count:4} {name}")
    for run in found.failed + found.invalid:
        print(f"{named(run)}: {run.status} {run.verdict} {run.reason} {run.broken}")
    for run in found.off:
        ratio = found.ratios[run.run_id]
        print(f"{named(run)}: {ratio:.2f} x, {run.verdict}, {run.noise}")
    print(f"quiet runs: {found.quiet}, {found.quiet_spoilt} of them SPOILT")
    print(f"runs beside load: {found.loaded}, {found.loaded_spoilt} of them SPOILT")
    print(
        f"above {OFF} x the quiet time: {found.off_spoilt} SPOILT, {len(found.off)} not"
    )
    print(
        f"without a quiet run that counts: {found.unpaired}; refused settings, drawn "
        f"again: {found.refused}"
    )
    print(f"INVALID: {len(found.invalid)}; failed: {len(found.failed)}")
    print("all promises are kept" if found.kept else "A PROMISE IS BROKEN", flush=True)


def named(run: Outcome) -> str:
    """Return the name of a run for a reader."""
    return f"{run.label}, load {run.load or 'none'}"


def main() -> int:
    """Make the runs, and print the promises that they break."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--phase", choices=["quiet", "load", "both"], default="both")
    parser.add_argument(
        "--repeat", type=int, default=1, help="quiet runs of each setting"
    )
    parser.add_argument(
        "--docker",
        type=float,
        default=0.1,
        help="share of the settings that run in containers",
    )
    parser.add_argument("--systems", nargs="+", default=names())
    parser.add_argument("--folder", type=Path, default=Path("build/honest"))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    book = Book(arguments.folder / "runs.jsonl")
    make_all(arguments, book)
    found = judge(book.outcomes)
    show(found, book.outcomes)
    (arguments.folder / "promises.json").write_text(
        json.dumps(asdict(found), indent=1), encoding="utf-8"
    )
    return 0 if found.kept else 1


if __name__ == "__main__":
    sys.exit(main())
