"""DiskGNN Figures 13 and 14: disk space of packing over memory, and over fan-out and batch size."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Figure, Plain, add_caption, gallery, no_runs, register, study_caption, values
from harness.figures.diskgnn.grid import graphs, percent, planning_needs
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.looks import named_looks
from harness.figures.draw.panels import many_panels
from harness.records.study import StudyRecord
from harness.studies.base import StudyNeed

SHARES = [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5]
FANOUTS = [[10, 15], [10, 15, 20]]
FACTORS = [0.5, 1.0, 2.0]
#: Share of memory in all experiments of the paper that do not vary it.
USUAL_SHARE = 0.1


def studies_fig13(profile: Plain) -> list[StudyNeed]:
    """Return the study of one epoch on each graph, at all shares of memory."""
    return planning_needs(profile, "disk-space", memory_shares=SHARES)


def studies_fig14(profile: Plain) -> list[StudyNeed]:
    """Return studies of the flat graph at the usual share of memory: the paper's fan-outs, scaled batch sizes."""
    flat = graphs(profile)[1:]
    size = int(gallery(profile)["run"]["batch_size"])
    needs = []
    for fanout in FANOUTS:
        needs += planning_needs(profile, "disk-space", datasets=flat, memory_shares=[USUAL_SHARE], fanout=fanout)
    for factor in values(profile, "batch_factors", FACTORS):
        own = max(1, round(size * factor))
        needs += planning_needs(
            profile, "disk-space", datasets=flat, memory_shares=[USUAL_SHARE], fanout=FANOUTS[-1], batch_size=own
        )
    return needs


def draw_fig13(evidence: Evidence) -> Drawing:
    """Draw the disk space of packing without a limit over memory, one line per graph."""
    records = evidence.all_studies("disk-space", where=lambda params: params["memory_shares"] == SHARES)
    rows = [
        {"series": _name(record), "x": 100 * point["memory_share"], "y": point["packed_x"], "least": point["least_x"]}
        for record in records
        for point in record.result["points"]
    ]
    table = pd.DataFrame(rows)
    canvas, axes = draw_curves(
        table,
        title="Disk space over memory",
        xlabel="rows in memory (% of all)",
        ylabel="packed rows over the features (x)",
        looks=named_looks([_name(record) for record in records]),
    )
    axes.axhline(2.0, color="black", linewidth=0.8, linestyle=":")
    axes.axvline(20.0, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=0)
    text = study_caption(
        records[0],
        f"one epoch, no limit; {_accesses(records)}; dotted: below 2x from 20 % on, as the paper has it; "
        "feature rows alone",
    )
    add_caption(canvas, text)
    return Drawing(canvas, table, text)


def draw_fig14(evidence: Evidence) -> Drawing:
    """Draw disk space over fan-out (left) and batch size (right); raise NotDrawn with only one of each."""
    records = evidence.all_studies("disk-space", where=lambda params: params["memory_shares"] == [USUAL_SHARE])
    usual = _usual_size(records)
    by_fanout = {
        ",".join(map(str, r.params["fanout"])): r for r in _ordered(records) if r.params["batch_size"] == usual
    }
    by_size = {str(r.params["batch_size"]): r for r in _ordered(records) if r.params["fanout"] == FANOUTS[-1]}
    if len(by_fanout) < 2 and len(by_size) < 2:
        raise NotDrawn("the study disk-space was made for one fan-out and batch size only")
    rows = [
        {
            "panel": panel,
            "group": x,
            "series": _name(record),
            "value": record.result["points"][0]["packed_x"],
            "rows_per_batch": record.result["rows_per_batch"],
            "batches": record.result["batches"],
        }
        for panel, found in (("fan-out", by_fanout), ("batch size", by_size))
        for x, record in found.items()
    ]
    table = pd.DataFrame(rows)
    canvas, panels = many_panels(2, wide=False, height=2.3)
    for axes, panel in zip(panels, ("fan-out", "batch size"), strict=True):
        mine = table[table["panel"] == panel]
        draw_bars(
            mine,
            title=f"over {panel}",
            ylabel="over the features (x)",
            xlabel=panel,
            numbers=".2f",
            axes=axes,
            looks=named_looks([_name(records[0])]),
        )
    ratio = ""
    if len(by_fanout) > 1:
        first, last = (found.result["points"][0]["packed_x"] for found in (by_fanout[key] for key in _ends(by_fanout)))
        ratio = f"; the third hop: {last / first:.1f}x (paper 18.8x)" if first else ""
    shown = next(reversed(by_fanout.values()))
    text = study_caption(
        shown,
        f"one epoch, no limit, {percent(USUAL_SHARE)} of the rows in memory; fan-outs at batch {usual}, batch sizes at "
        f"fan-out {','.join(map(str, FANOUTS[-1]))}{ratio}",
    )
    add_caption(canvas, text)
    return Drawing(canvas, table, text)


def _usual_size(records: list[StudyRecord]) -> int:
    """Return the most frequent batch size, which is that of the fan-out sweep."""
    sizes = [int(record.params["batch_size"]) for record in records]
    return max(sorted(set(sizes)), key=sizes.count)


def _ordered(records: list[StudyRecord]) -> list[StudyRecord]:
    return sorted(records, key=lambda record: (len(record.params["fanout"]), record.params["batch_size"]))


def _ends(found: dict[str, StudyRecord]) -> tuple[str, str]:
    names = list(found)
    return names[0], names[-1]


def _name(record: StudyRecord) -> str:
    return record.dataset.name if record.dataset else ""


def _accesses(records: list[StudyRecord]) -> str:
    return ", ".join(
        f"{_name(record)} {record.result['accesses'] / record.dataset.num_nodes:.1f} accesses a row"
        for record in records
        if record.dataset
    )


register(Figure("diskgnn-fig13", no_runs, draw_fig13, studies=studies_fig13))
register(Figure("diskgnn-fig14", no_runs, draw_fig14, studies=studies_fig14))
