"""outcore-ablation and agnes-ablation: what each part of a system is worth, one bar for each part left out."""

from __future__ import annotations

import pandas as pd

from harness.compare.cells import Cells, with_absent
from harness.compare.plan import Plain, Plan, grid
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_cells
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import row_texts
from harness.figures.grids import gallery
from harness.results.table import measured_epochs

WHOLE = "whole"
#: Least factor on the epoch that the title reports.
LEAST_TIMES = 1.05
#: The part that each bar leaves out, and the options that switch it off; none is at its default.
OUTCORE: dict[str, Plain] = {
    WHOLE: {},
    "sampled online": {"external_sampling": "off"},
    "own passes": {"shared_passes": False},
    "no Belady": {"belady": False},
    "single reads": {"packing": "off"},
    "no look-ahead": {"look_ahead": False},
    "replayed": {"replay": True},
}
AGNES: dict[str, Plain] = {
    WHOLE: {},
    "no hyperbatch": {"hyperbatch": 1},
    "hyperbatch of 4": {"hyperbatch": 4},
    "average only": {"tiers": "average"},
    "no tiers": {"tiers": "off"},
    "no look-ahead": {"look_ahead": False},
}


def without_parts_of_outcore(profile: Plain) -> Plan:
    """Plan outcore whole and without one of its parts each."""
    return grid(gallery(profile), ["outcore"], {name: {"options": own} for name, own in OUTCORE.items()})


def without_parts_of_agnes(profile: Plain) -> Plan:
    """Plan agnes whole and without one of its parts each."""
    # Without hyperbatches each mini-batch reads most of the table.
    slow = {"timeout": "900s"}
    return grid(gallery(profile), ["agnes"], {name: {"options": own, **slow} for name, own in AGNES.items()})


@figure_of_cells("outcore-ablation", without_parts_of_outcore, least=1)
def outcore(cells: Cells) -> Drawing:
    """Draw the epoch time of outcore without one of its parts each."""
    return _ablation(cells, "outcore", list(OUTCORE), "replayed: not faithful, nothing is prepared")


@figure_of_cells("agnes-ablation", without_parts_of_agnes, least=1)
def agnes(cells: Cells) -> Drawing:
    """Draw the epoch time of agnes without one of its parts each."""
    alone = "no hyperbatch: each mini-batch reads blocks for itself"
    average = "average only: rows below the average go to files"
    return _ablation(cells, "agnes", list(AGNES), f"{alone}; {average}")


def _ablation(cells: Cells, system: str, variants: list[str], note: str) -> Drawing:
    found = with_absent(cells.medians(), [system], variants)
    whole = found["value"].iloc[0]
    if pd.isna(whole) or len(cells.xs) < 2:
        where = f"{system}-ablation"
        raise NotDrawn(f"{system} was not measured whole and with a part switched off, in one setting ({where})")
    data = found[["x", "system", "value", "low", "high", "status"]].rename(columns={"x": "group", "system": "series"})
    data["times"] = data["value"] / whole
    data["misses"] = [_misses(record) for record in found["record"]]
    data["run"] = found["run"]
    canvas, _ = draw_bars(data, title="What each part is worth", ylabel="epoch time (s)", numbers=".2f")
    parts = data[(data["group"] != WHOLE) & data["times"].notna()].astype({"times": float})
    factors = [f"{part} {times:.2f}x" for part, times in zip(parts["group"], parts["times"], strict=True)]
    times = f"epoch time over the whole's: {', '.join(factors)}"
    return drawn(canvas, data, cells, times, note, finding=_costliest(system, parts))


def _costliest(system: str, parts: pd.DataFrame) -> str:
    """Return the sentence on the part whose absence slows a system most; empty where none does."""
    costly = parts[parts["times"] >= LEAST_TIMES].nlargest(1, "times")
    return row_texts(costly, f"{system} loses most with “{{group}}”: {{times:.2g}} times the epoch")


def _misses(record: Plain | float) -> int | None:
    """Return the misses of a run's last epoch; None where the cell has no run or no epoch."""
    epochs = measured_epochs(record) if isinstance(record, dict) else []
    return epochs[-1]["counters"].get("misses") if epochs else None
