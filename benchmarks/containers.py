"""The same run in a container and in a plain cgroup, interleaved: what a container costs, an epoch and a start.

Prints for each system the ratio of median epoch times with the range of the rounds' ratios, whether digests and rows
are equal, and how much later a container has its first batch. Fails above 5 % or 3 s, or where a digest differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EPOCH_BOUND = 0.05
START_BOUND_S = 3.0
OUTCORE = [sys.executable, "-c", "from harness.cli import main; main()"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", default="gnndrive,pyg+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4, help="of each run, the first of them warming up")
    parser.add_argument("--against", default="auto", help="the backend that containers are held against")
    parser.add_argument("--dataset", help="under $OUTCORE_DATA; without it a small one is made")
    parser.add_argument("--batch-size", default="100")
    parser.add_argument("--fanout", default="10,10")
    parser.add_argument("--memory", default="0.5x")
    parser.add_argument("--disk-class", default="none", help="hold the device steady by limits, as `outcore run` does")
    arguments = parser.parse_args()
    from harness.isolation.docker_backend import Docker

    if not (found := Docker.available()).ok:
        print(f"left out: {found.reason}; {found.fix}")
        return 0
    with tempfile.TemporaryDirectory(prefix="outcore-containers-", dir=os.environ.get("TMPDIR", "/var/tmp")) as root:
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
        environment["OUTCORE_DATA"], dataset = str(root / "data"), "small"
        _outcore(
            environment, "data", "make", "small", "--kind", "kronecker", "--nodes", "200k", "--edges", "4M",
            "--dim", "128", "-q",
        )  # fmt: skip

    def run(system: str, isolation: str) -> dict[str, Any]:
        said = _outcore(
            environment, "run", system, "--dataset", dataset, "--fanout", arguments.fanout,
            "--batch-size", arguments.batch_size, "--memory", arguments.memory, "--epochs", str(arguments.epochs),
            "--isolation", isolation, "--disk-class", arguments.disk_class, "--json",
        )  # fmt: skip
        found: dict[str, Any] = json.loads(said)
        if found["status"] != "ok":
            sys.exit(f"{system} under {isolation}: {found['status']}, {found['reason']}")
        return found

    records: dict[tuple[str, str], list[dict[str, Any]]] = {}
    order = [
        (system, isolation) for system in arguments.systems.split(",") for isolation in ("docker", arguments.against)
    ]
    shuffled = random.Random(0)
    for number in range(arguments.rounds):
        # Each system's two stand side by side, the first of them drawn, so that drift of the disk hits both.
        for system in arguments.systems.split(","):
            pair = [one for one in order if one[0] == system]
            shuffled.shuffle(pair)
            for one in pair:
                record = run(*one)
                records.setdefault(one, []).append(record)
                print(f"round {number}: {system:10} {one[1]:8} {_epoch_s(record):.3f} s an epoch", flush=True)
    good = [_judge(system, records, arguments.against) for system in arguments.systems.split(",")]
    return 0 if all(good) else 1


def _judge(system: str, records: dict[tuple[str, str], list[dict[str, Any]]], against: str) -> bool:
    inside, outside = records[(system, "docker")], records[(system, against)]
    times = [[_epoch_s(record) for record in side] for side in (inside, outside)]
    ratio = statistics.median(times[0]) / statistics.median(times[1])
    by_round = [one / other for one, other in zip(*times, strict=True)]
    later = statistics.median(_first_batch_s(r) for r in inside) - statistics.median(_first_batch_s(r) for r in outside)
    said = {
        tuple((epoch["digest"], epoch["feature_digest"], epoch["counters"]["rows"]) for epoch in record["epochs"])
        for record in [*inside, *outside]
    }
    print(
        f"{system}: container / {outside[0]['config']['isolation']} = {ratio:.3f} "
        f"(rounds {min(by_round):.3f} to {max(by_round):.3f}; medians {statistics.median(times[0]):.3f} s and "
        f"{statistics.median(times[1]):.3f} s); digests and rows {'equal' if len(said) == 1 else 'DIFFER'}; "
        f"first batch {later:+.2f} s"
    )
    return abs(ratio - 1) <= EPOCH_BOUND and later <= START_BOUND_S and len(said) == 1


def _epoch_s(record: dict[str, Any]) -> float:
    return statistics.median(epoch["seconds"] for epoch in record["epochs"] if not epoch["warmup"])


def _first_batch_s(record: dict[str, Any]) -> float:
    return float(record["overhead"]["first_batch_s"])


def _outcore(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run([*OUTCORE, *command], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr or done.stdout)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
