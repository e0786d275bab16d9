"""DiskGNN's claims."""

from __future__ import annotations

import statistics

from harness.claims.accuracy import AccuracyGap
from harness.claims.gnndrive import MARIUS
from harness.claims.measured import Measured, NotRun, Number, ratio
from harness.claims.pairs import Plain, Records, Side, device_bytes, epoch_s
from harness.claims.query import OverSettings, Ratio, answers, one_setting, register, runs_of, summarise
from harness.studies.record import StudyRecord

OURS = Side("diskgnn")
#: Epochs of the paper's training; all of them train on the samples of one epoch.
EPOCHS = 50

register("dg-03", OverSettings(Ratio(Side("diskgnn", {"resample_every": 1}), MARIUS), "mean"))
register("dg-04", OverSettings(Ratio(Side("diskgnn", {"resample_every": 1}), Side("dgl-ondisk")), "most"))
register("dg-08", AccuracyGap("diskgnn", "ginex"))
register("dg-09", AccuracyGap("diskgnn", "mariusgnn"))
register("dg-25", Ratio(OURS, MARIUS))
register("dg-26", Ratio(MARIUS, OURS, device_bytes))


@answers("dg-10")
def _batched(records: Records) -> Measured:
    """Divide the seconds of packing one mini-batch at a time by those of packing in one pass."""
    sides = [
        Side("diskgnn", {"packing": "batched"}),
        Side("diskgnn", {"packing": "individual"}, name="individual packing"),
    ]
    setting = one_setting(records, sides)
    ours, theirs = ([_packing_s(record) for record in cell.records] for cell in setting.cells)
    lines = [f"batched {statistics.median(ours):.2f} s, individual {statistics.median(theirs):.2f} s"]
    return Measured(ratio(theirs, ours), runs=runs_of(setting.cells), setting=setting.shared, detail=lines)


def _packing_s(record: Plain) -> float:
    """Return the seconds of packing, an earlier run's included. Raises NotRun where the record has none."""
    if record["facts"].get("pack_s") is not None:
        return float(record["facts"]["pack_s"])
    raise NotRun("the runs do not say how long packing took")


def _pipelined() -> Ratio:
    """Return the query that divides the sequential epoch by the pipelined one."""
    sequential = Side("diskgnn", {"pipeline": False}, name="diskgnn, sequential")
    return Ratio(Side("diskgnn", {"pipeline": True}), sequential)


register("dg-11", OverSettings(_pipelined(), "most"))
register("dg-12", OverSettings(_pipelined(), "mean"))


def _searches(records: Records) -> tuple[list[Plain], str]:
    """Return the cases in which both searches found a layout, and the study's name and key. Raises NotRun."""
    (study,) = records.studies("packing-search")
    both = [case for case in study.result["cases"] if case["heuristic"] and case["brute_force"]]
    if not both:
        raise NotRun("in no case did both searches find a layout")
    return both, f"packing-search {study.key}"


@answers("dg-13")
def _search_time(records: Records) -> Measured:
    """Divide the seconds of brute force by those of the heuristic; the least over the cases."""
    cases, key = _searches(records)
    numbers = [Number.exact(case["brute_force"]["seconds"] / max(1e-9, case["heuristic"]["seconds"])) for case in cases]
    tried = "brute force tries 8 segment lengths with each threshold, the paper every one"
    return Measured(summarise(numbers, "least"), studies=[key], detail=_cases(cases), differs=[tried])


@answers("dg-14")
def _search_quality(records: Records) -> Measured:
    """Divide the heuristic's read amplification by brute force's; the greatest over the cases."""
    cases, key = _searches(records)
    numbers = [
        Number.exact(case["heuristic"]["amplification"] / case["brute_force"]["amplification"]) for case in cases
    ]
    return Measured(summarise(numbers, "most"), studies=[key], detail=_cases(cases))


def _cases(cases: list[Plain]) -> list[str]:
    return [
        f"limit {case['limit']:g} of packing alone: "
        + ", ".join(
            f"{name.replace('_', ' ')} {case[name]['seconds']:.3g} s, amplification {case[name]['amplification']:.3f}"
            for name in ("heuristic", "brute_force")
        )
        for case in cases
    ]


def _on(disk_class: str) -> Side:
    return Side(
        "diskgnn",
        where=lambda config: str(config["disk_class"]).startswith(disk_class),
        name=f"diskgnn on {disk_class}",
    )


register("dg-15", Ratio(_on("aws-nvme"), _on("aws-gp3"), free=("disk_class",)))


@answers("dg-18")
def _with_memory(records: Records) -> Measured:
    """Divide packed bytes by the feature table's, with over a fifth of all rows in memory; greatest over the graphs."""
    found = records.studies("disk-space")
    points = [(min(_beyond_a_fifth(study), key=lambda entry: entry["memory_share"]), study) for study in found]
    worst, study = max(points, key=lambda entry: float(entry[0]["packed_x"]))
    accesses = study.result["accesses"] / study.dataset.num_nodes if study.dataset else 0.0
    lines = [f"{accesses:.2f} accesses for each row of the table, {100 * worst['memory_share']:g} % of them in memory"]
    return Measured(
        Number.exact(worst["packed_x"]),
        studies=[f"disk-space {record.key}" for record in found],
        detail=lines,
        differs=["it grows with the mini-batches of an epoch, which are the profile's"],
    )


def _beyond_a_fifth(study: StudyRecord) -> list[Plain]:
    points = [entry for entry in study.result["points"] if entry["memory_share"] > 0.2]
    if not points:
        raise NotRun("the study disk-space was not made with more than a fifth of the rows in memory")
    return points


@answers("dg-19")
def _third_hop(records: Records) -> Measured:
    """Divide the packed bytes with three hops by those with two."""
    found = records.studies("disk-space")
    two = next((study for study in found if len(study.params["fanout"]) == 2), None)
    three = [study for study in found if len(study.params["fanout"]) == 3]
    three = [study for study in three if two and study.params["batch_size"] == two.params["batch_size"]]
    if two is None or not three:
        raise NotRun("the study disk-space was not made with two hops and with a third")
    a, b = (float(study.result["points"][0]["packed_bytes"]) for study in (two, three[0]))
    fanouts = " and ".join(str(study.params["fanout"]) for study in (two, three[0]))
    return Measured(
        Number.exact(b / a),
        detail=[f"fan-outs {fanouts}"],
        studies=[f"disk-space {two.key}", f"disk-space {three[0].key}"],
    )


# Options of each step of the ablation, from the bottom up.
ABLATION = (
    ("naive", {"device_cache": "off", "host_cache": "off", "packing": "off", "disk_cache": "off"}),
    ("+G", {"device_cache": "auto", "host_cache": "off", "packing": "off", "disk_cache": "off"}),
    ("+G+C", {"device_cache": "auto", "host_cache": "auto", "packing": "off", "disk_cache": "off"}),
    ("+packing", {"device_cache": "auto", "host_cache": "auto", "packing": "batched"}),
)


def _step(above: int) -> Ratio:
    """Return the query that divides the epoch of the ablation's step `above - 1` by that of step `above`."""
    below, better = (
        Side("diskgnn", options, name=f"diskgnn {name}") for name, options in ABLATION[above - 1 : above + 1]
    )
    return Ratio(better, below)


register("dg-22", _step(1))
register("dg-24", _step(2))
register("dg-20", _step(3))


@answers("dg-21")
def _top(records: Records) -> Measured:
    """Return the per cent of accesses to the 1 % of nodes asked for most, on the profile's first graph."""
    study = records.studies("access-share")[0]
    return Measured(Number.exact(100 * study.result["shares"][0]), studies=[f"access-share {study.key}"])


@answers("dg-23")
def _amortised(records: Records) -> Measured:
    """Return preprocessing in per cent of preprocessing and training, where one epoch's samples are replayed."""
    setting = one_setting(
        records, [Side("diskgnn", {"resample_every": 0}, name="diskgnn, one epoch's samples replayed")]
    )
    cell = setting.cells[0]
    spent = cell.newest["preprocess"]
    prepared = float(spent["seconds"]) + float(spent.get("made_s") or 0.0)
    trained = EPOCHS * statistics.median(cell.samples(epoch_s))
    line = (
        f"{prepared:.1f} s of preprocessing for {EPOCHS} epochs of {trained / EPOCHS:.3g} s that replay one's samples"
    )
    return Measured(
        Number.exact(100 * prepared / (prepared + trained)),
        runs=cell.runs,
        setting=setting.shared,
        detail=[line],
        differs=["not faithful: all epochs train on one epoch's samples, as in the paper"],
    )
