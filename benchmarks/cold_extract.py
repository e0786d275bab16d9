"""Cold extraction of a mini-batch's rows: the engine against torch over np.memmap and against DGL 1.1.3's loader.

    python benchmarks/cold_extract.py [--size 4GiB] [--folder DIR] [--rounds 5] [--rows 20000] [--no-dgl]

The file is evicted before every extraction, and in a round all loaders read the same rows. torch: `index_select` over a
tensor that shares the memory map, with read-ahead and without it (`MADV_RANDOM`, its better case). DGL: a graph whose
node features are that tensor, sliced by its dataloader (`DataLoader` with `prefetch_node_feats`). Also 32 and 128
threads that gather from the memory map and wait for its pages. Prints seconds; ends with code 1 unless the engine is
twice as fast as the fastest of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _disk import data_file, interleave, parser, verdict

from systems.engine.io.arrays import gather
from systems.engine.io.memory import aligned_empty, evict, madvise, resident_bytes
from systems.engine.io.reader import RowReader

DIM = 128
ROW = 4 * DIM
OURS = "RowReader"
# Threads that gather from the memory map: each page fault is one read in flight.
GATHERERS = (32, 128)


def dgl_loader(path: Path, num_rows: int, advice: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a loader of rows by DGL, whose dataloader fetches the features of the seed nodes' blocks."""
    from systems.engine.dgl import import_dgl

    dgl: Any = import_dgl()
    # No edges: the input nodes of a mini-batch are its seed nodes, so sampling takes no time.
    nothing = torch.empty(0, dtype=torch.int64)
    graph = dgl.graph((nothing, nothing), num_nodes=num_rows)

    def load(rows: torch.Tensor) -> torch.Tensor:
        mapped = np.memmap(path, dtype=np.float32, mode="r+", shape=(num_rows, DIM))
        if advice:
            madvise(mapped, "random")
        graph.ndata["feat"] = torch.from_numpy(mapped)
        sampler = dgl.dataloading.NeighborSampler([1], prefetch_node_feats=["feat"])
        loader = dgl.dataloading.DataLoader(graph, rows, sampler, batch_size=len(rows), shuffle=False, num_workers=0)
        start = time.perf_counter()
        _, _, blocks = next(iter(loader))
        values: torch.Tensor = blocks[0].srcdata["feat"]
        load.seconds = time.perf_counter() - start  # type: ignore[attr-defined]
        del graph.ndata["feat"]
        return values

    return load


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--rows", type=int, default=20_000, help="of the mini-batch, unique, in no order")
    options.add_argument("--no-dgl", action="store_true")
    args = options.parse_args()
    rng = np.random.default_rng(1)
    with data_file(args.folder, args.size) as path:
        num_rows = path.stat().st_size // ROW
        reader = RowReader(path, data_offset=0, num_rows=num_rows, row_bytes=ROW)
        out = torch.from_numpy(aligned_empty(args.rows * ROW)).view(torch.float32).view(args.rows, DIM)
        rows = torch.empty(0, dtype=torch.int64)
        reference = b""

        def cold(extract: Callable[[], tuple[float, torch.Tensor]]) -> float:
            nonlocal reference
            left = evict(path)
            assert left < 0.01 * path.stat().st_size, f"{left} bytes stayed in the page cache"
            seconds, values = extract()
            content = values.contiguous().numpy().tobytes()
            reference = reference or content
            assert content == reference, "the loaders disagree"
            return seconds

        def ours() -> tuple[float, torch.Tensor]:
            start = time.perf_counter()
            reader.read(rows, out)
            seconds = time.perf_counter() - start
            assert resident_bytes(path) < 0.01 * path.stat().st_size
            return seconds, out

        def mapped(advice: bool, threads: int = 0) -> tuple[float, torch.Tensor]:
            table = np.memmap(path, dtype=np.float32, mode="r+", shape=(num_rows, DIM))
            if advice:
                madvise(table, "random")
            start = time.perf_counter()
            if threads:
                values = torch.empty(args.rows, DIM)
                gather(table, rows, values, threads)
            else:
                values = torch.index_select(torch.from_numpy(table), 0, rows)
            return time.perf_counter() - start, values

        def new_round() -> float:
            nonlocal rows, reference
            rows, reference = torch.from_numpy(rng.permutation(num_rows)[: args.rows]), b""
            return cold(ours)

        runs: dict[str, Callable[[], float]] = {
            OURS: new_round,
            "torch.index_select": lambda: cold(lambda: mapped(False)),
            "torch.index_select, MADV_RANDOM": lambda: cold(lambda: mapped(True)),
        }
        for threads in GATHERERS:
            name = f"gather with {threads} threads, MADV_RANDOM"
            runs[name] = lambda threads=threads: cold(lambda: mapped(True, threads))  # type: ignore[misc]
        if not args.no_dgl:
            for advice in (False, True):
                load = dgl_loader(path, num_rows, advice)

                def by_dgl(load: Callable[[torch.Tensor], torch.Tensor] = load) -> tuple[float, torch.Tensor]:
                    values = load(rows)
                    return load.seconds, values  # type: ignore[attr-defined]

                name = "DGL 1.1.3 DataLoader" + (", MADV_RANDOM" if advice else "")
                runs[name] = lambda by_dgl=by_dgl: cold(by_dgl)  # type: ignore[misc]
        print(f"{reader.mode}; {args.rows} rows of {ROW} bytes, torch with {torch.get_num_threads()} threads; seconds:")
        medians = interleave(args.rounds, runs)
    name, ratio = strongest(medians)
    return 0 if verdict(f"{name} (the strongest) / RowReader", ratio, 2.0) else 1


def strongest(medians: Mapping[str, float]) -> tuple[str, float]:
    """Return the fastest alternative, and its time over ours."""
    controls = {name: seconds for name, seconds in medians.items() if name != OURS}
    name = min(controls, key=lambda control: controls[control])
    return name, controls[name] / medians[OURS]


if __name__ == "__main__":
    sys.exit(main())
