"""DiskGNN's figures of studies: Figures 5 and 16 (layouts), 13 and 14 (disk space),
Tables 3, 4 and 7."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.figures.base import (
    GB,
    Drawing,
    Sheet,
    drawn,
    figure,
    paper_frame,
    paper_note,
    published,
    sheet,
)
from harness.figures.diskgnn.grid import (
    epoch_studies,
    flat_graph,
    graphs,
    like,
    packing_studies,
    percent,
)
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import row_texts, study_caption
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels
from harness.figures.draw.style import named_looks
from harness.figures.draw.words import in_words
from harness.figures.findings import plain, ratios, span, wide
from harness.figures.grids import gallery, values
from harness.figures.over_axis import LEAST_TIMES
from harness.records.study import StudyRecord
from harness.studies.base import StudyNeed
from workloads.arraytypes import JsonDict

GIB = 2**30
#: Layouts of Figure 5.
VARIANTS = ["not reordered", "global", "segmented"]
#: Mini-batches of a segment.
SEGMENTS = [50, 100, 150]
SEGMENT = "mini-batches of a segment"
#: Shares of the rows in memory in Figure 13, and the share in all experiments of the
#: paper that do not vary it.
SHARES = [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5]
USUAL_SHARE = 0.1
#: Parameters and results of the studies of Figure 14.
SAMPLES: list[str | list[str]] = [
    "dataset",
    "fanout",
    "batch_size",
    "rows_per_batch",
    "batches",
]
FANOUTS = [[10, 15], [10, 15, 20]]
BATCH_FACTORS = [0.5, 1.0, 2.0]
#: Shares of all nodes at which Table 3 cuts their ranking, and its columns.
BOUNDS = [0.01, 0.05, 0.1]
BUCKETS = ["<1 %", "1-5 %", "5-10 %", ">10 %"]
ACCESSES = {
    "graph": "",
    "source": "",
    **dict.fromkeys(BUCKETS, ".1f"),
    "touched": ".1f",
}
STORAGE = {
    "storage": "",
    "IOPS (4 KiB)": ",.0f",
    "bandwidth (GB/s)": ".2f",
    "price ($/GB)": ".3f",
    "source": "",
}
MEASURES = {
    "random reads 4 KiB": "IOPS (4 KiB)",
    "bandwidth": "bandwidth (GB/s)",
    "price": "price ($/GB)",
}
#: Friendster's limits of 3x and 5x over the 5.39x of packing alone.
SEARCH_LIMITS = [0.56, 0.93]
#: Mini-batches of a search where the gallery cuts epochs short, since brute force
#: builds every candidate. With fewer, no layout fits the tighter limit, since each
#: requested row is stored at least once.
SEARCH_BATCHES = 100
SEARCH = {
    "graph": "",
    "limit": "",
    "of packing": ".0f",
    "brute force amp.": ".2f",
    "brute force s": ".3g",
}
SEARCH |= {
    "heuristic amp.": ".2f",
    "heuristic s": ".3g",
    "speedup": ".0f",
    "segment": ".0f",
}

#: Columns of Table 7 by their names in the study and the paper.
MEASURED = {
    "dataset": "graph",
    "brute force amplification": "brute force amp.",
    "brute force seconds": "brute force s",
}
MEASURED |= {
    "heuristic amplification": "heuristic amp.",
    "heuristic seconds": "heuristic s",
}
MEASURED |= {"heuristic segment": "segment", "x": "limit"}


def layouts(profile: JsonDict) -> list[StudyNeed]:
    """Return the study of one epoch's disk caches, with a tenth of the rows in memory
    and reads of at least 4 KiB."""
    segments = values(profile, "segments", SEGMENTS)
    return packing_studies(profile, "amplification", graphs(profile), segments=segments)


def _results(records: list[StudyRecord]) -> list[JsonDict]:
    """Return parameters and results of each study."""
    return [record.params | record.result for record in records]


def _layout_note(study: JsonDict) -> str:
    share = percent(study["memory_share"])
    reads = f"{share} of the rows in memory, reads of {study['granularity']} B"
    return f"{reads}; an epoch has {study['batches']} mini-batches"


@figure("diskgnn-fig5", studies=layouts)
def fig5(evidence: Evidence) -> Drawing:
    """Draw read amplification (left) and each mini-batch's saving over no reordering,
    sorted (right)."""
    records = evidence.all_studies("amplification")
    studies = _results(records)
    table = pd.json_normalize(studies, "layouts", "dataset")
    table = table.rename(
        columns={
            "dataset": "group",
            "amplification": "value",
            "cache_amplification": "cache_value",
        }
    )
    whole = table["global"]
    kinds = whole.map({True: "global", False: "segmented"})
    table["series"] = kinds.where(table.reordered, "not reordered")
    # The middle length of the segments stands for all.
    middle = table.segment[~whole].quantile(interpolation="higher")
    segmented = table.reordered & (table.segment == middle)
    bars = table[whole | segmented].assign(panel="amplification")
    worst = bars.sort_values("value").group.iloc[-1]
    saving = bars[(bars.series != "not reordered") & (bars.group == worst)].explode(
        "reduction"
    )
    number = saving.groupby("series").cumcount(ascending=False)
    saving["x"] = 100 * number / number.max()
    saving["y"] = 100 * saving.reduction.astype(float)
    curves = (
        saving[["series", "x", "y"]]
        .assign(panel="reduction")
        .sort_values(["series", "x"])
    )
    looks = named_looks(VARIANTS)
    canvas, (left, right) = many_panels(2)
    label = "read amplification (x)"
    draw_bars(
        bars,
        title="(a) Read amplification",
        ylabel=label,
        numbers=".1f",
        looks=looks,
        axes=left,
    )
    title = f"(b) Saved over not reordered, {worst}"
    label = "mini-batches (%), most saved first"
    draw_curves(
        curves,
        title=title,
        xlabel=label,
        ylabel="bytes saved (%)",
        looks=looks,
        axes=right,
    )
    data = pd.concat(
        [bars[["panel", "group", "series", "value", "cache_value", "segment"]], curves]
    )
    twice = (
        "rows that a segment requests twice are in its disk cache, the others packed"
    )
    notes = [_layout_note(studies[0]), twice, f"segments of {middle}"]
    text = "Reordered in segments, mini-batches read {} times less"
    finding = _read_less(bars, "value", "segmented", text)
    over_all = _read_less(bars, "value", "global", "over all mini-batches {} times")
    finding = ", ".join(filter(None, [finding, over_all]))
    return drawn(canvas, data, records[0], *notes, order=VARIANTS, finding=finding)


def _read_less(rows: pd.DataFrame, column: str, series: str, text: str) -> str:
    """Return the sentence on how many times less one series reads than without
    reordering; empty without both."""
    times = ratios(wide(rows, column, "group", "series"), "not reordered", series).times
    return text.format(span(times)) if len(times) else ""


@figure("diskgnn-fig16", studies=layouts)
def fig16(evidence: Evidence) -> Drawing:
    """Draw bytes read per epoch with and without reordering (left) and bytes on disk
    (right) over segment size."""
    record = evidence.all_studies("amplification")[-1]
    studies = _results([record])
    table = pd.json_normalize(studies, "layouts", "feature_bytes")
    table = table[~table["global"]].sort_values(["segment", "reordered"])
    data = table[["segment"]].rename(columns={"segment": "group"})
    data["series"] = table.reordered.map({True: "reordered", False: "not reordered"})
    data["read_gib"] = table.read_bytes / GIB
    data["disk_gib"] = table.disk_bytes / GIB
    data["disk_x"] = table.disk_bytes / table.feature_bytes
    canvas, (left, right) = many_panels(2)
    label = "read in an epoch (GiB)"
    draw_bars(
        data,
        column="read_gib",
        title="Disk traffic",
        ylabel=label,
        xlabel=SEGMENT,
        numbers=".1f",
        axes=left,
    )
    label = "over the feature table (x)"
    draw_bars(
        data,
        column="disk_x",
        title="Disk space",
        ylabel=label,
        xlabel=SEGMENT,
        numbers=".2f",
        axes=right,
    )
    notes = [
        _layout_note(studies[0]),
        "packed chunks and disk caches, feature rows alone",
    ]
    text = "Reordering within segments reads {} times less"
    finding = _read_less(data, "read_gib", "reordered", text)
    space = wide(data, "disk_x", "group", "series")
    grown = space["reordered"] / space["not reordered"]
    if finding and grown.between(1 / LEAST_TIMES, LEAST_TIMES).all():
        finding += " in equal disk space"
    return drawn(canvas, data, record, *notes, finding=finding)


@figure(
    "diskgnn-fig13",
    studies=lambda profile: packing_studies(
        profile, "disk-space", graphs(profile), memory_shares=SHARES
    ),
)
def fig13(evidence: Evidence) -> Drawing:
    """Draw the disk space of packing without a limit over memory, one line per
    graph."""
    records = evidence.all_studies(
        "disk-space", where=lambda params: params["memory_shares"] == SHARES
    )
    points = pd.json_normalize(_results(records), "points", "dataset")
    names = {
        "dataset": "series",
        "memory_share": "x",
        "packed_x": "y",
        "least_x": "least",
    }
    data = points.rename(columns=names)[["series", "x", "y", "least"]]
    data["x"] *= 100
    label = "packed rows over the features (x)"
    title = "Disk space over memory"
    canvas, _ = draw_curves(
        data, title=title, xlabel="rows in memory (% of all)", ylabel=label
    )
    small = data[data.y < 2.0].sort_values("x").drop_duplicates("series")
    shares = row_texts(small.sort_index(), "{x:g} % ({series})", " and ")
    above = [name for name in data.series.unique() if name not in set(small.series)]
    never = f"; never on {in_words(above)}" if above else ""
    begin = "Packed rows take less than twice the features from"
    finding = f"{begin} {shares} of the rows in memory on{never}" if shares else ""
    notes = [
        "one epoch, no limit",
        "feature rows alone",
        "paper: below 2x from 20 % on",
    ]
    return drawn(canvas, data, records[0], *notes, finding=finding)


def space_over_samples(profile: JsonDict) -> list[StudyNeed]:
    """Return studies of the flat graph at the usual share of memory: the paper's
    fan-outs, scaled batch sizes."""
    size = gallery(profile)["run"]["batch_size"]
    changes: list[JsonDict] = [{"fanout": fanout} for fanout in FANOUTS]
    for factor in values(profile, "batch_factors", BATCH_FACTORS):
        changes.append(
            {"fanout": FANOUTS[-1], "batch_size": max(1, round(size * factor))}
        )
    flat = [flat_graph(profile)]
    studies = [
        packing_studies(profile, "disk-space", flat, memory_shares=[USUAL_SHARE], **own)
        for own in changes
    ]
    return [need for needs in studies for need in needs]


@figure("diskgnn-fig14", studies=space_over_samples)
def fig14(evidence: Evidence) -> Drawing:
    """Draw disk space over fan-out, then over batch size."""
    records = evidence.all_studies(
        "disk-space", where=lambda params: params["memory_shares"] == [USUAL_SHARE]
    )
    points = pd.json_normalize(_results(records), "points", SAMPLES)
    points["fanout"] = [",".join(map(str, fanout)) for fanout in points.fanout]
    points["record"] = pd.Series(records, dtype=object)
    points = points.rename(columns={"dataset": "series", "packed_x": "value"})
    points = points.sort_values(["fanout", "batch_size"])
    # The most frequent batch size is that of the sweep over fan-outs.
    usual = points.batch_size.mode()[0]
    most = points.fanout.iloc[-1]
    fanouts = points[points.batch_size == usual]
    sizes = points[points.fanout == most]
    over_fanout = fanouts.assign(panel="fan-out", group=fanouts.fanout)
    over_size = sizes.assign(panel="batch size", group=sizes.batch_size)
    data = pd.concat([over_fanout, over_size])
    data = data[["panel", "group", "series", "value", "rows_per_batch", "batches"]]
    canvas, (left, right) = many_panels(2, wide=False, height=2.5, sharey=True)
    label = "disk space over the features (x)"
    draw_bars(
        over_fanout, title="", ylabel=label, xlabel="fan-out", numbers=".2f", axes=left
    )
    draw_bars(
        over_size, title="", ylabel="", xlabel="batch size", numbers=".1f", axes=right
    )
    notes = [f"one epoch, no limit, {percent(USUAL_SHARE)} of the rows in memory"]
    notes += [f"fan-outs at batch {usual}, batch sizes at fan-out {most}"]
    notes += [paper_note("diskgnn-fig14")]
    record = over_fanout.record.iloc[-1]
    finding = _space_over(over_fanout, over_size)
    return drawn(canvas, data, record, *notes, order=None, finding=finding)


def _space_over(fanouts: pd.DataFrame, sizes: pd.DataFrame) -> str:
    """Return the sentence on disk space over fan-outs and over batch sizes.

    Args:
        fanouts, sizes: `value` by `group`, in the order of the axis.
    """
    times = fanouts.value.iloc[-1] / fanouts.value.iloc[0]
    hops = f"The third hop takes {plain(times)} times the disk space"
    if len(sizes) < 2:
        return hops
    least, most = sizes.value.min(), sizes.value.max()
    first, last = sizes.group.iloc[[0, -1]]
    ends = f"batches of {first} to {last} seed nodes"
    if most < LEAST_TIMES * least:
        return f"{hops}; {ends} make no difference ({span(sizes.value, 3)} x)"
    grown = sizes.value.iloc[-1] / sizes.value.iloc[0]
    return f"{hops}; over {ends} it changes {plain(grown)} times"


def accesses(profile: JsonDict) -> list[StudyNeed]:
    """Return studies of one epoch's accesses on the profile's graph, a flat one, and an
    R-MAT one."""
    rmat = like(profile, "rmat", kind="rmat")
    three = [*graphs(profile), rmat]
    return epoch_studies(profile, "access-share", three, bounds=BOUNDS)


@figure("diskgnn-tab3", studies=accesses)
def tab3(evidence: Evidence) -> Sheet:
    """Return the share of the accesses by rank of the nodes: one row per graph, ours
    first, then the paper's."""
    records = evidence.all_studies("access-share")
    studies = pd.DataFrame(_results(records)).set_index("dataset")
    ours = pd.DataFrame(studies.shares.tolist(), studies.index, BUCKETS)
    ours["touched"] = studies.touched
    ours *= 100
    both = {"ours": ours, "paper": paper_frame("diskgnn-tab3")}
    data = pd.concat(both, names=["source", "graph"]).reset_index()
    batches = ", ".join(dict.fromkeys(map(str, studies.batches)))
    data = data[list(ACCESSES)]
    epochs = f"one epoch of {batches} mini-batches"
    notes = [epochs, "in % of accesses", "touched: nodes with any access"]
    first = ours[BUCKETS[0]].map(plain).reset_index(name="share")
    finding = row_texts(
        first,
        "{share} % on {dataset}",
        before="Accesses to the 1 % of the nodes read most: ",
    )
    return sheet(data, ACCESSES, records[0], *notes, finding=finding)


@figure("diskgnn-tab4", studies=lambda profile: [StudyNeed("fio-grid")])
def tab4(evidence: Evidence) -> Sheet:
    """Return IOPS, bandwidth and price: a row for this host's disk by fio, then one per
    storage type of the paper."""
    record = evidence.study("fio-grid")
    points = pd.DataFrame(record.result["points"])
    points = points[points.direct]
    random = points.query("pattern == 'random' and block_bytes == 4096")
    device = record.result.get("device") or {}
    name = device.get("model") or device.get("name") or "this host's disk"
    bandwidth = points.bytes_per_s.max() / GB
    iops = random.iops.max()
    ours = pd.DataFrame(
        [[name.strip(), iops, bandwidth, None, "fio, this host"]], columns=list(STORAGE)
    )
    paper = paper_frame("diskgnn-tab4").rename(columns=MEASURES)
    paper["source"] = published("diskgnn-tab4").groupby("series").source.first()
    data = pd.concat([ours, paper.reset_index(names="storage")])
    note = (
        "most of any queue depth, direct; prices of April 2024, none is known for this "
        "host's"
    )
    finding = (
        f"{name.strip()} reads 4 KiB {plain(iops)} times a second at random, and up to "
        f"{plain(bandwidth)} GB/s"
    )
    return sheet(data, STORAGE, record, note, finding=finding)


def searches(profile: JsonDict) -> list[StudyNeed]:
    """Return the study of both searches on the graph of flat accesses, where disk space
    is scarce."""
    own = profile.get("gallery") or {}
    short = SEARCH_BATCHES if own.get("run") else 0
    limits = values(profile, "search_limits", SEARCH_LIMITS)
    flat = [flat_graph(profile)]
    return packing_studies(
        profile, "packing-search", flat, limits=limits, max_batches=short
    )


@figure("diskgnn-tab7", studies=searches)
def tab7(evidence: Evidence) -> Sheet:
    """Return amplification and seconds of heuristic and brute-force search: one row per
    limit, then the paper's."""
    record = evidence.study("packing-search")
    study = record.params | record.result
    ours = pd.json_normalize(study, "cases", "dataset", sep=" ")
    ours.columns = ours.columns.str.replace("_", " ")
    ours["of packing"] = 100 * ours.limit
    ours["x"] = ours["limit x"].map("{:.2f}x".format)
    known = published("diskgnn-tab7")
    names = known.series.str.extract("(?P<dataset>[^ ]+) (?P<measure>.+)")
    paper = wide(
        known.join(names), index=["dataset", "x"], columns="measure"
    ).reset_index()
    paper["dataset"] += " (paper)"
    both = pd.concat([ours.drop(columns="limit"), paper], ignore_index=True)
    data = both.rename(columns=MEASURED).reindex(columns=list(SEARCH))
    data["speedup"] = data["brute force s"] / data["heuristic s"]
    finding = _by_heuristic(data.head(len(ours)))
    data["heuristic amp."] = (
        data["heuristic amp."].astype(object).fillna("does not fit")
    )
    share = percent(study["memory_share"])
    packed = (
        f"{share} of the rows in memory; packing alone takes {study['packed_x']:.2f}x "
        "the features"
    )
    lengths = f"brute force tries {study['search_points']} segment lengths"
    note = f"{packed}; {lengths} with every threshold; reads of 4 KiB"
    caption = study_caption(record, note).replace(
        "not timed", "the searches alone timed, without a memory cap"
    )
    return sheet(data, SEARCH, caption, finding=finding)


def _by_heuristic(ours: pd.DataFrame) -> str:
    """Return the sentence on the heuristic search over brute force; empty where no
    limit has both."""
    both = ours.dropna(subset=["heuristic amp.", "speedup"])
    if both.empty:
        return ""
    more = span(both["heuristic amp."] / both["brute force amp."])
    layout = (
        "an equal layout"
        if more == "1"
        else f"a layout with {more} times its read amplification"
    )
    return (
        f"The heuristic search is {span(both.speedup)} times as fast as brute force "
        f"and finds {layout}"
    )
