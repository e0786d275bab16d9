"""The docs site in a real browser: every page fits the window, light and dark, and is
read without the network."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.figures.draw.style import LEAST_POINTS
from tests.harness.browser import CHROMIUM, WIDTHS, Browser
from tests.harness.run_tools import REPOSITORY
from tests.support import made_once

BUILDER = REPOSITORY / "build" / "docs-venv" / "bin"
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="no Chromium or Chrome: `scripts/setup --browser` installs it",
    ),
    pytest.mark.skipif(
        not (BUILDER / "mkdocs").exists(), reason="no mkdocs: `make docs` installs it"
    ),
]
PAGES = sorted(page.stem for page in (REPOSITORY / "docs").glob("*.md"))
#: The pages with every kind of element: code, tables, formulas, pictures and lists.
KINDS = ("engineer", "frontier", "settings")
THEMES = ("light", "dark")
#: Fences, rows of tables and TeX that the site did not take for such.
MARKS = re.compile(r"```|\n\| |\\frac|\$\$")
BROKEN_NAMES = """[...document.querySelectorAll('article td code, article th code')]
  .filter((name) => !name.textContent.trim().includes(' ') && name.getClientRects().length > 1)
  .map((name) => name.textContent)"""
#: Diagrams, which are plain text, keep their lines and scroll.
CUT_CODE = """[...document.querySelectorAll('article .highlight:not(.language-text) pre > code')]
  .filter((code) => code.scrollWidth > code.clientWidth + 1).map((code) => code.textContent.slice(0, 60))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site once for all processes of the test session."""

    def build(folder: Path) -> None:
        command = [
            str(BUILDER / "mkdocs"),
            "build",
            "--strict",
            "--quiet",
            "--site-dir",
            str(folder),
        ]
        environment = {
            **os.environ,
            "NO_MKDOCS_2_WARNING": "1",
            "PATH": f"{BUILDER}:{os.environ['PATH']}",
        }
        subprocess.run(command, cwd=REPOSITORY, env=environment, check=True)

    return made_once(tmp_path_factory, "docs-site", build)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Browser:
    browser.errors.clear()
    browser.requests.clear()
    browser.resize(1200)
    browser.theme("light")
    return browser


@dataclass
class Seen:
    """All that is wrong with the pages, each as its page's name and the element's
    text."""

    clipped: list[str] = field(default_factory=list)
    broken_names: list[str] = field(default_factory=list)
    cut_code: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def seen(browser: Browser, site: Path) -> Seen:
    """Open every page once, and look at it at each width."""
    found = Seen()
    browser.theme("light")
    for name in PAGES:
        browser.errors.clear()
        browser.requests.clear()
        browser.open(site / f"{name}.html")
        texts = browser.run(
            "[...document.querySelectorAll('article p, article li, article "
            "td')].map((e) => e.innerText)"
        )
        found.marks += [f"{name}: {text}" for text in texts if MARKS.search(text)]
        for width in WIDTHS:
            found.clipped += [
                f"{name}: {fault}" for fault in browser.clipped([width], "article *")
            ]
            found.broken_names += [
                f"{name} at {width} px: {text}" for text in browser.run(BROKEN_NAMES)
            ]
            found.cut_code += [
                f"{name} at {width} px: {text}" for text in browser.run(CUT_CODE)
            ]
        found.fetched += [
            address
            for address in browser.requests
            if not address.startswith(site.as_uri())
        ]
        found.errors += browser.errors
    return found


def test_every_page_fits_any_window(seen: Seen) -> None:
    assert seen.clipped == []


def test_no_page_fetches_anything_from_elsewhere(seen: Seen) -> None:
    assert (seen.fetched, seen.errors) == ([], [])


def test_names_in_tables_are_never_broken(seen: Seen) -> None:
    assert seen.broken_names == []


def test_commands_and_comments_are_whole(seen: Seen) -> None:
    assert seen.cut_code == []


def test_no_page_shows_marks_of_its_source(seen: Seen) -> None:
    assert seen.marks == []


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", KINDS)
def test_axe_finds_nothing_in_a_page_of_each_kind(
    page: Browser, site: Path, name: str, theme: str
) -> None:
    page.theme(theme)
    page.open(site / f"{name}.html")
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (theme == "light")
    assert page.violations() == []


@pytest.mark.slow("docs", "mkdocs.yml", seconds=30)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", sorted({*PAGES} - {*KINDS}))
def test_axe_finds_nothing_in_any_page(
    page: Browser, site: Path, name: str, theme: str
) -> None:
    page.theme(theme)
    page.open(site / f"{name}.html")
    assert page.violations() == []


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_in_the_page_of_an_address_that_is_not_there(
    page: Browser, site: Path, theme: str
) -> None:
    # Its addresses begin at the root of a server, which a folder has not.
    text = (site / "404.html").read_text(encoding="utf-8")
    (site / "404-here.html").write_text(text.replace('="/', '="'), encoding="utf-8")
    page.theme(theme)
    page.open(site / "404-here.html")
    assert (
        page.run("getComputedStyle(document.querySelector('.md-toggle')).display")
        == "none"
    ), "it has its styles"
    assert page.violations() == []


@pytest.mark.parametrize("width", WIDTHS)
def test_texts_of_pictures_have_nine_pixels_at_any_width(
    page: Browser, site: Path, width: int
) -> None:
    page.resize(width)
    for name in ("index", "frontier"):
        page.open(site / f"{name}.html")
        sizes = page.run(
            "[...document.querySelectorAll('article img')].map((one) => [one.width, "
            "one.naturalWidth])"
        )
        # Pictures have 200 pixels an inch.
        pixels = [LEAST_POINTS / 72 * 200 * shown / whole for shown, whole in sizes]
        assert pixels
        assert min(pixels) >= 9


def test_formulas_are_drawn_as_formulas(page: Browser, site: Path) -> None:
    page.open(site / "frontier.html")
    tall = (
        "[...document.querySelectorAll('article math mfrac')].map((ratio) => "
        "ratio.getBoundingClientRect().height)"
    )
    heights = page.run(tall)
    assert len(heights) >= 4
    assert min(heights) > 16


def test_search_works_from_a_file(page: Browser, site: Path) -> None:
    page.open(site / "index.html")
    page.page.keyboard.press("/")
    page.page.keyboard.type("belady")
    page.wait_for("document.querySelectorAll('.md-search-result__item').length > 0")
    assert [
        address for address in page.requests if not address.startswith(site.as_uri())
    ] == []
