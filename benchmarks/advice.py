"""Advice against measurements: for each setting of a bench, the advised system and the fastest measured one.

    python -m benchmarks.advice [RESULTS] [--data-root DATA] [--batches 80] [--least 24]

Reads records of runs under a cap and advises for their settings, without training. A setting with at least two
comparable systems is judged: the advised system (of those measured) must be within 10 % of the fastest, by the time of
preparation and epochs. Also prints predicted over measured time for each system. Exit code 1 if this holds in fewer
than 90 % of the settings, or if there are fewer settings than `--least`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness.advise.advice import AdviceSetting, advise
from harness.records.cost import TrainingCost
from harness.records.record import COUNTED, Record
from harness.results import store as results
from harness.worker import build
from systems.interface import DiskProfile
from workloads.dataset import Dataset

WITHIN = 1.10
SHARE = 0.9
# Options that change what a system does, not only its sizes and threads; runs with them are ablations.
USUAL = ("extractors", "list_threads", "samplers")


def main() -> int:
    """Judge every setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"))
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--batches", type=int, default=80)
    parser.add_argument("--least", type=int, default=24)
    chosen = parser.parse_args()
    good, judged = 0, 0
    ratios: dict[str, list[float]] = {}
    for records in settings(chosen.results):
        times = {system: total_s(group) for system, group in records.items()}
        first = next(iter(records.values()))[0]
        path = chosen.data_root / first.config.dataset.name
        if not (path / "dataset.json").is_file():
            print(f"{first.config.dataset.name}: not under {chosen.data_root}, left out")
            continue
        found = advise(
            setting(first, path),
            DiskProfile.from_plain(first.disk["limited"]),
            batches=chosen.batches,
            systems=sorted(times),
        )
        predicted = {entry.system: entry for entry in found.ranked}
        for system in sorted(times.keys() & predicted.keys()):
            measured = statistics.median(epoch.seconds for record in records[system] for epoch in record.measured)
            ratios.setdefault(system, []).append(predicted[system].epoch_s / measured)
        able = [entry.system for entry in found.ranked if entry.system in times]
        if len(able) < 2:
            continue
        judged += 1
        best = min(times, key=lambda system: times[system])
        holds = times[able[0]] <= WITHIN * times[best]
        good += holds
        print(
            f"{'ok  ' if holds else 'MISS'} {name(first)}: advised {able[0]} {times[able[0]]:.2f} s, "
            f"best {best} {times[best]:.2f} s of {len(times)}",
            flush=True,
        )
    print()
    for system, found_ratios in sorted(ratios.items()):
        print(
            f"{system:<14} predicted / measured epoch: median {statistics.median(found_ratios):.2f}, "
            f"{min(found_ratios):.2f} to {max(found_ratios):.2f} in {len(found_ratios)} settings"
        )
    print(f"advised system within 10 % of the best in {good} of {judged} settings")
    return 0 if judged >= chosen.least and good >= SHARE * judged else 1


def settings(root: Path) -> Iterator[dict[str, list[Record]]]:
    """Yield the runs of each setting by system: finished, valid, capped, complete, and without ablations."""
    groups: dict[str, dict[str, list[Record]]] = {}
    for record in results.records(root):
        config = record.config
        whole = config.stages == "all" and config.ranks == 1 and not config.test_nodes
        if record.status != "ok" or record.verdict not in COUNTED or not whole or not record.measured:
            continue
        if record.memory.budget_bytes is None or not record.disk.get("limited") or not plain(record):
            continue
        content = config.model_dump(mode="json", exclude={"system", "options", "experiment", "figure_tags", "round"})
        key = json.dumps(content, sort_keys=True, default=str)
        groups.setdefault(key, {}).setdefault(record.system, []).append(record)
    yield from groups.values()


def plain(record: Record) -> bool:
    """Return whether the run's options are the defaults, apart from sizes and threads."""
    from systems.registry import load

    defaults = load(record.system).info.options().model_dump(mode="json")
    return all(defaults.get(key) == value for key, value in record.config.options.items() if key not in USUAL)


def total_s(records: list[Record]) -> float:
    """Return T(E) of the runs at their number of epochs, without the first epoch's surplus, which nothing forecasts."""
    cost = TrainingCost.of_runs([record.to_json() for record in records])
    assert cost is not None, "only runs with a measured epoch are compared"
    return replace(cost, first_s=0.0).total_s(records[0].config.epochs)


def setting(record: Record, path: Path) -> AdviceSetting:
    """Return the run's setting as a request for advice."""
    config = record.config
    budget = record.memory.budget_bytes
    assert budget is not None
    return AdviceSetting(
        build.workload_of(config, Dataset.open(path)),
        config.device,
        config.device_memory_bytes,
        budget,
        config.epochs,
        config.cores or len(os.sched_getaffinity(0)),
    )


def name(record: Record) -> str:
    """Describe a setting in a few words."""
    config = record.config
    fanout = ",".join(map(str, config.fanout))
    return (
        f"{config.dataset.name} {config.model} {config.sampler} {fanout} x {config.batch_size} "
        f"{config.memory} {config.device} {config.disk_class}"
    )


if __name__ == "__main__":
    sys.exit(main())
