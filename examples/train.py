"""Train GraphSAGE on a graph whose features do not fit in memory: a plain PyTorch loop
over `outcore.loader`.

    outcore data make shop --kind kronecker --base amazon-computers.npz --expand 8 \\
        --dim 767 --train-fraction 0.3
    python examples/train.py data/shop --system diskgnn --memory 64MiB --epochs 10

Only the loader is Outcore's: bring your own model, optimiser and loop. The last line of
output is JSON.

Several processes share every step's seed nodes, on one host or on several that each
have the dataset. On host R of two:

    torchrun --nnodes 2 --nproc-per-node 1 --node-rank R --master-addr HOST0 \\
        --master-port 29500 \\
        examples/train.py data/shop --memory 32MiB
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import outcore
from systems.loading import LayerEdges
from workloads.dataset import Dataset
from workloads.errors import OutcoreError


class SageLayer(nn.Module):
    """GraphSAGE layer with mean aggregation (Hamilton, Ying and Leskovec 2017)."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_dim, out_dim)
        self.neighbours = nn.Linear(in_dim, out_dim, bias=False)

    def forward(self, x: torch.Tensor, edges: LayerEdges) -> torch.Tensor:
        """Map [sources, in_dim] to [destinations, out_dim]."""
        (source, target), (_, count) = edges.edge_index, edges.size
        # Multiply before summing, so that an edge costs the narrow width and not that
        # of the features.
        narrow = self.neighbours(x)
        total = narrow.new_zeros(count, narrow.shape[1]).index_add_(
            0, target, narrow[source]
        )
        degree = torch.bincount(target, minlength=count).clamp(min=1)
        return self.own(x[:count]) + total / degree[:, None]


class GraphSage(nn.Module):
    """GraphSAGE model with one layer for each hop and ReLU between them."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            SageLayer(*pair) for pair in itertools.pairwise(widths)
        )

    def forward(self, x: torch.Tensor, layers: list[LayerEdges]) -> torch.Tensor:
        """Return the scores of the seed nodes, [seed nodes, classes]."""
        x = x.float()
        for number, (layer, edges) in enumerate(zip(self.layers, layers, strict=True)):
            x = layer(functional.relu(x) if number else x, edges)
        return x


def over_all(*sums: float) -> list[float]:
    """Add up each value over all processes."""
    if not dist.is_initialized():
        return list(sums)
    found: list[list[float]] = [[]] * dist.get_world_size()
    dist.all_gather_object(found, list(sums))
    return [sum(values) for values in zip(*found, strict=True)]


def train(
    model: nn.Module, optimiser: torch.optim.Optimizer, loader: outcore.loader
) -> tuple[float, float]:
    """Train one epoch; return the mean loss and the accuracy on its seed nodes."""
    loss_sum = 0.0
    correct = 0
    seen = 0
    for batch in loader:
        scores = model(batch.x, batch.layers)
        loss = functional.cross_entropy(scores, batch.y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        loss_sum += loss.item() * batch.batch_size
        correct += int((scores.argmax(1) == batch.y).sum())
        seen += batch.batch_size
    loss_sum, correct, seen = over_all(loss_sum, correct, seen)
    return loss_sum / seen, correct / seen


@torch.no_grad()
def evaluate(model: nn.Module, loader: outcore.loader) -> tuple[float, int]:
    """Return the accuracy on the seed nodes of all processes, each counted once, and
    their number.

    Processes may have unequal numbers of mini-batches: the forward pass must not wait
    for others.
    """
    correct = seen = 0
    for batch in loader:
        correct += int((model(batch.x, batch.layers).argmax(1) == batch.y).sum())
        seen += batch.batch_size
    correct, seen = over_all(correct, seen)
    return correct / seen, int(seen)


def main() -> None:
    """Train, print a line per epoch, then the accuracy on test nodes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "dataset", help="folder of a dataset, or its name under $OUTCORE_DATA"
    )
    parser.add_argument(
        "--system", default="gnndrive", help="any faithful system of `outcore systems`"
    )
    parser.add_argument(
        "--memory",
        default="0.25x",
        help="memory of the loader: 8GiB, 0.25x of the features, none",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--fanout", default="10,5")
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        help="NAME=VALUE for the system",
        metavar="",
    )
    parser.add_argument(
        "--artefacts", help="folder that keeps prepared artefacts for later runs"
    )
    options = parser.parse_args()
    fanout = [int(count) for count in options.fanout.split(",")]
    rank = int(os.environ.get("RANK", "0"))
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        dist.init_process_group("nccl" if options.device.startswith("cuda") else "gloo")
    what = {
        "system": options.system,
        "memory": options.memory,
        "device": options.device,
        "fanout": fanout,
        "batch_size": options.batch_size,
        "seed": options.seed,
        "edges": "layers",
        "form": "plain",
        "artefacts": options.artefacts,
        "rank": rank,
        "world": world,
        "options": dict(entry.split("=", 1) for entry in options.option),
    }
    torch.manual_seed(options.seed)
    began = time.monotonic()
    curve = []
    with outcore.loader(options.dataset, epochs=options.epochs, **what) as loader:
        dataset: Dataset = loader.workload.dataset
        widths = [
            dataset.dim,
            *[options.hidden] * (len(fanout) - 1),
            dataset.num_classes,
        ]
        model: nn.Module = GraphSage(widths).to(options.device)
        if world > 1:
            model = nn.parallel.DistributedDataParallel(model)
        optimiser = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
        for epoch in range(options.epochs):
            start = time.monotonic()
            loss, accuracy = train(model, optimiser, loader)
            curve.append(
                {
                    "loss": loss,
                    "accuracy": accuracy,
                    "seconds": time.monotonic() - start,
                }
            )
            if rank == 0:
                print(
                    f"epoch {epoch}: loss {loss:.4f}, accuracy {100 * accuracy:.2f} %",
                    flush=True,
                )
    # Opened after training: two loaders at once would take two budgets.
    with outcore.loader(options.dataset, split="test", epochs=1, **what) as loader:
        own = (
            model.module
            if isinstance(model, nn.parallel.DistributedDataParallel)
            else model
        )
        accuracy, seen = evaluate(own, loader)
    if world > 1:
        dist.destroy_process_group()
    if rank > 0:
        return
    print(f"{seen} test nodes: accuracy {100 * accuracy:.2f} %")
    found = {
        "system": options.system,
        "curve": curve,
        "test": accuracy,
        "test_nodes": seen,
    }
    print(json.dumps(found | {"s": time.monotonic() - began}))


if __name__ == "__main__":
    try:
        main()
    except OutcoreError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
