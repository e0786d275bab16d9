"""GraphBolt's sampler in a separate process and environment, run by
`benchmarks/sampling.py --graphbolt PYTHON`.

    PYTHON benchmarks/_graphbolt.py FOLDER FANOUT,FANOUT,...

FOLDER holds indptr.npy, indices.npy (int64) and batches.npy (int64 [batches, seeds]).
For every line on standard input it samples all mini-batches once and prints edges and
seconds. It imports nothing of Outcore.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import sys
import time
from pathlib import Path


def main() -> int:
    """Sample once for each line until the input ends."""
    import dgl.graphbolt as gb
    import numpy as np
    import torch

    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    names = ("indptr", "indices", "batches")
    indptr, indices, batches = (
        torch.from_numpy(np.load(folder / f"{name}.npy")) for name in names
    )
    graph = gb.fused_csc_sampling_graph(indptr, indices)
    items = gb.ItemSet(batches.reshape(-1), names="seed_nodes")
    pipe = gb.ItemSampler(items, batch_size=batches.shape[1])
    pipe = pipe.sample_neighbor(
        graph, [torch.tensor([int(fanout)]) for fanout in sys.argv[2].split(",")]
    )
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        edges = 0
        for mini_batch in pipe:
            edges += sum(
                int(layer.sampled_csc.indices.shape[0])
                for layer in mini_batch.sampled_subgraphs
            )
        print(edges, time.perf_counter() - began, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
