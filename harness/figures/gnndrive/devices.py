"""GNNDrive on its GPU and on the CPU: feature buffers (Figure 12), processes (Figure
13), the systems in Table 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from harness.compare.cells import Cells, with_absent
from harness.compare.plan import Plan, as_entry, grid, joined, value_at
from harness.figures import grids
from harness.figures.base import (
    FORMATS,
    Drawing,
    Sheet,
    figure_of_cells,
    paper_frame,
    sheet,
)
from harness.figures.draw.charts import Axis, bars
from harness.figures.draw.panels import MARK
from harness.figures.draw.words import in_words
from harness.figures.findings import plain, span
from harness.figures.gnndrive.grid import (
    CPU,
    MARIUS,
    SYSTEMS,
    cpu_note,
    cpu_variant,
    in_bytes,
    on_both,
    with_run,
)
from harness.figures.over_axis import alike, over_each, places_of
from harness.results.table import each
from workloads.arraytypes import JsonDict
from workloads.units import format_bytes

BUFFER_FACTORS = [1.0, 2.0, 4.0, 8.0]
# The paper's default buffer is 4 % of its features. A quarter of the profile's batch
# size and four times the number of mini-batches keep ours near that, so that the
# largest buffer holds only part of the rows that an epoch reads.
BUFFER_BATCH_FACTOR = 0.25
RANKS = [1, 2, 4, 6, 8]
#: Systems of Table 2 at the profile's budget -> the paper's names.
NAMES = {
    "gnndrive": "GNNDrive-GPU",
    CPU: "GNNDrive-CPU",
    "pyg+": "PyG+",
    "ginex": "Ginex",
}
#: Multiples of the profile's budget -> the paper's row of mariusgnn, which needs a
#: little more than `quick` has.
MARIUS_ROWS = {1.0: "MariusGNN-32G", 1.25: "", 4.0: "MariusGNN-128G"}
PREPARATION = "stages_s.data_prep"
SECONDS = ["data preparation (s)", "training (s)", "overall (s)"]
PARTS = ["preparation", "training", "overall"]
PAPER = {f"paper: {part} (s)": ".1f" for part in PARTS}
COLUMNS = {
    "system": "",
    **dict.fromkeys(SECONDS, ".2f"),
    "preparation (%)": ".0f",
    **PAPER,
}
NOTE = (
    "training: the epoch after data preparation; the CPU variant has the device's "
    "memory in its host budget; paper: papers100M, 32 GB (mariusgnn also 128 GB)"
)


def over_buffers(profile: JsonDict) -> Plan:
    """Plan gnndrive on both devices with each feature buffer; all runs have the memory
    for the largest buffer."""
    short = in_bytes(grids.gallery(profile))
    size = grids.batch_sizes(short, [BUFFER_BATCH_FACTOR])[0]
    factors = [
        float(factor)
        for factor in grids.values(profile, "buffer_factors", BUFFER_FACTORS)
    ]
    # The profile's memory holds a buffer of scale 1 for larger mini-batches: times the
    # factor, the largest one.
    roomy = grids.wide_device(with_run(short, **size), max(factors))
    scales = {
        factor: {"options": {"feature_buffer_scale": factor}} for factor in factors
    }
    return grid(roomy, on_both(roomy), scales)


def _buffer_bytes(record: JsonDict) -> int | None:
    items = value_at(record, "memory.plan") or []
    return next(
        (item["bytes"] for item in items if item["name"] == "feature buffer"), None
    )


@figure_of_cells("gnndrive-fig12", over_buffers)
def fig12(cells: Cells) -> Drawing:
    """Draw epochs over the size of the feature buffer."""
    axis = Axis(
        "feature buffer, times its own size", BUFFER_FACTORS, "buffer", FORMATS["times"]
    )
    notes = ["one dataset of the paper's four", cpu_note(cells)]
    title = "Epoch time over feature buffer"
    what = ("An epoch with a buffer of", "with")
    finding = _over_first(cells.medians(), *what, axis.text)
    rows = cells.medians()
    rows["buffer_bytes"] = rows.record.map(_buffer_bytes)
    return bars(
        cells, axis, title=title, rows=rows, numbers=".2f", notes=notes, finding=finding
    )


def _over_first(
    rows: pd.DataFrame, what: str, word: str, text: Callable[[Any], str]
) -> str:
    """Return the sentence on each variant's time at the largest x over that at the
    least; empty where no variant has both.

    Args:
        rows: rows of `Cells.medians`.
        what, word: begin of the sentence before the largest x, and word before the
            least.
        text: function from an x to its text.
    """
    least, most = rows.x.min(), rows.x.max()
    known = rows.dropna(subset="value")
    parts: list[str] = []
    for system, own in known.groupby("system", sort=False):
        ends = own[own.x.isin([least, most])].sort_values("x")
        if len(ends) < 2 or least == most:
            continue
        first, last = each(ends)
        times = plain(last.value / first.value)
        even = " (no difference)" if alike(first, last) else ""
        over = "" if parts else f" as long as {word} {text(least)}"
        parts.append(f"{times} times{over} on {system}{even}")
    return f"{what} {text(most)} takes {in_words(parts)}" if parts else ""


def over_processes(profile: JsonDict) -> Plan:
    """Plan gnndrive in one and several processes, on devices and on the CPU; the bare
    disk is no bottleneck.

    The paper leaves host memory unrestricted; here all runs have the profile's budget
    times the most processes.
    """
    short = grids.gallery(profile)
    ranks = grids.values(profile, "ranks", RANKS)
    budget = max(ranks) * grids.host_budget(short)
    shared = with_run(short, memory=f"+{budget}", disk_class="none")
    return grid(shared, on_both(shared), {count: {"ranks": count} for count in ranks})


@figure_of_cells("gnndrive-fig13", over_processes)
def fig13(cells: Cells) -> Drawing:
    """Draw seconds over the number of processes, for as many mini-batches as the
    shortest epoch has in all: an epoch that `max_batches` cuts has that many of each
    process."""
    cells.measured()
    epochs = cells.epochs
    epochs["equal_s"] = epochs.seconds * epochs.batches.min() / epochs.batches
    rows = cells.medians("equal_s")
    cores = value_at(cells.runs["record"].iloc[0], "environment.cpu.usable")
    notes = [
        "each process has a device of its own",
        f"all processes share {cores} cores",
        cpu_note(cells),
    ]
    axis = Axis("processes", RANKS, "processes")
    finding = _over_first(rows, "Equal work by", "by", _processes)
    title = "Time of equal work over processes"
    ylabel = "seconds for equally many mini-batches"
    return bars(
        cells,
        axis,
        title=title,
        rows=rows,
        ylabel=ylabel,
        numbers=".2f",
        notes=notes,
        finding=finding,
    )


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def budgets(profile: JsonDict) -> Plan:
    """Plan the systems and the CPU variant at the profile's budget, gnndrive and
    mariusgnn also at multiples of it.

    The panel is the paper's name of mariusgnn with this budget.
    """
    short = grids.gallery(profile)
    budget = grids.host_budget(short)
    own = [*grids.only_systems(short, SYSTEMS), cpu_variant(short)]
    plans = [grid(short, own, {"": {}})]
    scaled = [("gnndrive", factor, "") for factor in MARIUS_ROWS if factor != 1]
    scaled += [(MARIUS, *row) for row in MARIUS_ROWS.items()]
    for system, factor, paper in scaled:
        size = round(budget * factor)
        entry = as_entry(grids.only_systems(short, [system])[0])
        entry |= {"series": f"{system}, {format_bytes(size)}", "memory": f"+{size}"}
        plans.append(grid(short, [entry], {"": {}}, panel=paper))
    return joined(plans)


@figure_of_cells("gnndrive-tab2", budgets, least=1)
def tab2(cells: Cells) -> Sheet:
    """Return one row per system with data preparation, training and the whole epoch,
    and the paper's on papers100M."""
    epochs = cells.epochs.reindex(columns=["system", "seconds", PREPARATION])
    epochs["training (s)"] = epochs.seconds - epochs[PREPARATION].fillna(0.0)
    parts = epochs.groupby("system")[[PREPARATION, "training (s)"]].median()
    systems = dict.fromkeys([*NAMES, *cells.systems])
    table = with_absent(cells.medians(), list(systems), [""]).merge(
        parts, on="system", how="left"
    )
    table = table.rename(
        columns={PREPARATION: "data preparation (s)", "value": "overall (s)"}
    )
    table["preparation (%)"] = (
        100 * table["data preparation (s)"] / table["overall (s)"]
    )
    failed = table["overall (s)"].isna()
    finding = _at_one_budget(table)
    table[SECONDS] = (
        table[SECONDS].astype(object).mask(failed, table.status.replace(MARK), axis=0)
    )
    paper = table.system.map(NAMES).fillna(table.panel)
    table[list(PAPER)] = (
        paper_frame("gnndrive-tab2").reindex(index=paper, columns=PARTS).to_numpy()
    )
    table["samples"] = table.samples.fillna(0).astype(int)
    return sheet(
        table[[*COLUMNS, "status", "samples", "run"]],
        COLUMNS,
        cells,
        NOTE,
        finding=finding,
        places=places_of(cells.medians()),
    )


def _at_one_budget(table: pd.DataFrame) -> str:
    """Return the sentence on gnndrive's epoch over the other systems', and on the share
    of data preparation in epochs.

    Args:
        table: one row for each system, with `overall (s)` and `preparation (%)`.
    """
    *others, ours = SYSTEMS
    rows = table.rename(columns={"overall (s)": "value"})
    faster = over_each(rows, ours, others, places_of(rows))
    shares = table["preparation (%)"].dropna()
    prepared = (
        f"{MARIUS} prepares data in {span(shares)} % of its epoch"
        if len(shares)
        else ""
    )
    return "; ".join(filter(None, [faster, prepared]))
