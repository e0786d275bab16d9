"""Comparison of drives: fio's figures, epochs (measured or predicted), device use by each system, price."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pandas as pd

from harness.compare.comparable import differing_options, workload_key
from harness.drives.prices import Price, price_of
from harness.drives.whatif import Device, counts_for, only_alike, predict_record, ran_on, typical, usable, workload_name
from harness.records.hosts import host_fingerprint
from harness.records.record import Record, spread
from workloads.errors import InputError

SHALLOW, DEEP = 1, 64
# Above this share of the device's own rate a run was faster than the device by its profile or its limits.
ALL_OF_IT = 1.02
BURST, BEATEN = "burst", "beats its profile"
# Reason in a table -> its explanation.
ABOVE = {
    BURST: "the kernel's limiter lets a burst pass after an idle moment, so short epochs are faster than the limit",
    BEATEN: "runs read faster than fio did, which measured in a slow moment, or a cache below the kernel served them; "
    "profile the drive again",
}


@dataclass(frozen=True)
class DriveSide:
    """One drive: price, and figures by fio (None where not measured): `randread_512_iops`, `randread_4k_iops`,
    `randread_64k_iops`, `seqread_bytes_per_s`, and for 4 KiB reads `latency_1_p50_s`, `latency_1_p99_s` (one in
    flight), `latency_64_p50_s`, `latency_64_p99_s`, `latency_64_p999_s` (64 in flight), `cpu_s_per_read`."""

    device: Device
    figures: dict[str, float | None]
    price: Price | None = None

    def epochs_per_price(self, epoch_s: float) -> float | None:
        """Return epochs an hour, divided by the price of 1 TB of the drive; None without a price."""
        return 3600.0 / epoch_s / self.price.per_tb if self.price else None


@dataclass(frozen=True)
class DriveCell:
    """One system on one drive: its epoch, measured or predicted; where measured, the device's rates by the kernel's
    count, the mean size of a device read, and the used share of the device's own rate at that size. `above`: the reason
    where that share is more than all of it, see `ABOVE`. `per_price`: epochs per hour, divided by the price of 1 TB of
    the drive."""

    device: str
    system: str
    epoch_s: float
    low: float | None = None
    high: float | None = None
    predicted: bool = False
    bound: str = ""
    read_amplification: float | None = None
    reads_per_s: float | None = None
    bytes_per_s: float | None = None
    request_bytes: float | None = None
    device_share: float | None = None
    above: str = ""
    per_price: float | None = None
    verdict: str = ""
    runs: tuple[str, ...] = ()


class Growth(NamedTuple):
    """Ratio of a system's slowest epoch to its fastest, and the drives of the two."""

    system: str
    ratio: float
    fastest: str
    slowest: str


@dataclass(frozen=True)
class DriveComparison:
    """Comparison of drives on one `workload` (in words; empty without a usable run); `systems` are in drawing order."""

    sides: tuple[DriveSide, ...]
    cells: tuple[DriveCell, ...]
    workload: str
    systems: tuple[str, ...]
    notes: tuple[str, ...]

    def cell(self, device: str, system: str) -> DriveCell | None:
        """Return the cell of a drive and a system; None without one."""
        return next((cell for cell in self.cells if (cell.device, cell.system) == (device, system)), None)

    @property
    def table(self) -> pd.DataFrame:
        """One row for each cell, with the attributes of `DriveCell` as columns."""
        return pd.DataFrame(map(vars, self.cells), columns=list(DriveCell.__annotations__))

    @property
    def known_by(self) -> str:
        """Source of the drives' rates, in words: fio, the limits of classes, or both."""
        sources = {"fio" if side.device.drive else "the limits of classes" for side in self.sides}
        return " and ".join(sorted(sources))

    def growth(self) -> list[Growth]:
        """Return the growth of each system with epochs on two drives or more, the smallest first."""
        found = []
        for system in self.systems:
            mine = sorted((cell for cell in self.cells if cell.system == system), key=lambda cell: cell.epoch_s)
            if len(mine) > 1:
                found.append(Growth(system, mine[-1].epoch_s / mine[0].epoch_s, mine[0].device, mine[-1].device))
        return sorted(found, key=lambda growth: growth.ratio)


def latencies(device: Device, depth: int) -> dict[str, float]:
    """Return percentile -> seconds of direct random 4 KiB reads with `depth` in flight; empty where not measured. The
    deepest point up to `depth` is used: on a class with few IOPS a deeper queue would only wait for the limiter."""
    kind, points = (4096, "random", "async", 1), device.drive.points if device.drive else []
    direct = [p for p in points if (p.block_bytes, p.pattern, p.engine, p.threads) == kind and p.reads_directly]
    fitting = [p for p in direct if p.depth <= depth]
    return max(fitting, key=lambda p: p.depth).latency_s if fitting else {}


def as_dict(comparison: DriveComparison) -> dict[str, Any]:
    """Return plain data for `--json` and files."""
    return {
        "workload": comparison.workload,
        "drives": [
            {
                "name": side.device.name,
                "source": side.device.source,
                "disk_class": side.device.disk_class,
                "figures": side.figures,
                "price_per_tb": side.price.per_tb if side.price else None,
                "currency": side.price.currency if side.price else None,
                "identity": side.device.drive.identity.model_dump(mode="json") if side.device.drive else None,
            }
            for side in comparison.sides
        ],
        "epochs": [{**vars(cell), "runs": list(cell.runs)} for cell in comparison.cells],
        "growth": [growth._asdict() for growth in comparison.growth()],
        "notes": list(comparison.notes),
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
        records: runs; a run counts if it is neither INVALID nor SPOILT and ran under a memory cap.
        prices: price by the name of a drive or a class.
        dataset, memory: restrict the workloads to this dataset and this memory cap.

    Raises:
        InputError: a device is given twice, or no run has that dataset or memory.
    """
    names = [device.name for device in devices]
    if len(set(names)) < len(names):
        raise InputError(f"a drive is named twice: {', '.join(names)}", "name each once")
    sides = tuple(_side(device, price_of(prices or {}, device.name, device.disk_class)) for device in devices)
    runs, others = _workload(devices, records, dataset, memory)
    made = (_cell(side, system, runs) for side in sides for system in dict.fromkeys(run.system for run in runs))
    cells = tuple(cell for cell in made if cell is not None)
    from harness.figures.draw.style import ordered

    systems = tuple(ordered([cell.system for cell in cells]))
    workload = workload_name(runs[0]) if runs else ""
    found = DriveComparison(sides, cells, workload, systems, ())
    return replace(found, notes=tuple(_notes(found, runs, prices or {}, others)))


def _side(device: Device, price: Price | None) -> DriveSide:
    profile = device.profile
    best = profile.random_rates()
    # A drive with larger sectors cannot read 512 bytes: its next larger size is used.
    rates = {size: next((iops for known, iops in best.items() if known >= size), None) for size in (512, 4096, 65536)}
    deep = device.drive.best(4096) if device.drive else None
    tails = [(SHALLOW, "50"), (SHALLOW, "99"), (DEEP, "50"), (DEEP, "99"), (DEEP, "99.9")]
    figures: dict[str, float | None] = {
        "randread_512_iops": rates[512],
        "randread_4k_iops": rates[4096],
        "randread_64k_iops": rates[65536],
        "seqread_bytes_per_s": profile.sequential_bytes_per_s() or None,
        **{f"latency_{at}_p{share.replace('.', '')}_s": latencies(device, at).get(share) for at, share in tails},
        "cpu_s_per_read": deep.cpu_s_per_request if deep else None,
    }
    return DriveSide(device, figures, price)


def _workload(
    devices: Sequence[Device], records: Sequence[Record], dataset: str | None, memory: str | None
) -> tuple[list[Record], int]:
    """Return the runs of the workload on most drives, then of most systems, and the number of other workloads."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        config = record.config
        if usable(record) and dataset in (None, config.dataset.name) and memory in (None, config.memory):
            groups.setdefault(workload_key(config, ("system", "options")), []).append(record)
    if not groups:
        if dataset or memory:
            wanted = " and ".join(str(part) for part in (dataset, memory) if part)
            raise InputError(f"no usable run of {wanted} is there", "leave the choice out, or see `outcore results`")
        return [], 0

    def worth(group: Sequence[Record]) -> tuple[int, int, int, str]:
        pairs = {(d.name, r.system) for r in group for d in devices if ran_on(r, d)}
        drives = len({name for name, _ in pairs})
        return drives, len(pairs), len({r.system for r in group}), max(r.started_at for r in group)

    return max(map(_without_ablations, groups.values()), key=worth), len(groups) - 1


def _without_ablations(records: Sequence[Record]) -> list[Record]:
    """Return the runs with each system's option set that has the fewest differing options in this workload."""
    options = [(record.system, record.config.options) for record in records]
    # The text breaks ties, so that the order of the records does not matter.
    ranks = [(system, differing_options(system, own), json.dumps(own, sort_keys=True)) for system, own in options]
    least = {system: min(rank for rank in ranks if rank[0] == system) for system in {system for system, _ in options}}
    return [record for record, rank in zip(records, ranks, strict=True) if rank == least[record.system]]


def _cell(side: DriveSide, system: str, records: Sequence[Record]) -> DriveCell | None:
    """Return the epoch of a system on a drive, measured or else predicted; None where the runs give neither."""
    group = [record for record in records if record.system == system]
    here = [record for record in group if ran_on(record, side.device)]
    epochs = [epoch for record in here for epoch in record.measured]
    if epochs:
        took = spread([epoch.seconds for epoch in epochs])
        seconds = sum(epoch.seconds for epoch in epochs)
        reads = sum(epoch.device_requests or 0 for epoch in epochs)
        moved = sum(epoch.device_bytes or 0 for epoch in epochs)
        size, profile = moved / reads if reads else None, side.device.profile
        share = reads / seconds * profile.request_seconds(round(size)) if size and profile.points else None
        amplification = [value for record in here if (value := record.summary.read_amplification) is not None]
        return DriveCell(
            device=side.device.name,
            system=system,
            epoch_s=took.median,
            low=took.interval[0],
            high=took.interval[1],
            read_amplification=statistics.median(amplification) if amplification else None,
            reads_per_s=reads / seconds,
            bytes_per_s=moved / seconds,
            request_bytes=size,
            device_share=share,
            above=_above(side.device, share),
            per_price=side.epochs_per_price(took.median),
            verdict="/".join(dict.fromkeys(record.verdict for record in here)),
            runs=tuple(record.run_id for record in here),
        )
    counted = [] if here else [record for record in group if counts_for(record, side.device)]
    made = [entry for record in counted for entry in predict_record(record, side.device.profile)]
    if not made:
        return None
    middle, nearest = typical(made)
    runs, price = tuple(record.run_id for record in counted), side.epochs_per_price(middle)
    return DriveCell(side.device.name, system, middle, predicted=True, bound=nearest.bound, per_price=price, runs=runs)


def _above(device: Device, share: float | None) -> str:
    """Return why a run used more than the device's own rate; empty where it did not."""
    if share is None or share <= ALL_OF_IT:
        return ""
    return BEATEN if device.disk_class in ("", "none") else BURST


def _notes(found: DriveComparison, records: Sequence[Record], prices: Mapping[str, Price], others: int) -> list[str]:
    sides, cells = found.sides, found.cells
    notes = []
    if not records:
        how = f"so drives are compared by {found.known_by} alone"
        notes.append(f"no usable run is there, {how}: `outcore run … --disk-class NAME`")
    if predicted := [cell for cell in cells if cell.predicted]:
        where = ", ".join(dict.fromkeys(cell.device for cell in predicted))
        classes = dict.fromkeys(record.config.disk_class for record in records)
        counted = ", ".join("no limits" if name == "none" else name for name in classes)
        how = f"from the counters of runs elsewhere, under {counted}, and the drive's profile"
        notes.append(f"PREDICTED, not measured, on {where}: {how}")
    for source, why in (
        ("limits", "no latency, no curve of its own"),
        ("limits, runs", "few reads in flight are taken to be as slow as on the device that runs were made on"),
    ):
        if known := [side.device.name for side in sides if side.device.source == source]:
            notes.append(f"of {', '.join(known)} only the class's limits are known: {why}")
    for side in sides:
        if old := sum(only_alike(record, side.device) for record in records):
            why = "its profile or the runs are of an older version, which did not record the drive"
            notes.append(f"{side.device.name}: {old} runs count by equal model and capacity alone: {why}")
    for above, why in ABOVE.items():
        if beaten := [f"{cell.system} on {cell.device}" for cell in cells if cell.above == above]:
            notes.append(f"more than 100 % of the drive ({above}), {', '.join(beaten)}: {why}")
    shown = {(cell.device, cell.system) for cell in cells}
    systems = dict.fromkeys(cell.system for cell in cells)
    for side in sides:
        if absent := [name for name in systems if (side.device.name, name) not in shown]:
            why = "not run on it, and what was read elsewhere does not say what would be read there"
            notes.append(f"{side.device.name} has no epoch of {', '.join(absent)}: {why}")
    if emulated := [side.device.name for side in sides if side.device.disk_class not in ("", "none")]:
        notes.append(f"{', '.join(emulated)}: EMULATED by limiting IOPS and bandwidth of another device")
    for side in sides:
        if side.device.drive:
            condition = side.device.drive.condition
            steady = "settled" if condition.steady and condition.steady.attained else "did not settle"
            pre = "preconditioned" if condition.preconditioned else "not preconditioned"
            notes.append(f"{side.device.name}: {pre}, file system {condition.fill:.0%} full, 4 KiB reads {steady}")
    hosts = {host_fingerprint(record.environment) for record in records}
    if len(hosts) > 1:
        notes.append(f"runs of {len(hosts)} kinds of host: what processors add differs between them")
    if any(record.config.device.startswith("emulated:") for record in records):
        notes.append("the accelerator is EMULATED: training takes the time a named one takes")
    if priced := {side.price.source for side in sides if side.price}:
        notes.append(f"prices: {'; '.join(sorted(priced))}")
    for side in sides:
        whole = side.device.disk_class.partition("/")[0]
        if side.price is None and whole in prices:
            fix = f"give it a price of its own, under the name {side.device.disk_class}"
            notes.append(f"{side.device.name} has no price: that of {whole} is of the whole drive; {fix}")
    if others:
        notes.append(f"{others} other workloads were run and are not shown (choose by dataset or memory)")
    return notes
