"""Ginex's epochs: Figures 6, 14 and 15 (by part), 16 to 19 (over sizes), and Table 4 (performance per dollar).

Table 4 models a distributed run: the paper's speeds of Ginex over DistDGL and over PyG+ give that of DistDGL over PyG+,
and our pyg+ stands for PyG+. A system's speed over DistDGL's, at the price of Ginex's machine, is its performance per
dollar.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.compare.evidence import Planned
from harness.compare.plan import Plain, Plan, grid
from harness.compare.points import Group, Point
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, Sheet, drawn, figure_of_runs, ids, paper_rows, paper_table, sheet, specs
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars, draw_stacks
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.draw.captions import left_out
from harness.figures.draw.kinds import Axis
from harness.figures.draw.panels import around, draw_line, interval, many_panels, mark_paper, name_axes, one_panel
from harness.figures.draw.style import SERIES
from harness.figures.grids import batch_sizes, gallery, host_budget, over_dims, systems_of, values
from harness.results import store as results
from harness.results.table import measured_epochs
from workloads.errors import OutcoreError

SPEC = specs(__file__)
#: The paper's comparison (Section 5.1), baseline first.
SYSTEMS = ["pyg+", "ali+pg", "ginex"]
BASE, *OTHERS = SYSTEMS
MODELS = {model: {"model": model} for model in ("sage", "gcn")}
ORDER = list(SPEC["order"].items())
PARTS = [*SPEC["order"], SPEC["rest"]]
# Fewest mini-batches gathered alone for a median of Fig. 6.
LEAST = 3
# Default of pyg+: the most sampled mini-batches that wait per sampler.
DEFAULT_AHEAD = 2


def alone_and_together(profile: Plain) -> Plan:
    """Plan pyg+ with sampling only, with sampling and gathering, and with sampling free to run ahead to its end."""
    batches = int(gallery(profile)["run"].get("max_batches", 0))
    # Two samplers or more together may then hold the whole epoch.
    ahead = min(64, max(DEFAULT_AHEAD + 1, -(-batches // 2))) if batches else 64
    runs: dict[str, Plain] = {
        "sample": {"stages": "sample"},
        "both": {"stages": "sample+extract"},
        "ahead": {"stages": "sample+extract", "options": {"prefetch": ahead}, "epochs": SPEC["fig6"]["epochs"]},
    }
    return in_gallery(profile, [BASE], runs)


def gather_alone(stages: pd.DataFrame, epochs: list[Plain]) -> list[float]:
    """Return seconds of each gathering that began after the last sampling of its epoch had ended, without warm-up."""
    found: list[float] = []
    for epoch in measured_epochs({"epochs": epochs}):
        mine = stages[stages["epoch"] == epoch["epoch"]]
        sampled, gathered = (mine[mine["stage"] == stage] for stage in ("sample", "extract"))
        if len(sampled) and len(gathered):
            alone = gathered[gathered["start"] >= sampled["end"].max()]
            found += list((alone["end"] - alone["start"]).astype(float))
    return found


@figure_of_runs(
    "ginex-fig6",
    alone_and_together,
    lambda epoch: epoch["seconds"] / epoch["batches"] if epoch["batches"] else None,
    least=3,
)
def fig6(group: Group) -> Drawing:
    """Draw seconds per iteration of sampling alone, gathering alone, both; raise NotDrawn where one is missing."""
    points = {kind: group.at(BASE, kind) for kind in ("sample", "both", "ahead")}
    missing = [kind for kind, point in points.items() if point.value is None]
    if missing:
        raise NotDrawn(f"{BASE} did not finish its run of {' and '.join(missing)} (see its record)")
    try:
        stages = results.table(Path(points["ahead"].path), "stages")
    except OutcoreError as error:
        raise NotDrawn(str(error)) from error
    alone = gather_alone(stages, points["ahead"].record["epochs"])
    if len(alone) < LEAST:
        raise NotDrawn("sampling never ran far enough ahead for mini-batches to be gathered alone")
    low, middle, high = (float(value) for value in np.percentile(alone, [2.5, 50, 97.5]))
    gathered: Plain = {"value": middle, "low": low, "high": high, "samples": len(alone)}
    own = {kind: {key: getattr(point, key) for key in gathered} for kind, point in points.items()} | {"ahead": gathered}
    what = {"sample": "sample alone", "ahead": "gather alone", "both": "both in a pipeline"}
    rows = pd.DataFrame({"what": text, **own[kind], "run": points[kind].run} for kind, text in what.items())
    rows = rows.assign(unit="s an iteration")
    spec = SPEC["fig6"]
    canvas, axes = one_panel()
    for at, row in enumerate(rows.to_dict("records")[:2]):
        spread = {"yerr": interval(row), "error_kw": {"elinewidth": 0.8, "capsize": 2.0}}
        axes.bar(at, row["value"], 0.5, **SERIES[at].fill, **spread)
    axes.axhline(rows["value"].iloc[2], color="black", linestyle=":", linewidth=1.6, label=spec["pipeline"])
    axes.set_xticks([0, 1], list(rows["what"])[:2])
    axes.set(xlim=(-0.6, 1.6), ylim=(0, 1.15 * float(rows[["value", "high"]].max().max())))
    axes.grid(axis="x", visible=False)
    name_axes(axes, f"{BASE}: alone and together", ylabel=spec["ylabel"])
    return drawn(canvas, rows, group, spec["note"].format(len(alone)))


def in_gallery(profile: Plain, systems: list[str], over: Mapping[Any, Plain] = {"": {}}) -> Plan:
    """Plan systems at each value of an axis, in the gallery's runs."""
    short = gallery(profile)
    return grid(short, systems_of(short, systems), over)


def _in_order(group: Group) -> list[Point]:
    """Return the measured points in the order of `MODELS`: a caption takes its setting from the first point."""
    return sorted(group.done, key=lambda point: list(MODELS).index(str(point.x)))


def breakdowns(group: Group, systems: Sequence[str], more: Callable[[Point], Plain] = lambda point: {}) -> pd.DataFrame:
    """Return a row per model, system and part: seconds, and their ratio to the first system's epoch of that model.

    A model without that epoch has no rows. `more` maps a measured point to further columns. Raises NotDrawn.
    """
    rows: list[Plain] = []
    for model in MODELS:
        whole = group.at(systems[0], model)
        if whole.value is None:
            continue
        for point in (group.at(system, model) for system in systems):
            head = {"model": model, "system": point.system, "bar": f"{point.system}\n{model}"}
            if point.value is None:
                rows.append({**head, "part": PARTS[0], "seconds": None, "value": None, "status": point.status})
                continue
            found = run_breakdown(point, ORDER, PARTS[-1])
            scale = point.value / sum(found.values()) / whole.value
            tail = {"status": "ok", "epoch_s": point.value, "low": point.low, "high": point.high}
            tail |= {"speedup": whole.value / point.value, "run": point.run, **more(point)}
            seconds = [{"part": part, "seconds": found[part], "value": found[part] * scale} for part in PARTS]
            rows += [{**head, **own, **tail} for own in seconds]
    if not rows:
        raise NotDrawn(f"no measured epoch of {systems[0]} to compare with")
    return pd.DataFrame(rows)


@figure_of_runs("ginex-fig14", lambda profile: in_gallery(profile, SYSTEMS, MODELS), least=1)
def fig14(group: Group) -> Drawing:
    """Draw a stacked bar for each system and model, and the paper's range of speedups beside ginex."""
    rows = breakdowns(group, SYSTEMS).assign(paper_low=None, paper_high=None)
    spec = SPEC["fig14"]
    canvas, axes = one_panel()
    draw_stacks(rows, parts=PARTS, axes=axes, **spec["stacks"])
    look = dict(spec["paper"])
    for at, (bar, mine) in enumerate(rows.groupby("bar", sort=False)):
        model, system = mine[["model", "system"]].iloc[0]
        speedups = [row["value"] for row in paper_rows("ginex-fig14", f"{model} {system} over {BASE}")]
        if speedups:
            low, high = 1 / max(speedups), 1 / min(speedups)
            rows.loc[rows["bar"] == bar, ["paper_low", "paper_high"]] = [low, high]
            axes.errorbar(at + 0.42, (low + high) / 2, yerr=(high - low) / 2, **look)
            look.pop("label", None)
    missing = [model for model in MODELS if model not in set(rows["model"])]
    not_run = f"not run: {', '.join(missing)}" if missing else ""
    return drawn(canvas, rows, group, SPEC["note"], spec["fanout"], not_run, points=_in_order(group), order=PARTS)


def miss_ratios(point: Point) -> Plain:
    """Return misses in per cent of the requested rows, without and with the initial fills of the cache."""
    counters = [epoch["counters"] for epoch in point.epochs]
    rows, misses = (sum(one.get(name, 0) for one in counters) for name in ("rows", "misses"))
    filled = misses + sum((one.get("observed") or {}).get("initial_rows", 0) for one in counters)
    return {"miss_percent": 100 * misses / rows, "miss_percent_with_fills": 100 * filled / rows} if rows else {}


@figure_of_runs("ginex-fig15", lambda profile: in_gallery(profile, ["ginex-pg", "ginex"], MODELS), least=1)
def fig15(group: Group) -> Drawing:
    """Draw ginex with PaGraph's static cache and with its optimal one: time by part (left), miss ratios (right).

    The miss ratios are those without and with the rows that the cache begins with.
    """
    rows = breakdowns(group, ["ginex-pg", "ginex"], miss_ratios)
    canvas, (left, right) = many_panels(2, height=2.4)
    draw_stacks(rows, parts=PARTS, axes=left, **SPEC["fig15"]["stacks"])
    ratios = pd.DataFrame(
        {"group": f"{model}\n{label}", "series": system, "value": mine.get(column), "status": mine["status"]}
        for model in dict.fromkeys(rows["model"])
        for column, label in (("miss_percent", "misses"), ("miss_percent_with_fills", "+ fills"))
        for _, mine in rows[rows["model"] == model].drop_duplicates("system").iterrows()
        for system in [mine["system"]]
    )
    draw_bars(ratios, axes=right, **SPEC["fig15"]["bars"])
    return drawn(canvas, rows, group, SPEC["note"], SPEC["fig15"]["fills"], points=_in_order(group), order=PARTS)


def over_superbatches(profile: Plain) -> Plan:
    """Plan ginex at each superbatch size, or at the paper's budgets of runtime files where epochs are whole."""
    batches = int(gallery(profile)["run"].get("max_batches", 0))
    if batches:
        # The default is the third size.
        sizes = [max(1, round(batches / 2 * factor)) for factor in SPEC["superbatches"]]
        options: dict[int, Plain] = {size: {"superbatch": size} for size in values(profile, "superbatches", sizes)}
    else:
        options = {int(size.removesuffix("GB")): {"runtime_files": size} for size in SPEC["files"]}
    return in_gallery(profile, ["ginex"], {size: {"options": own} for size, own in options.items()})


@figure_of_runs("ginex-fig16", over_superbatches)
def fig16(group: Group) -> Drawing:
    """Draw time over size, both over the default's, and the paper's values; raise NotDrawn below two sizes."""
    points = sorted(group.done, key=lambda point: point.x)
    if len(points) < 2:
        raise NotDrawn("ginex finished with fewer than two superbatch sizes")
    config = points[0].record["config"]
    by_size = bool(config["options"].get("superbatch"))
    wanted = config["max_batches"] / 2 if by_size and config["max_batches"] else 100
    default = min((point.x for point in points), key=lambda size: (abs(size - wanted), size))
    whole = next(float(point.value or 0) for point in points if point.x == default)
    rows = pd.DataFrame(
        {"size": point.x, "factor": point.x / default, "epoch_s": point.value, **point.over(whole)} for point in points
    )
    stages = [point.record["summary"].get("stages_s") or {} for point in points]
    rows["switch_s"] = [spent.get("switch") for spent in stages]
    rows = rows.assign(unit="mini-batches" if by_size else "GB of runtime files", run=ids(points))
    spec = SPEC["fig16"]
    canvas, axes = one_panel()
    error = around(rows["value"], rows["low"], rows["high"])
    draw_line(axes, rows["factor"], rows["value"], error, style.look("ginex"), "ginex")
    circle = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "markeredgecolor": "black"}
    axes.plot([1.0], [1.0], linestyle="none", **circle)
    paper = paper_rows("ginex-fig16")
    xs, faster = [float(row["x"]) for row in paper], [1 - row["value"] / 100 for row in paper]
    mark_paper(axes, xs, faster, spec["paper"], markerfacecolor="none", markersize=4.0)
    axes.set_xscale("log", base=2)
    ticks = [f"{factor:g}x\n{size}" for factor, size in zip(rows["factor"], rows["size"], strict=True)]
    axes.set_xticks(list(rows["factor"]), ticks)
    axes.minorticks_off()
    axes.set_ylim(0, 1.08 * max(1.0, float(rows["high"].max())))
    name_axes(axes, spec["title"], spec["xlabel"].format(rows["unit"].iloc[0]), spec["ylabel"])
    full = [round(default * factor) for factor in SPEC["superbatches"]]
    return drawn(canvas, rows, group, left_out(list(rows["size"]), full, "superbatch of"), points=points)


def over_widths(profile: Plain) -> Plan:
    """Plan the three systems at each dimension, in the same host memory; device memory grows with the dimension.

    A row of dimension 768 is six times one of 128. A profile whose budget cannot hold a mini-batch of such rows scales
    mini-batches (`wide_batch_factor`) and budget (`wide_memory_factor`) at all dimensions.
    """
    short = gallery(profile)
    changed, runs = over_dims(short, values(profile, "wide_dims", SPEC["dims"]))
    (run,) = batch_sizes(short, values(profile, "wide_batch_factor", [1.0])[:1])
    (factor,) = values(profile, "wide_memory_factor", [1.0])
    changed["run"]["memory"] = f"+{round(host_budget(short) * factor)}"
    pages = {"io_granularity": "4096"}
    systems = [
        {**entry, "options": {**entry.get("options", {}), **(pages if entry["name"] != BASE else {})}}
        for entry in systems_of(short, SYSTEMS)
    ]
    return grid(changed, systems, {dim: {**own, **run} for dim, own in runs.items()})


def over_memory(profile: Plain) -> Plan:
    """Plan the three systems at each host budget."""
    budget = host_budget(gallery(profile))
    budgets = [round(budget * factor) for factor in values(profile, "memory_steps", SPEC["memory_factors"])]
    return in_gallery(profile, SYSTEMS, {size: {"memory": f"+{size}"} for size in budgets})


def over_batches(profile: Plain) -> Plan:
    """Plan the three systems at each mini-batch size, with the same number of seed nodes per epoch."""
    sizes = batch_sizes(gallery(profile), values(profile, "batch_factors", SPEC["batch_factors"]))
    return in_gallery(profile, SYSTEMS, {run["batch_size"]: run for run in sizes})


def speedups(figure_id: str, plan: Planned, *, axis: Plain, title: str, note: str = "") -> None:
    """Add a figure to the catalogue with bars of each system's speedup over PyG+.

    Args:
        plan, axis, title: as in `kinds.lines`; `note`: text for the caption.
    """

    @figure_of_runs(figure_id, plan)
    def draw(group: Group) -> Drawing:
        own, rows = Axis(**axis), speedup_rows(group)
        ylabel = f"speedup over {BASE}"
        canvas, axes = draw_bars(rows, title=title, ylabel=ylabel, xlabel=own.label, tick=own.tick, numbers=".2f")
        axes.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
        return drawn(canvas, rows, group, note, own.missing(group), points=group.done)


def speedup_rows(group: Group) -> pd.DataFrame:
    """Return PyG+'s epoch time over each system's at each x, with the widest interval; raise NotDrawn without PyG+."""
    rows: list[Plain] = []
    for x in dict.fromkeys(point.x for point in group.points):
        base = group.at(BASE, x)
        for point in (group.at(system, x) for system in OTHERS):
            row: Plain = {"group": x, "series": point.system, "value": None, "low": None, "high": None}
            row["status"] = f"{BASE}: {base.status}" if base.value is None else point.status
            if base.value and point.value:
                row["value"] = base.value / point.value
                row["low"] = float(base.low or base.value) / float(point.high or point.value)
                row["high"] = float(base.high or base.value) / float(point.low or point.value)
                row |= {"base_s": base.value, "epoch_s": point.value, "run": point.run, "base_run": base.run}
            rows.append(row)
    table = pd.DataFrame(rows)
    if table.empty or table["value"].isna().all():
        raise NotDrawn(f"no x at which {BASE} and another system were both measured")
    return table


speedups("ginex-fig17", over_widths, **SPEC["fig17"])
speedups("ginex-fig18", over_memory, **SPEC["fig18"])
speedups("ginex-fig19", over_batches, **SPEC["fig19"])


@figure_of_runs("ginex-tab4", lambda profile: in_gallery(profile, SYSTEMS), least=1)
def tab4(group: Group) -> Sheet:
    """Return rows of the paper and of each measured system; raise NotDrawn without pyg+ and another system."""
    facts = paper_table("ginex-tab4")
    if not facts:
        raise NotDrawn("the paper's prices are not there (harness/published/ginex-tab4.csv)")
    base = group.at(BASE)
    if base.value is None or len(group.done) < 2:
        raise NotDrawn(f"{BASE} and another system of the paper were not both measured")
    mean, least, most = (facts["all"][f"ginex over pyg+ {name}"] for name in ("mean", "least", "most"))
    rows: list[Plain] = []
    for dataset in sorted(set(facts) - {"all", "Ginex"}):
        own = facts[dataset]
        known, reduction = own["performance"], own["hourly cost reduction"]
        cost: Plain = {"hourly cost": facts["Ginex"]["hourly cost"], "cost reduction": reduction}
        head: Plain = {"dataset": dataset, "side": "paper", "system": "DistDGL, 8 nodes"}
        distributed = {"hourly cost": own["distdgl hourly cost"], "cost reduction": 1.0}
        per_dollar = own["performance per dollar"]
        rows += [
            {**head, **distributed, "performance": 1.0, "performance/$": 1.0},
            {**head, "system": "Ginex", **cost, "performance": known, "performance/$": per_dollar},
        ]
        for point in [point for point in map(group.at, SYSTEMS) if point.value is not None]:
            # A system's speed over the distributed run's, by the paper's speed of Ginex over DistDGL and over PyG+.
            speed = known * (base.value / float(point.value or 1))
            row = {**head, "system": point.system, "side": "measured / modelled", **cost, "performance": speed / mean}
            row |= {"performance/$": speed / mean * reduction, "least": speed / most * reduction}
            row |= {"most": speed / least * reduction, "epoch_s": point.value, "base_epoch_s": base.value}
            rows.append({**row, "run": point.run})
    note = SPEC["tab4"]["note"].format(mean=mean, least=least, most=most)
    return sheet(rows, SPEC["tab4"]["columns"], group, note, points=group.done)
