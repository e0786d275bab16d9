"""PaGraph's epochs on one device: Figures 4, 11, 12, 14, 19 and 20, Tables 1 and 4, and the parts of an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain, Plan, grid, joined
from harness.compare.points import Group, Point
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, Sheet, drawn, figure, figure_of_runs, ids, paper_table, sheet, specs
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars, draw_stacks
from harness.figures.draw.breakdown import part_rows, run_breakdown
from harness.figures.draw.captions import left_out
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels, mark_range
from harness.figures.grids import values
from harness.figures.pagraph.devices import NOTE as DEVICES_NOTE
from harness.figures.pagraph.devices import draw_rates, on_devices, rate_rows
from harness.figures.pagraph.grid import FAMILY, HIDDEN, LAYERWISE, NAMES, SAMPLERS, by_model, device_bytes, setting

SPEC = specs(__file__)
PARTS: list[str] = SPEC["parts"]
COMPUTE, EXPOSED, OTHER, HIDDEN_LOADING = PARTS
LOADING = ("extract", "transfer")
# Space for a cache of all rows, its reserve and the buffers beside it.
DEVICE_SHARE = 1.25
#: Run settings of both ways of sampling, by their names in the figures.
BY_SAMPLER: dict[str, Plain] = {SAMPLERS["neighbor"]: {}, SAMPLERS["layerwise"]: LAYERWISE}


def epoch_parts(point: Point) -> dict[str, float]:
    """Return mean seconds of an epoch by part, as `run_breakdown`; all but hidden loading sum to its wall time."""
    parts = run_breakdown(point, [(COMPUTE, ["train"]), (EXPOSED, LOADING)], OTHER)
    loading = run_breakdown(point, [("loading", LOADING)], "rest")["loading"]
    return {**parts, HIDDEN_LOADING: max(0.0, loading - parts[EXPOSED])}


def loading_share(point: Point) -> float:
    """Return loading over loading and computation, in percent, without sampling, which runs beside both (Fig. 4)."""
    parts = epoch_parts(point)
    loading = parts[EXPOSED] + parts[HIDDEN_LOADING]
    return float(100.0 * loading / max(loading + parts[COMPUTE], np.finfo(float).tiny))


def stack_rows(points: Sequence[Point], label: str) -> pd.DataFrame:
    """Return rows for stacks: bar (system), part, value (s); a point without a value has its status instead."""
    rows = [row for p in points for row in part_rows(p, PARTS, epoch_parts, panel=label, bar=p.system)]
    return pd.DataFrame(rows)


def speedup_rows(group: Group) -> pd.DataFrame:
    """Return rows for bars: group (model), series (system), value (s), interval, status, `speedup` over DGL."""
    rows = []
    for model in [name for name in HIDDEN if any(point.x == name for point in group.points)]:
        base = group.at("dgl", model).value
        for point in (group.at(system, model) for system in style.ordered(group.systems())):
            row: Plain = {"group": NAMES[model], "series": point.system, **point.cells}
            row["speedup"] = base / point.value if point.value and base else None
            rows.append({**row, "run": point.run})
    return pd.DataFrame(rows)


def with_ranges(rows: pd.DataFrame, figure_id: str) -> pd.DataFrame:
    """Add columns with the published range of each bar's speed-up, None without one, and return the rows."""
    bars, paper = list(zip(rows["series"], rows["group"], strict=True)), paper_table(figure_id)
    for end in ("low", "high"):
        rows[f"paper_{end}"] = [paper.get(series, {}).get(f"{group} {end}") for series, group in bars]
    return rows


def draw_speedups(axes: Any, rows: pd.DataFrame) -> None:
    """Draw bars of `speedup`, the paper's range as a line with hollow ends at a bar's right edge."""
    shown = rows.assign(value=rows["speedup"], low=None, high=None)
    draw_bars(shown, axes=axes, **SPEC["speedups"])
    groups, series = list(dict.fromkeys(rows["group"])), list(dict.fromkeys(rows["series"]))
    width = 0.8 / len(series)
    label: str | None = SPEC["paper"]
    for row in rows.to_dict("records"):
        ends = [row["paper_low"], row["paper_high"]]
        if not pd.isna(ends).any():
            x = groups.index(row["group"]) + (series.index(row["series"]) - (len(series) - 1) / 2 + 0.3) * width
            mark_range(axes, [x, x], ends, label, markeredgecolor="black", zorder=5)
            label = None


def of_gcn(group: Group) -> list[Point]:
    """Return the points of the four systems with GCN, in the paper's order."""
    return [point for point in (group.at(name, "gcn") for name in FAMILY) if point.record]


@figure_of_runs("pagraph-fig4", lambda profile: grid(setting(profile), ["dgl"], BY_SAMPLER), least=1)
def fig4(group: Group) -> Drawing:
    """Draw an epoch by part (left), loading's share with the paper's (right); raise NotDrawn without an epoch."""
    points = group.done
    if not points:
        raise NotDrawn("no run of dgl with the paper's workload (pagraph-fig4)")
    parts = pd.concat([stack_rows([point], point.x).assign(bar=point.x) for point in points], ignore_index=True)
    share = pd.DataFrame({"group": point.x, "series": "dgl", "value": loading_share(point)} for point in points)
    paper = paper_table("pagraph-fig4")
    share["paper"] = [next(iter(paper.get(point.x, {}).values()), None) for point in points]
    share["run"] = ids(points)
    canvas, panels = many_panels(2)
    hidden = parts["part"] == HIDDEN_LOADING
    shown = parts if parts.loc[hidden, "value"].sum() else parts[~hidden]
    draw_stacks(shown, parts=PARTS, axes=panels[0], **SPEC["fig4"]["stacks"])
    draw_bars(share, axes=panels[1], **SPEC["fig4"]["bars"])
    panels[1].set_ylim(0, 105)
    data = pd.concat([parts, share.rename(columns={"group": "bar"}).assign(part="loading share (%)")])
    notes = [SPEC["note"], "paper: livejournal", "not run: the other way of sampling" if len(points) < 2 else ""]
    return drawn(canvas, data, group, *notes, points=points, runs=ids(points), order=[*PARTS, "dgl", "paper"])


@figure_of_runs("pagraph-fig11", lambda profile: by_model(profile, FAMILY), least=1)
def fig11(group: Group) -> Drawing:
    """Draw epoch times (left) and speed-ups over DGL with the paper's ranges (right)."""
    rows = with_ranges(speedup_rows(group), "pagraph-fig11")
    canvas, panels = many_panels(2)
    draw_bars(rows, axes=panels[0], **SPEC["fig11"]["bars"])
    draw_speedups(panels[1], rows)
    return drawn(canvas, rows, group, SPEC["fig11"]["note"])


@figure_of_runs("pagraph-fig12", lambda profile: by_model(profile, FAMILY, "gcn"), least=1)
def fig12(group: Group) -> Drawing:
    """Draw one stacked bar per system, with the loading hidden behind computation; raise NotDrawn without DGL."""
    points = of_gcn(group)
    if not any(point.system == "dgl" and point.value is not None for point in points):
        raise NotDrawn("no measured run of dgl at gcn with the paper's workload")
    rows = stack_rows(points, "gcn")
    canvas, _ = draw_stacks(rows, parts=PARTS, **SPEC["fig12"]["stacks"])
    return drawn(canvas, rows, group, SPEC["note"], points=points, runs=ids(points))


def over_shares(profile: Plain) -> Plan:
    """Plan pagraph with each ranking at each cached share, on a device that can hold all rows."""
    rankings = [
        {"name": "pagraph", "series": label, "options": {"ranking": ranking}}
        for ranking, label in SPEC["rankings"].items()
    ]
    shares = values(profile, "cached_shares", SPEC["shares"])
    base = setting(profile, device_memory=device_bytes(profile, DEVICE_SHARE))
    return grid(base, rankings, {100.0 * share: {"options": {"cache": f"{share:g}x"}} for share in shares})


@figure_of_runs("pagraph-fig14", over_shares)
def fig14(group: Group) -> Drawing:
    """Draw epoch time over the cached share, a curve for each ranking."""
    rows, order = group.frame().rename(columns={"system": "series", "value": "y"}), list(SPEC["rankings"].values())
    rows = rows.sort_values("x", kind="stable")
    data = rows.sort_values("series", key=lambda labels: labels.map(order.index), kind="stable", ignore_index=True)
    canvas, _ = draw_curves(data, **SPEC["fig14"]["curves"])
    shares = sorted({x / 100.0 for x in data["x"]})
    return drawn(canvas, data, group, left_out(shares, SPEC["shares"], "cached shares"))


def over_neighbours(profile: Plain) -> Plan:
    """Plan the four systems with GCN at each number of sampled neighbours."""
    counts = values(profile, "neighbours", SPEC["neighbours"])
    return grid(setting(profile), FAMILY, {count: {"fanout": [count, count]} for count in counts})


@figure_of_runs("pagraph-fig19", over_neighbours)
def fig19(group: Group) -> Drawing:
    """Draw epoch time over the number of sampled neighbours, one line per system on logarithmic axes."""
    rows = group.frame().rename(columns={"system": "series", "value": "y"})
    base = {point.x: point.value for point in group.points if point.system == "dgl"}
    rows["speedup"] = [base[x] / y if base.get(x) and y else None for x, y in zip(rows["x"], rows["y"], strict=True)]
    canvas, _ = draw_curves(rows, **SPEC["fig19"]["curves"])
    reduced = left_out(sorted(set(rows["x"])), SPEC["neighbours"], "neighbours")
    return drawn(canvas, rows, group, "both layers take as many neighbours", reduced)


def layered(profile: Plain) -> Plan:
    """Plan Fig. 11's runs with layer-wise sampling."""
    return by_model(profile, FAMILY, **LAYERWISE)


def layered_devices(profile: Plain) -> Plan:
    """Plan Fig. 15's GCN runs with layer-wise sampling."""
    return on_devices(profile, ["gcn"], ["pagraph"], **LAYERWISE)


@figure("pagraph-fig20", layered, beside=lambda profile: [layered_devices(profile).experiment("pagraph-fig20-devices")])
def fig20(evidence: Evidence) -> Drawing:
    """Draw speed-ups over DGL, GCN's epoch by part, throughput over devices; raise NotDrawn with no speed-up."""
    group = evidence.points("pagraph-fig20", layered, least=1)
    speedups = with_ranges(speedup_rows(group), "pagraph-fig20")
    if speedups["speedup"].notna().sum() < 2:
        raise NotDrawn("no measured runs of dgl and another system with layer-wise sampling (pagraph-fig20)")
    parts = stack_rows(of_gcn(group), "gcn")
    canvas, panels = many_panels(3)
    draw_speedups(panels[0], speedups)
    panels[0].set_title("(a) Speed-up over DGL", loc="left")
    draw_stacks(parts, parts=PARTS, axes=panels[1], **SPEC["fig20"]["stacks"])
    runs = group.runs()
    try:
        several = evidence.points("pagraph-fig20", layered_devices)
        rates = rate_rows(several)
        draw_rates(rates, "(c) Throughput", "one device only", axes=panels[2])
        runs = list(dict.fromkeys([*runs, *several.runs()]))
    except NotDrawn:
        rates = pd.DataFrame()
        panels[2].text(0.5, 0.5, "several devices: not run", transform=panels[2].transAxes, ha="center", fontsize=6)
    data = pd.concat([speedups.assign(panel="a"), parts.assign(panel="b"), rates.assign(panel="c")], ignore_index=True)
    notes = [f"(b): {SPEC['note']}", f"(c): {DEVICES_NOTE}"]
    return drawn(canvas, data, group, *notes, runs=runs, order=[*FAMILY, *PARTS])


#: The systems of Table 4.
SYSTEMS = ["dgl", "pagraph"]


def models_and_samplers(profile: Plain) -> Plan:
    """Plan DGL with both models and both samplers."""
    plans = []
    for sampler, way in BY_SAMPLER.items():
        over = {model: {"model": model, "hidden": HIDDEN[model], **way} for model in reversed(HIDDEN)}
        plans.append(grid(setting(profile), ["dgl"], over, panel=sampler))
    return joined(plans)


def _utilisation(point: Point) -> Plain:
    """Return the row of one model and sampler, with the paper's numbers."""
    record, model = point.record, NAMES[str(point.x)]
    busy, have = record["summary"].get("accelerator_utilisation"), record["config"].get("device_memory_bytes")
    buffers = [item["bytes"] for item in record["memory"]["plan"] if item["tier"] == "device"]
    row = {"model": model, "sampling": point.panel, "computation (%)": None if busy is None else 100.0 * busy}
    row |= {"memory (%)": 100.0 * sum(buffers) / have if have and buffers else None, "run": point.run}
    paper = paper_table("pagraph-tab1").get(f"{model} {point.panel}", {})
    return {**row, **{f"{what}, paper (%)": paper.get(what) for what in ("computation", "memory")}}


@figure_of_runs("pagraph-tab1", models_and_samplers, least=1)
def tab1(group: Group) -> Sheet:
    """Return one row per model and sampler; raise NotDrawn without a measured epoch."""
    points = group.done
    if not points:
        raise NotDrawn("no run of dgl with the paper's workload (pagraph-tab1)")
    rows, spec = [_utilisation(point) for point in points], SPEC["tab1"]
    return sheet(rows, spec["columns"], group, spec["note"], points=points, runs=ids(points))


def loaded(epoch: Mapping[str, Any]) -> float | None:
    """Return the bytes that an epoch copied to the device, None if not counted."""
    value = epoch["counters"].get("bytes_loaded")
    return None if value is None else float(value)


@figure_of_runs("pagraph-tab4", lambda profile: by_model(profile, SYSTEMS, "gcn"), loaded, least=1)
def tab4(group: Group) -> Sheet:
    """Return one measured row, then the paper's; raise NotDrawn without loaded bytes of DGL and PaGraph."""
    points = [group.at(name, "gcn") for name in SYSTEMS]
    missing = [point.system for point in points if point.value is None]
    if missing:
        raise NotDrawn(f"no run of {', '.join(missing)} with the paper's workload that counted what it loaded")
    dgl, pagraph = (float(point.value or 0.0) for point in points)
    facts = points[1].record["facts"]
    head = {"dataset": points[0].record["config"]["dataset"]["name"], "dgl": dgl, "pagraph": pagraph}
    cached = 100.0 * facts["cached_rows"] / facts["table_rows"] if "cached_rows" in facts else None
    saved = 100.0 * (1.0 - pagraph / dgl) if dgl else None
    rows: list[Plain] = [{**head, "saved (%)": saved, "cached (%)": cached, "source": "measured"}]
    for name, own in paper_table("pagraph-tab4").items():
        head = {"dataset": name, **{system: 10**9 * own[system] for system in SYSTEMS}}
        rows.append({**head, "saved (%)": own["saved"], "cached (%)": own["cached"], "source": "paper"})
    note = SPEC["tab4"]["note"].format(points[0].epochs[0]["batches"])
    return sheet(rows, SPEC["tab4"]["columns"], group, NAMES["gcn"], note, points=points, runs=ids(points))
