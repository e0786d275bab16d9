"""Ginex's claims."""

from __future__ import annotations

from harness.claims.gnndrive import GINEX, PYG
from harness.claims.measured import Measured, NotRun, Number, quotient
from harness.claims.pairs import Records, Setting, Side, stage_s
from harness.claims.query import OverSettings, Ratio, Share, answers, register

ALI = Side("ali+pg")

register("gx-01", OverSettings(Ratio(GINEX, PYG), "mean"))
register("gx-02", OverSettings(Ratio(GINEX, PYG), "most"))
register("gx-03", Ratio(GINEX, ALI))
register("gx-04", Ratio(GINEX, ALI))


@answers("gx-05")
def _stall(records: Records) -> Measured:
    """Return the share of pyg+'s epochs in which the device neither computes nor copies."""
    table = records.drawn("ginex-fig4")
    rows = table[(table["panel"] == "time") & (table["part"] == "data preparation")]
    return Measured(Number.exact(float(rows["percent"].iloc[0])), runs=sorted(set(rows["run"])))


@answers("gx-06")
def _settled(records: Records) -> Measured:
    """Return the page cache's miss ratio over the last third of the iterations."""
    table = records.drawn("ginex-fig4")
    seen = table[table["panel"] == "miss ratio"]["miss_percent"].dropna()
    last = [float(value) for value in seen.iloc[-max(1, len(seen) // 3) :]]
    number = Number(sum(last) / len(last), min(last), max(last), "range")
    return Measured(number, detail=[f"mean over the last {len(last)} of {len(seen)} iterations"])


@answers("gx-09")
def _belady(records: Records) -> Measured:
    """Return the greatest ratio of Belady's reads to the static cache's, over graphs and cache sizes below all rows."""
    from harness.studies.miss_ratios import read_ratios

    found = records.studies("miss-ratios")
    lines, worst = [], 0.0
    for record in found:
        held = {entry["policy"] for entry in record.result["policies"]}
        if not {"belady", "degree"} <= held:
            raise NotRun("the study miss-ratios has not both policies")
        best, static = read_ratios(record.result, "belady"), read_ratios(record.result, "degree")
        worst = max(worst, *(a / b if b else 1.0 for a, b in zip(best, static, strict=True)))
        pairs = zip(record.result["shares"], best, static, strict=True)
        lines += [f"{100 * share:g} % of the rows: {100 * a:.1f} % against {100 * b:.1f} %" for share, a, b in pairs]
    return Measured(Number.exact(worst), studies=[f"miss-ratios {record.key}" for record in found], detail=lines)


# Per cent by which ginex's superbatch sampling and changesets take longer than ginex-pg's sampling.
register("gx-10", Ratio(GINEX, Side("ginex-pg"), stage_s("ask", "sample", "inspect"), kind="added"))
register("gx-11", Share(GINEX, ("switch", "cache_update")))


def _of_superbatch(factor: int) -> Side:
    """Return ginex with `factor` times the default superbatch: half an epoch, or 100 GB of runtime files."""

    def accepts(config: object) -> bool:
        assert isinstance(config, dict)
        size, files = config["options"].get("superbatch"), config["options"].get("runtime_files")
        if size:
            return bool(2 * size == factor * config["max_batches"])
        return bool(files == f"{100 * factor}GB")

    return Side("ginex", where=accepts, name=f"ginex with {factor}x the default superbatch")


register("gx-12", Ratio(_of_superbatch(2), _of_superbatch(1), kind="saved"))


def _speedup(setting: Setting) -> Measured:
    return Ratio(GINEX, PYG).of(setting)


def _gap(small: Measured, large: Measured, lines: list[str]) -> Measured:
    """Divide the speedup `large` by the speedup `small`."""
    number = quotient(large.number, small.number)
    return Measured(number, runs=[*small.runs, *large.runs], setting=large.setting, detail=lines)


@answers("gx-13")
def _wide_rows(records: Records) -> Measured:
    """Divide the speedup over pyg+ at dimension 768 by that at 512; rows are read as whole pages."""
    found = {int(s.shared["dataset"]["dim"]): _speedup(s) for s in records.settings([GINEX, PYG])}
    if not {512, 768} <= set(found):
        raise NotRun("ginex and pyg+ were not both run at dimensions 512 and 768")
    lines = [f"dimension {dim}: {found[dim].number.value:.3g}x" for dim in (512, 768)]
    return _gap(found[512], found[768], lines)


@answers("gx-14")
def _small_memory(records: Records) -> Measured:
    """Divide the speedup over pyg+ at the least budget by that at twice the budget."""
    budgets = {int(s.cells[0].newest["memory"]["budget_bytes"] or 0): s for s in records.settings([GINEX, PYG])}
    least = min(budgets)
    if 2 * least not in budgets or not least:
        raise NotRun("ginex and pyg+ were not both run at a budget and at twice of it")
    small, large = _speedup(budgets[least]), _speedup(budgets[2 * least])
    lines = [f"budget {b / 2**20:.0f} MiB: {m.number.value:.3g}x" for b, m in ((least, small), (2 * least, large))]
    return _gap(large, small, lines)
