"""outcore-ablation and agnes-ablation: what each part of a system is worth, one bar for
each part left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.compare.cells import Cells, with_absent
from harness.compare.plan import Plan, grid
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_cells
from harness.figures.draw.bars import as_bars, draw_bars
from harness.figures.draw.captions import row_texts
from harness.figures.draw.words import in_words
from harness.figures.grids import gallery
from harness.figures.over_axis import Places, alike
from harness.results.table import each
from workloads.arraytypes import JsonDict

WHOLE = "whole"
#: The part that each bar leaves out, and the options that switch it off; none is at its
#: default.
OUTCORE: dict[str, JsonDict] = {
    WHOLE: {},
    "sampled online": {"external_sampling": "off"},
    "own passes": {"shared_passes": False},
    "no Belady": {"belady": False},
    "single reads": {"packing": "off"},
    "no look-ahead": {"look_ahead": False},
    "replayed": {"replay": True},
}
AGNES: dict[str, JsonDict] = {
    WHOLE: {},
    "no hyperbatch": {"hyperbatch": 1},
    "hyperbatch of 4": {"hyperbatch": 4},
    "average only": {"tiers": "average"},
    "no tiers": {"tiers": "off"},
    "no look-ahead": {"look_ahead": False},
}


def over_parts(
    profile: JsonDict, system: str, parts: Mapping[str, JsonDict], **run: Any
) -> Plan:
    """Plan a system whole and without one of its parts each; `run`: other run
    settings."""
    return grid(
        gallery(profile),
        [system],
        {name: {"options": own, **run} for name, own in parts.items()},
    )


@figure_of_cells(
    "outcore-ablation", lambda profile: over_parts(profile, "outcore", OUTCORE), least=1
)
def outcore(cells: Cells) -> Drawing:
    """Draw the epoch time of outcore without one of its parts each."""
    return _ablation(
        cells, "outcore", list(OUTCORE), "replayed: not faithful, nothing is prepared"
    )


# Without hyperbatches each mini-batch reads most of the table.
@figure_of_cells(
    "agnes-ablation",
    lambda profile: over_parts(profile, "agnes", AGNES, timeout="900s"),
    least=1,
)
def agnes(cells: Cells) -> Drawing:
    """Draw the epoch time of agnes without one of its parts each."""
    alone = "no hyperbatch: each mini-batch reads blocks for itself"
    average = "average only: rows below the average go to files"
    return _ablation(cells, "agnes", list(AGNES), f"{alone}; {average}")


def _ablation(cells: Cells, system: str, variants: list[str], note: str) -> Drawing:
    rows = with_absent(cells.medians(), [system], variants)
    whole = rows.value.iloc[0]
    if pd.isna(whole) or len(cells.xs) < 2:
        where = f"{system}-ablation"
        raise NotDrawn(
            f"{system} was not measured whole and with a part switched off, in one "
            f"setting ({where})"
        )
    misses = (
        cells.epochs.reindex(columns=["x", "counters.misses"])
        .groupby("x")["counters.misses"]
        .last()
    )
    data = as_bars(rows).drop(columns="run")
    data["times"] = data.value / whole
    data["misses"] = data.group.map(misses)
    data["run"] = rows.run
    canvas, _ = draw_bars(
        data, title="What each part is worth", ylabel="epoch time (s)", numbers=".2f"
    )
    places = Places(cells.xs, "“{}”".format, "with")
    finding = _costs(data, system)
    return drawn(canvas, data, cells, note, finding=finding, places=places)


def _costs(data: pd.DataFrame, system: str) -> str:
    """Return the sentence on the variants that take longer than the whole, costliest
    first, and on those without a difference; empty where none takes longer.

    Args:
        data: `group` (variant), `times` (its epoch over the whole's), `value`, `low`
            and `high`.
    """
    known = data.dropna(subset="times")
    whole = next(each(known[known.group == WHOLE]))
    parts = known[known.group != WHOLE]
    even = [row.group for row in each(parts) if alike(row, whole)]
    others = parts[~parts.group.isin(even)].sort_values("times", ascending=False)
    if not (others.times > 1).any():
        return ""
    longest = row_texts(others.head(1), "{times:.2g} times as long with “{group}”")
    rest = row_texts(others.iloc[1:], "{times:.2g} times with “{group}”", before=", ")
    quoted = [f"“{name}”" for name in even]
    same = f"; no difference with {in_words(quoted)}" if even else ""
    return f"{system}'s epoch takes {longest}{rest}{same}"
