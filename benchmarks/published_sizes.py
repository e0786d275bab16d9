"""How long would an epoch of a published graph take at full size? Predictions from
published statistics, by system.

    python -m benchmarks.published_sizes [--drive aws-nvme] [--memory 0.1x] \\
        [--batches 20] [--graphs papers100m,mag240m]

Prints Markdown. Every number is a prediction. DiskGNN's paper gives seconds and bytes
of an epoch of papers100M for DiskGNN and Ginex (Table 1: features of 512 bytes, a tenth
of them in memory). Predictions for that setting are printed beside them with their
errors; Ginex has the superbatch of its own paper, or the largest that fits in memory.
If one of the four predictions is off by more than a factor of `--within`, systems are
listed by name without ranks, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from harness.advise.advice import Advice, RankedSystem
from harness.advise.published import GRAPHS, advise_published
from harness.drives.whatif import device_of
from harness.settings import RunSettings

# DiskGNN, Table 1: gigabytes read in an epoch of papers100M, and its seconds.
PUBLISHED_GB = {"ginex": 484.0, "diskgnn": 73.9}
PUBLISHED_S = {"ginex": 580.0, "diskgnn": 76.3}
# Ginex, Section 5.3: its superbatch for papers100M. (Its runtime files are 100 GB
# there, with fan-outs of 10.)
RUNTIME_FILES: dict[str, object] = {"runtime_files": "300GiB"}
OPTIONS: dict[str, dict[str, object]] = {"ginex": {"superbatch": 3300, **RUNTIME_FILES}}
PAGE = 4096


def volume_gb(entry: RankedSystem) -> float:
    """Return the gigabytes of features that the paper's code reads: Ginex a page per
    row, DiskGNN its packed rows."""
    if entry.system == "ginex":
        return entry.reads.get(512, 0.0) * PAGE / 1e9
    return entry.bytes_read / 1e9


def table(found: Advice) -> None:
    """Print the systems of one graph by name, without ranks."""
    print("| system | epoch, s | preparation, s | waits for | read, GB | why |")
    print("| --- | ---: | ---: | --- | ---: | --- |")
    for entry in sorted(found.ranked, key=lambda one: one.system):
        print(
            f"| {entry.system} | {entry.epoch_s:,.0f} | "
            f"{entry.prepare_s + entry.each_s:,.0f} | {entry.bound} | "
            f"{entry.bytes_read / 1e9:,.0f} | {entry.why} |"
        )
    for entry in found.refused:
        print(f"| {entry.system} | – | – | – | – | {entry.refused} |")
    print(flush=True)


def beside_published(found: Advice, within: float) -> bool:
    """Print predicted and published volumes and times; return whether all are within a
    factor of `within`."""
    sound = True
    for entry in sorted(found.ranked, key=lambda one: one.system):
        for what, unit, predicted, published in (
            ("volume", "GB", volume_gb(entry), PUBLISHED_GB[entry.system]),
            ("epoch", "s", entry.epoch_s, PUBLISHED_S[entry.system]),
        ):
            ratio = predicted / published
            sound &= 1 / within <= ratio <= within
            print(
                f"| {entry.system} | {what} | {predicted:,.0f} {unit} | "
                f"{published:,.1f} {unit} | {ratio:.2f} |"
            )
    for entry in found.refused:
        print(f"| {entry.system} | refused | {entry.refused} | | |")
    return sound and not found.refused


def main() -> int:
    """Predict each graph and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", default="papers100m,mag240m,igb260m")
    parser.add_argument("--drive", default="aws-nvme")
    parser.add_argument("--memory", default="0.1x")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--cores", type=int, default=48)
    parser.add_argument("--within", type=float, default=1.5)
    chosen = parser.parse_args()
    profile = device_of(chosen.drive, Path("results")).profile
    settings = RunSettings(
        memory=chosen.memory,
        fanout=[20, 15, 10],
        batch_size=1024,
        device="emulated:a10g",
        device_memory="16GiB",
        warmup=0,
        epochs=1,
    )
    print(
        f"predictions: {chosen.drive}, {chosen.memory} of the features in memory, "
        f"{chosen.batches} mini-batches sampled"
    )
    for name in filter(None, chosen.graphs.split(",")):
        graph = GRAPHS[name]
        found, _ = advise_published(
            graph,
            settings,
            profile,
            epochs=chosen.epochs,
            batches=chosen.batches,
            cores=chosen.cores,
        )
        rows = found.trace.rows
        count = found.trace.num_batches
        print(f"\n## {name} ({graph.dim} {graph.dtype}; {graph.source})\n")
        print(f"{count:,} mini-batches of {rows / count:,.0f} rows\n")
        table(found)
    graph = replace(GRAPHS["papers100m"], dim=128, dtype="float32")
    print("## papers100m beside DiskGNN's Table 1\n")
    print("| system | what | predicted | published | predicted over published |")
    print("| --- | --- | ---: | ---: | ---: |")
    systems = list(PUBLISHED_GB)
    options = OPTIONS
    sound = True
    while systems:
        found, _ = advise_published(
            graph,
            settings,
            profile,
            epochs=chosen.epochs,
            batches=chosen.batches,
            cores=chosen.cores,
            systems=systems,
            options=options,
        )
        sound &= beside_published(found, chosen.within)
        refused = [entry.system for entry in found.refused]
        if refused == systems:  # no option is left to leave out
            break
        systems = refused
        options = {"ginex": RUNTIME_FILES}
    print(
        f"\n{'all' if sound else 'not all'} within a factor of {chosen.within}", end=""
    )
    print("" if sound else ": the order of these systems at full size is unknown")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
