"""Cost of running as a foreign worker: the same code under Outcore and by hand, under the same cap, epochs in turns.

    python benchmarks/foreign_overhead.py [--quick] [--system env:NAME] [--rounds 4] [--epochs 10] [--disk-class CLASS]

By hand, the worker's own epochs run without gates, events, spans, row checks and telemetry. Each side reads a copy of
the graph of its own, which change hands every round. An epoch under Outcore is divided by the mean of the epochs by
hand before and after it; fails if the median is above 1.02. `--quick`: two rounds, about five minutes on two cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.check.case import Case
from harness.check.stage import make_dataset
from harness.foreign.environment import find
from harness.isolation.base import Limits
from harness.isolation.walls.needs import Needs
from harness.plan.experiment import PlannedRun, resolve
from harness.records.record import Record, RunConfig
from harness.run.cold import dataset_files, evict_files
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.run.turns import Turn
from harness.settings import RunSettings
from workloads.dataset import Dataset
from workloads.tempfolder import TemporaryFolder

BOUND = 1.02
BATCH = 100  # seed nodes of a mini-batch
TEMPLATE = Path(__file__).resolve().parents[1] / "outcore" / "template" / "foreign"
TEMPLATE_NAME = f"env:{TEMPLATE}"
TOLD = ("model", "hidden", "fanout", "batch_size", "max_batches", "epochs", "learning_rate", "seed", "shuffle", "cores")


class ByHand(Turn):
    """Turn whose others are one process: an epoch by hand before each epoch under Outcore. `seconds`: of its epochs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__()
        self._process, self.seconds = process, list[float]()

    def let_others(self) -> None:
        """Run one epoch by hand."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line.startswith("epoch "):
            sys.exit(f"by hand it ended: {line}")
        self.seconds.append(float(line.split()[2]))


def pair(series: Series, config: RunConfig, mine: Dataset, theirs: Dataset, cap_bytes: int | None) -> list[float]:
    """Return the ratio of each measured epoch under Outcore, on `mine`, to the mean of those by hand, on `theirs`,
    before and after it; the last epoch has none after it."""
    folder = find(config.system.removeprefix("env:"))
    words = [f"{name}={json.dumps(getattr(config, name))}" for name in TOLD]
    words += [f"{name}={json.dumps(value)}" for name, value in config.options.items()]
    evict_files(dataset_files(theirs), "before")
    with series.isolation.create("by-hand", Limits(cap_bytes, series.limits(config))) as cap:
        cap.bring(Needs(read_only=(theirs.path, *folder.needed())))
        argv, handed = cap.worker_command([*folder.command(), str(theirs.path), *words, "--wait"])
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, stdin=pipe, stdout=pipe, pass_fds=handed, text=True) as process:
            turn = ByHand(process)
            record = execute(series, config, mine, turn=turn)
            process.kill()
    ended_well(record)
    around = zip(record.epochs, itertools.pairwise(turn.seconds), strict=False)
    return [epoch.seconds / statistics.mean(seconds) for epoch, seconds in around if not epoch.warmup]


def ended_well(record: Record) -> None:
    if record.status != "ok":
        sys.exit(f"{record.system} ended as {record.status}: {record.reason}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", default=TEMPLATE_NAME)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--epochs", type=int, default=10, help="of each run, the first of them warming up")
    parser.add_argument("--batches", type=int, default=40, help="mini-batches of an epoch")
    parser.add_argument("--nodes", type=int, default=150_000)
    parser.add_argument("--memory", default="+128MiB")
    parser.add_argument("--disk-class", default="none")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    chosen = parser.parse_args()
    rounds, train = chosen.rounds or (2 if chosen.quick else 4), chosen.batches * BATCH
    case = Case("overhead", nodes=chosen.nodes, edges=5 * chosen.nodes, train=train, dim=1024)
    with TemporaryFolder(chosen.folder, "benchmark") as temporary:
        root = Path(temporary)
        made = make_dataset(root / "made", case)
        copies = [root / "data" / name for name in ("one", "other")]
        for copy in copies:
            shutil.copytree(made.path, copy)
        sides = [Dataset.open(copy) for copy in copies]
        settings = {
            "memory": chosen.memory,
            "fanout": [10, 10],
            "batch_size": BATCH,
            "epochs": chosen.epochs,
            "hidden": 32,
            "disk_class": chosen.disk_class,
            # Else each fault reads ahead as much as the disk is set to, megabytes on some.
            "options": {"madvise": "random"},
        }
        ratios: list[float] = []
        with Series(root / "results", root / "data", progress=lambda text: None) as series:

            def config_of(side: Dataset, **changes: Any) -> RunConfig:
                wanted = RunSettings.model_validate({**settings, "dataset": side.name, **changes})
                return resolve(PlannedRun(chosen.system, wanted), series.data_root, series.isolation.name)

            configs = [config_of(side) for side in sides]
            if reason := series.unsupported(configs[0]):
                print(f"left out: {reason}")
                return 0
            series.prepare(configs, sides[0], profiled=False)
            first = execute(series, config_of(sides[0], epochs=2), sides[0])
            ended_well(first)
            cap_mib, read_mib = (first.memory.cap_bytes or 0) >> 20, (first.epochs[-1].device_bytes or 0) >> 20
            print(f"{first.class_}: cap {cap_mib} MiB, an epoch reads {read_mib} MiB", flush=True)
            for number in range(rounds):
                mine, theirs = sides[number % 2], sides[1 - number % 2]
                found = pair(series, configs[number % 2], mine, theirs, first.memory.cap_bytes)
                spread = f"{min(found):.4f} to {max(found):.4f}"
                print(f"round {number}: {statistics.median(found):.4f}, {spread}", flush=True)
                ratios += found
    ratio = statistics.median(ratios)
    print(f"{chosen.system}: epoch under Outcore / by hand = {ratio:.4f}, at most {BOUND}")
    return 0 if ratio <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
