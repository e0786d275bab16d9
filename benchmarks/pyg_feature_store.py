"""PyG's loader over `outcore.pyg.FeatureStore` against the same loader over `torch.from_numpy` of a memory map.

    python benchmarks/pyg_feature_store.py [--quick] [--folder DIR] [--rounds 3] [--share 0.1] [--batches 40]

Each runs in a process of its own under one memory cap: what the map's process holds with the topology loaded, and a
share of the features on top, for our cache or for the page cache of the map. The map is read as it is, without
read-ahead, and by more threads or processes than there are cores; our store at its defaults. The dataset is evicted
before each, and the first fifth of the mini-batches is not measured. The loader is `NeighborLoader`, with torch-sparse
from the environment of `env:pyg`; without that `NodeLoader` with Outcore's sampler, on all sides. The same loader with
all rows in memory tells whether they are storage-bound. Mini-batches a second, in turns; ends with code 1 below twice
the fastest map.

`--quick`: one round on half the graph, without the map as it is, whose read-ahead (`/sys/block/*/queue/read_ahead_kb`)
may be megabytes; at most four minutes on two cores.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _disk import parser, verdict

from harness.foreign.environment import find
from harness.isolation import Limits, select
from systems.engine.io.memory import evict, madvise
from workloads.dataset import PARTS, Dataset
from workloads.making.make import MakeSpec, make_dataset
from workloads.sampling.make import make_sampler
from workloads.tempfolder import TemporaryFolder
from workloads.workload import ModelSpec, SamplerSpec, Workload

FANOUT, BATCH = (10, 10), 500
STORE, MEMORY = "store", "in memory, no cap"
#: Sides by name: whether the map has no read-ahead, processes of the loader, threads of torch (0: one a core).
SIDES: dict[str, tuple[bool, int, int]] = {
    STORE: (False, 0, 0),
    "map": (False, 0, 0),
    "map, MADV_RANDOM": (True, 0, 0),
    "map, MADV_RANDOM, 32 threads": (True, 0, 32),
    "map, MADV_RANDOM, 4 workers": (True, 4, 0),
    MEMORY: (False, 0, 0),
}
TARGET = 2.0
_SLACK = 64 << 20  # beside what a process holds after a few mini-batches: page tables, buffers of one more
_TRIED = 3  # mini-batches of the process that tells how much it holds


def loader_of(dataset: Dataset, stores: Any, batches: int, workers: int) -> Any:
    """Return PyG's loader over the stores, for so many mini-batches and those under way at their end."""
    import torch_geometric.typing as built
    from torch_geometric.loader import NeighborLoader, NodeLoader
    from torch_geometric.sampler import BaseSampler, SamplerOutput

    nodes = torch.from_numpy(dataset.load("train")[: (batches + 2 * workers) * BATCH])
    shared: dict[str, Any] = {"input_nodes": nodes, "batch_size": BATCH, "shuffle": False, "num_workers": workers}
    if built.WITH_PYG_LIB or built.WITH_TORCH_SPARSE:
        return NeighborLoader(stores, num_neighbors=list(FANOUT), **shared)
    row, colptr = stores[1].get_edge_index(None, "csc")
    workload = Workload(dataset, SamplerSpec(fanout=FANOUT), ModelSpec(layers=len(FANOUT)))
    ours = make_sampler(workload, indptr=colptr.numpy(), indices=row.numpy(), threads=2)

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


def tensor_store(dataset: Dataset, rows: torch.Tensor) -> Any:
    """Return a store that indexes a tensor, as PyG does with a `Data` of such a tensor."""
    from torch_geometric.data import FeatureStore, TensorAttr

    tensors = {"x": rows, "y": torch.from_numpy(dataset.load("labels"))}

    class Indexed(FeatureStore):  # type: ignore[misc]
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

    return Indexed()


def child(side: str, path: str, memory: int, batches: int) -> None:
    """Run the loader's mini-batches, the first fifth unmeasured; print mini-batches and rows a second."""
    from outcore.pyg import FeatureStore, GraphStore

    dataset, (advice, workers, threads) = Dataset.open(path), SIDES[side]
    if threads:
        torch.set_num_threads(threads)
    graph = GraphStore(dataset)
    graph.get_edge_index(None, "csc")
    if side == STORE:
        store = FeatureStore(dataset, memory=memory)
    else:
        table = np.load(dataset.file("features"), mmap_mode=None if side == MEMORY else "c")
        if advice:
            madvise(table, "random")
        store = tensor_store(dataset, torch.from_numpy(table))
    torch.manual_seed(0)
    loader = loader_of(dataset, (store, graph), batches, workers)
    begin, warm, rows, total = 0.0, max(1, batches // 5), 0, 0.0
    for number, batch in enumerate(loader):
        if number < warm:
            rows_of = dataset.memmap("features")[batch.n_id[:50].numpy()]
            assert torch.equal(batch.x[:50], torch.from_numpy(np.array(rows_of)))
            begin = time.perf_counter()
            continue
        rows += len(batch.x)
        total += float(batch.x[:, 0].double().sum())
        if number + 1 == batches:
            break
    if number + 1 < batches:
        sys.exit(f"the loader has {number + 1} mini-batches, {batches} are wanted: give more --nodes")
    seconds = time.perf_counter() - begin
    counts = store.counters() if side == STORE else {}
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    counts["held"] = int(status["RssAnon"].split()[0]) << 10
    told = {"rate": (batches - warm) / seconds, "rows": rows / seconds, "loader": type(loader).__name__, **counts}
    print(json.dumps({**told, "total": round(total, 3) if not workers else None}))


def torch_sparse() -> Iterator[str]:
    """Yield the packages of `env:pyg`, which lie behind Outcore's own on the child's path, if they are set up."""
    folder = find("pyg")
    if folder.environment is not None and not folder.missing:
        yield from map(str, folder.environment.glob("lib/python*/site-packages"))


def main() -> int:
    options = parser(__doc__ or "")
    options.set_defaults(rounds=3)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--share", type=float, default=0.1, help="of the features, for cache or page cache")
    options.add_argument("--batches", type=int)
    options.add_argument("--nodes", type=int, default=2**21)
    options.add_argument("--edges", type=int, default=40_000_000)
    options.add_argument("--child", nargs=3, metavar=("SIDE", "DATASET", "MEMORY"))
    args = options.parse_args()
    batches = args.batches or (20 if args.quick else 40)
    if args.child:
        child(args.child[0], args.child[1], int(args.child[2]), batches)
        return 0
    selection, found = select(), {side: list[dict[str, Any]]() for side in SIDES}
    if args.quick:
        args.rounds, args.nodes, args.edges = 1, args.nodes // 2, args.edges // 2
        del found["map"]
    with TemporaryFolder(args.folder, "benchmark") as made:
        shares = (0.02, 0.01, 0.01)
        spec = MakeSpec("kronecker", args.nodes, args.edges, labels="random", features="random", fractions=shares)
        dataset = make_dataset(Path(made) / "graph", spec)
        memory = int(args.share * dataset.feature_bytes)
        start = f"import sys; sys.path += {list(torch_sparse())}; import runpy; sys.argv = sys.argv[1:]; "
        start += f"sys.path.insert(0, {str(Path(__file__).parent)!r}); runpy.run_path(sys.argv[0], run_name='__main__')"

        def run(side: str, limit: int | None, count: int) -> dict[str, Any] | None:
            for part in PARTS:
                evict(dataset.file(part))
            command = [sys.executable, "-c", start, __file__, "--batches", str(count)]
            command += ["--child", side, str(dataset.path), str(memory)]
            with selection.backend.create("pyg-store", Limits(memory_bytes=limit)) as cap:
                done = subprocess.run(cap.command(command), capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"  {side} ended with {done.returncode}: {done.stderr[-2000:]}", flush=True)
                return None
            content: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return content

        tried = run("map", None, _TRIED)
        if tried is None:
            return 1
        cap_bytes = tried["held"] + _SLACK + memory
        print(f"{selection.backend.name}, cap {cap_bytes >> 20} MiB, {memory >> 20} MiB of it for rows", flush=True)
        for _ in range(args.rounds):
            for side, told in found.items():
                one = run(side, None if side == MEMORY else cap_bytes, batches)
                if one is not None:
                    told.append(one)
                    print(f"  {side:30} {one}", flush=True)
    medians = {side: statistics.median(one["rate"] for one in told) for side, told in found.items() if told}
    if STORE not in medians:
        return 1
    theirs = max(rate for side, rate in medians.items() if side not in (STORE, MEMORY))
    print(f"in memory {medians[MEMORY] / theirs:.2f}x as fast as the fastest map", end="")
    bound = medians[MEMORY] >= TARGET * theirs
    print(": storage-bound" if bound else ": not storage-bound, so no ratio counts")
    if args.rounds == 1:
        print("one round: the ratio has no interval")
    return 0 if verdict("FeatureStore / fastest memory map", medians[STORE] / theirs, TARGET) and bound else 1


if __name__ == "__main__":
    sys.exit(main())
