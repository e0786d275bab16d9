"""DiskGNN's runs: Figures 8 (accuracy), 9 to 12 and 15 (systems, memory, disk space,
SSDs), 17 to 19 (parts)."""

from __future__ import annotations

from functools import partial
from itertools import starmap

import pandas as pd

from harness.compare.cells import TERMS, Cells, facts, with_absent
from harness.compare.plan import Plan, grid, joined
from harness.compare.verdicts import NotDrawn
from harness.figures.accuracy_runs import draw_by_system
from harness.figures.base import (
    GB,
    Drawing,
    drawn,
    figure_of_cells,
    paper_note,
    published,
)
from harness.figures.diskgnn.grid import (
    MEMORY_SHARES,
    SYSTEMS,
    entries,
    in_gallery,
    judged,
    longer,
    over_shares,
    percent,
    variants,
)
from harness.figures.draw.bars import ENDS, as_bars, draw_bars, draw_stacks
from harness.figures.draw.breakdown import run_breakdown, stack_rows
from harness.figures.draw.captions import left_out, row_texts
from harness.figures.draw.charts import LOG_TIME, Axis, bars, others_note, with_others
from harness.figures.draw.dots import draw_dots
from harness.figures.draw.panels import many_panels, mark_paper
from harness.figures.findings import ratios, span, wide
from harness.figures.grids import gallery, values
from harness.figures.over_axis import fastest, over_base
from harness.records.cost import TrainingCost
from harness.results.table import preparation_s
from workloads.arraytypes import JsonDict
from workloads.units import row_bytes

#: Systems and models of Fig. 9, and its training epochs, each of which bears an equal
#: share of one-time preprocessing.
ALL = [
    "pyg+",
    "dgl-ondisk",
    "ali+pg",
    "ginex",
    "ginex-pg",
    "mariusgnn",
    "gnndrive",
    "diskgnn",
]
MODELS = ["sage", "gat"]
EPOCHS = 50
LIMITS = ["7x", "5x", "3x"]
CLASSES = ["aws-nvme", "aws-gp3"]
MEMORY = Axis("host memory over the features", MEMORY_SHARES, "memory of", percent)
SPACE = "disk-space limit over the features"
#: Methods of packing, and parts of preprocessing.
METHODS = {"batched": {"packing": "batched"}, "individual": {"packing": "individual"}}
PACKING = "packing: reading and writing rows"
PLANNING = "sampling, ranking, search"
#: Steps of Fig. 18 with the options that are off.
STEPS = {
    "naive": ["device_cache", "host_cache", "packing", "disk_cache"],
    "+ device cache": ["host_cache", "packing", "disk_cache"],
    "+ host cache": ["packing", "disk_cache"],
    "+ packing": [],
}
#: Options for the fewest mini-batches in flight with which each system works.
SEQUENTIAL = {
    "ginex": {
        "pipelined": False,
        "samplers": 1,
        "readers": 1,
        "batch_inputs": 1,
        "device_buffers": 1,
    },
    "mariusgnn": {"sampling_workers": 1, "prefetch": 1},
    "diskgnn": {"pipeline": False},
}
#: Parts of an epoch; a moment belongs to the first one with an open stage of the
#: systems' names.
STAGES = {
    "feature load": ["extract", "read", "data_prep", "switch", "load"],
    "graph load": ["load_graph"],
    "feature assemble": ["gather", "assemble", "cache_update", "transfer", "lane:copy"],
    "model train": ["train", "lane:compute"],
    "graph sample": ["sample", "inspect"],
    "other": [],
}
#: The same parts from the bottom of a bar up.
PARTS = [
    "graph sample",
    "graph load",
    "feature load",
    "feature assemble",
    "model train",
    "other",
]


@figure_of_cells("diskgnn-fig8", judged, least=1)
def fig8(cells: Cells) -> Drawing:
    """Draw accuracy over epochs (left) and training time (right) by system; raise
    NotDrawn without a run."""
    return draw_by_system(cells, SYSTEMS, ["(a) Over epochs", "(b) Over time"])


def by_model(profile: JsonDict) -> Plan:
    """Plan all systems with each model."""
    models = values(profile, "models", MODELS)
    return in_gallery(profile, ALL, {model: {"model": model} for model in models})


def replayed(profile: JsonDict) -> Plan:
    """Plan diskgnn with one epoch's samples in all epochs, as in the paper's code
    (dg-23)."""
    model = values(profile, "models", MODELS)[0]
    return in_gallery(
        profile, ["diskgnn"], {"": {"model": model, "options": {"resample_every": 0}}}
    )


@figure_of_cells("diskgnn-fig9", by_model, least=1, beside=replayed)
def fig9(cells: Cells) -> Drawing:
    """Draw epochs without and with preprocessing over diskgnn's epoch; raise NotDrawn
    if diskgnn has no epoch."""
    done = cells.measured()
    ours = done[done.system == "diskgnn"].set_index("x")
    if ours.empty:
        raise NotDrawn("diskgnn has no measured epoch to compare with")
    models = list(ours.index)
    rows = with_absent(cells.medians(), ALL, models)
    base = rows.x.map(ours.value)
    costs = starmap(TrainingCost, rows[list(TERMS)].to_numpy())
    whole_s = [cost.share_s(EPOCHS) for cost in costs]
    data = as_bars(rows, base)[
        ["group", "series", "value", "status", "run", "low", "high"]
    ]
    data["amortised"] = whole_s / base
    data["epoch_s"] = rows.value
    data["preparation_share_s"] = whole_s - rows.mean_epoch_s
    canvas, (left, right) = many_panels(2, sharey=True, height=2.5)
    draw_dots(
        data,
        title="Epoch",
        ylabel="times diskgnn's epoch (log)",
        numbers=".2g",
        axes=left,
    )
    title = "Epoch with amortised preprocessing"
    draw_dots(
        data, title=title, ylabel="", column="amortised", numbers=".2g", axes=right
    )
    shared = f"{EPOCHS} epochs share the preprocessing"
    ours["added"] = ours.each_s / EPOCHS / ours.mean_epoch_s
    added = row_texts(ours.reset_index(), "{x} {added:.1%}")
    replay = (
        "with one epoch's samples replayed, as in the paper's code, preprocessing "
        f"would add {added} to diskgnn's epoch"
    )
    reduced = left_out(models, MODELS, "models")
    others = data[data.series != "diskgnn"].dropna(subset=["value", "amortised"])
    finding = ""
    if len(others):
        preparing = data[data.series == "diskgnn"].set_index("group").amortised
        epochs = span(others.value)
        amortised = span(others.amortised / others.group.map(preparing))
        finding = (
            f"Epochs of the others take {epochs} times diskgnn's, with preprocessing "
            f"{amortised} times"
        )
    return drawn(
        canvas,
        data,
        cells,
        shared,
        replay,
        paper_note("diskgnn-fig9"),
        reduced,
        finding=finding,
    )


def over_memory(profile: JsonDict) -> Plan:
    """Plan ginex, mariusgnn and diskgnn at each share of memory."""
    return over_shares(profile, entries(profile, SYSTEMS))


@figure_of_cells("diskgnn-fig10", over_memory)
def fig10(cells: Cells) -> Drawing:
    """Draw epoch time over memory."""
    rows = cells.medians()
    places = MEMORY.places(cells)
    first = fastest(rows, places)
    times = over_base(rows, ["diskgnn", "mariusgnn"], "ginex", places)
    finding = "; ".join(filter(None, [first, times]))
    return bars(cells, MEMORY, title="Epoch time over memory", finding=finding)


@figure_of_cells("diskgnn-fig11", over_memory)
def fig11(cells: Cells) -> Drawing:
    """Draw the bytes that an epoch reads over memory."""
    rows = cells.medians("device_bytes")
    rows[ENDS] /= GB
    title = "Disk traffic over memory"
    label = "read in an epoch (GB)"
    notes = ["topology, rows and partitions"]
    finding = fastest(rows, MEMORY.places(cells), "Reads least: ")
    times = ratios(wide(rows), "ginex", "diskgnn").times
    if finding and len(times):
        finding += f"; diskgnn reads {span(times)} times less than ginex"
    return bars(
        cells,
        MEMORY,
        title=title,
        rows=rows,
        others=False,
        ylabel=label,
        notes=notes,
        finding=finding,
    )


def over_limits(profile: JsonDict) -> Plan:
    """Plan diskgnn without and with each limit, reads of at least 4 KiB as in the
    paper, and ginex as the reference."""
    base = longer(profile)
    least = min(values(profile, "memory_shares", MEMORY_SHARES))
    base["run"]["memory"] = f"{least:g}x"
    limits = ["none", *values(profile, "space_limits", LIMITS)]
    over = {
        limit: {"options": {"disk_limit": limit, "io_granularity": "4096"}}
        for limit in limits
    }
    ours = grid(base, entries(profile, ["diskgnn"]), over)
    ginex = grid(base, entries(profile, ["ginex"]), {"ginex": {}})
    return joined([ours, ginex])


@figure_of_cells("diskgnn-fig12", over_limits, least=3)
def fig12(cells: Cells) -> Drawing:
    """Draw epoch time by limit, with ginex beside (left), and read amplification
    (right)."""
    rows = cells.medians()
    known = facts(rows)
    dataset = rows.record.iloc[0]["config"]["dataset"]
    width = row_bytes(dataset["dim"], dataset["dtype"])
    features = dataset["num_nodes"] * width
    data = as_bars(rows).replace({"group": {"none": "no limit"}})
    data["disk_x"] = known.disk_bytes / features
    data["amplification"] = known.read_amplification
    data["segment"] = known.segment
    canvas, (left, right) = many_panels(2)
    draw_dots(
        data,
        title="Epoch time",
        ylabel=LOG_TIME,
        xlabel=SPACE,
        numbers=".2g",
        axes=left,
    )
    ours = data[data.series == "diskgnn"]
    title = "Read amplification of diskgnn's layout"
    label = "read amplification (x)"
    draw_bars(
        ours,
        column="amplification",
        title=title,
        ylabel=label,
        xlabel=SPACE,
        numbers=".2f",
        axes=right,
    )
    group, space = ours[["group", "disk_x"]].iloc[0]
    note = f"reads of at least 4 KiB; {group} takes {space:.2f}x with graphs and caches"
    return drawn(
        canvas, data, cells, note, paper_note("diskgnn-fig12"), finding=_limited(data)
    )


def _limited(data: pd.DataFrame) -> str:
    """Return the sentence on diskgnn's epoch under the least limit; empty without
    one."""
    seconds = data.dropna(subset="value").set_index("group")
    ours = seconds[seconds.series == "diskgnn"]
    if len(ours) < 2 or "no limit" not in ours.index:
        return ""
    times = seconds.value / seconds.value["no limit"]
    least = ours.index[-1]
    ginex = (
        f", ginex's without packed rows {times['ginex']:.2g} times"
        if "ginex" in times
        else ""
    )
    return (
        f"Limited to {least} of the features, diskgnn's epoch takes {times[least]:.2g} "
        f"times its unlimited one and reads {ours.amplification.iloc[-1]:.3g} times "
        f"its useful bytes{ginex}"
    )


def on_classes(profile: JsonDict) -> Plan:
    """Plan the three systems on both SSD classes, scaled alike; one epoch, which few
    requests a second make long."""
    base = gallery(profile)
    run = base["run"]
    disk_class = run.get("disk_class", "none")
    _, slash, scale = disk_class.partition("/")
    classes = [
        f"{name}{slash}{scale}" for name in values(profile, "disk_classes", CLASSES)
    ]
    run |= {"epochs": 1, "warmup": 0}
    # With the gallery's few mini-batches diskgnn's caches would hold all rows read.
    batches = round(2.5 * run.get("max_batches", 0))
    if batches:
        run |= {"max_batches": batches, "timeout": "900s"}
    return grid(
        base,
        entries(profile, SYSTEMS),
        {name: {"disk_class": name} for name in classes},
    )


@figure_of_cells("diskgnn-fig15", on_classes)
def fig15(cells: Cells) -> Drawing:
    """Draw epoch time on each SSD class."""
    first, *_, last = cells.xs
    table = with_others(cells)
    rows = table.rename(columns={"x": "group", "system": "series"})
    title = "Epoch time on another SSD"
    canvas, _ = draw_dots(
        rows, title=title, ylabel=LOG_TIME, numbers=".2g", joined=True
    )
    slower = ratios(wide(cells.medians(), index="system", columns="x"), last, first)
    notes = [paper_note("diskgnn-fig15"), others_note(cells)]
    by_times = slower.sort_values("times", ascending=False)
    finding = row_texts(
        by_times, "{system} {times:.2g} times", before=f"On {last} epochs take longer: "
    )
    return drawn(canvas, table, cells, *notes, finding=finding)


@figure_of_cells("diskgnn-fig17", lambda profile: variants(profile, METHODS), least=1)
def fig17(cells: Cells) -> Drawing:
    """Draw preprocessing time by method and memory, packing as a part."""
    rows = cells.measured()
    known = facts(rows)
    rows["bar"] = rows.x.map(percent) + "\n" + rows.system
    rows["read_bytes"] = known.pack_read_bytes
    rows["whole"] = rows.record.map(preparation_s)
    rows[PACKING] = known.pack_s
    rows[PLANNING] = rows.whole - known.pack_s
    parts = [PACKING, PLANNING]
    own = ["bar", "status", "read_bytes", "run"]
    seconds = rows.drop(columns="value").melt(own, parts, "part", ignore_index=False)
    seconds = seconds.sort_index(kind="stable")
    data = seconds[["bar", "part", "value", "status", "read_bytes", "run"]]
    label = "preprocessing (s)"
    canvas, _ = draw_stacks(
        data,
        parts=parts,
        title="Preprocessing",
        ylabel=label,
        xlabel=MEMORY.label,
        numbers=".1f",
    )
    whole_x = ratios(wide(rows, "whole"), "individual", "batched")
    packing_x = ratios(wide(rows, PACKING), "individual", "batched")
    finding = (
        f"Batched packing prepares {span(whole_x.times)} times as fast as individual, "
        f"packing alone {span(packing_x.times)} times"
        if len(whole_x)
        else ""
    )
    return drawn(canvas, data, cells, paper_note("diskgnn-fig17"), finding=finding)


def by_step(profile: JsonDict) -> Plan:
    """Plan diskgnn with one more of its parts at each step."""
    over = {
        step: {"options": dict.fromkeys(parts, "off")} for step, parts in STEPS.items()
    }
    return in_gallery(profile, ["diskgnn"], over)


@figure_of_cells("diskgnn-fig18", by_step, least=1)
def fig18(cells: Cells) -> Drawing:
    """Draw each step's epoch time over that with packing; raise NotDrawn if that step
    has no epoch."""
    rows = with_absent(cells.medians(), ["diskgnn"], list(STEPS))
    seconds = rows.value
    last = seconds.iloc[-1]
    if pd.isna(last):
        raise NotDrawn(
            "diskgnn with all its parts has no measured epoch to compare with"
        )
    paper = published("diskgnn-fig18").set_index("x").value
    paper_s = rows.x.map(paper)
    data = as_bars(rows, last)
    data["epoch_s"] = seconds
    data["paper"] = paper_s / paper_s.iloc[-1]
    label = "times the epoch with all (log)"
    title = "Adding the parts of DiskGNN"
    canvas, axes = draw_dots(
        data, title=title, ylabel=label, numbers=".3g", joined=True
    )
    mark_paper(axes, range(len(data)), data.paper, "paper")
    note = f"with packing {last:.2f} s; paper: Friendster"
    return drawn(canvas, data, cells, note, finding=_gain(data))


def _gain(data: pd.DataFrame) -> str:
    """Return the sentence on what all steps gain, and the step that gains most; empty
    without the first step."""
    times = data.set_index("group").value.astype(float)
    gains = (times.shift() / times).dropna()
    if gains.empty or pd.isna(times.iloc[0]):
        return ""
    largest = str(gains.idxmax())
    name = largest.removeprefix("+ ")
    return (
        f"All parts make diskgnn {times.iloc[0]:.2g} times as fast, {name} most "
        f"({gains.max():.2g} times)"
    )


def sequential(profile: JsonDict) -> Plan:
    """Plan the three systems with the `SEQUENTIAL` options."""
    plans = [
        in_gallery(profile, [system], {"": {"options": own}})
        for system, own in SEQUENTIAL.items()
    ]
    return joined(plans)


@figure_of_cells("diskgnn-fig19", sequential, least=1)
def fig19(cells: Cells) -> Drawing:
    """Draw one bar per system, stacked by stage without overlap; raise NotDrawn without
    a measured epoch."""
    found = with_absent(cells.medians(), SYSTEMS, cells.xs)
    data = stack_rows(found, PARTS, partial(run_breakdown, parts=STAGES)).drop(
        columns="panel"
    )
    title = "Epoch by stage, pipelines off"
    label = "part of the epoch (%), seconds above"
    canvas, _ = draw_stacks(
        data, parts=PARTS, title=title, ylabel=label, numbers=".2f", share=True
    )
    overlap = "what still overlaps counts as loading, then assembling, then training"
    parts = data.dropna(subset="value").astype({"value": float})
    parts["share"] = 100 * parts.value / parts.groupby("bar").value.transform("sum")
    largest = (
        parts.sort_values("share").drop_duplicates("bar", keep="last").sort_index()
    )
    finding = row_texts(
        largest, "{bar} {part} ({share:.0f} %)", before="Largest part: "
    )
    return drawn(canvas, data, cells, overlap, finding=finding)
