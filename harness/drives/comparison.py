"""A comparison of drives as data: each side, its cells by system, and what more
requests a second bring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from harness.drives.prices import Price
from harness.drives.whatif import Device


@dataclass(frozen=True)
class DriveSide:
    """One drive: price, and figures by fio (None where not measured):
    `randread_512_iops`, `randread_4k_iops`, `randread_64k_iops`, `seqread_bytes_per_s`,
    and for 4 KiB reads `latency_1_p50_s`, `latency_1_p99_s` (one in flight),
    `latency_64_p50_s`, `latency_64_p99_s`, `latency_64_p999_s` (64 in flight),
    `cpu_s_per_read`."""

    device: Device
    figures: dict[str, float | None]
    price: Price | None = None

    def epochs_per_price(self, epoch_s: float) -> float | None:
        """Return epochs an hour, divided by the price of 1 TB of the drive; None
        without a price."""
        return 3600.0 / epoch_s / self.price.per_tb if self.price else None


@dataclass(frozen=True)
class DriveCell:
    """One system on one drive: its epoch, measured or predicted; where measured, the
    device's rates by the kernel's count, the mean size of a device read, and the used
    share of the device's own rate at that size; percentiles of the latency of its reads
    in the epochs. `above`: the reason where that share is
    more than all of it, see `harness.drives.notes`. `per_price`: epochs per hour,
    divided by the price of 1 TB of the drive."""

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
    read_p50_s: float | None = None
    read_p99_s: float | None = None
    read_p999_s: float | None = None
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
    """Comparison of drives on one `workload` (in words; empty without a usable run);
    `systems` are in drawing order."""

    sides: tuple[DriveSide, ...]
    cells: tuple[DriveCell, ...]
    workload: str
    systems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        """One row for each cell, with the attributes of `DriveCell` as columns."""
        return pd.DataFrame(
            map(vars, self.cells), columns=list(DriveCell.__annotations__)
        )

    @property
    def known_by(self) -> str:
        """Source of the drives' rates, in words: fio, the limits of classes, or
        both."""
        sources = {
            "fio" if side.device.drive else "the limits of classes"
            for side in self.sides
        }
        return " and ".join(sorted(sources))

    def growth(self) -> list[Growth]:
        """Return the growth of each system with epochs on two drives or more, the
        smallest first."""
        ascending = self.table.sort_values("epoch_s", kind="stable")
        found = []
        for system in self.systems:
            own = ascending[ascending["system"] == system]
            seconds = list(own["epoch_s"])
            drives = list(own["device"])
            if len(own) > 1:
                found.append(
                    Growth(system, seconds[-1] / seconds[0], drives[0], drives[-1])
                )
        return sorted(found, key=lambda growth: growth.ratio)
