"""PaGraph's runs on several devices: Figures 15, 16 and 18, and 21 (accuracy)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.compare.cells import Cells
from harness.compare.plan import Plan, grid, joined
from harness.compare.verdicts import NotDrawn
from harness.figures import accuracy_runs as accuracy
from harness.figures.base import Drawing, drawn, figure_of_cells, published
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import left_out, row_texts
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels
from harness.figures.findings import plain, ratios, span, wide
from harness.figures.grids import values
from harness.figures.over_axis import LEAST_TIMES, Places, alike
from harness.figures.pagraph.grid import FAMILY, MODELS, NAMES, device_bytes, planned
from harness.results.table import each
from workloads.arraytypes import JsonDict

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

NOTE = "every device has a process of its own; all processes share this host's cores"
#: Numbers of devices, and their texts below bars.
COUNTS = [1, 2, 4]
DEVICES_TEXT = {1: "\n1 device", 2: "\n2 devices", 4: "\n4 devices"}


def by_count(profile: JsonDict) -> dict[int, JsonDict]:
    """Return the run settings of each number of devices; each of several trains a
    partition of its own."""
    one = {"ranks": 1, "partition": "none"}
    counts = values(profile, "ranks", COUNTS)
    return {
        count: {"ranks": count, "partition": "self-reliant"} if count > 1 else one
        for count in counts
    }


def seed_rates(cells: Cells) -> pd.DataFrame:
    """Return the rows of `Cells.medians` of thousand seed nodes a second, over all
    devices.

    With partitions (`PartitionPlan`) mini-batches are even, just below the batch size;
    else full but the last one.

    Raises:
        NotDrawn: no run has a measured epoch.
    """
    cells.measured()
    epochs = cells.epochs
    ranks = epochs["config.ranks"]
    size = epochs["config.batch_size"]
    train = epochs["config.dataset.train_nodes"]
    largest = -(-train // ranks)
    even = epochs.batches / ranks * train / -(-largest // size)
    full = (epochs.batches * size).clip(upper=train)
    seeds = full.where(epochs["config.partition"] == "none", even)
    epochs["seeds_per_ms"] = seeds / epochs.seconds / 1000
    return cells.medians("seeds_per_ms")


def curve_rows(rates: pd.DataFrame) -> pd.DataFrame:
    """Return rows of `seed_rates` as those of curves over devices, one for each system
    and model."""
    rows = rates.rename(columns={"panel": "model", "value": "y"})
    rows["series"] = rows.system + " " + rows.model.map(NAMES)
    shown = rows[
        ["series", "system", "model", "x", "y", "low", "high", "status", "run"]
    ]
    return shown.sort_values(["series", "x"], ignore_index=True).astype({"x": int})


def draw_rates(rows: pd.DataFrame, title: str, axes: Any = None) -> Canvas:
    """Draw rows of `curve_rows`; arguments as in `draw_curves`."""
    canvas, axes = draw_curves(
        rows, title=title, xlabel="devices", ylabel="thousand seed nodes / s", axes=axes
    )
    axes.set_xticks(sorted(set(rows.x)))
    axes.set_ylim(bottom=0)
    return canvas


@figure_of_cells(
    "pagraph-fig15",
    lambda profile: planned(profile, ["pagraph"], by_count(profile), MODELS),
)
def fig15(cells: Cells) -> Drawing:
    """Draw throughput over devices, a curve for each model."""
    rows = curve_rows(seed_rates(cells))
    canvas = draw_rates(rows, "Throughput over devices")
    note = "dgl, dgl+pp and pagraph+pp train in one process and have no line"
    reduced = left_out(cells.xs, COUNTS, "devices")
    return drawn(canvas, rows, cells, NOTE, note, reduced, finding=_scaling(rows))


def _scaling(rows: pd.DataFrame) -> str:
    """Return the sentence on the throughput of the most devices over that of one; empty
    without both."""
    measured = rows.dropna(subset="y")
    most = measured.x.max()
    if most == 1:
        return ""
    times = ratios(wide(measured, "y", "model", "x"), most, 1)
    ends = measured[measured.x.isin([1, most])].rename(columns={"y": "value"})
    even = {model: _even(own) for model, own in ends.groupby("model")}
    texts = times.assign(times=times.times.map(plain), even=times.model.map(even))
    named = texts.replace({"model": NAMES})
    return row_texts(
        named,
        "{times} times as fast as 1 with {model}{even}",
        before=f"{most} devices train ",
    )


def _even(ends: pd.DataFrame) -> str:
    """Return a remark in brackets where two rates do not differ; else nothing."""
    rows = list(each(ends))
    return " (no difference)" if len(rows) == 2 and alike(*rows) else ""


@figure_of_cells(
    "pagraph-fig16", lambda profile: planned(profile, FAMILY, by_count(profile), MODELS)
)
def fig16(cells: Cells) -> Drawing:
    """Draw throughput over that of DGL on one device, for each number of devices; raise
    NotDrawn without this DGL."""
    rates = seed_rates(cells)
    base = rates.query("system == 'dgl' and x == 1").set_index("panel").value.dropna()
    known = rates[rates.panel.isin(base.index)]
    if known.empty:
        raise NotDrawn("no measured run of dgl on one device (pagraph-fig16)")
    rows = known.rename(columns={"system": "series", "panel": "model", "x": "devices"})
    rows["group"] = rows.model.map(NAMES) + rows.devices.map(DEVICES_TEXT)
    rows["thousand_seeds_per_s"] = rows.value
    rows["value"] /= rows.model.map(base)
    data = rows[
        [
            "group",
            "series",
            "value",
            "status",
            "model",
            "devices",
            "thousand_seeds_per_s",
            "run",
        ]
    ]
    title = "Speed-up over DGL on one device"
    ylabel = "times dgl's throughput"
    canvas, _ = draw_bars(data, title=title, ylabel=ylabel, numbers=".1f")
    note = "n/a: trains in one process; the paper's base is DGL on two devices"
    finding = _beside_one(data)
    places = Places(cells.xs, "{} devices".format, "on")
    return drawn(canvas, data, cells, NOTE, note, finding=finding, places=places)


def _beside_one(data: pd.DataFrame) -> str:
    """Return the sentence on the systems' speeds on one device, and on the speed on
    more devices of those that can use them; empty without a value.

    Args:
        data: rows of the drawing: `series`, `devices`, `model`, `value`.
    """
    known = data.dropna(subset="value")
    one = known[known.devices == 1]
    others = one[one.series != "dgl"].groupby("series", sort=False).value
    texts = others.agg(span).reset_index(name="times")
    parts = [
        row_texts(
            texts, "{series} {times}", before="On 1 device, times as fast as dgl: "
        )
    ]
    speeds = wide(known, index=["series", "model"], columns="devices")
    for count in sorted(set(known.devices) - {1}):
        gains = ratios(speeds, count, 1).groupby("series").times.agg(span)
        gained = gains.reset_index()
        text = f"{{series}} on {count} is {{times}} times as fast as on 1"
        parts.append(row_texts(gained, text))
    return "; ".join(filter(None, parts)) if len(one) else ""


#: Devices of Figures 18 and 21.
DEVICES = 2
# Four devices hold a quarter of friendster's rows in the paper; here two devices hold
# about as much.
DEVICE_SHARE = 0.2
#: PaGraph with its parts added one after another: cache, pipeline and partition.
STEPS = {
    "loader alone": ("0x", False, "none"),
    "+ cache": ("auto", False, "none"),
    "+ partitions": ("auto", False, "self-reliant"),
    "+ pipelining": ("auto", True, "self-reliant"),
}


def steps(profile: JsonDict) -> Plan:
    """Plan pagraph with its parts added one after another, on two small devices."""
    entries = []
    for name, (cache, pipeline, partition) in STEPS.items():
        options = {"cache": cache, "pipeline": pipeline}
        entries.append(
            {
                "name": "pagraph",
                "series": name,
                "options": options,
                "run": {"partition": partition},
            }
        )
    memory = device_bytes(profile, DEVICE_SHARE)
    return planned(profile, entries, MODELS, ranks=DEVICES, device_memory=memory)


@figure_of_cells("pagraph-fig18", steps, least=1)
def fig18(cells: Cells) -> Drawing:
    """Draw seconds for a million seed nodes by step and model, and the share that each
    step saves."""
    rows = seed_rates(cells).rename(columns={"x": "group", "system": "series"})
    rows["group"] = rows.group.map(NAMES)
    rows[["value", "low", "high"]] = 1000.0 / rows[["value", "high", "low"]].to_numpy()
    rows["saved"] = 1.0 - rows.value / rows.groupby("group").value.shift()
    data = rows[["group", "series", "value", "low", "high", "status", "saved", "run"]]
    title = "Adding caching, partitions, pipelining"
    canvas, _ = draw_bars(
        data, title=title, ylabel="time for a million seed nodes (s)", numbers=".2f"
    )
    paper = row_texts(published("pagraph-fig18"), "{series} {x} {value:g} {unit}")
    notes = [f"{DEVICES} devices", NOTE, f"paper (friendster, 4 GPUs): {paper}"]
    return drawn(canvas, data, cells, *notes, finding=_all_steps(data))


def _all_steps(data: pd.DataFrame) -> str:
    """Return the sentence on the time with all steps over that of the loader alone;
    empty where no model has both."""
    first, *_, last = STEPS
    times = ratios(wide(data, index="group", columns="series"), first, last)
    texts = times.assign(times=times.times.map(plain))
    whole = row_texts(
        texts, "{times} times as fast with {group}", before="All steps make pagraph "
    )
    if not whole or "saved" not in data:
        return whole
    lost = data[data.saved < 1 - LEAST_TIMES]
    slower = lost.assign(times=1 / (1 - lost.saved), name=lost.series.str[2:])
    costs = row_texts(
        slower, "{name} alone make it {times:.2g} times as fast with {group}"
    )
    return "; ".join(filter(None, [whole, costs]))


#: Curves of Fig. 21.
LABELS = ["dgl", "pagraph", f"pagraph, {DEVICES} partitions"]


def on_partitions(profile: JsonDict) -> Plan:
    """Plan accuracy runs of DGL, PaGraph, and PaGraph on partitions with an equal total
    of seed nodes per step."""
    plans = []
    for model in MODELS:
        base = accuracy.accuracy_profile(profile, model)
        base["run"] |= {"memory": "none", "disk_class": "none"}
        share = max(1, base["run"]["batch_size"] // DEVICES)
        local = {"ranks": DEVICES, "partition": "self-reliant", "batch_size": share}
        systems = [
            "dgl",
            "pagraph",
            {"name": "pagraph", "series": LABELS[2], "run": local},
        ]
        plans.append(grid(base, systems, {model: {"model": model}}))
    return joined(plans)


@figure_of_cells("pagraph-fig21", on_partitions, least=1)
def fig21(cells: Cells) -> Drawing:
    """Draw test accuracy over time, a panel for each model; raise NotDrawn without test
    accuracy."""
    runs = cells.medians()
    runs["best"] = 100 * runs.record.map(accuracy.best_accuracy).astype(float)
    known = runs.dropna(subset="best")
    if known.empty:
        raise NotDrawn("no run of dgl or pagraph that found accuracy (pagraph-fig21)")
    models = known.groupby("x", sort=False)
    canvas, panels = many_panels(models.ngroups)
    data = []
    notes = []
    findings = []
    for axes, (model, own) in zip(panels, models, strict=True):
        title = NAMES[str(model)]
        curves = [
            accuracy.accuracy_curve(run.record).assign(series=run.system, run=run.run)
            for run in each(own)
        ]
        rows = pd.concat(curves, ignore_index=True).rename(columns={"seconds": "x"})
        rows = rows.assign(model=model, y=100 * rows.accuracy)[
            ["model", "series", "x", "y", "epoch", "run"]
        ]
        draw_curves(
            rows,
            title=title,
            xlabel="training time (s)",
            ylabel="test accuracy (%)",
            axes=axes,
        )
        data.append(rows)
        target = accuracy.common_target(list(own.record)) or 0.0
        reached = own.assign(target=100 * target)
        reached["seconds"] = [
            accuracy.at_target(record, target) for record in own.record
        ]
        best = row_texts(reached, "{system} {best:.1f} %")
        notes.append(f"best accuracy of {title}: {best}")
        findings.append(accuracy.first_to_target(title, reached))
    notes += ["real training; partitions take as many seed nodes a step together"]
    notes += [accuracy.origin(known.record.iloc[0])]
    finding = "; ".join(filter(None, findings))
    return drawn(canvas, pd.concat(data), cells, *notes, order=LABELS, finding=finding)
