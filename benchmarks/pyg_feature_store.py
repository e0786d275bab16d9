"""PyG's loader over `outcore.pyg.FeatureStore` against the same loader over `torch.from_numpy` of a memory map.

    python benchmarks/pyg_feature_store.py [--folder DIR] [--rounds 3] [--share 0.25] [--batches 20]

Both run in a process of their own under one memory cap: what the process holds with the topology loaded, and a share of
the features on top, for our cache or for the page cache of the map (with read-ahead and without it). The dataset is
evicted before each. The loader is `NeighborLoader`; without pyg-lib and torch-sparse `NodeLoader` with Outcore's
sampler, on both sides. Mini-batches a second, in turns; ends with code 1 below twice the faster map.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _disk import interleave, parser, verdict

from harness.isolation import Limits, select
from systems.engine.io.memory import evict, madvise
from workloads.dataset import PARTS, Dataset
from workloads.making.make import MakeSpec, make_dataset
from workloads.sampling.make import make_sampler
from workloads.workload import ModelSpec, SamplerSpec, Workload

FANOUT, BATCH = (10, 10), 500
SIDES = ("store", "map", "map, MADV_RANDOM")
TARGET = 2.0
_FLOOR = 600 << 20  # interpreter, torch, PyG and the rows of a mini-batch


def loader_of(dataset: Dataset, stores: Any, batches: int) -> Any:
    """Return PyG's loader over the stores."""
    import torch_geometric.typing as built
    from torch_geometric.loader import NeighborLoader, NodeLoader
    from torch_geometric.sampler import BaseSampler, SamplerOutput

    nodes = torch.from_numpy(dataset.load("train")[: batches * BATCH])
    shared: dict[str, Any] = {"input_nodes": nodes, "batch_size": BATCH, "shuffle": False}
    if built.WITH_PYG_LIB or built.WITH_TORCH_SPARSE:
        return NeighborLoader(stores, num_neighbors=list(FANOUT), **shared)
    row, colptr = stores[1].get_edge_index(None, "csc")
    workload = Workload(dataset, SamplerSpec(fanout=FANOUT), ModelSpec(layers=len(FANOUT)))
    ours = make_sampler(workload, indptr=colptr.numpy(), indices=row.numpy(), threads=torch.get_num_threads())

    class Sampler(BaseSampler):  # type: ignore[misc]
        edge_permutation = None

        def sample_from_nodes(self, index: Any, **_: Any) -> Any:
            found = ours.sample(0, int(index.input_id[0]) // BATCH, index.node.numpy())
            rows = [torch.from_numpy(block.indices.astype(np.int64)) for block in found.blocks]
            lengths = [torch.from_numpy(np.diff(block.indptr)) for block in found.blocks]
            columns = [torch.repeat_interleave(torch.arange(len(one)), one) for one in lengths]
            ends = torch.cat(rows), torch.cat(columns)
            return SamplerOutput(torch.from_numpy(found.nodes), *ends, edge=None, metadata=(index.input_id, None))

        def sample_from_edges(self, index: Any, **_: Any) -> Any:
            raise NotImplementedError

    return NodeLoader(stores, Sampler(), **shared)


def mapped_store(dataset: Dataset, advice: bool) -> Any:
    """Return a store that indexes a tensor over the memory map, as PyG does with a `Data` of such a tensor."""
    from torch_geometric.data import FeatureStore, TensorAttr

    table = np.load(dataset.file("features"), mmap_mode="c")
    if advice:
        madvise(table, "random")
    tensors = {"x": torch.from_numpy(table), "y": torch.from_numpy(dataset.load("labels"))}

    class Mapped(FeatureStore):  # type: ignore[misc]
        def _get_tensor(self, attr: Any) -> Any:
            return torch.index_select(tensors[attr.attr_name], 0, attr.index)

        def _get_tensor_size(self, attr: Any) -> Any:
            return tuple(tensors[attr.attr_name].shape)

        def get_all_tensor_attrs(self) -> Any:
            return [TensorAttr(None, name) for name in tensors]

        def _put_tensor(self, tensor: Any, attr: Any) -> bool:
            return False

        def _remove_tensor(self, attr: Any) -> bool:
            return False

    return Mapped()


def child(side: str, path: str, memory: int, batches: int) -> None:
    """Run the loader's mini-batches, the first fifth unmeasured; print mini-batches a second and a digest of rows."""
    from outcore.pyg import FeatureStore, GraphStore

    dataset = Dataset.open(path)
    graph = GraphStore(dataset)
    graph.get_edge_index(None, "csc")
    store = FeatureStore(dataset, memory=memory) if side == "store" else mapped_store(dataset, "MADV" in side)
    begin, warm, total = 0.0, max(1, batches // 5), 0.0
    for number, batch in enumerate(loader_of(dataset, (store, graph), batches)):
        if number == warm:
            begin = time.perf_counter()
        total += float(batch.x[:, 0].double().sum())
        assert torch.equal(batch.x[0], torch.from_numpy(np.array(dataset.memmap("features")[int(batch.n_id[0])])))
    print(json.dumps({"rate": (number + 1 - warm) / (time.perf_counter() - begin), "total": round(total, 3)}))


def main() -> int:
    options = parser(__doc__ or "")
    options.set_defaults(rounds=3)
    options.add_argument("--share", type=float, default=0.25, help="of the features, for cache or page cache")
    options.add_argument("--batches", type=int, default=20)
    options.add_argument("--nodes", type=int, default=2**21)
    options.add_argument("--edges", type=int, default=40_000_000)
    options.add_argument("--child", nargs=3, metavar=("SIDE", "DATASET", "MEMORY"))
    args = options.parse_args()
    if args.child:
        child(args.child[0], args.child[1], int(args.child[2]), args.batches)
        return 0
    selection = select()
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="outcore-bench-") as made:
        spec = MakeSpec("kronecker", nodes=args.nodes, edges=args.edges, dim=128, labels="random", features="random")
        dataset = make_dataset(Path(made) / "graph", spec)
        memory = int(args.share * dataset.feature_bytes)
        cap_bytes = _FLOOR + 8 * (dataset.num_edges + 2 * dataset.num_nodes) + memory
        totals: set[float] = set()

        def run(side: str) -> float:
            for part in PARTS:
                evict(dataset.file(part))
            command = [sys.executable, __file__, "--batches", str(args.batches)]
            command += ["--child", side, str(dataset.path), str(memory)]
            with selection.backend.create("pyg-store", Limits(memory_bytes=cap_bytes)) as cap:
                done = subprocess.run(cap.command(command), capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{side} under {cap_bytes >> 20} MiB ended with {done.returncode}: {done.stderr[-2000:]}")
            said = json.loads(done.stdout.splitlines()[-1])
            totals.add(said["total"])
            return float(said["rate"])

        print(
            f"{selection.backend.name}, cap {cap_bytes >> 20} MiB, {memory >> 20} MiB of it for rows; mini-batches/s:"
        )
        medians = interleave(args.rounds, {side: lambda side=side: run(side) for side in SIDES})  # type: ignore[misc]
    print(f"  sums of the features: {sorted(totals)}")
    theirs = max(medians["map"], medians["map, MADV_RANDOM"])
    return 0 if verdict("FeatureStore / memory map", medians["store"] / theirs, TARGET) else 1


if __name__ == "__main__":
    sys.exit(main())
