"""The measured cells of a figure's plan as tables: one row a run, one row a measured
epoch, and one row a cell."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.compare.comparable import shared_setting, side_by_side
from harness.compare.verdicts import NotDrawn
from harness.records.cost import TrainingCost
from harness.records.record import spread
from harness.results.table import STATISTICS, epochs_table, medians

if TYPE_CHECKING:
    from harness.compare.plan import Plan
    from harness.records.foreign import ForeignRecord
    from workloads.arraytypes import JsonDict

#: Columns that name a cell: the series of its figure, its place on the axis, and its
#: panel.
PLACE = ("system", "x", "panel")
#: Terms of T(E), as columns of `Cells.medians`.
TERMS = ("once_s", "first_s", "each_s", "mean_epoch_s", "shared_s", "shared_each_s")
NO_CELLS = pd.DataFrame(
    columns=[*PLACE, "status", *STATISTICS, "verdict", "run", "record", "path", *TERMS]
)


@dataclass(frozen=True)
class Cells:
    """The runs of a plan's cells that may be drawn together: those that count, by one
    host and one code.

    Attributes:
        runs: rows of the table of runs (`harness.results.table`) in the plan's order,
            oldest run of a cell first. The columns `system`, `x` and `panel` name the
            cell: `system` is the figure's series, `run_system` the system.
        shared: settings and place that all planned runs share, as `shared_setting`
            returns them.
        uncounted: verdict of each run that is left out for it, by run id.
        elsewhere: number of runs that are left out for their host, device or code.
        foreign: measurements by other code in the cells' settings, with the columns of
            `medians` and `hollow`.
    """

    runs: pd.DataFrame
    shared: JsonDict = field(default_factory=dict)
    uncounted: dict[str, str] = field(default_factory=dict)
    elsewhere: int = 0
    foreign: pd.DataFrame = field(default_factory=lambda: NO_CELLS)

    @cached_property
    def epochs(self) -> pd.DataFrame:
        """One row for each measured epoch of runs that ended well: its cell, settings
        (`config.*`) and parts."""
        if self.runs.empty:
            return epochs_table(self.runs)
        ended_well = self.runs[self.runs["status"] == "ok"]
        epochs = epochs_table(ended_well.drop_duplicates("run_id"))
        settings = [name for name in self.runs if str(name).startswith("config.")]
        return ended_well[[*PLACE, "run_id", *settings]].merge(
            epochs, on="run_id", sort=False
        )

    @property
    def count(self) -> int:
        """Number of cells that have a run."""
        return len(self.runs.drop_duplicates(list(PLACE))) if len(self.runs) else 0

    @property
    def systems(self) -> list[str]:
        """Names of the series that have a run."""
        return list(dict.fromkeys(self.runs["system"])) if len(self.runs) else []

    @property
    def xs(self) -> list[Any]:
        """Values of the axis that have a run, in the plan's order."""
        return list(dict.fromkeys(self.runs["x"])) if len(self.runs) else []

    def medians(self, column: str = "seconds") -> pd.DataFrame:
        """Return one row for each cell that has a run, in the plan's order: the median
        of a column over its epochs.

        Args:
            column: a column of `epochs`.

        Returns:
            Columns: `system`, `x`, `panel`; `status`, `ok` or the reason for a missing
                value (`oom`, `timeout`, …);
            `value`, `low`, `high`, `samples`, `interval`; `verdict`; `run`, `record`
            and `path` of the newest run, which stands for the cell; the terms of T(E)
            over all rounds.
        """
        if self.runs.empty:
            return NO_CELLS
        own = self.runs[[*PLACE, "run_id", "status", "verdict", "record", "path"]]
        newest = own.sort_values("run_id", kind="stable").drop_duplicates(
            list(PLACE), keep="last"
        )
        table = newest.sort_index().rename(columns={"run_id": "run"})
        table = table.merge(
            medians(self.epochs, column, PLACE), on=list(PLACE), how="left"
        )
        table = table.merge(self._terms, on=list(PLACE), how="left")
        measured = table["value"].notna()
        caveats = own.loc[own["verdict"] == "CAVEATS", list(PLACE)].drop_duplicates()
        bent = (
            table[list(PLACE)].merge(caveats, how="left", indicator=True)["_merge"]
            == "both"
        )
        table.loc[measured & bent.to_numpy(), "verdict"] = "CAVEATS"
        table.loc[~measured & (table["status"] == "ok"), "status"] = "not measured"
        table.loc[measured, "status"] = "ok"
        table = (
            table.astype({"samples": float})
            .fillna({"samples": 0, "interval": ""})
            .astype({"samples": int})
        )
        return table[list(NO_CELLS.columns)]

    def measured(self, column: str = "seconds") -> pd.DataFrame:
        """Return the rows of `medians` with a value; raise NotDrawn without any."""
        rows = self.medians(column).dropna(subset="value", ignore_index=True)
        if rows.empty:
            raise NotDrawn("no run has a measured epoch")
        return rows

    @cached_property
    def _terms(self) -> pd.DataFrame:
        """Return the terms of T(E) of each cell over all its rounds."""
        rows = []
        for place, records in self.runs.groupby(list(PLACE), sort=False, dropna=False)[
            "record"
        ]:
            cost = TrainingCost.of_runs(list(records))
            rows.append([*place, *(getattr(cost, term, None) for term in TERMS)])
        return pd.DataFrame(rows, columns=[*PLACE, *TERMS]).astype(
            dict.fromkeys(TERMS, float)
        )


def times_faster(table: pd.DataFrame, base: str) -> pd.Series[float]:
    """Return how many times as fast as the series `base` each row of `Cells.medians`
    is, at its value of the axis."""
    seconds = table[table["system"] == base].set_index("x")["value"]
    return table["x"].map(seconds) / table["value"]


def with_absent(
    table: pd.DataFrame, systems: Sequence[str], xs: Sequence[Any]
) -> pd.DataFrame:
    """Return the rows of `medians` for each system at each value of the axis, in this
    order.

    A cell without a run has the status `not run` and no value.
    """
    places = pd.DataFrame(
        [(system, x) for x in xs for system in systems], columns=["system", "x"]
    )
    found = places.merge(table.astype({"x": object}), on=["system", "x"], how="left")
    return found.fillna({"status": "not run", "run": "", "verdict": "", "panel": ""})


def facts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the facts of the run behind each row of `medians`, a column each."""
    found = [record["facts"] for record in rows["record"]]
    return pd.DataFrame(found, rows.index)


def cells_of(
    plan: Plan, runs: pd.DataFrame, foreign: Sequence[ForeignRecord] = ()
) -> Cells:
    """Return the measured cells of a plan.

    Args:
        plan: planned cells.
        runs: table of runs.
        foreign: measurements by other code.

    Raises:
        InputError: the plan has an invalid setting.
    """
    planned = list(plan.runs())
    rows = [(cell.series, cell.x, cell.panel, run.key) for cell, run in planned]
    places = pd.DataFrame(rows, columns=[*PLACE, "cell"]).astype({"x": object})
    settings = [run.settings for _, run in planned]
    foreign_rows = _foreign_rows(places, settings, foreign) if foreign else NO_CELLS
    if runs.empty:
        return Cells(runs, foreign=foreign_rows)
    standing = runs[~runs["replaced"]].rename(columns={"system": "run_system"})
    found = places.merge(standing, on="cell", how="inner", sort=False)
    here = _by_one_host_and_code(found)
    counted = here[here["counts"]]
    elsewhere = found["run_id"].nunique() - here["run_id"].nunique()
    left_out = here[~here["counts"]].drop_duplicates("run_id").sort_values("run_id")
    uncounted = dict(zip(left_out["run_id"], left_out["verdict"], strict=True))
    if counted.empty:
        return Cells(counted, {}, uncounted, elsewhere, foreign_rows)
    of_first_cell = counted[counted["cell"] == counted["cell"].iloc[0]]
    newest = of_first_cell.sort_values("run_id")["record"].iloc[-1]
    varying = _varying([one.model_dump(exclude={"options"}) for one in settings])
    return Cells(
        counted, shared_setting(newest, varying), uncounted, elsewhere, foreign_rows
    )


def _varying(settings: Sequence[JsonDict]) -> Collection[str]:
    """Return the names of the settings that differ between planned runs."""
    names = {
        name for name in settings[0] if len({repr(one[name]) for one in settings}) > 1
    }
    return names | ({"device_memory_bytes"} if "device_memory" in names else set())


def _by_one_host_and_code(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs whose place is that of the newest run by the host that made runs
    of most cells."""
    if runs.empty:
        return runs
    count = runs.groupby("host")["cell"].nunique()
    newest = runs.groupby("host")["run_id"].max()
    host = max(count.index, key=lambda name: (count[name], newest[name]))
    here: pd.DataFrame = runs[runs["host"] == host]
    # Facts of the place that are equal in all runs, and those that follow from a
    # setting, by this setting.
    for fact, setting in _FACTS:
        newest_of = (
            here.sort_values("run_id").groupby(setting, dropna=False)[fact].last()
        )
        here = here[here[fact] == here[setting].map(newest_of)]
    return here


_FACTS = (
    ("harness", "host"),
    ("config.isolation", "host"),
    ("limits", "config.disk_class"),
    ("accelerator", "config.device"),
    ("config.dataset.fingerprint", "config.dataset.name"),
)


def _foreign_rows(
    places: pd.DataFrame, settings: Iterable[Any], foreign: Sequence[ForeignRecord]
) -> pd.DataFrame:
    """Return a row for each measurement by other code in the settings of the cells, the
    newest of equal ones."""
    keyed = places[["x", "panel"]].assign(key=[side_by_side(one) for one in settings])
    rows = []
    for record in foreign:
        seen = spread(record.seconds)
        row: JsonDict = {
            "key": side_by_side(record.settings),
            "system": record.label,
            "status": "ok",
        }
        row |= {
            "value": seen.median,
            "low": seen.interval[0],
            "high": seen.interval[1],
            "interval": seen.interval_kind,
        }
        rows.append(
            row
            | {
                "samples": len(record.seconds),
                "verdict": "FOREIGN",
                "run": "",
                "hollow": True,
            }
        )
    measured = keyed.merge(pd.DataFrame(rows), on="key", how="inner", sort=False)
    newest = measured.drop_duplicates(list(PLACE), keep="last")
    return newest.drop(columns="key")
