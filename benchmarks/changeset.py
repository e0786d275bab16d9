"""Changeset planning: ids planned a second and peak memory, over mini-batches stored on disk.

By default 1,000 mini-batches of 100,000 ids over 10 million nodes, skewed as in sampled graphs. The ids are streamed
from the batch store as `ginex` does. The time is that of the three passes with their reads; the peak is that of the
process's memory above its start. Exit 1 below a target.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np

from systems.engine.cache.changeset import ChangesetPlan
from systems.engine.io.memory import evict
from systems.engine.io.regions import RegionIndex
from systems.engine.store.batch_store import BatchReader, BatchWriter
from workloads.sampling.batch import SampledBatch
from workloads.tempfolder import TemporaryFolder

TARGET_IDS_PER_S = 20e6


def store(path: Path, batches: int, size: int, nodes: int) -> RegionIndex:
    """Store batches of distinct ids, popular ones more often, ascending as samplers return them within a hop."""
    rng = np.random.default_rng(0)
    name = rng.permutation(nodes).astype(np.int64)  # popular nodes have any ids
    none = np.empty(0, dtype=np.int64)
    writer = BatchWriter(path)
    for index in range(batches):
        ranks = np.unique((nodes * rng.random(2 * size) ** 3).astype(np.int64))
        ids = np.sort(name[rng.choice(ranks, size, replace=False)])
        writer.append(SampledBatch(0, index, ids, 0, (), none))
    found = writer.close()
    evict(path)
    return found


def resident() -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, default=Path("/var/tmp"), help="where the batches are stored and removed"
    )
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--capacity", type=float, default=0.1, help="rows of the cache, as a share of the nodes")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with TemporaryFolder(options.folder, "benchmark") as folder:
        path = Path(folder) / "batches"
        index = store(path, options.batches, options.size, options.nodes)
        rates = []
        accesses = options.batches * options.size
        for _ in range(options.rounds):
            reader = BatchReader(path, index)
            before, peak = resident(), 0
            start = time.perf_counter()
            plan = ChangesetPlan(
                reader.nodes,
                index.counts,
                num_nodes=options.nodes,
                capacity=int(options.capacity * options.nodes),
                threads=options.threads,
            )
            plan.look_ahead()
            looked = time.perf_counter() - start
            hits = 0
            for change in plan.changesets():
                hits += change.hits
                peak = max(peak, resident() - before)
            seconds = time.perf_counter() - start
            rates.append(accesses / seconds)
            print(
                f"{rates[-1] / 1e6:6.1f} M ids/s ({looked:.2f} s to look ahead, {seconds - looked:.2f} s to simulate), "
                f"{hits / accesses:.3f} hits, {plan.memory_bytes / 2**20:.0f} MiB held, {peak / 2**20:.0f} MiB peak"
            )
            reader.close()
            del plan
    allowed = 8 * accesses + 12 * options.nodes
    rate = sorted(rates)[len(rates) // 2]
    print(
        f"median {rate / 1e6:.1f} M ids/s (target {TARGET_IDS_PER_S / 1e6:.0f}), peak {peak} of {allowed} bytes allowed"
    )
    return 0 if rate >= TARGET_IDS_PER_S and peak <= allowed else 1


if __name__ == "__main__":
    sys.exit(main())
