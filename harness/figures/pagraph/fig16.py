"""PaGraph Fig. 16: throughput on two devices over that of DGL, by optimisation."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, register
from harness.figures.draw.bars import draw_bars
from harness.figures.pagraph.devices import NOTE, on_devices, point_rate
from harness.figures.pagraph.grid import FAMILY, HIDDEN, NAMES


def planned(profile: Plain) -> Plan:
    """Plan every system on one and two devices; those without multi-device training are recorded as unsupported."""
    return on_devices(profile, list(HIDDEN), FAMILY, [1, 2])


def draw(evidence: Evidence) -> Drawing:
    """Draw bars for one and two devices over DGL on one; raise NotDrawn without DGL on one or any run on two."""
    group = evidence.points(planned)
    rows = []
    for model in HIDDEN:
        found = {(p.system, str(p.x)): p for p in group.points if str(p.x) in (f"{model} 1", f"{model} 2")}
        base = found.get(("dgl", f"{model} 1"))
        rate = point_rate(base) if base is not None else None
        if rate is None:
            continue
        for (system, x), point in sorted(found.items(), key=lambda entry: (FAMILY.index(entry[0][0]), entry[0][1])):
            own = point_rate(point)
            count = x.rpartition(" ")[2]
            rows.append(
                {
                    "group": f"{NAMES[model]}\n{count} device{'s' if count != '1' else ''}",
                    "series": system,
                    "value": own[0] / rate[0] if own else None,
                    "status": point.status,
                    "model": model,
                    "devices": int(count),
                    "thousand_seeds_per_s": own[0] if own else None,
                    "run": point.record["run_id"],
                }
            )
    data = pd.DataFrame(rows)
    if data.empty or not (data["devices"] == 2).any():
        raise NotDrawn("no run of dgl on one device and of any system on two (pagraph-fig16)")
    data = data.sort_values(["model", "devices"], kind="stable").reset_index(drop=True)
    canvas, _ = draw_bars(data, title="Speed-up over DGL on one device", ylabel="throughput over dgl's", numbers=".1f")
    extra = f"{NOTE}; n/a: trains in one process, so the paper's base, DGL on two devices, is DGL on one here"
    text = caption(group, [point for point in group.points if point.value is not None], extra)
    add_caption(canvas, text)
    return Drawing(canvas, data, text, group.runs())


register(Figure("pagraph-fig16", planned, draw))
