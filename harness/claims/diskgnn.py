"""Claims of DiskGNN, measured by runs of their declared setting, or by studies of
packing and of accesses."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from harness.claims.comparison import Runs, of, one_setting, ratio, samples
from harness.claims.measured import Measured, NotRun, Number, Studies, lines_of, studied
from harness.claims.registry import claim
from harness.records.cost import TrainingCost

# Description of a case of the search.
_CASE = (
    "limit {limit:g} of packing alone: "
    "heuristic {heuristic_seconds:.3g} s, amplification {heuristic_amplification:.3f}, "
    "brute force {brute_force_seconds:.3g} s, amplification "
    "{brute_force_amplification:.3f}"
)
# Epochs of the paper's training; all of them train on the samples of one epoch.
_EPOCHS = 50


@claim("dg-10")
def batched_packing(runs: Runs) -> Measured:
    """Divide the seconds of individual packing by those of batched packing."""
    batched = of("diskgnn", packing="batched")
    individual = of("diskgnn", packing="individual")
    setting = one_setting(runs, batched, individual)
    batched_s, individual_s = (
        samples(side, "facts.pack_s").median() for side in setting.sides
    )
    line = f"batched {batched_s:.2f} s, individual {individual_s:.2f} s"
    return replace(ratio(setting, "facts.pack_s"), detail=[line])


@claim("dg-13", study="packing-search")
def search_time(studies: Studies) -> Measured:
    """Divide brute force's seconds by the heuristic's, the least of all cases."""
    cases = _searches(studies)
    times = cases["brute_force_seconds"] / cases["heuristic_seconds"]
    return studied(studies, times.min(), *lines_of(cases, _CASE))


@claim("dg-14", study="packing-search")
def search_quality(studies: Studies) -> Measured:
    """Divide the heuristic's read amplification by brute force's, the greatest of all
    cases."""
    cases = _searches(studies)
    amplification = (
        cases["heuristic_amplification"] / cases["brute_force_amplification"]
    )
    return studied(studies, amplification.max(), *lines_of(cases, _CASE))


def _searches(studies: Studies) -> pd.DataFrame:
    """Return a row for each case in which both searches found a layout."""
    cases = [
        case
        for case in studies[0].result["cases"]
        if case["heuristic"] and case["brute_force"]
    ]
    if not cases:
        raise NotRun("in no case did both searches find a layout")
    return pd.json_normalize(cases, sep="_")


@claim("dg-15")
def slow_disk(runs: Runs) -> Measured:
    """Divide diskgnn's epoch on the SSD class aws-gp3 by that on aws-nvme."""
    drive = runs["config.disk_class"].str.partition("/")[0]
    named = runs.assign(drive=drive)
    nvme = of("diskgnn", drive="aws-nvme")
    gp3 = of("diskgnn", drive="aws-gp3")
    return ratio(one_setting(named, nvme, gp3, free=["disk_class"]))


@claim("dg-18", study="disk-space")
def disk_space(studies: Studies) -> Measured:
    """Divide packed bytes by the feature table's, with just over a fifth of the rows in
    memory; the greatest graph."""
    tables = []
    for study in studies:
        num_nodes = study.dataset.num_nodes if study.dataset else float("inf")
        accesses = study.result["accesses"] / num_nodes
        points = pd.DataFrame(study.result["points"]).assign(accesses=accesses)
        above = points[points["memory_share"] > 0.2]
        tables.append(above.nsmallest(1, "memory_share"))
    if any(table.empty for table in tables):
        raise NotRun(
            "the study disk-space was not made with more than a fifth of the rows in "
            "memory"
        )
    worst = pd.concat(tables).nlargest(1, "packed_x")
    worst["percent"] = 100 * worst["memory_share"]
    lines = lines_of(
        worst,
        "{accesses:.2f} accesses for each row of the table, {percent:g} % of them "
        "in memory",
    )
    return studied(studies, worst["packed_x"].max(), *lines)


@claim("dg-19", study="disk-space")
def third_hop(studies: Studies) -> Measured:
    """Divide the packed bytes with three hops by those with two, at one batch size."""
    by_shape = {
        (len(study.params["fanout"]), study.params["batch_size"]): study
        for study in reversed(studies)
    }
    batch_sizes = [
        size for hops, size in by_shape if hops == 2 and (3, size) in by_shape
    ]
    if not batch_sizes:
        raise NotRun("the study disk-space was not made with two hops and with a third")
    pair = [by_shape[hops, batch_sizes[-1]] for hops in (2, 3)]
    shallow, deep = (study.result["points"][0]["packed_bytes"] for study in pair)
    fanouts = " and ".join(str(study.params["fanout"]) for study in pair)
    return studied(pair, deep / shallow, f"fan-outs {fanouts}")


@claim("dg-21", study="access-share")
def hottest_nodes(studies: Studies) -> Measured:
    """Return the per cent of accesses to the 1 % of nodes asked for most, on the
    profile's first graph."""
    first = studies[0]
    return studied([first], 100 * first.result["shares"][0])


@claim("dg-23")
def preprocessing(runs: Runs) -> Measured:
    """Return preprocessing in per cent of preprocessing and training, where one epoch's
    samples are replayed."""
    setting = one_setting(runs, of("diskgnn", resample_every=0))
    cost = TrainingCost.of_runs(list(setting.sides[0]["record"]))
    if cost is None:
        raise NotRun("no epoch of it was measured")
    trained = f"{_EPOCHS} epochs of {cost.mean_epoch_s:.3g} s"
    line = (
        f"{cost.once_s:.1f} s of preprocessing for {trained} that replay one's samples"
    )
    per_cent = 100 * cost.once_s / cost.total_s(_EPOCHS)
    return setting.measured(Number.exact(per_cent), line)
