"""Honest systems are never judged INVALID: many small runs of all systems, on a quiet or a busy machine.

    python benchmarks/honest_runs.py [--runs 200] [--busy none|processor|disk|both] [--systems ...] [--seed N]

Runs the systems in turn, with random budgets, devices, batch sizes and disk classes; prints the number of runs with
each verdict, the rules with caveats, and every INVALID run with its rule. Ends with code 1 if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.plan.datasets import Recipe, ensure
from harness.plan.experiment import PlannedRun, resolve
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.settings import RunSettings
from workloads.dataset import Dataset
from workloads.tempfolder import TemporaryFolder

SEEDS = 5
SYSTEMS = ["pyg+", "ginex", "gnndrive", "diskgnn", "outcore", "ali+pg", "ginex-pg", "dgl-ondisk", "mariusgnn"]
DEVICES = [("cpu", None), ("emulated:a10g", "16MiB"), ("emulated:null", "16MiB")]
CLASSES = ["none", "none", "aws-nvme/16", "aws-gp3/2"]
MEMORY = ["+48MiB", "+64MiB", "+96MiB", "+160MiB"]
SPIN = "import time\nwhile True: sum(range(10**6)); time.sleep(0.01)"
READ = """
import os, random, sys, time
size = 1 << 28
with open(sys.argv[1], "wb") as file:
    for _ in range(size >> 20): file.write(os.urandom(1 << 20))
fd = os.open(sys.argv[1], os.O_RDONLY)
while True:
    for _ in range(64): os.pread(fd, 1 << 18, random.randrange(size >> 18) << 18)
    os.posix_fadvise(fd, 0, size, os.POSIX_FADV_DONTNEED)
    time.sleep(0.02)
"""


@contextlib.contextmanager
def load(kind: str, folder: Path) -> Iterator[None]:
    """Load the machine beside the runs: one core half busy, or a reader of some hundred MB a second, or both."""
    others = []
    if kind in ("processor", "both"):
        others.append(subprocess.Popen([sys.executable, "-c", SPIN]))
    if kind in ("disk", "both"):
        others.append(subprocess.Popen([sys.executable, "-c", READ, str(folder / "others")]))
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def settings_of(draw: random.Random, number: int) -> dict[str, Any]:
    """Draw the settings of one run at random."""
    device, memory = draw.choice(DEVICES)
    return {
        "dataset": "g",
        "memory": draw.choice(MEMORY),
        "batch_size": draw.choice([20, 50, 100]),
        "device": device,
        "device_memory": memory,
        "fanout": draw.choice([[10, 10], [5, 5, 5], [15, 10]]),
        "max_batches": draw.choice([10, 20, 40]),
        "epochs": 2,
        "hidden": 16,
        "disk_class": draw.choice(CLASSES),
        "seed": number % SEEDS,
    }


def main() -> int:
    """Run, and print counts of verdicts, caveats and INVALID runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--busy", choices=["none", "processor", "disk", "both"], default="none")
    parser.add_argument("--systems", nargs="+", default=SYSTEMS)
    parser.add_argument("--folder", type=Path, default=Path("build"))
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    draw = random.Random(chosen.seed)
    verdicts: Counter[str] = Counter()
    bent: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFolder(chosen.folder, "benchmark") as name:
        root = Path(name)
        ensure("g", Recipe(kind="kronecker", nodes="600k", edges="9M"), root / "data", print)
        dataset = Dataset.open(root / "data" / "g")
        with load(chosen.busy, root), Series(root / "results", root / "data") as series:
            wanted = []
            for number in range(chosen.runs):
                system = chosen.systems[number % len(chosen.systems)]
                settings = RunSettings.model_validate(settings_of(draw, number))
                wanted.append(resolve(PlannedRun(system, settings), series.data_root, series.isolation.name))
            series.prepare(wanted, dataset)
            for number, config in enumerate(wanted, start=1):
                record = execute(series, config, dataset)
                ended[record.status] += 1
                broken = [rule for rule in record.verdict_rules if not rule.ok]
                verdicts[record.verdict] += 1
                bent.update(rule.name for rule in broken)
                if record.verdict == "INVALID" or record.status not in ("ok", "oom", "unsupported"):
                    where = f"{config.memory} {config.device} {config.disk_class}"
                    print(f"{number} {config.system} {where}: {record.status} {record.verdict} {record.reason}")
                    for rule in broken:
                        print(f"    rule {rule.rule} {rule.name}: {rule.detail}", flush=True)
                if number % 20 == 0:
                    print(f"{number} runs: {dict(verdicts)}", flush=True)
    print(f"{chosen.runs} runs, others' load {chosen.busy}: {dict(verdicts)}; {dict(ended)}")
    for rule_name, count in bent.most_common():
        print(f"  {count:4} {rule_name}")
    return int(verdicts["INVALID"] > 0 or ended["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
