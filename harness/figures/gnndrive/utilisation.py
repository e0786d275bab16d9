"""GNNDrive's utilisation of CPU, GPU and disk over time: the baselines (Figure 3) and
gnndrive's variants (11)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from harness.compare.cells import Cells
from harness.compare.plan import Plan, first_setting, grid
from harness.compare.verdicts import NotDrawn
from harness.figures.absent import not_run
from harness.figures.base import Drawing, drawn, figure_of_cells
from harness.figures.draw.captions import row_texts
from harness.figures.draw.panels import many_panels
from harness.figures.draw.style import SERIES
from harness.figures.gnndrive.grid import MARIUS, cpu_note, on_both
from harness.figures.grids import capped, gallery
from harness.results import store as results
from harness.results.table import each
from workloads.arraytypes import JsonDict

BASELINES = ["pyg+", "ginex", MARIUS]
# Seconds of the rolling mean: fewer make no readable line.
SMOOTH_S = 0.5
#: Columns of the telemetry -> label, colour and line.
LINES = {
    "cpu_percent": ("CPU", SERIES[0].color, "-"),
    "gpu_percent": ("GPU", SERIES[1].color, "--"),
    "iowait_percent": ("I/O wait", "black", ":"),
}


def variants(profile: JsonDict) -> Plan:
    """Plan gnndrive as in the profile, and on the CPU with the device memory added to
    the host budget."""
    first = first_setting(profile)
    return grid(first, on_both(first), {"": {}})


@figure_of_cells(
    "gnndrive-fig3",
    lambda profile: capped(gallery(profile), BASELINES),
    otherwise=lambda profile: capped(profile, BASELINES),
    least=1,
)
def fig3(cells: Cells) -> Drawing:
    """Draw the utilisation of the baselines, from the headline's runs where the
    gallery's were not made."""
    return _timelines(cells, *not_run(cells.medians(), BASELINES))


@figure_of_cells(
    "gnndrive-fig11",
    lambda profile: variants(gallery(profile)),
    otherwise=variants,
    least=1,
)
def fig11(cells: Cells) -> Drawing:
    """Draw the utilisation of the GPU variant above that of the CPU variant, as far as
    measured."""
    return _timelines(cells, cpu_note(cells))


def _timelines(cells: Cells, *notes: str) -> Drawing:
    """Draw CPU, GPU and I/O wait over time, a panel for each run with telemetry of an
    epoch; raise NotDrawn without."""
    runs = cells.measured()
    every = pd.concat([_telemetry(run) for run in each(runs)], ignore_index=True)
    data = every.dropna(axis="columns", how="all")
    if data.empty:
        raise NotDrawn("the runs have no telemetry of an epoch")
    shown = runs[runs.run.isin(data.run)]
    height = 1.35 + 0.5 / len(shown)
    canvas, panels = many_panels(
        len(shown), columns=1, wide=False, height=height, sharey=True
    )
    for axes, run in zip(panels, each(shown), strict=True):
        _draw_epochs(axes, run.record["epochs"])
        _draw_lines(axes, data[data.run == run.run])
        axes.set_title(run.system, loc="left")
    panels[-1].set_xlabel("time since the first epoch began (s)")
    how = f"warm-up epoch hatched, {SMOOTH_S:g} s rolling mean"
    waits = (
        data.reindex(columns=["system", "iowait_percent"])
        .groupby("system", sort=False)
        .mean()
        .dropna()
    )
    before = "Processor time spent waiting for I/O: "
    finding = row_texts(
        waits.reset_index(), "{system} {iowait_percent:.0f} %", before=before
    )
    return drawn(
        canvas, data, cells, how, *notes, runs=list(shown.run), finding=finding
    )


def _telemetry(run: Any) -> pd.DataFrame:
    """Return the telemetry of a run's epochs by time."""
    telemetry = results.table(Path(run.path), "telemetry")
    inside = telemetry[telemetry.epoch >= 0].sort_values("t")
    shown = inside.reindex(columns=["t", "epoch", *LINES])
    return shown.assign(system=run.system, run=run.run)


def _draw_epochs(axes: Any, epochs: list[JsonDict]) -> None:
    """Draw the end of each epoch, and hatch the warm-up."""
    for epoch in epochs:
        start = epoch["start_s"]
        end = start + epoch["seconds"]
        if epoch["warmup"]:
            axes.axvspan(
                start,
                end,
                facecolor="none",
                edgecolor="#cccccc",
                hatch="///",
                linewidth=0.0,
            )
        axes.axvline(end, color="#888888", linewidth=0.5)


def _draw_lines(axes: Any, telemetry: pd.DataFrame) -> None:
    """Draw a rolling mean of each measure over time."""
    times = pd.to_timedelta(telemetry.t, unit="s")
    by_time = telemetry.set_index(times)
    for column, (label, color, line) in LINES.items():
        if column in by_time:
            smooth = by_time[column].rolling(f"{SMOOTH_S}s", center=True).mean()
            axes.plot(
                telemetry.t,
                smooth,
                color=color,
                linestyle=line,
                label=label,
                linewidth=1.1,
            )
    axes.set_xlim(telemetry.t.min(), telemetry.t.max())
    axes.set_ylim(0, 102)
    axes.set_ylabel("share (%)")
