"""Data Tiering Figures 7 and 9 (accesses covered by top-ranked rows), 8, 10 and 11 (epochs with rows on the device)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain, Plan, grid, joined
from harness.compare.points import Group, Point
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, Sheet, drawn, figure, figure_of_runs, paper_rows, specs
from harness.figures.draw.bars import draw_bars, draw_stacks
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.draw.captions import left_out, study_caption
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import around, draw_line, legend_above, many_panels, mark_paper, name_axes
from harness.figures.draw.style import SERIES, Looks, look
from harness.figures.grids import feature_bytes, gallery, study_of, systems_of, values
from harness.records.study import StudyRecord
from harness.studies.accesses import MEASURED
from harness.studies.base import StudyNeed
from workloads.units import format_bytes, parse_bytes

SPEC = specs(__file__)
#: The paper's comparison: systems, and their names in its figures.
SYSTEMS: dict[str, str] = SPEC["systems"]
TIERING = "data-tiering"
HOT_SHARES: list[float] = SPEC["hot_shares"]
# Columns of the papers' usual rows.
_NARROW = 128
#: Share of hot rows in Fig. 8.
DEFAULT_SHARE = 0.1
SCORES: dict[str, str] = SPEC["scores"]
HOPS: list[int] = SPEC["hops"]


def host_profile(profile: Plain) -> Plain:
    """Return the gallery's profile with all features in host memory, and device memory for the largest hot share, too.

    Epochs are whole: with all data in memory a short one would end too soon to be timed. A profile may set another
    dataset and mini-batch size (`tiering_dataset`, `tiering_batch`), so that the bus counts beside sampling.
    """
    short = gallery(profile)
    run = short["run"]
    run |= {"memory": "none", "max_batches": 0}
    (run["dataset"],) = values(profile, "tiering_dataset", [run["dataset"]])
    (run["batch_size"],) = values(profile, "tiering_batch", [run["batch_size"]])
    if run.get("device_memory") is not None:
        run["device_memory"] = parse_bytes(run["device_memory"]) + round(max(HOT_SHARES) * feature_bytes(short))
    return short


def hot_rows(profile: Plain, shares: Sequence[float]) -> Plan:
    """Plan data-tiering with each share of the rows hot; x is the share."""
    over = {share: {"memory": "none", "options": {"cache": f"{share:g}x"}} for share in shares}
    return grid(profile, systems_of(profile, [TIERING]), over)


def chosen_rows(config: Mapping[str, Any]) -> str:
    """Return caption text on rows chosen wide enough for the bus to matter; empty for rows of usual width."""
    dim = int(config["dataset"]["dim"])
    return str(SPEC["wide"].format(dim)) if dim > _NARROW else ""


def three_ways(profile: Plain) -> Plan:
    """Plan the three systems without a cap, tiering with a tenth of the rows hot."""
    changed = host_profile(profile)
    others = systems_of(changed, [name for name in SYSTEMS if name != TIERING])
    return joined([grid(changed, others, {DEFAULT_SHARE: {"memory": "none"}}), hot_rows(changed, [DEFAULT_SHARE])])


@figure_of_runs("tiering-fig8", three_ways, least=1)
def fig8(group: Group) -> Drawing:
    """Draw epoch time (left, speedups and the paper's below) and its parts (right); raise NotDrawn without an epoch."""
    points = {label: group.at(system) for system, label in SYSTEMS.items()}
    rows, spec = _epochs(points), SPEC["fig8"]
    canvas, (left, right) = many_panels(2, height=2.4)
    draw_bars(rows, looks=lambda label: look(points[label].system), axes=left, **spec["bars"])
    left.set_xticks([0], [""])
    left.set_xlabel(_compared(rows), fontsize=6.5)
    measured = group.done
    if not measured:
        raise NotDrawn("none of the systems finished an epoch")
    order, parts = list(spec["order"].items()), [*spec["order"], spec["rest"]]
    stacks = pd.DataFrame(
        {"bar": label, "part": part, "value": seconds, "run": point.run}
        for label, point in points.items()
        if point.value is not None
        for part, seconds in run_breakdown(point, order, spec["rest"]).items()
    )
    draw_stacks(stacks, parts=parts, share=True, axes=right, **spec["stacks"])
    left.legend(*left.get_legend_handles_labels(), loc="upper right", fontsize=6.0)
    legend_above(canvas, [right], parts)
    data = pd.concat([rows.assign(panel="time"), stacks.assign(panel="parts")], ignore_index=True)
    hot = f"{100 * DEFAULT_SHARE:g} % of the rows hot in tiering"
    wide = chosen_rows(measured[0].record["config"])
    return drawn(canvas, data, group, hot, spec["note"], wide, points=measured)


def _epochs(points: Mapping[str, Point]) -> pd.DataFrame:
    rows: list[Plain] = []
    before: float | None = None
    for label, point in points.items():
        rows.append({"group": "epoch", "series": label, "system": point.system, **point.cells})
        if point.value is not None:
            rows[-1] |= {"speedup_over_previous": before / point.value if before else None, "run": point.run}
        before = point.value
    return pd.DataFrame(rows)


def _compared(rows: pd.DataFrame) -> str:
    """Return the speedup of each step, ours and the paper's, as text below the bars."""
    known = rows.set_index("series").get("speedup_over_previous", pd.Series(np.nan, index=rows["series"]))
    lines = []
    for series, label in (("zero-copy over CPU gather", "zero-copy"), ("tiering over zero-copy", "tiering")):
        ours = f"{known[label]:.2f}x" if pd.notna(known[label]) else "not measured"
        theirs = [row["value"] for row in paper_rows("tiering-fig8", series)]
        lines.append(f"{series}: {ours}" + (f" (paper {min(theirs):g}–{max(theirs):g}x)" if theirs else ""))
    return "\n".join(lines)


def loaded_bytes(point: Point) -> float | None:
    """Return the median bytes of feature rows that crossed the bus in a measured epoch, None if not counted."""
    loaded = [epoch["counters"].get("bytes_loaded") for epoch in point.epochs]
    return float(np.median(loaded)) if loaded and all(value is not None for value in loaded) else None


@figure_of_runs(
    "tiering-fig10", lambda profile: hot_rows(host_profile(profile), values(profile, "hot_shares", HOT_SHARES))
)
def fig10(group: Group) -> Drawing:
    """Draw bus bytes and time over those without hot rows, and the paper's; raise NotDrawn without that run."""
    points = {float(point.x): point for point in group.done}
    none = points.get(0.0)
    if none is None:
        raise NotDrawn("no run without hot rows to compare with")
    whole, bus = float(none.value or 0), loaded_bytes(none)
    if not bus:
        raise NotDrawn("the run without hot rows did not count what it loaded")
    rows = pd.DataFrame([_over_none(share, points[share], whole, bus) for share in sorted(points)])
    canvas, panels = many_panels(2, height=2.3)
    said = {"bus": format_bytes(int(bus)), "whole": whole}
    for axes, (column, series, title, ylabel) in zip(panels, SPEC["fig10"]["panels"], strict=True):
        error = around(rows[column], rows["low"], rows["high"]) if column == "time_percent" else None
        plain = {"markeredgecolor": None, "markeredgewidth": None}
        draw_line(axes, rows["hot_percent"], rows[column], error, look(TIERING), TIERING, **plain)
        known = paper_rows("tiering-fig10", series)
        xs, ys = [float(row["x"]) for row in known], [100 - row["value"] for row in known]
        mark_paper(axes, xs, ys, "paper", zorder=5)
        axes.set_ylim(0, 108)
        name_axes(axes, title.format(**said), "rows in device memory (%)", ylabel)
    every, shown = ([f"{share:.0%}" for share in shares] for shares in (HOT_SHARES, sorted(points)))
    notes = [SPEC["fig10"]["note"], left_out(shown, every, "hot rows"), chosen_rows(none.record["config"])]
    return drawn(canvas, rows, group, *notes, points=list(points.values()), order=[TIERING])


def _over_none(share: float, point: Point, whole: float, bus: float) -> Plain:
    loaded, value = loaded_bytes(point), float(point.value or 0)
    ends = {"time_percent": value, "low": float(point.low or value), "high": float(point.high or value)}
    row = {"hot_percent": 100 * share, "epoch_s": value, "bytes_loaded": loaded}
    row |= {name: 100 * seconds / whole for name, seconds in ends.items()}
    return {**row, "traffic_percent": None if loaded is None else 100 * loaded / bus, "run": point.run}


@figure("tiering-fig11")
def fig11(evidence: Evidence) -> Sheet:
    """Raise NotDrawn: in this figure devices read each other's memory, and one CPU samples for all devices.

    An emulated device is private to its process, so one device per rank would show neither.
    """
    raise NotDrawn(SPEC["fig11"])


def coverage_needs(profile: Plain, fanouts: Sequence[Sequence[int]], batches: int, **more: Any) -> list[StudyNeed]:
    """Return the coverage study of the profile's graph for each fan-out.

    Args:
        batches: number of mini-batches of each study.
    """
    short = gallery(profile)
    shared = {"max_batches": batches, **more}
    return [study_of(short, "access-coverage", **shared, fanout=list(fanout)) for fanout in fanouts]


def coverage_studies(evidence: Evidence, fanouts: Sequence[Sequence[int]], scores: Sequence[str]) -> list[StudyRecord]:
    """Return the newest coverage study of each fan-out, of the newest study's dataset; raise NotDrawn without any."""
    wanted = [list(fanout) for fanout in fanouts]
    found = evidence.all_studies(
        "access-coverage", where=lambda params: params["fanout"] in wanted and set(scores) <= set(params["scores"])
    )
    newest = max(found, key=lambda record: record.started_at).dataset
    if newest is None:
        raise NotDrawn("the studies of access coverage name no dataset")
    kept = {tuple(record.params["fanout"]): record for record in found if record.dataset == newest}
    return [kept[tuple(fanout)] for fanout in wanted if tuple(fanout) in kept]


def coverage_rows(record: StudyRecord, score: str, label: str) -> list[Plain]:
    """Return a row for each share of the rows that a score ranks first: per cent of the rows and of the accesses."""
    head = {"fanout": ",".join(map(str, record.params["fanout"])), "score": score, "series": label}
    shares = zip(record.result["shares"], record.result["coverage"][score], strict=True)
    tail = {"accesses": record.result["accesses"]}
    return [{**head, "x": 100 * share, "y": 100 * value, **tail} for share, value in shares]


def draw_coverage(axes: Any, rows: pd.DataFrame, title: str, looks: Looks, paper: list[Plain], label: str) -> None:
    """Draw a panel of accesses covered over rows, published values as hollow diamonds."""
    # Panels share their y axis: the first one has its label.
    labels = SPEC["coverage"] if axes is axes.figure.axes[0] else {**SPEC["coverage"], "ylabel": ""}
    draw_curves(rows, title=title, looks=looks, axes=axes, **labels)
    mark_paper(axes, [float(row["x"]) for row in paper], [row["value"] for row in paper], label, zorder=6)
    axes.set(xlim=(0, 60), ylim=(0, 103))


def _at_ten(record: StudyRecord) -> str:
    """Return caption text with the coverage of a tenth of the rows, since lines may overlap in the drawing."""
    shares = record.result["shares"]
    if 0.1 not in shares:
        return ""
    known = {**SCORES, MEASURED: "accesses themselves"}
    at = shares.index(0.1)
    said = ", ".join(f"{label} {100 * record.result['coverage'][score][at]:.1f}" for score, label in known.items())
    return str(SPEC["fig7"]["note"].format(said))


@figure("tiering-fig7", studies=lambda profile: coverage_needs(profile, SPEC["fanouts"], SPEC["batches"]))
def fig7(evidence: Evidence) -> Drawing:
    """Draw one panel per fan-out, with the ranking by actual accesses as the upper bound."""
    spec, bound = SPEC["fig7"], SPEC["fig7"]["bound"]
    records = coverage_studies(evidence, SPEC["fanouts"], list(SCORES))
    canvas, panels = many_panels(len(records), wide=len(records) > 1, height=2.4, sharey=True)
    looks, paper = _looks(SCORES.values()), paper_rows("tiering-fig7")
    tables = []
    for axes, record in zip(panels, records, strict=True):
        scores = {**SCORES, MEASURED: bound}
        rows = pd.DataFrame([row for score, label in scores.items() for row in coverage_rows(record, score, label)])
        tables.append(rows)
        best = rows[rows["score"] == MEASURED]
        axes.plot(best["x"], best["y"], color="#999999", linewidth=0.9, label=bound)
        shown, title = rows[rows["score"] != MEASURED], f"fan-out {rows['fanout'].iloc[0]}"
        draw_coverage(axes, shown, title, looks, paper, spec["paper"])
    reduced = left_out([record.params["fanout"] for record in records], SPEC["fanouts"], "fan-out")
    text = " ".join(study_caption(record, _at_ten(record)) for record in records) + (f" {reduced}." if reduced else "")
    return drawn(canvas, pd.concat(tables, ignore_index=True), text, order=list(SCORES.values()))


def _looks(labels: Iterable[str]) -> Looks:
    return dict(zip(labels, SERIES, strict=False)).__getitem__


def deep(profile: Plain) -> list[StudyNeed]:
    """Return the coverage studies of the profile's graph, one per depth."""
    fanouts = [[10] * hops for hops in values(profile, "hops", HOPS)]
    return coverage_needs(profile, fanouts, SPEC["deep_batches"], scores=list(SPEC["fig9"]["panels"]))


@figure("tiering-fig9", studies=deep)
def fig9(evidence: Evidence) -> Drawing:
    """Draw one panel per score, one line per depth, the paper's values of five hops as hollow marks."""
    scores = SPEC["fig9"]["panels"]
    records = coverage_studies(evidence, [[10] * hops for hops in HOPS], scores)
    depths = {f"{len(record.params['fanout'])} hops": record for record in records}
    canvas, panels = many_panels(len(scores), height=2.4, sharey=True)
    tables, looks = [], _looks(depths)
    for axes, score in zip(panels, scores, strict=True):
        rows = pd.DataFrame(row for depth, record in depths.items() for row in coverage_rows(record, score, depth))
        tables.append(rows)
        draw_coverage(axes, rows, SCORES[score], looks, paper_rows("tiering-fig9", score), "paper, 5 hops")
    reached = "; ".join(
        f"{depth}: {record.result['accesses'] / max(1, record.result['batches']):,.0f} rows a mini-batch"
        for depth, record in depths.items()
    )
    reduced = left_out([len(record.params["fanout"]) for record in records], HOPS, "hops")
    data = pd.concat(tables, ignore_index=True)
    return drawn(canvas, data, records[-1], f"fan-out 10 at every hop, {reached}", reduced, order=list(depths))
