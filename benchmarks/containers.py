"""What does a container add to a start and to an epoch? The same run in a container and
in a plain cgroup.

Prints for each system the ratio of adjacent epochs with its range over the rounds,
whether digests and rows are equal, and the delay of the first batch in a container.
Fails above 5 % or 3 s, or if digests differ.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from harness.run.turns import VARIABLE, Turns
from workloads.tempfolder import TemporaryFolder

EPOCH_BOUND = 0.05
START_BOUND_S = 3.0
SIDES = ("outside", "inside")
OUTCORE = [sys.executable, "-c", "from harness.cli import main; main()"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", default="gnndrive,pyg+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--epochs",
        type=int,
        default=8,
        help="of each run, the first of them warming up",
    )
    parser.add_argument(
        "--starts",
        type=int,
        default=3,
        help="runs alone for each, by which the start is timed",
    )
    parser.add_argument(
        "--against", default="auto", help="the backend that containers are held against"
    )
    parser.add_argument(
        "--dataset", help="under $OUTCORE_DATA; without it a small one is made"
    )
    parser.add_argument("--batch-size", default="100")
    parser.add_argument("--fanout", default="10,10")
    parser.add_argument("--memory", default="0.5x")
    parser.add_argument(
        "--disk-class",
        default="none",
        help="hold the device steady by limits, as `outcore run` does",
    )
    arguments = parser.parse_args()
    from harness.isolation.docker.backend import Docker

    if not (found := Docker.available()).ok:
        print(f"left out: {found.reason}; {found.fix}")
        return 0
    with TemporaryFolder(
        Path(os.environ.get("TMPDIR", "/var/tmp")), "benchmark"
    ) as root:
        return measure(Path(root), arguments)


def measure(root: Path, arguments: argparse.Namespace) -> int:
    environment = {
        "OUTCORE_DATA": str(root / "data"),
        **os.environ,
        "OUTCORE_RESULTS": str(root / "results"),
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
    }
    dataset = arguments.dataset
    if dataset is None:
        environment["OUTCORE_DATA"] = str(root / "data")
        dataset = "small"
        _outcore(
            environment,
            "data",
            "make",
            "small",
            "--kind",
            "kronecker",
            "--nodes",
            "200k",
            "--edges",
            "4M",
            "--dim",
            "128",
            "-q",
        )

    for side in SIDES:
        # Two copies: pages read by one run would otherwise serve the other, too.
        shutil.copytree(
            Path(environment["OUTCORE_DATA"]) / dataset, root / side / dataset
        )

    def run(
        system: str, number: int, turns: str | None, isolation: str
    ) -> dict[str, Any]:
        inside = isolation == "docker"
        # The copies change hands, since one may have a better place on the disk.
        folders = {
            "OUTCORE_RESULTS": SIDES[inside] + "/results",
            "OUTCORE_DATA": SIDES[(number + inside) % 2],
        }
        more = {name: str(root / folder) for name, folder in folders.items()} | (
            {VARIABLE: turns} if turns else {}
        )
        message = _outcore(
            {**environment, **more},
            "run",
            system,
            "--dataset",
            dataset,
            "--fanout",
            arguments.fanout,
            "--batch-size",
            arguments.batch_size,
            "--memory",
            arguments.memory,
            "--epochs",
            str(arguments.epochs),
            "--isolation",
            isolation,
            "--disk-class",
            arguments.disk_class,
            "--json",
        )
        found: dict[str, Any] = json.loads(message)
        if found["status"] != "ok":
            sys.exit(
                f"{system} under {isolation}: {found['status']}, {found['reason']}"
            )
        return found

    good = []
    for system in arguments.systems.split(","):
        both = ("docker", arguments.against)
        starts = [
            [_first_batch_s(run(system, n, None, one)) for n in range(arguments.starts)]
            for one in both
        ]
        later = statistics.median(starts[0]) - statistics.median(starts[1])
        pairs = []
        for number in range(arguments.rounds):
            with Turns(parties=2) as turns, ThreadPoolExecutor(2) as pool:
                inside, outside = pool.map(
                    partial(_heard, turns, partial(run, system, number, turns.address)),
                    both,
                )
            pairs.append((inside, outside))
            print(
                f"round {number}: {system:10} docker {_epoch_s(inside):.3f} s, "
                f"{arguments.against} {_epoch_s(outside):.3f} s, epochs beside each "
                f"other {_ratio(inside, outside):.3f}",
                flush=True,
            )
        good.append(_judge(system, pairs, later))
    return 0 if all(good) else 1


def _heard(
    turns: Turns, run: Callable[[str], dict[str, Any]], isolation: str
) -> dict[str, Any]:
    try:
        return run(isolation)
    finally:
        turns.all_here()  # do not wait for a run that failed before it asked


def _judge(
    system: str, pairs: list[tuple[dict[str, Any], dict[str, Any]]], later: float
) -> bool:
    ratios = [_ratio(*pair) for pair in pairs]
    ratio = statistics.median(ratios)
    message = {
        tuple(
            (epoch["digest"], epoch["feature_digest"], epoch["counters"]["rows"])
            for epoch in record["epochs"]
        )
        for pair in pairs
        for record in pair
    }
    print(
        f"{system}: container / {pairs[0][1]['config']['isolation']} = {ratio:.3f} "
        f"(rounds {min(ratios):.3f} to {max(ratios):.3f}); digests and rows "
        f"{'equal' if len(message) == 1 else 'DIFFER'}; first batch {later:+.2f} s"
    )
    return (
        abs(ratio - 1) <= EPOCH_BOUND and later <= START_BOUND_S and len(message) == 1
    )


def _ratio(inside: dict[str, Any], outside: dict[str, Any]) -> float:
    """Return the median ratio of the epochs that took turns, pair by pair."""
    epochs = zip(inside["epochs"], outside["epochs"], strict=True)
    return statistics.median(
        float(one["seconds"] / other["seconds"])
        for one, other in epochs
        if not one["warmup"]
    )


def _epoch_s(record: dict[str, Any]) -> float:
    return statistics.median(
        float(epoch["seconds"]) for epoch in record["epochs"] if not epoch["warmup"]
    )


def _first_batch_s(record: dict[str, Any]) -> float:
    return float(record["overhead"]["first_batch_s"])


def _outcore(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        [*OUTCORE, *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr or done.stdout)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
