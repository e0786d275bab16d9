"""Do the systems of a bench rank as their counters predict? Epoch times against
predictions.

    python benchmarks/quick_ratios.py [RESULTS] [--experiment quick]

Systems are compared under one memory setting at a time. Reads records only. `outcore
claims` holds ratios of systems against the papers'. Exit code 1 if the measured order
of a pair of systems contradicts a predicted difference of more than 15 %.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from harness.compare.order import inversions
from harness.records.record import COUNTED, Record
from harness.results.table import load


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"))
    parser.add_argument("--experiment", default="quick")
    chosen = parser.parse_args()
    table = load(chosen.results)
    records: list[Record] = [
        Record.model_validate(record) if isinstance(record, dict) else record
        for record in (table["record"] if len(table) else [])
    ]
    records = [
        record
        for record in records
        if record.config.experiment == chosen.experiment and record.verdict in COUNTED
    ]
    caps: dict[str, dict[str, list[Record]]] = {}
    for record in records:
        if (
            record.status == "ok"
            and record.summary.epoch_s is not None
            and record.config.memory != "none"
        ):
            caps.setdefault(record.config.memory, {}).setdefault(
                record.system, []
            ).append(record)
    if not caps:
        print(
            f"{chosen.results} holds no finished run of {chosen.experiment} under a cap"
        )
        return 1
    wrong = 0
    for memory, groups in caps.items():
        print(f"memory {memory}:")
        wrong += compare(groups)
        print()
    return 1 if wrong else 0


def compare(groups: dict[str, list[Record]]) -> int:
    """Print the systems that ran under one cap; return the number of pairs whose order
    contradicts the prediction."""
    times: dict[str, float] = {}
    print(
        f"{'system':<14}{'epoch s':>9}{'predicted':>11}"
        f"{'measured/predicted':>20}{'engine':>8}"
    )
    for system, group in groups.items():
        times[system] = statistics.median(
            epoch.seconds for record in group for epoch in record.measured
        )
    for system in sorted(times, key=lambda name: times[name]):
        group = groups[system]
        message = [
            record.summary.predicted_s for record in group if record.summary.predicted_s
        ]
        engine = [
            record.summary.engine_efficiency
            for record in group
            if record.summary.engine_efficiency
        ]
        predicted = statistics.median(message) if message else float("nan")
        print(
            f"{system:<14}{times[system]:>9.2f}{predicted:>11.2f}"
            f"{times[system] / predicted:>20.2f}"
            f"{statistics.median(engine) if engine else float('nan'):>8.2f}"
        )
    wrong = inversions([record for group in groups.values() for record in group])
    for pair in wrong:
        print(f"order: {pair}")
    print(
        "order as predicted"
        if not wrong
        else f"{len(wrong)} pairs in another order than predicted"
    )
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
