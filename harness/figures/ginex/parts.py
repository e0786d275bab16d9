"""Ginex's epochs by part: Figures 6 (sampling and gathering), 14 (three systems) and 15
(the feature cache alone)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from harness.compare.cells import Cells, with_absent
from harness.compare.plan import Plan
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_cells, paper_frame
from harness.figures.draw.bars import draw_bars, draw_stacks
from harness.figures.draw.breakdown import run_table, seconds_by_part
from harness.figures.draw.captions import left_out, row_texts
from harness.figures.draw.panels import many_panels, mark_paper
from harness.figures.draw.words import in_words
from harness.figures.findings import plain, span
from harness.figures.grids import gallery, in_gallery
from harness.figures.over_axis import Places, over_base
from harness.results.table import each, measured_epochs, medians
from workloads.arraytypes import JsonDict

#: The paper's comparison (Section 5.1), baseline first.
SYSTEMS = ["pyg+", "ali+pg", "ginex"]
BASE = "pyg+"
MODELS = {"sage": {"model": "sage"}, "gcn": {"model": "gcn"}}
#: Parts of an epoch by their stages, from the bottom of a bar up: the device's work,
#: and its reasons to wait.
DEVICE = {"compute": ["train", "lane:compute"], "transfer": ["transfer", "lane:copy"]}
WAITING = {
    "cache update": ["cache_update"],
    "switch": ["switch"],
    "inspect": ["inspect"],
}
#: All other moments.
REST = "data preparation"
STAGES = {**DEVICE, **WAITING, REST: []}
PARTS = list(STAGES)
NOTE = (
    "where parts overlap, the first of compute, transfer, cache update, switch and "
    "inspect counts; data preparation is the rest"
)
COLUMNS = (
    "model system bar part seconds value status epoch_s low high speedup run".split()
)
# Fewest mini-batches gathered alone for a median of Fig. 6.
LEAST = 3


def alone_and_together(profile: JsonDict) -> Plan:
    """Plan pyg+ with sampling only, with sampling and gathering, and with sampling free
    to run ahead to its end."""
    batches = int(gallery(profile)["run"].get("max_batches", 0)) or 128
    # Two samplers may then hold the whole epoch, if it is not long.
    ahead = min(64, (batches + 1) // 2)
    both: JsonDict = {"stages": "sample+extract"}
    # Where sampling is the slower, only the last mini-batch of an epoch is gathered
    # alone.
    free = {**both, "options": {"prefetch": ahead}, "epochs": 6}
    over = {
        "sample alone": {"stages": "sample"},
        "both in a pipeline": both,
        "gather alone": free,
    }
    return in_gallery(profile, [BASE], over)


def gather_alone(stages: pd.DataFrame, record: JsonDict) -> list[float]:
    """Return seconds of each gathering that began after the last sampling of its epoch
    had ended, without warm-up.

    Args:
        stages: spans of the run, with columns `epoch`, `stage`, `start` and `end` (s).
    """
    measured = [epoch["epoch"] for epoch in measured_epochs(record)]
    spans = stages[stages.epoch.isin(measured)]
    sampled = spans[spans.stage == "sample"].groupby("epoch").end.max()
    gathered = spans[spans.stage == "extract"]
    alone = gathered[gathered.start >= gathered.epoch.map(sampled)]
    return list(alone.end - alone.start)


@figure_of_cells("ginex-fig6", alone_and_together, least=3)
def fig6(cells: Cells) -> Drawing:
    """Draw seconds of an iteration of sampling alone, gathering alone, both; raise
    NotDrawn where one is missing."""
    table = cells.medians()
    if table.value.isna().any():
        raise NotDrawn(
            f"{BASE} did not finish one of its three runs (see their records)"
        )
    *_, ahead = each(table)
    alone = gather_alone(run_table(ahead, "stages"), ahead.record)
    if len(alone) < LEAST:
        raise NotDrawn(
            "sampling never ran far enough ahead for mini-batches to be gathered alone"
        )

    epochs = cells.epochs
    iterations = epochs.assign(iteration_s=epochs.seconds / epochs.batches)
    times = medians(iterations, "iteration_s", ["x"]).set_index("x")
    times.loc["gather alone", ["low", "value", "high"]] = np.percentile(
        alone, [2.5, 50, 97.5]
    )
    times.loc["gather alone", "samples"] = len(alone)
    times["run"] = table.set_index("x").run
    rows = times.loc[["sample alone", "gather alone", "both in a pipeline"]]
    rows = rows.rename_axis("what").reset_index().drop(columns="interval")

    bars = rows.assign(group=rows.what, series=BASE)
    canvas, _ = draw_bars(
        bars, title="Alone and together", ylabel="time an iteration (s)", numbers=".2g"
    )
    note = (
        f"gather alone: {len(alone)} mini-batches after the last sampling of an epoch, "
        "95 % of them within the bar; nothing is trained"
    )
    data = rows.assign(unit="s an iteration")
    return drawn(canvas, data, cells, note, finding=_at_once(times))


def _at_once(times: pd.DataFrame) -> str:
    """Return the sentence on sampling and gathering at once beside one after the other.

    Args:
        times: seconds of an iteration by what it does: `value`, `low`, `high`.
    """
    ends = times[["low", "value", "high"]].astype(float)
    after: Any = ends.loc["sample alone"] + ends.loc["gather alone"]
    both: Any = ends.loc["both in a pipeline"]
    seconds = f"{both.value:.2g} and {after.value:.2g} s an iteration"
    if both.low <= after.high and after.low <= both.high:
        return (
            "Sampling and gathering at once take as long as one after the other, "
            f"within the intervals: {seconds}"
        )
    times_as_long = plain(both.value / after.value)
    return (
        f"Sampling and gathering at once take {times_as_long} times as long as one "
        f"after the other: {seconds}"
    )


def breakdowns(cells: Cells, systems: list[str]) -> pd.DataFrame:
    """Return a row per model, system and part: seconds, and their ratio to the first
    system's epoch of that model.

    A model without that epoch has no rows.

    Raises:
        NotDrawn: no model has that epoch.
    """
    table = with_absent(cells.medians(), systems, list(MODELS))
    base = table[table.system == systems[0]].set_index("x").value
    compared = table.assign(base_s=table.x.map(base)).dropna(subset="base_s")
    if compared.empty:
        raise NotDrawn(f"no measured epoch of {systems[0]} to compare with")
    parts = seconds_by_part(compared, STAGES)
    epochs = compared.rename(columns={"value": "epoch_s"})
    rows = epochs.merge(parts, on=["system", "x", "run"], how="left").rename(
        columns={"x": "model"}
    )
    rows["bar"] = rows.system + "\n" + rows.model
    rows["speedup"] = rows.base_s / rows.epoch_s
    total_s = rows.groupby("bar").seconds.transform("sum")
    rows["value"] = rows.seconds * (rows.epoch_s / total_s / rows.base_s)
    return rows[COLUMNS]


@figure_of_cells(
    "ginex-fig14", lambda profile: in_gallery(profile, SYSTEMS, MODELS), least=1
)
def fig14(cells: Cells) -> Drawing:
    """Draw a stacked bar for each system and model, and the paper's range of speedups
    beside ginex."""
    rows = breakdowns(cells, SYSTEMS)
    paper = 1 / paper_frame("ginex-fig14").reindex(columns=["most", "least"])
    names = rows.model + " " + rows.system + " over pyg+"
    rows[["paper_low", "paper_high"]] = paper.reindex(names).to_numpy()

    title = "Epoch time by what the device did"
    canvas, axes = draw_stacks(
        rows, parts=PARTS, title=title, ylabel="epoch time over pyg+'s"
    )
    bars = rows.drop_duplicates("bar").reset_index()
    known = bars.dropna(subset="paper_low")
    for ends in (known.paper_low, known.paper_high):
        mark_paper(axes, known.index + 0.42, ends, "paper (least and most)")
    fanout = "gcn takes the same fan-out as sage (the paper's has two layers)"
    reduced = left_out(list(rows.model), list(MODELS), "model")
    medians = cells.medians()
    places = Places(cells.xs, word="with")
    faster = over_base(medians, SYSTEMS[:0:-1], BASE, places)
    finding = "; ".join(filter(None, [_waits(rows), faster]))
    notes = [NOTE, fanout, reduced]
    return drawn(canvas, rows, cells, *notes, order=PARTS, finding=finding)


def _waits(rows: pd.DataFrame) -> str:
    """Return the sentence on the share of each system's epoch in which the device has
    nothing to do but wait for data; empty without an epoch."""
    seconds = rows.dropna(subset="seconds")
    epoch_s = seconds.groupby("bar").seconds.transform("sum")
    shares = seconds.assign(percent=100 * seconds.seconds / epoch_s)
    waiting = shares[shares.part == REST].groupby("system", sort=False).percent
    texts = waiting.agg(span).reset_index()
    if texts.empty:
        return ""
    parts = [row_texts(texts.head(1), "{percent} % of {system}'s epoch")]
    parts += [f"{row.percent} % of {row.system}'s" for row in each(texts.iloc[1:])]
    return f"The device waits for data in {in_words(parts)}"


#: Columns of Figure 15 and their labels.
MISSES = {"miss_percent": "misses", "miss_percent_with_fills": "+ fills"}


def miss_percents(cells: Cells) -> pd.DataFrame:
    """Return misses in per cent of the requested rows, without and with the initial
    fills of the cache, by cell."""
    epochs = cells.epochs.rename(
        columns={
            "x": "model",
            "counters.rows": "asked",
            "counters.misses": "miss_percent",
        }
    )
    fills = epochs["counters.observed"].str.get("initial_rows")
    epochs["miss_percent_with_fills"] = epochs.miss_percent + fills.fillna(0)
    sums = epochs.groupby(["model", "system"])[[*MISSES, "asked"]].sum()
    percents = (100 * sums).div(sums.asked, axis=0)
    return percents.drop(columns="asked")


@figure_of_cells(
    "ginex-fig15",
    lambda profile: in_gallery(profile, ["ginex-pg", "ginex"], MODELS),
    least=1,
)
def fig15(cells: Cells) -> Drawing:
    """Draw ginex with PaGraph's static cache and with its optimal one: time by part
    (left), miss ratios (right).

    The miss ratios are those without and with the rows that the cache begins with.
    """
    parts = breakdowns(cells, ["ginex-pg", "ginex"])
    rows = parts.merge(miss_percents(cells), on=["model", "system"], how="left")
    canvas, (left, right) = many_panels(2, height=2.4)
    draw_stacks(
        rows,
        parts=PARTS,
        title="Epoch time by part",
        ylabel="epoch time over ginex-pg's",
        axes=left,
    )
    ratios = rows.drop_duplicates("bar").rename(columns={"system": "series", **MISSES})
    bars = ratios.melt(
        ["model", "series", "status"], list(MISSES.values()), value_name="percent"
    )
    bars = bars.assign(group=bars.model + "\n" + bars.variable, value=bars.percent)
    ylabel = "rows read of those requested (%)"
    draw_bars(
        bars, title="Rows read from disk", ylabel=ylabel, numbers=".0f", axes=right
    )
    fills = "`+ fills` adds the rows that the cache begins with"
    places = Places(cells.xs, word="with")
    faster = over_base(cells.medians(), ["ginex"], "ginex-pg", places)
    finding = "; ".join(filter(None, [faster, _rows_read(ratios)]))
    return drawn(canvas, rows, cells, NOTE, fills, order=PARTS, finding=finding)


def _rows_read(ratios: pd.DataFrame) -> str:
    """Return the sentence on rows read by each system with the rows that its cache
    begins with; empty without both."""
    read = ratios.dropna(subset="+ fills").groupby("series")["+ fills"].agg(span)
    if len(read) < 2:
        return ""
    shares = row_texts(
        read.reset_index(name="percents"), "{series} {percents} %", " and "
    )
    return f"of the rows requested, initial ones too, {shares} are read from disk"
