"""`outcore ssd endurance`: how fast trainings wear a drive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.common import OnResults
from harness.cli.run_tables import number
from harness.cli.table import print_lines, print_table
from workloads.errors import InputError, require
from workloads.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from harness.drives.endurance import Rating, WearRow
    from harness.drives.whatif import Device


def endurance(
    drive: Annotated[
        str, typer.Argument(help="name or file of a profile, or a class NAME/k")
    ],
    call: OnResults,
    epochs: Annotated[int, typer.Option(help="of a training")] = 100,
    trainings: Annotated[float, typer.Option(help="trainings a day")] = 1.0,
    rating: Annotated[
        float | None,
        typer.Option(help="how often the drive may be written over each day (DWPD)"),
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(help="of the drive, like 3840GB (default: the profile's)"),
    ] = None,
    also: Annotated[
        list[Path] | None, typer.Option("--from", help="another results root with runs")
    ] = None,
) -> None:
    """Show the bytes that each system writes, and how often a day its trainings write
    the drive over, beside the drive's rating.

    Examples:
        outcore ssd endurance mydrive --epochs 50 --trainings 24 --rating 1
        outcore ssd endurance aws-nvme --capacity 3800GB
    """
    from harness.drives.endurance import Rating, Use, wear_rows
    from harness.drives.whatif import device_of, read_records

    require(epochs > 0, f"--epochs is {epochs}", "give 1 or more")
    require(trainings > 0, f"--trainings is {trainings}", "give more than 0")
    require(rating is None or rating > 0, f"--rating is {rating}", "give more than 0")
    device = device_of(drive, call.results_root)
    known = parse_bytes(capacity, "--capacity") if capacity else None
    if known is None and device.drive:
        known = device.drive.identity.capacity_bytes
    rated = Rating(known or None, rating)
    with call.working("reading records"):
        records = read_records([call.results_root, *(also or [])])
        rows = wear_rows(records, Use(epochs, trainings), rated)
    if not rows:
        message = f"{call.results_root} holds no run that counts"
        raise InputError(message, "make one: `outcore run SYSTEM --memory 0.25x`")
    content = {
        "drive": device.name,
        "capacity_bytes": rated.capacity_bytes,
        "rating": rating,
        "epochs": epochs,
        "trainings_a_day": trainings,
        "smart": device.drive.condition.health if device.drive else {},
        "systems": [vars(row) for row in rows],
    }
    call.emit(content, lambda: _show(device, rows, rated, epochs, trainings))


def _show(
    device: Device, rows: list[WearRow], rating: Rating, epochs: int, trainings: float
) -> None:
    cells = []
    for row in rows:
        share = row.share_of_rating
        cells.append(
            (
                row.system,
                row.workload,
                format_bytes(row.once_bytes),
                format_bytes(row.epoch_bytes),
                f"{row.training_bytes / 1e12:.3g}",
                number(row.drive_writes_a_day, ".3g"),
                "–" if share is None else f"{100 * share:.3g} %",
            )
        )
    heads = (
        "system",
        "workload",
        "written once",
        "for an epoch",
        "TB a training",
        "drive writes a day",
        "of the rating",
    )
    plan = f"{epochs} epochs a training, {trainings:g} trainings a day"
    print_table(heads, cells, f"{device.name}: {plan}", prose=("workload",))
    if rating.capacity_bytes is None:
        print_lines("no drive writes: the capacity is unknown, give --capacity")
    print_lines(_smart(device))


def _smart(device: Device) -> str:
    """Return what the drive itself reports of its wear."""
    if device.drive is None:
        return "SMART: – (a class is no drive)"
    health = device.drive.condition.health
    if not health:
        return f"SMART: – ({device.drive.condition.health_missing or 'not read'})"
    parts = []
    if "data_written_bytes" in health:
        parts.append(f"{health['data_written_bytes'] / 1e12:.4g} TB written so far")
    if "percentage_used" in health:
        parts.append(f"{health['percentage_used']} % of its life used")
    return f"SMART: {', '.join(parts) or 'reports no wear'}"
