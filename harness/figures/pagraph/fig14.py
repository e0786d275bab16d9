"""PaGraph Fig. 14: epoch time over the cached share, by ranking of the rows."""

from __future__ import annotations

from typing import Any

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, left_out, register, values
from harness.figures.draw.curves import draw_curves
from harness.figures.pagraph.grid import device_bytes, setting

RANKINGS = {"out-degree": "PaGraph", "aligraph": "AliGraph", "random": "random"}
SHARES = [0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0]
# Space for a cache of all rows, its reserve and the buffers beside it.
DEVICE_SHARE = 1.25


def over_shares(profile: Plain) -> Plan:
    """Plan pagraph with each ranking at each cached share, on a device that can hold all rows."""
    rankings = [
        {"name": "pagraph", "series": label, "options": {"ranking": ranking}} for ranking, label in RANKINGS.items()
    ]
    shares = {
        100.0 * share: {"options": {"cache": f"{share:g}x"}} for share in values(profile, "cached_shares", SHARES)
    }
    return grid(setting(profile, device_memory=device_bytes(profile, DEVICE_SHARE)), rankings, shares)


def draw(evidence: Evidence) -> Drawing:
    """Draw a curve for each ranking."""
    group = evidence.points(over_shares)
    rows = group.frame().rename(columns={"system": "series", "value": "y"})
    order = list(RANKINGS.values())
    data = rows.sort_values(["series", "x"], key=_places(order)).reset_index(drop=True)
    canvas, _ = draw_curves(data, title="Epoch time over cached share", xlabel="cached rows (%)", ylabel="epoch (s)")
    shares = sorted({x / 100.0 for x in data["x"]})
    text = caption(group, None, left_out(shares, SHARES, "cached shares"))
    add_caption(canvas, text)
    return Drawing(canvas, data, text, group.runs())


def _places(order: list[str]) -> Any:
    return lambda column: (
        column.map({name: index for index, name in enumerate(order)}) if column.name == "series" else column
    )


register(Figure("pagraph-fig14", over_shares, draw))
