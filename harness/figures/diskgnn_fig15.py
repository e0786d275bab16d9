"""DiskGNN Fig. 15: epoch time on a disk of few requests a second, beside the usual one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.figures.bars import draw_bars
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, gallery, register, values
from harness.figures.diskgnn_grid import SYSTEMS, bar_rows, entries, is_plain
from harness.figures.evidence import Evidence
from harness.figures.query import group_runs

CLASSES = ["aws-nvme", "aws-gp3"]
#: Mini-batches of an epoch where epochs are cut short, over the gallery's: what diskgnn caches must not hold them all.
_LONGER = 2.5


def needs(profile: Plain) -> list[Plain]:
    """ginex, mariusgnn and diskgnn on both classes, scaled alike; one epoch, since few requests make it a long one."""
    short = gallery(profile)
    _, _, scale = str(short["run"].get("disk_class", "none")).partition("/")
    classes = [f"{name}/{scale}" if scale else name for name in values(profile, "disk_classes", CLASSES)]
    batches = round(_LONGER * int(short["run"].get("max_batches", 0)))
    run = {**short["run"], "max_batches": batches, "epochs": 1, "warmup": 0, "timeout": "900s"}
    if not batches:
        run = {**short["run"], "epochs": 1, "warmup": 0}
    return [
        {
            **short,
            "run": run,
            "name": "diskgnn-fig15",
            "systems": entries(short, SYSTEMS),
            "grid": {"disk_class": classes},
        }
    ]


def _where(config: Mapping[str, Any]) -> bool:
    return is_plain(config) and config["system"] in SYSTEMS and str(config["disk_class"]).partition("/")[0] in CLASSES


def draw(evidence: Evidence) -> Drawing:
    """Bars of epoch time, a group a class."""
    group = group_runs(evidence.frame, axis=lambda config: config["disk_class"], ignore=["disk_class"], where=_where)
    order = [str(point.x) for point in group.points]
    order = sorted(set(order), key=lambda name: CLASSES.index(name.partition("/")[0]))
    rows = bar_rows(group)
    rows = rows.sort_values("group", key=lambda column: column.map(order.index), kind="stable", ignore_index=True)
    canvas, _ = draw_bars(rows, title="Epoch time on another SSD", ylabel="epoch time (s)", log=True, numbers=".2g")
    times = {(row["series"], row["group"]): row["value"] for row in rows.to_dict("records") if row["value"]}
    slower = [
        f"{system} {times[system, order[1]] / times[system, order[0]]:.2f}x"
        for system in SYSTEMS
        if len(order) > 1 and (system, order[0]) in times and (system, order[1]) in times
    ]
    said = f"slower on {order[-1]}: {', '.join(slower)} (paper: diskgnn about 1.2x)" if slower else ""
    text = caption(group, None, said)
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, runs=group.runs())


register(
    Figure(
        "diskgnn-fig15", "diskgnn", "Epoch time on another SSD", needs, draw, claims=("dg-15",),
        full="AWS gp3 beside AWS NVMe, four datasets",
    )
)  # fmt: skip
