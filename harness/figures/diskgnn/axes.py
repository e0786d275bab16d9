"""DiskGNN Figures 10, 11 and 15: epoch time and disk traffic over memory, and epoch time on another SSD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.compare.plan import Plain, Plan, grid
from harness.compare.points import Group
from harness.figures.base import Figure, gallery, register, values
from harness.figures.diskgnn.grid import MEMORY_SHARES, SYSTEMS, entries, longer, percent, shares_of
from harness.figures.draw.kinds import Axis, bars

CLASSES = ["aws-nvme", "aws-gp3"]
#: Factor on the gallery's mini-batches where epochs are cut short: else diskgnn's caches would hold all rows read.
_LONGER = 2.5
MEMORY = Axis("host memory over the features", MEMORY_SHARES, "memory of", percent)


def over_memory(profile: Plain) -> Plan:
    """Plan ginex, mariusgnn and diskgnn at each share of memory."""
    return grid(
        longer(profile), entries(profile, SYSTEMS), {share: {"memory": f"{share:g}x"} for share in shares_of(profile)}
    )


def on_classes(profile: Plain) -> Plan:
    """Plan the three systems on both SSD classes, scaled alike; one epoch, which few requests a second make long."""
    short = gallery(profile)
    _, _, scale = str(short["run"].get("disk_class", "none")).partition("/")
    classes = [f"{name}/{scale}" if scale else name for name in values(profile, "disk_classes", CLASSES)]
    run = {**short["run"], "epochs": 1, "warmup": 0}
    if batches := round(_LONGER * int(short["run"].get("max_batches", 0))):
        run |= {"max_batches": batches, "timeout": "900s"}
    return grid({**short, "run": run}, entries(short, SYSTEMS), {name: {"disk_class": name} for name in classes})


def _gigabytes(epoch: Mapping[str, Any]) -> float | None:
    moved = epoch.get("device_bytes")
    return None if moved is None else float(moved) / 1e9


def _slower(group: Group) -> str:
    times = {(point.system, point.x): point.value for point in group.points if point.value}
    first, *_, last = dict.fromkeys(point.x for point in group.points)
    both = [system for system in SYSTEMS if (system, first) in times and (system, last) in times]
    said = ", ".join(f"{system} {times[system, last] / times[system, first]:.2f}x" for system in both)
    return f"slower on {last}: {said} (paper: diskgnn about 1.2x)" if both else ""


register(Figure("diskgnn-fig10", over_memory, bars(over_memory, MEMORY, title="Epoch time over memory", log=True)))
register(
    Figure(
        "diskgnn-fig11",
        over_memory,
        bars(
            over_memory,
            MEMORY,
            title="Disk traffic over memory",
            ylabel="read in an epoch (GB)",
            value=_gigabytes,
            note=lambda group: "topology, rows and partitions",
        ),
    )
)
register(
    Figure(
        "diskgnn-fig15",
        on_classes,
        bars(on_classes, Axis(""), title="Epoch time on another SSD", log=True, note=_slower),
    )
)
