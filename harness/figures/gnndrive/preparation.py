"""GNNDrive Table 2: data preparation, training and the whole epoch; MariusGNN at two memory sizes."""

from __future__ import annotations

from statistics import median

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain, Plan, grid, joined
from harness.compare.points import Group, Point
from harness.figures.base import Figure, Sheet, caption, gallery, only_systems, published, register
from harness.figures.draw.lines import MARK
from harness.figures.draw.sheets import sheet
from harness.figures.ginex.grid import host_budget
from harness.figures.gnndrive.grid import CPU, SYSTEMS, cpu_variant
from workloads.units import format_bytes

MARIUS = "mariusgnn"
# 32 and 128 GB in the paper.
FACTORS = [1.0, 4.0]
PAPER = {"gnndrive": "GNNDrive-GPU", CPU: "GNNDrive-CPU", "pyg+": "PyG+", "ginex": "Ginex"}
PARTS = ("preparation", "training", "overall")


def budgets(profile: Plain) -> Plan:
    """Plan the systems and the CPU variant at the profile's budget, mariusgnn also at four times the budget."""
    short = gallery(profile)
    sizes = {round(host_budget(short) * factor): factor for factor in FACTORS}
    others = [*only_systems(short, SYSTEMS), cpu_variant(short)]
    marius = only_systems(short, [MARIUS])
    return joined(
        [grid(short, others, {"": {}}), *(grid(short, marius, {size: {"memory": f"+{size}"}}) for size in sizes)]
    )


def draw(evidence: Evidence) -> Sheet:
    """Return one row per system, with the paper's seconds on papers100M."""
    group = evidence.points(budgets, least=1)
    found = {point.system: point for point in group.points if point.system != MARIUS}
    lines = [_line(name, paper, found.get(name)) for name, paper in PAPER.items()]
    lines += [
        _line(f"{MARIUS}, {format_bytes(point.x)}", paper, point)
        for point, paper in zip(_marius(group), ["MariusGNN-32G", "MariusGNN-128G"], strict=False)
    ]
    seconds = dict.fromkeys(["data preparation (s)", "training (s)", "overall (s)"], ".2f")
    theirs = dict.fromkeys([f"paper: {part} (s)" for part in PARTS], ".1f")
    extra = (
        "training: all of the epoch after data preparation, of which most systems have none; the CPU variant has the "
        "device's memory in its host budget; the paper's values: papers100M, 32 GB (mariusgnn also 128 GB)"
    )
    columns = {"system": "", **seconds, "preparation (%)": ".0f", **theirs}
    return sheet(pd.DataFrame(lines), columns, caption(group, extra=extra), runs=group.runs())


def _marius(group: Group) -> list[Point]:
    return [point for point in group.points if point.system == MARIUS]


def _seconds(point: Point | None) -> tuple[float | None, float | None, float | None]:
    """Return median seconds of data preparation (None without it), of the rest of the epoch, and of the epoch."""
    epochs = [] if point is None else [epoch for epoch in point.record["epochs"] if not epoch["warmup"]]
    if point is None or point.value is None or not epochs:
        return None, None, None
    prepares = any("data_prep" in epoch["stages_s"] for epoch in epochs)
    spent = [float(epoch["stages_s"].get("data_prep", 0.0)) for epoch in epochs]
    rest = [float(epoch["seconds"]) - before for epoch, before in zip(epochs, spent, strict=True)]
    return (median(spent) if prepares else None), median(rest), point.value


def _line(name: str, paper: str, point: Point | None) -> Plain:
    before, training, overall = _seconds(point)
    status = point.status if point is not None else "not run"
    failed = None if point is not None and point.value is not None else MARK.get(status, status)
    line: Plain = {
        "system": name,
        "data preparation (s)": failed or before,
        "training (s)": failed or training,
        "overall (s)": failed or overall,
        "preparation (%)": 100 * before / overall if before is not None and overall else None,
    }
    theirs = published("gnndrive-tab2")
    for part in PARTS:
        value = theirs[(theirs["series"] == paper) & (theirs["x"].astype(str) == part)]["value"]
        line[f"paper: {part} (s)"] = float(value.iloc[0]) if len(value) else None
    samples, run = (point.samples, point.record.get("run_id", "")) if point is not None else (0, "")
    return {**line, "status": status, "samples": samples, "run": run}


register(Figure("gnndrive-tab2", budgets, draw))
