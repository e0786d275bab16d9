"""The rows of an experiment: for each planned run the record that counts, wherever it
was made, or none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from harness.records.record import LABELS, Record
from harness.results.newest import without_replaced

if TYPE_CHECKING:
    from harness.plan.experiment import Experiment, PlannedRun


@dataclass(frozen=True)
class Rows:
    """The records of an experiment's planned runs.

    Attributes:
        records: one for each planned run and host, under the labels of the planned
            cell, in the plan's order.
        not_run: planned runs without a record.
        passed_over: records that do not count, where an earlier one of the same run
            does.
    """

    records: list[Record] = field(default_factory=list)
    not_run: list[PlannedRun] = field(default_factory=list)
    passed_over: list[Record] = field(default_factory=list)


def rows_of(experiment: Experiment, records: Iterable[Record]) -> Rows:
    """Return the rows of an experiment's table; records match by cell and round, as a
    sweep resumes.

    Args:
        records: runs by this code, made by this call or an earlier one, of this
            experiment or of others.
    """
    by_id = {record.run_id: record for record in records}
    counting = {
        str(plain["run_id"])
        for plain in without_replaced(record.to_json() for record in by_id.values())
    }
    by_cell: dict[tuple[str, int], list[Record]] = {}
    for record in by_id.values():
        by_cell.setdefault((record.cell.key, record.config.round), []).append(record)
    found = Rows()
    for planned in _runs(experiment):
        known = by_cell.get((planned.key, planned.round), [])
        shown = [record for record in known if record.run_id in counting]
        newest = max((record.run_id for record in shown), default="")
        found.records.extend(_labelled(record, planned) for record in shown)
        found.passed_over.extend(record for record in known if record.run_id > newest)
        if not shown:
            found.not_run.append(planned)
    return found


def _runs(experiment: Experiment) -> Iterator[PlannedRun]:
    """Yield each cell of an experiment once in each of its rounds; two notations of one
    cell are one."""
    from harness.plan.experiment import cells

    planned: dict[str, PlannedRun] = {}
    for cell in cells(experiment):
        planned.setdefault(cell.key, cell)
    for cell in planned.values():
        for number in range(cell.rounds):
            yield replace(cell, round=number)


def _labelled(record: Record, planned: PlannedRun) -> Record:
    """Return a record under the experiment, axes and round of a planned run, whichever
    command made it."""
    own = {
        "experiment": planned.experiment,
        "axes": dict(planned.axes),
        "round": planned.round,
    }
    assert own.keys() <= set(LABELS)
    return record.model_copy(update={"config": record.config.model_copy(update=own)})
