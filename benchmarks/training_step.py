"""A 128-dimensional GraphSAGE step against PyG's SAGEConv on the same blocks, interleaved, on the processor or a GPU.

    python benchmarks/training_step.py [--device cpu] [--seeds 1000] [--rounds 7]

Prints seconds and peak of allocated tensors of both, their ratio, and the memory limit of ours: 4 x destinations x
hidden x 4 bytes a layer above weights and inputs. PyG gets its rows gathered beforehand (its best case, since that copy
is not counted), and its blocks on the device; ours reads the table through the alias list.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from workloads.accelerators.make import make_accelerator
from workloads.sampling.batch import Block, SampledBatch
from workloads.training import Trainer
from workloads.workload import ModelSpec

DIM, HIDDEN, CLASSES = 128, 256, 16


def make_batch(seeds: int, fanout: list[int], nodes: int, rng: np.random.Generator) -> SampledBatch:
    """Make blocks of a skewed graph: each known node draws `fanout` neighbours, hubs more often."""
    known = rng.permutation(nodes)[:seeds].astype(np.int64)
    blocks: list[Block] = []
    place = np.empty(nodes, dtype=np.int32)
    for fan in fanout:
        drawn = (nodes * rng.random(known.shape[0] * fan) ** 2).astype(np.int64)
        following = np.concatenate([known, np.setdiff1d(drawn, known)])
        place[following] = np.arange(following.shape[0], dtype=np.int32)
        indptr = np.arange(known.shape[0] + 1, dtype=np.int64) * fan
        blocks.insert(0, Block(indptr, place[drawn], following.shape[0], known.shape[0]))
        known = following
    return SampledBatch(0, 0, known, seeds, tuple(blocks), rng.integers(0, CLASSES, seeds))


def pyg_step(batch: SampledBatch, layers: int, fused: bool, device: torch.device) -> Callable[[torch.Tensor], float]:
    """Return the same step by torch_geometric's SAGEConv, on a sparse adjacency (`fused`) or an edge list."""
    from torch_geometric.nn import SAGEConv

    widths = [DIM] + [HIDDEN] * (layers - 1) + [CLASSES]
    convs = torch.nn.ModuleList(SAGEConv(a, b) for a, b in itertools.pairwise(widths)).to(device)
    optimiser = torch.optim.Adam(convs.parameters(), lr=0.003)
    labels = torch.from_numpy(batch.labels).to(device)
    edges: list[torch.Tensor] = []
    for block in batch.blocks:
        if fused:
            indptr, indices = torch.from_numpy(block.indptr), torch.from_numpy(block.indices).long()
            ones = torch.ones(block.num_edges)
            edges.append(torch.sparse_csr_tensor(indptr, indices, ones, (block.num_dst, block.num_src)).to(device))
        else:
            destinations = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
            edges.append(torch.from_numpy(np.stack([block.indices.astype(np.int64), destinations])).to(device))

    def step(x: torch.Tensor) -> float:
        for number, (conv, edge, block) in enumerate(zip(convs, edges, batch.blocks, strict=True)):
            x = conv((x, x[: block.num_dst]), edge)
            x = x.relu() if number + 1 < layers else x
        loss = torch.nn.functional.cross_entropy(x, labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return float(loss)

    return step


def peak_bytes(step: Callable[[], Any], device: torch.device) -> int:
    """Return the peak bytes of torch's allocator above the start."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        return torch.cuda.max_memory_allocated(device) - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    assert profile.profiler is not None and profile.profiler.kineto_results is not None
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--fanout", default="10,10,10")
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    fanout = [int(part) for part in arguments.fanout.split(",")]
    batch = make_batch(arguments.seeds, fanout, arguments.nodes, np.random.default_rng(0))
    accelerator = make_accelerator(arguments.device)
    device = accelerator.torch_device
    table = torch.randn(arguments.nodes, DIM, device=device)
    rows = torch.from_numpy(batch.nodes)
    gathered = table[rows.to(device)]
    trainer = Trainer(ModelSpec(layers=len(fanout), hidden=HIDDEN), DIM, CLASSES, accelerator)
    edge_list, adjacency = (pyg_step(batch, len(fanout), fused, device) for fused in (False, True))
    steps: dict[str, Callable[[], Any]] = {
        "ours": lambda: trainer.step(batch, table, rows),
        "pyg edge list": lambda: edge_list(gathered),
        "pyg sparse": lambda: adjacency(gathered),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    processor: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(arguments.rounds):
        for name, step in steps.items():
            start, used = time.perf_counter(), time.process_time()
            step()
            processor[name].append(time.process_time() - used)
            seconds[name].append(time.perf_counter() - start)
    peaks = {name: peak_bytes(step, device) for name, step in steps.items()}
    limit = sum(4 * block.num_dst * HIDDEN * 4 for block in batch.blocks)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ok = peaks["ours"] <= limit
    report = {
        "blocks": [(block.num_src, block.num_dst, block.num_edges) for block in batch.blocks],
        "threads": arguments.threads,
        "median_s": medians,
        "median_processor_s": {name: statistics.median(values) for name, values in processor.items()},
        "peak_bytes": peaks,
        "time_ratio": {name: medians[name] / medians["ours"] for name in steps if name != "ours"},
        "peak_ratio": {name: peaks[name] / peaks["ours"] for name in steps if name != "ours"},
        "limit_bytes": limit,
        "peak_over_limit": peaks["ours"] / limit,
        "ok": ok,
    }
    print(json.dumps(report, indent=2))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
