"""Is our neighbour sampling faster than DGL's and GraphBolt's, and two threads than
one?

    python benchmarks/sampling.py [--nodes-log2 21] [--edges 40M] [--rounds 9] \\
        [--no-dgl] [--graphbolt PYTHON]

GraphBolt needs a separate environment, whose interpreter is PYTHON, with torch 2.2.1,
dgl 2.1.0, NumPy 1, pandas 2.2, torchdata 0.7.1, pydantic, PyYAML.

Prints sampled edges a second over the same seed nodes, medians of the rounds. All draw
without replacement and build blocks (relabelled, unique nodes). Ends with code 1 if a
target is missed.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before DGL and torch are imported

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from systems.engine.dgl import import_dgl
from workloads.sampling.neighbor import NeighborSampler
from workloads.units import parse_count

FANOUT = (10, 10, 10)
BATCH_SIZE = 1000
TARGETS = {
    "ours / DGL, one thread": 2.0,
    "ours / GraphBolt, one thread": 1.0,
    "ours, two threads / one": 1.8,
}
GRAPHBOLT = "GraphBolt int64, 1 thread"

Ints = npt.NDArray[np.int64]


def rmat(nodes_log2: int, num_edges: int, seed: int) -> tuple[Ints, Ints]:
    """Make an R-MAT graph (a, b, c, d = 0.57, 0.19, 0.19, 0.05) with shuffled ids, as
    int64 (indptr, indices)."""
    rng = np.random.default_rng(seed)
    source = np.zeros(num_edges, dtype=np.int64)
    destination = np.zeros(num_edges, dtype=np.int64)
    for first in range(0, nodes_log2, 7):
        bits = min(7, nodes_log2 - first)
        joint = np.ones(1)
        pairs = np.zeros((1, 2), dtype=np.int64)
        for _ in range(bits):
            joint = np.concatenate([joint * p for p in (0.57, 0.19, 0.19, 0.05)])
            pairs = np.concatenate([pairs * 2 + (i, j) for i in (0, 1) for j in (0, 1)])
        # Draws seven levels at a time from a table in which each outcome occurs in
        # proportion to its probability.
        table = np.repeat(
            np.arange(len(joint)),
            np.ceil(joint / joint.sum() * (1 << 22)).astype(np.int64),
        )
        outcome = pairs[table[rng.integers(0, len(table), num_edges)]]
        source = (source << bits) | outcome[:, 0]
        destination = (destination << bits) | outcome[:, 1]
    scramble = rng.permutation(1 << nodes_log2)
    order = np.sort((scramble[destination] << nodes_log2) | scramble[source])
    degrees = np.bincount(order >> nodes_log2, minlength=1 << nodes_log2)
    return np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64), order & (
        (1 << nodes_log2) - 1
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes-log2", type=int, default=21)
    parser.add_argument("--edges", type=parse_count, default=40_000_000)
    parser.add_argument("--batches", type=int, default=20, help="batches a round")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--no-dgl", action="store_true")
    parser.add_argument(
        "--graphbolt",
        metavar="PYTHON",
        help="interpreter of an environment with dgl 2.1.0",
    )
    options = parser.parse_args()

    started = time.perf_counter()
    indptr, indices = rmat(options.nodes_log2, options.edges, seed=1)
    train = np.flatnonzero(np.diff(indptr) > 0)
    rng = np.random.default_rng(2)
    batches = [
        rng.choice(train, BATCH_SIZE, replace=False) for _ in range(options.batches)
    ]
    print(
        f"R-MAT graph: {len(indptr) - 1:,} nodes, {len(indices):,} edges, "
        f"{time.perf_counter() - started:.1f} s to make"
    )

    def ours(indices: npt.NDArray[np.integer], threads: int) -> Callable[[int], int]:
        sampler = NeighborSampler(indptr, indices, FANOUT, seed=7, threads=threads)  # type: ignore[arg-type]
        return lambda epoch: sum(
            sampler.sample(epoch, i, seeds).num_edges for i, seeds in enumerate(batches)
        )

    contenders = {
        "ours int64, 1 thread": ours(indices, 1),
        "ours int64, 2 threads": ours(indices, 2),
    }
    contenders["ours int32, 1 thread"] = ours(indices.astype(np.int32), 1)
    if not options.no_dgl:
        contenders = {
            "DGL int64, 1 thread": dgl_sampler(indptr, indices, batches),
            **contenders,
        }

    if options.graphbolt:
        contenders = {
            GRAPHBOLT: graphbolt_sampler(options.graphbolt, indptr, indices, batches),
            **contenders,
        }

    load = os.getloadavg()[0]
    if load > 1.0:
        print(
            f"load average {load:.1f} on {os.cpu_count()} cores: two threads need both "
            "of them for themselves"
        )
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    edges = dict.fromkeys(contenders, 0)
    for epoch in range(options.rounds + 1):
        for name, sample in contenders.items():
            began = time.perf_counter()
            edges[name] = sample(epoch)
            if epoch > 0:  # the first round warms up
                rates[name].append(edges[name] / (time.perf_counter() - began))
    median = {name: statistics.median(values) for name, values in rates.items()}
    print(
        f"{'sampler':<24}{'M edges/s':>12}{'least':>10}{'most':>10}"
        f"{'edges a batch':>16}"
    )
    for name, values in rates.items():
        print(
            f"{name:<24}{median[name] / 1e6:>12.2f}"
            f"{min(values) / 1e6:>10.2f}{max(values) / 1e6:>10.2f}"
            f"{edges[name] / options.batches:>16,.0f}"
        )

    one = "ours int64, 1 thread"
    two = "ours int64, 2 threads"
    ratios = {"ours, two threads / one": median[two] / median[one]}
    if not options.no_dgl:
        ratios = {
            "ours / DGL, one thread": median[one] / median["DGL int64, 1 thread"],
            **ratios,
        }
    if options.graphbolt:
        ratios = {
            "ours / GraphBolt, one thread": median[one] / median[GRAPHBOLT],
            **ratios,
        }
    for name, ratio in ratios.items():
        print(
            f"{name:<30}{ratio:>12.2f}   target {TARGETS[name]}   "
            f"{'met' if ratio >= TARGETS[name] else 'MISSED'}"
        )
    return 0 if all(ratio >= TARGETS[name] for name, ratio in ratios.items()) else 1


def dgl_sampler(
    indptr: Ints, indices: Ints, batches: list[Ints]
) -> Callable[[int], int]:
    """Return a function that samples all batches by DGL on one thread and returns the
    number of edges."""
    dgl = import_dgl()
    import torch

    torch.set_num_threads(1)
    graph = dgl.graph(
        (
            "csc",
            (
                torch.from_numpy(indptr),
                torch.from_numpy(indices),
                torch.tensor([], dtype=torch.int64),
            ),
        )
    )
    graph = graph.formats("csc")
    sampler = dgl.dataloading.NeighborSampler(list(FANOUT))
    seeds = [torch.from_numpy(batch) for batch in batches]

    def sample(epoch: int) -> int:
        return sum(
            block.num_edges()
            for nodes in seeds
            for block in sampler.sample(graph, nodes)[2]
        )

    return sample


def graphbolt_sampler(
    python: str, indptr: Ints, indices: Ints, batches: list[Ints]
) -> Callable[[int], int]:
    """Start GraphBolt in its environment; return a function that samples all batches
    there and returns the edges."""
    folder = tempfile.TemporaryDirectory(prefix="outcore-graphbolt-")
    for name, array in (
        ("indptr", indptr),
        ("indices", indices),
        ("batches", np.stack(batches)),
    ):
        np.save(Path(folder.name, f"{name}.npy"), array)
    command = [
        python,
        str(Path(__file__).parent / "_graphbolt.py"),
        folder.name,
        ",".join(map(str, FANOUT)),
    ]
    other = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None
    assert other.stdout is not None
    if other.stdout.readline().strip() != "ready":
        sys.exit(f"{' '.join(command)} did not start")
    send = other.stdin
    receive = other.stdout

    def sample(epoch: int) -> int:
        assert folder is not None
        send.write(f"{epoch}\n")
        send.flush()
        return int(receive.readline().split()[0])

    return sample


if __name__ == "__main__":
    sys.exit(main())
