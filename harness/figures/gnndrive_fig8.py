"""GNNDrive Fig. 8: epoch time over the feature dimension, a panel a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.figures import style
from harness.figures.base import (
    Drawing,
    Figure,
    Plain,
    add_caption,
    caption,
    left_out,
    only_systems,
    register,
    values,
)
from harness.figures.curves import draw_curves
from harness.figures.evidence import Evidence
from harness.figures.gnndrive_grid import (
    CPU,
    SYSTEMS,
    as_csv,
    cpu_points,
    cpu_variant,
    device_bytes,
    device_rows,
    grows,
    is_plain,
    largest_group,
    looks,
    narrow,
    over_dims,
    rows_of,
    run_ids,
    with_runs,
)
from harness.figures.panels import legend_above, many_panels
from harness.figures.query import Group, NotDrawn, Point

DIMS = [64, 128, 256, 512]
MODELS = ["sage", "gcn", "gat"]
TITLES = {"sage": "GraphSAGE", "gcn": "GCN", "gat": "GAT"}


def needs(profile: Plain) -> list[Plain]:
    """The systems on each dimension and model, the CPU variant with GraphSAGE.

    A model that the profile leaves out is run at its own dimension only, on both devices, which the paper compares.
    """
    short = narrow(profile)
    changed, runs = over_dims(short, values(profile, "dims", DIMS))
    models = values(profile, "models", MODELS)
    systems = only_systems(short, SYSTEMS)
    cpu = [
        cpu_variant({**short, "run": {**short["run"], **run}}, {"dataset": run["dataset"], "model": "sage"})
        for run in runs
    ]
    rest = [model for model in MODELS if model not in models]
    found = [
        {**changed, "systems": with_runs(systems, runs), "grid": {"model": models}},
        {**changed, "systems": cpu, "grid": {}},
    ]
    if rest:
        found.append({**changed, "systems": [*systems, cpu_variant(short)], "grid": {"model": rest}})
    return [{**experiment, "name": "gnndrive-fig8"} for experiment in found]


def dim_of(config: Mapping[str, Any]) -> int:
    """The feature dimension of a run."""
    return int(config["dataset"]["dim"])


def draw(evidence: Evidence) -> Drawing:
    """A line a system; log y."""
    panels: dict[str, list[Point]] = {}
    groups: list[Group] = []
    for model in MODELS:
        found = _group(evidence, model, want=2 if not groups and model == "sage" else 1)
        if found is not None:
            same = cpu_points(evidence.frame, found, axis=dim_of, ignore=["dataset"])
            groups.append(found)
            panels[model] = [*found.points, *same]
    if not any(len({point.x for point in points}) > 1 for points in panels.values()):
        raise NotDrawn("no comparable runs over at least 2 feature dimensions (run with --figures gnndrive-fig8)")
    return _panels(panels, groups)


def _group(evidence: Evidence, model: str, want: int) -> Group | None:
    try:
        return largest_group(
            evidence.frame,
            [device_rows, device_bytes],
            axis=dim_of,
            ignore=["dataset", "device_memory_bytes"],
            where=lambda config: (
                is_plain(config)
                and config["system"] in SYSTEMS
                and config["device"] != "cpu"
                and config["model"] == model
            ),
            want_axis=want,
        )
    except NotDrawn:
        return None


def _panels(panels: dict[str, list[Point]], groups: list[Group]) -> Drawing:
    import pandas as pd

    canvas, axes = many_panels(len(panels), wide=len(panels) > 1, height=2.4)
    rows: list[pd.DataFrame] = []
    for panel, (model, points) in zip(axes, panels.items(), strict=True):
        own = rows_of(points, model=model)
        draw_curves(
            own, title=TITLES[model], xlabel="feature dimension", ylabel="epoch time (s)" if not rows else "",
            xlog=True, ylog=True, looks=looks, axes=panel,
        )  # fmt: skip
        rows.append(own)
    legend_above(canvas, axes, [*style.ordered(SYSTEMS), CPU])
    everything = [point for points in panels.values() for point in points]
    drawn = sorted({int(point.x) for point in everything})
    parts = [
        grows(everything, "dimension"),
        "of the CPU variant, device memory is in the host budget" if _cpu(everything) else "",
        left_out(drawn, DIMS, "dimension"),
        left_out(list(panels), MODELS, "model"),
        "one dataset of the paper's four",
    ]
    text = caption(groups[0], everything, "; ".join(part for part in parts if part))
    add_caption(canvas, text)
    return Drawing(canvas, as_csv(pd.concat(rows, ignore_index=True)), text, run_ids(everything))


def _cpu(points: list[Point]) -> bool:
    return any(point.record.get("config", {}).get("device") == "cpu" for point in points)


register(
    Figure(
        "gnndrive-fig8", "gnndrive", "Epoch time over feature dimension", needs, draw,
        claims=("gd-01", "gd-02", "gd-05", "gd-06", "gd-14", "gd-15", "gd-16", "gd-17"),
        full="dimension 64, 128, 256, 512 with GraphSAGE, GCN, GAT on four datasets, GPU and CPU variant",
    )
)  # fmt: skip
