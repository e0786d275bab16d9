"""GNNDrive's epochs: Figures 2, 8 to 10, 12 to 14, Table 2, utilisation (Figures 3, 11), and fio (Figure B.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain, Plan, as_entry, first_setting, grid, joined
from harness.compare.points import Group, Point, stage_seconds
from harness.compare.verdicts import NotDrawn
from harness.figures import grids
from harness.figures.accuracy_runs import accuracy_plan, draw_by_system
from harness.figures.base import Drawing, Sheet, drawn, figure, figure_of_runs, ids, paper_table, sheet, specs
from harness.figures.draw import style
from harness.figures.draw.captions import describe_memory, left_out
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.kinds import bars, curves, lines
from harness.figures.draw.panels import MARK, many_panels
from harness.figures.draw.style import Look, named_looks
from harness.results import store as results
from harness.studies.base import StudyNeed
from workloads.units import format_bytes, parse_bytes, parse_count

SPEC = specs(__file__)
SYSTEMS: list[str] = SPEC["systems"]
MODELS: dict[str, str] = SPEC["models"]
#: gnndrive trained on the CPU, with its feature buffer in host memory.
CPU = "gnndrive (cpu)"
REFERENCE = "in-memory"
MARIUS = "mariusgnn"
# Multiples of the profile's budget -> the paper's row of mariusgnn.
MARIUS_ROWS = {float(factor): row for factor, row in SPEC["tab2"]["marius"].items()}
BASELINES = ["pyg+", "ginex", MARIUS]
# Seconds of the rolling mean: fewer make no readable line.
SMOOTH_S = 0.5
LINES = (
    ("cpu_percent", "CPU", "#0B3C8C", "-"),
    ("gpu_percent", "GPU", "#E69F00", "--"),
    ("iowait_percent", "I/O wait", "#000000", ":"),
)


def in_bytes(profile: Plain) -> Plain:
    """Return the profile with its host budget in bytes, hence equal over dimensions (32 GB in the paper)."""
    return {**profile, "run": {**profile["run"], "memory": f"+{grids.host_budget(profile)}"}}


def wide_rows(profile: Plain) -> tuple[Plain, Plain, dict[int, Plain]]:
    """Return the gallery's profile, the same with a dataset for each dimension, and the run settings of each dimension.

    Mini-batches are scaled by `wide_batch_factor` so that the widest rows fit in the budget.
    """
    short = in_bytes(grids.gallery(profile))
    (run,) = grids.batch_sizes(short, grids.values(profile, "wide_batch_factor", [1.0])[:1])
    short = {**short, "run": {**short["run"], **run}}
    changed, runs = grids.over_dims(short, grids.values(profile, "dims", SPEC["dims"]))
    runs.get(grids.dimension(short), {}).pop("device_memory", None)
    return short, changed, runs


def cpu_variant(profile: Plain, run: Plain | None = None) -> Plain:
    """Return the entry of gnndrive on the CPU, with device memory added to the host budget; `run`: more settings."""
    own = as_entry(grids.only_systems(profile, ["gnndrive"])[0])
    host = grids.host_budget(profile) + parse_bytes(profile["run"].get("device_memory") or 0)
    settings = {**own.get("run", {}), "device": "cpu", "device_memory": None, "memory": f"+{host}", **(run or {})}
    return {**own, "series": CPU, "run": settings}


def on_both(profile: Plain) -> list[Plain]:
    """Return the entries of gnndrive as in the profile, and on the CPU."""
    return [*grids.only_systems(profile, ["gnndrive"]), cpu_variant(profile)]


def grows(points: Iterable[Point], what: str) -> str:
    """Return caption text where device memory differs between the points; empty otherwise."""
    sizes = {int(point.record["config"]["device_memory_bytes"] or 0) for point in points if point.record} - {0}
    return f"device memory grows with the {what}" if len(sizes) > 1 else ""


def sampling(profile: Plain) -> Plan:
    """Plan the capped systems at each dimension, with sampling only and with all stages."""
    short, changed, runs = wide_rows(profile)
    entries = [
        {**own, "series": f"{own['name']}-{name}", "run": {**own.get("run", {}), "stages": stages}}
        for own in map(as_entry, grids.only_systems(short, SYSTEMS))
        for stages, name in (("sample", "only"), ("all", "all"))
    ]
    return grid(changed, entries, runs)


def _open_or_filled(series: str) -> Look:
    """Return the system's look: white with its hatch for sampling only, its plain colour for all stages."""
    system, _, stages = series.rpartition("-")
    look = style.look(system)
    return replace(look, color="white") if stages == "only" else replace(look, hatch="")


def _both(group: Group) -> list[str]:
    if len({series.rpartition("-")[2] for series in group.systems()}) < 2:
        raise NotDrawn("no runs with sampling only beside runs with all stages (run with --figures gnndrive-fig2)")
    return [grows(group.points, "dimension")]


bars("gnndrive-fig2", sampling, value=stage_seconds("sample"), looks=_open_or_filled, note=_both, **SPEC["fig2"])


def epochs(profile: Plain) -> Plan:
    """Plan the systems at each dimension with each model, the CPU variant with GraphSAGE.

    A model that the profile leaves out runs only at the profile's dimension, on both devices for the comparison.
    """
    short, changed, runs = wide_rows(profile)
    models = grids.values(profile, "models", list(MODELS))
    systems = grids.only_systems(short, SYSTEMS)
    plans = []
    for model, title in MODELS.items():
        dims = runs if model in models else {grids.dimension(short): {}}
        plans.append(grid(changed, systems, {dim: {**run, "model": model} for dim, run in dims.items()}, panel=title))
        for dim, run in dims.items():
            if model != "sage" and model in models:
                continue
            cpu = cpu_variant({**short, "run": {**short["run"], **run}}, {**run, "device_memory": None})
            plans.append(grid(changed, [cpu], {dim: {"model": model}}, panel=title))
    return joined(plans)


def _left_out(group: Group) -> list[str]:
    drawn, budget = {point.panel for point in group.points}, SPEC["budget"] if CPU in group.systems() else ""
    missing = left_out([model for model, title in MODELS.items() if title in drawn], list(MODELS), "model")
    return [grows(group.points, "dimension"), budget, missing, "one dataset of the paper's four"]


curves("gnndrive-fig8", epochs, note=_left_out, **SPEC["fig8"])


def over_memory(profile: Plain) -> Plan:
    """Plan the systems and in-memory at budgets of one to sixteen times the profile's, dimension 512."""
    wide = _wide(profile)
    factors = [*grids.values(profile, "memory_factors", SPEC["memory_factors"]), SPEC["most_memory"]]
    budgets = [round(grids.host_budget(wide) * factor) for factor in dict.fromkeys(factors)]
    systems = grids.only_systems(wide, [REFERENCE, *SYSTEMS])
    return grid(wide, systems, {budget: {"memory": f"+{budget}"} for budget in budgets})


def _wide(profile: Plain) -> Plain:
    short = grids.wide_device(grids.gallery(profile))
    memory = f"+{grids.host_budget(short)}"
    changed, (name,) = grids.with_dims(short, [512])
    return {**changed, "run": {**changed["run"], "dataset": name, "memory": memory}}


def on_a_graph_that_fits(profile: Plain) -> list[Plain]:
    """Return the experiment of pyg+ and gnndrive on a graph that fits memory (gd-19), which the drawing leaves out."""
    wide, small = _wide(profile), SPEC["small"]
    name, recipe = grids.dataset_of(wide)
    sizes = {key: parse_count(recipe[key], key) // small["share"] for key in ("nodes", "edges")}
    run = {"dataset": f"{name}-small", "memory": small["memory"], "max_batches": small["batches"]}
    datasets = {**wide["datasets"], f"{name}-small": {**recipe, **sizes}}
    systems = grids.only_systems(profile, ["pyg+", "gnndrive"])
    changed = {"name": "gnndrive-fig9-fits", "datasets": datasets, "systems": systems, "grid": {}}
    return [{**wide, **changed, "run": {**wide["run"], **run}}]


lines("gnndrive-fig9", over_memory, beside=on_a_graph_that_fits, **SPEC["fig9"])


def over_batches(profile: Plain) -> Plan:
    """Plan the systems at each batch size, with equal seed nodes per epoch and device memory for the largest size."""
    factors = grids.values(profile, "batch_factors", SPEC["batch_factors"])
    short = grids.wide_device(in_bytes(grids.gallery(profile)), max(factors))
    sizes = {run["batch_size"]: run for run in grids.batch_sizes(short, factors)}
    return grid(short, grids.only_systems(short, SYSTEMS), sizes)


lines("gnndrive-fig10", over_batches, **SPEC["fig10"])


def over_buffers(profile: Plain) -> Plan:
    """Plan gnndrive on both devices with each feature buffer; all runs have the memory for the largest buffer."""
    short = in_bytes(grids.gallery(profile))
    (sizes,) = grids.batch_sizes(short, [SPEC["buffer_batch_factor"]])
    short["run"] = {**short["run"], **sizes}
    factors = [float(factor) for factor in grids.values(profile, "buffer_factors", SPEC["buffer_factors"])]
    # The profile's memory holds a buffer of scale 1 for larger mini-batches: times the factor, the largest one.
    short = grids.wide_device(short, max(factors))
    return grid(short, on_both(short), {factor: {"options": {"feature_buffer_scale": factor}} for factor in factors})


def _buffer_bytes(point: Point) -> int | None:
    plan = point.record.get("memory", {}).get("plan", [])
    return next((int(item["bytes"]) for item in plan if item["name"] == "feature buffer"), None)


def _cpu_not_run(group: Group) -> str:
    return "" if CPU in group.systems() else "not run: the CPU variant"


bars(
    "gnndrive-fig12",
    over_buffers,
    note=lambda group: ["one dataset of the paper's four", _cpu_not_run(group)],
    columns={"buffer_bytes": _buffer_bytes},
    **SPEC["fig12"],
)


def over_processes(profile: Plain) -> Plan:
    """Plan gnndrive in one and several processes, on devices and on the CPU; the bare disk is no bottleneck.

    The paper leaves host memory unrestricted; here all runs have the profile's budget times the most processes.
    """
    short = grids.gallery(profile)
    ranks = grids.values(profile, "ranks", SPEC["ranks"])
    short["run"] = {**short["run"], "memory": f"+{max(ranks) * grids.host_budget(short)}", "disk_class": "none"}
    return grid(short, on_both(short), {count: {"ranks": count} for count in ranks})


def _processes(group: Group) -> list[str]:
    emulated = str(group.points[0].record["config"]["device"]).startswith("emulated:")
    usable = {(point.record.get("environment", {}).get("cpu") or {}).get("usable") for point in group.points} - {None}
    return [
        f"each process has {'an EMULATED' if emulated else 'a'} device of its own",
        f"all processes share {usable.pop()} cores" if len(usable) == 1 else "",
        _cpu_not_run(group),
    ]


bars("gnndrive-fig13", over_processes, note=_processes, **SPEC["fig13"])


def judged(profile: Plain) -> Plan:
    """Plan the accuracy runs of the capped systems, and the same training with all data in memory."""
    return accuracy_plan(profile, [{"name": REFERENCE, "memory": "none"}, *grids.only_systems(profile, SYSTEMS)])


def _memory(done: list[Point]) -> str:
    capped = [describe_memory(point.record["config"]["memory"]) for point in done if point.system != REFERENCE]
    return f"memory {capped[0]}, {REFERENCE} without a cap" if capped else ""


@figure_of_runs("gnndrive-fig14", judged, least=1)
def fig14(group: Group) -> Drawing:
    """Draw accuracy over epochs and over training time, one line per system; raise NotDrawn without a run."""
    return draw_by_system(group, [REFERENCE, *SYSTEMS], SPEC["fig14"], _memory)


def budgets(profile: Plain) -> Plan:
    """Plan the systems and the CPU variant at the profile's budget, mariusgnn and gnndrive also at multiples of it."""
    short = grids.gallery(profile)
    budget = grids.host_budget(short)
    sizes = {factor: {"memory": f"+{round(budget * factor)}"} for factor in MARIUS_ROWS}
    others = {factor: size for factor, size in sizes.items() if factor != 1}
    return joined(
        [
            grid(short, [*grids.only_systems(short, SYSTEMS), cpu_variant(short)], {"": {}}),
            grid(short, grids.only_systems(short, ["gnndrive"]), others),
            grid(short, grids.only_systems(short, [MARIUS]), sizes),
        ]
    )


@figure_of_runs("gnndrive-tab2", budgets, least=1)
def tab2(group: Group) -> Sheet:
    """Return one row per system with data preparation, training and the whole epoch, and the paper's on papers100M."""
    spec = SPEC["tab2"]
    named = [(name, paper, group.at(name, "")) for name, paper in spec["names"].items()]
    for point in group.points:
        if point.x != "":
            budget = format_bytes(parse_bytes(point.record["config"]["memory"].removeprefix("+")))
            paper = MARIUS_ROWS[point.x] if point.system == MARIUS else ""
            named.append((f"{point.system}, {budget}", paper, point))
    return sheet([_line(*one) for one in named], spec["columns"], group, spec["note"])


def _line(name: str, paper: str, point: Point) -> Plain:
    """Return median seconds of data preparation (None without it), of the rest of the epoch, and of the epoch."""
    spent = [float(epoch["stages_s"].get("data_prep", 0.0)) for epoch in point.epochs]
    prepares = any("data_prep" in epoch["stages_s"] for epoch in point.epochs)
    failed = MARK.get(point.status, point.status) if point.value is None else None
    before = median(spent) if failed is None and prepares else None
    rest = [float(epoch["seconds"]) - own for epoch, own in zip(point.epochs, spent, strict=True)]
    parts = {"data preparation": before, "training": median(rest) if rest else None}
    parts["overall"] = point.value if rest else None
    line: Plain = {"system": name, **{f"{part} (s)": failed or seconds for part, seconds in parts.items()}}
    line["preparation (%)"] = 100 * before / point.value if before is not None and point.value else None
    theirs = paper_table("gnndrive-tab2").get(paper, {})
    line |= {f"paper: {part} (s)": theirs.get(part) for part in ("preparation", "training", "overall")}
    return {**line, "status": point.status, "samples": point.samples, "run": point.run}


def variants(profile: Plain) -> Plan:
    """Plan gnndrive as in the profile, and on the CPU with the device memory added to the host budget."""
    return grid(first_setting(profile), on_both(first_setting(profile)), {"": {}})


def _timelines(points: list[Point], group: Group, titles: list[str], note: str) -> Drawing:
    """Draw CPU, GPU and I/O wait over time, a panel per run; grey bands separate the epochs.

    A run without telemetry of an epoch has no panel; without any panel NotDrawn is raised.
    """
    read = [results.table(Path(point.path), "telemetry").query("epoch >= 0").sort_values("t") for point in points]
    tables = [one for one in zip(points, titles, read, strict=True) if len(one[2])]
    if not tables:
        raise NotDrawn("the runs have no telemetry of an epoch")
    height = 1.35 + 0.5 / len(tables)
    canvas, panels = many_panels(len(tables), columns=1, wide=False, height=height, sharey=True)
    shown = [_timeline(axes, *one) for axes, one in zip(panels, tables, strict=True)]
    panels[-1].set_xlabel("time since the first epoch began (s)")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3, handlelength=2.6)
    extra = f"warm-up epoch hatched, {SMOOTH_S:g} s rolling mean" + (f", {note}" if note else "")
    data = pd.concat(shown, ignore_index=True)
    return drawn(canvas, data, group, extra, points=points, runs=ids([point for point, _, _ in tables]))


def _timeline(axes: Any, point: Point, title: str, table: pd.DataFrame) -> pd.DataFrame:
    for epoch in point.record["epochs"]:
        start, end = epoch["start_s"], epoch["start_s"] + epoch["seconds"]
        if epoch["warmup"]:
            axes.axvspan(start, end, facecolor="none", edgecolor="#cccccc", hatch="///", linewidth=0.0)
        elif epoch["epoch"] % 2:
            axes.axvspan(start, end, color="#f0f0f0", linewidth=0.0)
        axes.axvline(end, color="#888888", linewidth=0.5)
    step = float(table["t"].diff().median())  # not a number for a single sample
    kept, window = ["t", "epoch"], max(1, round(SMOOTH_S / step)) if step > 0 else 1
    for column, label, color, line in LINES:
        if column not in table or table[column].isna().all():
            continue
        smooth = table[column].rolling(window, min_periods=1, center=True).mean()
        axes.plot(table["t"], smooth, color=color, linestyle=line, label=label, linewidth=1.1)
        kept.append(column)
    axes.set(ylim=(0, 102), xlim=(float(table["t"].min()), float(table["t"].max())), ylabel="%")
    axes.set_title(title, loc="left")
    return table[kept].assign(system=point.system, run=point.run)


def baselines(profile: Plain) -> Plan:
    """Plan capped runs of the baselines."""
    return grid(first_setting(profile), grids.only_systems(profile, BASELINES), {"": {}})


@figure_of_runs("gnndrive-fig3", lambda profile: baselines(grids.gallery(profile)), otherwise=baselines, least=1)
def fig3(group: Group) -> Drawing:
    """Draw one panel per system, from the headline's runs where the gallery's were not made."""
    done = [point.system for point in group.done]
    missing = [f"{group.at(name).told}: {name}" for name in BASELINES if name not in done]
    return _timelines(group.done, group, done, "; ".join(missing))


@figure_of_runs("gnndrive-fig11", lambda profile: variants(grids.gallery(profile)), otherwise=variants, least=1)
def fig11(group: Group) -> Drawing:
    """Draw the GPU variant above the CPU variant, as far as measured; raise NotDrawn if neither is."""
    points = group.done
    if not points:
        raise NotDrawn("no run of gnndrive under a cap has a measured epoch")
    names = ["CPU" if point.system == CPU else "GPU" for point in points]
    devices = [point.record["config"]["device"] for point in points]
    titles = [f"gnndrive, {name} variant ({device})" for name, device in zip(names, devices, strict=True)]
    missing = [SPEC["fig11"]["missing"].format(name) for name in ("GPU", "CPU") if name not in names]
    return _timelines(points, group, titles, missing[0] if missing else SPEC["fig11"]["both"])


FIO = "fio-grid"


@figure("gnndrive-figB1", studies=lambda profile: [StudyNeed(FIO)])
def fig_b1(evidence: Evidence) -> Drawing:
    """Draw bandwidth (top), latency (bottom) over threads and queue depth; raise NotDrawn without buffered reads."""
    record = evidence.study(FIO)
    wanted = ["pattern", "block_bytes", "direct", "engine", "threads", "depth", "iops", "bytes_per_s", "mean_latency_s"]
    table = pd.DataFrame(record.result["points"], columns=wanted).query("pattern == 'random'")
    block = table.loc[~table["direct"].astype(bool), "block_bytes"].min()
    rows = table[table["block_bytes"] == block].reset_index(drop=True)
    if rows.empty:
        raise NotDrawn(f"the study {FIO} holds no buffered reads to compare")
    rows = rows.assign(series=rows["direct"].map({True: "direct", False: "buffered"}))
    rows = rows.assign(bandwidth_mb_per_s=rows["bytes_per_s"] / 1e6, latency_us=rows["mean_latency_s"] * 1e6)
    rows = rows[["engine", "series", "threads", "depth", "iops", "bandwidth_mb_per_s", "latency_us"]]
    canvas, panels = many_panels(4, columns=2, height=2.0)
    looks = named_looks(["direct", "buffered"])
    for axes, panel in zip(panels, SPEC["figB1"]["panels"], strict=True):
        mine = rows[rows["engine"] == panel["engine"]]
        mine = mine.assign(x=mine[panel["x"]], y=mine[panel["y"]])
        own: Plain = {"title": "", "xlabel": panel["xlabel"], "ylabel": panel["ylabel"], "looks": looks}
        draw_curves(mine, xlog=True, ylog=True, axes=axes, **own)
    device, file_bytes = record.result["device"], record.result["file_bytes"]
    how = f"by read calls and by {record.result['asynchronous']}, {record.params['seconds']:g} s a point"
    notes = [
        f"{device.get('model') or device.get('name') or 'disk'}, {device['file_system']}",
        f"random {block} B reads of a {format_bytes(file_bytes)} file, {how}",
        SPEC["figB1"]["note"],
    ]
    deepest = rows[(rows["engine"] == "async") & (rows["depth"] == rows["depth"].max())].set_index("series")
    rates = deepest["bandwidth_mb_per_s"]
    if {"buffered", "direct"} <= set(rates.index):
        gap = 100 * (rates["buffered"] / rates["direct"] - 1)
        notes.append(SPEC["figB1"]["gap"].format(abs(gap), "above" if gap > 0 else "below"))
    return drawn(canvas, rows, record, *notes)
