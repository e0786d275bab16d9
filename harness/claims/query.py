"""The queries of `harness/published/queries.yaml`: for each claim the sides, and the number that compares them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from harness.claims.derived import FUNCTIONS
from harness.claims.measured import Measured, NotRun, Number, added, median, quotient, ratio, saved, summarise
from harness.claims.published import FILE as CLAIMS
from harness.claims.published import claims
from harness.claims.records import QuerySetting, QuerySide, Records, describe, samples_of
from harness.compare.plan import Plain
from harness.compare.points import Rounds
from harness.settings import Strict
from workloads.errors import InputError
from workloads.parsing import ParseError, parse_yaml

FILE = CLAIMS.parent / "queries.yaml"
# Epochs of DiskGNN's training; all of them train on the samples of one epoch.
_EPOCHS = 50


class Compared(Strict):
    """Query that compares two sides, or two quantities of one, in one setting or over the settings of a figure.

    Attributes:
        better, baseline: the sides; without a baseline a quantity of one side.
        value, whole: samples (`harness.claims.records.samples_of`) that are compared, and those of which they are a
            share.
        kind: computation, a key of `KINDS`.
        pick: end of a sweep over budgets at which the claim is judged; empty: there is no sweep.
        over: reduction of the numbers of all settings, a key of `OVER`; empty: there is one setting.
        free: configuration keys in which the sides may differ.
        least_share: least share of the features that the budget must hold.
        line: line of the explanation, with the two medians; empty: a line for each side.
        detail, differs: further lines of the explanation, and differences from the paper's setting.
    """

    better: QuerySide
    baseline: QuerySide | None = None
    value: str = "epoch_s"
    whole: str = "epoch_s"
    kind: Literal["ratio", "saved", "added", "share", "accuracy_gap", "time_to_accuracy", "preparation"] = "ratio"
    pick: Literal["", "least memory", "most memory"] = ""
    over: Literal["", "mean", "most", "wide rows", "half memory"] = ""
    free: list[str] = Field(default_factory=list)
    least_share: float = 0.0
    line: str = ""
    detail: list[str] = Field(default_factory=list)
    differs: list[str] = Field(default_factory=list)

    @field_validator("value", "whole")
    @classmethod
    def _known(cls, value: str) -> str:
        samples_of(value)
        return value

    @property
    def sides(self) -> list[QuerySide]:
        """The sides, the better first."""
        return [self.better] if self.baseline is None else [self.better, self.baseline]

    def __call__(self, records: Records) -> Measured:
        """Compute the number in the declared setting, or over all settings that hold the sides.

        Raises:
            NotRun: no setting holds all sides, several do where one is meant, or a side lacks what is compared.
        """
        found = records.settings(self.sides, free=self.free)
        if self.over:
            return OVER[self.over]([(setting, self.of(setting)) for setting in found])
        if self.pick:
            setting = (min if self.pick == "least memory" else max)(found, key=lambda one: one.budget_share)
        elif any({**one.shared, "limits": None} != {**found[0].shared, "limits": None} for one in found):
            raise NotRun("the profile has runs in several settings, and the claim does not say in which it is judged")
        else:
            setting = found[0]
        if self.least_share and setting.budget_share < self.least_share:
            held = f"the largest budget holds {100 * setting.budget_share:.0f} % of them"
            raise NotRun(f"no cap holds the features; {held}")
        return self.of(setting)

    def of(self, setting: QuerySetting) -> Measured:
        """Compute the number in one setting. Raises NotRun where a side lacks what is compared."""
        number, lines = KINDS[self.kind](self, setting.cells)
        shared = dict(setting.shared)
        if "device" in self.free:
            # The better side's device shows whether the number is an emulator's.
            shared["device"] = setting.cells[0].newest["config"]["device"]
        return Measured(number, setting.runs, [], shared, [*lines, *self.detail], list(self.differs))


Counted = tuple[Number, list[str]]


def _ratio(query: Compared, cells: Sequence[Rounds]) -> Counted:
    """Divide the baseline's samples by the better side's, or return the per cent that better is below or above it."""
    value = samples_of(query.value)
    below, above = (cell.samples(value) for cell in cells)
    if not above or not below or not all(below):
        raise NotRun("the runs do not hold what is compared")
    number = ratio(above, below)
    if query.kind != "ratio":
        number = {"saved": saved, "added": added}[query.kind](number)
    if query.line:
        return number, [query.line.format(statistics.median(below), statistics.median(above))]
    return number, [describe(cell, value) for cell in cells]


def _share(query: Compared, cells: Sequence[Rounds]) -> Counted:
    """Return the per cent that `value` takes of `whole`, epoch by epoch."""
    (cell,), spent = cells, samples_of(query.value)
    parts, wholes = cell.samples(spent), cell.samples(samples_of(query.whole))
    if not parts or len(parts) != len(wholes) or not all(wholes):
        raise NotRun(f"the runs of {query.better.system} have no stage {' or '.join(query.value.split()[1:])}")
    return median([100 * part / whole for part, whole in zip(parts, wholes, strict=True)]), [describe(cell, spent)]


def _accuracy_gap(query: Compared, cells: Sequence[Rounds]) -> Counted:
    """Return the points by which the better side's accuracy over its last three epochs exceeds the baseline's."""
    from harness.figures.accuracy_runs import final_accuracy

    found = []
    for cell in cells:
        known = [100 * value for record in cell.records if (value := final_accuracy(record)) is not None]
        if not known:
            raise NotRun(f"{cell.newest['system']} has no accuracy on test nodes")
        kind = "range" if len(known) > 1 else "exact"
        found.append(Number(sum(known) / len(known), min(known), max(known), kind))
    a, b = found
    line = ", ".join(f"{side.system} {one.value:.2f} %" for side, one in zip(query.sides, found, strict=True))
    return Number(a.value - b.value, a.low - b.high, a.high - b.low, a.kind), [line]


def _time_to_accuracy(query: Compared, cells: Sequence[Rounds]) -> Counted:
    """Divide the baseline's seconds to an accuracy that both reach, 99 % of the lower best one, by the better's."""
    from harness.figures.accuracy_runs import at_target, best_accuracy

    target = 0.99 * min(best_accuracy(cell.newest) or 0.0 for cell in cells)
    ours, theirs = (at_target(cell.newest, target) for cell in cells)
    if not target or not ours or not theirs:
        raise NotRun("one of them has no accuracy on test nodes, or never reaches the other's")
    told = [f"{side.system} {took:.1f} s" for side, took in zip(query.sides, (ours, theirs), strict=True)]
    return quotient(Number.exact(theirs), Number.exact(ours)), [f"to {100 * target:.1f} %: {', '.join(told)}"]


def _preparation(query: Compared, cells: Sequence[Rounds]) -> Counted:
    """Return preprocessing in per cent of preprocessing and training, where one epoch's samples are replayed."""
    (cell,) = cells
    cost = cell.cost
    if cost is None:
        raise NotRun("no epoch of it was measured")
    trained = f"{_EPOCHS} epochs of {cost.mean_epoch_s:.3g} s"
    line = f"{cost.once_s:.1f} s of preprocessing for {trained} that replay one's samples"
    return Number.exact(100 * cost.once_s / cost.total_s(_EPOCHS)), [line]


KINDS: dict[str, Callable[[Compared, Sequence[Rounds]], Counted]] = dict.fromkeys(("ratio", "saved", "added"), _ratio)
KINDS |= {"share": _share, "accuracy_gap": _accuracy_gap, "time_to_accuracy": _time_to_accuracy}
KINDS["preparation"] = _preparation
Everywhere = list[tuple[QuerySetting, Measured]]


def _reduced(found: Everywhere, kind: Literal["mean", "most"]) -> Measured:
    if len(found) < 2:
        raise NotRun(f"both ran in one setting only: it is no {kind} of several")
    measured = [one for _, one in found]
    runs = list(dict.fromkeys(run for one in measured for run in one.runs))
    lines = [*(line for one in measured for line in one.detail), f"over {len(found)} settings"]
    number = summarise([one.number for one in measured], kind)
    return Measured(number, runs, setting=found[0][0].shared, detail=lines)


def _wide_rows(found: Everywhere) -> Measured:
    """Divide the speedup at dimension 768 by that at 512; rows are read as whole pages."""
    dims = {int(setting.shared["dataset"]["dim"]): one for setting, one in found}
    if not {512, 768} <= set(dims):
        raise NotRun("ginex and pyg+ were not both run at dimensions 512 and 768")
    lines = [f"dimension {dim}: {dims[dim].number.value:.3g}x" for dim in (512, 768)]
    return _gap(dims[512], dims[768], lines)


def _half_memory(found: Everywhere) -> Measured:
    """Divide the speedup at the least budget by that at twice the budget."""
    budgets = {int(setting.cells[0].newest["memory"]["budget_bytes"] or 0): one for setting, one in found}
    least = min(budgets)
    if 2 * least not in budgets or not least:
        raise NotRun("ginex and pyg+ were not both run at a budget and at twice of it")
    small, large = budgets[least], budgets[2 * least]
    lines = [f"budget {b / 2**20:.0f} MiB: {m.number.value:.3g}x" for b, m in ((least, small), (2 * least, large))]
    return _gap(large, small, lines)


def _gap(small: Measured, large: Measured, lines: list[str]) -> Measured:
    runs = [*small.runs, *large.runs]
    return Measured(quotient(large.number, small.number), runs, setting=large.setting, detail=lines)


OVER: dict[str, Callable[[Everywhere], Measured]] = {"wide rows": _wide_rows, "half memory": _half_memory}
OVER |= {"mean": partial(_reduced, kind="mean"), "most": partial(_reduced, kind="most")}


class Derived(Strict):
    """Query by a function of `harness.claims.derived` over the studies, the figure's table or the runs of a system.

    Attributes:
        study, table, system: what the function is given: records of a study, a figure's table, or a system's runs.
        hops: number of hops of the studies; 0: all of them.
        arguments: further arguments of the function.
    """

    function: str
    study: str = ""
    table: str = ""
    system: str = ""
    hops: int = 0
    arguments: Plain = Field(default_factory=dict)
    differs: list[str] = Field(default_factory=list)

    @field_validator("function")
    @classmethod
    def _known(cls, value: str) -> str:
        FUNCTIONS[value]
        return value

    def __call__(self, records: Records) -> Measured:
        """Compute the number. Raises NotRun or NotDrawn where the records do not hold what the function needs."""
        function, named = FUNCTIONS[self.function], []
        if self.study:
            found = records.studies(self.study, lambda params: not self.hops or len(params["fanout"]) == self.hops)
            measured = function(found, **self.arguments)
            named = [f"{record.study} {record.key}" for record in found]
        else:
            runs = [record for record in records.valid if record["system"] == self.system]
            measured = function(records.table(self.table) if self.table else runs, **self.arguments)
        return replace(measured, studies=measured.studies or named, differs=list(self.differs))


Query = Compared | Derived


@cache
def queries(file: Path = FILE) -> dict[str, Query]:
    """Read every query by claim id.

    Raises:
        InputError: the file cannot be read, a row is invalid or of a claim that no run answers, a claim has two rows,
            or two claims have one query of the same runs.
    """
    try:
        content = parse_yaml(file.read_bytes()) or {}
        rows = list(content)
    except (OSError, ParseError) as error:
        raise InputError(f"the queries {file} cannot be read: {error}", "restore the file") from error
    found: dict[str, Query] = {}
    answered: dict[str, str] = {}
    for id_ in rows:
        claim = claims().get(id_)
        if claim is None or claim.not_run:
            raise InputError(f"claim {id_} is not one that runs answer", f"mend {CLAIMS.name} or {file.name}")
        model: type[Query] = Derived if "function" in content[id_] else Compared
        try:
            found[id_] = TypeAdapter(model).validate_python(content[id_])
        except (ValidationError, KeyError) as error:
            raise InputError(f"the query of claim {id_} is invalid: {error}", f"mend {file.name}") from error
        # Equal for claims that are answered by one measured number.
        source = "bench" if claim.runs == "bench" else claim.figure
        other = answered.setdefault(f"{source} {sorted(claim.chosen.items())} {found[id_].model_dump_json()}", id_)
        if other != id_:
            fix = "one published quantity, one measured quantity"
            raise InputError(f"claim {id_} has the query of another one, {other}", fix)
    return found
