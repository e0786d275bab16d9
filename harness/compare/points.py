"""The records of planned cells as points: all rounds of a run in one point, all runs by one host and one code.

The rounds of a run are samples over its measured epochs, and the newest run, which stands for them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from harness.compare.comparable import shared_setting, side_by_side
from harness.compare.plan import FigureCell, Plain, Plan
from harness.records.cost import TrainingCost
from harness.records.hosts import measured_on
from harness.records.record import COUNTED, spread

if TYPE_CHECKING:
    import pandas as pd

    from harness.compare.comparable import Index
    from harness.plan.experiment import PlannedRun
    from harness.records.foreign import ForeignRecord


#: Function from one measured epoch to a number; None where the epoch does not have it.
Value = Callable[[Mapping[str, Any]], float | None]
#: Function from one record to numbers.
Samples = Callable[[Plain], list[float]]


def measured_epochs(record: Mapping[str, Any]) -> list[Plain]:
    """Return the epochs of a run after its warm-up."""
    from harness.results.table import measured_epochs

    return measured_epochs(record)


def of_epochs(value: Value) -> Samples:
    """Return a function for a value of each measured epoch that has it."""
    return lambda record: [number for epoch in measured_epochs(record) if (number := value(epoch)) is not None]


@dataclass(frozen=True)
class Rounds:
    """The records of one system in one setting, at least one."""

    records: list[Plain]

    @property
    def newest(self) -> Plain:
        """Newest run, which stands for all."""
        return max(self.records, key=lambda record: str(record["run_id"]))

    @property
    def runs(self) -> list[str]:
        """Run ids, oldest first."""
        return sorted(str(record["run_id"]) for record in self.records)

    @property
    def without(self) -> str:
        """Reason why there are no samples: the newest run's status, or `not measured`."""
        return "not measured" if self.newest["status"] == "ok" else str(self.newest["status"])

    @property
    def verdict(self) -> str:
        """`CAVEATS` where one of the runs has caveats, else `VALID`."""
        return "CAVEATS" if any(record["verdict"] == "CAVEATS" for record in self.records) else "VALID"

    def samples(self, values: Samples) -> list[float]:
        """Return the numbers of every run that ended well."""
        return [number for record in self.records if record["status"] == "ok" for number in values(record)]

    @cached_property
    def cost(self) -> TrainingCost | None:
        """Terms of T(E) over all rounds that count; None where no epoch was measured."""
        return TrainingCost.of_runs(self.records)

    @property
    def fresh_epochs_s(self) -> list[float]:
        """Seconds of every measured epoch that counts, with all of its work (`each` added)."""
        each_s = self.cost.each_s if self.cost else 0.0
        return [each_s + seconds for record in self._timed for seconds in of_epochs(online_seconds)(record)]

    @property
    def _timed(self) -> list[Plain]:
        return [record for record in self.records if record["status"] == "ok" and record["verdict"] in COUNTED]


def epoch_seconds(epoch: Mapping[str, Any]) -> float | None:
    """Return an epoch's wall time."""
    return float(epoch["seconds"])


def online_seconds(epoch: Mapping[str, Any]) -> float | None:
    """Return an epoch's wall time without the offline work within it, which T(E) counts as `each`."""
    return float(epoch["seconds"]) - float((epoch.get("offline") or {}).get("seconds", 0.0))


def stage_seconds(stage: str) -> Value:
    """Return a function for an epoch's wall time in one stage."""
    return lambda epoch: epoch["stages_s"].get(stage)


@dataclass(frozen=True)
class Point:
    """One cell with its measurement.

    Attributes:
        system, x: the cell's series (a system, or a variant of one), and its place on the axis.
        status: `ok`, or the reason for a missing value (`oom`, `timeout`, …).
        value: median of the measured epochs of all rounds; None where there are none.
        low, high: interval of the value; `interval_kind` names its kind.
        record, path: newest run, which stands for the cell, and its folder.
        cost: terms of T(E) over all rounds; None where no epoch was measured.
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
    record: Plain = field(default_factory=dict)
    path: str = ""
    panel: str = ""
    cost: TrainingCost | None = None

    @property
    def run(self) -> str:
        """Id of the newest run; empty where there is none."""
        return str(self.record.get("run_id", ""))

    @property
    def told(self) -> str:
        """The status for a caption: `not run`, or like `OOM`."""
        return self.status if self.status == "not run" else self.status.upper()

    @property
    def epochs(self) -> list[Plain]:
        """Measured epochs of the newest run."""
        return measured_epochs(self.record) if self.record else []

    @property
    def cells(self) -> Plain:
        """The columns of a figure's table: value, interval and status."""
        return {"value": self.value, "low": self.low, "high": self.high, "status": self.status}

    def over(self, base: float) -> Plain:
        """Return value and interval divided by `base`."""
        ends = {"value": self.value, "low": self.low, "high": self.high}
        return {name: None if end is None else end / base for name, end in ends.items()}


@dataclass(frozen=True)
class Group:
    """The points of a plan.

    Attributes:
        shared: configuration and place that all planned runs share, as `shared_setting` returns them.
        points: one for each cell that has a record, in the plan's order.
        uncounted: verdict of each run that is left out for it, by run id.
        elsewhere: number of runs left out for their host or device.
        foreign: measurements by other code in the cells' settings, which no number is taken from.
    """

    shared: Plain
    points: list[Point]
    uncounted: dict[str, str] = field(default_factory=dict)
    elsewhere: int = 0
    foreign: list[Point] = field(default_factory=list)

    @property
    def done(self) -> list[Point]:
        """Points with a value."""
        return [point for point in self.points if point.value is not None]

    def at(self, system: str, x: Any = None) -> Point:
        """Return the point of a series, at `x` where it is given; one with the status `not run` where there is none."""
        found = [p for p in self.points if p.system == system and (x is None or str(p.x) == str(x))]
        return found[-1] if found else Point(system, x, "not run", None)

    def values(self) -> set[str]:
        """Return the values of the axis that have a point."""
        return {str(point.x) for point in self.points}

    def systems(self) -> list[str]:
        """Return the names of the series with a point."""
        return list(dict.fromkeys(point.system for point in self.points))

    def runs(self) -> list[str]:
        """Return the ids of the newest run of each point."""
        return list(dict.fromkeys(point.run for point in self.points if point.run))

    def rows(self, points: Sequence[Point]) -> pd.DataFrame:
        """Return points with the columns of `Cells.medians` that a caption reads."""
        import pandas as pd

        kept = [{"record": p.record, "samples": p.samples, "interval": p.interval_kind} for p in points]
        return pd.DataFrame(kept, columns=["record", "samples", "interval"])

    def frame(self, points: Sequence[Point] | None = None) -> pd.DataFrame:
        """Return points (by default all of ours) as a table."""
        import pandas as pd

        columns = ("system", "x", "status", "value", "low", "high", "samples", "interval_kind", "verdict")
        shown = self.points if points is None else points
        rows = [{name: getattr(p, name) for name in columns} | {"run": p.run} for p in shown]
        return pd.DataFrame(rows).rename(columns={"interval_kind": "interval"})


def measured(
    index: Index,
    paths: Mapping[str, str],
    plan: Plan,
    value: Value = epoch_seconds,
    foreign: Sequence[ForeignRecord] = (),
) -> Group:
    """Return the points of a plan's cells.

    Args:
        paths: run id -> the run's folder.
        plan: planned cells; a cell without a record has no point.
        value: function from one measured epoch to its number.
        foreign: measurements by other code.
    """
    found: list[tuple[FigureCell, list[Plain]]] = []
    settings: list[Plain] = []
    planned = list(plan.runs())
    for cell, run in planned:
        found.append((cell, index.of(run)))
        settings.append(run.settings.model_dump(exclude={"options"}))
    records = {record["run_id"]: record for _, mine in found for record in mine}
    host = _host_of_most([mine for _, mine in found])
    here = _newest_facts(record for record in records.values() if measured_on(record)["host"] == host)
    local = {run for run, record in records.items() if all(here[key] == fact for key, fact in _facts(record))}
    valid = {run for run in local if records[run]["verdict"] in COUNTED}
    points = []
    for cell, mine in found:
        kept = [record for record in mine if record["run_id"] in valid]
        if kept:
            points.append(_point(cell, kept, value, paths))
    varying = {key for key in (settings[0] if settings else ()) if len({repr(s[key]) for s in settings}) > 1}
    if "device_memory" in varying:
        varying.add("device_memory_bytes")
    shared = shared_setting(points[0].record, varying) if points else {}
    beside = _foreign(planned, foreign) if value is epoch_seconds else []
    uncounted = {run: records[run]["verdict"] for run in sorted(local - valid)}
    return Group(shared, points, uncounted, len(records) - len(local), beside)


def _foreign(planned: Iterable[tuple[FigureCell, PlannedRun]], foreign: Sequence[ForeignRecord]) -> list[Point]:
    """Return the measurements by other code in the settings of the cells, each once in a place."""
    found: dict[tuple[str, str, str], Point] = {}
    by_key: dict[str, list[ForeignRecord]] = {}
    for record in foreign:
        by_key.setdefault(side_by_side(record.settings), []).append(record)
    for cell, run in planned if by_key else ():
        for record in by_key.get(side_by_side(run.settings), ()):
            seen = spread(record.seconds)
            own: Plain = {"low": seen.interval[0], "high": seen.interval[1], "interval_kind": seen.interval_kind}
            own |= {"samples": len(record.seconds), "verdict": "FOREIGN", "panel": cell.panel}
            place = (record.label, str(cell.x), cell.panel)
            found[place] = Point(record.label, cell.x, "ok", seen.median, **own)
    return list(found.values())


def _facts(record: Plain) -> list[tuple[str, str]]:
    """Return the facts, by name, that must be equal in all records of one figure even where their settings differ."""
    config, where = record["config"], measured_on(record)
    named = {"host": where["host"], "harness": where["harness"], "isolation": config["isolation"]}
    named |= {f"limits of {config['disk_class']}": where["limits"]}
    named |= {f"accelerator {config['device']}": where["accelerator"]}
    named |= {f"dataset {config['dataset']['name']}": config["dataset"]["fingerprint"]}
    return [(name, json.dumps(fact, sort_keys=True, default=str)) for name, fact in named.items()]


def _host_of_most(cells: Iterable[list[Plain]]) -> str:
    """Return the host that made runs of most cells; of equals the one with the newest run."""
    count: Counter[str] = Counter()
    newest: dict[str, str] = {}
    for records in cells:
        runs = sorted((str(record["run_id"]), str(measured_on(record)["host"])) for record in records)
        count.update({host for _, host in runs})
        newest |= {host: max(newest.get(host, ""), run) for run, host in runs}
    return max(newest, key=lambda host: (count[host], newest[host]), default="")


def _newest_facts(records: Iterable[Plain]) -> dict[str, str]:
    """Return the facts of the newest record, each missing one from the newest record that has it."""
    found: dict[str, str] = {}
    for record in sorted(records, key=lambda record: str(record["run_id"]), reverse=True):
        for name, fact in _facts(record):
            found.setdefault(name, fact)
    return found


def _point(cell: FigureCell, records: list[Plain], value: Value, paths: Mapping[str, str]) -> Point:
    rounds = Rounds(records)
    newest, samples = rounds.newest, rounds.samples(of_epochs(value))
    own: Plain = {"record": newest, "path": paths.get(newest["run_id"], ""), "panel": cell.panel, "cost": rounds.cost}
    if not samples:
        return Point(cell.series, cell.x, rounds.without, None, verdict=newest["verdict"], **own)
    seen = spread(samples)
    own |= {"low": seen.interval[0], "high": seen.interval[1], "interval_kind": seen.interval_kind}
    return Point(cell.series, cell.x, "ok", seen.median, samples=len(samples), verdict=rounds.verdict, **own)
