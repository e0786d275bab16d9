"""DiskGNN's figures of studies: Figures 5 and 16 (layouts), 13 and 14 (disk space), Tables 3, 4 and 7."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Sheet, drawn, figure, paper_rows, sheet
from harness.figures.diskgnn.grid import graphs, percent, planning_needs
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import dataset_name, study_caption
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.draw.style import named_looks
from harness.figures.grids import gallery, values
from harness.records.study import StudyRecord
from harness.studies.base import StudyNeed

#: Mini-batches of a segment, and layouts, in Figures 5 and 16.
SEGMENTS = [50, 100, 150]
VARIANTS = ["not reordered", "global", "segmented"]
GIB = 2**30
SHARES = [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5]
FANOUTS = [[10, 15], [10, 15, 20]]
FACTORS = [0.5, 1.0, 2.0]
#: Share of memory in all experiments of the paper that do not vary it.
USUAL_SHARE = 0.1
#: Upper bounds of the buckets of Table 3, and their names.
BOUNDS = [0.01, 0.05, 0.1]
BUCKETS = ["<1 %", "1-5 %", "5-10 %", ">10 %"]
# Friendster's limits of 3x and 5x over the 5.39x of packing alone.
LIMITS = [0.56, 0.93]
#: Mini-batches of a search where the gallery cuts epochs short, since brute force builds every candidate. With fewer,
#: no layout fits the tighter limit, since each requested row is stored at least once.
BATCHES = 100


def layouts(profile: Plain) -> list[StudyNeed]:
    """Return the study of one epoch's disk caches, with a tenth of the rows in memory and reads of at least 4 KiB."""
    return planning_needs(profile, "amplification", segments=values(profile, "segments", SEGMENTS))


def _layout_notes(records: list[StudyRecord]) -> list[str]:
    params = records[0].params
    return [
        f"{100 * params['memory_share']:g} % of the rows in memory, reads of {params['granularity']} B",
        *(f"{dataset_name(record)}: {record.result['batches']} mini-batches" for record in records),
    ]


def _middle(record: StudyRecord) -> int:
    """Return the segment size that stands for `segmented`: the middle one of all computed sizes."""
    lengths = sorted({layout["segment"] for layout in record.result["layouts"] if not layout["global"]})
    return int(lengths[len(lengths) // 2]) if lengths else int(record.result["batches"])


def chosen_layouts(record: StudyRecord) -> dict[str, Plain]:
    """Return the three layouts of Figure 5 by variant."""
    found: dict[str, Plain] = {}
    for layout in record.result["layouts"]:
        if layout["global"]:
            found[VARIANTS[1] if layout["reordered"] else VARIANTS[0]] = layout
        elif layout["reordered"] and layout["segment"] == _middle(record):
            found[VARIANTS[2]] = layout
    return found


@figure("diskgnn-fig5", studies=layouts)
def fig5(evidence: Evidence) -> Drawing:
    """Draw read amplification (left) and each mini-batch's saving over no reordering, sorted (right)."""
    records = evidence.all_studies("amplification")
    shown = max(records, key=lambda record: float(record.result["layouts"][0]["amplification"]))
    bars: list[Plain] = []
    curves: list[Plain] = []
    for record in records:
        for variant, layout in chosen_layouts(record).items():
            value, own = layout["amplification"], layout["cache_amplification"]
            row = {"panel": "amplification", "group": dataset_name(record), "series": variant}
            bars.append({**row, "value": value, "cache_value": own, "segment": layout["segment"]})
            if record is shown and variant != VARIANTS[0]:
                saved = 100 * np.asarray(layout["reduction"])[::-1]
                places = zip(np.linspace(0, 100, len(saved)), saved, strict=True)
                curves += [{"panel": "reduction", "series": variant, "x": x, "y": y} for x, y in places]
    looks = named_looks(VARIANTS)
    canvas, (left, right) = many_panels(2)
    title, ylabel = "(a) Read amplification", "bytes read over bytes wanted"
    draw_bars(pd.DataFrame(bars), title=title, ylabel=ylabel, looks=looks, numbers=".1f", axes=left)
    title, ylabel = f"(b) Saved, {dataset_name(shown)}", "fewer bytes than not reordered (%)"
    xlabel = "mini-batches (%), most saved first"
    draw_curves(pd.DataFrame(curves), title=title, xlabel=xlabel, ylabel=ylabel, looks=looks, axes=right)
    legend_above(canvas, [left, right], VARIANTS)
    notes = [
        *_layout_notes(records),
        "rows that a segment asks for twice are in its disk cache, the others packed; all their reads count",
        f"segments of {', '.join(map(str, sorted({_middle(record) for record in records})))}",
    ]
    return drawn(canvas, pd.DataFrame([*bars, *curves]), records[0], *notes)


@figure("diskgnn-fig16", studies=layouts)
def fig16(evidence: Evidence) -> Drawing:
    """Draw bytes read per epoch with and without reordering (left) and bytes on disk (right) over segment size."""
    record = evidence.all_studies("amplification")[-1]
    rows = [
        {
            "group": layout["segment"],
            "series": "reordered" if layout["reordered"] else "not reordered",
            "read_gib": layout["read_bytes"] / GIB,
            "disk_gib": layout["disk_bytes"] / GIB,
            "disk_x": layout["disk_bytes"] / record.result["feature_bytes"],
        }
        for layout in record.result["layouts"]
        if not layout["global"]
    ]
    table = pd.DataFrame(rows).sort_values(["group", "series"], ignore_index=True)
    space = table[table["series"] == "reordered"].assign(series="any order")
    looks = named_looks(["not reordered", "reordered", "any order"])
    canvas, panels = many_panels(2)
    for axes, bars, title, ylabel, numbers in (
        (panels[0], table.assign(value=table["read_gib"]), "Disk traffic", "read in an epoch (GiB)", ".1f"),
        (panels[1], space.assign(value=space["disk_x"]), "Disk space", "over the feature table (x)", ".2f"),
    ):
        xlabel = "mini-batches of a segment"
        draw_bars(bars, title=title, ylabel=ylabel, xlabel=xlabel, looks=looks, numbers=numbers, axes=axes)
    legend_above(canvas, panels)
    notes = [*_layout_notes([record]), "packed chunks and disk caches, feature rows alone"]
    return drawn(canvas, table, record, *notes)


@figure("diskgnn-fig13", studies=lambda profile: planning_needs(profile, "disk-space", memory_shares=SHARES))
def fig13(evidence: Evidence) -> Drawing:
    """Draw the disk space of packing without a limit over memory, one line per graph."""
    records = evidence.all_studies("disk-space", where=lambda params: params["memory_shares"] == SHARES)
    table = pd.DataFrame(
        {"series": name, "x": 100 * point["memory_share"], "y": point["packed_x"], "least": point["least_x"]}
        for name, record in zip(map(dataset_name, records), records, strict=True)
        for point in record.result["points"]
    )
    canvas, axes = draw_curves(
        table,
        title="Disk space over memory",
        xlabel="rows in memory (% of all)",
        ylabel="packed rows over the features (x)",
        looks=named_looks([dataset_name(record) for record in records]),
    )
    axes.axhline(2.0, color="black", linewidth=0.8, linestyle=":")
    axes.axvline(20.0, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=0)
    accesses = ", ".join(
        f"{record.dataset.name} {record.result['accesses'] / record.dataset.num_nodes:.1f} accesses a row"
        for record in records
        if record.dataset
    )
    dotted = "dotted: below 2x from 20 % on, as the paper has it; feature rows alone"
    return drawn(canvas, table, records[0], "one epoch, no limit", accesses, dotted)


def space_over_samples(profile: Plain) -> list[StudyNeed]:
    """Return studies of the flat graph at the usual share of memory: the paper's fan-outs, scaled batch sizes."""
    size = int(gallery(profile)["run"]["batch_size"])
    sizes = [max(1, round(size * factor)) for factor in values(profile, "batch_factors", FACTORS)]
    changes: list[Plain] = [{"fanout": fanout} for fanout in FANOUTS]
    changes += [{"fanout": FANOUTS[-1], "batch_size": own} for own in sizes]
    shared: Plain = {"datasets": graphs(profile)[1:], "memory_shares": [USUAL_SHARE]}
    return [need for own in changes for need in planning_needs(profile, "disk-space", **shared, **own)]


@figure("diskgnn-fig14", studies=space_over_samples)
def fig14(evidence: Evidence) -> Drawing:
    """Draw disk space over fan-out (left) and batch size (right); raise NotDrawn with only one of each."""
    records = evidence.all_studies("disk-space", where=lambda params: params["memory_shares"] == [USUAL_SHARE])
    sizes = [int(record.params["batch_size"]) for record in records]
    # The most frequent batch size is that of the sweep over fan-outs.
    usual = max(sorted(set(sizes)), key=sizes.count)
    ordered = sorted(records, key=lambda record: (len(record.params["fanout"]), record.params["batch_size"]))
    by_fanout = {",".join(map(str, r.params["fanout"])): r for r in ordered if r.params["batch_size"] == usual}
    by_size = {str(r.params["batch_size"]): r for r in ordered if r.params["fanout"] == FANOUTS[-1]}
    if len(by_fanout) < 2 and len(by_size) < 2:
        raise NotDrawn("the study disk-space was made for one fan-out and batch size only")
    table = pd.DataFrame(
        {
            "panel": panel,
            "group": x,
            "series": dataset_name(record),
            "value": record.result["points"][0]["packed_x"],
            "rows_per_batch": record.result["rows_per_batch"],
            "batches": record.result["batches"],
        }
        for panel, found in (("fan-out", by_fanout), ("batch size", by_size))
        for x, record in found.items()
    )
    canvas, panels = many_panels(2, wide=False, height=2.3)
    for axes, panel in zip(panels, ("fan-out", "batch size"), strict=True):
        draw_bars(
            table[table["panel"] == panel],
            title=f"over {panel}",
            ylabel="over the features (x)",
            xlabel=panel,
            numbers=".2f",
            axes=axes,
            looks=named_looks([dataset_name(records[0])]),
        )
    space = [record.result["points"][0]["packed_x"] for record in by_fanout.values()]
    third_hop = f"; the third hop: {space[-1] / space[0]:.1f}x (paper 18.8x)" if len(space) > 1 and space[0] else ""
    notes = [
        f"one epoch, no limit, {percent(USUAL_SHARE)} of the rows in memory",
        f"fan-outs at batch {usual}, batch sizes at fan-out {','.join(map(str, FANOUTS[-1]))}{third_hop}",
    ]
    return drawn(canvas, table, next(reversed(by_fanout.values())), *notes)


def accesses(profile: Plain) -> list[StudyNeed]:
    """Return studies of one epoch's accesses on the profile's graph, a flat one, and an R-MAT one."""
    name, recipe = graphs(profile)[0]
    rmat = {key: recipe[key] for key in ("nodes", "edges", "classes", "seed", "max_memory") if key in recipe}
    datasets = [*graphs(profile), (f"{name}-rmat", {**rmat, "kind": "rmat", "dim": 1})]
    return planning_needs(profile, "access-share", datasets=datasets, bounds=BOUNDS)


@figure("diskgnn-tab3", studies=accesses)
def tab3(evidence: Evidence) -> Sheet:
    """Return the share of the accesses by rank of the nodes: one row per graph, ours first, then the paper's."""
    found = evidence.all_studies("access-share", where=lambda params: params["bounds"] == BOUNDS)
    rows: dict[Any, Plain] = {}
    for record in found:
        shares = dict(zip(BUCKETS, (100 * share for share in record.result["shares"]), strict=True))
        row = {"graph": dataset_name(record), "source": "ours", **shares, "touched": 100 * record.result["touched"]}
        rows[record.key] = row
    for row in paper_rows("diskgnn-tab3"):
        rows.setdefault(row["series"], {"graph": row["series"], "source": "paper"})[row["x"]] = row["value"]
    batches = ", ".join(str(record.result["batches"]) for record in found)
    columns = {"graph": "", "source": "", **dict.fromkeys(BUCKETS, ".1f"), "touched": ".1f"}
    notes = [f"one epoch of {batches} mini-batches", "in % of accesses", "touched: nodes with any access"]
    return sheet(list(rows.values()), columns, found[0], *notes)


@figure("diskgnn-tab4", studies=lambda profile: [StudyNeed("fio-grid")])
def tab4(evidence: Evidence) -> Sheet:
    """Return IOPS, bandwidth and price: a row for this host's disk by fio, then one per storage type of the paper."""
    record = evidence.study("fio-grid")
    points = record.result["points"]
    random = [p["iops"] for p in points if p["pattern"] == "random" and p["block_bytes"] == 4096 and p["direct"]]
    moved = [p["bytes_per_s"] for p in points if p["direct"]]
    if not random or not moved:
        raise NotDrawn("the study fio-grid read no blocks of 4 KiB at random")
    device = record.result.get("device") or {}
    name = str(device.get("model") or device.get("name") or "this host's disk").strip()
    iops, bandwidth, price = measures = ["IOPS (4 KiB)", "bandwidth (GB/s)", "price ($/GB)"]
    ours: Plain = {"storage": name, iops: max(random), bandwidth: max(moved) / 1e9, price: None}
    rows: dict[str, Plain] = {"": {**ours, "source": "fio, this host"}}
    header = dict(zip(["random reads 4 KiB", "bandwidth", "price"], measures, strict=True))
    for row in paper_rows("diskgnn-tab4"):
        storage = str(row["series"])
        known = rows.setdefault(storage, {"storage": storage, "source": str(row["source"])})
        known[header[row["x"]]] = row["value"]
    columns = {"storage": "", iops: ",.0f", bandwidth: ".2f", price: ".3f", "source": ""}
    note = "most of any queue depth, direct; prices of April 2024, none is known for this host's"
    return sheet(list(rows.values()), columns, record, note)


def searches(profile: Plain) -> list[StudyNeed]:
    """Return the study of both searches on the graph of flat accesses, where disk space is scarce."""
    short = BATCHES if (profile.get("gallery") or {}).get("run") else 0
    limits = values(profile, "search_limits", LIMITS)
    return planning_needs(profile, "packing-search", datasets=graphs(profile)[1:], limits=limits, max_batches=short)


@figure("diskgnn-tab7", studies=searches)
def tab7(evidence: Evidence) -> Sheet:
    """Return amplification and seconds of heuristic and brute-force search: one row per limit, then the paper's."""
    record = evidence.study("packing-search")
    rows: list[Plain] = []
    for case in record.result["cases"]:
        brute, quick = case["brute_force"], case["heuristic"]
        row = {"graph": dataset_name(record), "limit": f"{case['limit_x']:.2f}x", "of packing": 100 * case["limit"]}
        if brute and quick:
            row |= {"brute force amp.": brute["amplification"], "brute force s": brute["seconds"]}
            row |= {"heuristic amp.": quick["amplification"], "heuristic s": quick["seconds"]}
            row |= {"speedup": brute["seconds"] / max(1e-9, quick["seconds"]), "segment": quick["segment"]}
        else:
            row |= {"heuristic amp.": "does not fit"}
        rows.append(row)
    paper: dict[tuple[str, str], Plain] = {}
    for entry in paper_rows("diskgnn-tab7"):
        graph, _, what = str(entry["series"]).partition(" ")
        limit = str(entry["x"])
        row = paper.setdefault((graph, limit), {"graph": f"{graph} (paper)", "limit": limit})
        row[what.replace("amplification", "amp.").replace("seconds", "s")] = float(entry["value"])
    for row in paper.values():
        if row.get("heuristic s") and row.get("brute force s"):
            row["speedup"] = row["brute force s"] / row["heuristic s"]
    text = study_caption(
        record,
        f"{100 * record.params['memory_share']:g} % of the rows in memory; packing alone takes "
        f"{record.result['packed_x']:.2f}x the features; brute force tries {record.params['search_points']} segment "
        "lengths with every threshold, and the heuristic's own shape; reads of 4 KiB",
    )
    text = text.replace("no timing", "timing of the searches alone, which no cap held")
    columns = {"graph": "", "limit": "", "of packing": ".0f", "brute force amp.": ".2f", "brute force s": ".3g"}
    columns |= {"heuristic amp.": ".2f", "heuristic s": ".3g", "speedup": ".0f", "segment": ".0f"}
    return sheet([*rows, *paper.values()], columns, text)
