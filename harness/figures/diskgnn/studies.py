"""DiskGNN's figures of studies: Figures 5 and 16 (layouts), 13 and 14 (disk space), Tables 3, 4 and 7."""

from __future__ import annotations

import numpy as np
import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, Sheet, drawn, figure, published, sheet
from harness.figures.diskgnn.grid import (
    GB,
    flat_graph,
    graphs,
    paper_frame,
    paper_note,
    percent,
    planning_needs,
    shape_of,
)
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import dataset_name, study_caption
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels
from harness.figures.draw.style import named_looks
from harness.figures.grids import dataset_of, gallery, values
from harness.records.study import StudyRecord
from harness.studies.base import StudyNeed

GIB = 2**30
#: Layouts of Figure 5.
VARIANTS = ["not reordered", "global", "segmented"]
#: Mini-batches of a segment.
SEGMENTS = [50, 100, 150]
SEGMENT = "mini-batches of a segment"
#: Shares of the rows in memory in Figure 13, and the share in all experiments of the paper that do not vary it.
SHARES = [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5]
USUAL_SHARE = 0.1
FANOUTS = [[10, 15], [10, 15, 20]]
BATCH_FACTORS = [0.5, 1.0, 2.0]
#: Shares of all nodes at which Table 3 cuts their ranking, and its columns.
BOUNDS = [0.01, 0.05, 0.1]
BUCKETS = ["<1 %", "1-5 %", "5-10 %", ">10 %", "touched"]
MEASURES = {"random reads 4 KiB": "IOPS (4 KiB)", "bandwidth": "bandwidth (GB/s)", "price": "price ($/GB)"}
STORAGE = {"storage": "", "IOPS (4 KiB)": ",.0f", "bandwidth (GB/s)": ".2f", "price ($/GB)": ".3f", "source": ""}
#: Friendster's limits of 3x and 5x over the 5.39x of packing alone.
SEARCH_LIMITS = [0.56, 0.93]
#: Mini-batches of a search where the gallery cuts epochs short, since brute force builds every candidate. With fewer,
#: no layout fits the tighter limit, since each requested row is stored at least once.
SEARCH_BATCHES = 100
#: Columns of Table 7 with their formats, and those of its measures by their names in the study and the paper.
SEARCH = {"graph": "", "limit": "", "of packing": ".0f", "brute force amp.": ".2f", "brute force s": ".3g"}
SEARCH |= {"heuristic amp.": ".2f", "heuristic s": ".3g", "speedup": ".0f", "segment": ".0f"}
MEASURED = {"brute force amplification": "brute force amp.", "brute force seconds": "brute force s"}
MEASURED |= {"heuristic amplification": "heuristic amp.", "heuristic seconds": "heuristic s"}
MEASURED |= {"heuristic segment": "segment"}


def layouts(profile: Plain) -> list[StudyNeed]:
    """Return the study of one epoch's disk caches, with a tenth of the rows in memory and reads of at least 4 KiB."""
    return planning_needs(profile, "amplification", graphs(profile), segments=values(profile, "segments", SEGMENTS))


def rows_of(records: list[StudyRecord], part: str) -> pd.DataFrame:
    """Return the rows of a part of the results of studies, with the name of the `dataset`."""
    tables = [pd.DataFrame(record.result[part]).assign(dataset=dataset_name(record)) for record in records]
    return pd.concat(tables, ignore_index=True)


def _layout_notes(records: list[StudyRecord]) -> list[str]:
    params = records[0].params
    share = f"{percent(params['memory_share'])} of the rows in memory, reads of {params['granularity']} B"
    return [share, *(f"{dataset_name(record)}: {record.result['batches']} mini-batches" for record in records)]


@figure("diskgnn-fig5", studies=layouts)
def fig5(evidence: Evidence) -> Drawing:
    """Draw read amplification (left) and each mini-batch's saving over no reordering, sorted (right)."""
    records = evidence.all_studies("amplification")
    table = rows_of(records, "layouts")
    lengths = sorted(set(table.loc[~table["global"], "segment"]))
    # The middle length stands for all.
    middle = lengths[len(lengths) // 2]
    reordered = table["reordered"]
    kinds = [table["global"] & ~reordered, table["global"] & reordered, reordered & (table["segment"] == middle)]
    table["series"] = np.select(kinds, VARIANTS, "")
    chosen = table[table["series"] != ""].rename(
        columns={"dataset": "group", "amplification": "value", "cache_amplification": "cache_value"}
    )
    bars = chosen.assign(panel="amplification")[["panel", "group", "series", "value", "cache_value", "segment"]]
    worst = bars.loc[bars["value"].idxmax(), "group"]
    saving = chosen[(chosen["group"] == worst) & (chosen["series"] != VARIANTS[0])]
    steps = saving.assign(y=saving["reduction"].str[::-1]).explode("y", ignore_index=True)
    place = steps.groupby("series").cumcount()
    curves = pd.DataFrame({"panel": "reduction", "series": steps["series"], "x": 100 * place / place.max()})
    curves["y"] = 100 * steps["y"].astype(float)
    looks = named_looks(VARIANTS)
    canvas, (left, right) = many_panels(2)
    draw_bars(
        bars,
        title="(a) Read amplification",
        ylabel="bytes read over bytes wanted",
        numbers=".1f",
        looks=looks,
        axes=left,
    )
    label = "mini-batches (%), most saved first"
    draw_curves(
        curves,
        title=f"(b) Saved, {worst}",
        xlabel=label,
        ylabel="fewer bytes than not reordered (%)",
        looks=looks,
        axes=right,
    )
    twice = "rows that a segment asks for twice are in its disk cache, the others packed; all their reads count"
    data = pd.concat([bars, curves])
    return drawn(canvas, data, records[0], *_layout_notes(records), twice, f"segments of {middle}", order=VARIANTS)


@figure("diskgnn-fig16", studies=layouts)
def fig16(evidence: Evidence) -> Drawing:
    """Draw bytes read per epoch with and without reordering (left) and bytes on disk (right) over segment size."""
    record = evidence.all_studies("amplification")[-1]
    table = rows_of([record], "layouts")
    table = table[~table["global"]]
    data = pd.DataFrame({"group": table["segment"]})
    data["series"] = table["reordered"].map({True: "reordered", False: "not reordered"})
    data["read_gib"] = table["read_bytes"] / GIB
    data["disk_gib"] = table["disk_bytes"] / GIB
    data["disk_x"] = table["disk_bytes"] / record.result["feature_bytes"]
    data = data.sort_values(["group", "series"], ignore_index=True)
    canvas, (left, right) = many_panels(2)
    traffic = data.assign(value=data["read_gib"])
    draw_bars(traffic, title="Disk traffic", ylabel="read in an epoch (GiB)", xlabel=SEGMENT, numbers=".1f", axes=left)
    space = data.assign(value=data["disk_x"])
    draw_bars(space, title="Disk space", ylabel="over the feature table (x)", xlabel=SEGMENT, numbers=".2f", axes=right)
    return drawn(canvas, data, record, *_layout_notes([record]), "packed chunks and disk caches, feature rows alone")


def space_over_memory(profile: Plain) -> list[StudyNeed]:
    """Return the study of disk space at shares of the rows in memory."""
    return planning_needs(profile, "disk-space", graphs(profile), memory_shares=SHARES)


@figure("diskgnn-fig13", studies=space_over_memory)
def fig13(evidence: Evidence) -> Drawing:
    """Draw the disk space of packing without a limit over memory, one line per graph."""
    records = evidence.all_studies("disk-space", where=lambda params: params["memory_shares"] == SHARES)
    points = rows_of(records, "points")
    data = pd.DataFrame({"series": points["dataset"], "x": 100 * points["memory_share"]})
    data["y"] = points["packed_x"]
    data["least"] = points["least_x"]
    label = "rows in memory (% of all)"
    canvas, _ = draw_curves(
        data, title="Disk space over memory", xlabel=label, ylabel="packed rows over the features (x)"
    )
    accesses = [
        f"{record.dataset.name} {record.result['accesses'] / record.dataset.num_nodes:.1f} accesses a row"
        for record in records
        if record.dataset
    ]
    return drawn(
        canvas, data, records[0], "one epoch, no limit", *accesses, "feature rows alone; paper: below 2x from 20 % on"
    )


def space_over_samples(profile: Plain) -> list[StudyNeed]:
    """Return studies of the flat graph at the usual share of memory: the paper's fan-outs, scaled batch sizes."""
    size = gallery(profile)["run"]["batch_size"]
    factors = values(profile, "batch_factors", BATCH_FACTORS)
    changes: list[Plain] = [{"fanout": fanout} for fanout in FANOUTS]
    changes += [{"fanout": FANOUTS[-1], "batch_size": max(1, round(size * factor))} for factor in factors]
    flat = [flat_graph(profile)]
    return [
        need
        for own in changes
        for need in planning_needs(profile, "disk-space", flat, memory_shares=[USUAL_SHARE], **own)
    ]


@figure("diskgnn-fig14", studies=space_over_samples)
def fig14(evidence: Evidence) -> Drawing:
    """Draw disk space over fan-out (left) and batch size (right); raise NotDrawn with only one of each."""
    records = evidence.all_studies("disk-space", where=lambda params: params["memory_shares"] == [USUAL_SHARE])
    if len(records) < 2:
        raise NotDrawn("the study disk-space was made for one fan-out and batch size only")
    params = pd.DataFrame([record.params for record in records])
    found = pd.DataFrame([record.result for record in records])
    found["fan-out"] = params["fanout"].map(lambda fanout: ",".join(map(str, fanout)))
    found["batch size"] = params["batch_size"]
    found["series"] = [dataset_name(record) for record in records]
    found["value"] = found["points"].str[0].str["packed_x"]
    found = found.sort_values(["fan-out", "batch size"])
    # The most frequent batch size is that of the sweep over fan-outs.
    usual = found["batch size"].mode()[0]
    most = found["fan-out"].iloc[-1]
    chosen = {"fan-out": found[found["batch size"] == usual], "batch size": found[found["fan-out"] == most]}
    canvas, panels = many_panels(2, wide=False, height=2.3)
    tables = []
    for axes, (panel, own) in zip(panels, chosen.items(), strict=True):
        table = own.assign(panel=panel, group=own[panel].astype(str))
        draw_bars(table, title=f"over {panel}", ylabel="over the features (x)", xlabel=panel, numbers=".2f", axes=axes)
        tables.append(table)
    data = pd.concat(tables)[["panel", "group", "series", "value", "rows_per_batch", "batches"]]
    space = chosen["fan-out"]["value"]
    notes = [
        f"one epoch, no limit, {percent(USUAL_SHARE)} of the rows in memory; fan-outs at batch {usual}, batch sizes at fan-out {most}",
        f"the third hop: {space.iloc[-1] / space.iloc[0]:.1f}x",
        paper_note("diskgnn-fig14"),
    ]
    return drawn(canvas, data, records[0], *notes, order=None)


def accesses(profile: Plain) -> list[StudyNeed]:
    """Return studies of one epoch's accesses on the profile's graph, a flat one, and an R-MAT one."""
    name, recipe = dataset_of(gallery(profile))
    rmat = (f"{name}-rmat", {**shape_of(recipe), "kind": "rmat", "dim": 1})
    return planning_needs(profile, "access-share", [*graphs(profile), rmat], bounds=BOUNDS)


@figure("diskgnn-tab3", studies=accesses)
def tab3(evidence: Evidence) -> Sheet:
    """Return the share of the accesses by rank of the nodes: one row per graph, ours first, then the paper's."""
    records = evidence.all_studies("access-share", where=lambda params: params["bounds"] == BOUNDS)
    shares = [[*record.result["shares"], record.result["touched"]] for record in records]
    ours = 100 * pd.DataFrame(shares, map(dataset_name, records), BUCKETS)
    both = {"ours": ours, "paper": paper_frame("diskgnn-tab3")}
    data = pd.concat(both, names=["source", "graph"]).reset_index()
    columns = {"graph": "", "source": "", **dict.fromkeys(BUCKETS, ".1f")}
    batches = ", ".join(str(record.result["batches"]) for record in records)
    notes = [f"one epoch of {batches} mini-batches", "in % of accesses", "touched: nodes with any access"]
    return sheet(data[list(columns)], columns, records[0], *notes)


def disk(profile: Plain) -> list[StudyNeed]:
    """Return the study of this host's disk."""
    return [StudyNeed("fio-grid")]


@figure("diskgnn-tab4", studies=disk)
def tab4(evidence: Evidence) -> Sheet:
    """Return IOPS, bandwidth and price: a row for this host's disk by fio, then one per storage type of the paper."""
    record = evidence.study("fio-grid")
    points = pd.DataFrame(record.result["points"])
    direct = points[points["direct"]]
    random = direct[(direct["pattern"] == "random") & (direct["block_bytes"] == 4096)]
    if random.empty:
        raise NotDrawn("the study fio-grid read no blocks of 4 KiB at random")
    device = record.result.get("device") or {}
    name = device.get("model") or device.get("name") or "this host's disk"
    ours = [name.strip(), random["iops"].max(), direct["bytes_per_s"].max() / GB, None, "fio, this host"]
    paper = paper_frame("diskgnn-tab4").rename(columns=MEASURES)
    paper["source"] = published("diskgnn-tab4").groupby("series")["source"].first()
    data = pd.concat([pd.DataFrame([ours], columns=list(STORAGE)), paper.reset_index(names="storage")])
    note = "most of any queue depth, direct; prices of April 2024, none is known for this host's"
    return sheet(data, STORAGE, record, note)


def searches(profile: Plain) -> list[StudyNeed]:
    """Return the study of both searches on the graph of flat accesses, where disk space is scarce."""
    short = SEARCH_BATCHES if (profile.get("gallery") or {}).get("run") else 0
    limits = values(profile, "search_limits", SEARCH_LIMITS)
    return planning_needs(profile, "packing-search", [flat_graph(profile)], limits=limits, max_batches=short)


@figure("diskgnn-tab7", studies=searches)
def tab7(evidence: Evidence) -> Sheet:
    """Return amplification and seconds of heuristic and brute-force search: one row per limit, then the paper's."""
    record = evidence.study("packing-search")
    ours = pd.json_normalize(record.result["cases"], sep=" ").rename(columns=lambda name: name.replace("_", " "))
    ours["graph"] = dataset_name(record)
    ours["of packing"] = 100 * ours["limit"]
    ours["limit"] = ours["limit x"].map("{:.2f}x".format)
    known = published("diskgnn-tab7")
    names = known["series"].str.extract("(?P<graph>[^ ]+) (?P<measure>.+)")
    paper = (
        known.join(names)
        .pivot(index=["graph", "x"], columns="measure", values="value")
        .reset_index(names=["graph", "limit"])
    )
    paper["graph"] += " (paper)"
    data = pd.concat([ours, paper], ignore_index=True).rename(columns=MEASURED).reindex(columns=list(SEARCH))
    data["speedup"] = data["brute force s"] / data["heuristic s"]
    data["heuristic amp."] = data["heuristic amp."].astype(object).fillna("does not fit")
    packed = f"packing alone takes {record.result['packed_x']:.2f}x the features"
    tried = f"brute force tries {record.params['search_points']} segment lengths with every threshold, and the heuristic's own shape"
    share = f"{percent(record.params['memory_share'])} of the rows in memory"
    caption = study_caption(record, f"{share}; {packed}; {tried}; reads of 4 KiB")
    timed = caption.replace("no timing", "timing of the searches alone, which no cap held")
    return sheet(data, SEARCH, timed)
