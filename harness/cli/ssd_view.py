"""Tables of `outcore ssd`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.common import print_lines, print_table
from harness.table import number
from workloads.units import format_bytes

if TYPE_CHECKING:
    from harness.drives.sides import DriveComparison
    from harness.drives.whatif import Device, EpochForecast
    from harness.ssd.classes import DiskClass
    from harness.ssd.drive import Drive, Point
    from harness.ssd.emulate import Check


def print_drive(drive: Drive, where: Path) -> None:
    """Print a profile: identity of the drive, condition, points."""
    who, condition = drive.identity, drive.condition
    facts = [
        who.model or who.name,
        who.firmware and f"firmware {who.firmware}",
        format_bytes(who.capacity_bytes),
        who.bus,
        who.link,
        who.file_system,
        f"scheduler {who.scheduler}" if who.scheduler else "",
        f"read-ahead {who.read_ahead_kib} KiB",
    ]
    steady = condition.steady
    settled = (
        "not looked at"
        if steady is None
        else f"{'settled' if steady.attained else 'did not settle'} within {steady.within:.0%} ({steady.deviation:.1%})"
    )
    print_lines(
        f"{drive.name}: {', '.join(fact for fact in facts if fact)}",
        *([f"inside the limits of {drive.disk_class}"] if drive.disk_class else []),
        " > ".join(who.layers),
        f"file system {condition.fill:.0%} full, file {format_bytes(condition.file_bytes)}, "
        f"{'preconditioned' if condition.preconditioned else 'not preconditioned'}; 4 KiB reads {settled}",
        _health(drive),
    )
    heads = ("reads", "in flight", "by", "IOPS", "MB/s", "mean µs", "p50", "p99", "p99.9", "CPU µs/IO")
    print_table(heads, map(_row, drive.points))
    print_lines(f"{drive.mode} profile, {drive.seconds:.0f} s: {where}")


def print_list(classes: Sequence[DiskClass], drives: Sequence[Drive]) -> None:
    """Print a table of the classes, then one of the saved profiles."""
    rows: list[tuple[str, ...]] = [
        (
            entry.name,
            number(entry.read_iops, ",.0f"),
            _scaled(entry.read_bytes_per_s, 1e-6),
            number(entry.write_iops, ",.0f"),
            _scaled(entry.write_bytes_per_s, 1e-6),
            entry.source + (" (assumed)" if entry.assumed else ""),
        )
        for entry in classes
    ]
    print_table(("class", "reads/s", "read MB/s", "writes/s", "write MB/s", "source"), rows)
    if not drives:
        print_lines("no profile is saved here: `outcore ssd profile PATH` makes one")
        return
    rows = []
    for drive in drives:
        smallest = drive.best(min((p.block_bytes for p in drive.points), default=512))
        long = drive.best(1 << 20, "sequential")
        counts = [number(p.iops if p else None, ",.0f") for p in (smallest, drive.best(4096))]
        rate = _scaled(long.bytes_per_s if long else None, 1e-6)
        rows.append((drive.name, drive.identity.model, drive.mode, drive.measured_at[:16], *counts, rate))
    print_table(("profile", "drive", "mode", "measured", "512 B reads/s", "4 KiB reads/s", "1 MiB MB/s"), rows)


def print_checks(disk_class: DiskClass, checks: Sequence[Check]) -> None:
    """Print the measured rates beside the limits."""
    rows = [(one.name, f"{one.measured:,.0f}", f"{one.allowed:,.0f}", f"{one.error:+.2%}") for one in checks]
    print_table(("by fio inside the limits", "measured", "allowed", "off by"), rows, disk_class.name)


def _row(point: Point) -> list[str]:
    size = f"{point.block_bytes} B" if point.block_bytes < 1024 else f"{point.block_bytes // 1024} KiB"
    mixed = f", {point.write_percent} % writes" if point.write_percent else ""
    how = "threads" if point.engine == "sync" else "queue"
    late = [point.latency_s.get(name) for name in ("50", "99", "99.9")]
    return [
        f"{size} {point.pattern}{mixed}",
        str(point.in_flight),
        f"{how}, {'direct' if point.direct else 'buffered'}",
        f"{point.iops:,.0f}",
        f"{point.bytes_per_s / 1e6:,.1f}",
        *(_scaled(value, 1e6) for value in (point.mean_latency_s or None, *late)),
        f"{point.cpu_s_per_request * 1e6:.1f}",
    ]


def _health(drive: Drive) -> str:
    found = drive.condition.health
    if not found:
        return f"health not known: {drive.condition.health_missing}"
    return "health by " + ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in found.items())


def _scaled(value: float | None, factor: float) -> str:
    return number(None if value is None else value * factor, ",.0f")


def print_comparison(comparison: DriveComparison) -> None:
    """Print the tables, sentences and notes of a comparison."""
    from harness.drives.page import sentences, tables

    if comparison.workload:
        print_lines(f"workload: {comparison.workload}")
    for part in tables(comparison):
        print_table(part.heads, part.rows, part.title)
    print_lines(*sentences(comparison), *(f"note: {note}" for note in comparison.notes))


def print_forecasts(device: Device, found: Sequence[EpochForecast], left_out: Sequence[str] = ()) -> None:
    """Print the predictions by workload, and the systems without one."""
    known = {
        "profile": "its profile",
        "limits": "its class's limits alone, so without latency",
        "limits, runs": "its class's limits; few reads in flight are as slow as on the device that runs were made on",
    }[device.source]
    print_lines(f"PREDICTED for {device.name}, known by {known}; nothing of this was measured")
    heads = ("system", "epoch s", "device s", "training s", "waits for", "counted on", "measured s", "off")
    for workload, entries in itertools.groupby(found, key=lambda entry: entry.workload):
        rows = [
            (
                entry.system,
                f"{entry.seconds:.3g}",
                f"{entry.device_s:.3g}",
                f"{entry.train_s:.3g}",
                entry.bound,
                ", ".join(entry.counted_on),
                number(entry.measured_s, ".3g"),
                number(None if entry.error is None else 100 * entry.error, "+.1f") + (" %" if entry.error else ""),
            )
            for entry in entries
        ]
        print_table(heads, rows, workload)
    if left_out:
        why = "whose reads depend on the device; `outcore advise` simulates them on it"
        print_lines(f"left out: {', '.join(left_out)}, {why}")
