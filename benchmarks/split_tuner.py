"""The split chosen by the tuner of `ali+pg` against the five fixed splits: storage-bound, null accelerator.

Runs `outcore run ali+pg` as a user would, under a cap and an SSD class, with each split of the Ginex paper and with
`auto`, interleaved (A B C A B C). Exit 1 unless the tuner's split takes at most 5 % longer than the fastest of the
five, by the medians of their epochs. Prints the tuner's predictions beside the measurements.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from pathlib import Path

from _outcore import outcore

from workloads.tempfolder import TemporaryFolder

SLACK = 1.05
SPLITS = ("0", "25", "50", "75", "100")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build"), help="where the dataset is made and removed")
    parser.add_argument("--nodes", default="2M")
    parser.add_argument("--edges", default="40M")
    parser.add_argument("--dim", default="128")
    parser.add_argument("--memory", default="+64MiB")
    parser.add_argument("--disk-class", default="aws-nvme/16")
    parser.add_argument("--batches", default="40", help="mini-batches an epoch")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFolder(options.folder, "benchmark") as name:
        root = Path(name)
        outcore(
            root,
            "data",
            "make",
            "g",
            "--kind",
            "kronecker",
            "--nodes",
            options.nodes,
            "--edges",
            options.edges,
            "--dim",
            options.dim,
            "--train-fraction",
            "0.00125",
        )
        seconds: dict[str, list[float]] = {split: [] for split in (*SPLITS, "auto")}
        note = ""
        for number in range(options.rounds):
            for split, seen in seconds.items():
                record = outcore(
                    root,
                    "run",
                    "ali+pg",
                    "--dataset",
                    "g",
                    "--memory",
                    options.memory,
                    "--device",
                    "emulated:null",
                    "--device-memory",
                    "32MiB",
                    "--batch-size",
                    "50",
                    "--max-batches",
                    options.batches,
                    "--epochs",
                    "2",
                    "--disk-class",
                    options.disk_class,
                    "-o",
                    f"split={split}",
                )
                if record["status"] != "ok":
                    sys.exit(f"split {split}: {record['status']}: {record['reason']}")
                seen.append(float(record["summary"]["epoch_s"]["median"]))
                print(
                    f"round {number} split {split:>4}: {seen[-1]:6.2f} s  {record['verdict']}, {record['class']}",
                    flush=True,
                )
                if split == "auto":
                    note = record["notes"]["split"]
    return judge(seconds, note)


def judge(seconds: dict[str, list[float]], note: str) -> int:
    medians = {split: statistics.median(seen) for split, seen in seconds.items()}
    chosen = note.partition(":")[0]
    predicted = dict(re.findall(r"(\d+):\d+ ([\d.e+-]+ \w+)", note.partition("predicted")[2]))
    for split in SPLITS:
        spread = f"{min(seconds[split]):.2f} to {max(seconds[split]):.2f}"
        print(
            f"{split:>4} per cent for lists: {medians[split]:6.2f} s ({spread}), predicted {predicted.get(split, '–')}"
        )
    best = min(SPLITS, key=lambda split: medians[split])
    ratio = medians[chosen] / medians[best]
    print(f"tuned to {chosen} ({medians['auto']:.2f} s as `auto`); best is {best}: {ratio:.3f} (at most {SLACK})")
    return 0 if ratio <= SLACK else 1


if __name__ == "__main__":
    sys.exit(main())
