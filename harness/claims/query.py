"""The queries: for each claim a function from our records to what they say of it, registered by the claim's id."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.claims.measured import Measured, NotRun, Number
from harness.claims.pairs import (
    Records,
    Samples,
    Setting,
    Side,
    Where,
    always,
    compare,
    epoch_s,
    merge,
    usual_config,
)

Run = Callable[[Records], Measured]
MODULES = ("gnndrive", "diskgnn", "ginex", "tiering", "pagraph")


@dataclass(frozen=True)
class Query:
    """One query: the claim, the figure whose runs answer it, and the function; NotRun where the records cannot."""

    claim: str
    figure: str
    run: Run


_QUERIES: dict[str, Query] = {}


def register(claim: str, figure: str, run: Run) -> None:
    """Add the query of a claim."""
    _QUERIES[claim] = Query(claim, figure, run)


def answers(claim: str, figure: str) -> Callable[[Run], Run]:
    """The decorator form of `register`."""

    def keep(run: Run) -> Run:
        register(claim, figure, run)
        return run

    return keep


def queries() -> dict[str, Query]:
    """Every query by claim id."""
    for name in MODULES:
        importlib.import_module(f"harness.claims.{name}")
    return _QUERIES


def usual_settings(
    records: Records, sides: Sequence[Side], *, where: Where = always, free: Sequence[str] = (), **fixed: Any
) -> list[Setting]:
    """Settings that are the usual ones in `pairs.USUAL`, unless `fixed` names others; other keys may be named too.

    A key that is `None` in `fixed` may have any value.

    Raises:
        NotRun: there is none.
    """
    wanted: dict[str, Any] = {**usual_config(records), **fixed}
    asked = {key: value for key, value in wanted.items() if value is not None and key not in free}

    def accepts(config: Any) -> bool:
        return where(config) and all(
            (config["dataset"]["dim"] if key == "dim" else config[key]) == value for key, value in asked.items()
        )

    return records.settings(sides, where=accepts, free=free, all_stages="stages" not in free)


def times_faster(
    better: str, baseline: str, *, value: Samples = epoch_s, free: Sequence[str] = (), **fixed: Any
) -> Run:
    """How many times as fast one system is as another, in the best supported setting."""

    def run(records: Records) -> Measured:
        return compare(usual_settings(records, [Side(better), Side(baseline)], free=free, **fixed)[0], value)

    return run


def over_settings(better: str, baseline: str, kind: str, *, value: Samples = epoch_s, **fixed: Any) -> Run:
    """The same over every setting that holds both: `mean`, `most`, or `least and most`."""

    def run(records: Records) -> Measured:
        found = [
            compare(setting, value) for setting in usual_settings(records, [Side(better), Side(baseline)], **fixed)
        ]
        numbers = [measured.numbers[0] for measured in found]
        return merge(found, summarise(numbers, kind), [f"over {len(found)} settings"])

    return run


def summarise(numbers: Sequence[Number], kind: str) -> list[Number]:
    """`mean`, `most`, `least`, or `least and most` of several numbers.

    The interval of a mean is the range of what it is the mean of.
    """
    if not numbers:
        raise NotRun("there is no setting to summarise")
    ranked = sorted(numbers, key=lambda number: number.value)
    if kind == "mean":
        value = sum(number.value for number in numbers) / len(numbers)
        return [Number(value, ranked[0].low, ranked[-1].high, "range")]
    chosen = {"most": ranked[-1:], "least": ranked[:1], "least and most": [ranked[0], ranked[-1]]}
    return list(chosen[kind])
