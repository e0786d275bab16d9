"""GNNDrive Table 2: data preparation, training and the whole epoch, MariusGNN at two memory sizes beside the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from harness.figures.base import Figure, Plain, Sheet, caption, gallery, only_systems, published, register
from harness.figures.evidence import Evidence
from harness.figures.ginex_grid import host_budget
from harness.figures.gnndrive_grid import CPU, SYSTEMS, alike, cpu_points, cpu_variant, is_plain, run_ids, variant_of
from harness.figures.lines import MARK
from harness.figures.query import Group, Point, group_runs
from harness.figures.sheets import sheet
from workloads.units import format_bytes, parse_bytes

MARIUS = "mariusgnn"
# 32 and 128 GB in the paper.
FACTORS = [1.0, 4.0]
# Row of the table -> row of the paper's.
PAPER = {"gnndrive": "GNNDrive-GPU", CPU: "GNNDrive-CPU", "pyg+": "PyG+", "ginex": "Ginex"}


def needs(profile: Plain) -> list[Plain]:
    """The systems at the profile's budget, the CPU variant, and mariusgnn with four times as much, too."""
    short = gallery(profile)
    memory = [f"+{round(host_budget(short) * factor)}" for factor in FACTORS]
    systems = [*only_systems(short, SYSTEMS), cpu_variant(short)]
    return [
        {**short, "name": "gnndrive-tab2", "systems": systems, "grid": {}},
        {**short, "name": "gnndrive-tab2", "systems": only_systems(short, [MARIUS]), "grid": {"memory": memory}},
    ]


@dataclass(frozen=True)
class Row:
    """One line: seconds of an epoch, medians; None where it was not measured."""

    name: str
    paper: str
    point: Point | None

    def seconds(self) -> tuple[float | None, float | None, float | None]:
        """Data preparation (None: it has none), training (the rest of the epoch), and the epoch."""
        if self.point is None:
            return None, None, None
        epochs = [epoch for epoch in self.point.record["epochs"] if not epoch["warmup"]]
        if self.point.value is None or not epochs:
            return None, None, None
        prepares = any("data_prep" in epoch["stages_s"] for epoch in epochs)
        spent = [float(epoch["stages_s"].get("data_prep", 0.0)) for epoch in epochs]
        rest = [float(epoch["seconds"]) - before for epoch, before in zip(epochs, spent, strict=True)]
        return (median(spent) if prepares else None), median(rest), self.point.value


def _budget(config: Mapping[str, Any]) -> str:
    return str(config["memory"])


def draw(evidence: Evidence) -> Sheet:
    """A row a system; the paper's seconds on papers100M beside."""
    group = _group(evidence)
    rows = _rows(evidence, group)
    theirs = published("gnndrive-tab2")
    table = pd.DataFrame([_line(row, theirs) for row in rows])
    seconds = dict.fromkeys(["data preparation (s)", "training (s)", "overall (s)"], ".2f")
    shown = {"system": "", **seconds, "preparation (%)": ".0f", "paper: preparation (s)": ".1f",
             "paper: training (s)": ".1f", "paper: overall (s)": ".1f"}  # fmt: skip
    extra = (
        "training: all of the epoch after data preparation, of which most systems have none; the CPU variant has the "
        "device's memory in its host budget; the paper's values: papers100M, 32 GB (mariusgnn also 128 GB)"
    )
    points = sorted((row.point for row in rows if row.point is not None), key=_on_processor)
    return sheet(table, shown, caption(group, points, extra), runs=run_ids(points))


def _group(evidence: Evidence) -> Group:
    """The runs of mariusgnn over budgets, and all others of the same work."""

    def plain(config: Mapping[str, Any]) -> bool:
        return is_plain(config) and config["device"] != "cpu" and _in_bytes(config["memory"])

    theirs = group_runs(
        evidence.frame,
        axis=_budget,
        ignore=["memory"],
        where=lambda config: plain(config) and config["system"] == MARIUS,
        want_axis=1,
    )
    same = alike(theirs, ["memory"])
    return group_runs(
        evidence.frame,
        axis=_budget,
        ignore=["memory"],
        where=lambda config: plain(config) and config["system"] in (MARIUS, *SYSTEMS) and same(config),
        want_axis=1,
    )


def _rows(evidence: Evidence, group: Group) -> list[Row]:
    """The others at the smallest budget that mariusgnn ran under, mariusgnn at all of them."""
    sizes = {point.x: parse_bytes(str(point.x).removeprefix("+")) for point in group.points}
    marius = sorted((point for point in group.points if point.system == MARIUS), key=lambda point: sizes[point.x])
    base = marius[0].x
    cpu = cpu_points(
        evidence.frame, group, axis=lambda config: "cpu", ignore=["memory"],
    )  # fmt: skip
    found = {variant_of(p.record["config"]): p for p in [*(p for p in group.points if p.x == base), *cpu]}
    rows = [Row(name, paper, found.get(name)) for name, paper in PAPER.items()]
    papers = ["MariusGNN-32G", *["MariusGNN-128G"] * (len(marius) - 1)]
    return rows + [
        Row(f"{MARIUS}, {format_bytes(sizes[point.x])}", paper, point)
        for point, paper in zip(marius, papers, strict=True)
    ]


def _in_bytes(memory: Any) -> bool:
    return str(memory).startswith("+")


def _line(row: Row, theirs: pd.DataFrame) -> Plain:
    before, training, overall = row.seconds()
    status = row.point.status if row.point is not None else "not run"
    failed = None if row.point is not None and row.point.value is not None else MARK.get(status, status)
    line: Plain = {
        "system": row.name,
        "data preparation (s)": failed or before,
        "training (s)": failed or training,
        "overall (s)": failed or overall,
        "preparation (%)": 100 * before / overall if before is not None and overall else None,
    }
    for column in ("preparation", "training", "overall"):
        value = theirs[(theirs["series"] == row.paper) & (theirs["x"].astype(str) == column)]["value"]
        line[f"paper: {column} (s)"] = float(value.iloc[0]) if len(value) else None
    samples, run = (row.point.samples, row.point.record.get("run_id", "")) if row.point is not None else (0, "")
    return {**line, "status": status, "samples": samples, "run": run}


def _on_processor(point: Point) -> bool:
    return bool(point.record["config"]["device"] == "cpu")


register(
    Figure(
        "gnndrive-tab2", "gnndrive", "Data preparation, training and the whole epoch", needs, draw,
        claims=("gd-03", "gd-04", "gd-13"), full="papers100M and MAG240M; MariusGNN at 32 and 128 GB",
    )
)  # fmt: skip
