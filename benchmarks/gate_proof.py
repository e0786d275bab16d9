"""How often does the regression gate raise a false alarm, and how often does it catch a
deliberate slowdown?

`python -m benchmarks.gate_proof collect --root DIR --seconds 110` makes blocks of real
runs for the given time; called again, it adds blocks. A block has, for each system, two
unchanged runs and one for each slowdown, whose epochs take turns as in a check: a
slowed run spins at the start of each epoch (`harness/regress/slowdown.py`) for that
share of the system's epoch. `--levels 0,0b` adds blocks of the two unchanged runs, for
live comparisons. `python -m benchmarks.gate_proof judge --root DIR` then decides
comparisons with the gate's own code and stopping rule: live ones (blocks as they ran,
each used once) and resampled ones (blocks drawn with replacement, neighbours together);
writes `gate-proof.csv`, and draws `outcore-gate` from a record of it (`--results`: in
the report of that root); exit 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from harness.compare.evidence import load_evidence
from harness.figures.base import chosen
from harness.figures.render import render
from harness.records.environment import describe
from harness.records.hosts import host_fingerprint
from harness.regress.decision import Decision, Rules
from harness.regress.judge import compare
from harness.regress.measure.schedule import Pairs
from harness.regress.ratio import LEAST_SAMPLES
from harness.regress.samples import (
    ConfigSamples,
    RunSample,
    is_deterministic,
    paired,
    sample_of,
)
from harness.regress.studies import Promise, keep_proof
from harness.run.turns import Turn, Turns
from workloads.errors import InputError

#: Slowdowns as shares of the epoch; each block has 0 twice.
LEVELS = (0.0, 0.03, 0.05, 0.10)
SYSTEMS = ("gnndrive", "ginex", "in-memory")
#: Neighbouring blocks drawn together, so that resamples keep drifts over minutes.
TOGETHER = 3
TRIALS = 200
#: Least number of real blocks: resamples of fewer would be near copies of each other
#: and overstate certainty.
LEAST_BLOCKS = 12
#: Most A/A comparisons that may be called regressed, least slowed ones that must be, as
#: shares of all.
MOST_FALSE = 0.01
LEAST_CAUGHT = {0.05: 0.80, 0.10: 0.99}
LEAST_LIVE = 12

Block = dict[
    tuple[str, str], RunSample
]  # (system, level as text; "0" and "0b" for the two unchanged runs)


def collect(
    root: Path,
    data_root: Path,
    seconds: float,
    systems: list[str],
    epochs: int,
    levels: list[str],
    most: int,
) -> None:
    """Make blocks until the time is up, and write each when it is complete."""
    from harness.plan.datasets import ensure, recipes_of
    from harness.plan.experiment import cells, load_experiment, resolve
    from harness.regress.slowdown import slowed
    from harness.run.orchestrator import execute
    from harness.run.series import Series
    from harness.run.spec import TEST_CLOCK_VARIABLE
    from workloads.dataset import Dataset, find_dataset

    began = time.monotonic()
    profile = load_experiment("ci")
    for name, recipe in recipes_of([profile]).items():
        ensure(name, recipe, data_root, lambda text: None)
    planned = {cell.system: cell for cell in cells(profile) if cell.system in systems}
    if missing := [name for name in systems if name not in planned]:
        raise InputError(
            f"profile ci has no {', '.join(missing)}", "choose systems of it"
        )
    blocks = _blocks_file(root)
    waits = root / "waits.json"
    done = sum(1 for _ in blocks.open(encoding="utf-8")) if blocks.exists() else 0
    with Series(root / "results", data_root, progress=lambda text: None) as series:
        configs = {}
        for name, cell in planned.items():
            settings = cell.settings.model_copy(update={"epochs": epochs})
            configs[name] = resolve(
                replace(cell, settings=settings), data_root, series.isolation.name
            )
        (path,) = {
            find_dataset(str(cell.settings.dataset), data_root).path
            for cell in planned.values()
        }
        # As in a check, each side reads its own copy of the files, and the sides swap
        # copies from pair to pair.
        copies = [
            data_root / ".outcore" / "proof" / str(number) / path.name
            for number in range(len(levels))
        ]
        for copy in copies:
            if not copy.exists():
                shutil.copytree(path, copy)
        series.prepare(list(configs.values()), Dataset.open(copies[0]))

        def run(
            system: str, wait_s: float, copy: Path, turn: Turn, *, in_turns: bool
        ) -> RunSample:
            turn.take()
            try:
                # The worker starts before any other run gets a turn.
                os.environ.pop(TEST_CLOCK_VARIABLE, None)
                if wait_s:
                    os.environ[TEST_CLOCK_VARIABLE] = slowed(wait_s)
                record = execute(series, configs[system], Dataset.open(copy), turn=turn)
                # A run slowed on purpose is INVALID for that; the proof is on what its
                # times show.
                return replace(sample_of(record, in_turns=in_turns), broken=None)
            finally:
                os.environ.pop(TEST_CLOCK_VARIABLE, None)
                turn.close()

        def beside(system: str, order: list[str]) -> dict[str, RunSample]:
            """Run all levels at once, with epochs in turns."""

            def one(turns: Turns, level: str) -> RunSample:
                copy = copies[(levels.index(level) + done) % len(copies)]
                return run(
                    system,
                    found[system] * _level(level),
                    copy,
                    Turn(turns.address),
                    in_turns=True,
                )

            with Turns(parties=len(order)) as turns:
                return in_processes(
                    {level: partial(one, turns, level) for level in order}
                )

        found = json.loads(waits.read_text()) if waits.exists() else {}
        for system in systems:
            if system not in found:
                run(
                    system, 0.0, copies[0], Turn(), in_turns=False
                )  # prepares, calibrates and warms up
                found[system] = 0.0
                # In turns, since a system alone on the machine is not as fast as beside
                # others that wait.
                samples = beside(system, levels[:2]).values()
                found[system] = median(
                    one.noisy["epoch"] / int(one.exact["batches"][-1] or 0)
                    for one in samples
                )
                waits.write_text(json.dumps(found))
        longest = 0.0
        while time.monotonic() - began + longest < seconds and done < most:
            start = time.monotonic()
            shuffle = random.Random(done)
            line = []
            for system in systems:
                order = shuffle.sample(levels, len(levels))
                for level, sample in beside(system, order).items():
                    if sample.status != "ok":
                        sys.exit(
                            f"gate_proof: {sample.run_id} ended as {sample.status}: "
                            f"{sample.reason}"
                        )
                    line.append(
                        {"system": system, "level": level, "run": asdict(sample)}
                    )
            with blocks.open("a", encoding="utf-8") as out:
                out.write(
                    json.dumps(
                        {
                            "block": done,
                            "seconds": time.monotonic() - start,
                            "runs": line,
                        }
                    )
                    + "\n"
                )
            done += 1
            longest = max(longest, time.monotonic() - start)
    print(f"{done} blocks in {blocks}, the longest of this call {longest:.0f} s")


def in_processes(works: Mapping[str, Callable[[], RunSample]]) -> dict[str, RunSample]:
    """Make runs at once, each in a forked process, since a process may have one run at
    a time; exit on a failure."""
    fork = multiprocessing.get_context("fork")
    made = {}
    for name, work in works.items():
        answer = fork.SimpleQueue()
        process = fork.Process(
            target=lambda put=answer.put, work=work: put(work()), daemon=True
        )
        process.start()
        made[name] = (process, answer)
    for process, _ in made.values():
        process.join()
    if failed := [name for name, (process, _) in made.items() if process.exitcode]:
        sys.exit(
            f"gate_proof: the runs {', '.join(failed)} ended with an error, which "
            "stands above"
        )
    return {name: answer.get() for name, (_, answer) in made.items()}


def _blocks_file(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    return root / "blocks.jsonl"


def _name(level: float) -> str:
    return f"{level:g}"


def _level(name: str) -> float:
    return float(name.removesuffix("b"))


def read(root: Path) -> tuple[list[Block], float]:
    """Return the blocks, and the mean seconds of one run."""
    blocks = []
    seconds = 0.0
    runs = 0
    with _blocks_file(root).open(encoding="utf-8") as lines:
        for line in lines:
            content = json.loads(line)
            blocks.append(
                {
                    (entry["system"], entry["level"]): RunSample(**entry["run"])
                    for entry in content["runs"]
                }
            )
            seconds += content["seconds"]
            runs += len(content["runs"])
    return blocks, seconds / max(1, runs)


def _holding(blocks: list[Block], level: float) -> list[Block]:
    """Return the blocks that have runs of the slowdown."""
    return [block for block in blocks if any(name == _name(level) for _, name in block)]


def decide(
    chosen: list[Block],
    levels: tuple[str, str],
    rules: Rules,
    most: int,
    *,
    extra: int = 0,
) -> Decision:
    """Make one comparison as the gate does: pair after pair until every cell is decided
    or `most` pairs are used."""
    systems = sorted({system for system, _ in chosen[0]})
    pairs = {system: Pairs() for system in systems}
    for block in chosen[:most]:
        for system, pair in pairs.items():
            if len(pair.base) and pair.is_complete(rules):
                continue
            pair.base.append(block[system, levels[0]])
            pair.head.append(_with_requests(block[system, levels[1]], extra))
    base, head = (
        {
            s: ConfigSamples(s, s, s, is_deterministic(s), getattr(pair, side))
            for s, pair in pairs.items()
        }
        for side in ("base", "head")
    )
    return compare(base, head, rules, paired=True).decision


def _with_requests(run: RunSample, extra: int) -> RunSample:
    """Return the run with `extra` more requests in its last epoch."""
    if not extra or "io_requests" not in run.exact:
        return run
    counts = [*run.exact["io_requests"]]
    counts[-1] = int(counts[-1] or 0) + extra
    return replace(run, exact={**run.exact, "io_requests": counts})


def drawn(blocks: list[Block], count: int, rng: random.Random) -> list[Block]:
    """Draw `count` blocks with replacement in groups of neighbours."""
    chosen: list[Block] = []
    while len(chosen) < count:
        start = rng.randrange(len(blocks))
        chosen += [blocks[(start + k) % len(blocks)] for k in range(TOGETHER)]
    return chosen[:count]


def judge(root: Path, results: Path, budget_s: float, pairs: int) -> int:
    """Judge every promise and keep the power curve under `results`; return 0 if all
    promises are kept."""
    blocks, run_s = read(root)
    fewest = min(len(_holding(blocks, level)) for level in LEVELS)
    if fewest < LEAST_BLOCKS:
        sys.exit(
            f"gate_proof: {fewest} whole blocks; resampling needs {LEAST_BLOCKS} at "
            "least: collect more"
        )
    rules = Rules()
    systems = sorted({system for system, _ in blocks[0]})
    most = pairs or max(LEAST_SAMPLES, int(budget_s / (2 * run_s * len(systems))))
    print(
        f"{len(blocks)} blocks of {', '.join(systems)}, {run_s:.1f} s a run; {most} "
        f"pairs in {budget_s:.0f} s\n"
    )
    rows: list[dict[str, Any]] = []
    grown = {level: _growth(blocks, systems, level) for level in LEVELS[1:]}
    for level, shares in grown.items():
        print(
            f"slowed by {100 * level:g} %: epochs grew by "
            + ", ".join(f"{s} {100 * g:+.1f} %" for s, g in shares.items())
        )
    for count in sorted({LEAST_SAMPLES, (LEAST_SAMPLES + most) // 2, most}):
        for level in LEVELS:
            with_level = _holding(blocks, level)
            rng = random.Random(f"{count}/{level}")
            message = Counter[Decision]()
            for _ in range(TRIALS):
                sides = ("0", "0b") if rng.random() < 0.5 else ("0b", "0")
                sides = sides if level == 0 else (sides[0], _name(level))
                message[decide(drawn(with_level, count, rng), sides, rules, count)] += 1
            share = message["regressed"] / TRIALS
            rows.append(
                {
                    "pairs": count,
                    "slowed": level,
                    "regressed": share,
                    **{k: v / TRIALS for k, v in message.items()},
                }
            )
    full = {row["slowed"]: row["regressed"] for row in rows if row["pairs"] == most}
    promises = [
        _promise(
            f"A/A, {TRIALS} resampled, called regressed",
            full[0.0],
            MOST_FALSE,
            slowed=0.0,
        )
    ]
    for level, least in LEAST_CAUGHT.items():
        what = f"slowed by {100 * level:g} %, caught"
        promises.append(_promise(what, full[level], least, least=True, slowed=level))
    promises.append(_live(blocks, rules))
    rng = random.Random("requests")
    caught = sum(
        decide(drawn(blocks, 1, rng), ("0", "0b"), rules, 1, extra=1) == "regressed"
        for _ in range(TRIALS)
    )
    promises.append(
        _promise(
            "one request more, caught from one pair", caught / TRIALS, 1.0, least=True
        )
    )
    with (root / "gate-proof.csv").open("w", newline="", encoding="utf-8") as out:
        table = csv.DictWriter(
            out,
            ["pairs", "slowed", "regressed", "same", "undecided", "improved"],
            restval=0.0,
        )
        table.writeheader()
        table.writerows(rows)
    params = {
        "systems": systems,
        "blocks": len(blocks),
        "trials": TRIALS,
        "budget_s": budget_s,
    }
    keep_proof(results, host_fingerprint(describe(root)), params, rows, promises)
    (figure,) = render(
        chosen("outcore-gate"), load_evidence(results), results / "figures"
    )
    print(
        f"\n{root / 'gate-proof.csv'}, "
        f"{figure.files[0] if figure.files else figure.reason}"
    )
    return 0 if all(promise.kept for promise in promises) else 1


def _live(blocks: list[Block], rules: Rules) -> Promise:
    """Judge comparisons of consecutive runs of a system; no run is used twice."""
    systems = sorted({system for system, _ in blocks[0]})
    message: Counter[Decision] = Counter()
    for start in range(0, len(blocks) - LEAST_SAMPLES + 1, LEAST_SAMPLES):
        window = blocks[start : start + LEAST_SAMPLES]
        for system in systems:
            only = [
                {key: run for key, run in block.items() if key[0] == system}
                for block in window
            ]
            message[decide(only, ("0", "0b"), rules, LEAST_SAMPLES)] += 1
    total = sum(message.values())
    print(f"live A/A comparisons of {LEAST_SAMPLES} pairs: {dict(message)}")
    false = message["regressed"] / max(1, total)
    made = _promise(
        f"A/A, {total} live (at least {LEAST_LIVE}), called regressed", false, 0.0
    )
    return replace(made, kept=made.kept and total >= LEAST_LIVE)


def _growth(blocks: list[Block], systems: list[str], level: float) -> dict[str, float]:
    def growth(system: str) -> float:
        whole = _holding(blocks, level)
        base, head = (
            [block[system, name] for block in whole] for name in ("0", _name(level))
        )
        both = paired(base, head, "epoch")
        return median(after / before for before, after in both) - 1

    return {system: growth(system) for system in systems}


def _promise(
    what: str,
    found: float,
    bound: float,
    *,
    least: bool = False,
    slowed: float | None = None,
) -> Promise:
    kept = found >= bound if least else found <= bound
    print(f"{'kept  ' if kept else 'BROKEN'} {what}: {100 * found:.1f} %")
    return Promise(what, found, bound, least, kept, slowed)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=["collect", "judge"])
    parser.add_argument(
        "--root", type=Path, default=Path("build/gate-proof"), help="where samples lie"
    )
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument(
        "--seconds",
        type=float,
        default=110.0,
        help="collect: begin no block that would end later",
    )
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument(
        "--epochs", type=int, default=8, help="of a run, one of them warm-up"
    )
    parser.add_argument(
        "--levels",
        default=",".join(["0b", *map(_name, LEVELS)]),
        help="collect: runs of a block",
    )
    parser.add_argument(
        "--blocks",
        type=int,
        default=10_000,
        help="collect: in all, with those that are there",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=600.0,
        help="judge: seconds of the gate's time budget",
    )
    parser.add_argument(
        "--results",
        type=Path,
        help="judge: results root whose report is to show it; else below --root",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=0,
        help="judge: pairs instead of what fits the budget",
    )
    options = parser.parse_args()
    if options.do == "collect":
        systems = [name.strip() for name in options.systems.split(",")]
        levels = [name.strip() for name in options.levels.split(",")]
        collect(
            options.root,
            options.data_root,
            options.seconds,
            systems,
            options.epochs,
            levels,
            options.blocks,
        )
        return 0
    return judge(
        options.root,
        options.results or options.root / "results",
        options.budget,
        options.pairs,
    )


if __name__ == "__main__":
    sys.exit(main())
