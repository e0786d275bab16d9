"""outcore-ablation: epoch time of `outcore` whole, and with each of its parts switched off alone."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import NotDrawn, Point
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, gallery, register
from harness.figures.draw.bars import draw_bars

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


def draw(evidence: Evidence) -> Drawing:
    """Draw one bar per variant, beside the whole.

    Raises:
        NotDrawn: the whole was not measured, or no variant was run.
    """
    group = evidence.points(variants, least=1)
    found = {str(point.x): point for point in group.points}
    whole = found.get(WHOLE)
    if whole is None or whole.value is None or len(found) < 2:
        raise NotDrawn("outcore was not measured whole and with a part switched off, in one setting (outcore-ablation)")
    rows = pd.DataFrame([_row(name, found.get(name), float(whole.value)) for name in VARIANTS])
    canvas, _ = draw_bars(rows, title="What each part is worth", ylabel="epoch time (s)", log=True, numbers=".2f")
    said = ", ".join(
        f"{row['group']} {row['times']:.2f}x"
        for row in rows.to_dict("records")
        if row["group"] != WHOLE and pd.notna(row["times"])
    )
    text = caption(group, None, f"epoch time over the whole's: {said}; replayed: not faithful, nothing is prepared")
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, group.runs())


def _row(name: str, point: Point | None, whole: float) -> Plain:
    if point is None:
        return {"group": name, "series": _SYSTEM, "value": None, "status": "not run", "times": None, "misses": None}
    measured = [epoch for epoch in point.record["epochs"] if not epoch["warmup"]]
    value = None if point.value is None else float(point.value)
    return {
        "group": name,
        "series": _SYSTEM,
        "value": value,
        "low": point.low,
        "high": point.high,
        "status": point.status,
        "times": None if value is None else value / whole,
        "misses": measured[-1]["counters"].get("misses") if measured else None,
        "run": point.record["run_id"],
    }


register(Figure("outcore-ablation", variants, draw))
