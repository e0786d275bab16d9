"""Queries of the accuracy claims, from runs that train for real and are tested on test nodes after every epoch."""

from __future__ import annotations

from dataclasses import dataclass

from harness.claims.measured import Measured, NotRun, Number, quotient
from harness.claims.pairs import Cell, Records, Setting, Side
from harness.claims.query import one_setting, runs_of


def _trained(system: str) -> Side:
    return Side(system, where=lambda config: config["test_nodes"] > 0)


def _setting(records: Records, first: str, second: str) -> Setting:
    # The in-memory reference has neither a cap nor a limited disk.
    free = ("memory", "disk_class") if "in-memory" in (first, second) else ()
    return one_setting(records, [_trained(first), _trained(second)], free=free)


def _accuracy(cell: Cell) -> Number:
    """Return the mean accuracy over the last three epochs (per cent) and its range over runs. Raises NotRun."""
    from harness.figures.accuracy_runs import final_accuracy

    found = [final_accuracy(record) for record in cell.records]
    known = [100 * value for value in found if value is not None]
    if not known:
        raise NotRun(f"{cell.newest['system']} has no accuracy on test nodes")
    return Number(sum(known) / len(known), min(known), max(known), "range" if len(known) > 1 else "exact")


@dataclass(frozen=True, eq=False)
class AccuracyGap:
    """Query for the points by which one system's test accuracy exceeds another's."""

    system: str
    other: str

    def __call__(self, records: Records) -> Measured:
        """Compute the number in the declared setting."""
        setting = _setting(records, self.system, self.other)
        a, b = (_accuracy(cell) for cell in setting.cells)
        number = Number(a.value - b.value, a.low - b.high, a.high - b.low, a.kind)
        line = f"{self.system} {a.value:.2f} %, {self.other} {b.value:.2f} %"
        return Measured(number, runs=runs_of(setting.cells), setting=setting.shared, detail=[line])


@dataclass(frozen=True, eq=False)
class TimeToAccuracy:
    """Query that divides two systems' seconds to an accuracy that both reach: 99 % of the lower best accuracy."""

    better: str
    baseline: str

    def __call__(self, records: Records) -> Measured:
        """Divide the baseline's seconds by the better system's. Raises NotRun without a test or the accuracy."""
        from harness.figures.accuracy_runs import best_accuracy, time_to

        setting = _setting(records, self.better, self.baseline)
        newest = [cell.newest for cell in setting.cells]
        best = [best_accuracy(record) for record in newest]
        target = 0.99 * min(value or 0.0 for value in best)
        ours, theirs = (time_to(record, target) for record in newest)
        if not target or not ours or not theirs:
            raise NotRun("one of them has no accuracy on test nodes, or never reaches the other's")
        line = f"to {100 * target:.1f} %: {self.better} {ours:.1f} s, {self.baseline} {theirs:.1f} s"
        number = quotient(Number.exact(theirs), Number.exact(ours))
        return Measured(number, runs=runs_of(setting.cells), setting=setting.shared, detail=[line])
