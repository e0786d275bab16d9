"""PaGraph Table 4: bytes that an epoch loads from host memory to the device, with the cache and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan
from harness.compare.points import NotDrawn, Point
from harness.figures.base import Figure, Plain, Sheet, caption, published, register
from harness.figures.draw.sheets import Formatter, sheet
from harness.figures.pagraph.grid import NAMES, by_model

SYSTEMS = ["dgl", "pagraph"]
GB = 10**9


def gigabytes(value: float) -> str:
    """Return bytes as text in decimal gigabytes, as in the papers' tables."""
    return f"{value / GB:.3g} GB"


def planned(profile: Plain) -> Plan:
    """Plan the GCN runs of DGL and PaGraph in Fig. 11."""
    return by_model(profile, SYSTEMS, "gcn")


def loaded(epoch: Mapping[str, Any]) -> float | None:
    """Return the bytes that an epoch copied to the device, None if not counted."""
    value = epoch["counters"].get("bytes_loaded")
    return None if value is None else float(value)


def cached_share(point: Point) -> float | None:
    """Return the per cent of rows in the device cache, from the run's facts."""
    facts = point.record["facts"]
    return None if facts.get("cached_rows") is None else 100.0 * facts["cached_rows"] / facts["table_rows"]


def draw(evidence: Evidence) -> Sheet:
    """Return one measured row, then the paper's; raise NotDrawn without loaded bytes of DGL and PaGraph."""
    group = evidence.points(planned, loaded, least=1)
    found = {point.system: point for point in group.points if point.x == "gcn" and point.value is not None}
    missing = [name for name in SYSTEMS if name not in found]
    if missing:
        raise NotDrawn(f"no run of {', '.join(missing)} with the paper's workload that counted what it loaded")
    dgl, pagraph = (float(found[name].value or 0.0) for name in SYSTEMS)
    record = found["dgl"].record
    rows: list[dict[str, Any]] = [
        {
            "dataset": record["config"]["dataset"]["name"],
            "dgl": dgl,
            "pagraph": pagraph,
            "saved (%)": 100.0 * (1.0 - pagraph / dgl) if dgl else None,
            "cached (%)": cached_share(found["pagraph"]),
            "source": "measured",
        }
    ]
    table = published("pagraph-tab4")
    for name in dict.fromkeys(table["series"]):
        own = {str(row["x"]): float(row["value"]) for row in table[table["series"] == name].to_dict("records")}
        rows.append(
            {
                "dataset": name,
                "dgl": GB * own["dgl"],
                "pagraph": GB * own["pagraph"],
                "saved (%)": own["saved"],
                "cached (%)": own["cached"],
                "source": "paper",
            }
        )
    columns: dict[str, Formatter] = {
        "dataset": "",
        "dgl": gigabytes,
        "pagraph": gigabytes,
        "saved (%)": ".1f",
        "cached (%)": ".0f",
        "source": "",
    }
    batches = next(epoch["batches"] for epoch in record["epochs"] if not epoch["warmup"])
    extra = (
        f"{NAMES['gcn']}; feature bytes copied to the device in an epoch of {batches} mini-batches (paper: a whole one)"
    )
    text = caption(group, list(found.values()), extra)
    return sheet(pd.DataFrame(rows), columns, text, runs=[point.record["run_id"] for point in found.values()])


register(Figure("pagraph-tab4", planned, draw))
