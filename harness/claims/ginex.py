"""Claims of Ginex, measured by runs of their declared setting, by the table of a
figure, or by a study of caches."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from harness.claims.comparison import Runs, of, one_setting, ratio, saved, settings
from harness.claims.measured import Measured, NotRun, Number, Studies, lines_of, studied
from harness.claims.registry import claim
from harness.studies.accesses import read_ratios
from workloads.arraytypes import JsonDict


@claim("gx-05", figure="ginex-fig4")
def stalled(table: pd.DataFrame) -> Measured:
    """Return the per cent of pyg+'s epochs in which the device neither computes nor
    copies."""
    times = table[table["panel"] == "time"]
    stalls = times[times["part"] == "data preparation"]
    number = Number.exact(stalls["percent"].iloc[0])
    return Measured(number, sorted(set(stalls["run"])))


@claim("gx-06", figure="ginex-fig4")
def late_misses(table: pd.DataFrame) -> Measured:
    """Return the page cache's miss ratio over the last third of the iterations."""
    ratios = table[table["panel"] == "miss ratio"]
    known = ratios["miss_percent"].dropna().astype(float)
    count = max(1, len(known) // 3)
    last = known.tail(count)
    number = Number(sum(last) / count, last.min(), last.max(), "range")
    return Measured(
        number, detail=[f"mean over the last {count} of {len(known)} iterations"]
    )


@claim("gx-09", study="miss-ratios")
def reads_of_belady(studies: Studies) -> Measured:
    """Divide belady's reads by those of the static cache of nodes by degree, the
    greatest over graphs and sizes."""
    tables = []
    for study in studies:
        if not {"belady", "degree"} <= set(study.params["policies"]):
            raise NotRun("the study miss-ratios has not both policies")
        reads = {
            policy: read_ratios(study.result, policy) for policy in ("belady", "degree")
        }
        tables.append(pd.DataFrame({"size": study.result["shares"], **reads}))
    table = pd.concat(tables)
    worst = (table["belady"] / table["degree"]).max()
    lines = lines_of(
        100 * table, "{size:g} % of the rows: {belady:.1f} % against {degree:.1f} %"
    )
    return studied(studies, worst, *lines)


@claim("gx-12")
def twice_the_superbatch(runs: Runs) -> Measured:
    """Return the per cent of the epoch that twice the default superbatch saves."""
    sized = runs.assign(superbatches=runs["record"].map(_superbatches))
    twice = of("ginex", superbatches=2)
    default = of("ginex", superbatches=1)
    return saved(one_setting(sized, twice, default))


def _superbatches(record: JsonDict) -> float:
    """Return the superbatch of a run in defaults: half an epoch's mini-batches, or 100
    GB of runtime files."""
    options = record["config"]["options"]
    epoch_batches = record["config"]["max_batches"]
    if options.get("superbatch") and epoch_batches:
        return float(2 * options["superbatch"] / epoch_batches)
    return {"100GB": 1.0, "200GB": 2.0}.get(options.get("runtime_files"), 0.0)


@claim("gx-13")
def wide_rows(runs: Runs) -> Measured:
    """Divide the speedup over pyg+ at dimension 768 by that at 512; rows are read as
    whole pages."""
    both = settings(runs, "ginex", "pyg+")
    speedups = {setting.shared["dataset"]["dim"]: ratio(setting) for setting in both}
    if not {512, 768} <= set(speedups):
        raise NotRun("ginex and pyg+ were not both run at dimensions 512 and 768")
    narrow = speedups[512]
    wide = speedups[768]
    lines = [f"dimension 512: {_times(narrow)}", f"dimension 768: {_times(wide)}"]
    return _widened(narrow, wide, lines)


@claim("gx-14")
def half_the_memory(runs: Runs) -> Measured:
    """Divide the speedup over pyg+ at the least budget by that at twice the budget."""
    both = settings(runs, "ginex", "pyg+")
    speedups = {setting.budget_bytes: ratio(setting) for setting in both}
    least = min(speedups)
    if 2 * least not in speedups or not least:
        raise NotRun("ginex and pyg+ were not both run at a budget and at twice of it")
    half = speedups[least]
    whole = speedups[2 * least]
    mib = least / 2**20
    lines = [
        f"budget {mib:.0f} MiB: {_times(half)}",
        f"budget {2 * mib:.0f} MiB: {_times(whole)}",
    ]
    return _widened(whole, half, lines)


def _times(speedup: Measured) -> str:
    return f"{speedup.number.value:.3g}x"


def _widened(before: Measured, after: Measured, detail: list[str]) -> Measured:
    """Divide one speedup by another."""
    number = after.number.over(before.number)
    return replace(
        after, number=number, runs=[*before.runs, *after.runs], detail=detail
    )
