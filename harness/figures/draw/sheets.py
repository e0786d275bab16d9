"""Tables of the catalogue from rows: typed values for the CSV, and the same values as text for the reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from harness.compare.plan import Plain
from harness.compare.points import Group, Point
from harness.figures.base import Sheet
from harness.figures.draw.captions import caption_of
from harness.records.study import StudyRecord

NOTHING = "–"
Formatter = Callable[[Any], str] | str


def sheet(
    rows: pd.DataFrame | list[Plain],
    columns: Mapping[str, Formatter],
    source: Group | StudyRecord | str,
    *notes: str,
    points: list[Point] | None = None,
    runs: list[str] | None = None,
) -> Sheet:
    """Return `rows` as a Sheet that shows `columns` in their order.

    Args:
        rows: typed values, None or nan where unknown. Columns missing from `columns` are in the CSV only.
        columns: header (a column of `rows`, else an empty one) -> format of its values: a function, or a format like
            `.1f` or `,`; an empty one shows the value as it is. A missing value is shown as a dash.
        source, notes, points: as in `caption_of`; or the caption itself.
        runs: ids of the runs behind the rows; by default those of the group.
    """
    data = pd.DataFrame(rows)
    for header in columns:
        if header not in data:
            data[header] = None
    shown = pd.DataFrame({header: [_shown(value, how) for value in data[header]] for header, how in columns.items()})
    text = source if isinstance(source, str) else caption_of(source, *notes, points=points)
    if runs is None:
        runs = source.runs() if isinstance(source, Group) else []
    return Sheet(data, shown, text, runs)


def _shown(value: Any, how: Formatter) -> str:
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return NOTHING
    if callable(how):
        return how(value)
    # A word in a column of numbers (`OOM`, `not run`) is shown as it is.
    return str(value) if isinstance(value, str) or not how else format(value, how)
