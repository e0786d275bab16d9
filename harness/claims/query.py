"""The queries: one function a claim, from the records of its setting to one number."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.claims.measured import Measured, NotRun, Number, added, median, ratio, saved
from harness.claims.pairs import Cell, Records, Samples, Setting, Side, budget_share, describe, epoch_s, stage_s
from harness.claims.published import claims
from workloads.errors import InputError

Run = Callable[[Records], Measured]
Pick = Literal["one", "least memory", "most memory"]
Over = Literal["mean", "most"]
MODULES = ("gnndrive", "diskgnn", "ginex", "tiering", "pagraph")


@dataclass(frozen=True)
class Query:
    """One claim's id and its function, which raises NotRun where the records cannot answer the claim."""

    claim: str
    run: Run


_QUERIES: dict[str, Query] = {}


def register(claim: str, run: Run) -> None:
    """Add the query of a claim.

    Raises:
        InputError: the claim is unpublished or declared not run, or the claim or the function is registered already.
    """
    known = claims().get(claim)
    if known is None or known.not_run:
        raise InputError(f"claim {claim} is not one that runs answer", "mend harness/published/claims.csv or the query")
    if any(query.run is run for query in _QUERIES.values() if query.claim != claim):
        raise InputError(f"claim {claim} has the query of another one", "one published quantity, one measured quantity")
    if claim in _QUERIES and _QUERIES[claim].run is not run:
        raise InputError(f"claim {claim} is answered by two queries", "keep one of them")
    _QUERIES[claim] = Query(claim, run)


def answers(claim: str) -> Callable[[Run], Run]:
    """Register the decorated function as the query of a claim."""

    def keep(run: Run) -> Run:
        register(claim, run)
        return run

    return keep


def queries() -> dict[str, Query]:
    """Return every query by claim id."""
    for name in MODULES:
        importlib.import_module(f"harness.claims.{name}")
    return _QUERIES


def one_setting(records: Records, sides: Sequence[Side], *, free: Sequence[str] = (), pick: Pick = "one") -> Setting:
    """Return the setting in which a claim is judged: the only one, or one end of a sweep over budgets.

    Args:
        free: configuration keys in which the sides may differ.
        pick: end of the sweep; `one`: there is no sweep.

    Raises:
        NotRun: no setting holds all sides, or several do and `pick` is `one`.
    """
    found = records.settings(sides, free=free)
    if pick != "one":
        return (min if pick == "least memory" else max)(found, key=budget_share)
    if len({_config(setting) for setting in found}) > 1:
        raise NotRun("the profile has runs in several settings, and the claim does not say in which it is judged")
    return found[0]


def _config(setting: Setting) -> str:
    return json.dumps({key: value for key, value in setting.shared.items() if key != "limits"}, sort_keys=True)


@dataclass(frozen=True, eq=False)
class Ratio:
    """Query that compares two sides in one setting.

    Attributes:
        value: quantity that is compared.
        kind: `ratio`: baseline / better; `saved`, `added`: per cent by which better is below, above the baseline.
        free: configuration keys in which the sides may differ.
    """

    better: Side
    baseline: Side
    value: Samples = epoch_s
    pick: Pick = "one"
    kind: Literal["ratio", "saved", "added"] = "ratio"
    free: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()

    def __call__(self, records: Records) -> Measured:
        """Compute the number in the declared setting."""
        return self.of(one_setting(records, [self.better, self.baseline], free=self.free, pick=self.pick))

    def of(self, setting: Setting) -> Measured:
        """Compute the number in `setting`.

        Raises:
            NotRun: the runs of a side have no samples, or the better side has a sample of 0.
        """
        first, second = setting.cells
        above, below = second.samples(self.value), first.samples(self.value)
        if not above or not below or not all(below):
            raise NotRun("the runs do not hold what is compared")
        number = ratio(above, below)
        if self.kind != "ratio":
            number = {"saved": saved, "added": added}[self.kind](number)
        return Measured(
            number,
            runs=[*first.runs, *second.runs],
            setting=setting.shared,
            differs=list(self.differs),
            detail=[describe(cell, self.value) for cell in setting.cells],
        )


@dataclass(frozen=True, eq=False)
class OverSettings:
    """Query for the mean or the greatest ratio over the settings of a figure."""

    ratio: Ratio
    kind: Over

    def __call__(self, records: Records) -> Measured:
        """Compute the number over all settings that hold both sides. Raises NotRun for fewer than two."""
        sides = [self.ratio.better, self.ratio.baseline]
        found = [self.ratio.of(setting) for setting in records.settings(sides, free=self.ratio.free)]
        if len(found) < 2:
            raise NotRun(f"both ran in one setting only: it is no {self.kind} of several")
        return Measured(
            summarise([measured.number for measured in found], self.kind),
            runs=list(dict.fromkeys(run for measured in found for run in measured.runs)),
            setting=found[0].setting,
            detail=[*(line for measured in found for line in measured.detail), f"over {len(found)} settings"],
        )


@dataclass(frozen=True, eq=False)
class Share:
    """Query for the per cent that some stages take of others; an empty `whole` stands for the epoch."""

    side: Side
    parts: tuple[str, ...]
    whole: tuple[str, ...] = ()
    pick: Pick = "one"
    detail: tuple[str, ...] = field(default=())
    differs: tuple[str, ...] = field(default=())

    def __call__(self, records: Records) -> Measured:
        """Compute the number in the declared setting. Raises NotRun where the runs lack the stages."""
        setting = one_setting(records, [self.side], pick=self.pick)
        cell = setting.cells[0]
        spent = stage_s(*self.parts)
        parts, wholes = cell.samples(spent), cell.samples(stage_s(*self.whole) if self.whole else epoch_s)
        if not parts or len(parts) != len(wholes) or not all(wholes):
            raise NotRun(f"the runs of {self.side.system} have no stage {' or '.join(self.parts)}")
        shares = [100 * part / whole for part, whole in zip(parts, wholes, strict=True)]
        return Measured(
            median(shares),
            runs=cell.runs,
            setting=setting.shared,
            differs=list(self.differs),
            detail=[describe(cell, spent), *self.detail],
        )


def runs_of(cells: Sequence[Cell]) -> list[str]:
    """Return the run ids of several cells."""
    return [run for cell in cells for run in cell.runs]


def summarise(numbers: Sequence[Number], kind: Literal["mean", "most", "least"]) -> Number:
    """Reduce numbers to their mean, greatest or least; the interval of a mean is the range of their values."""
    ranked = sorted(numbers, key=lambda number: number.value)
    if kind == "mean":
        value = sum(number.value for number in numbers) / len(numbers)
        return Number(value, ranked[0].value, ranked[-1].value, "range")
    return ranked[-1 if kind == "most" else 0]


def of_dim(dim: int) -> Callable[[Any], bool]:
    """Return a condition that accepts configurations whose dataset has this feature dimension."""
    return lambda config: bool(config["dataset"]["dim"] == dim)
