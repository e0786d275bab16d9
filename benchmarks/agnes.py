"""`outcore` against `agnes`: same graph, same cap, in turns, over several budgets and SSD classes.

    python benchmarks/agnes.py [--classes none aws-nvme/16 ...] [--memory +64MiB ...] [--rounds 3] [--root FOLDER]

A cell is a class and a budget. Prints for each the median epoch of both (of a run its median measured epoch, then the
median over the rounds), the spread, the ratio and how each read its rows, then the median ratio of the storage-bound
cells. Exit 1 if `outcore` is slower in any of these, or less than 1.3 times as fast at the median.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _outcore import outcore

SYSTEMS = ("outcore", "agnes")
TARGET = 1.3
CLASSES = ["none", "aws-nvme", "aws-nvme/16", "aws-gp3", "samsung-pm883", "samsung-pm1725b", "intel-s3510"]
BUDGETS = ["+64MiB", "0.125x", "0.25x"]
HOW = {"outcore": "strategy", "agnes": "hyperbatch"}


def run(root: Path, system: str, chosen: argparse.Namespace, memory: str, disk_class: str) -> dict[str, Any]:
    """Run a system once in one cell; return its record."""
    settings = {
        "dataset": "g",
        "memory": memory,
        "device": chosen.device,
        "device-memory": "32MiB",
        "batch-size": chosen.batch_size,
        "fanout": chosen.fanout,
        "max-batches": chosen.batches,
        "epochs": chosen.epochs,
        "disk-class": disk_class,
    }
    words = (word for name, value in settings.items() for word in (f"--{name}", str(value)))
    return outcore(root, "run", system, *words)


def compare(root: Path, chosen: argparse.Namespace, memory: str, disk_class: str) -> tuple[float, bool] | None:
    """Measure one cell; return the ratio and whether all runs are storage-bound, None where a system did not finish."""
    epochs: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    bound, how = True, {}
    for number in range(chosen.rounds):
        for system in SYSTEMS if number % 2 == 0 else SYSTEMS[::-1]:
            try:
                record = run(root, system, chosen, memory, disk_class)
            except SystemExit as refused:
                print(f"{disk_class:>16} {memory:>8}  {system}: {refused}", flush=True)
                return None
            if record["status"] != "ok":
                said = f"{system}: {record['status']}: {record.get('reason', '')}"
                print(f"{disk_class:>16} {memory:>8}  {said}", flush=True)
                return None
            epochs[system].append(record["summary"]["epoch_s"]["median"])
            bound &= record["class"] == "storage-bound"
            how[system] = f"{HOW[system]} {record['notes'].get(HOW[system], '?')}"
    ours, theirs = (statistics.median(epochs[system]) for system in SYSTEMS)
    seconds = "  ".join(
        f"{system} {statistics.median(found):7.2f} s ({min(found):.2f} to {max(found):.2f}; {how[system]})"
        for system, found in epochs.items()
    )
    said = "" if bound else "  (not storage-bound)"
    print(f"{disk_class:>16} {memory:>8}  {seconds}  {theirs / ours:5.2f}x{said}", flush=True)
    return theirs / ours, bound


def main() -> int:
    """Measure all cells and judge the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", nargs="+", default=CLASSES)
    parser.add_argument("--memory", nargs="+", default=BUDGETS, help="budgets, as `outcore run --memory`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", default="2M")
    parser.add_argument("--edges", default="40M")
    parser.add_argument("--dim", default="128")
    parser.add_argument("--device", default="emulated:a10g")
    parser.add_argument("--batch-size", default="50")
    parser.add_argument("--fanout", default="10,10,10")
    parser.add_argument("--batches", default="80", help="mini-batches an epoch")
    parser.add_argument("--epochs", default="3")
    parser.add_argument("--root", type=Path, help="folder that keeps data and results; default: a temporary one")
    chosen = parser.parse_args()
    with ExitStack() as opened:
        root = chosen.root
        if root is None:
            Path("build").mkdir(exist_ok=True)
            root = Path(opened.enter_context(tempfile.TemporaryDirectory(dir="build", prefix="outcore-agnes-")))
        if not (root / "data" / "g").is_dir():
            shape = ("--nodes", chosen.nodes, "--edges", chosen.edges, "--dim", chosen.dim, "--seed", "1")
            outcore(root, "data", "make", "g", "--kind", "kronecker", *shape)
        cells = [
            found
            for disk_class in chosen.classes
            for memory in chosen.memory
            if (found := compare(root, chosen, memory, disk_class)) is not None
        ]
    ratios = [ratio for ratio, bound in cells if bound]
    if not ratios:
        print("no storage-bound cell was measured")
        return 1
    median = statistics.median(ratios)
    print(f"{len(ratios)} storage-bound cells: least {min(ratios):.2f}x, median {median:.2f}x (targets 1 and {TARGET})")
    return int(min(ratios) < 1.0 or median < TARGET)


if __name__ == "__main__":
    sys.exit(main())
