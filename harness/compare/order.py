"""Pairs of systems whose measured order is not the predicted one."""

from __future__ import annotations

import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.records.record import COUNTED, Record

# Share by which two measured times may be in another order than predicted.
_TOLERANCE = 0.15


@dataclass(frozen=True)
class _Times:
    """Median epoch of a system under one set of options, in seconds; `name`: with the
    options in which its sets differ."""

    system: str
    name: str
    predicted_s: float
    measured_s: float


def inversions(records: Sequence[Record]) -> list[str]:
    """Describe the pairs of systems whose measured order contradicts the prediction by
    more than the tolerance.

    Only runs with status `ok`, a counted verdict and a prediction are compared; rounds
    and seeds of a system with equal options are joined, and option sets of one system
    are not compared with one another.

    Args:
        records: runs of one setting (`harness.compare.comparable`).
    """
    found = []
    for pair in itertools.combinations(_times(records), 2):
        fast, slow = sorted(pair, key=lambda times: times.predicted_s)
        predicted = slow.predicted_s / fast.predicted_s
        measured = slow.measured_s / fast.measured_s
        ordered = round(predicted, 2) > 1.0 and fast.system != slow.system
        if ordered and measured < 1.0 - _TOLERANCE:
            found.append(
                f"{fast.name} was predicted {predicted:.2f}x as fast as {slow.name}, "
                f"measured {measured:.2f}x"
            )
    return found


def _times(records: Sequence[Record]) -> list[_Times]:
    """Return the times of each system and set of options, in the order of the runs."""
    groups: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if _is_compared(record):
            options = json.dumps(record.config.options, sort_keys=True, default=str)
            groups[record.system, options].append(record)
    found = []
    for (system, options), group in groups.items():
        sets = [json.loads(text) for name, text in groups if name == system]
        predicted = [record.summary.predicted_s or 0.0 for record in group]
        measured = [epoch.seconds for record in group for epoch in record.measured]
        found.append(
            _Times(
                system,
                _named(system, json.loads(options), sets),
                statistics.median(predicted),
                statistics.median(measured),
            )
        )
    return found


def _is_compared(record: Record) -> bool:
    counted = record.status == "ok" and record.verdict in COUNTED
    return (
        counted
        and record.summary.epoch_s is not None
        and bool(record.summary.predicted_s)
    )


def _named(system: str, options: dict[str, Any], sets: list[dict[str, Any]]) -> str:
    """Return a system's name with the options in which its sets differ."""
    own = [
        f"{key}={value}"
        for key, value in options.items()
        if any(other.get(key) != value for other in sets)
    ]
    return " ".join([system, *own])
