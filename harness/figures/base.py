"""A figure as a declaration: id, paper, the runs and studies it needs, and the drawing
from their records alone."""

from __future__ import annotations

import csv
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import harness
from harness.compare.plan import Plan, base_of_gallery
from harness.figures.draw.captions import (
    add_caption,
    add_finding,
    caption,
    labelled,
    name_part,
    part_of,
    part_of_study,
    row_texts,
    study_caption,
)
from harness.records.study import StudyRecord
from workloads.arraytypes import JsonDict
from workloads.errors import InputError
from workloads.units import format_bytes, format_count

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Canvas

    from harness.compare.cells import Cells
    from harness.compare.evidence import Evidence, Planned
    from harness.figures.over_axis import Places
    from harness.plan.experiment import Experiment
    from harness.studies.base import StudyNeed

    #: Origin of a figure's values: runs, a study, or the caption itself.
    Source = Cells | StudyRecord | str

T = TypeVar("T")
NOTHING = "–"
Formatter = Callable[[Any], str] | str
#: Formats that a column's or an axis' declaration may name.
FORMATS: dict[str, Callable[[Any], str]] = {
    "count": lambda value: format_count(int(value)),
    "bytes": lambda value: format_bytes(int(value)),
    "GB": lambda value: f"{value / GB:.3g} GB",
    "dollars": "${:.2f}".format,
    "percent": lambda share: f"{100 * float(share):g} %",
    "times": "{:g}x".format,
}
#: Bytes of a gigabyte in the papers' tables.
GB = 10**9


@dataclass(frozen=True)
class Drawing:
    """A drawn figure: the canvas, the table behind it, its caption, the ids of the runs
    in it, and its finding."""

    canvas: Canvas
    data: pd.DataFrame
    caption: str
    runs: list[str] = field(default_factory=list)
    finding: str = ""


@dataclass(frozen=True)
class Sheet:
    """A table of the catalogue.

    Attributes:
        data: typed values, as in the CSV.
        shown: the same values as text for the reader; a missing value is a dash.
        finding: as of a drawing.
    """

    data: pd.DataFrame
    shown: pd.DataFrame
    caption: str
    runs: list[str] = field(default_factory=list)
    finding: str = ""


def _described(
    source: Source, rows: pd.DataFrame | None, notes: Sequence[str], *, bars: bool
) -> tuple[str, str, list[str]]:
    """Return caption, part of an epoch and run ids of a figure's source; arguments as
    in `drawn`, and whether the drawing shows intervals."""
    from harness.compare.cells import Cells

    text = "; ".join(filter(None, notes))
    if isinstance(source, str):
        return source, "", []
    if not isinstance(source, Cells):
        return study_caption(source, text), part_of_study(source), []
    every = source.medians()
    measured = every.dropna(subset="value")
    shown = rows
    if shown is None:
        shown = every if measured.empty else measured
    found = caption(source, shown, text, bars=bars)
    return found, part_of(shown), list(every.run.unique())


def _missing(source: Source, places: Places | None) -> str:
    """Return the clause on systems of the source's runs without a measured epoch; empty
    without any."""
    from harness.compare.cells import Cells
    from harness.figures import over_axis

    if not isinstance(source, Cells):
        return ""
    every = source.medians()
    if every.panel.nunique() > 1 and places is None:
        every = over_axis.by_panel(every)
        places = over_axis.PanelPlaces(list(dict.fromkeys(every.x)))
    return over_axis.missing(every, places or over_axis.places_of(every))


def drawn(
    canvas: Canvas,
    data: pd.DataFrame,
    source: Source,
    *notes: str,
    rows: pd.DataFrame | None = None,
    runs: list[str] | None = None,
    order: Sequence[str] | None = (),
    bottom: float = 0.0,
    finding: str = "",
    places: Places | None = None,
) -> Drawing:
    """Write the legend and the finding above a canvas, and the caption under it; return
    the drawing.

    Labels of axes that speak of an epoch name the part of it that was trained. The
    finding of cells ends with the systems that have no measured epoch.

    Args:
        source, notes: cells, study or text that the caption describes, and what it says
            besides.
        rows: the drawn rows of `Cells.medians`; by default those with a value.
        runs: ids of the runs behind the drawing; by default the newest run of every
            cell, none of a study.
        order: labels that come first in the legend; None: no legend.
        bottom: lower edge of the axes in the canvas, where the caption begins.
        finding: sentence on what the drawn values show, computed from them; empty where
            they show nothing.
        places: words for the values of the axis of cells; by default the values
            themselves.
    """
    from harness.figures.draw.panels import has_intervals, legend_above

    bars = has_intervals(canvas)
    absent = _missing(source, places)
    every = notes if finding else (*notes, absent)
    text, part, own_runs = _described(source, rows, every, bars=bars)
    finding = f"{finding}; {absent}" if finding and absent else finding
    name_part(canvas, part)
    if (
        order is not None
        and not canvas.legends
        and not any(axes.get_legend() for axes in canvas.axes)
    ):
        legend_above(canvas, canvas.axes, order)
    add_finding(canvas, finding)
    add_caption(canvas, text, bottom=bottom)
    return Drawing(canvas, data, text, own_runs if runs is None else runs, finding)


def sheet(
    data: pd.DataFrame | list[JsonDict],
    columns: Mapping[str, Formatter],
    source: Source,
    *notes: str,
    rows: pd.DataFrame | None = None,
    runs: list[str] | None = None,
    finding: str = "",
    places: Places | None = None,
) -> Sheet:
    """Return a table as a Sheet that shows `columns` in their order.

    Args:
        data: typed values, None or nan where unknown. Columns missing from `columns`
            are in the CSV only.
        columns: header (a column of `data`, else an empty one) -> format of its values:
            a function or its name in `FORMATS`, or a format like `.1f`; an empty one
            shows the value as it is. A missing value is a dash.
        source, notes, rows, runs, finding, places: as in `drawn`.
    """
    import pandas as pd

    absent = _missing(source, places)
    every = notes if finding else (*notes, absent)
    text, part, own_runs = _described(source, rows, every, bars=False)
    finding = f"{finding}; {absent}" if finding and absent else finding
    table = pd.DataFrame(data)
    table = table.reindex(
        columns=[*table, *(header for header in columns if header not in table)]
    )
    shown = pd.DataFrame()
    for header, how in columns.items():
        shown[labelled(header, part, ", ")] = [
            _shown(value, how) for value in table[header]
        ]
    return Sheet(table, shown, text, own_runs if runs is None else runs, finding)


def _shown(value: Any, how: Formatter) -> str:
    import pandas as pd

    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return NOTHING
    if callable(how):
        return how(value)
    if how in FORMATS:
        return FORMATS[how](value)
    # A word in a column of numbers (`OOM`, `not run`) is shown as it is.
    return str(value) if isinstance(value, str) else format(value, how)


#: Function from a bench profile, as plain data, to a figure's cells or experiments.
Needs = Callable[[JsonDict], Plan | JsonDict | list[JsonDict]]
Draw = Callable[["Evidence"], Drawing | Sheet]


def nothing(profile: JsonDict) -> list[Any]:
    """Return nothing: no runs for figures drawn from studies alone, no studies for
    those drawn from runs."""
    return []


@dataclass(frozen=True)
class Figure:
    """One figure or table of the catalogue.

    The plain data of a figure is its row of `catalogue.csv`.

    Attributes:
        id: id in `outcore figures ID`.
        needs: maps a bench profile (plain data of an experiment) to the figure's cells,
            or to its experiments.
        draw: maps the evidence to a drawing; raises NotDrawn with the reason.
        studies: maps a bench profile to the studies behind the drawing.
        beside: maps a bench profile to experiments that the claims need and the drawing
            leaves out.
    """

    id: str
    needs: Needs
    draw: Draw
    studies: Callable[[JsonDict], list[StudyNeed]] = nothing
    beside: Needs = nothing

    @property
    def row(self) -> dict[str, str]:
        """The figure's row of `catalogue.csv`. Raises KeyError where it has none."""
        return rows()[self.id]

    @property
    def paper(self) -> str:
        """Name of the paper, or `outcore`."""
        return self.row["paper"]

    @property
    def title(self) -> str:
        """Title in the gallery and above a table."""
        return self.row["title"]

    @property
    def headline(self) -> bool:
        """Whether the runs of the default bench suffice for the drawing."""
        return self.row["headline"] == "yes"

    @property
    def claims(self) -> tuple[str, ...]:
        """Ids of the published claims that the figure supports or refutes."""
        return tuple(self.row["claims"].split())

    @property
    def full(self) -> str:
        """The paper's whole grid, in one line."""
        return self.row["full"]

    def experiments(self, profile: JsonDict) -> list[Experiment]:
        """Return the experiments of `needs` and `beside`, tagged with this figure.
        Raises InputError."""
        from harness.plan.experiment import parse_experiment

        found: list[JsonDict] = []
        for needs in (self.needs, self.beside):
            needed = needs(profile)
            content = needed.experiment(self.id) if isinstance(needed, Plan) else needed
            found += [content] if isinstance(content, dict) else content
        return [
            parse_experiment({**content, "gallery": {}, "figures": [self.id]})
            for content in found
        ]


_FIGURES: dict[str, Figure] = {}


@cache
def rows() -> dict[str, dict[str, str]]:
    """Return the rows of `catalogue.csv` by the figure's id."""
    with (
        Path(__file__)
        .with_name("catalogue.csv")
        .open(encoding="utf-8", newline="") as file
    ):
        return {row["id"]: row for row in csv.DictReader(file)}


def figure(
    id_: str,
    needs: Needs = nothing,
    *,
    studies: Callable[[JsonDict], list[StudyNeed]] = nothing,
    beside: Needs = nothing,
) -> Callable[[Draw], Draw]:
    """Return a decorator that adds a figure with the decorated `draw` to the catalogue;
    see `Figure`."""

    def add(draw: Draw) -> Draw:
        _FIGURES[id_] = Figure(
            id_, planned(id_, needs), draw, planned(id_, studies), planned(id_, beside)
        )
        return draw

    return add


def planned(id_: str, plan: Callable[[JsonDict], T]) -> Callable[[JsonDict], T]:
    """Return a figure's plan of a bench profile: of the bench's own runs for the
    headline, else of the gallery's."""
    if rows().get(id_, {}).get("headline") == "yes":
        return plan
    return lambda profile: plan(base_of_gallery(profile))


def figure_of_cells(
    id_: str,
    plan: Planned,
    *,
    least: int = 2,
    otherwise: Planned | None = None,
    beside: Needs = nothing,
) -> Callable[[Callable[[Cells], Drawing | Sheet]], Draw]:
    """Return a decorator that adds a figure to the catalogue, drawn from the measured
    cells of its plan.

    Args:
        id_, beside: as in `Figure`.
        plan, least, otherwise: as in `Evidence.cells`.
    """

    def add(draw: Callable[[Cells], Drawing | Sheet]) -> Draw:
        @wraps(draw)
        def of_evidence(evidence: Evidence) -> Drawing | Sheet:
            return draw(evidence.cells(id_, plan, least=least, otherwise=otherwise))

        return figure(id_, plan, beside=beside)(of_evidence)

    return add


def catalogue() -> dict[str, Figure]:
    """Import all modules of this package and return the figures that they register,
    sorted by id."""
    _import_all()
    return dict(sorted(_FIGURES.items()))


@cache
def _import_all() -> None:
    package = importlib.import_module("harness.figures")
    for module in pkgutil.walk_packages(package.__path__, "harness.figures."):
        importlib.import_module(module.name)


def chosen(names: str) -> list[Figure]:
    """Return the figures of `headline`, `all` or a comma-separated list of ids.

    Raises:
        InputError: an id does not exist (the message has the nearest one), or there is
            no id.
    """
    from harness.settings import unknown_name

    known = catalogue()
    if names == "all":
        return list(known.values())
    if names == "headline":
        return [figure for figure in known.values() if figure.headline]
    ids = [part.strip() for part in names.split(",") if part.strip()]
    for name in ids:
        if name not in known:
            raise unknown_name("figure", f"figure {name!r}", name, list(known))
    if not ids:
        raise InputError(
            "no figure is named", "use headline, all or ids of `outcore figures --list`"
        )
    return [known[name] for name in ids]


PUBLISHED = Path(harness.__file__).parent / "published"


@cache
def published(figure_id: str) -> pd.DataFrame:
    """Return the paper's own values of a figure (`harness/published/<id>.csv`): series,
    x, value, unit, source, read.

    `read` is `text` for a number printed in the paper and `plot` for one read off a
    plot. Without published numbers the table is empty, with these columns. It is
    shared: do not modify it.
    """
    import pandas as pd

    columns = ["series", "x", "value", "unit", "source", "read"]
    path = PUBLISHED / f"{figure_id}.csv"
    if not path.is_file():
        return pd.DataFrame(columns=columns)
    return pd.read_csv(
        path, dtype={"series": str, "unit": str, "source": str, "read": str}
    )


def paper_frame(figure_id: str) -> pd.DataFrame:
    """Return the published values of a figure: a row for each series, a column for each
    x as text, in their order."""
    table = published(figure_id).astype({"x": str, "value": float})
    return table.set_index(["series", "x"])["value"].unstack(sort=False)


def paper_values(figure_id: str, series: Any, xs: Any) -> Any:
    """Return the published value of each series at the x of the same row; nan where
    there is none."""
    import pandas as pd

    known = published(figure_id).astype({"x": str}).set_index(["series", "x"])["value"]
    return known.reindex(pd.MultiIndex.from_arrays([series, xs])).to_numpy(float)


def paper_note(figure_id: str) -> str:
    """Return the published factors of a figure in words; empty without any."""
    return row_texts(published(figure_id), "{series} {x} {value:g}x", before="paper: ")
