"""The table of README.md and docs/frontier.md: seconds of an epoch by system and
memory, with conclusions in words."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pandas as pd

from harness.compare.epochs import mini_batches, part_of_epoch, with_part
from harness.compare.evidence import Evidence
from harness.figures.draw import style
from harness.figures.draw.captions import graph_size
from harness.figures.draw.panels import MARK
from harness.figures.outcore.memory import cost_of, memory_rows, over_memory
from harness.records.cost import leaders, leading, shared_work
from harness.report.setting_words import listed
from harness.results.reference import Reference
from harness.results.table import each
from workloads.arraytypes import JsonDict
from workloads.units import format_bytes, row_bytes

TEMPLATE = Path(__file__).parent / "templates" / "memory.md"
#: Columns that the table shows, with the begin of the sentence on the least of each.
_SHOWN = {
    "seconds": "Least for a fresh epoch",
    "whole_training_s": "Least for the whole training",
}


def table_of(evidence: Evidence, reference: Reference) -> str:
    """Return seconds of an epoch by system and memory as Markdown, with setting and
    conclusions in words.

    Raises:
        NotDrawn: the runs are of fewer than two budgets.
    """
    import jinja2

    rows = memory_rows(evidence.cells("outcore-frontier", over_memory))
    rows = rows[rows["x"] != "none"].sort_values("budget_bytes", kind="stable")
    config = rows["record"].iloc[0]["config"]
    data = config["dataset"]
    bytes_of_row = row_bytes(data["dim"], data["dtype"])
    features = data["num_nodes"] * bytes_of_row
    rows["share"] = [_share(budget, features) for budget in rows["budget_bytes"]]
    systems = style.ordered(list(rows["system"]))
    cells = []
    for share, found in rows.groupby("share", sort=False):
        graph = found["graph_over_budget"].astype(float).max()
        known = "–" if pd.isna(graph) else f"{graph:.2f}"
        cells.append([share, known, *(_cell(found, name) for name in systems)])
    own = [
        command
        for command in reference.commands
        if command.endswith(f" {config['experiment']}")
    ]
    template = jinja2.Template(
        TEMPLATE.read_text(encoding="utf-8"),
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    text: str = template.render(
        epoch=epoch_of(config),
        config=config,
        data=data,
        size=graph_size(data["num_nodes"], data["num_edges"]),
        row_bytes=bytes_of_row,
        device=_device(config["device"]),
        rounds=int(rows["samples"].max()),
        command=[*own, *reference.commands][0],
        label=reference.label,
        systems=systems,
        rows=cells,
        sentences=[*_fastest(rows), *_trainings(rows), _verdicts(evidence, rows)],
    )
    return text


def _share(budget: int, features: int) -> str:
    """Return a budget as a share of the features, as a fraction where it is near one;
    else in bytes, too."""
    share = Fraction(budget, features).limit_denominator(64)
    near = (
        share.numerator
        and abs(budget / features / share - 1) < 0.01
        and 1 in (share.numerator, share.denominator)
    )
    return str(share) if near else f"{format_bytes(budget)} ({budget / features:.2g})"


def _cell(found: pd.DataFrame, system: str) -> str:
    """Return seconds of a fresh epoch, in brackets of one of the whole training; the
    least of a budget are bold."""
    mine = found[found["system"] == system]
    if mine.empty:
        return "–"
    row = mine.iloc[-1]
    if pd.isna(row["seconds"]):
        return str(MARK.get(row["status"], row["status"]))
    numbers = []
    for column in _SHOWN:
        value = row[column]
        text = f"{value:.2f}" if value < 10 else f"{value:.1f}"
        numbers.append(f"**{text}**" if value == found[column].min() else text)
    return f"{numbers[0]} ({numbers[1]})"


def _device(name: str) -> str:
    emulated = name.removeprefix("emulated:")
    return f"device {name}" if emulated == name else f"emulated {emulated}"


def epoch_of(config: JsonDict) -> str:
    """Return `an epoch` with the number of its mini-batches, or the part of them that
    was trained."""
    _, whole = mini_batches(config)
    part = part_of_epoch(config)
    if part or whole is None:
        return with_part("of an epoch", part).removeprefix("of ")
    return f"an epoch of all {whole:,} mini-batches"


def _fastest(rows: pd.DataFrame) -> Iterator[str]:
    """Yield sentences on the fastest systems by budget, by a fresh epoch and by the
    whole training."""
    for column, opening in _SHOWN.items():
        known = rows[rows[column].notna()]
        if known.empty:
            continue
        first = known.loc[known.groupby("share", sort=False)[column].idxmin()]
        shares = first.groupby("system", sort=False)["share"].agg(listed)
        places = [f"`{name}` at {share}" for name, share in shares.items()]
        yield f"{opening}: {', '.join(places)}."


def _trainings(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence on the budgets where it depends on the number of epochs which
    training takes the least time."""
    prepared_together = {row.system: shared_work(row.record) for row in each(rows)}
    for sentences in prepared_together.values():
        yield from sentences
    turns = []
    for share, found in rows[rows["mean_epoch_s"].notna()].groupby("share", sort=False):
        costs = {f"`{row.system}`": cost_of(row) for row in each(found)}
        if len(list(leading(costs))) > 1:
            turns.append(f"at {share} {leaders(costs)}")
    if turns:
        yield (
            "By number of epochs, with all work counted, the least time is that of: "
            f"{'; '.join(turns)}."
        )


def _verdicts(evidence: Evidence, rows: pd.DataFrame) -> str:
    """Return the verdicts of all runs of the rows' experiments in a sentence."""
    experiments = {record["config"]["experiment"] for record in rows["record"]}
    runs = evidence.runs[evidence.runs["config.experiment"].isin(experiments)]
    counts = runs["verdict"].value_counts()
    parts = ", ".join(f"{count} are `{verdict}`" for verdict, count in counts.items())
    return f"Of {len(runs)} runs {parts}."
