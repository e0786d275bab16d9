"""`outcore` against `agnes`: same graph, same cap, in turns, on the bare device and under every SSD class.

    python benchmarks/agnes.py [--quick] [--classes none aws-nvme/16 ...] [--memory 0.12x 0.15x] [--root FOLDER]

A cell is a class and a budget. In its first round `agnes` is tuned: other settings of `look_ahead` and `block_bytes`
are tried one after the other and the fastest is kept for all rounds; `outcore` keeps its defaults. With `--quick` the
first class has all budgets, the others take turns at them, and the setting found first at a budget serves all classes.

The kernel limits reads and writes of a class separately, but most drives have one budget for both
(`within_the_shared_budget`). The clock is judged; beside it stands the ratio of epochs that take at least the seconds
of their reads and writes under that budget, less the rule's tolerance.

Prints for each cell the median epoch of both and how each read its rows, and the ratio of the epochs of a round: its
median, least and greatest. Exit 1 if `outcore` is slower in some cell, in all rounds, or less than 1.3 times as fast at
the median of the storage-bound cells; other cells are named and not judged.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from _outcore import outcore

from harness.judge.io import RATE_TOLERANCE, SLICE_S
from harness.judge.predict import predict
from harness.plan.experiment import PlannedRun, resolve
from harness.records.record import Record
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.settings import RunSettings
from workloads.dataset import Dataset
from workloads.tempfolder import TemporaryFolder

OURS, THEIRS = "outcore", "agnes"
TARGET = 1.3
#: Every SSD class, divided by as much as a virtual disk of 1 GB and 80,000 requests a second needs to reach it.
CLASSES = ["none", "aws-nvme/16", "aws-gp3/4", "samsung-pm883/2", "samsung-pm1725b/16", "intel-s3510"]
#: Settings of `agnes` that are tried, one option after the other.
TRIED: dict[str, list[Any]] = {"look_ahead": ["on", "training"], "block_bytes": [256 << 10, 4 << 20]}
#: Defaults of the full and of the quick comparison: an epoch uses about a third of the rows, each five times, which is
#: more than twice the larger budget.
FULL = {"nodes": "2M", "edges": "40M", "batch-size": 200, "device-memory": "80MiB", "epochs": 3, "rounds": 3}
QUICK = {"nodes": "500k", "edges": "10M", "batch-size": 50, "device-memory": "20MiB", "epochs": 2, "rounds": 2}
NOTES = {OURS: "strategy", THEIRS: "hyperbatch"}


@dataclass
class Bench:
    """Runs of both systems in one series.

    Attributes:
        tuned: options of `agnes` found before, by cell or, in the quick comparison, by budget.
    """

    series: Series
    dataset: Dataset
    chosen: argparse.Namespace
    tuned: dict[str, dict[str, Any]] = field(default_factory=dict)

    def settings(self, memory: str, disk_class: str, options: Mapping[str, Any]) -> RunSettings:
        """Return the settings of a run."""
        chosen = self.chosen
        return RunSettings(
            dataset="g",
            memory=memory,
            hidden=32,
            fanout=chosen.fanout.split(","),
            batch_size=chosen.batch_size,
            max_batches=chosen.batches,
            epochs=chosen.epochs,
            device=chosen.device,
            device_memory=chosen.device_memory,
            disk_class=disk_class,
            options=dict(options),
        )

    def prepare(self) -> None:
        """Measure the device, bare and under each class."""
        cells = [self.settings(self.chosen.memory[0], disk_class, {}) for disk_class in self.chosen.classes]
        self.series.prepare([self._config(OURS, one) for one in cells], self.dataset)

    def _config(self, system: str, settings: RunSettings) -> Any:
        return resolve(PlannedRun(system, settings), self.series.data_root, self.series.isolation.name)

    def run(self, system: str, memory: str, disk_class: str, options: Mapping[str, Any]) -> Record:
        """Run a system once in one cell."""
        return execute(self.series, self._config(system, self.settings(memory, disk_class, options)), self.dataset)

    def budgets(self, record: Record) -> list[float]:
        """Return the seconds of a run's measured epochs, each at least those of its class's budget."""
        profile = self.series.profile(record.config)
        found = []
        for epoch in record.measured:
            seconds = epoch.seconds
            if profile is not None and profile.limited and (least := predict(epoch, profile, None)):
                seconds = max(seconds, (least.own_s + least.page_cache_s) / RATE_TOLERANCE - SLICE_S)
            found.append(seconds)
        return found

    def tune(self, memory: str, disk_class: str) -> dict[str, Any]:
        """Return the fastest options of `agnes` in a cell, from one run of each; none where no run ends well."""
        key = memory if self.chosen.quick else f"{memory} {disk_class}"
        if key in self.tuned:
            return self.tuned[key]
        best: dict[str, Any] = {}
        default = self.run(THEIRS, memory, disk_class, best)
        seconds, tried = epoch_s(default), [f"default {shown_s(default)}"]
        for option, values in TRIED.items():
            for value in values:
                if value == default.notes.get(option):
                    continue  # what `auto` has chosen
                record = self.run(THEIRS, memory, disk_class, {**best, option: value})
                tried.append(f"{option}={value} {shown_s(record)}")
                if epoch_s(record) < seconds:
                    seconds, found = epoch_s(record), {**best, option: value}
                    best = found
        print(f"{disk_class:>18} {memory:>8}  agnes tuned: {', '.join(tried)}", flush=True)
        self.tuned[key] = best
        return best


@dataclass
class Cell:
    """Measured epochs of both systems in one cell.

    Attributes:
        epochs: seconds of the measured epochs by system, a list for each round.
        bound: whether all runs are storage-bound.
        how: each system's way of reading rows.
        verdicts: verdicts of the runs.
        budgets: median epoch of each round by system, at least the seconds of its class's one budget.
    """

    epochs: dict[str, list[list[float]]] = field(default_factory=lambda: {OURS: [], THEIRS: []})
    bound: bool = True
    how: dict[str, str] = field(default_factory=dict)
    verdicts: list[str] = field(default_factory=list)
    budgets: dict[str, list[float]] = field(default_factory=lambda: {OURS: [], THEIRS: []})

    def add(self, system: str, record: Record, budgets: list[float]) -> None:
        """Add a run that ended well, and the seconds of its epochs under a class's one budget."""
        self.epochs[system].append([epoch.seconds for epoch in record.measured])
        self.budgets[system].append(statistics.median(budgets))
        self.bound &= record.class_ == "storage-bound"
        self.how[system] = f"{NOTES[system]} {record.notes.get(NOTES[system], '?')}"
        self.verdicts.append(record.verdict)

    @property
    def ratios(self) -> list[float]:
        """Ratio of the median epochs of each round: theirs over ours."""
        pairs = zip(self.epochs[THEIRS], self.epochs[OURS], strict=True)
        return [statistics.median(theirs) / statistics.median(ours) for theirs, ours in pairs]

    def shown(self) -> str:
        """Return the cell as a line."""
        parts = []
        for system, rounds in self.epochs.items():
            every = [seconds for found in rounds for seconds in found]
            median = f"{statistics.median(every):6.2f} s ({min(every):.2f} to {max(every):.2f}; {self.how[system]})"
            parts.append(f"{system} {median}")
        ratios = self.ratios
        ratio = f"{statistics.median(ratios):5.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"
        ratio += f" (one budget {statistics.median(self.budgets[THEIRS]) / statistics.median(self.budgets[OURS]):.2f}x)"
        counted = ", ".join(f"{self.verdicts.count(one)} {one}" for one in dict.fromkeys(self.verdicts))
        return f"{'  '.join(parts)}  {ratio}  {counted}{'' if self.bound else '  not storage-bound: not judged'}"


def epoch_s(record: Record) -> float:
    """Return the median measured epoch of a run, infinite where it did not end well."""
    measured = [epoch.seconds for epoch in record.measured]
    return statistics.median(measured) if record.status == "ok" and measured else float("inf")


def shown_s(record: Record) -> str:
    """Return a run's epoch, or the reason why it has none."""
    return f"{epoch_s(record):.2f} s" if record.status == "ok" else f"{record.status}: {record.reason}"


def measured(bench: Bench) -> Iterator[tuple[str, Cell]]:
    """Measure and print the cells; yield those in which both systems ran."""
    for memory, disk_class in cells_of(bench.chosen):
        cell, name = Cell(), f"{disk_class:>18} {memory:>8}"
        options = {OURS: {}, THEIRS: bench.tune(memory, disk_class)}
        for number in range(bench.chosen.rounds):
            for system in (OURS, THEIRS) if number % 2 == 0 else (THEIRS, OURS):
                record = bench.run(system, memory, disk_class, options[system])
                if epoch_s(record) == float("inf"):
                    print(f"{name}  {system} {shown_s(record)}", flush=True)
                    break
                cell.add(system, record, bench.budgets(record))
            else:
                continue
            break
        else:
            print(f"{name}  {cell.shown()}", flush=True)
            yield f"{disk_class} at {memory}", cell


def cells_of(chosen: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the cells, each a budget and a class."""
    first, *others = chosen.classes
    if not chosen.quick:
        return [(memory, disk_class) for memory in chosen.memory for disk_class in chosen.classes]
    return [(memory, first) for memory in chosen.memory] + list(zip(cycle(chosen.memory), others, strict=False))


def judge(cells: dict[str, Cell]) -> int:
    """Print the judgement of the storage-bound cells; return the exit code."""
    bound = {name: cell.ratios for name, cell in cells.items() if cell.bound}
    if not bound:
        print("no storage-bound cell was measured")
        return 1
    slower = [name for name, ratios in bound.items() if max(ratios) < 1.0]
    medians = [statistics.median(ratios) for ratios in bound.values()]
    median = statistics.median(medians)
    said = f"least {min(medians):.2f}x, median {median:.2f}x (targets 1 and {TARGET})"
    print(f"{len(bound)} of {len(cells)} cells are storage-bound: {said}")
    if slower:
        print(f"outcore is slower: {', '.join(slower)}")
    return int(bool(slower) or median < TARGET)


def arguments() -> argparse.Namespace:
    """Return the command line's arguments, with the defaults of the comparison chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the graph: about 8 minutes on two cores")
    parser.add_argument("--classes", nargs="+", default=CLASSES)
    parser.add_argument("--memory", nargs="+", default=["0.12x", "0.15x"], help="budgets, as `outcore run --memory`")
    for name, value in FULL.items():
        parser.add_argument(f"--{name}", type=type(value), help=f"default {value}, with --quick {QUICK[name]}")
    parser.add_argument("--dim", default="256")
    parser.add_argument("--device", default="emulated:a10g")
    parser.add_argument("--batches", type=int, default=64, help="mini-batches an epoch")
    parser.add_argument("--fanout", default="10,10,10")
    parser.add_argument("--root", type=Path, help="folder that keeps data and results; default: a temporary one")
    chosen = parser.parse_args()
    for name, value in (QUICK if chosen.quick else FULL).items():
        key = name.replace("-", "_")
        setattr(chosen, key, value if getattr(chosen, key) is None else getattr(chosen, key))
    return chosen


def main() -> int:
    """Measure all cells and judge the ratios."""
    chosen, began = arguments(), time.monotonic()
    with ExitStack() as opened:
        root = chosen.root
        if root is None:
            Path("build").mkdir(exist_ok=True)
            root = Path(opened.enter_context(TemporaryFolder(Path("build"), "benchmark")))
        if not (root / "data" / "g").is_dir():
            shape = ("--nodes", chosen.nodes, "--edges", chosen.edges, "--dim", chosen.dim, "--seed", "1")
            outcore(root, "data", "make", "g", "--kind", "kronecker", *shape)
        series = opened.enter_context(Series(root / "results", root / "data"))
        bench = Bench(series, Dataset.open(root / "data" / "g"), chosen)
        bench.prepare()
        cells = dict(measured(bench))
    code = judge(cells)
    print(f"{(time.monotonic() - began) / 60:.1f} minutes")
    return code


if __name__ == "__main__":
    sys.exit(main())
