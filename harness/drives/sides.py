"""Parts of a drive comparison: one side per drive, one cell per system on a drive, and notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.drives.prices import Price
from harness.drives.whatif import Device
from systems.readings import DiskProfile

SHALLOW, DEEP = 1, 64


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
    """One system on one drive.

    Attributes:
        predicted: whether the epoch is predicted by the model, not measured.
        reads_per_s, bytes_per_s: device rates over the epoch, counted by the kernel; None where predicted.
        request_bytes: mean size of a device read.
        device_share: used share of the device's own rate at the mean read size.
        per_price: epochs per hour, divided by the price of 1 TB of the drive.
    """

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

    def growth(self) -> list[Growth]:
        """Return the growth of each system with epochs on two drives or more, the smallest first."""
        found = []
        for system in self.systems:
            mine = sorted((cell for cell in self.cells if cell.system == system), key=lambda cell: cell.epoch_s)
            if len(mine) > 1:
                found.append(Growth(system, mine[-1].epoch_s / mine[0].epoch_s, mine[0].device, mine[-1].device))
        return sorted(found, key=lambda growth: growth.ratio)


def best_rates(profile: DiskProfile) -> dict[int, float]:
    """Return bytes -> greatest rate of random reads of that size, ascending."""
    points = [(point.block_bytes, point.iops) for point in profile.points if point.pattern == "random"]
    return dict(sorted(points))


def latencies(device: Device, depth: int) -> dict[str, float]:
    """Return percentile -> seconds of direct random 4 KiB reads with `depth` in flight; empty where not measured. The
    deepest point up to `depth` is used: on a class with few IOPS a deeper queue would only wait for the limiter."""
    if device.drive is None:
        return {}
    points = [
        p
        for p in device.drive.points
        if (p.block_bytes, p.pattern, p.engine, p.threads) == (4096, "random", "async", 1)
        and p.reads_directly
        and p.depth <= depth
    ]
    return max(points, key=lambda p: p.depth).latency_s if points else {}


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
