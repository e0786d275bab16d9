"""Drawings that figures share: every value is drawn, missing values are marked, series
differ in looks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest

from harness.figures.base import sheet
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars, draw_stacks
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.draw.style import SERIES, looks_of, named_looks


@pytest.fixture(autouse=True)
def drawn() -> Iterator[None]:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with mpl.rc_context(fname=style.SHEET):
        yield
    plt.close("all")


def bars_of(**columns: Any) -> pd.DataFrame:
    rows = {
        "group": [64, 64, 128, 128],
        "series": ["gnndrive", "pyg+"] * 2,
        "value": [1.0, 2.0, 3.0, 4.0],
    }
    return pd.DataFrame({**rows, **columns})


def heights(axes: Any) -> list[float]:
    return sorted(patch.get_height() for patch in axes.patches)


def words(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def legend_of(canvas: Any) -> list[str]:
    if not canvas.legends:
        legend_above(canvas, canvas.axes)
    return [text.get_text() for legend in canvas.legends for text in legend.get_texts()]


def test_a_bar_stands_for_each_value_and_none_for_a_missing_one() -> None:
    rows = bars_of(value=[1.0, 2.0, None, 4.0], status=["ok", "ok", "oom", "ok"])
    _, axes = draw_bars(rows, title="t", ylabel="s")
    assert heights(axes) == [1.0, 2.0, 4.0]
    assert words(axes) == ["gnndrive OOM"]


def test_bars_keep_the_systems_in_their_order_and_colour_whatever_the_rows_order() -> (
    None
):
    canvas, axes = draw_bars(bars_of(), title="t", ylabel="s")
    assert legend_of(canvas) == ["pyg+", "gnndrive"]
    colors = {
        mpl.colors.to_hex(patch.get_facecolor()).upper() for patch in axes.patches
    }
    assert colors == {style.LOOKS["pyg+"].color, style.LOOKS["gnndrive"].color}


def test_bars_show_intervals_and_the_papers_values_as_hollow_marks() -> None:
    rows = bars_of(
        low=[0.5, 1.5, 2.5, None],
        high=[1.5, 2.5, 3.5, None],
        paper=[None, 9.0, None, None],
    )
    canvas, axes = draw_bars(rows, title="t", ylabel="s", numbers=".1f")
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert [float(line.get_ydata()[0]) for line in hollow] == [9.0]
    assert sum(len(collection.get_segments()) for collection in axes.collections) == 3
    assert "paper" in legend_of(canvas)
    assert words(axes) == ["1.0", "2.0", "3.0", "4.0"]


def test_bars_without_a_single_value_are_drawn_as_stated() -> None:
    _, axes = draw_bars(
        bars_of(value=[None] * 4, status=["timeout"] * 4), title="t", ylabel="s"
    )
    assert words(axes) == ["gnndrive OOT", "pyg+ OOT"] * 2
    assert not axes.patches


def test_a_stack_adds_up_and_shares_are_of_a_hundred() -> None:
    rows = pd.DataFrame(
        {
            "bar": ["a", "a", "b", "b"],
            "part": ["sample", "train"] * 2,
            "value": [1.0, 3.0, 2.0, None],
        }
    )
    _, axes = draw_stacks(rows, title="t", ylabel="s", parts=["sample", "train"])
    assert max(patch.get_y() + patch.get_height() for patch in axes.patches) == 4.0
    _, axes = draw_stacks(
        rows, title="t", ylabel="%", parts=["sample", "train"], share=True
    )
    assert heights(axes) == [0.0, 25.0, 75.0, 100.0]


def test_a_stack_of_nothing_states_why_and_parts_are_listed_from_the_bottom() -> None:
    rows = pd.DataFrame(
        {
            "bar": ["a", "b", "b"],
            "part": ["sample", "train", "sample"],
            "value": [None, 3.0, 2.0],
            "status": ["oom", "ok", "ok"],
        }
    )
    canvas, axes = draw_stacks(rows, title="t", ylabel="s", parts=["sample", "train"])
    assert words(axes) == ["OOM"]
    assert legend_of(canvas) == ["sample", "train"]


def test_curves_join_what_was_measured_and_state_what_was_not() -> None:
    rows = pd.DataFrame(
        {
            "series": ["x", "x", "x", "y"],
            "x": [3.0, 1.0, 2.0, 1.0],
            "y": [9.0, 1.0, None, 5.0],
            "status": ["ok", "ok", "oom", "ok"],
        }
    )
    canvas, axes = draw_curves(rows, title="t", xlabel="n", ylabel="s", ylog=True)
    line = next(line for line in axes.lines if line.get_label() == "x")
    assert list(line.get_xdata()) == [1.0, 3.0]
    assert list(line.get_ydata()) == [1.0, 9.0]
    assert words(axes) == ["OOM\nx"]
    assert legend_of(canvas) == ["x", "y"]


def test_curves_bound_their_intervals_and_show_the_papers_points() -> None:
    rows = pd.DataFrame(
        {
            "series": "x",
            "x": range(40),
            "y": 2.0,
            "low": 1.0,
            "high": 3.0,
            "paper": [5.0] + [None] * 39,
        }
    )
    canvas, axes = draw_curves(rows, title="t", xlabel="n", ylabel="s")
    assert len(axes.collections) == 1
    assert "x (paper)" in legend_of(canvas)


def test_panels_share_one_legend_that_names_a_series_once() -> None:
    canvas, panels = many_panels(3, columns=2)
    for axes in panels:
        draw_bars(bars_of(), title="t", ylabel="s", axes=axes)
    legend_above(canvas, panels)
    assert legend_of(canvas) == ["pyg+", "gnndrive"]
    assert len(panels) == 3


def lightness(color: str) -> float:
    red, green, blue = mpl.colors.to_rgb(color)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_series_of_one_figure_differ_without_colour() -> None:
    labels = [f"series {k}" for k in range(12)]
    looks = named_looks(labels)
    assert len(
        {
            (looks(label).marker, looks(label).line, looks(label).hatch)
            for label in labels
        }
    ) == len(labels)
    assert all(
        abs(lightness(a.color) - lightness(b.color)) > 0.1 for a, b in pairwise(SERIES)
    )


def test_systems_look_as_everywhere_and_other_labels_keep_their_order() -> None:
    assert looks_of(["gnndrive", "pyg+"], None)[0] == ["pyg+", "gnndrive"]
    order, look = looks_of(["zipf", "gnndrive", "belady"], None)
    assert order == ["zipf", "gnndrive", "belady"]
    assert look("zipf").color != look("belady").color


def test_a_sheet_shows_what_is_known_and_a_dash_for_what_is_not() -> None:
    rows = pd.DataFrame(
        {
            "system": ["ginex", "in-memory"],
            "epoch (s)": [1.234, None],
            "bytes": [2.0**30, None],
            "hidden": [1, 2],
        }
    )
    made = sheet(
        rows,
        {"system": "", "epoch (s)": ".1f", "bytes": lambda b: f"{b / 2**30:.0f} GiB"},
        "c",
        runs=["r"],
    )
    assert made.shown.to_dict("list") == {
        "system": ["ginex", "in-memory"],
        "epoch (s)": ["1.2", "–"],
        "bytes": ["1 GiB", "–"],
    }
    assert list(made.data["hidden"]) == [1, 2]
    assert made.runs == ["r"]


def test_a_sheet_keeps_a_word_among_numbers() -> None:
    made = sheet(pd.DataFrame({"epoch (s)": [1.0, "OOM"]}), {"epoch (s)": ".2f"}, "c")
    assert list(made.shown["epoch (s)"]) == ["1.00", "OOM"]


def test_numbers_over_bars_have_no_exponent() -> None:
    from harness.figures.draw.panels import plain_number

    assert [plain_number(value, ".2g") for value in (476.6, 23.4, 0.34, 1234.0)] == [
        "480",
        "23",
        "0.34",
        "1,200",
    ]
