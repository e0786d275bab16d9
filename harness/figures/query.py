"""Queries over run records that figures share: which runs are comparable, and one tidy row per bar or point."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from harness.figures.usual import Usual
from harness.hosts import measured_on
from harness.record import spread

# Where a run was made is free to differ only where the axis is made of it.
MADE_OF = {"limits": "disk_class", "accelerator": "device"}
# What may differ between two runs of one figure beside its axis: who ran, its own knobs, and bookkeeping.
FREE = {"system", "options", "experiment", "figure_tags", "round", "timeout_s", "keep_order", "verify", "cores", "seed"}


class NotDrawn(Exception):
    """The records do not hold what a figure needs; the text says what is missing."""


@dataclass(frozen=True)
class Point:
    """One cell of a figure: all rounds of one configuration together.

    `value` is None where nothing was measured; `status` then says why (`oom`, `timeout`, …).
    """

    system: str
    x: Any
    status: str
    value: float | None
    low: float | None = None
    high: float | None = None
    samples: int = 0
    interval_kind: str = ""
    verdict: str = ""
    record: dict[str, Any] = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True)
class Group:
    """Comparable runs: equal in everything but the axis, the system and bookkeeping.

    Attributes:
        shared: what is equal: configuration, and `host`, `limits`, `accelerator` of `harness.hosts.measured_on`.
        points: one a system and x.
        invalid: runs left out for their verdict.
        elsewhere: runs left out because another host or device made them: never averaged, never beside each other.
    """

    shared: dict[str, Any]
    points: list[Point]
    invalid: int
    elsewhere: int = 0

    def systems(self) -> list[str]:
        """Names of the systems with a point."""
        return list(dict.fromkeys(point.system for point in self.points))

    def runs(self) -> list[str]:
        """Ids of the runs that stand for the points: the newest of each."""
        return [str(point.record["run_id"]) for point in self.points if "run_id" in point.record]

    def frame(self) -> pd.DataFrame:
        """What is drawn, as a table."""
        return pd.DataFrame(
            [
                {
                    "system": p.system, "x": p.x, "status": p.status, "value": p.value, "low": p.low, "high": p.high,
                    "samples": p.samples, "interval": p.interval_kind, "verdict": p.verdict,
                    "run": p.record.get("run_id", ""),
                }
                for p in self.points
            ]
        )  # fmt: skip


Axis = Callable[[Mapping[str, Any]], Any]
Value = Callable[[Mapping[str, Any]], float | None]


def epoch_seconds(epoch: Mapping[str, Any]) -> float | None:
    """An epoch's wall time."""
    return float(epoch["seconds"])


def stage_seconds(stage: str) -> Value:
    """An epoch's wall time in one stage."""
    return lambda epoch: epoch["stages_s"].get(stage)


def group_runs(
    frame: pd.DataFrame,
    *,
    axis: Axis,
    ignore: Sequence[str],
    value: Value = epoch_seconds,
    where: Callable[[Mapping[str, Any]], bool] = lambda config: True,
    want_axis: int = 2,
) -> Group:
    """The group of comparable runs that compares most: most pairs of systems at one x, most points, newest first.

    Args:
        frame: `harness.results.load()`.
        axis: x of a run, from its `config`.
        ignore: keys of `config` that the axis is made of, free to differ.
        value: seconds (or anything) of one measured epoch.
        where: which configs may enter.
        want_axis: distinct x needed.

    Raises:
        NotDrawn: no group has enough points.
    """
    if frame.empty:
        raise NotDrawn("there are no run records yet")
    groups: dict[str, list[tuple[dict[str, Any], str]]] = {}
    invalid: dict[str, int] = {}
    settings: dict[str, str] = {}
    for record, path in zip(frame["record"], frame["path"], strict=True):
        config = record["config"]
        if not where(config):
            continue
        shared = {key: val for key, val in config.items() if key not in FREE and key not in ignore}
        setting = json.dumps(shared, sort_keys=True, default=str)
        place = {name: val for name, val in measured_on(record).items() if MADE_OF.get(name) not in ignore}
        key = json.dumps({**shared, **place}, sort_keys=True, default=str)
        settings[key] = setting
        if record["verdict"] == "INVALID":
            invalid[key] = invalid.get(key, 0) + 1
            continue
        groups.setdefault(key, []).append((record, path))
    usual = Usual(frame["record"])
    best: Group | None = None
    best_rank: tuple[int, int, int, int, str] | None = None
    for key, members in groups.items():
        points = _points(members, axis, value, usual)
        distinct = len({str(point.x) for point in points})
        newest = max(record["run_id"] for record, _ in members)
        rank = (min(distinct, want_axis), pairs(points), len(points), len(members), newest)
        if distinct >= want_axis and (best_rank is None or rank > best_rank):
            others = [other for other in groups if other != key and settings[other] == settings[key]]
            elsewhere = sum(len(groups[other]) for other in others)
            best, best_rank = Group(json.loads(key), points, invalid.get(key, 0), elsewhere), rank
    if best is None:
        dropped = sum(invalid.values())
        tail = f" ({dropped} invalid ones are never drawn)" if dropped else ""
        raise NotDrawn(f"no comparable runs over at least {want_axis} values of its axis{tail}")
    return best


def pairs(points: Iterable[Point]) -> int:
    """Pairs of systems that have a point at the same x: what a figure compares."""
    return sum(count * (count - 1) // 2 for count in Counter(str(point.x) for point in points).values())


def _points(members: list[tuple[dict[str, Any], str]], axis: Axis, value: Value, usual: Usual) -> list[Point]:
    """One point a system and x: of several option sets the one nearest to the system's usual, so no ablation stands
    for it unless the axis tells them apart."""
    cells: dict[tuple[str, str, str], list[tuple[dict[str, Any], str]]] = {}
    for record, path in members:
        options = json.dumps(record["config"]["options"], sort_keys=True)
        cells.setdefault((record["system"], str(axis(record["config"])), options), []).append((record, path))
    best: dict[tuple[str, str], tuple[tuple[int, bool, int, str], Point]] = {}
    for (system, x, options), runs in cells.items():
        point = _point(system, axis, value, runs)
        rank = (usual.strangeness(system, json.loads(options)), point.value is None, -point.samples, options)
        if (system, x) not in best or rank < best[system, x][0]:
            best[system, x] = (rank, point)
    return sorted((point for _, point in best.values()), key=lambda point: (point.system, _sortable(point.x)))


def _point(system: str, axis: Axis, value: Value, runs: list[tuple[dict[str, Any], str]]) -> Point:
    newest, path = max(runs, key=lambda run: run[0]["run_id"])
    samples = []
    for record, _ in runs:
        if record["status"] == "ok":
            values = [value(epoch) for epoch in record["epochs"] if not epoch["warmup"]]
            samples += [val for val in values if val is not None]
    x = axis(newest["config"])
    if not samples:
        status = newest["status"] if newest["status"] != "ok" else "not measured"
        return Point(system, x, status, None, verdict=newest["verdict"], record=newest, path=path)
    seen = spread(samples)
    low, high = seen.interval
    verdict = "CAVEATS" if any(record["verdict"] == "CAVEATS" for record, _ in runs) else "VALID"
    return Point(system, x, "ok", seen.median, low, high, len(samples), seen.interval_kind, verdict, newest, path)


def _sortable(value: Any) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def caveats(points: Sequence[Point]) -> list[str]:
    """The rules that the drawn runs bend, named once each."""
    names: dict[str, None] = {}
    for point in points:
        for outcome in point.record.get("verdict_rules", []):
            if not outcome["ok"]:
                names[f"rule {outcome['rule']} {outcome['name'].replace('_', ' ')}"] = None
    return list(names)
