"""DiskGNN's runs: Figures 8 (accuracy), 9 to 12 and 15 (systems, memory, disk space, SSDs), 17 to 19 (parts)."""

from __future__ import annotations

from functools import partial

import pandas as pd

from harness.compare.plan import Plain, Plan, grid, joined
from harness.compare.points import Group
from harness.compare.verdicts import NotDrawn
from harness.figures.accuracy_runs import accuracy_plan, accuracy_profile, draw_by_system
from harness.figures.base import Drawing, drawn, figure_of_runs, ids, paper_rows, paper_table, specs
from harness.figures.diskgnn.grid import MEMORY_SHARES, SYSTEMS, entries, in_gallery, longer, over_shares, percent
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars, draw_stacks
from harness.figures.draw.breakdown import part_rows, run_breakdown
from harness.figures.draw.captions import left_out
from harness.figures.draw.kinds import bars
from harness.figures.draw.panels import many_panels
from harness.figures.grids import gallery, values
from harness.results.table import preparation_s
from workloads.units import row_bytes

SPEC = specs(__file__)
#: Systems and models of Fig. 9, and its training epochs, each of which bears an equal share of one-time preprocessing.
ALL: list[str] = SPEC["systems"]
MODELS: list[str] = SPEC["models"]
EPOCHS = 50
STEPS: dict[str, Plain] = SPEC["fig18"]["steps"]
SEQUENTIAL: dict[str, Plain] = SPEC["fig19"]["sequential"]
#: Factor on the gallery's mini-batches where epochs are cut short: else diskgnn's caches would hold all rows read.
_LONGER = 2.5


def judged(profile: Plain) -> Plan:
    """Plan ginex, mariusgnn and diskgnn with test accuracy after every epoch."""
    return accuracy_plan(profile, entries(accuracy_profile(profile), SYSTEMS))


@figure_of_runs("diskgnn-fig8", judged, least=1)
def fig8(group: Group) -> Drawing:
    """Draw accuracy over epochs (left) and training time (right) by system; raise NotDrawn without a run."""
    titles, memory = SPEC["fig8"]["titles"], SPEC["fig8"]["memory"]
    return draw_by_system(group, SYSTEMS, titles, lambda done: memory.format(done[0].record["config"]["memory"]))


def replayed(profile: Plain) -> list[Plain]:
    """Return the experiment of diskgnn with one epoch's samples in all epochs, as in the paper's code (dg-23)."""
    short = {**gallery(profile), "name": "diskgnn-fig9"}
    models = values(profile, "models", MODELS)
    return [{**short, "systems": entries(short, ["diskgnn"], resample_every=0), "grid": {"model": models[:1]}}]


def _over_diskgnn(group: Group, models: list[str]) -> list[Plain]:
    rows: list[Plain] = []
    for model in models:
        base = group.at("diskgnn", model).value
        for point in (group.at(system, model) for system in ALL) if base else ():
            row: Plain = {"group": model, "series": point.system, "value": None, "status": point.status}
            row["run"] = point.run
            if base and point.value and point.cost:
                whole = point.cost.share_s(EPOCHS)
                row |= {**point.over(base), "amortised": whole / base}
                row |= {"epoch_s": point.value, "preparation_share_s": whole - point.cost.mean_epoch_s}
            rows.append(row)
    return rows


@figure_of_runs(
    "diskgnn-fig9",
    lambda profile: in_gallery(profile, ALL, {name: {"model": name} for name in values(profile, "models", MODELS)}),
    least=1,
    beside=replayed,
)
def fig9(group: Group) -> Drawing:
    """Draw epochs without and with preprocessing over diskgnn's epoch; raise NotDrawn if diskgnn has no epoch."""
    spec = SPEC["fig9"]
    models = [model for model in MODELS if model in {str(point.x) for point in group.points}]
    rows = pd.DataFrame(_over_diskgnn(group, models))
    if rows.empty:
        raise NotDrawn("diskgnn has no measured epoch to compare with")
    canvas, panels = many_panels(2, sharey=True)
    draw_bars(rows, axes=panels[0], **spec["epoch"])
    whole = rows.assign(value=rows.get("amortised"), low=None, high=None)
    draw_bars(whole, axes=panels[1], **spec["whole"])
    known = pd.concat([rows["value"], whole["value"]]).dropna().astype(float)
    panels[0].set_ylim(float(known.min()) / 2, float(known.max()) * 2)
    for axes in panels:
        axes.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
    shares = [
        f"{point.x} {point.cost.each_s / EPOCHS / point.cost.mean_epoch_s:.1%}"
        for point in group.points
        if point.system == "diskgnn" and point.cost and point.record["config"]["options"].get("resample_every") == 1
    ]
    said = ", ".join(f"{row['series']} {row['x']} {row['value']:g}x" for row in paper_rows("diskgnn-fig9"))
    notes = [spec["shared"].format(EPOCHS), f"paper: {said}" if said else "", left_out(models, MODELS, "models")]
    notes[1:1] = [spec["replayed"].format(EPOCHS, ", ".join(shares))] if shares else []
    return drawn(canvas, rows, group, *notes, points=group.done)


def over_memory(profile: Plain) -> Plan:
    """Plan ginex, mariusgnn and diskgnn at each share of memory."""
    return over_shares(profile, entries(profile, SYSTEMS))


bars("diskgnn-fig10", over_memory, **SPEC["fig10"])
bars(
    "diskgnn-fig11",
    over_memory,
    value=lambda epoch: None if epoch.get("device_bytes") is None else float(epoch["device_bytes"]) / 1e9,
    note=lambda group: ["topology, rows and partitions"],
    **SPEC["fig11"],
)


def over_limits(profile: Plain) -> Plan:
    """Plan diskgnn without and with each limit, reads of at least 4 KiB as in the paper, and ginex as the reference."""
    base = longer(profile)
    base["run"] = {**base["run"], "memory": f"{min(values(profile, 'memory_shares', MEMORY_SHARES)):g}x"}
    limits = ["none", *values(profile, "space_limits", SPEC["limits"])]
    over = {limit: {"options": {"disk_limit": limit}} for limit in limits}
    ours = grid(base, entries(base, ["diskgnn"], io_granularity="4096"), over)
    return joined([ours, grid(base, entries(base, ["ginex"]), {"ginex": {}})])


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
        row = {"group": label, "series": point.system, **point.cells, "run": point.run}
        if point.system == "diskgnn" and facts.get("disk_bytes") is not None:
            row |= {"disk_x": facts["disk_bytes"] / features, "amplification": facts["read_amplification"]}
            row["segment"] = facts["segment"]
        rows.append(row)
    spec, table = SPEC["fig12"], pd.DataFrame(rows)
    canvas, (left, right) = many_panels(2)
    mine = table[table["series"] == "diskgnn"]
    draw_bars(mine, axes=left, **spec["time"])
    slow = group.at("ginex").value
    if slow is not None:
        left.axhline(slow, color=style.look("ginex").color, linestyle="--", label="ginex")
        left.set_ylim(top=1.3 * max(slow, float(mine["value"].max())))
    draw_bars(mine.assign(value=mine.get("amplification"), low=None, high=None), axes=right, **spec["read"])
    unlimited = [float(row["disk_x"]) for row in rows if row["group"] == "no limit" and "disk_x" in row][:1]
    own = "".join(map(spec["space"].format, unlimited))
    said = ", ".join(f"{row['series']} {row['value']:g}x" for row in paper_rows("diskgnn-fig12"))
    paper = f" (paper: {said})" if said else ""
    share = f"memory {percent(group.points[0].record['config']['memory'][:-1])} of the features"
    return drawn(canvas, table, group, share, f"reads of at least 4 KiB{own}{paper}", points=group.done)


def on_classes(profile: Plain) -> Plan:
    """Plan the three systems on both SSD classes, scaled alike; one epoch, which few requests a second make long."""
    short = gallery(profile)
    _, _, scale = str(short["run"].get("disk_class", "none")).partition("/")
    classes = [f"{name}/{scale}" if scale else name for name in values(profile, "disk_classes", SPEC["classes"])]
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


bars("diskgnn-fig15", on_classes, note=_slower, **SPEC["fig15"])


def by_packing(profile: Plain) -> Plan:
    """Plan diskgnn with batched and with individual packing at each share of memory."""
    methods = {method: entries(profile, ["diskgnn"], packing=method) for method in SPEC["fig17"]["methods"]}
    return over_shares(profile, [{**own, "series": method} for method, found in methods.items() for own in found])


@figure_of_runs("diskgnn-fig17", by_packing, least=1)
def fig17(group: Group) -> Drawing:
    """Draw preprocessing time by method and memory, packing as a part; raise NotDrawn without a pair to compare."""
    spec = SPEC["fig17"]
    (batched, individual), parts = spec["methods"], spec["parts"]
    rows: list[Plain] = []
    totals: dict[tuple[float, str], tuple[float, float]] = {}
    for point in group.points:
        share, method = float(point.x), point.system
        bar = f"{percent(share)}\n{method}"
        facts = point.record["facts"]
        if point.value is None or facts.get("pack_s") is None:
            rows.append({"bar": bar, "part": parts[0], "value": None, "status": point.status})
            continue
        packing, whole = facts["pack_s"], preparation_s(point.record)
        totals[share, method] = (whole, packing)
        tail = {"status": "ok", "read_bytes": facts.get("pack_read_bytes"), "run": point.run}
        seconds = zip(parts, (packing, max(0.0, whole - packing)), strict=True)
        rows += [{"bar": bar, "part": part, "value": value, **tail} for part, value in seconds]
    said = []
    for share in sorted(share for share, method in totals if method == individual and (share, batched) in totals):
        pairs = zip(totals[share, individual], totals[share, batched], strict=True)
        whole, packing = (one / max(1e-9, other) for one, other in pairs)
        said.append(f"{percent(share)} {whole:.1f}x (packing alone {packing:.1f}x)")
    if not said:
        raise NotDrawn("at no share of memory was diskgnn prepared with both ways of packing")
    table = pd.DataFrame(rows)
    canvas, _ = draw_stacks(table, parts=parts, **spec["stacks"])
    paper = [f"paper: {row['value']:g}x on average" for row in paper_rows("diskgnn-fig17")][:1]
    return drawn(canvas, table, group, f"individual over batched: {', '.join(said)}", *paper)


@figure_of_runs(
    "diskgnn-fig18",
    lambda profile: in_gallery(profile, ["diskgnn"], {step: {"options": own} for step, own in STEPS.items()}),
    least=1,
)
def fig18(group: Group) -> Drawing:
    """Draw each step's epoch time over that with packing; raise NotDrawn if that step has no epoch."""
    last = group.at("diskgnn", "+ packing").value
    if not last:
        raise NotDrawn("diskgnn with all its parts has no measured epoch to compare with")
    paper = next(iter(paper_table("diskgnn-fig18").values()), {})
    points = [group.at("diskgnn", step) for step in STEPS]
    rows = [{"group": point.x, "series": "diskgnn", **point.over(last), "status": point.status} for point in points]
    table = pd.DataFrame(rows).assign(run=ids(points))
    table["epoch_s"] = [point.value for point in points]
    table["paper"] = [paper[step] / paper["+ packing"] if step in paper else None for step in STEPS]
    canvas, _ = draw_bars(table, **SPEC["fig18"]["bars"])
    return drawn(canvas, table, group, f"with packing {last:.2f} s", "paper: Friendster", points=group.done)


def sequential(profile: Plain) -> Plan:
    """Plan the three systems with the `SEQUENTIAL` options."""
    short = gallery(profile)
    return grid(short, [own for name in SYSTEMS for own in entries(short, [name], **SEQUENTIAL[name])], {"": {}})


@figure_of_runs("diskgnn-fig19", sequential, least=1)
def fig19(group: Group) -> Drawing:
    """Draw one bar per system, stacked by stage without overlap; raise NotDrawn without a measured epoch."""
    spec = SPEC["fig19"]
    parts = spec["parts"]
    split = partial(run_breakdown, order=list(spec["order"].items()), rest=parts[-1])
    table = pd.DataFrame(row for system in SYSTEMS for row in part_rows(group.at(system), parts, split, bar=system))
    if table["value"].isna().all():
        raise NotDrawn("no system has a measured epoch with its pipeline off")
    canvas, _ = draw_stacks(table, parts=parts, **spec["stacks"])
    return drawn(canvas, table, group, spec["note"], points=group.done)
