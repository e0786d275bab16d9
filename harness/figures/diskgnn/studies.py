"""DiskGNN's figures of studies: Figures 5 and 16 (layouts), 13 and 14 (disk space), Tables 3, 4 and 7."""

from __future__ import annotations

import numpy as np
import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, Sheet, drawn, figure, paper_rows, paper_table, sheet, specs
from harness.figures.diskgnn.grid import graphs, percent, planning_needs, shape_of
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import dataset_name, study_caption
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels
from harness.figures.draw.style import named_looks
from harness.figures.grids import gallery, values
from harness.records.study import StudyRecord
from harness.studies.base import StudyNeed

SPEC = specs(__file__)
VARIANTS = ["not reordered", "global", "segmented"]
GIB = 2**30
SHARES: list[float] = SPEC["shares"]
FANOUTS: list[list[int]] = SPEC["fanouts"]
#: Share of memory in all experiments of the paper that do not vary it.
USUAL_SHARE = 0.1
BOUNDS: list[float] = SPEC["tab3"]["bounds"]


def layouts(profile: Plain) -> list[StudyNeed]:
    """Return the study of one epoch's disk caches, with a tenth of the rows in memory and reads of at least 4 KiB."""
    return planning_needs(profile, "amplification", segments=values(profile, "segments", SPEC["segments"]))


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
    spec, looks = SPEC["fig5"], named_looks(VARIANTS)
    canvas, (left, right) = many_panels(2)
    draw_bars(pd.DataFrame(bars), looks=looks, axes=left, **spec["bars"])
    title = spec["title"].format(dataset_name(shown))
    draw_curves(pd.DataFrame(curves), title=title, looks=looks, axes=right, **spec["curves"])
    middles = ", ".join(map(str, sorted({_middle(record) for record in records})))
    notes = [*_layout_notes(records), spec["note"], f"segments of {middles}"]
    return drawn(canvas, pd.DataFrame([*bars, *curves]), records[0], *notes, order=VARIANTS)


@figure("diskgnn-fig16", studies=layouts)
def fig16(evidence: Evidence) -> Drawing:
    """Draw bytes read per epoch with and without reordering (left) and bytes on disk (right) over segment size."""
    record = evidence.all_studies("amplification")[-1]
    found = pd.DataFrame(layout for layout in record.result["layouts"] if not layout["global"])
    order = found["reordered"].map({True: "reordered", False: "not reordered"})
    table = pd.DataFrame({"group": found["segment"], "series": order, "read_gib": found["read_bytes"] / GIB})
    table["disk_gib"] = found["disk_bytes"] / GIB
    table["disk_x"] = found["disk_bytes"] / record.result["feature_bytes"]
    table = table.sort_values(["group", "series"], ignore_index=True)
    space = table[table["series"] == "reordered"].assign(series="any order")
    spec, looks = SPEC["fig16"], named_looks(["not reordered", "reordered", "any order"])
    canvas, (left, right) = many_panels(2)
    draw_bars(table.assign(value=table["read_gib"]), looks=looks, axes=left, **spec["traffic"])
    draw_bars(space.assign(value=space["disk_x"]), looks=looks, axes=right, **spec["space"])
    return drawn(canvas, table, record, *_layout_notes([record]), spec["note"])


@figure("diskgnn-fig13", studies=lambda profile: planning_needs(profile, "disk-space", memory_shares=SHARES))
def fig13(evidence: Evidence) -> Drawing:
    """Draw the disk space of packing without a limit over memory, one line per graph."""
    records = evidence.all_studies("disk-space", where=lambda params: params["memory_shares"] == SHARES)
    table = pd.DataFrame(
        {"series": name, "x": 100 * point["memory_share"], "y": point["packed_x"], "least": point["least_x"]}
        for name, record in zip(map(dataset_name, records), records, strict=True)
        for point in record.result["points"]
    )
    looks = named_looks([dataset_name(record) for record in records])
    canvas, axes = draw_curves(table, looks=looks, **SPEC["fig13"]["curves"])
    axes.axhline(2.0, color="black", linewidth=0.8, linestyle=":")
    axes.axvline(20.0, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=0)
    counted = [(record.dataset, record.result["accesses"]) for record in records if record.dataset]
    accesses = ", ".join(f"{data.name} {count / data.num_nodes:.1f} accesses a row" for data, count in counted)
    return drawn(canvas, table, records[0], "one epoch, no limit", accesses, SPEC["fig13"]["note"])


def space_over_samples(profile: Plain) -> list[StudyNeed]:
    """Return studies of the flat graph at the usual share of memory: the paper's fan-outs, scaled batch sizes."""
    size = int(gallery(profile)["run"]["batch_size"])
    sizes = [max(1, round(size * factor)) for factor in values(profile, "batch_factors", SPEC["batch_factors"])]
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
        {"panel": panel, "group": x, "series": dataset_name(record), "value": record.result["points"][0]["packed_x"]}
        | {key: record.result[key] for key in ("rows_per_batch", "batches")}
        for panel, found in (("fan-out", by_fanout), ("batch size", by_size))
        for x, record in found.items()
    )
    canvas, panels = many_panels(2, wide=False, height=2.3)
    looks, spec = named_looks([dataset_name(records[0])]), SPEC["fig14"]
    for axes, panel in zip(panels, ("fan-out", "batch size"), strict=True):
        own = table[table["panel"] == panel]
        draw_bars(own, title=f"over {panel}", xlabel=panel, looks=looks, axes=axes, **spec["bars"])
    space = [record.result["points"][0]["packed_x"] for record in by_fanout.values()]
    third_hop = spec["third_hop"].format(space[-1] / space[0]) if len(space) > 1 and space[0] else ""
    note = spec["note"].format(percent(USUAL_SHARE), usual, ",".join(map(str, FANOUTS[-1])), third_hop)
    return drawn(canvas, table, next(reversed(by_fanout.values())), note, order=None)


def accesses(profile: Plain) -> list[StudyNeed]:
    """Return studies of one epoch's accesses on the profile's graph, a flat one, and an R-MAT one."""
    name, recipe = graphs(profile)[0]
    datasets = [*graphs(profile), (f"{name}-rmat", shape_of(recipe) | {"kind": "rmat", "dim": 1})]
    return planning_needs(profile, "access-share", datasets=datasets, bounds=BOUNDS)


@figure("diskgnn-tab3", studies=accesses)
def tab3(evidence: Evidence) -> Sheet:
    """Return the share of the accesses by rank of the nodes: one row per graph, ours first, then the paper's."""
    found = evidence.all_studies("access-share", where=lambda params: params["bounds"] == BOUNDS)
    columns = SPEC["tab3"]["columns"]
    rows: list[Plain] = []
    for record in found:
        shares = zip(list(columns)[2:], [*record.result["shares"], record.result["touched"]], strict=True)
        own = {name: 100 * share for name, share in shares}
        rows.append({"graph": dataset_name(record), "source": "ours", **own})
    rows += [{"graph": name, "source": "paper", **own} for name, own in paper_table("diskgnn-tab3").items()]
    batches = ", ".join(str(record.result["batches"]) for record in found)
    return sheet(rows, columns, found[0], f"one epoch of {batches} mini-batches", *SPEC["tab3"]["notes"])


@figure("diskgnn-tab4", studies=lambda profile: [StudyNeed("fio-grid")])
def tab4(evidence: Evidence) -> Sheet:
    """Return IOPS, bandwidth and price: a row for this host's disk by fio, then one per storage type of the paper."""
    record, measures = evidence.study("fio-grid"), SPEC["tab4"]["measures"]
    points = record.result["points"]
    random = [p["iops"] for p in points if p["pattern"] == "random" and p["block_bytes"] == 4096 and p["direct"]]
    moved = [p["bytes_per_s"] for p in points if p["direct"]]
    if not random or not moved:
        raise NotDrawn("the study fio-grid read no blocks of 4 KiB at random")
    device = record.result.get("device") or {}
    name = str(device.get("model") or device.get("name") or "this host's disk").strip()
    ours = dict(zip(measures.values(), (max(random), max(moved) / 1e9, None), strict=True))
    rows: dict[str, Plain] = {"": {"storage": name, **ours, "source": "fio, this host"}}
    for row in paper_rows("diskgnn-tab4"):
        storage = str(row["series"])
        known = rows.setdefault(storage, {"storage": storage, "source": str(row["source"])})
        known[measures[row["x"]]] = row["value"]
    return sheet(list(rows.values()), SPEC["tab4"]["columns"], record, SPEC["tab4"]["note"])


def searches(profile: Plain) -> list[StudyNeed]:
    """Return the study of both searches on the graph of flat accesses, where disk space is scarce."""
    short = SPEC["search_batches"] if (profile.get("gallery") or {}).get("run") else 0
    limits = values(profile, "search_limits", SPEC["search_limits"])
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
        rows.append(row if brute and quick else {**row, "heuristic amp.": "does not fit"})
    paper: dict[tuple[str, str], Plain] = {}
    for entry in paper_rows("diskgnn-tab7"):
        graph, _, what = str(entry["series"]).partition(" ")
        limit = str(entry["x"])
        row = paper.setdefault((graph, limit), {"graph": f"{graph} (paper)", "limit": limit})
        row[what.replace("amplification", "amp.").replace("seconds", "s")] = float(entry["value"])
    for row in paper.values():
        if row.get("heuristic s") and row.get("brute force s"):
            row["speedup"] = row["brute force s"] / row["heuristic s"]
    params = record.params
    told = (100 * params["memory_share"], record.result["packed_x"], params["search_points"])
    text = study_caption(record, SPEC["tab7"]["note"].format(*told))
    text = text.replace("no timing", "timing of the searches alone, which no cap held")
    return sheet([*rows, *paper.values()], SPEC["tab7"]["columns"], text)
