"""Is a reimplementation at least as fast as the software it stands for? Equal graph and
memory, rounds in turns.

    python benchmarks/real_others.py [--quick] [--search] [--rounds 3] [--pairs …] \\
        [--disk-class none|CLASS]

Ratios of epoch times, medians over the rounds: `pyg` over `pyg+`; GraphBolt over
`gnndrive` and `outcore`; DGL's loader over `dgl-ondisk`. Theirs run as their users run
them, without read-ahead, and at the strongest settings that `--search` found; ours run
at their defaults. All get the same memory beyond their own interpreter, libraries and
training step, and one epoch of warm-up. The graph has several times as many features as
memory: a run that is not storage-bound is an error. Systems whose environment is not
set up are left out and named. Exit 1 if a target is missed.

`--quick` makes one round of one warm-up and one measured epoch, without DGL's loader
and without read-ahead, which may read gigabytes for a mini-batch
(`/sys/block/*/queue/read_ahead_kb`): it has no interval.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from _outcore import outcore

from workloads.tempfolder import TemporaryFolder

#: Variants of the other side: as its users run it, without read-ahead, and the best of
#: `--search` on two cores.
PLAIN = ()
RANDOM = ("madvise=random",)
STRONGEST = {
    "env:pyg": ("madvise=random", "threads=32"),
    "env:graphbolt": ("madvise=random", "threads=32"),
    "env:dgl": ("madvise=random", "threads=32"),
}
#: Ours, theirs, and the least ratio of epoch times (None: printed only).
PAIRS: dict[str, tuple[str, str, float | None]] = {
    "pyg": ("pyg+", "env:pyg", 2.0),
    "graphbolt-gnndrive": ("gnndrive", "env:graphbolt", 2.0),
    "graphbolt-outcore": ("outcore", "env:graphbolt", 5.0),
    "dgl": ("dgl-ondisk", "env:dgl", None),
}
NODES = 500_000
GRAPH = f"--kind kronecker --nodes {NODES} --edges 4M --dim 768 --train-fraction"
#: Settings that `--search` tries for each of theirs.
_MORE = (
    "threads=8",
    "threads=32",
    "threads=128",
    "workers=2",
    "workers=4",
    "threads=32 workers=2",
)
SEARCHED = [RANDOM, *((*RANDOM, *more.split()) for more in _MORE)]
_GRAPHBOLTS = [(*RANDOM, "prefetch=true"), (*RANDOM, "threads=32", "prefetch=true")]
Variant = tuple[str, tuple[str, ...]]


def run(
    root: Path, variant: Variant, chosen: argparse.Namespace, seed: int
) -> dict[str, Any]:
    """Run a system once; return its record."""
    words = (
        f"--dataset {chosen.dataset} --memory {chosen.memory} --model {chosen.model} "
        f"--fanout {chosen.fanout}"
    )
    words += (
        f" --hidden 32 --batch-size {chosen.batch_size} --epochs {chosen.epochs} "
        f"--disk-class {chosen.disk_class}"
    )
    more = [word for option in variant[1] for word in ("-o", option)]
    record = outcore(
        root,
        "run",
        variant[0],
        *words.split(),
        "--seed",
        str(seed),
        "--timeout",
        "2h",
        *more,
    )
    if record["status"] == "ok" and record["class"] != "storage-bound":
        sys.exit(
            f"{named(variant)} is {record['class']}, not storage-bound: give less "
            "--memory"
        )
    return record


def named(variant: Variant) -> str:
    return " ".join((variant[0], *variant[1]))


def epoch_seconds(record: dict[str, Any]) -> float | None:
    """Return the median of a run's measured epochs; None if it did not end well."""
    measured = [
        float(epoch["seconds"]) for epoch in record["epochs"] if not epoch["warmup"]
    ]
    return (
        statistics.median(measured) if record["status"] == "ok" and measured else None
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one round of two epochs, at most 8 minutes on two cores",
    )
    parser.add_argument(
        "--search",
        action="store_true",
        help="find the strongest settings of theirs, one epoch each",
    )
    parser.add_argument("--pairs", nargs="*", choices=list(PAIRS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument(
        "--epochs", type=int, help="of each run, the first of them warming up"
    )
    parser.add_argument(
        "--batches", type=int, default=160, help="mini-batches of an epoch"
    )
    parser.add_argument("--disk-class", default="none")
    parser.add_argument(
        "--memory",
        default="+192MiB",
        help="beyond interpreter, libraries and a training step of each",
    )
    parser.add_argument("--model", default="sage")
    parser.add_argument("--fanout", default="10,10,10")
    parser.add_argument("--batch-size", type=int, default=25)
    parser.add_argument("--dataset", default="others")
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with data/DATASET; without it a graph is made and removed",
    )
    chosen = parser.parse_args()
    brief = chosen.quick or chosen.search
    chosen.rounds = chosen.rounds or (1 if brief else 3)
    chosen.epochs = chosen.epochs or (2 if brief else 3)
    chosen.pairs = chosen.pairs or [
        name for name in PAIRS if name != "dgl" or not brief
    ]
    with TemporaryFolder(Path("/var/tmp"), "benchmark") as temporary:
        root = chosen.data or Path(temporary)
        if not (root / "data" / chosen.dataset).is_dir():
            share = chosen.batches * chosen.batch_size / NODES
            outcore(root, "data", "make", chosen.dataset, *GRAPH.split(), f"{share:g}")
        return search(root, chosen) if chosen.search else compare(root, chosen)


def rounds(
    root: Path, variants: Iterable[Variant], chosen: argparse.Namespace
) -> dict[Variant, list[float]]:
    """Run all variants in turns, print each run, and return the epoch times of those
    that ended well."""
    seconds: dict[Variant, list[float]] = {variant: [] for variant in variants}
    for number in range(chosen.rounds):
        for variant, known in seconds.items():
            record = run(root, variant, chosen, number)
            found = epoch_seconds(record)
            epoch = record["epochs"][-1] if record["epochs"] else {}
            how = (
                f"{found:8.2f} s"
                if found
                else f"{record['status']}: {record['reason']}"
            )
            print(
                f"round {number}  {named(variant):40} {how}  rows "
                f"{epoch.get('counters', {}).get('rows')}",
                end="",
            )
            print(
                f"  read {(epoch.get('device_bytes') or 0) >> 20} MiB  "
                f"{record['verdict']}",
                end="",
            )
            print(
                f"  {record['class'] or ''}  cap "
                f"{(record['memory']['cap_bytes'] or 0) >> 20} MiB",
                flush=True,
            )
            known += [found] if found else []
    return seconds


def search(root: Path, chosen: argparse.Namespace) -> int:
    """Print the strongest settings of each of theirs."""
    for theirs in dict.fromkeys(PAIRS[name][1] for name in chosen.pairs):
        settings = [*SEARCHED, *(_GRAPHBOLTS if theirs == "env:graphbolt" else [])]
        seconds = rounds(root, [(theirs, options) for options in settings], chosen)
        ended = {
            variant: statistics.median(found)
            for variant, found in seconds.items()
            if found
        }
        if ended:
            print(f"strongest: {named(min(ended, key=ended.__getitem__))}", flush=True)
    return 0


def compare(root: Path, chosen: argparse.Namespace) -> int:
    """Run every system of the chosen pairs once a round and compare the medians; return
    1 if a target is missed."""
    pairs = [
        ((ours, PLAIN), (theirs, options), target)
        for ours, theirs, target in (PAIRS[name] for name in chosen.pairs)
        for options in dict.fromkeys(
            (*([] if chosen.quick else [PLAIN]), RANDOM, STRONGEST[theirs])
        )
    ]
    seconds = rounds(
        root, dict.fromkeys(one for pair in pairs for one in pair[:2]), chosen
    )
    missed = False
    for ours, theirs, target in pairs:
        if not seconds[ours] or not seconds[theirs]:
            print(
                f"{named(theirs)} / {named(ours)}: left out, one of them has no epoch"
            )
            missed = missed or not seconds[ours]
            continue
        ratio = statistics.median(seconds[theirs]) / statistics.median(seconds[ours])
        reached = target is None or ratio >= target
        wish = (
            f", at least {target:g}x{'' if reached else ': MISSED'}" if target else ""
        )
        print(f"{named(theirs)} / {named(ours)}: {ratio:.2f}x{wish}")
        missed = missed or not reached
    if chosen.rounds == 1:
        print("one round: these ratios have no interval")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
