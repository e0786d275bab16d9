"""Whatever shows the time of an epoch names the part of it that was trained, in one
wording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.run_tables import print_epochs, print_headline
from harness.compare.cells import Cells
from harness.compare.epochs import (
    mini_batches,
    part_of_epoch,
    part_of_epochs,
    with_part,
)
from harness.figures.base import drawn, sheet
from harness.records.record import Record
from harness.report.headline import headline, who_is_ahead
from harness.report.memory_table import epoch_of
from harness.report.runs import table_of
from harness.report.standings import settings_of
from harness.results.table import runs_table
from tests.harness.records import make_record, save
from tests.harness.report_tools import Page
from workloads.sampling.seeds import SeedPlan

PART = "first 16 of 400 mini-batches"


def config(train: int, batch: int, most: int, **more: Any) -> dict[str, Any]:
    return {
        "max_batches": most,
        "batch_size": batch,
        "dataset": {"train_nodes": train},
        **more,
    }


CUT = config(20_000, 50, 16)


@given(st.integers(1, 3000), st.integers(1, 400), st.integers(0, 50), st.integers(1, 4))
def test_the_mini_batches_of_an_epoch_are_those_of_the_seed_plan(
    train: int, batch: int, most: int, ranks: int
) -> None:
    if train < ranks:
        return
    seeds = np.arange(train)
    whole = SeedPlan(seeds, batch, seed=0, world=ranks).num_batches
    trained = SeedPlan(seeds, batch, seed=0, world=ranks, max_batches=most).num_batches
    cut, all_of_it = mini_batches(config(train, batch, most, ranks=ranks))
    assert (cut or whole, all_of_it) == (trained, whole)
    assert bool(part_of_epoch(config(train, batch, most, ranks=ranks))) == (
        trained < whole
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (CUT, PART),
        (config(20_000, 50, 400), ""),
        (config(20_000, 50, 0), ""),
        (config(20_001, 50, 400), "first 400 of 401 mini-batches"),
        (config(1_300_000, 6, 1000), "first 1,000 of 216,667 mini-batches"),
        (config(0, 50, 16), "first 16 mini-batches"),
        (
            config(20_000, 50, 16, partition="self-reliant", ranks=2),
            "first 16 mini-batches",
        ),
        ({"max_batches": 16, "batch_size": 50}, "first 16 mini-batches"),
    ],
    ids=str,
)
def test_a_part_of_an_epoch_has_one_wording(given: dict[str, Any], text: str) -> None:
    assert part_of_epoch(given) == text


def test_several_parts_are_one_text_or_a_share() -> None:
    assert part_of_epochs([CUT, CUT]) == PART
    assert (
        part_of_epochs([CUT, config(20_000, 100, 8), config(20_000, 25, 32)])
        == "first 4 % of the mini-batches"
    )
    assert (
        part_of_epochs([CUT, config(20_000, 50, 40)])
        == "first 4 to 10 % of the mini-batches"
    )
    assert (
        part_of_epochs([CUT, config(20_000, 50, 0)])
        == "first 4 to 100 % of the mini-batches"
    )
    assert part_of_epochs([CUT, config(0, 50, 16)]) == "first mini-batches"
    assert part_of_epochs([]) == part_of_epochs([config(20_000, 50, 0)]) == ""


def cut_runs() -> list[Record]:
    records = [
        make_record(name, times, max_batches=16)
        for name, times in (("gnndrive", [1.0, 1.1]), ("pyg+", [8.5]))
    ]
    for record in records:
        record.config.dataset.train_nodes = 20_000
    return records


def test_the_headline_and_its_notes_name_the_part(
    capsys: pytest.CaptureFixture[str],
) -> None:
    records = cut_runs()
    plain = [record.to_json() for record in records]
    (line, *_) = who_is_ahead(plain, "quick")
    assert line.startswith(
        f"gnndrive takes 1.05 s an epoch of the {PART} with all of its work ("
    )
    first = headline(settings_of(plain), plain).first
    assert first is not None
    assert first.part == PART
    assert f"{PART} of an epoch" in first.setting
    print_headline(records, "mine", wide=False)
    assert f"epoch of the {PART}" in capsys.readouterr().out
    print_epochs(records[0], wide=False)
    assert f"epochs of the {PART}" in capsys.readouterr().out


def test_runs_of_different_parts_have_a_column_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = make_record("ginex", [3.0])
    print_headline([*cut_runs(), whole], "mine", wide=True)
    out = capsys.readouterr().out
    assert "epoch of" in out
    assert out.count(f"the {PART}") == 2
    assert out.count("all mini-batches") == 1


def test_the_reports_table_and_run_pages_name_the_part() -> None:
    records = [*cut_runs(), make_record("ginex", [3.0])]
    table = table_of([record.to_json() for record in records])
    place = table["columns"].index("part")
    assert [table["texts"][row[place]] for row in table["rows"]] == [
        PART,
        PART,
        "all mini-batches",
    ]


def cells_of_one(record: dict[str, Any]) -> Cells:
    """Return the cells of a plan with one run."""
    runs = runs_table([record]).rename(columns={"system": "run_system"})
    return Cells(runs.assign(system="gnndrive", x=1, panel=""), record["config"])


def test_axes_titles_tables_and_captions_of_a_figure_name_the_part() -> None:
    import matplotlib.pyplot as plt

    record = cut_runs()[0].to_json()
    cells = cells_of_one(record)
    canvas, (one, other, third) = plt.subplots(1, 3)
    one.set(ylabel="epoch time (s)", xlabel="memory")
    one.set_title("Epoch time", loc="left")
    other.set_title("How long an epoch takes", loc="left")
    third.set_ylabel("read amplification")
    shown = drawn(canvas, pd.DataFrame(), cells)
    assert one.get_ylabel() == f"epoch time (s)\n{PART}"
    assert one.get_xlabel() == "memory"
    assert one.get_title(loc="left") == "Epoch time"
    assert other.get_title(loc="left").endswith(f"takes\n{PART}")
    assert third.get_ylabel() == "read amplification"
    assert third.get_title(loc="left") == ""
    assert f"the {PART} of an epoch" in shown.caption
    plt.close(canvas)
    table = sheet(
        [{"system": "gnndrive", "epoch (s)": 1.0}],
        {"system": "", "epoch (s)": ".2f"},
        cells,
    )
    assert list(table.shown.columns) == ["system", f"epoch (s), {PART}"]
    assert "epoch (s)" in table.data


def test_a_figure_of_whole_epochs_has_its_labels_alone() -> None:
    import matplotlib.pyplot as plt

    record = make_record("gnndrive", [2.0]).to_json()
    canvas, axes = plt.subplots()
    axes.set_ylabel("epoch time (s)")
    cells = cells_of_one(record)
    assert "epochs of the" not in drawn(canvas, pd.DataFrame(), cells).caption
    assert axes.get_ylabel() == "epoch time (s)"
    plt.close(canvas)


def test_the_readme_names_all_mini_batches_or_the_part() -> None:
    assert epoch_of(CUT) == f"an epoch of the {PART}"
    assert epoch_of(config(5000, 50, 0)) == "an epoch of all 100 mini-batches"
    assert epoch_of(config(0, 50, 0)) == "an epoch"
    assert (
        with_part("2 s an epoch against 3 s", PART)
        == f"2 s an epoch of the {PART} against 3 s"
    )


def test_the_page_names_the_part(tmp_path: Path) -> None:
    from harness.report import write_report

    save(tmp_path, *cut_runs())
    write_report(tmp_path, draw=False)
    text = Page((tmp_path / "report.html").read_text()).text
    assert f"epoch, {PART}" in text
    assert f"an epoch of the {PART}" in text
