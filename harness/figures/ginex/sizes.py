"""Ginex's epochs over sizes: Figures 16 (superbatch), 17 (feature dimension), 18 (host
memory) and 19 (mini-batch)."""

from __future__ import annotations

import pandas as pd

from harness.compare.cells import Cells, with_absent
from harness.compare.plan import Plan, grid, value_at
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_cells, published
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import left_out
from harness.figures.draw.charts import Axis
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import mark_paper
from harness.figures.draw.words import in_words
from harness.figures.ginex.parts import BASE, SYSTEMS
from harness.figures.grids import (
    batch_sizes,
    gallery,
    host_budget,
    in_gallery,
    over_dims,
    systems_of,
    values,
)
from harness.figures.over_axis import Places, alike, changes, fastest, over_base
from harness.results.table import each
from workloads.arraytypes import JsonDict
from workloads.units import format_bytes

#: Superbatch, host memory and mini-batch as factors on their defaults.
SUPERBATCHES = [0.25, 0.5, 1.0, 2.0]
MEMORY = [0.5, 1.0, 2.0]
BATCHES = [0.25, 0.5, 1.0, 2.0]
DIMS = [128, 256, 512, 768]
#: GB of runtime files of the paper's default superbatch (Section 5.4).
FILES_GB = 100


def over_superbatches(profile: JsonDict) -> Plan:
    """Plan ginex at superbatch sizes around half an epoch; in whole epochs at the
    paper's sizes of runtime files."""
    batches = int(gallery(profile)["run"].get("max_batches", 0))
    if not batches:
        files = [round(FILES_GB * factor) for factor in SUPERBATCHES]
        return in_gallery(
            profile,
            ["ginex"],
            {size: {"options": {"runtime_files": f"{size}GB"}} for size in files},
        )
    usual = [max(1, round(batches / 2 * factor)) for factor in SUPERBATCHES]
    sizes = values(profile, "superbatches", usual)
    return in_gallery(
        profile, ["ginex"], {size: {"options": {"superbatch": size}} for size in sizes}
    )


@figure_of_cells("ginex-fig16", over_superbatches)
def fig16(cells: Cells) -> Drawing:
    """Draw epoch time over superbatch size, both over the default's; raise NotDrawn
    with fewer than two."""
    table = cells.medians().dropna(subset="value").sort_values("x")
    if len(table) < 2:
        raise NotDrawn("ginex finished with fewer than two superbatch sizes")
    batches = cells.shared["max_batches"]
    usual = batches / 2 or FILES_GB
    unit = "mini-batches" if batches else "GB of runtime files"
    sizes = list(table.x)
    default = min(sizes, key=lambda size: abs(size - usual))
    default_s = table.value[table.x == default].item()

    rows = pd.DataFrame(
        {"size": table.x, "factor": table.x / default, "epoch_s": table.value}
    )
    rows = rows.join(table[["value", "low", "high"]] / default_s)
    rows["switch_s"] = [
        value_at(record, "summary.stages_s.switch") for record in table.record
    ]
    rows = rows.assign(unit=unit, run=table.run)

    line = rows.rename(columns={"factor": "x", "value": "y"}).assign(series="ginex")
    title = "Epoch time over superbatch size"
    ylabel = "epoch time over the default's"
    xlabel = f"superbatch over the default: {default} {unit} (log)"
    canvas, axes = draw_curves(
        line, title=title, xlabel=xlabel, ylabel=ylabel, xlog=True
    )
    paper = published("ginex-fig16").astype({"x": float})
    mark_paper(axes, paper.x, 1 - paper.value / 100, "paper, its four datasets")
    axes.set_ylim(bottom=0)
    full = [round(default * factor) for factor in SUPERBATCHES]
    finding = _best_size(rows, default, unit)
    return drawn(
        canvas, rows, cells, left_out(sizes, full, "superbatch of"), finding=finding
    )


def _best_size(rows: pd.DataFrame, default: int, unit: str) -> str:
    """Return the sentence on the epoch of each superbatch over the default's, and on
    sizes without a difference."""
    usual = next(each(rows[rows["size"] == default]))
    others = rows[rows["size"] != default]
    same = [row.size for row in each(others) if alike(row, usual)]
    times = [f"{row.value:.2g} times" for row in each(others)]
    times[0] += " as long"
    sizes = [str(size) for size in others["size"]]
    parts = [f"{time} with {size}" for time, size in zip(times, sizes, strict=True)]
    even = f" (no difference with {in_words(list(map(str, same)))})" if same else ""
    begin = f"Over the default superbatch of {default} {unit}, an epoch takes"
    return f"{begin} {in_words(parts)}{even}"


def over_widths(profile: JsonDict) -> Plan:
    """Plan the three systems at each dimension, in the same host memory; device memory
    grows with the dimension.

    A row of dimension 768 is six times one of 128. A profile whose budget cannot hold a
    mini-batch of such rows scales mini-batches (`wide_batch_factor`) and budget
    (`wide_memory_factor`) at all dimensions.
    """
    short = gallery(profile)
    changed, runs = over_dims(short, values(profile, "wide_dims", DIMS))
    (batch_factor,) = values(profile, "wide_batch_factor", [1.0])
    (memory_factor,) = values(profile, "wide_memory_factor", [1.0])
    (batch,) = batch_sizes(short, [batch_factor])
    budget = round(host_budget(short) * memory_factor)
    changed["run"]["memory"] = f"+{budget}"
    systems = systems_of(short, SYSTEMS)
    for entry in systems:
        if entry["name"] != BASE:
            entry["options"] = {**entry.get("options", {}), "io_granularity": "4096"}
    return grid(changed, systems, {dim: {**own, **batch} for dim, own in runs.items()})


def over_memory(profile: JsonDict) -> Plan:
    """Plan the three systems at each host budget."""
    budget = host_budget(gallery(profile))
    budgets = [
        round(budget * factor) for factor in values(profile, "memory_steps", MEMORY)
    ]
    return in_gallery(
        profile, SYSTEMS, {size: {"memory": f"+{size}"} for size in budgets}
    )


def over_batches(profile: JsonDict) -> Plan:
    """Plan the three systems at each mini-batch size, with the same number of seed
    nodes per epoch."""
    sizes = batch_sizes(gallery(profile), values(profile, "batch_factors", BATCHES))
    return in_gallery(profile, SYSTEMS, {run["batch_size"]: run for run in sizes})


def speedups(cells: Cells) -> pd.DataFrame:
    """Return the epoch time of pyg+ over each other system's at each x, with the widest
    interval.

    Returns:
        Columns `group` (x), `series` (system), `value`, `low`, `high`, `status`; of a
        speedup also both times and runs.

    Raises:
        NotDrawn: no x at which pyg+ and another system were measured.
    """
    table = with_absent(cells.medians(), SYSTEMS, cells.xs)
    base = table[table.system == BASE]
    pairs = table[table.system != BASE].merge(base, on="x", suffixes=("", "_base"))
    rows = pairs[["x", "system"]].set_axis(["group", "series"], axis=1)
    rows["value"] = pairs.value_base / pairs.value
    rows["low"] = pairs.low_base / pairs.high
    rows["high"] = pairs.high_base / pairs.low
    rows["status"] = pairs.status.where(
        pairs.value_base.notna(), "pyg+: " + pairs.status_base
    )
    known = pairs[rows.value.notna()]
    if known.empty:
        raise NotDrawn(f"no x at which {BASE} and another system were both measured")
    origin = known[["value_base", "value", "run", "run_base"]]
    return rows.join(origin.set_axis(["base_s", "epoch_s", "run", "base_run"], axis=1))


def draw_speedups(cells: Cells, axis: Axis, title: str, note: str = "") -> Drawing:
    """Draw a bar for the speedup of each system over pyg+ at each x."""
    rows = speedups(cells)
    ylabel = "times as fast as pyg+"
    canvas, axes = draw_bars(
        rows,
        title=title,
        xlabel=axis.label,
        ylabel=ylabel,
        tick=axis.text,
        numbers=".2f",
    )
    axes.axhline(1.0, color="black", linestyle="--", linewidth=0.8)
    notes = [note, axis.omitted(cells.xs)]
    places = axis.places(cells)
    finding = _over_pyg(cells.medians(), places)
    return drawn(canvas, rows, cells, *notes, finding=finding, places=places)


def _over_pyg(medians: pd.DataFrame, places: Places) -> str:
    """Return the sentence on the speed of both systems over pyg+, after the fastest
    over the axis where it changes."""
    first = fastest(medians, places) if changes(medians) else ""
    times = over_base(medians, SYSTEMS[:0:-1], BASE, places)
    return "; ".join(filter(None, [first, times]))


@figure_of_cells("ginex-fig17", over_widths)
def fig17(cells: Cells) -> Drawing:
    """Draw speedups over the feature dimension."""
    axis = Axis("feature dimension (columns)", DIMS, "dimension")
    note = (
        "ali+pg and ginex read whole 4 KiB pages, as the paper's code does; device "
        "memory grows with the dimension"
    )
    return draw_speedups(cells, axis, "Speedup over feature dimension", note)


@figure_of_cells("ginex-fig18", over_memory)
def fig18(cells: Cells) -> Drawing:
    """Draw speedups over host memory."""
    axis = Axis("host memory beyond interpreter and training", text=format_bytes)
    note = "the paper has half, all and twice its default"
    return draw_speedups(cells, axis, "Speedup over memory", note)


@figure_of_cells("ginex-fig19", over_batches)
def fig19(cells: Cells) -> Drawing:
    """Draw speedups over the mini-batch size."""
    axis = Axis("mini-batch size (seed nodes)", len(BATCHES), "sizes")
    return draw_speedups(cells, axis, "Speedup over mini-batch size")
