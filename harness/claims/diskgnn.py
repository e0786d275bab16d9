"""DiskGNN's claims."""

from __future__ import annotations

import statistics
from typing import Any

from harness.claims.gnndrive import accuracy_gap, accuracy_settings, test_accuracy
from harness.claims.measured import Measured, NotRun, Number, median, ratio
from harness.claims.pairs import (
    Cell,
    Plain,
    Records,
    Samples,
    Side,
    budget_share,
    compare,
    describe,
    device_bytes,
    epoch_s,
    merge,
)
from harness.claims.query import answers, over_settings, register, summarise, usual_settings
from harness.studies.record import StudyRecord

THREE = ("ginex", "mariusgnn", "diskgnn")
# Any model and size, the usual disk: what the paper's several datasets become.
_ANY: dict[str, Any] = {"memory": None, "batch_size": None, "dim": None}

register("dg-01", "diskgnn-fig9", over_settings("diskgnn", "ginex", "mean"))
register("dg-02", "diskgnn-fig9", over_settings("diskgnn", "ginex", "most", **_ANY))
register("dg-03", "diskgnn-fig9", over_settings("diskgnn", "mariusgnn", "mean", memory=None))
register("dg-04", "diskgnn-fig9", over_settings("diskgnn", "dgl-ondisk", "most", **_ANY))


@answers("dg-05", "diskgnn-fig11")
def _traffic(records: Records) -> Measured:
    """How many times diskgnn's bytes from the device ginex reads, with the least memory of the sweep."""
    found = usual_settings(records, [Side("diskgnn"), Side("ginex")], memory=None, model="sage")
    least = min(found, key=lambda setting: setting.cells[0].newest["memory"]["budget_bytes"] or 0)
    return compare(least, device_bytes, differs=[f"the budget is {100 * budget_share(least):.0f} % of the features"])


def _three(claim: str, value: Samples, unit: float = 1.0) -> None:
    """One number for each of ginex, mariusgnn and diskgnn in one setting."""

    def run(records: Records) -> Measured:
        found = usual_settings(records, [Side(system) for system in THREE], memory=None, model="sage")
        # A tenth of the features is the paper's usual memory.
        setting = min(found, key=lambda setting: abs(budget_share(setting) - 0.1))
        numbers = []
        for system, cell in zip(THREE, setting.cells, strict=True):
            samples = cell.samples(value)
            if not samples:
                raise NotRun(f"the runs of {system} do not hold it")
            numbers.append(median(samples, unit))
        return Measured(
            tuple(numbers), runs=_runs(setting.cells), setting=setting.shared,
            detail=[describe(cell, value) for cell in setting.cells],
        )  # fmt: skip

    register(claim, "diskgnn-tab1", run)


def _runs(cells: list[Cell]) -> list[str]:
    return [run for cell in cells for run in cell.runs]


_three("dg-06", epoch_s)
_three("dg-07", device_bytes, 1e-9)


@answers("dg-08", "diskgnn-tab1")
def _accuracies(records: Records) -> Measured:
    """Whether ginex and diskgnn reach the same test accuracy, to half a point, and mariusgnn no more."""
    setting = accuracy_settings(records, *THREE)
    ginex, marius, ours = (test_accuracy(cell.newest) for cell in setting.cells)
    lines = [f"ginex {ginex:.2f} %, mariusgnn {marius:.2f} %, diskgnn {ours:.2f} %"]
    holds = abs(ginex - ours) <= 0.5 and marius <= ours
    return Measured(
        tuple(Number.exact(value) for value in (ginex, marius, ours)), holds=holds, runs=_runs(setting.cells),
        setting=setting.shared, detail=lines,
    )  # fmt: skip


register("dg-09", "diskgnn-tab5", lambda records: accuracy_gap(records, "diskgnn", "mariusgnn"))


@answers("dg-10", "diskgnn-fig17")
def _batched(records: Records) -> Measured:
    """Seconds of packing a mini-batch at a time over those of packing in one pass."""
    sides = [
        Side("diskgnn", {"packing": "batched"}),
        Side("diskgnn", {"packing": "individual"}, name="individual packing"),
    ]
    setting = usual_settings(records, sides, memory=None)[0]
    ours, theirs = ([_packing_s(record) for record in cell.records] for cell in setting.cells)
    lines = [f"batched {statistics.median(ours):.2f} s, individual {statistics.median(theirs):.2f} s"]
    return Measured((ratio(theirs, ours),), runs=_runs(setting.cells), setting=setting.shared, detail=lines)


def _packing_s(record: Plain) -> float:
    """Seconds that packing took, whichever run did it.

    Raises:
        NotRun: the run does not say.
    """
    notes = record.get("notes") or {}
    if "pack_s" in notes:
        return float(notes["pack_s"])
    raise NotRun("the runs do not say how long packing took")


def _pipelined(claim: str, kind: str) -> None:
    """The sequential epoch over the pipelined one, over all caps and models."""

    def run(records: Records) -> Measured:
        sides = [Side("diskgnn", {"pipeline": True}), Side("diskgnn", {"pipeline": False}, name="diskgnn, sequential")]
        found = [compare(setting) for setting in usual_settings(records, sides, **_ANY)]
        return merge(found, summarise([measured.numbers[0] for measured in found], kind))

    register(claim, "diskgnn-tab8", run)


_pipelined("dg-11", "most")
_pipelined("dg-12", "mean")


def _searches(records: Records) -> tuple[list[Plain], str]:
    """The cases of the search study in which both found a layout.

    Raises:
        NotRun: there is none.
    """
    study = records.evidence.study("packing-search")
    both = [case for case in study.result["cases"] if case["heuristic"] and case["brute_force"]]
    if not both:
        raise NotRun("in no case did both searches find a layout")
    return both, f"packing-search {study.key}"


@answers("dg-13", "diskgnn-tab7")
def _search_time(records: Records) -> Measured:
    """Seconds of brute force over those of the heuristic, the least of the cases."""
    cases, key = _searches(records)
    numbers = [Number.exact(case["brute_force"]["seconds"] / max(1e-9, case["heuristic"]["seconds"])) for case in cases]
    tried = "brute force tries 8 segment lengths with each threshold, the paper every one"
    return Measured(tuple(summarise(numbers, "least")), studies=[key], detail=_cases(cases), differs=[tried])


@answers("dg-14", "diskgnn-tab7")
def _search_quality(records: Records) -> Measured:
    """The heuristic's amplification over brute force's, the most of the cases."""
    cases, key = _searches(records)
    numbers = [
        Number.exact(case["heuristic"]["amplification"] / case["brute_force"]["amplification"]) for case in cases
    ]
    return Measured(tuple(summarise(numbers, "most")), studies=[key], detail=_cases(cases))


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
    return Side("diskgnn", where=lambda config: config["disk_class"] == disk_class, name=f"diskgnn on {disk_class}")


@answers("dg-15", "diskgnn-fig15")
def _slow_disk(records: Records) -> Measured:
    """How many times as long an epoch takes on the gp3-like class as on the NVMe-like one, divided by as much."""
    missing: NotRun | None = None
    for divisor in dict.fromkeys(
        str(record["config"]["disk_class"]).removeprefix("aws-gp3")
        for record in records.valid
        if str(record["config"]["disk_class"]).startswith("aws-gp3")
    ):
        sides = [_on(f"aws-nvme{divisor}"), _on(f"aws-gp3{divisor}")]
        try:
            return compare(usual_settings(records, sides, disk_class=None, free=["disk_class"])[0])
        except NotRun as error:
            missing = error
    raise missing or NotRun("no run of diskgnn on aws-gp3")


def _space(records: Records, where: Any = lambda params: True) -> StudyRecord:
    return records.evidence.study("disk-space", where=where)


def _unlimited(claim: str) -> None:
    """Packed chunks alone over the feature table, a tenth of the rows in memory, on the flat graph: like Friendster."""

    def run(records: Records) -> Measured:
        study = _space(records, lambda params: 0.1 in params["memory_shares"] and params["dataset"].endswith("-flat"))
        point = next(entry for entry in study.result["points"] if entry["memory_share"] == 0.1)
        accesses = study.result["accesses"] / study.dataset.num_nodes if study.dataset else 0.0
        line = f"{accesses:.2f} accesses for each row of the table: what this number grows with"
        return Measured((Number.exact(point["packed_x"]),), studies=[f"disk-space {study.key}"], detail=[line])

    register(claim, "diskgnn-fig12", run)


_unlimited("dg-16")
_unlimited("dg-17")


@answers("dg-18", "diskgnn-fig13")
def _with_memory(records: Records) -> Measured:
    """The least space of any segment length with more than a fifth of the rows in memory, over the feature table."""
    study = _space(records, lambda params: any(share > 0.2 for share in params["memory_shares"]))
    points = [entry for entry in study.result["points"] if entry["memory_share"] > 0.2]
    worst = max(points, key=lambda entry: float(entry["least_x"]))
    return Measured((Number.exact(worst["least_x"]),), studies=[f"disk-space {study.key}"])


@answers("dg-19", "diskgnn-fig14")
def _third_hop(records: Records) -> Measured:
    """Packed bytes with a third hop over those with two."""
    found = records.evidence.all_studies("disk-space")
    for three in (record for record in found if len(record.params["fanout"]) == 3):
        two = next((r for r in found if r.params["fanout"] == three.params["fanout"][:2] and _alike(r, three)), None)
        if two is not None:
            a, b = two.result["points"][0], three.result["points"][0]
            fanouts = " and ".join(str(record.params["fanout"]) for record in (two, three))
            return Measured(
                (Number.exact(b["packed_bytes"] / a["packed_bytes"]),), detail=[f"fan-outs {fanouts}"],
                studies=[f"disk-space {two.key}", f"disk-space {three.key}"],
            )  # fmt: skip
    raise NotRun("the study disk-space was not made with two hops and with a third")


def _alike(one: StudyRecord, other: StudyRecord) -> bool:
    keys = ("batch_size", "max_batches", "dataset", "memory_shares")
    return all(one.params[key] == other.params[key] for key in keys)


# From the bottom of the ablation up: which options each step has.
ABLATION = (
    ("naive", {"device_cache": "off", "host_cache": "off", "packing": "off", "disk_cache": "off"}),
    ("+G", {"device_cache": "auto", "host_cache": "off", "packing": "off", "disk_cache": "off"}),
    ("+G+C", {"device_cache": "auto", "host_cache": "auto", "packing": "off", "disk_cache": "off"}),
    ("+packing", {"device_cache": "auto", "host_cache": "auto", "packing": "batched"}),
)


@answers("dg-20", "diskgnn-fig18")
def _packing(records: Records) -> Measured:
    """The epoch without packing over the one with it, both caches on."""
    (_, without), (_, packed) = ABLATION[2:]
    sides = [Side("diskgnn", packed, name="diskgnn"), Side("diskgnn", without, name="diskgnn without packing")]
    return compare(usual_settings(records, sides)[0])


@answers("dg-21", "diskgnn-tab3")
def _top(records: Records) -> Measured:
    """Share of the accesses that go to the 1 % of nodes asked for most."""
    study = records.evidence.study("access-share", where=lambda params: min(params["bounds"]) == 0.01)
    return Measured((Number.exact(100 * study.result["shares"][0]),), studies=[f"access-share {study.key}"])


@answers("dg-22", "diskgnn-fig18")
def _steps(records: Records) -> Measured:
    """The epoch at each step of the ablation."""
    sides = [Side("diskgnn", options, name=f"diskgnn {name}") for name, options in ABLATION]
    setting = usual_settings(records, sides)[0]
    return Measured(
        tuple(median(cell.samples(epoch_s)) for cell in setting.cells),
        runs=_runs(setting.cells),
        setting=setting.shared,
        detail=[f"{name}: {describe(cell, epoch_s)}" for (name, _), cell in zip(ABLATION, setting.cells, strict=True)],
    )


@answers("dg-23", "diskgnn-fig9")
def _amortised(records: Records) -> Measured:
    """Preprocessing over itself and all training, for the epochs that were asked for, in per cent."""
    setting = usual_settings(records, [Side("diskgnn")], model="sage")[0]
    cell = setting.cells[0]
    record = cell.newest
    spent = float(record["preprocess"]["seconds"]) + float(record["preprocess"].get("made_s") or 0.0)
    epochs = len(record["epochs"])
    trained = epochs * statistics.median(cell.samples(epoch_s))
    replayed = 100 * spent / epochs / (spent / epochs + 50 * trained / epochs)
    lines = [
        f"{spent:.1f} s of preprocessing for {epochs} epochs of {trained / epochs:.3g} s",
        f"replaying one epoch's samples for 50 epochs, as the paper's code does, it would be {replayed:.1f} %",
    ]
    return Measured(
        (Number.exact(100 * spent / (spent + trained)),), runs=cell.runs, setting=setting.shared, detail=lines,
        differs=["every epoch has samples of its own, prepared for it alone"],
    )  # fmt: skip
