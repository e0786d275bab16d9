"""PaGraph Fig. 20: layer-wise sampling: epoch time, parts of an epoch, throughput over devices."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, register
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.draw.stacks import draw_stacks
from harness.figures.pagraph.devices import NOTE as DEVICES_NOTE
from harness.figures.pagraph.devices import on_devices, rate_rows
from harness.figures.pagraph.fig11 import draw_speedups, with_ranges
from harness.figures.pagraph.grid import FAMILY, NAMES, by_model, layerwise, speedup_rows
from harness.figures.pagraph.parts import NOTE, PARTS, part_rows


def layered(profile: Plain) -> Plan:
    """Plan Fig. 11's runs with layer-wise sampling."""
    return by_model(profile, FAMILY, **layerwise())


def devices(profile: Plain) -> Plan:
    """Plan Fig. 15's GCN runs with layer-wise sampling."""
    return on_devices(profile, ["gcn"], ["pagraph"], **layerwise())


def on_several(profile: Plain) -> list[Plain]:
    """Return the experiment of `devices`."""
    return [devices(profile).experiment("pagraph-fig20-devices")]


def draw(evidence: Evidence) -> Drawing:
    """Draw speed-ups over DGL, GCN's epoch by part, throughput over devices; raise NotDrawn with no speed-up."""
    group = evidence.points(layered, least=1)
    speedups = with_ranges(speedup_rows(group), "pagraph-fig20")
    if speedups["speedup"].notna().sum() < 2:
        raise NotDrawn("no measured runs of dgl and another system with layer-wise sampling (pagraph-fig20)")
    found = {point.system: point for point in group.points if point.x == "gcn"}
    points = [found[name] for name in FAMILY if name in found]
    parts = part_rows(points, "gcn")
    canvas, panels = many_panels(3)
    draw_speedups(panels[0], speedups)
    panels[0].set_title("(a) Speed-up over DGL", loc="left")
    draw_stacks(parts, title="(b) GCN epoch by part", ylabel="epoch (s)", parts=PARTS, axes=panels[1])
    runs = group.runs()
    try:
        several = evidence.points(devices)
        rates = rate_rows(several, NAMES)
        if rates.loc[rates["y"].notna(), "x"].nunique() < 2:
            raise NotDrawn("one device only")
    except NotDrawn:
        rates = pd.DataFrame()
        panels[2].text(0.5, 0.5, "several devices: not run", transform=panels[2].transAxes, ha="center", fontsize=6)
    else:
        draw_curves(rates, title="(c) Throughput", xlabel="devices", ylabel="thousand seed nodes / s", axes=panels[2])
        counts = sorted(set(rates["x"]))
        panels[2].set_xticks(counts, [str(count) for count in counts])
        panels[2].set_ylim(bottom=0)
        runs = list(dict.fromkeys([*runs, *several.runs()]))
    legend_above(canvas, panels, [*FAMILY, *PARTS])
    text = caption(group, None, f"(b): {NOTE}; (c): {DEVICES_NOTE}")
    add_caption(canvas, text)
    data = pd.concat([speedups.assign(panel="a"), parts.assign(panel="b"), rates.assign(panel="c")], ignore_index=True)
    return Drawing(canvas, data, text, runs)


register(Figure("pagraph-fig20", layered, draw, beside=on_several))
