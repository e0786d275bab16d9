"""How much faster is `outcore` than systems that sample and read online, by a fresh
epoch with all of its work?

    python -m benchmarks.frontier [--disk-class none|CLASS] [--rounds N] \\
        [--data FOLDER] [SYSTEM ...]

Runs `outcore run SYSTEM` under one cap, the systems in turns, and reads from the
records the cost of a fresh epoch with all of its work (`each` + `epoch` of T(E)), then
takes the median over the rounds. Exit 1 if `outcore` misses a target.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.records.cost import TrainingCost
from workloads.tempfolder import TemporaryFolder

OUTCORE = [sys.executable, "-c", "from harness.cli import main; main()"]
ONLINE = ["pyg+", "ali+pg", "ginex", "gnndrive"]
OPTIONS = {
    "gnndrive": ["extractors=2"],
    "ali+pg": ["list_threads=2"],
    "diskgnn": ["resample_every=1"],
}
#: Target: speed of `outcore` over that of the fastest online system, by kind of disk.
TARGETS = {"none": 3.0, "aws-gp3": 8.0, "aws-nvme": 1.0}


def outcore(*arguments: str, environment: dict[str, str]) -> dict[str, Any]:
    """Run the command and return its JSON output."""
    done = subprocess.run(
        [*OUTCORE, *arguments, "--json"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout.strip():
        sys.exit(
            f"outcore {' '.join(arguments)} printed nothing; stderr: "
            f"{done.stderr[-2000:]}"
        )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run(
    system: str, chosen: argparse.Namespace, seed: int, environment: dict[str, str]
) -> dict[str, Any]:
    """Run the system once and return its record."""
    options = [word for option in OPTIONS.get(system, []) for word in ("-o", option)]
    return outcore(
        "run",
        system,
        "--dataset",
        chosen.dataset,
        "--memory",
        chosen.memory,
        "--device",
        chosen.device,
        "--device-memory",
        "32MiB",
        "--batch-size",
        str(chosen.batch_size),
        "--max-batches",
        str(chosen.max_batches),
        "--epochs",
        str(chosen.epochs),
        "--disk-class",
        chosen.disk_class,
        "--seed",
        str(seed),
        *options,
        environment=environment,
    )


def shown(system: str, number: int, record: dict[str, Any]) -> float | None:
    """Print one run; return the seconds of a fresh epoch with all of its work."""
    summary = record["summary"]
    cost = TrainingCost.of(record)
    if record["status"] != "ok" or cost is None:
        print(
            f"{system:10} {number:5}  {record['status']}: {record.get('reason', '')}",
            flush=True,
        )
        return None
    epoch_s = cost.fresh_epoch_s
    efficiency = summary.get("engine_efficiency")
    distance = summary.get("distance_to_limit")
    print(
        f"{system:10} {number:5} {epoch_s:8.2f} s  efficiency "
        f"{efficiency or float('nan'):.2f}  limit/epoch "
        f"{distance or float('nan'):.2f}  once {cost.before_s:.2f} s  "
        f"{record['verdict']}, {record['class']}",
        flush=True,
    )
    return epoch_s


def main() -> int:
    """Run all systems, print their medians and judge `outcore`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "systems",
        nargs="*",
        metavar="SYSTEM",
        help=f"compared with; default: {' '.join(ONLINE)}",
    )
    parser.add_argument("--disk-class", default="none")
    parser.add_argument("--device", default="emulated:null")
    parser.add_argument("--memory", default="+64MiB")
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--max-batches", type=int, default=80)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--data",
        type=Path,
        help="a data root that holds the dataset; default: one is made and removed",
    )
    parser.add_argument(
        "--results",
        type=Path,
        help="a results root that keeps the records; default: a temporary one",
    )
    parser.add_argument("--dataset", default="kron-2m")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build"),
        help="where data and results go meanwhile",
    )
    chosen = parser.parse_args()
    systems = ["outcore", *(chosen.systems or ONLINE)]
    chosen.folder.mkdir(parents=True, exist_ok=True)
    times: dict[str, list[float]] = {system: [] for system in systems}
    with TemporaryFolder(chosen.folder, "benchmark") as name:
        environment = {
            "OUTCORE_DATA": str(chosen.data or Path(name) / "data"),
            "OUTCORE_RESULTS": str(chosen.results or Path(name) / "results"),
        }
        if chosen.data is None:
            outcore(
                "data",
                "make",
                chosen.dataset,
                "--kind",
                "kronecker",
                "--nodes",
                "2M",
                "--edges",
                "40M",
                "--dim",
                "128",
                environment=environment,
            )
        for number in range(chosen.rounds):
            for system in systems:
                epoch = shown(system, number, run(system, chosen, number, environment))
                if epoch is not None:
                    times[system].append(epoch)
    medians = {
        system: statistics.median(found) for system, found in times.items() if found
    }
    for system, median in sorted(medians.items(), key=lambda item: item[1]):
        print(f"{system:10} median {median:8.2f} s")
    others = {
        system: median for system, median in medians.items() if system != "outcore"
    }
    if "outcore" not in medians or not others:
        print("nothing to compare")
        return 1
    best = min(others, key=lambda system: others[system])
    ratio = others[best] / medians["outcore"]
    target = next(
        (
            value
            for kind, value in TARGETS.items()
            if chosen.disk_class.startswith(kind)
        ),
        1.0,
    )
    print(
        f"outcore is {ratio:.2f} times as fast as {best}, the best of the others "
        f"(target {target})"
    )
    return int(ratio < target)


if __name__ == "__main__":
    sys.exit(main())
