"""Tables of `outcore ssd`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from harness.table import cell, console, number
from workloads.units import format_bytes

if TYPE_CHECKING:
    from harness.drives.sides import Comparison
    from harness.drives.whatif import Device, Forecast
    from harness.ssd.classes import DiskClass
    from harness.ssd.drive import Drive, Point
    from harness.ssd.emulate import Check


def print_drive(drive: Drive, where: Path) -> None:
    """Print a profile: identity of the drive, condition, points."""
    out, who, condition = console(), drive.identity, drive.condition
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
    out.print(cell(f"{drive.name}: {', '.join(fact for fact in facts if fact)}"), highlight=False)
    if drive.disk_class:
        out.print(cell(f"inside the limits of {drive.disk_class}"), highlight=False)
    out.print(cell(" > ".join(who.layers)), highlight=False)
    steady = condition.steady
    settled = (
        "not looked at"
        if steady is None
        else f"{'settled' if steady.attained else 'did not settle'} within {steady.within:.0%} ({steady.deviation:.1%})"
    )
    out.print(
        f"file system {condition.fill:.0%} full, file {format_bytes(condition.file_bytes)}, "
        f"{'preconditioned' if condition.preconditioned else 'not preconditioned'}; 4 KiB reads {settled}",
        highlight=False,
    )
    out.print(cell(_health(drive)), highlight=False)
    table = Table("reads", "in flight", "by", "IOPS", "MB/s", "mean µs", "p50", "p99", "p99.9", "CPU µs/IO")
    for point in drive.points:
        table.add_row(*_row(point))
    out.print(table)
    out.print(cell(f"{drive.mode} profile, {drive.seconds:.0f} s: {where}"), highlight=False)


def print_list(classes: Sequence[DiskClass], drives: Sequence[Drive]) -> None:
    """Print a table of the classes, then one of the saved profiles."""
    out = console()
    table = Table("class", "reads/s", "read MB/s", "writes/s", "write MB/s", "source")
    for entry in classes:
        table.add_row(
            cell(entry.name),
            _count(entry.read_iops),
            _mega(entry.read_bytes_per_s),
            _count(entry.write_iops),
            _mega(entry.write_bytes_per_s),
            cell(entry.source + (" (assumed)" if entry.assumed else "")),
        )
    out.print(table)
    if not drives:
        out.print("no profile is saved here: `outcore ssd profile PATH` makes one")
        return
    table = Table("profile", "drive", "mode", "measured", "512 B reads/s", "4 KiB reads/s", "1 MiB MB/s")
    for drive in drives:
        smallest = drive.best(min((p.block_bytes for p in drive.points), default=512))
        middle, long = drive.best(4096), drive.best(1 << 20, "sequential")
        table.add_row(
            cell(drive.name),
            cell(drive.identity.model),
            drive.mode,
            cell(drive.measured_at[:16]),
            *(_count(p.iops if p else None) for p in (smallest, middle)),
            _mega(long.bytes_per_s if long else None),
        )
    out.print(table)


def print_checks(disk_class: DiskClass, checks: Sequence[Check]) -> None:
    """Print the measured rates beside the limits."""
    table = Table("by fio inside the limits", "measured", "allowed", "off by", title=cell(disk_class.name))
    for check in checks:
        table.add_row(check.name, f"{check.measured:,.0f}", f"{check.allowed:,.0f}", f"{check.error:+.2%}")
    console().print(table)


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
        number(point.mean_latency_s * 1e6 or None, ",.0f"),
        *(number(value * 1e6 if value is not None else None, ",.0f") for value in late),
        f"{point.cpu_s_per_request * 1e6:.1f}",
    ]


def _health(drive: Drive) -> str:
    found = drive.condition.health
    if not found:
        return f"health not known: {drive.condition.health_missing}"
    return "health by " + ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in found.items())


def _count(value: float | None) -> str:
    return number(value, ",.0f")


def _mega(value: float | None) -> str:
    return number(value / 1e6 if value is not None else None, ",.0f")


def print_comparison(comparison: Comparison) -> None:
    """Print the tables, sentences and notes of a comparison."""
    from harness.drives.page import sentences, tables

    out = console()
    if comparison.workload:
        out.print(cell(f"workload: {comparison.workload}"), highlight=False)
    for part in tables(comparison):
        table = Table(*map(cell, part.heads), title=cell(part.title))
        for row in part.rows:
            table.add_row(*map(cell, row))
        out.print(table)
    for line in [*sentences(comparison), *(f"note: {note}" for note in comparison.notes)]:
        out.print(cell(line), highlight=False)


def print_forecasts(device: Device, found: Sequence[Forecast], left_out: Sequence[str] = ()) -> None:
    """Print the predictions by workload, and the systems without one."""
    out = console()
    known = {
        "profile": "its profile",
        "limits": "its class's limits alone, so without latency",
        "limits, runs": "its class's limits; few reads in flight are as slow as on the device that runs were made on",
    }[device.source]
    out.print(cell(f"PREDICTED for {device.name}, known by {known}; nothing of this was measured"), highlight=False)
    workload = None
    table = Table()
    for entry in found:
        if entry.workload != workload:
            if workload is not None:
                out.print(table)
            workload = entry.workload
            table = Table(
                "system",
                "epoch s",
                "device s",
                "training s",
                "waits for",
                "counted on",
                "measured s",
                "off",
                title=cell(workload),
            )
        table.add_row(
            cell(entry.system),
            f"{entry.seconds:.3g}",
            f"{entry.device_s:.3g}",
            f"{entry.train_s:.3g}",
            entry.bound,
            cell(", ".join(entry.counted_on)),
            number(entry.measured_s, ".3g"),
            number(None if entry.error is None else 100 * entry.error, "+.1f") + (" %" if entry.error else ""),
        )
    if workload is not None:
        out.print(table)
    if left_out:
        said = (
            f"left out: {', '.join(left_out)}, whose reads depend on the device; `outcore advise` simulates them on it"
        )
        out.print(cell(said), highlight=False)
