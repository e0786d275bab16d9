"""The queries: for each claim a function from the records of its setting to one number."""

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
    """One query: the claim, and the function; NotRun where the records cannot answer it."""

    claim: str
    run: Run


_QUERIES: dict[str, Query] = {}


def register(claim: str, run: Run) -> None:
    """Add the query of a claim.

    Raises:
        InputError: the claim is not published, is said to be not run, or another query answers it.
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
    """The decorator form of `register`."""

    def keep(run: Run) -> Run:
        register(claim, run)
        return run

    return keep


def queries() -> dict[str, Query]:
    """Every query by claim id."""
    for name in MODULES:
        importlib.import_module(f"harness.claims.{name}")
    return _QUERIES


def one_setting(records: Records, sides: Sequence[Side], *, free: Sequence[str] = (), pick: Pick = "one") -> Setting:
    """The setting in which a claim is judged: the only one, or the end of a sweep over budgets.

    Raises:
        NotRun: there is none, or the declaration leaves a choice.
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
    """How many times as fast (as small) one side is as another, in one setting.

    Attributes:
        kind: the `ratio` baseline / better itself, the per cent `saved` of the baseline, or the per cent `added` to it.
        free: keys in which the sides may differ.
    """

    better: Side
    baseline: Side
    value: Samples = epoch_s
    pick: Pick = "one"
    kind: Literal["ratio", "saved", "added"] = "ratio"
    free: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()

    def __call__(self, records: Records) -> Measured:
        """The number in the declared setting."""
        return self.of(one_setting(records, [self.better, self.baseline], free=self.free, pick=self.pick))

    def of(self, setting: Setting) -> Measured:
        """The number in a setting.

        Raises:
            NotRun: the runs do not hold it.
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
    """The mean or the greatest ratio over the settings of a figure, of which there are several."""

    ratio: Ratio
    kind: Over

    def __call__(self, records: Records) -> Measured:
        """The number over all settings that hold both sides.

        Raises:
            NotRun: there is one setting only: no mean, and no greatest, is had of one.
        """
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
    """The per cent that some stages are of others, or of the whole epoch.

    Attributes:
        whole: stages; none for the epoch.
    """

    side: Side
    parts: tuple[str, ...]
    whole: tuple[str, ...] = ()
    pick: Pick = "one"
    detail: tuple[str, ...] = field(default=())
    differs: tuple[str, ...] = field(default=())

    def __call__(self, records: Records) -> Measured:
        """The number in the declared setting.

        Raises:
            NotRun: the runs have no such stages.
        """
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
    """Ids of the runs of several cells."""
    return [run for cell in cells for run in cell.runs]


def summarise(numbers: Sequence[Number], kind: Literal["mean", "most", "least"]) -> Number:
    """One number of several; the interval of a mean is the range of what it is the mean of."""
    ranked = sorted(numbers, key=lambda number: number.value)
    if kind == "mean":
        value = sum(number.value for number in numbers) / len(numbers)
        return Number(value, ranked[0].value, ranked[-1].value, "range")
    return ranked[-1 if kind == "most" else 0]


def of_dim(dim: int) -> Callable[[Any], bool]:
    """Whether a configuration's dataset has this feature dimension."""
    return lambda config: bool(config["dataset"]["dim"] == dim)
