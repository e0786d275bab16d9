"""The page of drives in a real browser: it fits the window, follows the reader's theme,
and axe finds nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from harness.drives.compare import compare
from harness.drives.comparison import DriveComparison
from harness.drives.page import write_page
from harness.drives.panels import panel_inches, panels_of
from harness.drives.prices import Price
from harness.drives.whatif import device_from, device_of
from harness.figures.draw import style
from tests.harness.browser import CHROMIUM, Browser
from tests.harness.ssd.drives import counted, make_drive

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium or Chrome: `scripts/setup --browser` installs it",
)
CLASSES = ("aws-nvme/16", "aws-gp3/16")
MANY = [f"{name}/{share}" for share in (8, 16, 32) for name in ("aws-nvme", "aws-gp3")]
SYSTEMS = ("pyg+", "ginex", "gnndrive", "diskgnn")
GROUNDS = {"light": "rgb(246, 247, 249)", "dark": "rgb(18, 23, 30)"}


def compared(folder: Path, classes: Sequence[str]) -> DriveComparison:
    """Compare a drive and some classes with four systems; all panels and prices."""
    price = Price(price_per_gb=0.1, source="a list")
    drive = device_from(make_drive("a-drive-whose-name-has-thirty-letters"))
    devices = [drive, *(device_of(name, folder) for name in classes)]
    runs = [
        counted(system, 2.0 + place, disk_class=name)
        for place, system in enumerate(SYSTEMS)
        for name in classes
    ]
    return compare(devices, runs, dict.fromkeys(classes, price))


@pytest.fixture(
    scope="module", params=[CLASSES, MANY], ids=["three drives", "seven drives"]
)
def written(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    """Write the page of a comparison."""
    folder = tmp_path_factory.mktemp("drives")
    write_page(compared(folder, request.param), folder)
    return folder / "ssd-report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_readers_at_any_width_see_all_of_it_and_axe_finds_nothing(
    browser: Browser, written: Path, theme: str
) -> None:
    browser.errors.clear()
    browser.requests.clear()
    browser.theme(theme)
    browser.open(written)
    assert browser.clipped() == []
    assert browser.violations() == []
    assert (
        browser.run("getComputedStyle(document.body).backgroundColor") == GROUNDS[theme]
    )
    assert (browser.errors, browser.requests) == ([], [written.as_uri()])


def test_texts_are_readable_and_pictures_have_names(
    browser: Browser, written: Path
) -> None:
    browser.open(written)
    sizes = browser.run(
        "[...document.querySelectorAll('td, th, li, p')].map((e) => "
        "parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12
    assert browser.run(
        "[...document.images].every((one) => one.alt.length > 20 && one.naturalWidth > "
        "100)"
    )


@pytest.mark.parametrize(
    "classes", [CLASSES, MANY], ids=["three drives", "seven drives"]
)
def test_titles_legends_and_names_of_drives_lie_within_the_picture_and_beside_each_other(
    classes: Sequence[str], tmp_path: Path
) -> None:
    import matplotlib
    import matplotlib.pyplot as plt

    found = compared(tmp_path, classes)
    outside = []
    rotated = []
    overlapping = []
    with matplotlib.rc_context(fname=style.SHEET):
        for name, draw in panels_of(found):
            canvas, axes = plt.subplots(
                figsize=(panel_inches(found), 2.6), constrained_layout=True
            )
            draw(found, axes)
            canvas.canvas.draw()
            names = axes.get_xticklabels()
            parts = [axes.get_legend(), *axes.texts, *names]
            boxes = [part.get_window_extent() for part in parts]
            whole = canvas.bbox.padded(1)
            outside += [name for box in boxes if box.x0 < whole.x0 or box.x1 > whole.x1]
            rotated += [label.get_text() for label in names if label.get_rotation()]
            beside = [label.get_window_extent() for label in names]
            overlapping += [
                name for one, other in pairwise(beside) if one.x1 > other.x0
            ]
            plt.close(canvas)
    assert (outside, rotated, overlapping) == ([], [], [])


def test_the_bars_of_predicted_epochs_are_pale_and_no_others(tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    _, axes = plt.subplots()
    dict(panels_of(compared(tmp_path, CLASSES)))["epochs"](
        compared(tmp_path, CLASSES), axes
    )
    groups = {round(bar.get_x() + bar.get_width() / 2): set() for bar in axes.patches}
    for bar in axes.patches:
        groups[round(bar.get_x() + bar.get_width() / 2)].add(bar.get_alpha())
    plt.close()
    assert groups == {0: {0.45}, 1: {1.0}, 2: {1.0}}, "the first drive has no run"
