"""PaGraph Fig. 14: epoch time over the cached share, by what fills the cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, left_out, register, unlabelled, values
from harness.figures.curves import draw_curves
from harness.figures.evidence import Evidence
from harness.figures.pagraph_grid import NEIGHBOURS, device_bytes, setting
from harness.figures.query import group_runs

RANKINGS = {"out-degree": "PaGraph", "aligraph": "AliGraph", "random": "random"}
SHARES = [0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0]
# A cache of all rows, its reserve and the buffers beside it.
DEVICE_SHARE = 1.25


def needs(profile: Plain) -> Plain:
    """pagraph with each ranking at each cached share, on a device that could hold all rows."""
    shares = [f"{share:g}x" for share in values(profile, "cached_shares", SHARES)]
    grid = {"options.ranking": list(RANKINGS), "options.cache": shares}
    base = setting(profile, device_memory=device_bytes(profile, DEVICE_SHARE))
    return {**base, "name": "pagraph-fig14", "systems": [{"name": "pagraph", "grid": grid}], "grid": {}}


def _axis(config: Mapping[str, Any]) -> str:
    return f"{config['options']['ranking']} {config['options']['cache']}"


def draw(evidence: Evidence) -> Drawing:
    """A curve for each ranking."""
    group = group_runs(
        evidence.frame,
        axis=_axis,
        ignore=[],
        where=lambda config: (
            unlabelled(config)
            and config["system"] == "pagraph"
            and config["memory"] == "none"
            and config["fanout"] == [NEIGHBOURS] * 2
            and config["sampler"] == "neighbor"
            and config["ranks"] == 1
            and config["options"].get("ranking") in RANKINGS
            and str(config["options"].get("cache")).endswith("x")
            and config["options"].get("pipeline", True)
        ),
    )
    rows = []
    for point in group.points:
        ranking, _, cache = str(point.x).partition(" ")
        rows.append(
            {
                "series": RANKINGS[ranking], "x": 100.0 * float(cache[:-1]), "y": point.value, "low": point.low,
                "high": point.high, "status": point.status, "run": point.record["run_id"],
            }
        )  # fmt: skip
    order = list(RANKINGS.values())
    data = pd.DataFrame(rows).sort_values(["series", "x"], key=_places(order)).reset_index(drop=True)
    canvas, _ = draw_curves(data, title="Epoch time over cached share", xlabel="cached rows (%)", ylabel="epoch (s)")
    shares = sorted({x / 100.0 for x in data["x"]})
    text = caption(group, None, left_out(shares, SHARES, "cached shares"))
    add_caption(canvas, text)
    return Drawing(canvas, data, text, group.runs())


def _places(order: list[str]) -> Any:
    return lambda column: (
        column.map({name: index for index, name in enumerate(order)}) if column.name == "series" else column
    )


register(
    Figure(
        "pagraph-fig14", "pagraph", "Epoch time over cached share by caching policy", needs, draw,
        full="livejournal, 10 to 100 %, PaGraph and AliGraph",
    )
)  # fmt: skip
