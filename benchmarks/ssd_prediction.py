"""How far off is the SSD model? Predicted against measured epochs on every measured
class of SSD.

    python benchmarks/ssd_prediction.py [RESULTS …] [--all]

Reads records only. Each class is predicted twice: from the counters of its own runs
(`own`), and from those of runs of the same workload under other classes (`others`), as
`outcore ssd predict` does for a drive that is not at hand (not for systems whose reads
depend on the device). Rates are the limits of the class; for the bare device, those of
the record's own fio profile, which may have caught a slow moment of a virtual device.
With few reads in flight a class is as slow as the device behind it, taken from the best
profile of all records, so all results must come from one device. Only runs whose
working set is twice the memory (methodology rule 7) and whose device takes longer than
training count as storage-bound; `--all` also lists the others. An epoch shorter than a
slice of the kernel's limiter (0.1 s) may pass as a burst at any speed, so under a class
it is printed but not judged. Exit code 1 if under a class the median error is above 15
% or the worst above 30 %; the bare device, whose rates include bursts, is printed but
not judged.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from harness.compare.comparable import workload_key
from harness.drives.whatif import (
    Device,
    bare_of,
    behind,
    counts_for,
    device_of,
    predict_record,
    read_records,
    usable,
)
from harness.judge.io import SLICE_S
from harness.records.record import Record
from systems.interface import DiskProfile

MEDIAN = 0.15
WORST = 0.30
BARE = "none"


def profile_of(
    records: Sequence[Record], everything: Sequence[Record]
) -> DiskProfile | None:
    """Return the profile of the device under runs of one class, as `outcore ssd
    predict` would use it."""
    name = records[0].config.disk_class
    return (
        bare_of(records[-1:])
        if name == BARE
        else behind(device_of(name, Path("nowhere")), everything).profile
    )


def predicted(
    records: Sequence[Record], profile: DiskProfile
) -> tuple[float, bool] | None:
    """Return (seconds, whether the device is the bottleneck) as medians over the epochs
    of the runs."""
    made = [entry for record in records for entry in predict_record(record, profile)]
    if not made:
        return None
    seconds = statistics.median(entry.seconds for entry in made)
    device = statistics.median(entry.own_s + entry.page_cache_s for entry in made)
    return seconds, device > statistics.median(entry.train_s for entry in made)


def main() -> int:
    """Print the table and the errors by class."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path, default=[Path("results")])
    parser.add_argument("--all", action="store_true")
    chosen = parser.parse_args()
    groups: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    counted = [
        record
        for record in read_records(chosen.results or [Path("results")])
        if usable(record)
    ]
    for record in counted:
        groups[workload_key(record.config)][record.config.disk_class].append(record)
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    print(
        f"{'class':<20}{'system':<12}{'memory':<8}{'runs':>5}{'measured s':>12}"
        f"{'own':>9}{'off':>8}{'others':>9}{'off':>8}"
    )
    for classes in groups.values():
        for name, records in sorted(classes.items()):
            profile = profile_of(records, counted)
            own = predicted(records, profile) if profile else None
            if profile is None or own is None:
                continue
            first = records[0]
            measured = statistics.median(
                epoch.seconds for record in records for epoch in record.measured
            )
            bound = first.class_ == "storage-bound" and own[1]
            if not bound and not chosen.all:
                continue
            device = Device(name, profile, "profile", disk_class=name)
            elsewhere = [
                r
                for other, group in classes.items()
                if other != name
                for r in group
                if counts_for(r, device)
            ]
            others = predicted(elsewhere, profile) if elsewhere else None
            off = own[0] / measured - 1.0
            line = f"{name:<20}{first.system:<12}{first.config.memory:<8}"
            line += f"{len(records):>5}{measured:>12.3g}"
            line += f"{own[0]:>9.3g}{off:>+8.1%}"
            if others:
                line += f"{others[0]:>9.3g}{others[0] / measured - 1.0:>+8.1%}"
            burst = name != BARE and measured < SLICE_S
            print(
                line
                + ("" if bound else "  not storage-bound")
                + ("  below the limiter's slice" if burst else "")
            )
            if bound and not burst:
                errors[name, "own"].append(abs(off))
                if others:
                    errors[name, "others"].append(abs(others[0] / measured - 1.0))
    if not errors:
        print("no storage-bound run found")
        return 1
    wrong = 0
    print(f"\n{'class':<20}{'counters':<10}{'cells':>6}{'median':>9}{'worst':>9}")
    for (name, kind), found in sorted(errors.items()):
        middle = statistics.median(found)
        worst = max(found)
        held = name == BARE or (middle <= MEDIAN and worst <= WORST)
        wrong += not held
        line = f"{name:<20}{kind:<10}{len(found):>6}{middle:>9.1%}{worst:>9.1%}"
        print(line if held else f"{line}  above the limit")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
