"""Comparison of drives: fio's figures, epochs (measured or predicted), device use by
each system, price."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pandas as pd

from harness.compare.comparable import differing_options, workload_key
from harness.drives.comparison import DriveCell, DriveComparison, DriveSide
from harness.drives.notes import BEATEN, BURST, notes_on
from harness.drives.prices import Price, price_of
from harness.drives.whatif import (
    Device,
    counts_for,
    on_each_host,
    predict_record,
    ran_on,
    typical,
    usable,
    workload_name,
)
from harness.records.latency import all_sizes, merged, percentile_s
from harness.records.record import Record, spread
from workloads.errors import InputError

DEEP = 64
#: Block size, pattern, engine and threads of the reads whose latency is compared.
SMALL_READS = (4096, "random", "async", 1)
#: Figures of random reads by block size, and percentiles of latency by reads in flight.
RATES = {"randread_512_iops": 512, "randread_4k_iops": 4096, "randread_64k_iops": 65536}
TAILS = [(1, "50"), (1, "99"), (DEEP, "50"), (DEEP, "99"), (DEEP, "99.9")]
# Above this share of the device's own rate a run was faster than the device by its
# profile or its limits.
ALL_OF_IT = 1.02


def latencies(device: Device, depth: int) -> dict[str, float]:
    """Return percentile -> seconds of direct random 4 KiB reads with `depth` in flight;
    empty where not measured. The deepest point up to `depth` is used: on a class with
    few IOPS a deeper queue would only wait for the limiter."""
    fitting = []
    for point in device.drive.points if device.drive else []:
        kind = (point.block_bytes, point.pattern, point.engine, point.threads)
        if kind == SMALL_READS and point.reads_directly and point.depth <= depth:
            fitting.append(point)
    if not fitting:
        return {}
    deepest = max(fitting, key=attrgetter("depth"))
    return deepest.latency_s


def as_dict(comparison: DriveComparison) -> dict[str, Any]:
    """Return plain data for `--json` and files."""
    return {
        "workload": comparison.workload,
        "drives": [_side_as_dict(side) for side in comparison.sides],
        "epochs": [
            {**vars(cell), "runs": list(cell.runs)} for cell in comparison.cells
        ],
        "growth": [growth._asdict() for growth in comparison.growth()],
        "notes": list(comparison.notes),
    }


def _side_as_dict(side: DriveSide) -> dict[str, Any]:
    device = side.device
    drive = side.device.drive
    price = side.price
    return {
        "name": device.name,
        "source": device.source,
        "disk_class": device.disk_class,
        "figures": side.figures,
        "price_per_tb": price.per_tb if price else None,
        "currency": price.currency if price else None,
        "identity": drive.identity.model_dump(mode="json") if drive else None,
    }


def compare(
    devices: Sequence[Device],
    records: Sequence[Record],
    prices: dict[str, Price] | None = None,
    *,
    dataset: str | None = None,
    memory: str | None = None,
) -> DriveComparison:
    """Compare devices on the workload that was measured on the most of them.

    Args:
        records: runs; a run counts if it is neither INVALID nor SPOILT and ran under a
            memory cap.
        prices: price by the name of a drive or a class.
        dataset, memory: restrict the workloads to this dataset and this memory cap.

    Raises:
        InputError: a device is given twice, or no run has that dataset or memory.
    """
    from harness.figures.draw.style import ordered

    names = [device.name for device in devices]
    if len(set(names)) < len(names):
        raise InputError(
            f"a drive is named twice: {', '.join(names)}", "name each once"
        )
    known = prices or {}
    made: list[DriveSide] = []
    for device in devices:
        price = price_of(known, device.name, device.disk_class)
        made += [_side(one, price) for one in on_each_host(device, records)]
    sides = tuple(made)
    runs, others = _workload([side.device for side in sides], records, dataset, memory)
    by_system: dict[str, list[Record]] = {}
    for run in runs:
        by_system.setdefault(run.system, []).append(run)
    cells = [
        _cell(side, system, own) for side in sides for system, own in by_system.items()
    ]
    found = tuple(filter(None, cells))
    systems = tuple(ordered([cell.system for cell in found]))
    workload = workload_name(runs[0]) if runs else ""
    compared = DriveComparison(sides, found, workload, systems, ())
    return replace(compared, notes=tuple(notes_on(compared, runs, known, others)))


def _side(device: Device, price: Price | None) -> DriveSide:
    profile = device.profile
    best = profile.random_rates()
    figures: dict[str, float | None] = {}
    for name, size in RATES.items():
        # A drive with larger sectors cannot read 512 bytes: its next larger size is
        # used.
        fitting = [iops for known, iops in best.items() if known >= size]
        figures[name] = fitting[0] if fitting else None
    figures["seqread_bytes_per_s"] = profile.sequential_bytes_per_s() or None
    for depth, percentile in TAILS:
        name = f"latency_{depth}_p{percentile.replace('.', '')}_s"
        figures[name] = latencies(device, depth).get(percentile)
    deep = device.drive.best(4096) if device.drive else None
    figures["cpu_s_per_read"] = deep.cpu_s_per_request if deep else None
    return DriveSide(device, figures, price)


def _workload(
    devices: Sequence[Device],
    records: Iterable[Record],
    dataset: str | None,
    memory: str | None,
) -> tuple[list[Record], int]:
    """Return the runs of the workload on most drives, then of most systems, and the
    number of other workloads."""
    rows = []
    for record in records:
        config = record.config
        if (
            usable(record)
            and dataset in (None, config.dataset.name)
            and memory in (None, config.memory)
        ):
            row = {
                "record": record,
                "system": record.system,
                "started": record.started_at,
            }
            row["workload"] = workload_key(config, ("system", "options"))
            # The text breaks ties, so that the order of the records does not matter.
            differing = differing_options(record.system, config.options)
            row["options"] = (
                f"{differing:03d} {json.dumps(config.options, sort_keys=True)}"
            )
            row["device"] = [
                device.name for device in devices if ran_on(record, device)
            ]
            rows.append(row)
    if rows:
        return _on_most_drives(pd.DataFrame(rows))
    if dataset or memory:
        wanted = " and ".join(filter(None, (dataset, memory)))
        raise InputError(
            f"no usable run of {wanted} is there",
            "leave the choice out, or see `outcore results`",
        )
    return [], 0


def _on_most_drives(runs: pd.DataFrame) -> tuple[list[Record], int]:
    """Return the runs of one workload, without ablations, and the number of other
    workloads."""
    # Of each system the option set with the fewest differing options stands for it.
    least = runs.groupby(["workload", "system"])["options"].transform("min")
    whole = runs[runs["options"] == least]
    by_workload = whole.explode("device").groupby("workload")
    ranks = by_workload[["device", "system"]].nunique()
    ranks["pairs"] = [
        len(own[["device", "system"]].dropna().drop_duplicates())
        for _, own in by_workload
    ]
    ranks["latest"] = by_workload["started"].max()
    best = ranks.sort_values(["device", "pairs", "system", "latest"]).index[-1]
    return list(whole.loc[whole["workload"] == best, "record"]), len(ranks) - 1


def _cell(side: DriveSide, system: str, runs: Sequence[Record]) -> DriveCell | None:
    """Return the epoch of a system on a drive, measured or else predicted; None where
    its runs give neither."""
    here = [run for run in runs if ran_on(run, side.device)]
    if any(run.measured for run in here):
        return _measured(side, system, here)
    counted = [] if here else [run for run in runs if counts_for(run, side.device)]
    made = [
        entry for run in counted for entry in predict_record(run, side.device.profile)
    ]
    if not made:
        return None
    seconds, nearest = typical(made)
    price = side.epochs_per_price(seconds)
    ids = tuple(run.run_id for run in counted)
    return DriveCell(
        side.device.name,
        system,
        seconds,
        predicted=True,
        bound=nearest.bound,
        per_price=price,
        runs=ids,
    )


def _measured(side: DriveSide, system: str, runs: Sequence[Record]) -> DriveCell:
    """Return the median epoch of a system's runs on a drive, and their use of it."""
    epochs = pd.DataFrame([vars(epoch) for run in runs for epoch in run.measured])
    took = spread(list(epochs["seconds"]))
    seconds, reads, moved = (
        epochs[["seconds", "device_requests", "device_bytes"]].astype(float).sum()
    )
    size = moved / reads if reads else None
    profile = side.device.profile
    share = (
        reads / seconds * profile.request_seconds(round(size))
        if size and profile.points
        else None
    )
    amplification = pd.Series(
        [run.summary.read_amplification for run in runs], dtype=float
    ).median()
    latencies = merged(epoch.latencies for run in runs for epoch in run.measured)
    reads_of_all_sizes = all_sizes(latencies, "read")
    return DriveCell(
        device=side.device.name,
        system=system,
        epoch_s=took.median,
        low=took.interval[0],
        high=took.interval[1],
        read_amplification=None if math.isnan(amplification) else amplification,
        reads_per_s=reads / seconds,
        bytes_per_s=moved / seconds,
        request_bytes=size,
        device_share=share,
        read_p50_s=percentile_s(reads_of_all_sizes, 50.0),
        read_p99_s=percentile_s(reads_of_all_sizes, 99.0),
        read_p999_s=percentile_s(reads_of_all_sizes, 99.9),
        above=_above(side.device, share),
        per_price=side.epochs_per_price(took.median),
        verdict="/".join(dict.fromkeys(run.verdict for run in runs)),
        runs=tuple(run.run_id for run in runs),
    )


def _above(device: Device, share: float | None) -> str:
    """Return why a run used more than the device's own rate; empty where it did not."""
    if share is None or share <= ALL_OF_IT:
        return ""
    return BURST if device.limited else BEATEN
