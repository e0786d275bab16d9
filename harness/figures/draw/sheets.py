"""Tables of the catalogue from rows: typed values for the CSV, and the same values as text for the reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from harness.figures.base import Sheet

NOTHING = "–"
Formatter = Callable[[Any], str] | str


def sheet(rows: pd.DataFrame, columns: Mapping[str, Formatter], caption: str, *, runs: Sequence[str] = ()) -> Sheet:
    """Return `rows` as a Sheet that shows `columns` in their order.

    Args:
        rows: typed values, None or nan where unknown. Columns missing from `columns` are in the CSV only.
        columns: header (a column of `rows`) -> format of its values: a function, or a format like `.1f` or `,`; an
            empty one shows the value as it is. A missing value is shown as a dash.
        caption, runs: text below the table (setting, device, caveats), and ids of the runs behind the rows.

    Raises:
        KeyError: a header is no column of `rows`.
    """
    shown = pd.DataFrame({header: [_shown(value, how) for value in rows[header]] for header, how in columns.items()})
    return Sheet(data=rows, shown=shown, caption=caption, runs=list(runs))


def _shown(value: Any, how: Formatter) -> str:
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return NOTHING
    if callable(how):
        return how(value)
    # A word in a column of numbers (`OOM`, `not run`) is shown as it is.
    return str(value) if isinstance(value, str) or not how else format(value, how)
