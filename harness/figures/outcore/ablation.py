"""outcore-ablation: epoch time of `outcore` whole, and with each of its parts switched off alone."""

from __future__ import annotations

import pandas as pd

from harness.compare.plan import Plain, Plan, grid
from harness.compare.points import Group, NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_runs, point_cells
from harness.figures.draw.bars import draw_bars
from harness.figures.grids import gallery

WHOLE = "whole"
#: The part that each bar leaves out, and the options that switch it off; none is at its default.
VARIANTS: dict[str, Plain] = {
    WHOLE: {},
    "sampled online": {"external_sampling": "off"},
    "own passes": {"shared_passes": False},
    "no Belady": {"belady": False},
    "single reads": {"packing": "off"},
    "no look-ahead": {"look_ahead": False},
    "replayed": {"replay": True},
}
_SYSTEM = "outcore"


def variants(profile: Plain) -> Plan:
    """Plan `outcore` with each set of options in the profile's setting."""
    return grid(gallery(profile), [_SYSTEM], {name: {"options": options} for name, options in VARIANTS.items()})


@figure_of_runs("outcore-ablation", variants, least=1)
def ablation(group: Group) -> Drawing:
    """Draw one bar per variant, beside the whole.

    Raises:
        NotDrawn: the whole was not measured, or no variant was run.
    """
    found = {str(point.x): point for point in group.points}
    whole = found.get(WHOLE)
    if whole is None or whole.value is None or len(found) < 2:
        raise NotDrawn("outcore was not measured whole and with a part switched off, in one setting (outcore-ablation)")
    rows = []
    for name in VARIANTS:
        point = found.get(name)
        measured = [epoch for epoch in point.record["epochs"] if not epoch["warmup"]] if point else []
        row: Plain = {"group": name, "series": _SYSTEM, **point_cells(point)}
        row["times"] = None if row["value"] is None else row["value"] / whole.value
        row["misses"] = measured[-1]["counters"].get("misses") if measured else None
        rows.append({**row, "run": point.record["run_id"]} if point else row)
    data = pd.DataFrame(rows)
    canvas, _ = draw_bars(data, title="What each part is worth", ylabel="epoch time (s)", log=True, numbers=".2f")
    others = data[(data["group"] != WHOLE) & data["times"].notna()].to_dict("records")
    said = ", ".join(f"{row['group']} {row['times']:.2f}x" for row in others)
    replayed = "replayed: not faithful, nothing is prepared"
    return drawn(canvas, data, group, f"epoch time over the whole's: {said}", replayed)
