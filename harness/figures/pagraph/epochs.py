"""PaGraph's epochs on one device: Figures 4, 11, 12, 14, 19 and 20, Tables 1 and 4, and
the parts of an epoch."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.cells import Cells, times_faster, with_absent
from harness.compare.plan import Plan, joined
from harness.compare.verdicts import NotDrawn
from harness.figures.base import (
    GB,
    Drawing,
    Sheet,
    drawn,
    figure_of_cells,
    paper_frame,
    paper_values,
    published,
    sheet,
)
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars, draw_stacks
from harness.figures.draw.breakdown import run_breakdown, stack_rows
from harness.figures.draw.captions import left_out, row_texts
from harness.figures.draw.charts import SHOWN
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels
from harness.figures.findings import plain, spans, wide
from harness.figures.grids import values
from harness.figures.over_axis import Places, changes, fastest, over_base, over_each
from harness.figures.pagraph.devices import NOTE as DEVICES_NOTE
from harness.figures.pagraph.devices import by_count, curve_rows, draw_rates, seed_rates
from harness.figures.pagraph.grid import (
    FAMILY,
    GCN,
    LAYERWISE,
    MODELS,
    NAMES,
    device_bytes,
    planned,
)
from workloads.arraytypes import JsonDict

PARTS = [
    "computation",
    "data loading",
    "waiting for samples, other",
    "hidden data loading",
]
COMPUTE, EXPOSED, OTHER, HIDDEN_LOADING = PARTS
LOADING = ["extract", "transfer"]
PARTS_NOTE = (
    "loading gathers rows on the host and copies them to the device; loading hidden "
    "behind computation is drawn on top of the epoch"
)
EPOCH = "epoch (s)"
FASTER = "times as fast as dgl"


def epoch_parts(cell: Any) -> dict[str, float]:
    """Return mean seconds of an epoch by part, as `run_breakdown`; all but hidden
    loading sum to its wall time."""
    parts = run_breakdown(cell, {COMPUTE: ["train"], EXPOSED: LOADING, OTHER: []})
    loading = run_breakdown(cell, {EXPOSED: LOADING})[EXPOSED]
    return {**parts, HIDDEN_LOADING: max(0.0, loading - parts[EXPOSED])}


def speedup_rows(table: pd.DataFrame, figure_id: str) -> pd.DataFrame:
    """Return rows for bars of each system and model, with `speedup` over DGL and the
    range that the paper reports."""
    rows = with_absent(table, style.ordered(list(table.system)), list(table.x.unique()))
    rows["speedup"] = times_faster(rows, "dgl")
    rows["group"] = rows.x.map(NAMES)
    rows["series"] = rows.system
    rows["paper_low"] = paper_values(figure_id, rows.series, rows.group + " low")
    rows["paper_high"] = paper_values(figure_id, rows.series, rows.group + " high")
    return rows[
        [
            "group",
            "series",
            "value",
            "low",
            "high",
            "status",
            "speedup",
            "run",
            "paper_low",
            "paper_high",
        ]
    ]


#: Run settings of both ways of sampling.
BY_SAMPLER = {"neighbour": {}, "layer-wise": LAYERWISE}


@figure_of_cells(
    "pagraph-fig4", lambda profile: planned(profile, ["dgl"], BY_SAMPLER), least=1
)
def fig4(cells: Cells) -> Drawing:
    """Draw an epoch by part (left), loading's share with the paper's (right)."""
    done = cells.measured()
    parts = stack_rows(done.assign(system=done.x), PARTS, epoch_parts)
    seconds = wide(parts, index="bar", columns="part").loc[done.x]
    loading = seconds[EXPOSED] + seconds[HIDDEN_LOADING]
    done["value"] = done.x.map(100.0 * loading / (loading + seconds[COMPUTE]))
    done["paper"] = done.x.map(published("pagraph-fig4").set_index("series").value)
    share = done.rename(columns={"x": "group", "system": "series"})[
        ["group", "series", "value", "paper", "run"]
    ]
    canvas, (left, right) = many_panels(2)
    draw_stacks(
        parts, parts=PARTS, title="GCN by DGL", ylabel=EPOCH, numbers=".2f", axes=left
    )
    draw_bars(
        share,
        title="Loading over loading + computation",
        ylabel="share of loading (%)",
        axes=right,
    )
    right.set_ylim(0, 105)
    shares = share.rename(columns={"group": "bar"}).assign(part="loading share (%)")
    missing = "not run: the other way of sampling" if len(done) < 2 else ""
    notes = [PARTS_NOTE, "paper: livejournal", missing]
    data = pd.concat([parts, shares])
    epoch = seconds.drop(columns=HIDDEN_LOADING).sum(axis=1)
    waiting = share.assign(waiting=share.group.map(100.0 * seconds[OTHER] / epoch))
    loads = row_texts(waiting, "{value:.0f} % with {group} sampling")
    waits = row_texts(waiting, "{waiting:.0f} %", " and ")
    finding = (
        f"Of loading and computation, loading takes {loads}; waiting and other work "
        f"take {waits} of the epoch"
    )
    return drawn(
        canvas, data, cells, *notes, order=[*PARTS, "dgl", "paper"], finding=finding
    )


@figure_of_cells(
    "pagraph-fig11", lambda profile: planned(profile, FAMILY, MODELS), least=1
)
def fig11(cells: Cells) -> Drawing:
    """Draw epoch times (left) and speed-ups over DGL with the paper's ranges
    (right)."""
    rows = speedup_rows(cells.medians(), "pagraph-fig11")
    canvas, (left, right) = many_panels(2)
    times = rows.drop(columns=["paper_low", "paper_high"])
    draw_bars(times, title="Epoch time", ylabel=EPOCH, numbers=".2f", axes=left)
    draw_bars(
        rows,
        column="speedup",
        title="Speed-up over DGL",
        ylabel=FASTER,
        numbers=".1f",
        axes=right,
    )
    note = (
        "one graph of the paper's six; `+pp` reads rows that hold the first layer's "
        "sums"
    )
    return drawn(canvas, rows, cells, note, finding=_over_dgl(cells.medians()))


def _over_dgl(rows: pd.DataFrame) -> str:
    """Return the sentence on the speed of the other systems over DGL's, a model at each
    x."""
    xs = list(dict.fromkeys(rows.x))
    places = Places(xs, lambda model: NAMES.get(model, str(model)), "with")
    return over_base(rows, FAMILY[1:], FAMILY[0], places)


@figure_of_cells(
    "pagraph-fig12", lambda profile: planned(profile, FAMILY, GCN), least=1
)
def fig12(cells: Cells) -> Drawing:
    """Draw one stacked bar per system, with the loading hidden behind computation."""
    rows = stack_rows(cells.medians(), PARTS, epoch_parts)
    canvas, _ = draw_stacks(rows, parts=PARTS, title="GCN epoch by part", ylabel=EPOCH)
    return drawn(canvas, rows, cells, PARTS_NOTE, finding=_exposed(rows))


def _exposed(rows: pd.DataFrame) -> str:
    """Return the sentence on the share of each system's epoch in which it loads and
    does not compute."""
    in_epoch = rows[rows.part != HIDDEN_LOADING].astype({"value": float})
    epoch_s = in_epoch.groupby("bar").value.transform("sum")
    percents = in_epoch.assign(percent=100.0 * in_epoch.value / epoch_s)
    exposed = percents[percents.part == EXPOSED].dropna(subset="percent")
    return row_texts(
        exposed, "{bar} {percent:.0f} %", before="Loading's share of the epoch: "
    )


#: Rankings of Fig. 14 and their labels.
RANKINGS = {"out-degree": "PaGraph", "aligraph": "AliGraph", "random": "random"}
SHARES = [0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0]
# Space for a cache of all rows, its reserve and the buffers beside it.
DEVICE_SHARE = 1.25


def over_shares(profile: JsonDict) -> Plan:
    """Plan pagraph with each ranking at each cached share, on a device that can hold
    all rows."""
    own = {
        label: {"options": {"ranking": ranking}} for ranking, label in RANKINGS.items()
    }
    rankings = [
        {"name": "pagraph", "series": label, **options}
        for label, options in own.items()
    ]
    shares = values(profile, "cached_shares", SHARES)
    over = {100.0 * share: {"options": {"cache": f"{share:g}x"}} for share in shares}
    return planned(
        profile, rankings, over, device_memory=device_bytes(profile, DEVICE_SHARE)
    )


@figure_of_cells("pagraph-fig14", over_shares)
def fig14(cells: Cells) -> Drawing:
    """Draw epoch time over the cached share, a curve for each ranking."""
    rows = cells.medians()[SHOWN].rename(columns={"system": "series", "value": "y"})
    rows["series"] = pd.Categorical(rows.series, list(RANKINGS.values()))
    data = rows.sort_values(["series", "x"], ignore_index=True)
    canvas, _ = draw_curves(
        data,
        title="Epoch time over cached share",
        xlabel="cached rows (%)",
        ylabel=EPOCH,
    )
    shares = [x / 100.0 for x in cells.xs]
    first, *others = RANKINGS.values()
    places = Places(cells.xs, "{:g} % cached".format)
    finding = over_each(cells.medians(), first, others, places)
    reduced = left_out(shares, SHARES, "cached shares")
    return drawn(canvas, data, cells, reduced, finding=finding, places=places)


NEIGHBOURS = [2, 4, 8, 16]


def over_neighbours(profile: JsonDict) -> Plan:
    """Plan the four systems with GCN at each number of sampled neighbours."""
    counts = values(profile, "neighbours", NEIGHBOURS)
    return planned(
        profile, FAMILY, {count: {"fanout": [count, count]} for count in counts}
    )


@figure_of_cells("pagraph-fig19", over_neighbours)
def fig19(cells: Cells) -> Drawing:
    """Draw epoch time over the number of sampled neighbours, one line per system on
    logarithmic axes."""
    table = cells.medians()
    rows = table[SHOWN].rename(columns={"system": "series", "value": "y"})
    rows["speedup"] = times_faster(table, "dgl")
    title = "GCN epoch over sampled neighbours"
    xlabel = "neighbours a node and layer (log)"
    canvas, _ = draw_curves(
        rows, title=title, xlabel=xlabel, ylabel="epoch (s, log)", xlog=True, ylog=True
    )
    reduced = left_out(cells.xs, NEIGHBOURS, "neighbours")
    places = Places(cells.xs, word="with")
    faster = over_base(table, FAMILY[1:], FAMILY[0], places)
    first = fastest(table, places) if changes(table) else ""
    finding = "; ".join(filter(None, [first, faster]))
    note = "both layers take as many neighbours"
    return drawn(canvas, rows, cells, note, reduced, finding=finding, places=places)


def layered(profile: JsonDict) -> Plan:
    """Plan Fig. 11's runs with layer-wise sampling; in a panel of its own, those of
    Fig. 15 with GCN."""
    one = planned(profile, FAMILY, MODELS, **LAYERWISE)
    several = planned(profile, ["pagraph"], by_count(profile), GCN, **LAYERWISE)
    return joined([one, several])


@figure_of_cells("pagraph-fig20", layered, least=1)
def fig20(cells: Cells) -> Drawing:
    """Draw speed-ups over DGL, GCN's epoch by part, throughput over devices; raise
    NotDrawn with no speed-up."""
    table = cells.medians()
    one = table[table.panel == ""]
    speedups = speedup_rows(one, "pagraph-fig20")
    if speedups.speedup.count() < 2:
        raise NotDrawn(
            "no measured runs of dgl and another system with layer-wise sampling "
            "(pagraph-fig20)"
        )
    gcn = one[one.x == "gcn"]
    if gcn.empty:
        raise NotDrawn("no run of GCN with layer-wise sampling (pagraph-fig20)")
    parts = stack_rows(gcn, PARTS, epoch_parts)
    rates = seed_rates(cells)
    several = curve_rows(rates[rates.panel != ""])
    small = _too_small(parts)
    canvas, (first, second, third) = many_panels(3)
    others = speedups[speedups.series != "dgl"]
    draw_bars(
        others,
        column="speedup",
        title="(a) Speed-up over DGL",
        ylabel=FASTER,
        numbers=".1f",
        axes=first,
    )
    drawn_parts = [part for part in PARTS if part not in small]
    draw_stacks(
        parts,
        parts=drawn_parts,
        title="(b) GCN epoch by part",
        ylabel=EPOCH,
        axes=second,
    )
    draw_rates(several, "(c) pagraph, GCN", third)
    for line in third.get_lines():
        line.set_label("")
    data = pd.concat(
        [speedups.assign(panel="a"), parts.assign(panel="b"), several.assign(panel="c")]
    )
    notes = [f"(b): {PARTS_NOTE}", f"(c): {DEVICES_NOTE}"]
    notes += [f"too small to draw: {', '.join(small)}"] if small else []
    return drawn(
        canvas,
        data,
        cells,
        *notes,
        rows=one,
        order=[*FAMILY, *PARTS],
        finding=_layer_wise(one, several),
    )


def _layer_wise(one: pd.DataFrame, several: pd.DataFrame) -> str:
    """Return the sentence on speeds over DGL's on one device, and on pagraph's on the
    most devices.

    Args:
        one: rows of `Cells.medians` on one device.
        several: rows of `curve_rows`.
    """
    rates = several.dropna(subset="y").sort_values("x").y
    devices = ""
    if len(rates) > 1:
        times = plain(rates.iloc[-1] / rates.iloc[0])
        devices = (
            f"pagraph on {several.x.max()} devices is {times} times as fast as on 1"
        )
    return "; ".join(filter(None, [_over_dgl(one), devices]))


def _too_small(parts: pd.DataFrame) -> list[str]:
    """Return the parts that are below a hundredth of the longest bar in every bar: a
    line's width in the drawing."""
    longest = parts.groupby("bar").value.sum().max()
    largest = parts.groupby("part", sort=False).value.max()
    return list(largest.index[largest < longest / 100])


#: Models with the larger one first, as in Table 1.
BY_MODEL = {"sage": MODELS["sage"], **GCN}


@figure_of_cells(
    "pagraph-tab1",
    lambda profile: planned(profile, ["dgl"], BY_MODEL, BY_SAMPLER),
    least=1,
)
def tab1(cells: Cells) -> Sheet:
    """Return one row per model and sampler; raise NotDrawn without a measured epoch."""
    table = cells.measured().merge(
        cells.runs, left_on="run", right_on="run_id", suffixes=("", "_run")
    )
    rows = pd.DataFrame({"model": table.x.map(NAMES), "sampling": table.panel})
    rows["computation (%)"] = 100.0 * table["summary.accelerator_utilisation"].astype(
        float
    )
    rows["memory (%)"] = (
        100.0
        * table["memory.plan"].map(_on_device)
        / table["config.device_memory_bytes"]
    )
    rows["run"] = table.run
    paper = paper_frame("pagraph-tab1").reindex(
        rows.model + " " + rows.sampling, columns=["computation", "memory"]
    )
    rows[["computation, paper (%)", "memory, paper (%)"]] = paper.to_numpy()
    shares = [
        "computation (%)",
        "computation, paper (%)",
        "memory (%)",
        "memory, paper (%)",
    ]
    columns = {"model": "", "sampling": "", **dict.fromkeys(shares, ".1f")}
    note = (
        "computation: time of training alone over the epoch; memory: buffers over the "
        "device's memory, without training's own"
    )
    computation = rows.pivot(columns="sampling", values="computation (%)")[
        list(rows.sampling.unique())
    ]
    finding = spans(
        computation,
        "{span} % with {name} sampling",
        before="Of dgl's epoch, the device computes in ",
    )
    return sheet(rows, columns, cells, note, finding=finding)


def _on_device(plan: list[JsonDict]) -> int:
    """Return the bytes of the buffers of a memory plan that are on the device."""
    return sum(buffer["bytes"] for buffer in plan if buffer["tier"] == "device")


#: The systems of Table 4, and its columns with their formats.
SYSTEMS = ["dgl", "pagraph"]
LOADED = {
    "dataset": "",
    "dgl": "GB",
    "pagraph": "GB",
    "saved (%)": ".1f",
    "cached (%)": ".0f",
    "source": "",
}


@figure_of_cells(
    "pagraph-tab4", lambda profile: planned(profile, SYSTEMS, GCN), least=1
)
def tab4(cells: Cells) -> Sheet:
    """Return one measured row, then the paper's; raise NotDrawn without loaded bytes of
    DGL and PaGraph."""
    table = (
        cells.medians("counters.bytes_loaded")
        .dropna(subset="value")
        .set_index("system")
    )
    if len(table) < 2:
        raise NotDrawn(
            "dgl and pagraph have not both counted what they loaded (pagraph-tab4)"
        )
    record = table.record["pagraph"]
    facts = record["facts"]
    ours = table[["value"]].T.assign(
        dataset=record["config"]["dataset"]["name"], source="measured"
    )
    ours["saved"] = 100.0 * (1.0 - ours.pagraph / ours.dgl)
    ours["cached"] = 100.0 * facts["cached_rows"] / facts["table_rows"]
    paper = (
        paper_frame("pagraph-tab4")
        .rename_axis("dataset")
        .reset_index()
        .assign(source="paper")
    )
    paper[SYSTEMS] = GB * paper.reindex(columns=SYSTEMS)
    rows = pd.concat([ours, paper]).rename(
        columns={"saved": "saved (%)", "cached": "cached (%)"}
    )
    batches = cells.epochs.batches.iloc[0]
    note = (
        f"feature bytes copied to the device in an epoch of {batches} mini-batches "
        "(paper: a whole one)"
    )
    (saved, cached), *_ = ours[["saved", "cached"]].to_numpy()
    word = "fewer" if saved >= 0 else "more"
    finding = (
        f"pagraph loads {abs(saved):.0f} % {word} bytes than dgl, with {cached:.0f} % "
        "of the rows cached"
    )
    return sheet(rows[list(LOADED)], LOADED, cells, NAMES["gcn"], note, finding=finding)
