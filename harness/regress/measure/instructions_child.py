"""Script for valgrind: the native hot paths on fixed inputs, one thread each, to count
their instructions.

Imports the two native modules and numpy alone. Each part runs twice, the first time as
warm-up; callgrind dumps its counts at the calls of `getpgid` before and after the
second run.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

import systems._native as engine
import workloads._native as sampling

NODES = 20_000
EDGES = 200_000
IDS = 8_000


def _parts() -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(0)
    degrees = np.bincount(rng.integers(0, NODES, EDGES), minlength=NODES)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    indices = rng.integers(0, NODES, EDGES).astype(np.int32)
    seeds = np.sort(rng.choice(NODES, 200, replace=False)).astype(np.int64)
    batches = [
        np.sort(rng.choice(NODES, IDS, replace=False)).astype(np.int64)
        for _ in range(4)
    ]
    ids = batches[0]
    table = rng.integers(0, 255, (NODES, 512), dtype=np.uint8)
    out = np.zeros((IDS, 512), dtype=np.uint8)
    sampler = sampling.NeighborSampler(indptr, indices, [10, 10], 1, False, 1)
    lists = np.concatenate([[0], np.cumsum([len(batch) for batch in batches])]).astype(
        np.int64
    )

    falling = ids[::-1].copy()
    joined = np.concatenate(batches)

    def changesets() -> None:
        planner = engine.ChangesetPlanner(NODES, NODES // 10, np.diff(lists), 1)
        for index in reversed(range(len(batches))):
            planner.look_back(index, batches[index])
        planner.begin()
        for index, batch in enumerate(batches):
            planner.advance(index, batch)

    return {
        "sampler": lambda: sampler.sample(0, 0, seeds),
        "reader": lambda: engine.plan_reads(
            ids,
            file_bytes=NODES * 512,
            block_bytes=512,
            data_offset=0,
            num_rows=NODES,
            row_bytes=512,
            merge=True,
            max_request_bytes=131072,
            merge_gap_bytes=0,
        ),
        "changeset": changesets,
        "packing": lambda: (
            engine.ascending(falling),
            engine.minhash_order(joined, lists, 2, 1),
        ),
        "gather": lambda: engine.gather(table, ids, out, 1),
    }


def main() -> None:
    """Run every part twice, the second time between two marks, and print its name."""
    for name, part in _parts().items():
        part()
        os.getpgid(0)
        part()
        os.getpgid(0)
        print(name, flush=True)


if __name__ == "__main__":
    main()
