"""Compare training from disk with training from memory on a small graph: accuracy,
loss, time, memory, bytes read.

    python examples/compare.py                       # a generated graph, about a minute
    python examples/compare.py graph.pt --memory 0.5x --system diskgnn

Both trainings take the same model, seed and mini-batches (`examples/train.py`), so that
loss and accuracy differ by rounding alone. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from train import GraphSage, evaluate, train

import outcore
from workloads.dataset import Dataset
from workloads.errors import OutcoreError
from workloads.making.make import MakeSpec, make_dataset

MIB = 1 << 20
HEADS = (
    "rows from",
    "system",
    "plan",
    "epoch s",
    "last loss",
    "accuracy",
    "read an epoch",
)


def generated(folder: Path, nodes: int) -> Dataset:
    """Make a graph whose features hint at the class of a node: 256 numbers a node, ten
    edges a node."""
    spec = MakeSpec(
        "kronecker", nodes=nodes, edges=10 * nodes, dim=256, fractions=(0.2, 0.05, 0.2)
    )
    return make_dataset(folder / "generated", spec)


def trained(
    system: str, memory: str, options: argparse.Namespace, dataset: Any, artefacts: Path
) -> dict[str, Any]:
    """Train and evaluate with one system; return the numbers of a row of the table."""
    settings = {
        "system": system,
        "memory": memory,
        "fanout": options.fanout,
        "batch_size": options.batch_size,
        "seed": options.seed,
        "edges": "layers",
        "form": "plain",
        "artefacts": artefacts,
    }
    torch.manual_seed(options.seed)
    seconds = []
    loss = 0.0
    with outcore.loader(dataset, epochs=options.epochs, **settings) as loader:
        hidden = [options.hidden] * (len(options.fanout) - 1)
        model: nn.Module = GraphSage([loader.num_features, *hidden, loader.num_classes])
        optimiser = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
        planned = loader.plan.total("host")
        loader.prepare()
        for _ in range(options.epochs):
            begin = time.monotonic()
            loss, _ = train(model, optimiser, loader)
            seconds.append(time.monotonic() - begin)
        read = loader.counters()["bytes_read"]
    with outcore.loader(dataset, split="test", epochs=1, **settings) as loader:
        accuracy, _ = evaluate(model, loader)
    # The first epoch fills caches.
    usual = statistics.median(seconds[1:] or seconds)
    found = {"system": system, "plan_bytes": planned, "epoch_s": usual, "loss": loss}
    return found | {"test": accuracy, "bytes_read": read}


def table(rows: list[dict[str, Any]]) -> str:
    """Format the rows in columns."""
    lines = [HEADS]
    for place, row in zip(("memory", "disk"), rows, strict=True):
        plan = f"{row['plan_bytes'] / MIB:.1f} MiB"
        read = f"{row['bytes_read'] / MIB:.1f} MiB"
        accuracy = f"{100 * row['test']:.2f} %"
        lines.append(
            (
                place,
                row["system"],
                plan,
                f"{row['epoch_s']:.2f}",
                f"{row['loss']:.4f}",
                accuracy,
                read,
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADS))]
    padded = [
        [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        for line in lines
    ]
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def main() -> None:
    """Train from memory, then from disk, and print a row of numbers for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "graph",
        nargs="?",
        help="dataset, or .pt or .npz file of a graph; without it one is generated",
    )
    parser.add_argument(
        "--system", default="gnndrive", help="any faithful system of `outcore systems`"
    )
    parser.add_argument(
        "--memory",
        default="0.5x",
        help="memory of the loader from disk: 8GiB, 0.5x of the features",
    )
    parser.add_argument(
        "--nodes", type=int, default=100_000, help="nodes of a generated graph"
    )
    parser.add_argument(
        "--fanout",
        default="10,5",
        type=lambda text: [int(count) for count in text.split(",")],
    )
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--folder", type=Path, default=Path(), help="folder on the disk to read from"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="compare-", dir=options.folder) as made:
        dataset = options.graph or generated(Path(made), options.nodes)
        artefacts = Path(made) / "artefacts"
        in_memory = trained("in-memory", "none", options, dataset, artefacts)
        from_disk = trained(options.system, options.memory, options, dataset, artefacts)
    print(table([in_memory, from_disk]))
    print(json.dumps({"memory": in_memory, "disk": from_disk}))


if __name__ == "__main__":
    try:
        main()
    except OutcoreError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
