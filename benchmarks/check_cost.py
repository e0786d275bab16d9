"""Cost of a run's checks: at its gates and after it, over a whole bench, and within an epoch.

    python benchmarks/check_cost.py RESULTS

Reads the records of a results root (`make bench` writes one): seconds of judging and at gates, without evictions, over
the runs' whole time. Within an epoch, rows of a few mini-batches are checked: this is timed here, for mini-batches of
the epoch's size. Ends with code 1 above 2 % or 1 %.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.wire.spots import BATCHES, look_at
from systems.interface import Batch
from workloads.sampling.batch import SampledBatch

WHOLE, EPOCH = 0.02, 0.01


def looking_seconds(nodes: int, dim: int) -> float:
    """Return the median seconds for checking the chosen mini-batches of one epoch."""
    rng = np.random.default_rng(1)
    sampled = SampledBatch(0, 0, rng.permutation(nodes), 50, (), np.zeros(50, np.int64))
    batch = Batch(sampled, torch.rand(nodes, dim))
    times = []
    for _ in range(21):
        began = time.monotonic()
        for number in range(BATCHES):
            for _ in ("before", "after the training step"):
                look_at(batch, bytes([number] * 8))
        times.append(time.monotonic() - began)
    return statistics.median(times)


def main(argv: list[str]) -> int:
    """Print both shares."""
    if len(argv) != 2:
        print(__doc__)
        return 2
    records: list[dict[str, Any]] = [
        json.loads(path.read_text(encoding="utf-8")) for path in Path(argv[1]).glob("runs/*/record.json")
    ]
    records = [record for record in records if record["status"] == "ok" and "judging_s" in record["overhead"]]
    if not records:
        print("no record has the time of its judging")
        return 2
    checks = sum(record["overhead"]["gates_s"] + record["overhead"]["judging_s"] for record in records)
    whole = sum(record["duration_s"] for record in records)
    print(f"{len(records)} runs: gates and judging {checks:.1f} s of {whole:.0f} s, {100 * checks / whole:.2f} % (2 %)")
    shares = []
    for record in records:
        told = [epoch for epoch in record["epochs"] if not epoch["warmup"] and epoch["batches"]]
        for epoch in told:
            nodes = round(epoch["counters"]["rows"] / epoch["batches"])
            looking = looking_seconds(max(128, nodes), record["config"]["dataset"]["dim"])
            shares.append((looking / epoch["seconds"], record["system"], epoch["seconds"], looking))
    worst = max(shares)
    print(
        f"{len(shares)} epochs: looking at rows takes {100 * statistics.median(share for share, *_ in shares):.3f} % "
        f"(median), at most {100 * worst[0]:.3f} % (1 %; {worst[1]}, {1000 * worst[3]:.2f} ms of {worst[2]:.2f} s)"
    )
    return int(checks > WHOLE * whole or worst[0] > EPOCH)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
