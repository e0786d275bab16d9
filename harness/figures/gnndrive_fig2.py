"""GNNDrive Fig. 2: sampling time with sampling alone and with all stages, over the feature dimension."""

from __future__ import annotations

from harness.figures import style
from harness.figures.base import (
    Drawing,
    Figure,
    Plain,
    add_caption,
    caption,
    left_out,
    only_systems,
    plain_log,
    register,
    values,
)
from harness.figures.evidence import Evidence
from harness.figures.gnndrive_grid import (
    SYSTEMS,
    device_bytes,
    device_rows,
    grows,
    is_plain,
    largest_group,
    narrow,
    over_dims,
    with_runs,
)
from harness.figures.query import Group, NotDrawn, stage_seconds

DIMS = [64, 128, 256, 512]
STAGES = {"sample": "only", "all": "all"}


def needs(profile: Plain) -> Plain:
    """The profile's capped systems, each dimension, with sampling only and with all stages."""
    short = narrow(profile)
    changed, runs = over_dims(short, values(profile, "dims", DIMS))
    systems = with_runs(only_systems(short, SYSTEMS), runs)
    return {**changed, "name": "gnndrive-fig2", "systems": systems, "grid": {"stages": list(STAGES)}}


def draw(evidence: Evidence) -> Drawing:
    """Two bars a system and dimension: sampling only (open), all stages (filled); log y."""
    group = largest_group(
        evidence.frame,
        [device_rows, device_bytes],
        axis=lambda config: f"{config['dataset']['dim']}/{STAGES[config['stages']]}",
        ignore=["dataset", "stages", "device_memory_bytes"],
        value=stage_seconds("sample"),
        where=lambda config: (
            config["stages"] in STAGES
            and is_plain({**config, "stages": "all"})
            and config["system"] in SYSTEMS
            and config["device"] != "cpu"
        ),
    )
    if len({str(point.x).split("/")[1] for point in group.points}) < len(STAGES):
        raise NotDrawn("no runs with sampling only beside runs with all stages (run with --figures gnndrive-fig2)")
    return _bars(group)


def _bars(group: Group) -> Drawing:
    import matplotlib.pyplot as plt

    dims = sorted({int(str(point.x).split("/")[0]) for point in group.points})
    systems = style.ordered(group.systems())
    canvas, axes = plt.subplots(figsize=(style.COLUMN_INCHES, 2.5))
    width = 0.8 / (2 * len(systems))
    cells = {(point.system, str(point.x)): point for point in group.points}
    for index, system in enumerate(systems):
        look = style.look(system)
        for half, kind in enumerate(STAGES.values()):
            shift = (2 * index + half - len(systems) + 0.5) * width
            for at, dim in enumerate(dims):
                point = cells.get((system, f"{dim}/{kind}"))
                label = f"{system}-{kind}" if at == 0 else None
                if point is None or point.value is None:
                    status = "not run" if point is None else point.status.upper()
                    axes.annotate(
                        status, (at + shift, 0.02), xycoords=("data", "axes fraction"), rotation=90,
                        fontsize=5.5, ha="center", va="bottom", color=look.color,
                    )  # fmt: skip
                    continue
                error = [[point.value - float(point.low or 0)], [float(point.high or 0) - point.value]]
                axes.bar(
                    at + shift, point.value, width, color="white" if kind == "only" else look.color, label=label,
                    edgecolor=look.color if kind == "only" else "black", hatch=look.hatch if kind == "only" else "",
                    linewidth=0.6, yerr=error, error_kw={"elinewidth": 0.7, "capsize": 1.5},
                )  # fmt: skip
    axes.set_yscale("log")
    plain_log(axes.yaxis)
    # The least bar has a height, too.
    axes.set_ylim(bottom=min((point.value for point in group.points if point.value), default=1.0) / 2)
    axes.set_xticks(range(len(dims)), [str(dim) for dim in dims])
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("feature dimension")
    axes.set_ylabel("sampling time per epoch (s)")
    axes.set_title("Sampling alone (-only) and with all stages (-all)", loc="left")
    axes.legend(ncols=len(systems), loc="lower left", bbox_to_anchor=(0.0, 1.1), borderaxespad=0.0, handlelength=1.4)
    notes = [grows(group.points, "dimension"), left_out(dims, DIMS, "dimension")]
    text = caption(group, extra="; ".join(note for note in notes if note))
    add_caption(canvas, text, bottom=-0.04)
    return Drawing(canvas, group.frame(), text, group.runs())


register(
    Figure(
        "gnndrive-fig2", "gnndrive", "Sampling time, alone and with all stages", needs, draw,
        claims=("gd-07", "gd-08", "gd-09", "gd-10", "gd-11"), full="dimension 64, 128, 256, 512, GPU and CPU variant",
    )
)  # fmt: skip
