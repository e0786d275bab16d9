"""Common parts of the DiskGNN paper's figures: systems, sweeps, datasets and published values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.compare.cells import Cells
from harness.compare.plan import Plain, Plan, as_entry, grid
from harness.compare.verdicts import NotDrawn
from harness.figures.base import FORMATS, paper_rows, paper_table
from harness.figures.grids import bytes_of_row, dataset_of, gallery, only_systems, study_of, values
from harness.studies.base import StudyNeed

#: The paper's comparison (Section 7.1).
SYSTEMS = ["ginex", "mariusgnn", "diskgnn"]
#: Host memory as shares of the feature table.
MEMORY_SHARES = [0.1, 0.3, 0.5]
#: Factor on the gallery's mini-batches in sweeps over memory: else the smallest share holds all rows of an epoch.
LONGER = 8
#: Shuffled copies that the graph of flat accesses is expanded from.
FLAT_COPIES = 64
GB = 1e9
#: Function from a share to per cent, like `10 %`.
percent = FORMATS["percent"]


def entries(profile: Plain, names: list[str]) -> list[Plain]:
    """Return the profile's entries of these systems with their options, without run settings."""
    found = []
    for entry in only_systems(profile, names):
        own = as_entry(entry)
        found.append({"name": own["name"], "options": own.get("options", {})})
    return found


def variant(profile: Plain, series: str, **options: Any) -> Plain:
    """Return diskgnn's entry, drawn under the name `series`, with `options` added to its own."""
    (own,) = entries(profile, ["diskgnn"])
    return {**own, "series": series, "options": own["options"] | options}


def longer(profile: Plain) -> Plain:
    """Return the gallery's profile with epochs long enough for memory to matter: one to warm up, one measured."""
    base = gallery(profile)
    run = base["run"]
    batches = run.get("max_batches", 0)
    run |= {"max_batches": LONGER * batches, "epochs": 2, "warmup": 1}
    return base


def in_gallery(profile: Plain, names: list[str], over: Mapping[Any, Plain] = {"": {}}) -> Plan:
    """Plan systems at each value of an axis, in the gallery's runs."""
    return grid(gallery(profile), entries(profile, names), over)


def over_shares(profile: Plain, systems: Sequence[Plain]) -> Plan:
    """Plan entries of systems at each share of memory, in longer epochs."""
    shares = values(profile, "memory_shares", MEMORY_SHARES)
    memories = {share: {"memory": f"{share:g}x"} for share in shares}
    return grid(longer(profile), systems, memories)


def shape_of(recipe: Plain) -> Plain:
    """Return the size, classes and seed of a dataset's recipe."""
    return {key: recipe[key] for key in ("nodes", "edges", "classes", "seed", "max_memory") if key in recipe}


def flat_graph(profile: Plain) -> tuple[str, Plain]:
    """Return name and recipe of a graph as large as the profile's, with accesses as flat as in Friendster.

    It is a fractal expansion, whose shuffled copies spread the accesses. No study reads its features.
    """
    name, recipe = dataset_of(gallery(profile))
    return f"{name}-flat", {**shape_of(recipe), "kind": "fractal", "expand": FLAT_COPIES, "dim": 1}


def graphs(profile: Plain) -> list[tuple[str, Plain]]:
    """Return name and recipe of the profile's own dataset and of the flat graph."""
    return [dataset_of(gallery(profile)), flat_graph(profile)]


def planning_needs(profile: Plain, study: str, datasets: list[tuple[str, Plain]], **params: Any) -> list[StudyNeed]:
    """Return one study per dataset (name and recipe), on a whole epoch of mini-batches, with rows of their width."""
    base = gallery(profile)
    shared = {"seed": base["run"].get("seed", 0), **params}
    if study != "access-share":
        shared["row_bytes"] = bytes_of_row(base)
    return [study_of(base, study, dataset=own, **shared) for own in datasets]


def measured(cells: Cells) -> pd.DataFrame:
    """Return the rows of `Cells.medians` that have a value; raise NotDrawn without any."""
    rows = cells.medians().dropna(subset="value")
    if rows.empty:
        raise NotDrawn("no run has a measured epoch")
    return rows


def fact(rows: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Return a fact of the newest run of each row of `Cells.medians`, like `pack_s`."""
    return rows["record"].map(lambda record: record["facts"].get(name))


def as_bars(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of `Cells.medians` with the columns of `draw_bars`."""
    columns = ["group", "series", "value", "low", "high", "status", "run"]
    return rows.rename(columns={"x": "group", "system": "series"})[columns]


def bars_over(rows: pd.DataFrame, base: Any) -> pd.DataFrame:
    """Return `as_bars` with values and intervals divided by a base: a number, or one for each row."""
    bars = as_bars(rows)
    ends = ["value", "low", "high"]
    bars[ends] = bars[ends].div(base, axis=0)
    return bars


def instead(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return rows of `draw_bars` whose value is that of another column, without an interval."""
    return rows.drop(columns=["low", "high"], errors="ignore").assign(value=rows[column])


def listed(numbers: pd.Series[Any], form: str) -> str:
    """Return numbers by name as text, each in a form like `{} {:.2f}x`, joined by commas."""
    return ", ".join(form.format(name, number) for name, number in numbers.items())


def paper_note(figure_id: str) -> str:
    """Return the published factors of a figure in words; empty without any."""
    factors = [f"{row['series']} {row['x']} {row['value']:g}x" for row in paper_rows(figure_id)]
    return f"paper: {', '.join(factors)}" if factors else ""


def paper_frame(figure_id: str) -> pd.DataFrame:
    """Return the published values of a figure: a row for each series, a column for each x, in their order."""
    return pd.DataFrame.from_dict(paper_table(figure_id), orient="index")
