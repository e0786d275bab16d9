"""Comparison of systems on expanded real graphs: amazon-computers (features, labels) and web-NotreDame (topology).

    python benchmarks/real_graphs.py GRAPHS [--root build/real]

GRAPHS holds `amazon-computers.npz` and `web-NotreDame.txt.gz`, also in subfolders. Both are imported and expanded to at
least a million nodes with `kronecker` and with `fractal`, and pyg+, gnndrive and in-memory are compared on them under a
cap, storage-bound. Then a GraphSAGE is really trained on the expanded amazon-computers through gnndrive. Prints tables
as Markdown. Exit 1 if a run is invalid, digests differ or the accuracy is not well above the majority class.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
from _outcore import outcore

from harness.records.record import COUNTED

GRAPHS = {
    "amazon": ("amazon-computers.npz", "npz", 80, "0.003"),
    "notredame": ("web-NotreDame.txt.gz", "snap", 4, "0.0125"),
}
# Batch size, host budget and device memory: the largest mini-batches of two extractors fit the device, and the working
# set of an epoch is at least twice the memory of both.
SETTINGS = {
    "amazon-kronecker": ("40", "+64MiB", "32MiB"),
    "amazon-fractal": ("20", "+64MiB", "32MiB"),
    "notredame-kronecker": ("400", "+56MiB", "36MiB"),
    "notredame-fractal": ("400", "+44MiB", "17MiB"),
}
RUN = [
    "--device",
    "emulated:a10g",
    "--disk-class",
    "aws-nvme/16",
    "--max-batches",
    "40",
    "--epochs",
    "3",
    "--warmup",
    "1",
]
SYSTEMS = [["pyg+"], ["gnndrive", "-o", "extractors=2"], ["in-memory"], ["in-memory", "--memory", "none"]]


def find(folder: Path, name: str) -> Path:
    found = sorted(folder.rglob(name))
    if not found:
        sys.exit(f"{folder} holds no {name}")
    return found[0]


def make(root: Path, graphs: Path) -> list[str]:
    have = {path.name for path in (root / "data").glob("*/dataset.json")} and {
        path.parent.name for path in (root / "data").glob("*/dataset.json")
    }
    names = []
    for base, (file, kind, expand, train) in GRAPHS.items():
        if base not in have:
            outcore(root, "data", "import", base, str(find(graphs, file)), "--format", kind, "--dim", "128")
        for expansion in ("kronecker", "fractal"):
            name = f"{base}-{expansion}"
            outcore(
                root,
                "data",
                "make",
                name,
                "--kind",
                expansion,
                "--base",
                base,
                "--expand",
                str(expand),
                "--dim",
                "128",
                "--train-fraction",
                train,
            )
            names.append(name)
    return names


def describe(root: Path, names: list[str]) -> None:
    print("\n| dataset | | nodes | edges | top 1 % degree share | gini | clustering | homophily (by chance) |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in names:
        manifest = json.loads((root / "data" / name / "dataset.json").read_text())
        for side, stats in manifest["stats"].items():
            if isinstance(stats, dict) and "num_nodes" in stats:
                print(
                    f"| {name} | {side} | {stats['num_nodes']:,} | {stats['num_edges']:,} | "
                    f"{stats['top1_degree_share']:.3f} | {stats['gini']:.3f} | {stats['clustering']:.4f} | "
                    f"{stats['homophily']:.3f} ({stats['homophily_by_chance']:.3f}) |"
                )


def compare(root: Path, names: list[str], rounds: int) -> bool:
    sound = True
    print(
        "\n| dataset | system | memory | status | verdict | class | W/memory | epoch s (range) | device MiB "
        "| requests | rows | hits | misses | amplification | engine | distance |"
    )
    print("| --- | --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in names:
        records: dict[str, list[dict[str, Any]]] = {}
        for number in range(rounds):
            order = SYSTEMS if number % 2 == 0 else SYSTEMS[::-1]
            for arguments in order:
                batch, memory, device = SETTINGS[name]
                setting = ["--batch-size", batch, "--memory", memory, "--device-memory", device]
                record = outcore(root, "run", *arguments[:1], "--dataset", name, *RUN, *setting, *arguments[1:])
                records.setdefault(" ".join(arguments), []).append(record)
        digests = set()
        for runs in records.values():
            for record in runs:
                sound &= record["verdict"] in COUNTED
                if record["status"] == "ok":
                    digests.add(tuple(epoch["digest"] for epoch in record["epochs"]))
            print(row(name, runs))
        equal = len(digests) == 1
        sound &= equal
        print(f"| {name} | digests of all faithful systems equal: {'yes' if equal else 'NO'} |" + " |" * 14)
    return sound


def row(name: str, runs: list[dict[str, Any]]) -> str:
    last = runs[-1]
    measured = [epoch for run in runs for epoch in run["epochs"] if not epoch["warmup"]]
    seconds = [epoch["seconds"] for epoch in measured]
    ratio = last["summary"]["working_set_over_budget"]
    cells = [
        name,
        last["system"],
        last["config"]["memory"],
        last["status"],
        last["verdict"],
        str(last["class"]),
        "–" if ratio is None else f"{ratio:.2f}",
    ]
    if not measured or last["status"] != "ok":
        return "| " + " | ".join([*cells, *["–"] * 9]) + " |"
    counters = [epoch["counters"] for epoch in measured]
    amplification = last["summary"]["read_amplification"]
    cells += [
        f"{statistics.median(seconds):.2f} ({min(seconds):.2f}–{max(seconds):.2f})",
        f"{statistics.median((epoch['device_bytes'] or 0) for epoch in measured) / 2**20:,.0f}",
        f"{statistics.median((epoch['device_requests'] or 0) for epoch in measured):,.0f}",
        f"{statistics.median(c['rows'] for c in counters):,.0f}",
        f"{statistics.median(sum(c['hits'].values()) for c in counters):,.0f}",
        f"{statistics.median(c['misses'] for c in counters):,.0f}",
        *[
            "–" if value is None else f"{value:.2f}"
            for value in (amplification, last["summary"]["engine_efficiency"], last["summary"]["distance_to_limit"])
        ],
    ]
    return "| " + " | ".join(cells) + " |"


def accuracy(root: Path, name: str) -> bool:
    """Train on the processor through gnndrive under a cap, and print its accuracy; return whether it has learnt."""
    record = outcore(
        root,
        "run",
        "gnndrive",
        "--dataset",
        name,
        "--device",
        "cpu",
        "--memory",
        "+256MiB",
        "--batch-size",
        "100",
        "--epochs",
        "3",
        "--fanout",
        "10,5",
        "--hidden",
        "64",
        "-o",
        "extractors=2",
    )
    test = evaluate(root, name)
    labels = np.load(root / "data" / name / "labels.npy", mmap_mode="r")
    majority = np.bincount(np.asarray(labels)).max() / len(labels)
    curve = ", ".join(f"{epoch['accuracy']:.3f}" for epoch in record["epochs"])
    print(
        f"\nGraphSAGE on {name} through gnndrive under a cap ({record['status']}, {record['verdict']}): accuracy by "
        f"epoch {curve}; test accuracy after the same training {test:.3f}; majority class {majority:.3f}"
    )
    return bool(test > majority + 0.2)


def evaluate(root: Path, name: str) -> float:
    """Train the same model on the same batches in memory; return its test accuracy."""
    import torch

    from workloads.accelerators.make import make_accelerator
    from workloads.dataset import Dataset
    from workloads.sampling.make import make_sampler, make_seed_plan
    from workloads.training import Trainer
    from workloads.workload import ModelSpec, SamplerSpec, Workload

    dataset = Dataset.open(root / "data" / name)
    model = ModelSpec(layers=2, hidden=64)
    workload = Workload(dataset, SamplerSpec(fanout=(10, 5), batch_size=100), model)
    sampler, plan, features = make_sampler(workload), make_seed_plan(workload), dataset.memmap("features")
    trainer = Trainer(model, dataset.dim, dataset.num_classes, make_accelerator("cpu"), seed=workload.seed)

    def batch(epoch: int, index: int, seeds: Any) -> tuple[Any, torch.Tensor]:
        sampled = sampler.sample(epoch, index, seeds)
        return sampled, torch.from_numpy(np.ascontiguousarray(features[sampled.nodes]))

    for epoch in range(3):
        for index, seeds in enumerate(plan.batches(epoch)):
            sampled, table = batch(epoch, index, seeds)
            trainer.step(sampled, table)
    test = dataset.load("test")[:5000]
    held = [
        (*batch(1000, index, test[start : start + 500]), None) for index, start in enumerate(range(0, len(test), 500))
    ]
    return trainer.evaluate(held)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", type=Path)
    parser.add_argument("--root", type=Path, default=Path("build/real"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="compare only datasets whose name contains this")
    options = parser.parse_args()
    options.root.mkdir(parents=True, exist_ok=True)
    names = make(options.root, options.graphs)
    describe(options.root, names)
    sound = compare(options.root, [name for name in names if options.only in name], options.rounds)
    sound &= accuracy(options.root, "amazon-kronecker")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
