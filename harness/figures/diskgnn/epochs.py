"""DiskGNN's runs: Figures 8 (accuracy), 9 to 12 and 15 (systems, memory, disk space, SSDs), 17 to 19 (parts)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.compare.plan import Plain, Plan, grid, joined
from harness.compare.points import Group, NotDrawn, Point
from harness.figures.accuracy_runs import accuracy_plan, accuracy_profile, draw_by_system
from harness.figures.base import Drawing, drawn, figure_of_runs, paper_rows, point_cells, preparation_s
from harness.figures.diskgnn.grid import MEMORY_SHARES, SYSTEMS, entries, in_gallery, longer, over_shares, percent
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.draw.captions import left_out
from harness.figures.draw.kinds import Axis, bars
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.draw.stacks import draw_stacks
from harness.figures.grids import gallery, values
from workloads.units import row_bytes

#: Systems, models and training epochs of Fig. 9; each epoch bears an equal share of one-time preprocessing.
ALL = ["pyg+", "dgl-ondisk", "ali+pg", "ginex", "ginex-pg", "mariusgnn", "gnndrive", "diskgnn"]
MODELS = ["sage", "gat"]
EPOCHS = 50
MEMORY = Axis("host memory over the features", MEMORY_SHARES, "memory of", percent)
LIMITS = ["7x", "5x", "3x"]
REFERENCE = "ginex"
CLASSES = ["aws-nvme", "aws-gp3"]
#: Factor on the gallery's mini-batches where epochs are cut short: else diskgnn's caches would hold all rows read.
_LONGER = 2.5
#: Ways of packing and parts of preprocessing in Fig. 17.
METHODS = ["batched", "individual"]
PACKING = ["packing: reading and writing rows", "sampling, ranking, search"]
#: Options that switch parts off at each step of Fig. 18, from the bottom up.
STEPS: dict[str, Plain] = {
    "naive": {"device_cache": "off", "host_cache": "off", "packing": "off", "disk_cache": "off"},
    "+ device cache": {"host_cache": "off", "packing": "off", "disk_cache": "off"},
    "+ host cache": {"packing": "off", "disk_cache": "off"},
    "+ packing": {},
}
#: Parts of an epoch in Fig. 19. A moment belongs to the first with an open stage; the stages have the systems' names.
ORDER = {
    "feature load": ("extract", "read", "data_prep", "switch", "load"),
    "graph load": ("load_graph",),
    "feature assemble": ("gather", "assemble", "cache_update", "transfer", "lane:copy"),
    "model train": ("train", "lane:compute"),
    "graph sample": ("sample", "inspect"),
}
PARTS = ["graph sample", "graph load", "feature load", "feature assemble", "model train", "other"]
#: Options for the fewest mini-batches in flight with which each system works.
SEQUENTIAL: dict[str, Plain] = {
    "ginex": {"pipelined": False, "samplers": 1, "readers": 1, "batch_inputs": 1, "device_buffers": 1},
    "mariusgnn": {"sampling_workers": 1, "prefetch": 1},
    "diskgnn": {"pipeline": False},
}


def judged(profile: Plain) -> Plan:
    """Plan ginex, mariusgnn and diskgnn with test accuracy after every epoch."""
    return accuracy_plan(profile, entries(accuracy_profile(profile), SYSTEMS))


@figure_of_runs("diskgnn-fig8", judged, least=1)
def fig8(group: Group) -> Drawing:
    """Draw accuracy over epochs (left) and training time (right) by system; raise NotDrawn without a run."""
    titles = ["(a) Over epochs", "(b) Over time"]
    memory = "memory {} over floor and training"
    return draw_by_system(group, SYSTEMS, titles, lambda done: memory.format(done[0].record["config"]["memory"]))


def by_model(profile: Plain) -> Plan:
    """Plan every disk system with each model."""
    return in_gallery(profile, ALL, {model: {"model": model} for model in values(profile, "models", MODELS)})


def replayed(profile: Plain) -> list[Plain]:
    """Return the experiment of diskgnn with one epoch's samples in all epochs, as in the paper's code (dg-23)."""
    short = {**gallery(profile), "name": "diskgnn-fig9"}
    models = values(profile, "models", MODELS)
    return [{**short, "systems": entries(short, ["diskgnn"], resample_every=0), "grid": {"model": models[:1]}}]


def _share(point: Point) -> float:
    """Return one epoch's seconds of preprocessing: diskgnn prepares each epoch's samples, other systems once."""
    every = point.record["config"]["options"].get("resample_every")
    return preparation_s(point.record) / (len(point.record["epochs"]) if every == 1 else EPOCHS)


def _over_diskgnn(group: Group, models: list[str]) -> list[Plain]:
    points = {(str(point.x), point.system): point for point in group.points}
    rows: list[Plain] = []
    for model in models:
        base = points.get((model, "diskgnn"))
        if base is None or not base.value:
            continue
        for system in ALL:
            point = points.get((model, system))
            row: Plain = {"group": model, "series": system, "value": None, "status": "not run"}
            if point is not None:
                row |= {"status": point.status, "run": point.record.get("run_id", "")}
            if point is not None and point.value:
                share = _share(point)
                row |= {
                    "value": point.value / base.value,
                    "low": float(point.low or point.value) / base.value,
                    "high": float(point.high or point.value) / base.value,
                    "amortised": (point.value + share) / base.value,
                    "epoch_s": point.value,
                    "preparation_share_s": share,
                }
            rows.append(row)
    return rows


@figure_of_runs("diskgnn-fig9", by_model, least=1, beside=replayed)
def fig9(group: Group) -> Drawing:
    """Draw epochs without and with preprocessing over diskgnn's epoch; raise NotDrawn if diskgnn has no epoch."""
    models = [model for model in MODELS if model in {str(point.x) for point in group.points}]
    rows = pd.DataFrame(_over_diskgnn(group, models))
    if rows.empty:
        raise NotDrawn("diskgnn has no measured epoch to compare with")
    canvas, panels = many_panels(2, sharey=True)
    draw_bars(rows, title="Epoch", ylabel="over diskgnn's (x)", log=True, numbers=".2g", axes=panels[0])
    whole = rows.assign(value=rows.get("amortised"), low=None, high=None)
    draw_bars(whole, title="With amortised preprocessing", ylabel="", log=True, numbers=".2g", axes=panels[1])
    known = pd.concat([rows["value"], whole["value"]]).dropna().astype(float)
    panels[0].set_ylim(float(known.min()) / 2, float(known.max()) * 2)
    for axes in panels:
        axes.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
    legend_above(canvas, panels)
    shares = [
        f"{point.x} {_share(point) / EPOCHS / point.value:.1%}"
        for point in group.points
        if point.system == "diskgnn" and point.value and point.record["config"]["options"].get("resample_every") == 1
    ]
    how = f"replaying one epoch's samples for {EPOCHS} epochs, as the paper's code does, would add"
    said = ", ".join(f"{row['series']} {row['x']} {row['value']:g}x" for row in paper_rows("diskgnn-fig9"))
    notes = [
        f"what is prepared once is shared out over {EPOCHS} epochs, what diskgnn prepares for each epoch is its own",
        f"{how} {', '.join(shares)} of the epoch to diskgnn" if shares else "",
        f"paper: {said}" if said else "",
        left_out(models, MODELS, "models"),
    ]
    return drawn(canvas, rows, group, *notes, points=group.done)


def over_memory(profile: Plain) -> Plan:
    """Plan ginex, mariusgnn and diskgnn at each share of memory."""
    return over_shares(profile, entries(profile, SYSTEMS))


def _gigabytes(epoch: Mapping[str, Any]) -> float | None:
    moved = epoch.get("device_bytes")
    return None if moved is None else float(moved) / 1e9


bars("diskgnn-fig10", over_memory, MEMORY, title="Epoch time over memory", log=True)
bars(
    "diskgnn-fig11",
    over_memory,
    MEMORY,
    title="Disk traffic over memory",
    ylabel="read in an epoch (GB)",
    value=_gigabytes,
    note=lambda group: ["topology, rows and partitions"],
)


def over_limits(profile: Plain) -> Plan:
    """Plan diskgnn without and with each limit, reads of at least 4 KiB as in the paper, and ginex as the reference."""
    base = longer(profile)
    base["run"] = {**base["run"], "memory": f"{min(values(profile, 'memory_shares', MEMORY_SHARES)):g}x"}
    limits = {limit: {"options": {"disk_limit": limit}} for limit in ["none", *values(profile, "space_limits", LIMITS)]}
    ours = grid(base, entries(base, ["diskgnn"], io_granularity="4096"), limits)
    return joined([ours, grid(base, entries(base, [REFERENCE]), {REFERENCE: {}})])


@figure_of_runs("diskgnn-fig12", over_limits)
def fig12(group: Group) -> Drawing:
    """Draw epoch time by limit (left), read amplification (right); raise NotDrawn with fewer than two limits."""
    ours = [point for point in group.points if point.system == "diskgnn"]
    if len(ours) < 2:
        raise NotDrawn("diskgnn was run with fewer than two disk-space limits")
    data = ours[0].record["config"]["dataset"]
    features = float(data["num_nodes"] * row_bytes(data["dim"], data["dtype"]))
    rows = []
    for point in group.points:
        facts = point.record["facts"]
        label = "no limit" if point.x == "none" else str(point.x)
        row = {"group": label, "series": point.system, **point_cells(point), "run": point.record.get("run_id", "")}
        if point.system == "diskgnn" and facts.get("disk_bytes") is not None:
            row |= {"disk_x": facts["disk_bytes"] / features, "amplification": facts["read_amplification"]}
            row["segment"] = facts["segment"]
        rows.append(row)
    table = pd.DataFrame(rows)
    canvas, (left, right) = many_panels(2)
    mine = table[table["series"] == "diskgnn"]
    xlabel = "disk-space limit over the features"
    draw_bars(mine, title="Epoch time", ylabel="epoch time (s)", xlabel=xlabel, log=True, numbers=".2g", axes=left)
    beside = table[(table["series"] == REFERENCE) & table["value"].notna()]
    if len(beside):
        slow = float(beside["value"].iloc[0])
        left.axhline(slow, color=style.look(REFERENCE).color, linestyle="--", label=REFERENCE)
        left.set_ylim(top=1.3 * max(slow, float(mine["value"].max())))
    read = mine.assign(value=mine.get("amplification"), low=None, high=None)
    title, ylabel = "Read amplification of its layout", "bytes read over bytes wanted"
    draw_bars(read, title=title, ylabel=ylabel, xlabel=xlabel, numbers=".2f", axes=right)
    legend_above(canvas, [left, right])
    unlimited = [float(row["disk_x"]) for row in rows if row["group"] == "no limit" and "disk_x" in row][:1]
    own = "".join(f"; no limit takes {space:.2f}x with graphs and caches" for space in unlimited)
    said = ", ".join(f"{row['series']} {row['value']:g}x" for row in paper_rows("diskgnn-fig12"))
    paper = f" (paper: {said})" if said else ""
    share = f"memory {percent(group.points[0].record['config']['memory'][:-1])} of the features"
    return drawn(canvas, table, group, share, f"reads of at least 4 KiB{own}{paper}", points=group.done)


def on_classes(profile: Plain) -> Plan:
    """Plan the three systems on both SSD classes, scaled alike; one epoch, which few requests a second make long."""
    short = gallery(profile)
    _, _, scale = str(short["run"].get("disk_class", "none")).partition("/")
    classes = [f"{name}/{scale}" if scale else name for name in values(profile, "disk_classes", CLASSES)]
    run = {**short["run"], "epochs": 1, "warmup": 0}
    if batches := round(_LONGER * int(short["run"].get("max_batches", 0))):
        run |= {"max_batches": batches, "timeout": "900s"}
    return grid({**short, "run": run}, entries(short, SYSTEMS), {name: {"disk_class": name} for name in classes})


def _slower(group: Group) -> list[str]:
    times = {(point.system, point.x): point.value for point in group.points if point.value}
    first, *_, last = dict.fromkeys(point.x for point in group.points)
    both = [system for system in SYSTEMS if (system, first) in times and (system, last) in times]
    said = ", ".join(f"{system} {times[system, last] / times[system, first]:.2f}x" for system in both)
    return [f"slower on {last}: {said} (paper: diskgnn about 1.2x)"] if both else []


bars("diskgnn-fig15", on_classes, Axis(""), title="Epoch time on another SSD", log=True, note=_slower)


def by_packing(profile: Plain) -> Plan:
    """Plan diskgnn with batched and with individual packing at each share of memory."""
    return over_shares(
        profile,
        [{**entry, "series": method} for method in METHODS for entry in entries(profile, ["diskgnn"], packing=method)],
    )


@figure_of_runs("diskgnn-fig17", by_packing, least=1)
def fig17(group: Group) -> Drawing:
    """Draw preprocessing time by method and memory, packing as a part; raise NotDrawn without a pair to compare."""
    rows: list[Plain] = []
    totals: dict[tuple[float, str], tuple[float, float]] = {}
    for point in group.points:
        share, method = float(point.x), point.system
        bar = f"{percent(share)}\n{method}"
        facts = point.record["facts"]
        if point.value is None or facts.get("pack_s") is None:
            rows.append({"bar": bar, "part": PACKING[0], "value": None, "status": point.status})
            continue
        packing, whole = facts["pack_s"], preparation_s(point.record)
        totals[share, method] = (whole, packing)
        tail = {"status": "ok", "read_bytes": facts.get("pack_read_bytes"), "run": point.record["run_id"]}
        seconds = zip(PACKING, (packing, max(0.0, whole - packing)), strict=True)
        rows += [{"bar": bar, "part": part, "value": value, **tail} for part, value in seconds]
    both = sorted(share for share, method in totals if method == METHODS[1] and (share, METHODS[0]) in totals)
    if not both:
        raise NotDrawn("at no share of memory was diskgnn prepared with both ways of packing")
    table = pd.DataFrame(rows)
    xlabel, ylabel = "memory over the features", "preprocessing (s)"
    canvas, _ = draw_stacks(table, title="Preprocessing", ylabel=ylabel, xlabel=xlabel, parts=PACKING, numbers=".1f")
    ratios = [
        [
            one / max(1e-9, other)
            for one, other in zip(totals[share, METHODS[1]], totals[share, METHODS[0]], strict=True)
        ]
        for share in both
    ]
    said = ", ".join(
        f"{percent(share)} {whole:.1f}x (packing alone {packing:.1f}x)"
        for share, (whole, packing) in zip(both, ratios, strict=True)
    )
    paper = [f"paper: {row['value']:g}x on average" for row in paper_rows("diskgnn-fig17")][:1]
    return drawn(canvas, table, group, f"individual over batched: {said}", *paper)


def steps(profile: Plain) -> Plan:
    """Plan diskgnn at each step."""
    return in_gallery(profile, ["diskgnn"], {step: {"options": options} for step, options in STEPS.items()})


@figure_of_runs("diskgnn-fig18", steps, least=1)
def fig18(group: Group) -> Drawing:
    """Draw each step's epoch time over that with packing; raise NotDrawn if that step has no epoch."""
    points = {str(point.x): point for point in group.points}
    last = points.get("+ packing")
    if last is None or not last.value:
        raise NotDrawn("diskgnn with all its parts has no measured epoch to compare with")
    paper = {str(row["x"]): float(row["value"]) for row in paper_rows("diskgnn-fig18")}
    rows = []
    for step in STEPS:
        row: Plain = {"group": step, "series": "diskgnn", "value": None, "status": "not run"}
        if point := points.get(step):
            cells = point_cells(point)
            scaled = {key: cells[key] and cells[key] / last.value for key in ("value", "low", "high")}
            row = {"group": step, "series": "diskgnn", **cells, **scaled, "run": point.record.get("run_id", "")}
            row["epoch_s"] = point.value
        rows.append({**row, "paper": paper[step] / paper["+ packing"] if step in paper else None})
    table = pd.DataFrame(rows)
    ylabel = "epoch time over that with packing (x)"
    canvas, _ = draw_bars(table, title="Adding the parts of DiskGNN", ylabel=ylabel, log=True, numbers=".3g")
    return drawn(canvas, table, group, f"with packing {last.value:.2f} s", "paper: Friendster", points=group.done)


def sequential(profile: Plain) -> Plan:
    """Plan the three systems with the `SEQUENTIAL` options."""
    short = gallery(profile)
    systems = [entry for system in SYSTEMS for entry in entries(short, [system], **SEQUENTIAL[system])]
    return grid(short, systems, {"": {}})


@figure_of_runs("diskgnn-fig19", sequential, least=1)
def fig19(group: Group) -> Drawing:
    """Draw one bar per system, stacked by stage without overlap; raise NotDrawn without a measured epoch."""
    points = {point.system: point for point in group.points}
    rows: list[Plain] = []
    for system in SYSTEMS:
        point = points.get(system)
        if point is None or point.value is None:
            status = "not run" if point is None else point.status
            rows.append({"bar": system, "part": PARTS[0], "value": None, "status": status})
            continue
        found = run_breakdown(point, list(ORDER.items()), PARTS[-1])
        tail = {"status": "ok", "run": point.record["run_id"]}
        rows += [{"bar": system, "part": part, "value": found[part], **tail} for part in PARTS]
    table = pd.DataFrame(rows)
    if table["value"].isna().all():
        raise NotDrawn("no system has a measured epoch with its pipeline off")
    title = "Epoch by stage, pipelines off"
    canvas, _ = draw_stacks(table, title=title, ylabel="epoch time (s)", parts=PARTS, numbers=".2f")
    note = (
        "ginex with one sampler, reader and buffer, mariusgnn with one sampler and one mini-batch ahead: what still "
        "overlaps counts as loading, then assembling, then training"
    )
    return drawn(canvas, table, group, note, points=group.done)
