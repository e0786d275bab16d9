"""Our reimplementations against the software they stand for: same graph, same memory, rounds in turns.

    python benchmarks/real_others.py [--rounds 3] [--disk-class none|CLASS] [--memory +160MiB] [--pairs …]

Ratios of epoch times, medians over the rounds: `pyg` over `pyg+`; GraphBolt, plain and without read-ahead, over
`gnndrive` and `outcore`; DGL's loader over `dgl-ondisk`. Systems whose environment is not set up are left out and
named. The graph has more features than memory, so that all are storage-bound; a run that is not says so. Exit 1 if a
target is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from _outcore import outcore

#: Ours, theirs with its options, and the least ratio of epoch times (None: printed only).
PAIRS: dict[str, tuple[str, str, list[str], float | None]] = {
    "pyg": ("pyg+", "env:pyg", [], 2.0),
    "graphbolt-gnndrive": ("gnndrive", "env:graphbolt", [], 2.0),
    "graphbolt-outcore": ("outcore", "env:graphbolt", [], 5.0),
    "strengthened-gnndrive": ("gnndrive", "env:graphbolt", ["madvise=random"], 2.0),
    "strengthened-outcore": ("outcore", "env:graphbolt", ["madvise=random"], 5.0),
    "dgl": ("dgl-ondisk", "env:dgl", [], None),
}
GRAPH = "--kind kronecker --nodes 500k --edges 4M --dim 512 --train-fraction 0.04"


def run(root: Path, system: str, options: list[str], chosen: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Run a system once; return its record."""
    words = f"--dataset {chosen.dataset} --memory {chosen.memory} --model {chosen.model} --fanout {chosen.fanout}"
    words += f" --hidden 32 --batch-size {chosen.batch_size} --epochs {chosen.epochs} --disk-class {chosen.disk_class}"
    more = [word for option in options for word in ("-o", option)]
    return outcore(root, "run", system, *words.split(), "--seed", str(seed), "--timeout", "2h", *more)


def epoch_seconds(record: dict[str, Any]) -> float | None:
    """Return the median of a run's measured epochs; None if it did not end well."""
    measured = [float(epoch["seconds"]) for epoch in record["epochs"] if not epoch["warmup"]]
    return statistics.median(measured) if record["status"] == "ok" and measured else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="*", default=list(PAIRS), choices=list(PAIRS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3, help="of each run, the first of them warming up")
    parser.add_argument("--disk-class", default="none")
    parser.add_argument("--memory", default="+160MiB", help="beyond interpreter, libraries and a training step of each")
    parser.add_argument("--model", default="sage")
    parser.add_argument("--fanout", default="10,10,10")
    parser.add_argument("--batch-size", type=int, default=250)
    parser.add_argument("--dataset", default="others")
    parser.add_argument("--data", type=Path, help="folder with data/DATASET; without it a graph is made and removed")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outcore-others-", dir="/var/tmp") as temporary:
        root = chosen.data or Path(temporary)
        if not (root / "data" / chosen.dataset).is_dir():
            outcore(root, "data", "make", chosen.dataset, *GRAPH.split())
        return measure(root, chosen)


def measure(root: Path, chosen: argparse.Namespace) -> int:
    """Run every system of the chosen pairs once a round and compare the medians."""
    wanted = [PAIRS[name] for name in chosen.pairs]
    seconds: dict[tuple[str, tuple[str, ...]], list[float]] = {}
    for ours, theirs, options, _ in wanted:
        seconds |= {(ours, ()): [], (theirs, tuple(options)): []}
    for number in range(chosen.rounds):
        for system, more in seconds:
            record = run(root, system, list(more), chosen, number)
            found = epoch_seconds(record)
            rows = record["epochs"][-1]["counters"].get("rows") if record["epochs"] else None
            how = f"{found:8.2f} s" if found else f"{record['status']}: {record['reason']}"
            print(f"round {number}  {' '.join((system, *more)):32} {how}  rows {rows}  {record['verdict']}", end="")
            print(f"  {record['class'] or ''}  cap {(record['memory']['cap_bytes'] or 0) >> 20} MiB", flush=True)
            seconds[system, more] += [found] if found else []
    missed = False
    for ours, theirs, options, target in wanted:
        pair = seconds[ours, ()], seconds[theirs, tuple(options)]
        name = " ".join((theirs, *options))
        if not all(pair):
            print(f"{name} / {ours}: left out, one of them has no epoch")
            continue
        ratio = statistics.median(pair[1]) / statistics.median(pair[0])
        reached = target is None or ratio >= target
        wish = f", at least {target:g}x{'' if reached else ': MISSED'}" if target else ""
        print(f"{name} / {ours}: {ratio:.2f}x{wish}")
        missed = missed or not reached
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
