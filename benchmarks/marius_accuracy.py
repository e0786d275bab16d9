"""Accuracy of mariusgnn against in-memory, by real training on the processor: the cost of sampling inside the buffer.

    python benchmarks/marius_accuracy.py GRAPH [--format npz] [--expand 8] [--partitions 32] [--epochs 10]

GRAPH, a labelled graph (such as `amazon-computers.npz`), is imported and expanded; then a GraphSAGE is trained on it by
in-memory and by mariusgnn with a small buffer, a medium one and one for all partitions. As in DiskGNN (Section 7), the
test accuracy is that of the epoch with the best validation accuracy, measured on the whole graph. Prints a table as
Markdown. Ends with code 1 unless the largest buffer gives exactly the in-memory accuracy and the small one a lower
mean.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from systems.interface import DiskProfile, MemoryBudget, Runtime, StageClock
from systems.registry import load
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.sampling.make import make_sampler
from workloads.tempfolder import TemporaryFolder
from workloads.training import Trainer
from workloads.workload import ModelSpec, SamplerSpec, Workload

SHARES = {"small": 0.1, "medium": 0.4, "all": 1.0}
_EVALUATION = 60_000  # epoch number for the draws of evaluation, beyond all training epochs


def outcore(root: Path, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-c", "from harness.cli import main; main()", *arguments, "--json"],
        env={**os.environ, "OUTCORE_DATA": str(root / "data")},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def make(root: Path, args: argparse.Namespace) -> Dataset:
    split = ["--train-fraction", str(args.train), "--valid-fraction", "0.02", "--test-fraction", "0.04"]
    outcore(root, "data", "import", "base", str(args.graph), "--format", args.format, *split)
    if args.expand <= 1:
        return Dataset.open(root / "data" / "base")
    outcore(root, "data", "make", "g", "--kind", args.kind, "--base", "base", "--expand", str(args.expand), *split)
    return Dataset.open(root / "data" / "g")


def accuracy(trainer: Trainer, workload: Workload, part: str, features: torch.Tensor) -> float:
    """Return the share of a split's nodes classified correctly, sampled in the whole graph."""
    dataset = workload.dataset
    sampler = make_sampler(workload)
    nodes = dataset.load(part)  # type: ignore[arg-type]
    batches = (sampler.sample(_EVALUATION, i, nodes[i * 500 : (i + 1) * 500]) for i in range(-(-len(nodes) // 500)))
    return trainer.evaluate((batch, features, torch.from_numpy(batch.nodes)) for batch in batches)


def train(root: Path, workload: Workload, name: str, epochs: int, **options: Any) -> tuple[float, dict[str, Any]]:
    """Return the test accuracy at the best validation accuracy, and the system's notes."""
    dataset = workload.dataset
    features = torch.from_numpy(dataset.load("features"))
    runtime = Runtime(make_accelerator("cpu"), DiskProfile(), root / "artefacts", root / "scratch", os.cpu_count() or 1)
    chosen = load(name).info.options.model_validate(options)
    trainer = Trainer(workload.model, dataset.dim, dataset.num_classes, runtime.accelerator, workload.seed)
    system = load(name)(workload, runtime, MemoryBudget(None), chosen, StageClock())
    best, edges = (-1.0, -1.0), []
    try:
        system.plan()
        system.prepare()
        for k in range(epochs):
            for batch in system.epoch(k):
                assert isinstance(batch.table, torch.Tensor)
                trainer.step(batch.sampled, batch.table, batch.rows)
                edges.append(batch.sampled.num_edges)
                batch.release()
            valid = accuracy(trainer, workload, "valid", features)
            if valid > best[0]:
                best = (valid, accuracy(trainer, workload, "test", features))
        return best[1], {"edges": statistics.mean(edges), **system.notes()}
    finally:
        system.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path, help="the file of a labelled graph")
    parser.add_argument("--format", default="npz")
    parser.add_argument("--kind", default="kronecker", help="of the expansion")
    parser.add_argument("--expand", type=int, default=8, help="copies of its nodes; 1: the graph itself")
    parser.add_argument("--train", type=float, default=0.02, help="share of the nodes to train on")
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where the dataset is made and removed")
    args = parser.parse_args()
    with TemporaryFolder(args.folder, "benchmark") as name:
        root = Path(name)
        dataset = make(root, args)
        labels = dataset.load("labels")[dataset.load("test")]
        most = np.bincount(labels).max() / len(labels)
        print(
            f"{args.graph.name}, {args.kind} x {args.expand}: {dataset.num_nodes:,} nodes, {dataset.num_edges:,} "
            f"edges, {len(dataset.load('train')):,} train, {args.epochs} epochs; the largest class alone: {most:.4f}\n"
        )
        print("| system | buffer | edges a mini-batch | test accuracy | by seed |\n| --- | --- | ---: | ---: | --- |")
        means: dict[str, list[float]] = {}
        for label in ("in-memory", *SHARES):
            found, note = [], {"edges": 0.0}
            for seed in args.seeds:
                workload = Workload(
                    dataset, SamplerSpec(fanout=(10, 10), batch_size=100), ModelSpec(layers=2, hidden=64), seed=seed
                )
                options: dict[str, Any] = {}
                if label != "in-memory":
                    options = {"partitions": args.partitions, "buffer": max(2, round(SHARES[label] * args.partitions))}
                system = "in-memory" if label == "in-memory" else "mariusgnn"
                value, note = train(root, workload, system, args.epochs, **options)
                found.append(value)
            means[label] = found
            print(
                f"| {system} | {note.get('buffer', '–')} | {note['edges']:,.0f} | {statistics.mean(found):.4f} | "
                f"{', '.join(f'{value:.4f}' for value in found)} |",
                flush=True,
            )
        exact = means["all"] == means["in-memory"]
        lower = statistics.mean(means["small"]) < statistics.mean(means["in-memory"])
        print(
            f"\nall partitions buffered: {'exactly in-memory' if exact else 'NOT in-memory'}; "
            f"small buffer: {'lower' if lower else 'NOT lower'}"
        )
    return 0 if exact and lower else 1


if __name__ == "__main__":
    sys.exit(main())
