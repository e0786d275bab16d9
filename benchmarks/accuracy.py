"""Accuracy of real training through each system under a cap: by epoch, and on test nodes after the last epoch.

    python benchmarks/accuracy.py [GRAPH.npz] [--systems gnndrive,ginex,mariusgnn] [--root build/accuracy]

GRAPH.npz is a labelled graph (amazon-computers), imported and expanded with `kronecker`; without it one is generated.
`in-memory`, uncapped, is the reference. Prints a table as Markdown. Exit 1 if a run fails, the reference is not well
above the majority class, or the test accuracy of a faithful system is more than half a point off the reference's.
Systems that are not faithful (`mariusgnn`, `…+pp`) are printed but not judged.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from _outcore import outcore

from harness.records.record import COUNTED
from systems.registry import load

REFERENCE = "in-memory"
TOLERANCE = 0.005
ABOVE_MAJORITY = 0.2


def make(root: Path, graph: Path | None, expand: int) -> str:
    """Make the dataset if it does not exist, and return its name."""
    splits = ["--train-fraction", "0.3", "--test-fraction", "0.1"]
    if graph is None:
        outcore(
            root,
            "data",
            "make",
            "generated",
            "--kind",
            "rmat",
            "--nodes",
            "100k",
            "--edges",
            "1.5M",
            "--dim",
            "128",
            *splits,
        )
        return "generated"
    base, name = graph.stem, f"{graph.stem}-kronecker-{expand}"
    if not (root / "data" / base / "dataset.json").exists():
        outcore(root, "data", "import", base, str(graph), "--format", "npz", "--dim", "128")
    outcore(
        root,
        "data",
        "make",
        name,
        "--kind",
        "kronecker",
        "--base",
        base,
        "--expand",
        str(expand),
        "--dim",
        "128",
        *splits,
    )
    return name


def train(root: Path, dataset: str, system: str, options: argparse.Namespace) -> dict[str, Any]:
    memory = "none" if system == REFERENCE else options.memory
    return outcore(
        root,
        "run",
        system,
        "--dataset",
        dataset,
        "--device",
        "cpu",
        "--memory",
        memory,
        "--batch-size",
        str(options.batch_size),
        "--epochs",
        str(options.epochs),
        "--warmup",
        "1",
        "--model",
        options.model,
        "--fanout",
        options.fanout,
        "--hidden",
        "64",
        "--test-nodes",
        "10000",
        "--disk-class",
        options.disk_class,
    )


def test_of(record: dict[str, Any]) -> float:
    return float(record.get("notes", {}).get("test_accuracy", "nan"))


def line(system: str, record: dict[str, Any], reference: float) -> str:
    curve = " ".join(f"{100 * (epoch['accuracy'] or 0):.1f}" for epoch in record["epochs"])
    faithful = "yes" if load(system).info.faithful else "no"
    test = test_of(record)
    return (
        f"| {system} | {faithful} | {record['status']} | {record['verdict']} | {curve} | {100 * test:.2f} "
        f"| {100 * (test - reference):+.2f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph", type=Path, nargs="?")
    parser.add_argument("--systems", default="pyg+,gnndrive,mariusgnn", help="beside in-memory")
    parser.add_argument("--root", type=Path, default=Path("build/accuracy"))
    parser.add_argument("--expand", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--memory", default="+96MiB")
    # A table this small may be in the host's own cache, faster than any device profile; a class limits its rate.
    parser.add_argument("--disk-class", default="aws-nvme/16", help="SSD class of every run; none: the bare device")
    parser.add_argument("--model", default="sage")
    parser.add_argument("--fanout", default="10,5")
    parser.add_argument("--batch-size", type=int, default=500)
    options = parser.parse_args()
    options.root.mkdir(parents=True, exist_ok=True)
    dataset = make(options.root, options.graph, options.expand)
    # Loaded, not mapped: pages of a mapping could not be evicted before the runs.
    labels = np.load(options.root / "data" / dataset / "labels.npy")
    labelled = labels[labels >= 0]
    majority = np.bincount(labelled).max() / len(labelled)
    print(f"{dataset}: {len(labels):,} nodes, {int(labels.max()) + 1} classes, majority class {100 * majority:.1f} %\n")
    print("| system | faithful | status | verdict | training accuracy by epoch, % | test, % | to in-memory |")
    print("| --- | --- | --- | --- | --- | ---: | ---: |")
    sound, reference = True, float("nan")
    for system in [REFERENCE, *(name for name in options.systems.split(",") if name and name != REFERENCE)]:
        record = train(options.root, dataset, system, options)
        test = test_of(record)
        if system == REFERENCE:
            reference = test
            sound &= test > majority + ABOVE_MAJORITY
        sound &= record["verdict"] in COUNTED
        if load(system).info.faithful:
            sound &= record["status"] == "ok" and abs(test - reference) <= TOLERANCE
        print(line(system, record, reference), flush=True)
    print(f"\nlearnt, and faithful systems sound and within half a point: {'yes' if sound else 'NO'}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
