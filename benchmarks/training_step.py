"""Is our training step as fast as PyG's? GraphSAGE, GCN and GAT on equal mini-batches,
on a processor or a GPU.

    python benchmarks/training_step.py [--device cpu] [--models sage,gcn,gat] \\
        [--seeds 1000] [--rounds 5]

Prints for each model the seconds of both, their ratio (PyG's over ours) and the peaks
of allocated tensors; for GraphSAGE also the memory limit of ours: 4 x destinations x
hidden x 4 bytes a layer above weights and inputs. Both begin with the same weights, and
their first losses must agree. PyG gets its rows gathered beforehand (its best case,
since that copy is not counted), and its edges on the device; ours reads the table
through the alias list and makes its graphs. `copies included` counts PyG's gathering
and its edges' way to the device too. With `--threads 1` other work on the machine
disturbs least; processor seconds are printed too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from workloads.accelerators.make import make_accelerator
from workloads.models import GatLayer, GcnLayer, Layer, SageLayer
from workloads.sampling.batch import Block, SampledBatch
from workloads.training import Trainer
from workloads.workload import ModelSpec

DIM = 128
HIDDEN = 256
CLASSES = 16
HEADS = 4
EDGES = "pyg edge list"
COPIED = "pyg edge list, copies included"
AGREEMENT = 1e-4  # relative difference of the first losses


def make_batch(seeds: int, fanout: list[int], nodes: int, index: int) -> SampledBatch:
    """Make blocks of a skewed graph: each known node draws `fanout` neighbours, hubs
    more often."""
    rng = np.random.default_rng(index)
    known = rng.permutation(nodes)[:seeds].astype(np.int64)
    blocks: list[Block] = []
    place = np.empty(nodes, dtype=np.int32)
    for fan in fanout:
        drawn = (nodes * rng.random(known.shape[0] * fan) ** 2).astype(np.int64)
        following = np.concatenate([known, np.setdiff1d(drawn, known)])
        place[following] = np.arange(following.shape[0], dtype=np.int32)
        indptr = np.arange(known.shape[0] + 1, dtype=np.int64) * fan
        blocks.insert(
            0, Block(indptr, place[drawn], following.shape[0], known.shape[0])
        )
        known = following
    return SampledBatch(
        0, index, known, seeds, tuple(blocks), rng.integers(0, CLASSES, seeds)
    )


def pyg_layer(ours: Layer) -> torch.nn.Module:
    """Return PyG's layer with the weights of ours."""
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    if isinstance(ours, SageLayer):
        conv = SAGEConv(ours.in_dim, ours.out_dim)
        pairs = [
            (conv.lin_l.weight, ours.neighbour_weight),
            (conv.lin_l.bias, ours.bias),
        ]
        pairs.append((conv.lin_r.weight, ours.root_weight))
    elif isinstance(ours, GcnLayer):
        conv = GCNConv(ours.in_dim, ours.out_dim)
        pairs = [(conv.lin.weight, ours.weight), (conv.bias, ours.bias)]
    else:
        assert isinstance(ours, GatLayer)
        conv = GATConv(ours.in_dim, ours.width, heads=ours.heads, concat=ours.concat)
        pairs = [(conv.lin.weight, ours.weight), (conv.bias, ours.bias)]
        pairs += [
            (conv.att_src, ours.source_attention),
            (conv.att_dst, ours.destination_attention),
        ]
    with torch.no_grad():
        for theirs, own in pairs:
            theirs.copy_(own.view_as(theirs))
    return conv  # type: ignore[no-any-return]


class PygSteps:
    """The same steps by PyG's layers, on edge lists or (`fused`, GraphSAGE alone) on
    sparse adjacencies."""

    def __init__(self, trainer: Trainer, fused: bool, device: torch.device) -> None:
        assert trainer.model is not None
        self._name = trainer.spec.name
        self._fused = fused
        self._device = device
        layers = [pyg_layer(layer) for layer in trainer.model.layers]  # type: ignore[arg-type]
        self._convs = torch.nn.ModuleList(layers).to(device)
        self._optimiser = torch.optim.Adam(
            self._convs.parameters(), lr=trainer.spec.learning_rate
        )

    def structure(self, batch: SampledBatch) -> list[torch.Tensor]:
        """Return the edges of each block, on the device."""
        found = []
        for block in batch.blocks:
            if self._fused:
                indptr = torch.from_numpy(block.indptr)
                indices = torch.from_numpy(block.indices).long()
                values = torch.ones(block.num_edges)
                size = (block.num_dst, block.num_src)
                found.append(
                    torch.sparse_csr_tensor(indptr, indices, values, size).to(
                        self._device
                    )
                )
            else:
                destinations = np.repeat(
                    np.arange(block.num_dst), np.diff(block.indptr)
                )
                edges = np.stack([block.indices.astype(np.int64), destinations])
                found.append(torch.from_numpy(edges).to(self._device))
        return found

    def step(
        self,
        batch: SampledBatch,
        edges: list[torch.Tensor],
        x: torch.Tensor,
        labels: torch.Tensor,
    ) -> float:
        """Train on one mini-batch; return the loss."""
        for number, (conv, edge, block) in enumerate(
            zip(self._convs, edges, batch.blocks, strict=True)
        ):
            if number:
                x = torch.nn.functional.elu(x) if self._name == "gat" else x.relu()
            # GCN reads a block as a square graph over its sources, as users of PyG run
            # it on a sampled subgraph.
            x = (
                conv(x, edge)[: block.num_dst]
                if self._name == "gcn"
                else conv((x, x[: block.num_dst]), edge)
            )
        loss = torch.nn.functional.cross_entropy(x, labels)
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        return float(loss)


def peak_bytes(step: Callable[[], Any], device: torch.device) -> int:
    """Return the peak bytes of torch's allocator above the start."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        return torch.cuda.max_memory_allocated(device) - before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        step()
    assert profile.profiler is not None
    assert profile.profiler.kineto_results is not None
    events = [
        event
        for event in profile.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def compare(
    name: str,
    batches: list[SampledBatch],
    table: torch.Tensor,
    arguments: argparse.Namespace,
) -> Any:
    """Return the figures of one model: on each mini-batch ours and PyG's take turns for
    some rounds."""
    accelerator = make_accelerator(arguments.device)
    device = accelerator.torch_device
    spec = ModelSpec(
        name=name,  # type: ignore[arg-type]
        layers=len(batches[0].blocks),
        hidden=HIDDEN,
        heads=HEADS,
    )
    trainer = Trainer(spec, DIM, CLASSES, accelerator)
    theirs = {EDGES: PygSteps(trainer, False, device)}
    copied = PygSteps(trainer, False, device)
    if name == "sage":
        theirs["pyg sparse"] = PygSteps(trainer, True, device)
    sides = ("ours", *theirs, COPIED)
    seconds, processor, losses = (
        {side: list[float]() for side in sides} for _ in range(3)
    )
    for batch in batches:
        rows = torch.from_numpy(batch.nodes)
        gathered = table[rows.to(device)]
        labels = torch.from_numpy(batch.labels).to(device)
        steps: dict[str, Callable[[], float]] = {
            "ours": partial(_ours, trainer, batch, table, rows)
        }
        edges = {side: pyg.structure(batch) for side, pyg in theirs.items()}
        steps |= {
            side: partial(pyg.step, batch, edges[side], gathered, labels)
            for side, pyg in theirs.items()
        }
        here = [edge.cpu() for edge in edges[EDGES]]
        steps[COPIED] = partial(_copied, copied, batch, here, table, rows)
        losses = {
            side: [*losses[side], step()] for side, step in steps.items()
        }  # the first of a shape allocates
        for _ in range(arguments.rounds):
            for side, step in steps.items():
                start = time.perf_counter()
                used = time.process_time()
                step()
                processor[side].append(time.process_time() - used)
                seconds[side].append(time.perf_counter() - start)
    peaks = {side: peak_bytes(step, device) for side, step in steps.items()}
    # Steps of one round ran one after the other, beside the same other work.
    ratios = {
        side: statistics.median(
            other / own
            for other, own in zip(seconds[side], seconds["ours"], strict=True)
        )
        for side in sides[1:]
    }
    found: dict[str, Any] = {
        "median_s": {
            side: statistics.median(values) for side, values in seconds.items()
        },
        "median_processor_s": {
            side: statistics.median(values) for side, values in processor.items()
        },
        "time_ratio": ratios,
        "peak_bytes": peaks,
        "peak_ratio": {side: peaks[side] / peaks["ours"] for side in sides[1:]},
        "first_loss": {side: values[0] for side, values in losses.items()},
        "ok": all(
            abs(one[0] / losses["ours"][0] - 1) < AGREEMENT for one in losses.values()
        ),
    }
    if name == "sage":
        limit = sum(4 * block.num_dst * HIDDEN * 4 for block in batches[-1].blocks)
        found |= {"limit_bytes": limit, "peak_over_limit": peaks["ours"] / limit}
        found["ok"] = found["ok"] and peaks["ours"] <= limit
    return found


def _copied(
    pyg: PygSteps,
    batch: SampledBatch,
    edges: list[torch.Tensor],
    table: torch.Tensor,
    rows: torch.Tensor,
) -> float:
    """Train PyG's layers on edges and labels that come from the host, and on rows that
    are gathered from the table."""
    device = table.device
    there = [edge.to(device) for edge in edges]
    labels = torch.from_numpy(batch.labels).to(device)
    return pyg.step(batch, there, table[rows.to(device)], labels)


def _ours(
    trainer: Trainer, batch: SampledBatch, table: torch.Tensor, rows: torch.Tensor
) -> float:
    return trainer.step(batch, table, rows).loss


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--models", default="sage,gcn,gat")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--fanout", default="10,10,10")
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    fanout = [int(part) for part in arguments.fanout.split(",")]
    batches = [
        make_batch(arguments.seeds, fanout, arguments.nodes, index)
        for index in range(arguments.batches)
    ]
    table = torch.randn(arguments.nodes, DIM).to(
        make_accelerator(arguments.device).torch_device
    )
    report = {
        "blocks": [
            [(block.num_src, block.num_dst, block.num_edges) for block in one.blocks]
            for one in batches
        ],
        "threads": arguments.threads,
        "models": {
            name: compare(name, batches, table, arguments)
            for name in arguments.models.split(",")
        },
    }
    print(json.dumps(report, indent=2))
    for name, found in report["models"].items():
        ratios = ", ".join(
            f"{side} {ratio:.2f}" for side, ratio in found["time_ratio"].items()
        )
        print(f"{name}: time over ours: {ratios}", file=sys.stderr)
    return 0 if all(found["ok"] for found in report["models"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
