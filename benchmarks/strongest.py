"""Is each baseline at its fastest? Its best setting among the options that its paper
leaves open, at every budget.

    python benchmarks/strongest.py [--systems pyg+ ginex ...] \\
        [--shares 1/16 1/8 ...] [--rounds 1] [--coarse]

A setting is judged by all of its epochs, warm-up included, and its preparation, so
moving work between them gains nothing. Options are varied one after the other, starting
from the default, and improvements are kept (coordinate descent, one pass); settings
that do not fit the budget are printed with the reason. `--counts` compares requests
instead of seconds, which are independent of other load. Ends with code 1 if a default
is more than 10 per cent slower than the fastest setting: then change the default.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from _outcore import started

from harness.records.cost import TrainingCost
from workloads.tempfolder import TemporaryFolder

SLACK = 1.10
SHARES = ["1/16", "1/8", "1/4", "1/2", "1"]
LIST_THREADS = [1, 2, 4, 8, 16]
#: Options left open by each paper, the most effective first. ginex: memory not taken by
#: its neighbour cache keeps rows cached between superbatches, so one size determines
#: the split of memory.
SPACE: dict[str, dict[str, list[Any]]] = {
    "pyg+": {
        "extract_threads": [4, 16, 32, 64, 128],
        "sampling_workers": [1, 2, 4, 8],
        "host_buffers": [1, 2],
    },
    "gnndrive": {
        "extractors": [1, 2, 4, 8],
        "samplers": [1, 2, 4, 8],
        "list_threads": LIST_THREADS,
        "io_depth": [32, 64, 128, 256],
        "feature_buffer": ["auto", "max"],
        "training_queue": [1, 2, 4],
    },
    "ginex": {
        "neighbour_cache": ["auto", "off", "8MiB", "32MiB", "128MiB"],
        "superbatch": [0, 20, 40, 160, 320],
        "list_threads": LIST_THREADS,
        "samplers": [1, 2, 4, 8],
        "readers": [1, 2, 3, 4],
    },
    "ginex-pg": {
        "neighbour_cache": ["auto", "off", "8MiB", "32MiB"],
        "list_threads": LIST_THREADS,
    },
    "ali+pg": {
        "split": ["auto", "0", "25", "50", "75", "100"],
        "list_threads": LIST_THREADS,
        "extractors": [1, 2, 4],
    },
    "diskgnn": {
        "host_cache": ["auto", "off", "16MiB", "64MiB"],
        "disk_limit": ["none", "3x", "1x"],
        "readers": [1, 2, 4],
        "queue": [1, 2, 4],
        "resample_every": [1],
    },
    "agnes": {
        "block_bytes": [1 << 20, 1 << 21, 1 << 22],
        "tiers": ["fill", "average"],
        "samplers": [1, 2],
    },
    "dgl-ondisk": {"sampling_workers": [1, 2, 4, 8], "io_depth": [32, 64, 128, 256]},
    "mariusgnn": {
        "partitions": [0, 32, 64, 128, 256],
        "sampling_workers": [1, 2, 4],
        "prefetch": [1, 2],
    },
}


@dataclass
class Found:
    """Measured cost of one setting.

    Attributes:
        cost: seconds of an epoch over the whole run with its preparation (or requests,
            with --counts).
        failed: reason why there is no cost.
    """

    options: dict[str, Any]
    cost: list[float] = field(default_factory=list)
    failed: str = ""

    @property
    def median(self) -> float:
        """Return the median cost, infinite if the setting does not run."""
        return statistics.median(self.cost) if self.cost else float("inf")

    @property
    def name(self) -> str:
        """Return the options as a user would write them."""
        return (
            " ".join(f"{key}={value}" for key, value in self.options.items())
            or "default"
        )


def outcore(root: Path, *arguments: str) -> dict[str, Any]:
    done = started(root, *arguments, "--json")
    if not done.stdout.strip():
        return {
            "status": "failed",
            "reason": done.stderr[-200:] or "nothing was printed",
        }
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def cost_of(record: dict[str, Any], counts: bool) -> float:
    """Return the cost of an epoch, averaged over the run: seconds with preparation, or
    requests to the device."""
    epochs = record["epochs"]
    if counts:
        asked = [
            epoch["device_requests"] or epoch["diskstats_requests"] or 0
            for epoch in epochs
        ]
        return float(sum(asked)) / len(epochs)
    cost = TrainingCost.of(record)
    assert cost is not None, "every run has a measured epoch"
    return cost.share_s(len(epochs))


def coarse(values: list[Any]) -> list[Any]:
    """Return the first, the middle and the last of an option's values."""
    return [values[at] for at in sorted({0, len(values) // 2, len(values) - 1})]


class Sweep:
    """Runs of one system at one budget, each setting once per round."""

    def __init__(
        self, root: Path, system: str, budget: int, options: argparse.Namespace
    ) -> None:
        self._root = root
        self._system = system
        self._budget = budget
        self._options = options
        self._seen: dict[str, Found] = {}

    def measure(self, chosen: dict[str, Any]) -> Found:
        """Measure a setting, or return its earlier measurement."""
        found = Found(dict(sorted(chosen.items())))
        if found.name in self._seen:
            return self._seen[found.name]
        self._seen[found.name] = found
        for _ in range(self._options.rounds):
            arguments = [
                "run",
                self._system,
                "--dataset",
                "g",
                "--memory",
                f"+{self._budget}",
                "--device",
                self._options.device,
                "--device-memory",
                "32MiB",
                "--batch-size",
                "50",
                "--max-batches",
                str(self._options.batches),
                "--epochs",
                str(self._options.epochs),
                "--disk-class",
                self._options.disk_class,
            ]
            for key, value in chosen.items():
                arguments += ["-o", f"{key}={value}"]
            record = outcore(self._root, *arguments)
            if record.get("status") != "ok":
                found.failed = str(
                    record.get("reason") or record.get("error") or record
                )[:200]
                break
            found.cost.append(cost_of(record, self._options.counts))
        print(
            f"    {found.name:60} {found.median:10.2f}  {found.failed[:90]}", flush=True
        )
        return found

    def run(self) -> tuple[Found, Found]:
        """Return the default and the fastest setting."""
        default = best = self.measure({})
        for option, values in SPACE[self._system].items():
            for value in coarse(values) if self._options.coarse else values:
                tried = self.measure({**best.options, option: value})
                best = min(best, tried, key=lambda found: found.median)
        return default, best


def swept(
    root: Path, options: argparse.Namespace, feature_bytes: int
) -> Iterator[list[Any]]:
    for share in options.shares:
        budget = int(Fraction(share) * feature_bytes)
        for system in options.systems:
            print(
                f"{system} at {share} of the features ({budget >> 20} MiB)", flush=True
            )
            default, best = Sweep(root, system, budget, options).run()
            gain = default.median / best.median if best.cost else float("nan")
            print(f"  best: {best.name}; {gain:.2f}x the default", flush=True)
            yield [
                system,
                share,
                budget,
                best.name,
                best.median,
                default.median,
                default.failed,
                f"{gain:.3f}",
            ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build"),
        help="where the dataset is made and removed",
    )
    parser.add_argument(
        "--systems", nargs="+", default=list(SPACE), choices=list(SPACE)
    )
    parser.add_argument(
        "--shares", nargs="+", default=SHARES, help="budgets, in feature tables"
    )
    parser.add_argument("--nodes", default="2M")
    parser.add_argument("--edges", default="40M")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--device", default="emulated:a10g")
    parser.add_argument("--disk-class", default="aws-nvme/16")
    parser.add_argument("--batches", type=int, default=80, help="mini-batches an epoch")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--coarse",
        action="store_true",
        help="the first, the middle and the last value of each option",
    )
    parser.add_argument(
        "--counts",
        action="store_true",
        help="reads instead of seconds: the same on a busy machine",
    )
    parser.add_argument("--csv", type=Path, help="write the best settings here")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFolder(options.folder, "benchmark") as name:
        root = Path(name)
        outcore(
            root,
            "data",
            "make",
            "g",
            "--kind",
            "kronecker",
            "--nodes",
            options.nodes,
            "--edges",
            options.edges,
            "--dim",
            str(options.dim),
            "--seed",
            "1",
        )
        from workloads.dataset import Dataset

        feature_bytes = Dataset.open(root / "data" / "g").feature_bytes
        rows = list(swept(root, options, feature_bytes))
    head = [
        "system",
        "share",
        "budget_bytes",
        "best",
        "cost",
        "default_cost",
        "default_failed",
        "gain",
    ]
    if options.csv:
        with options.csv.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *rows])
    behind = [row for row in rows if not float(row[-1]) <= SLACK]
    for row in behind:
        print(
            f"{row[0]} at {row[1]}: its default is slower than {row[3]} ({row[-1]}x) "
            f"{row[6]}"
        )
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
