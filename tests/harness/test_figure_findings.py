"""The sentence above a figure is computed from what it draws, and absent where the
table does not carry it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest

from harness.compare.evidence import load_evidence
from harness.figures.base import Drawing, catalogue, drawn
from harness.figures.draw.captions import _unbroken, name_part
from harness.figures.draw.dots import draw_dots
from harness.figures.draw.panels import many_panels, one_panel
from harness.figures.findings import span
from harness.figures.outcore.ablation import OUTCORE
from harness.settings import check_options
from tests.harness.figure_profile import keep_profile
from tests.harness.records import make_record, save

FINDING = (
    "ginex is 2.1 to 3.4 times as fast as pyg+ at every size that both were measured "
    "at, on one device"
)


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    yield
    plt.close("all")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([2.1, 3.4, 3.0], "2.1 to 3.4"),
        ([1.0], "1"),
        ([0.914, 5.72], "0.91 to 5.7"),
        ([12.4, 463.3], "12 to 460"),
    ],
)
def test_a_span_names_least_and_largest_without_exponents(
    values: list[float], text: str
) -> None:
    assert span(pd.Series(values)) == text


def labelled_canvas() -> mpl.figure.Figure:
    canvas, axes = one_panel()
    axes.plot([1, 2], [1, 2], label="ginex")
    axes.set_title("Epoch time", loc="left")
    return canvas


def test_a_finding_stands_above_legend_and_panels_within_the_width(
    tmp_path: Path,
) -> None:
    drawing = drawn(labelled_canvas(), pd.DataFrame(), "a caption", finding=FINDING)
    drawing.canvas.savefig(tmp_path / "figure.png", bbox_inches="tight")
    renderer = drawing.canvas.canvas.get_renderer()  # type: ignore[attr-defined]
    (text,) = [text for text in drawing.canvas.texts if "times" in text.get_text()]
    box = text.get_window_extent(renderer)
    legend = drawing.canvas.legends[0].get_window_extent(renderer)
    panel = drawing.canvas.axes[0].get_tightbbox(renderer)
    assert panel is not None
    assert drawing.finding == FINDING
    assert box.y0 >= legend.y1
    assert legend.y0 >= panel.y1
    assert box.width <= drawing.canvas.bbox.width
    assert " ".join(text.get_text().split()) == FINDING, "nothing of it is cut off"


@pytest.mark.parametrize("width", range(20, 60))
def test_a_line_ends_neither_between_number_and_unit_nor_between_name_and_share(
    width: int,
) -> None:
    sentence = (
        "On the bare device pyg+ waits 17 % and ginex 40 %, 5.7 times as long as "
        "before, after 2.3 s"
    )
    lines = textwrap.wrap(_unbroken(sentence), width)
    ends = [re.findall(r"[^\xa0\s]+", line)[-1] for line in lines[:-1]]
    assert " ".join(" ".join(lines).split()) == sentence
    assert not {"waits", "ginex", "17", "40", "5.7", "2.3"} & set(ends)


def test_a_panel_without_a_label_leaves_the_part_of_an_epoch_to_its_neighbour() -> None:
    canvas, (left, right) = many_panels(2, sharey=True)
    left.set_ylabel("epoch (s)")
    right.set_title("Epoch with preprocessing", loc="left")
    name_part(canvas, "first 16 mini-batches")
    assert left.get_ylabel() == "epoch (s)\nfirst 16 mini-batches"
    assert right.get_title(loc="left") == "Epoch with preprocessing"


def test_without_a_finding_nothing_stands_above() -> None:
    drawing = drawn(labelled_canvas(), pd.DataFrame(), "a caption")
    assert [text.get_text() for text in drawing.canvas.texts] == ["a caption"]


def test_dots_far_apart_are_reported_apart_and_a_missing_one_names_its_system() -> None:
    rows = pd.DataFrame(
        {"group": ["a", "a", "b"], "series": ["ginex", "diskgnn", "mariusgnn"]}
    )
    rows = rows.assign(
        value=[460.0, 0.34, float("nan")],
        low=None,
        high=None,
        status=["ok", "ok", "oom"],
    )
    _, axes = draw_dots(rows, title="t", ylabel="s", numbers=".2g")
    assert axes.get_yscale() == "log"
    assert sorted(text.get_text() for text in axes.texts) == [
        "0.34",
        "460",
        "OOM\nmariusgnn",
    ]


def ablation(root: Path, seconds: dict[str, float]) -> Drawing:
    keep_profile(root)
    for name, value in seconds.items():
        options = check_options("outcore", OUTCORE[name])
        save(root, make_record("outcore", [value], options=options))
    found = catalogue()["outcore-ablation"].draw(load_evidence(root))
    assert isinstance(found, Drawing)
    return found


@pytest.mark.parametrize(
    ("seconds", "finding"),
    [
        (
            {"no Belady": 3.0, "single reads": 12.0},
            "outcore's epoch takes 6 times as long with “single reads”, 1.5 times with "
            "“no Belady”",
        ),
        (
            {"no Belady": 4.0, "single reads": 3.0},
            "outcore's epoch takes 2 times as long with “no Belady”, 1.5 times with "
            "“single reads”",
        ),
        ({"no Belady": 2.0}, ""),
    ],
)
def test_the_costliest_part_is_named_where_any_part_is_worth_something(
    seconds: dict[str, float], finding: str, tmp_path: Path
) -> None:
    assert ablation(tmp_path, {"whole": 2.0, **seconds}).finding == finding
