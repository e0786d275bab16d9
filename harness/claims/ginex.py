"""Ginex's claims."""

from __future__ import annotations

from typing import Any

from harness.claims.measured import Measured, NotRun, Number, median, ratio
from harness.claims.pairs import Records, Samples, Side, compare, describe, epoch_s, stage_s
from harness.claims.query import answers, over_settings, register, usual_settings

_ANY: dict[str, Any] = {"batch_size": None, "dim": None, "memory": None}

register("gx-01", "ginex-fig14", over_settings("ginex", "pyg+", "mean"))
register("gx-02", "ginex-fig14", over_settings("ginex", "pyg+", "most", **_ANY))
register("gx-03", "ginex-fig14", over_settings("ginex", "ali+pg", "least and most", model="sage", **_ANY))
register("gx-04", "ginex-fig14", over_settings("ginex", "ali+pg", "least and most", model="gcn", **_ANY))


@answers("gx-05", "ginex-fig4")
def _stall(records: Records) -> Measured:
    """Share of pyg+'s epochs in which the device neither computes nor copies."""
    table = records.drawn("ginex-fig4")
    rows = table[(table["panel"] == "time") & (table["part"] == "data preparation")]
    return Measured((Number.exact(float(rows["percent"].iloc[0])),), runs=sorted(set(rows["run"])))


@answers("gx-06", "ginex-fig4")
def _settled(records: Records) -> Measured:
    """The page cache's miss ratio over the last third of the iterations."""
    table = records.drawn("ginex-fig4")
    seen = table[table["panel"] == "miss ratio"]["miss_percent"].dropna()
    last = [float(value) for value in seen.iloc[-max(1, len(seen) // 3) :]]
    number = Number(sum(last) / len(last), min(last), max(last), "range")
    return Measured((number,), detail=[f"mean over the last {len(last)} of {len(seen)} iterations"])


def _requests(claim: str) -> None:
    """Pages that gathering asks for over those that sampling asks for, cached or not."""

    def run(records: Records) -> Measured:
        study = records.evidence.study("page-accesses")
        gather, sample = (sum(study.result[f"{part}_pages"]) for part in ("feature", "topology"))
        if not sample:
            raise NotRun("sampling asked for no page")
        return Measured(
            (Number.exact(gather / sample),), studies=[f"page-accesses {study.key}"],
            detail=[f"{gather:,} pages of rows, {sample:,} of neighbour lists"],
            differs=["pages asked for are counted, whether the page cache holds them or not"],
        )  # fmt: skip

    register(claim, "ginex-fig4", run)


_requests("gx-07")
_requests("gx-08")


@answers("gx-09", "ginex-fig5")
def _belady(records: Records) -> Measured:
    """Whether the optimal cache reads less than the static one at every size that does not hold all rows."""
    from harness.studies.miss_ratios import read_ratios

    found = [
        record
        for record in records.evidence.all_studies("miss-ratios")
        if {"belady", "degree"} <= {entry["policy"] for entry in record.result["policies"]}
    ]
    if not found:
        raise NotRun("the study miss-ratios has not both policies")
    lines, holds = [], True
    for record in found:
        best, static = read_ratios(record.result, "belady"), read_ratios(record.result, "degree")
        holds &= all(a < b for a, b in zip(best, static, strict=True))
        pairs = zip(record.result["shares"], best, static, strict=True)
        lines += [f"{100 * share:g} % of the rows: {100 * a:.1f} % against {100 * b:.1f} %" for share, a, b in pairs]
    return Measured(holds=holds, studies=[f"miss-ratios {record.key}" for record in found], detail=lines)


@answers("gx-10", "ginex-fig15")
def _inspection(records: Records) -> Measured:
    """By how many per cent ginex's superbatch sampling and changesets take longer than ginex-pg's sampling."""
    value = stage_s("ask", "sample", "inspect")
    setting = usual_settings(records, [Side("ginex"), Side("ginex-pg")], model="sage")[0]
    ours, theirs = setting.cells
    times = ratio(ours.samples(value), theirs.samples(value))
    number = Number(100 * (times.value - 1), 100 * (times.low - 1), 100 * (times.high - 1), times.kind)
    return Measured(
        (number,), runs=[*ours.runs, *theirs.runs], setting=setting.shared,
        detail=[describe(cell, value) for cell in setting.cells],
    )  # fmt: skip


@answers("gx-11", "ginex-fig14")
def _minor(records: Records) -> Measured:
    """Share of ginex's epochs that switching superbatches and updating the cache take."""
    setting = usual_settings(records, [Side("ginex")], model="sage")[0]
    cell = setting.cells[0]
    spent: Samples = stage_s("switch", "cache_update")
    parts, wholes = cell.samples(spent), cell.samples(epoch_s)
    if len(parts) != len(wholes):
        raise NotRun("the runs of ginex have no stages of switching or updating the cache")
    shares = [100 * part / whole for part, whole in zip(parts, wholes, strict=True)]
    return Measured((median(shares),), runs=cell.runs, setting=setting.shared, detail=[describe(cell, spent)])


@answers("gx-12", "ginex-fig16")
def _superbatch(records: Records) -> Measured:
    """By how many per cent twice the default superbatch shortens the epoch."""
    table = records.drawn("ginex-fig16")
    rows = table[(table["factor"] == 2.0)]
    if rows.empty:
        raise NotRun("ginex was not run with twice the default superbatch")
    row = rows.iloc[0]
    number = Number(100 * (1 - row["value"]), 100 * (1 - row["high"]), 100 * (1 - row["low"]), "range")
    return Measured((number,), runs=sorted(set(table["run"])))


def speedups(records: Records, key: str) -> list[tuple[float, Measured]]:
    """Ginex's speedups over pyg+ by `dim` or `memory` (the budget in bytes), smallest first."""
    anything: dict[str, Any] = {key: None}
    found: dict[float, Measured] = {}
    for setting in usual_settings(records, [Side("ginex"), Side("pyg+")], model="sage", **anything):
        newest = setting.cells[0].newest
        x = setting.shared["dataset"]["dim"] if key == "dim" else newest["memory"]["budget_bytes"] or 0
        found.setdefault(float(x), compare(setting))
    return sorted(found.items())


def _widens(small: Measured, large: Measured, lines: list[str]) -> Measured:
    """Whether the second speedup is larger than the first."""
    holds = large.numbers[0].value > small.numbers[0].value
    return Measured(holds=holds, runs=[*small.runs, *large.runs], setting=large.setting, detail=lines)


@answers("gx-13", "ginex-fig17")
def _wide_rows(records: Records) -> Measured:
    """Whether the speedup over pyg+ is larger at dimension 768 than at 512, rows being read as whole pages."""
    table = records.drawn("ginex-fig17")
    rows = table[(table["series"] == "ginex") & table["value"].notna()]
    by_dim = {int(row["group"]): float(row["value"]) for _, row in rows.iterrows()}
    if not {512, 768} <= set(by_dim):
        raise NotRun("ginex and pyg+ were not both run at dimensions 512 and 768")
    lines = [f"dimension {dim}: {speedup:.3g}x" for dim, speedup in sorted(by_dim.items())]
    runs = sorted({str(run) for run in rows["run"]}) if "run" in rows else []
    return Measured(holds=by_dim[768] > by_dim[512], runs=runs, detail=lines)


@answers("gx-14", "ginex-fig18")
def _small_memory(records: Records) -> Measured:
    """Whether the speedup over pyg+ is smaller with less memory."""
    found = speedups(records, "memory")
    if len(found) < 2:
        raise NotRun("ginex and pyg+ were not both run at two caps")
    lines = [f"budget {x / 2**20:.0f} MiB: {measured.numbers[0].value:.3g}x" for x, measured in found]
    return _widens(found[0][1], found[-1][1], lines)


def _per_dollar(claim: str, dataset: str) -> None:
    def run(records: Records) -> Measured:
        table = records.drawn("ginex-tab4")
        rows = table[
            (table["dataset"].str.lower() == dataset)
            & (table["system"] == "ginex")
            & table["side"].str.startswith("measured")
        ]
        if rows.empty:
            raise NotRun(f"ginex was not measured beside {dataset}'s distributed run")
        row = rows.iloc[0]
        number = Number(float(row["performance/$"]), float(row["least"]), float(row["most"]), "range")
        return Measured(
            (number,), runs=[str(row["run"])], differs=["the distributed side is modelled from published numbers"]
        )  # fmt: skip

    register(claim, "ginex-tab4", run)


_per_dollar("gx-15", "friendster")
_per_dollar("gx-16", "twitter")
