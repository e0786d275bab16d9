"""outcore-frontier and outcore-training: epochs over host memory, and which system is
fastest from when on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.compare.cells import TERMS, Cells
from harness.compare.plan import Plan, first_setting, grid, joined
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_cells
from harness.figures.draw import style
from harness.figures.draw.panels import (
    draw_line,
    many_panels,
    name_axes,
    one_panel,
    plain_log,
)
from harness.figures.draw.style import Look
from harness.figures.grids import gallery, only_systems, values
from harness.figures.over_axis import Places, fastest
from harness.records.cost import TrainingCost, episode_epochs, leaders
from harness.results.table import each
from workloads.arraytypes import JsonDict
from workloads.units import format_bytes, parse_bytes, row_bytes

MIB = 2**20
SYSTEMS = ["pyg+", "ginex", "gnndrive", "diskgnn", "agnes", "outcore", "in-memory"]
#: Multiples of the profile's budget.
FACTORS = [1.0, 2.0, 4.0, 8.0]
#: Numbers of epochs at which T(E) / E is drawn.
EPOCHS = (1, 2, 3, 5, 8, 13, 20, 30, 50, 80, 130, 200, 300, 500, 1000)
#: The papers' regime: the budget holds the graph with room for rows, and a part of the
#: features.
MOST_GRAPH = 0.7
LEAST_FEATURES = 3.0
#: Columns of both figures' tables.
COLUMNS = [
    "system",
    "budget_bytes",
    "seconds",
    "low",
    "high",
    "once_s",
    "first_s",
    "each_s",
    "prepared_bytes",
]
COLUMNS += ["whole_training_s", "graph_over_budget", "status", "run"]
AXES = (
    "Time against memory",
    "host memory beyond interpreter and training (MiB, log)",
    "epoch with all of its work (s, log)",
)


def over_memory(profile: JsonDict) -> Plan:
    """Plan the systems at the profile's budget and multiples of it, and in-memory
    without a cap as the upper bound.

    A profile whose grid sweeps budgets has its own runs planned, at the first values of
    its other axes.
    """
    if budgets := (profile.get("grid") or {}).get("memory", []):
        return grid(
            first_setting(profile),
            profile["systems"],
            {memory: {"memory": memory} for memory in budgets},
        )
    base = gallery(profile)
    memory = str(base["run"]["memory"])
    budgets = [
        _times(memory, factor) for factor in values(profile, "memory_factors", FACTORS)
    ]
    capped = grid(
        base,
        only_systems(profile, SYSTEMS),
        {size: {"memory": size} for size in budgets},
    )
    whole = grid(base, ["in-memory"], {"none": {"memory": "none"}})
    return joined([capped, whole])


def _times(memory: str, factor: float) -> str:
    if memory.endswith("x"):
        return f"{float(memory[:-1]) * factor:g}x"
    return f"+{round(parse_bytes(memory.removeprefix('+')) * factor)}"


def budget_bytes(record: Mapping[str, Any]) -> int | None:
    """Return a run's host budget beyond floor and training; without a cap, its peak
    beyond both, None if unknown."""
    memory = record["memory"]
    if memory.get("budget_bytes"):
        return int(memory["budget_bytes"])
    text = str(record["config"]["memory"])
    if text.startswith("+"):
        return parse_bytes(text[1:])
    if text != "none":
        return None
    held = int(memory.get("floor_bytes", 0)) + int(memory.get("training_bytes", 0))
    beyond = int(memory.get("peak_bytes", 0)) - held
    return beyond if beyond > 0 else None


def memory_rows(cells: Cells) -> pd.DataFrame:
    """Return the rows of `Cells.medians` with a known `budget_bytes`: `seconds` of a
    fresh epoch with all of its work, `whole_training_s`, the share of an epoch in the
    run's whole training, and `COLUMNS`."""
    table = cells.medians()
    summaries = pd.DataFrame(
        [record.get("summary") or {} for record in table.record], table.index
    )
    summaries = summaries.reindex(columns=["prepared_bytes", "topology_over_budget"])
    epochs = table.record.map(lambda record: record["config"]["epochs"]).astype(float)
    table["budget_bytes"] = table.record.map(budget_bytes)
    table["seconds"] = table.each_s + table.mean_epoch_s
    table["low"] += table.each_s
    table["high"] += table.each_s
    table["prepared_bytes"] = summaries.prepared_bytes
    table["whole_training_s"] = (
        table.once_s + table.first_s + epochs * table.seconds
    ) / epochs.clip(lower=1)
    table["graph_over_budget"] = summaries.topology_over_budget
    return table.dropna(subset="budget_bytes").astype({"budget_bytes": int})


@figure_of_cells("outcore-frontier", over_memory)
def frontier(cells: Cells) -> Drawing:
    """Draw one marker per run, joined by system, the frontier as a step line; raise
    NotDrawn below two budgets."""
    data = memory_rows(cells)
    done = data.dropna(subset="seconds")
    if done.budget_bytes.nunique() < 2:
        raise NotDrawn("no comparable runs at two budgets (outcore-frontier)")
    data["pareto"] = pareto(data)
    canvas, axes = one_panel(height=2.7)
    draw_memory(axes, data)
    best = data[data.pareto].sort_values("budget_bytes")
    line = {
        "color": "#000000",
        "linewidth": 2.6,
        "alpha": 0.25,
        "label": "frontier",
        "zorder": 1,
    }
    axes.step(best.budget_bytes / MIB, best.seconds, where="post", **line)
    peak = "without a cap, memory is the peak beyond interpreter and training"
    table = data[[*COLUMNS, "pareto"]].reset_index(drop=True)
    finding = _fastest(data, "Fastest: ")
    places = Places(cells.xs, _budget)
    return drawn(canvas, table, cells, peak, finding=finding, places=places)


def _fastest(data: pd.DataFrame, before: str) -> str:
    """Return the sentence on the fastest system over memory, of rows of
    `memory_rows`."""
    ranked = data.assign(x=data.budget_bytes, value=data.seconds).sort_values("x")
    return fastest(ranked, Places(list(ranked.x.unique()), _mib), before)


def _mib(size: float) -> str:
    return f"{size / MIB:,.0f} MiB"


def _budget(memory: str) -> str:
    """Return the text of a memory setting of the axis."""
    if memory.startswith("+"):
        return _mib(parse_bytes(memory[1:]))
    return "no cap" if memory == "none" else memory


def pareto(data: pd.DataFrame) -> pd.Series[bool]:
    """Return whether each row is in the Pareto set: no other is at most equal in memory
    and seconds and less in one."""
    found = []
    for row in each(data):
        no_more = (data.budget_bytes <= row.budget_bytes) & (
            data.seconds <= row.seconds
        )
        less = (data.budget_bytes < row.budget_bytes) | (data.seconds < row.seconds)
        found.append(pd.notna(row.seconds) and not (no_more & less).any())
    return pd.Series(found, index=data.index, dtype=bool)


def draw_memory(axes: Any, data: pd.DataFrame) -> None:
    """Draw rows of `memory_rows`, a line for each system over memory, and where the
    budget holds the graph."""
    known = data.dropna(subset="seconds").sort_values("budget_bytes")
    measured = known.assign(value=known.seconds, mib=known.budget_bytes / MIB)
    look_of = style.system_looks(list(data.system))
    for system in style.ordered(list(measured.system)):
        own = measured[measured.system == system]
        draw_line(axes, own.mib, own, look_of(system), system, linewidth=0.9)
    holds = data.budget_bytes[data.graph_over_budget.astype(float) <= 1.0] / MIB
    if len(holds):
        axes.axvspan(
            holds.min() / 2**0.5, holds.max() * 2**0.5, color="#f2f2f2", zorder=0
        )
        place = {
            "xycoords": ("data", "axes fraction"),
            "va": "top",
            "size": style.LEAST_POINTS,
        }
        axes.annotate("the graph fits", (holds.min(), 0.97), **place)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = (data.budget_bytes / MIB).drop_duplicates()
    axes.set_xticks(sizes, sizes.map("{:,.0f}".format))
    axes.minorticks_off()
    plain_log(axes.yaxis)
    name_axes(axes, *AXES)


@figure_of_cells("outcore-training", over_memory)
def training(cells: Cells) -> Drawing:
    """Draw T(E) / E at the budget nearest to the papers' (left), and a fresh epoch over
    memory (right).

    Raises:
        NotDrawn: no budget has two systems with a measured epoch.
    """
    done = cells.medians().dropna(subset="value")
    done["budget"] = done.record.map(budget_bytes)
    budget = paper_budget(done)
    here = (
        done[done.budget == budget]
        .dropna(subset="mean_epoch_s")
        .drop_duplicates("system")
    )
    if budget is None or len(here) < 2:
        raise NotDrawn("no budget has two systems with a measured epoch")
    canvas, (left, right) = many_panels(2, height=2.9)
    here = here.set_index("system", drop=False).loc[style.ordered(list(here.system))]
    costs = {row.system: cost_of(row) for row in each(here)}
    look_of = style.system_looks(cells.systems)
    curves = [
        _draw_training(left, row, costs[row.system], look_of(row.system))
        for row in each(here)
    ]
    left.set_xscale("log")
    left.set_yscale("log")
    plain_log(left.xaxis)
    plain_log(left.yaxis)
    title = f"A training, {format_bytes(budget)} budget"
    name_axes(left, title, "epochs of the training, E (log)", "T(E) / E (s, log)")
    memory = memory_rows(cells)
    draw_memory(right, memory)
    best = leaders(costs)
    notes = ["marks: measured epochs with all work so far", "grey: the graph fits"]
    for row in each(here[here.record.map(episode_epochs) > 0]):
        together = episode_epochs(row.record)
        notes.append(f"{row.system} prepared {together} epochs together")
    tables = [rows.assign(panel="training") for rows in curves]
    table = pd.concat(
        [*tables, memory[COLUMNS].assign(panel="memory")], ignore_index=True
    )
    first = _fastest(memory, "; shortest epoch: ")
    finding = f"At {format_bytes(budget)}, least training time: {best}{first}"
    places = Places(cells.xs, _budget)
    return drawn(canvas, table, cells, *notes, finding=finding, places=places)


def cost_of(row: Any) -> TrainingCost:
    """Return the terms of T(E) in a row of `Cells.medians`."""
    return TrainingCost(**{term: float(getattr(row, term)) for term in TERMS})


def paper_budget(rows: pd.DataFrame) -> int | None:
    """Return the least `budget` in the papers' regime, else the one with most systems;
    None without any."""
    known = rows.dropna(subset="budget")
    fits = [_is_papers(row.record, row.budget) for row in each(known)]
    by_budget = known.assign(fits=fits).groupby("budget")
    budgets = by_budget.agg(systems=("system", "nunique"), fits=("fits", "last"))
    fitting = budgets[budgets.fits & (budgets.systems > 1)]
    if fitting.empty:
        fitting = budgets[budgets.systems == budgets.systems.max()]
    return None if fitting.empty else int(fitting.index.min())


def _is_papers(record: JsonDict, budget: float) -> bool:
    """Return whether a budget holds the graph and a third of the features at most, as
    in the papers."""
    graph = (record.get("summary") or {}).get("topology_over_budget")
    data = record["config"]["dataset"]
    features = data["num_nodes"] * row_bytes(data["dim"], data["dtype"])
    return (
        graph is not None
        and graph <= MOST_GRAPH
        and features >= LEAST_FEATURES * budget
    )


def _draw_training(axes: Any, row: Any, cost: TrainingCost, look: Look) -> pd.DataFrame:
    """Draw one system's line with a mark for each measured epoch; return its rows."""
    foretold = pd.DataFrame(
        {"epochs": EPOCHS, "seconds": map(cost.share_s, EPOCHS), "kind": "T(E) / E"}
    )
    measured = _so_far(row.record, cost).assign(kind="measured")
    axes.plot(
        foretold.epochs,
        foretold.seconds,
        color=look.color,
        linestyle=look.line,
        label=row.system,
    )
    marks = {
        "color": look.color,
        "marker": look.marker,
        "linestyle": "none",
        "markersize": 4,
    }
    axes.plot(measured.epochs, measured.seconds, **marks)
    both = pd.concat([foretold, measured])
    both.insert(0, "system", row.system)
    return both.assign(run=row.run)


def _so_far(record: JsonDict, cost: TrainingCost) -> pd.DataFrame:
    """Return seconds of an epoch with all work so far, after each measured epoch of a
    run."""
    spent = cost.begin_s
    rows = []
    for number, epoch in enumerate(record["epochs"], start=1):
        offline = float((epoch.get("offline") or {}).get("seconds", 0.0))
        seconds = (
            cost.mean_epoch_s if epoch["warmup"] else float(epoch["seconds"]) - offline
        )
        spent += cost.each_s - cost.shared_each_s + seconds
        if not epoch["warmup"]:
            rows.append((number, spent / number))
    return pd.DataFrame(rows, columns=["epochs", "seconds"])
