"""Ginex Figures 17, 18 and 19: speedup over PyG+ over feature dimension, memory and mini-batch size."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence, Planned
from harness.compare.plan import Plain, Plan, grid
from harness.compare.points import Group, NotDrawn, Point
from harness.figures.base import Drawing, Figure, add_caption, caption, gallery, register, values, with_dims
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.kinds import Axis, Draw
from harness.figures.ginex.grid import SYSTEMS, batch_sizes, host_budget, systems_of
from workloads.units import format_bytes, parse_bytes

BASE, *OTHERS = SYSTEMS
DIMS = [128, 256, 512, 768]
# 32, 64 and 128 GB in the paper.
MEMORY_FACTORS = [0.5, 1.0, 2.0]
# 250 to 2000 around the paper's default of 1000.
BATCH_FACTORS = [0.25, 0.5, 1.0, 2.0]
PAGES = {"io_granularity": "4096"}


def over_dims(profile: Plain) -> Plan:
    """Plan the three systems at each dimension, in the same host memory; device memory grows with the dimension.

    A row of dimension 768 is six times one of 128. A profile whose budget cannot hold a mini-batch of such rows scales
    mini-batches (`wide_batch_factor`) and budget (`wide_memory_factor`) at all dimensions.
    """
    short = gallery(profile)
    changed, names = with_dims(short, values(profile, "wide_dims", DIMS))
    (run,) = batch_sizes(short, values(profile, "wide_batch_factor", [1.0])[:1])
    (factor,) = values(profile, "wide_memory_factor", [1.0])
    changed["run"] = {**changed["run"], "memory": f"+{round(host_budget(short) * factor)}"}
    memory = short["run"].get("device_memory")
    base = int(short["datasets"][short["run"]["dataset"]].get("dim", 128))
    dims: dict[int, Plain] = {}
    for name in names:
        dim = int(changed["datasets"][name].get("dim", 128))
        device = {} if memory is None else {"device_memory": parse_bytes(memory) * dim // base}
        dims[dim] = {"dataset": name, **run, **device}
    systems = [
        {**entry, "options": {**entry.get("options", {}), **(PAGES if entry["name"] != BASE else {})}}
        for entry in systems_of(short, SYSTEMS)
    ]
    return grid(changed, systems, dims)


def over_memory(profile: Plain) -> Plan:
    """Plan the three systems at each host budget."""
    short = gallery(profile)
    budgets = [round(host_budget(short) * factor) for factor in values(profile, "memory_steps", MEMORY_FACTORS)]
    return grid(short, systems_of(short, SYSTEMS), {budget: {"memory": f"+{budget}"} for budget in budgets})


def over_batches(profile: Plain) -> Plan:
    """Plan the three systems at each mini-batch size, with the same number of seed nodes per epoch."""
    short = gallery(profile)
    sizes = batch_sizes(short, values(profile, "batch_factors", BATCH_FACTORS))
    return grid(short, systems_of(short, SYSTEMS), {run["batch_size"]: run for run in sizes})


def speedups(plan: Planned, axis: Axis, *, title: str, note: str = "") -> Draw:
    """Return the `draw` of a figure with bars of each system's speedup over PyG+.

    Args:
        plan, axis, title: as in `kinds.lines`; `note`: text for the caption.
    """

    def draw(evidence: Evidence) -> Drawing:
        group = evidence.points(plan)
        rows = speedup_rows(group)
        canvas, axes = draw_bars(
            rows, title=title, ylabel=f"speedup over {BASE}", xlabel=axis.label, tick=axis.tick, numbers=".2f"
        )
        axes.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
        extra = "; ".join(part for part in (note, axis.missing(group)) if part)
        text = caption(group, [point for point in group.points if point.value is not None], extra)
        add_caption(canvas, text)
        return Drawing(canvas, rows, text, group.runs())

    return draw


def speedup_rows(group: Group) -> pd.DataFrame:
    """Return a row for each x and system: epoch time of PyG+ over the system's, with the widest ratio interval.

    Raises:
        NotDrawn: PyG+ has no measured epoch anywhere.
    """
    points = {(point.x, point.system): point for point in group.points}
    rows: list[Plain] = []
    for x in dict.fromkeys(point.x for point in group.points):
        base = points.get((x, BASE))
        for system in OTHERS:
            point = points.get((x, system))
            row: Plain = {"group": x, "series": system, "value": None, "low": None, "high": None}
            row["status"] = _status(base, point)
            if base is not None and point is not None and base.value and point.value:
                row["value"] = base.value / point.value
                row["low"] = float(base.low or base.value) / float(point.high or point.value)
                row["high"] = float(base.high or base.value) / float(point.low or point.value)
                row |= {"base_s": base.value, "epoch_s": point.value}
                row |= {"run": point.record["run_id"], "base_run": base.record["run_id"]}
            rows.append(row)
    table = pd.DataFrame(rows)
    if table.empty or table["value"].isna().all():
        raise NotDrawn(f"no x at which {BASE} and another system were both measured")
    return table


def _status(base: Point | None, point: Point | None) -> str:
    if base is None or base.value is None:
        return f"{BASE}: {'not run' if base is None else base.status}"
    return "not run" if point is None else point.status


register(
    Figure(
        "ginex-fig17",
        over_dims,
        speedups(
            over_dims,
            Axis("feature dimension", DIMS, "dimension"),
            title="Speedup over feature dimension",
            note="ali+pg and ginex read whole 4 KiB pages, as the paper's code does; device memory grows with the "
            "dimension",
        ),
    )
)
register(
    Figure(
        "ginex-fig18",
        over_memory,
        speedups(
            over_memory,
            Axis("host memory budget beyond floor and training", tick=format_bytes),
            title="Speedup over memory",
            note="a budget is what the paper's memory size leaves once interpreter and training have theirs; the "
            "paper has half, all and twice its default",
        ),
    )
)
register(
    Figure(
        "ginex-fig19",
        over_batches,
        speedups(
            over_batches,
            Axis("mini-batch size (seed nodes)", len(BATCH_FACTORS), "sizes"),
            title="Speedup over mini-batch size",
        ),
    )
)
