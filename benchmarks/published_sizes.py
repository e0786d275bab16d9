"""Full-size graphs that nobody has here, predicted from their published statistics: rows, reads and times by system.

    python -m benchmarks.published_sizes [--drive aws-nvme] [--memory 0.1x] [--batches 20] [--graphs papers100m,mag240m]

Prints Markdown. Everything is a prediction, but for one comparison: DiskGNN's own paper says how much it and Ginex read
in an epoch of papers100M (Table 1, its features of 512 bytes, a tenth of them in memory), and what is predicted for
that setting stands beside it. Exit code 1 where DiskGNN's volume is predicted further off than `--within`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from harness.advise import Advice
from harness.advise.forecasts import Forecast
from harness.advise.full_size import advise_published
from harness.advise.published import GRAPHS
from harness.experiment import RunSettings
from harness.ssd.whatif import device_of

# DiskGNN, Table 1: gigabytes read in an epoch of papers100M by Ginex and by DiskGNN.
PUBLISHED_GB = {"ginex": 484.0, "diskgnn": 73.9}
PAGE = 4096


def volume_gb(entry: Forecast) -> float:
    """Feature bytes read, as the paper's systems read them: Ginex a page a row, DiskGNN what it packed."""
    if entry.system == "ginex":
        return entry.reads.get(512, 0.0) * PAGE / 1e9
    return entry.bytes_read / 1e9


def table(found: Advice, epochs: int) -> None:
    """One graph's systems."""
    print("| system | epoch, s | preparation, s | waits for | read, GB | why |")
    print("| --- | ---: | ---: | --- | ---: | --- |")
    for entry in found.ranked:
        print(
            f"| {entry.system} | {entry.epoch_s:,.0f} | {entry.prepare_s:,.0f} | {entry.bound} "
            f"| {entry.bytes_read / 1e9:,.0f} | {entry.why} |"
        )
    for entry in found.refused:
        print(f"| {entry.system} | – | – | – | – | {entry.refused} |")
    if found.ranked:
        best = found.ranked[0]
        print(f"\n{epochs} epochs: {best.system}, {best.total_s(epochs) / 3600:.1f} h\n", flush=True)


def main() -> int:
    """Predict each graph."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", default="papers100m,mag240m,igb260m")
    parser.add_argument("--drive", default="aws-nvme")
    parser.add_argument("--memory", default="0.1x")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--cores", type=int, default=48)
    parser.add_argument("--within", type=float, default=0.5)
    chosen = parser.parse_args()
    profile = device_of(chosen.drive, Path("results")).profile
    settings = RunSettings(
        memory=chosen.memory, fanout=[20, 15, 10], batch_size=1024, device="emulated:a10g", device_memory="16GiB",
        warmup=0, epochs=1,
    )  # fmt: skip
    sound = True
    print(
        f"predictions: {chosen.drive}, {chosen.memory} of the features in memory, {chosen.batches} mini-batches sampled"
    )
    for name in chosen.graphs.split(","):
        graph = GRAPHS[name]
        found, _ = advise_published(
            graph, settings, profile, epochs=chosen.epochs, batches=chosen.batches, cores=chosen.cores
        )
        rows, count = found.share.rows, found.share.num_batches
        print(f"\n## {name} ({graph.dim} {graph.dtype}; {graph.source})\n")
        print(f"{count:,} mini-batches of {rows / count:,.0f} rows\n")
        table(found, chosen.epochs)
    graph = replace(GRAPHS["papers100m"], dim=128, dtype="float32")
    found, _ = advise_published(
        graph, settings, profile, epochs=chosen.epochs, batches=chosen.batches, cores=chosen.cores,
        systems=list(PUBLISHED_GB),
    )  # fmt: skip
    print("## papers100m beside DiskGNN's Table 1\n")
    for entry in found.ranked:
        predicted, published = volume_gb(entry), PUBLISHED_GB[entry.system]
        print(
            f"{entry.system}: {predicted:.0f} GB an epoch predicted, {published:.0f} published: "
            f"{predicted / published:.2f}x"
        )
        if entry.system == "diskgnn":
            sound &= abs(predicted / published - 1) <= chosen.within
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
