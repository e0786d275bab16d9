"""PaGraph's figures and tables drawn from studies: accesses (5), caches (13) and partitions (17, Table 5)."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, Sheet, drawn, figure, paper_rows, sheet, specs
from harness.figures.draw.captions import dataset_name, left_out, study_caption
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels, mark_range
from harness.figures.grids import values
from harness.figures.pagraph.grid import LAYERWISE, SAMPLERS, small_study, study
from harness.studies.base import StudyNeed

SPEC = specs(__file__)
SHARES: list[float] = SPEC["shares"]


def accesses(profile: Plain) -> list[StudyNeed]:
    """Return the studies of one epoch's accesses, one per sampler."""
    return [study(profile, "access-frequency"), study(profile, "access-frequency", **LAYERWISE)]


@figure("pagraph-fig5", studies=accesses)
def fig5(evidence: Evidence) -> Drawing:
    """Draw a CDF of reads per row that is read, one per sampler; raise NotDrawn without a study."""
    newest = {record.params["sampler"]: record for record in evidence.studies if record.study == "access-frequency"}
    records = {f"{name} sampling": newest[sampler] for sampler, name in SAMPLERS.items() if sampler in newest}
    if not records:
        raise NotDrawn("the study access-frequency was not made yet")
    rows, notes = [], []
    for label, record in records.items():
        found, key = record.result, record.key
        rows += [{"series": label, "x": times, "y": 100.0 * share, "study": key} for times, share in found["cdf"]]
        told = {key: value or 0 for key, value in found.items() if key.startswith("out_degree")}
        repeated = 100.0 * found["repeated"]
        notes.append(SPEC["fig5"]["note"].format(**{**found, **told, "series": label, "repeated": repeated}))
    data = pd.DataFrame(rows)
    canvas, _ = draw_curves(data, **SPEC["fig5"]["curves"])
    said = "; ".join(f"{row['series']} {row['value']:g} {row['unit']}" for row in paper_rows("pagraph-fig5"))
    first = next(iter(records.values()))
    return drawn(canvas, data, first, *notes, f"paper (wiki-talk): {said}" if said else "")


def caches(profile: Plain) -> list[StudyNeed]:
    """Return the study of one epoch of the paper's workload with caches of every share."""
    return [study(profile, "device-cache-hits", shares=sorted({*SHARES, *values(profile, "cached_shares", [])}))]


@figure("pagraph-fig13", studies=caches)
def fig13(evidence: Evidence) -> Drawing:
    """Draw the hit ratio over the cached share, a curve for each ranking and for the optimal static cache."""
    record = evidence.study("device-cache-hits")
    paper = {(row["series"], float(row["x"])): float(row["value"]) for row in paper_rows("pagraph-fig13")}
    data = pd.DataFrame(
        {"series": name, "x": 100.0 * share, "y": 100.0 * ratio, "paper": paper.get((name, round(100.0 * share, 6)))}
        for name, ratios in record.result["hit_ratio"].items()
        for share, ratio in zip(record.result["shares"], ratios, strict=True)
    )
    canvas, axes = draw_curves(data, **SPEC["fig13"]["curves"])
    axes.set_ylim(0, 102)
    reduced = left_out(record.result["shares"], SHARES, "cached shares")
    return drawn(canvas, data, record, *SPEC["fig13"]["notes"], reduced)


def partitions(profile: Plain) -> list[StudyNeed]:
    """Return the study of one to eight partitions of a tenth of the graph."""
    return [small_study(profile, "partition-quality")]


@figure("pagraph-fig17", studies=partitions)
def fig17(evidence: Evidence) -> Drawing:
    """Draw hit ratios with and without partitions (left) and a partition's share of all nodes (right)."""
    record = evidence.study("partition-quality")
    found = record.result["partitions"]
    spec = SPEC["fig17"]
    data = pd.DataFrame(
        {"panel": panel, "series": name, "x": entry["count"], "y": 100.0 * entry[key]}
        for panel in spec["panels"]
        for name, key in spec[panel].items()
        for entry in found
    )
    canvas, panels = many_panels(2)
    counts = [entry["count"] for entry in found]
    for axes, (panel, labels) in zip(panels, spec["panels"].items(), strict=True):
        draw_curves(data[data["panel"] == panel], axes=axes, **labels)
        axes.set_xticks(counts, [str(count) for count in counts])
    known = paper_rows("pagraph-fig17", "of them replicas")
    mark_range(panels[1], [float(row["x"]) for row in known], [row["value"] for row in known], spec["paper"])
    replication = ", ".join(f"{entry['replication']:.2f} at {entry['count']}" for entry in found)
    note = spec["note"].format(100 * record.result["cached_share"], record.result["hops"], replication)
    return drawn(canvas, data, record, note)


@figure("pagraph-tab5", studies=partitions)
def tab5(evidence: Evidence) -> Sheet:
    """Return the one-time cost of partitioning: one row per number of partitions, then one per graph of the paper."""
    record = evidence.study("partition-quality")
    data = record.dataset
    spec, nodes = SPEC["tab5"], data.train_nodes if data else None
    rows: list[Plain] = []
    for entry in record.result["partitions"]:
        row: Plain = {"dataset": dataset_name(record), "training nodes": nodes, "source": "measured"}
        row |= {column: entry[key] for column, key in spec["keys"].items()}
        if nodes is not None and entry["seconds"]:
            row["training nodes / s"] = nodes / entry["seconds"]
        rows.append(row)
    for row in paper_rows("pagraph-tab5"):
        rows.append({"dataset": row["series"], "seconds": 60.0 * float(row["value"]), "source": "paper"})
    text = study_caption(record, spec["note"].format(record.result["hops"]))
    text = text.replace("computed from the mini-batches, no timing; ", "")
    return sheet(pd.DataFrame(rows).reindex(columns=list(spec["columns"])), spec["columns"], text)
