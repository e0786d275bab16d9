"""The functions that answer claims: each measures the published number of one claim, or
of several in a row."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from harness.claims.compared import compared, comparisons
from harness.claims.declared import Declared
from harness.claims.measured import Measured

Function = Callable[..., Measured]


@dataclass(frozen=True)
class Answer:
    """The measured number of a claim.

    Attributes:
        function: function from the table of runs of the claim's declared setting, from
            the records of `study`, or from the table of `figure`, and from `arguments`;
            raises NotRun where they do not hold what it needs.
    """

    function: Function
    arguments: dict[str, Any]
    study: str = ""
    figure: str = ""

    def __call__(self, declared: Declared) -> Measured:
        """Compute the number. Raises NotRun or NotDrawn where the records do not hold
        what the function needs."""
        given: Any
        if self.study:
            given = declared.studies(self.study)
        elif self.figure:
            given = declared.table(self.figure)
        else:
            given = declared.runs
        return self.function(given, **self.arguments)


_ANSWERS: dict[str, Answer] = {}


def claim(
    *ids: str, study: str = "", figure: str = "", **arguments: Any
) -> Callable[[Function], Function]:
    """Return a decorator that makes a function, with `arguments`, the answer to claims;
    see `Answer`.

    Claims with one function and equal arguments are judged in different settings.
    """

    def add(function: Function) -> Function:
        for id_ in ids:
            if id_ in _ANSWERS:
                raise ValueError(f"claim {id_} has two functions")
            _ANSWERS[id_] = Answer(function, arguments, study, figure)
        return function

    return add


@cache
def answers() -> dict[str, Answer]:
    """Return every answer by claim id."""
    for id_, comparison in comparisons().items():
        claim(id_, comparison=comparison)(compared)
    for paper in ("gnndrive", "diskgnn", "ginex", "tiering", "pagraph"):
        importlib.import_module(f"harness.claims.{paper}")
    return _ANSWERS
