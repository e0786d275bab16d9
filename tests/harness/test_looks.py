"""A reader distinguishes all systems and reads all text of figures: contrast, shape and
sizes, from the drawings."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.text import Text

from harness.compare.evidence import Evidence, load_evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, catalogue
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.curves import draw_curves
from harness.report.readme import HERE
from harness.results.reference import references, unpacked

# Pixels of a column's figure in a report 400 px wide: without the borders and margins
# of page, section and card.
CARD_PIXELS = 400 - 2 * 8 - 2 * 12 - 2 - 2 * 12.8 - 2
LEAST_PIXELS = 9
#: Figures of each kind of drawing: bars, stacks, dots, curves, lines, time lines and
#: those with a drawing of their own.
KINDS = (
    "diskgnn-fig5",
    "diskgnn-fig9",
    "diskgnn-fig15",
    "ginex-fig4",
    "gnndrive-fig2",
    "gnndrive-fig10",
    "gnndrive-fig11",
    "outcore-frontier",
    "outcore-pipeline",
    "outcore-roofline",
    "outcore-training",
    "pagraph-fig4",
    "tiering-fig9",
)


def luminance(color: Any) -> float:
    """Return the relative luminance of a colour, by WCAG 2."""
    parts = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in mpl.colors.to_rgb(color)
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: Any, other: Any) -> float:
    """Return the contrast of two colours, from 1 to 21, by WCAG 2."""
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ground", ["#ffffff", style.DARK, "#000000"])
def test_systems_and_series_stand_out_on_light_and_dark_pages(ground: str) -> None:
    looks = [*style.LOOKS.values(), *style.SERIES]
    assert [look.color for look in looks if contrast(look.color, ground) < 3.0] == []


def test_systems_differ_by_colour_by_marker_and_by_hatch() -> None:
    for what in ("color", "marker", "symbol", "hatch"):
        assert len({getattr(look, what) for look in style.LOOKS.values()}) == len(
            style.LOOKS
        )


def test_a_series_or_stage_has_no_systems_colour() -> None:
    systems = {look.color for look in style.LOOKS.values()}
    assert systems.isdisjoint(look.color for look in style.SERIES)
    assert systems.isdisjoint(style.STAGE_COLORS.values())
    assert len(set(style.STAGE_COLORS.values())) == len(style.STAGES)


@pytest.mark.parametrize(
    "names", [["mine", "pyg+", "yours", "ginex"], ["ginex", "yours", "pyg+", "mine"]]
)
def test_systems_of_ones_own_differ_and_those_of_the_table_keep_their_looks(
    names: list[str],
) -> None:
    assert style.ordered(names) == ["pyg+", "ginex", "mine", "yours"]
    _, look_of = style.looks_of(names, None)
    assert look_of("pyg+") == style.LOOKS["pyg+"]
    assert [look_of("mine"), look_of("yours")] == list(style.SERIES[:2])


def test_many_systems_of_ones_own_differ_in_colour_or_marker() -> None:
    names = [f"mine {number}" for number in range(40)]
    look_of = style.system_looks(names)
    assert len({(look_of(name).color, look_of(name).marker) for name in names}) == len(
        names
    )


def test_the_least_text_of_a_columns_figure_has_nine_pixels_on_the_narrowest_page() -> (
    None
):
    with mpl.rc_context(fname=style.SHEET):
        inches = style.COLUMN_INCHES + 2 * mpl.rcParams["savefig.pad_inches"]
    assert style.LEAST_POINTS / 72 * CARD_PIXELS / inches >= LEAST_PIXELS


@pytest.fixture(autouse=True)
def styled() -> Iterator[None]:
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    with mpl.rc_context(fname=style.SHEET):
        yield
    plt.close("all")


def texts_of(canvas: Any) -> list[Text]:
    canvas.draw_without_rendering()
    return [
        text
        for text in canvas.findobj(Text)
        if text.get_visible() and text.get_text().strip()
    ]


def looks_in(axes: Any) -> dict[str, tuple[str, Any]]:
    """Return colour and marker (of a bar: hatch) of each system that axes label."""
    found = {}
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        if label not in style.LOOKS:
            continue
        first = next(iter(handle)) if isinstance(handle, tuple) else handle
        if isinstance(first, mpl.lines.Line2D):
            found[label] = (mpl.colors.to_hex(first.get_color()), first.get_marker())
        elif isinstance(first, mpl.patches.Patch):
            found[label] = (
                mpl.colors.to_hex(first.get_facecolor()),
                first.get_hatch() or "",
            )
    return found


def assert_readable(canvas: Any) -> None:
    texts = texts_of(canvas)
    small = {
        text.get_text()
        for text in texts
        if float(text.get_fontsize()) < style.LEAST_POINTS
    }
    faint = {
        text.get_text() for text in texts if contrast(text.get_color(), "white") < 4.5
    }
    assert texts
    assert (small, faint) == (set(), set())
    for axes in canvas.axes:
        for system, (color, shape) in looks_in(axes).items():
            own = style.LOOKS[system]
            assert color == own.color.lower()
            assert shape in (own.marker, own.hatch, "None", "none", "")


@pytest.mark.parametrize("systems", [["pyg+", "ginex"], list(style.LOOKS)])
def test_bars_and_curves_with_missing_values_are_readable(
    systems: Sequence[str],
) -> None:
    rows = pd.DataFrame(
        list(product(["a", "b", "c"], systems)), columns=["group", "series"]
    )
    measured = rows.index % 2 == 1
    rows = rows.assign(value=1234.5, status="oom")
    rows["value"] = rows["value"].where(measured)
    canvas, _ = draw_bars(rows, title="t", ylabel="s", numbers=".1f")
    assert_readable(canvas)
    points = rows.assign(x=rows["group"].map("abc".index), y=rows["value"])
    canvas, _ = draw_curves(points, title="t", xlabel="x", ylabel="s")
    assert_readable(canvas)


def test_numbers_over_bars_stand_upright_where_narrow_and_are_left_out_where_they_overlap() -> (
    None
):
    turned = []
    for count in (2, 20, 90):
        rows = pd.DataFrame({"group": range(count), "series": "ginex", "value": 1234.5})
        _, axes = draw_bars(rows, title="t", ylabel="s", numbers=".0f")
        turned.append({text.get_rotation() for text in axes.texts})
    assert turned == [{0.0}, {90.0}, set()]


def test_upright_numbers_over_the_tallest_bars_lie_within_the_axes() -> None:
    rows = pd.DataFrame({"group": range(12), "series": "agnes", "value": 11575.25})
    canvas, axes = draw_bars(rows, title="t", ylabel="s", numbers=".2f")
    canvas.canvas.draw()
    tops = [text.get_window_extent().y1 for text in axes.texts]
    assert {text.get_rotation() for text in axes.texts} == {90.0}
    assert max(tops) <= axes.get_window_extent().y1


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Runs of the first reference machine, unpacked beside the repository."""
    folder = next(iter(references(HERE)), None)
    if folder is None:
        pytest.skip("the repository holds no reference results")
    own = tmp_path_factory.mktemp("reference") / folder.name
    shutil.copytree(
        folder,
        own,
        ignore=lambda at, names: [name for name in names if (Path(at) / name).is_dir()],
    )
    unpacked(own)
    return load_evidence(own)


def drawn_of(evidence: Evidence, figure: str) -> Any:
    """Return the canvas of a figure; None for a table, and for a figure that the runs
    do not suffice for."""
    try:
        drawing = catalogue()[figure].draw(evidence)
    except NotDrawn:
        return None
    return drawing.canvas if isinstance(drawing, Drawing) else None


def test_figures_of_the_reference_machine_are_readable(evidence: Evidence) -> None:
    for figure in KINDS:
        canvas = drawn_of(evidence, figure)
        assert canvas is not None, figure
        assert_readable(canvas)


@pytest.mark.slow("harness/figures", seconds=60)
def test_every_figure_of_the_reference_machine_is_readable(evidence: Evidence) -> None:
    import matplotlib.pyplot as plt

    shown = 0
    for figure in catalogue():
        if (canvas := drawn_of(evidence, figure)) is not None:
            assert_readable(canvas)
            plt.close(canvas)
            shown += 1
    assert shown > len(KINDS)
