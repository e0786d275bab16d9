"""The report in a real browser: it loads without errors, asks for nothing, its filters
work, and it fits a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.report import write_report
from harness.report.beside import folder_of
from tests.harness.browser import CHROMIUM, OVERFLOW, Browser
from tests.harness.records import make_record, save
from tests.harness.report_tools import EVIL, filled_root, timelines

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium or Chrome: `scripts/setup --browser` installs it",
)

ROWS = "document.querySelectorAll('#run-table tbody tr').length"
CHARTED = (
    "document.querySelector('#chart-runs .main-svg') && "
    "document.querySelector('#chart-stages .main-svg')"
)
HOSTILE = "Report.runs.find((run) => run.id.startsWith('20260202')).id"
DRAWN = (
    "decodeURIComponent(document.querySelector('#headline tbody "
    "a[href^=\"#run/\"]').hash.slice('#run/'.length))"
)
RUN_CHARTED = (
    "['run-stages', 'run-line', 'run-pipeline'].every((id) => "
    "document.querySelector(`#${id} .main-svg`))"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled_root(tmp_path_factory) / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.fixture
def page(browser: Browser, report: Path) -> Browser:
    browser.errors.clear()
    browser.requests.clear()
    browser.resize(1280)
    browser.open(report)
    browser.wait_for(CHARTED)
    return browser


def choose(page: Browser, name: str, value: str, form: str = "run-filters") -> None:
    page.run(
        f"(() => {{ const f = "
        f"document.getElementById('{form}').elements['{name}']; f.value = {value!r};"
        " f.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )


def open_run(page: Browser, which: str) -> None:
    page.run(f"void (location.hash = '#run/' + encodeURIComponent({which}))")
    page.wait_for("document.querySelector('#run h1')")


def test_it_loads_without_errors_and_asks_for_nothing(
    page: Browser, report: Path
) -> None:
    open_run(page, DRAWN)
    page.wait_for(RUN_CHARTED)
    assert page.errors == []
    first, *others = page.requests
    assert first == report.as_uri()
    beside = folder_of(report).as_uri()
    assert all(address.startswith(f"{beside}/") for address in others)
    scripts = [address for address in others if address.endswith(".js")]
    assert len(scripts) == 2, "the plotting library and the run's script"


def test_it_needs_the_folder_beside_it_alone(
    browser: Browser, report: Path, tmp_path: Path
) -> None:
    page = tmp_path / report.name
    shutil.copy(report, page)
    shutil.copytree(folder_of(report), folder_of(page))
    browser.errors.clear()
    browser.open(page)
    browser.wait_for(CHARTED)
    browser.run("[...document.images].map((image) => (image.loading = 'eager'))")
    browser.wait_for(
        "[...document.images].every((image) => image.complete && image.naturalWidth > "
        "100)"
    )
    assert browser.run("document.images.length") > 0
    open_run(browser, DRAWN)
    browser.wait_for(RUN_CHARTED)
    assert browser.errors == []


def test_a_page_without_its_folder_names_the_folder(
    browser: Browser, report: Path, tmp_path: Path
) -> None:
    shutil.copy(report, tmp_path / "alone.html")
    browser.open(tmp_path / "alone.html")
    browser.wait_for(
        "document.getElementById('chart-runs').textContent.includes('report_files')"
    )
    open_run(browser, DRAWN)
    assert "has to lie beside this page" in browser.run(
        "document.getElementById('run').textContent"
    )


@pytest.mark.parametrize("width", [1280, 400])
def test_it_fits_the_window(page: Browser, width: int) -> None:
    page.resize(width)
    page.run("window.dispatchEvent(new Event('resize'))")
    page.run("new Promise((done) => setTimeout(done, 300))")
    assert page.run(OVERFLOW) == 0
    assert page.run(
        "[...document.querySelectorAll('#gallery .picture:not(.scroll) "
        "img')].every((i) => i.clientWidth <= i.parentNode.clientWidth)"
    )
    # Every control and chart ends within the window; tables scroll in boxes of their
    # own.
    wide = (
        "[...document.querySelectorAll('section, .chart, .card, select, "
        "button')].filter((element) => !element.closest('.scroll') && "
        f"element.getBoundingClientRect().right > {width}).length"
    )
    assert page.run(wide) == 0
    assert page.run("parseFloat(getComputedStyle(document.body).fontSize)") >= 14
    open_run(page, DRAWN)
    page.wait_for(RUN_CHARTED)
    assert page.run(OVERFLOW) == 0


def test_filters_change_the_rows_and_the_chart(page: Browser) -> None:
    page.run("document.getElementById('show-all').click()")
    everything = page.run("Report.runs.length")
    assert page.run(ROWS) == everything
    for name, wanted in (("memory", "+33554432"), ("device", "cpu"), ("model", "sage")):
        page.run("document.getElementById('show-all').click()")
        choose(page, name, wanted)
        expected = page.run(
            f"Report.runs.filter((run) => run.{name} === '{wanted}').length"
        )
        assert 0 < expected < everything
        assert page.run(ROWS) == expected
    page.run("document.getElementById('show-all').click()")
    box = "document.querySelector('#system-chips input[value=ginex]')"
    before = page.run(
        "document.getElementById('chart-runs').data.map((trace) => trace.name)"
    )
    page.run(f"{box}.click()")
    assert page.run(ROWS) == everything - page.run(
        "Report.runs.filter((run) => run.system === 'ginex').length"
    )
    page.wait_for(
        "document.getElementById('chart-runs').data.every((trace) => trace.name !== "
        "'ginex')"
    )
    assert "ginex" in before
    assert page.run("document.getElementById('run-count').textContent").startswith(
        f"{page.run(ROWS)} of {everything} runs"
    )


def test_it_opens_on_the_setting_of_the_headline(page: Browser) -> None:
    shown = page.run(
        "[...document.querySelectorAll('#run-table tbody th')].map((cell) => "
        "cell.textContent)"
    )
    assert set(shown) == {"pyg+", "ginex", "gnndrive", "in-memory", "diskgnn"}
    memory = (
        "[...document.querySelectorAll('#run-table tbody td:nth-child(5)')].map((cell) "
        "=> cell.textContent)"
    )
    assert len(set(page.run(memory))) == 1
    assert (
        page.run("document.querySelector('#headline h1').textContent.trim()")
        == "gnndrive is fastest"
    )


def test_two_hosts_or_devices_stand_in_panels_of_their_own(page: Browser) -> None:
    assert (
        page.run(
            "new Set(document.getElementById('chart-runs').data.map((trace) => "
            "trace.yaxis)).size"
        )
        == 1
    )
    page.run("document.getElementById('show-all').click()")
    page.wait_for(
        "new Set(document.getElementById('chart-runs').data.map((trace) => "
        "trace.yaxis)).size === 4"
    )
    titles = page.run(
        "document.getElementById('chart-runs').layout.annotations.map((note) => "
        "note.text)"
    )
    assert len(titles) == 4
    assert sum("emulated:a10g on host" in title for title in titles) == 2


def test_invalid_and_failed_runs_are_listed_and_never_drawn(page: Browser) -> None:
    page.run("document.getElementById('show-all').click()")
    drawn = set(
        page.run(
            "document.getElementById('chart-runs').data.flatMap((trace) => "
            "trace.customdata)"
        )
    )
    out = set(
        page.run(
            "Report.runs.filter((r) => r.verdict === 'INVALID' || r.status !== "
            "'ok').map((r) => r.id)"
        )
    )
    listed = set(
        page.run(
            "[...document.querySelectorAll('#run-table tbody "
            "td:last-child')].map((cell) => cell.textContent)"
        )
    )
    assert len(out) == 2
    assert out <= listed
    assert not out & drawn


def test_claims_and_figures_can_be_filtered(page: Browser) -> None:
    rows = (
        "[...document.querySelectorAll('#claims .claims tbody tr')].filter((row) => "
        "!row.hidden)"
    )
    total = page.run(f"{rows}.length")
    choose(page, "paper", "pagraph", "claim-filters")
    assert 0 < page.run(f"{rows}.length") < total
    assert page.run(f"{rows}.every((row) => row.dataset.paper === 'pagraph')")
    cards = (
        "[...document.querySelectorAll('#gallery .card')].filter((card) => "
        "card.checkVisibility())"
    )
    drawn = page.run(f"{cards}.length")
    assert drawn > 0 and page.run(
        f"{cards}.every((card) => card.dataset.state === 'drawn')"
    ), "the others are folded"
    choose(page, "state", "not drawn", "gallery-filters")
    assert page.run(f"{cards}.length") > drawn
    assert page.run(f"{cards}.every((card) => card.dataset.state === 'not drawn')")
    choose(page, "state", "drawn", "gallery-filters")
    assert page.run(f"{cards}.length") == drawn
    assert page.run(
        "document.querySelectorAll('#gallery .paper:not([hidden])').length"
    ) == page.run(f"new Set({cards}.map((card) => card.dataset.paper)).size")


def test_a_rule_leads_to_its_entry_from_the_headline_and_from_a_run(
    page: Browser,
) -> None:
    link = (
        "[...document.querySelectorAll('#headline a')].find((a) => "
        "a.hash.startsWith('#rule-'))"
    )
    number = page.run(f"{link}.hash.slice(1)")
    entry = f"document.getElementById('{number}')"
    assert not page.run(f"{entry}.checkVisibility()")
    page.run(f"{link}.click()")
    page.wait_for(
        f"{entry}.checkVisibility() && {entry}.getBoundingClientRect().top < "
        "innerHeight"
    )
    open_run(page, DRAWN)
    page.wait_for(
        "[...document.querySelectorAll('#run a')].some((a) => "
        "a.hash.startsWith('#rule-'))"
    )
    page.run(
        "document.querySelectorAll('#rules details').forEach((fold) => { fold.open "
        "= false; })"
    )
    page.run(
        "void [...document.querySelectorAll('#run a')].find((a) => "
        "/^#rule-[a-z]/.test(a.hash)).click()"
    )
    page.wait_for("document.getElementById('run').hidden")
    reached = "document.getElementById(location.hash.slice(1))"
    page.wait_for(
        f"{reached}.checkVisibility() && {reached}.getBoundingClientRect().top < "
        "innerHeight"
    )


def test_a_claim_leads_to_a_figure_that_is_folded_away(page: Browser) -> None:
    page.run("document.getElementById('claims-without-runs').open = true")
    link = (
        "[...document.querySelectorAll('#claims-without-runs a')].find((a) => a.hash "
        "=== '#figure-gnndrive-fig11')"
    )
    page.run(f"{link}.click()")
    card = "document.getElementById('figure-gnndrive-fig11')"
    page.wait_for(
        f"{card}.checkVisibility() && {card}.getBoundingClientRect().top < innerHeight"
    )


def test_the_page_of_a_run_shows_all_that_its_record_holds(page: Browser) -> None:
    open_run(page, DRAWN)
    page.wait_for(RUN_CHARTED)
    assert page.run("document.getElementById('report').hidden") is True
    titles = page.run(
        "[...document.querySelectorAll('#run h2')].map((title) => title.textContent)"
    )
    assert titles == [
        "Stages",
        "Latency of requests",
        "Over time",
        "Pipeline of one epoch",
        "Memory",
        "Verdict rules",
        "Counters",
        "Notes of the system",
        "Configuration",
        "Environment",
        "Log",
    ]
    text = page.run("document.getElementById('run').textContent")
    for part in (
        "feature buffer",
        "disk class was enforced",
        "worker of 20260101",
        "fanout",
        "cpu.model",
        "extract",
    ):
        assert part in text, part
    names = page.run(
        "document.getElementById('run-line').data.map((trace) => trace.name)"
    )
    assert names == [
        "CPU",
        "GPU",
        "I/O wait",
        "used",
        "anonymous",
        "cached",
        "disk reads",
        "requests",
    ]
    assert (
        max(
            page.run(
                "document.getElementById('run-line').data.map((trace) => "
                "trace.x.length)"
            )
        )
        <= 300
    )
    stages = page.run(
        "document.getElementById('run-pipeline').data.map((trace) => trace.name)"
    )
    assert stages == ["sample", "extract", "train"]
    page.run("history.back()")
    page.wait_for(
        "!document.getElementById('report').hidden && "
        "document.getElementById('run').hidden"
    )


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Report of three runs: with loss and accuracies, with a loss alone, and with
    neither."""
    whole, half, none = (make_record("gnndrive", [4.0, 2.0]) for _ in range(3))
    for number, epoch in enumerate(whole.epochs):
        epoch.loss = 1.0 / (number + 1)
        epoch.accuracy = 0.5 + 0.1 * number
        epoch.test_accuracy = 0.6 + 0.1 * number
    half.epochs[0].loss = 2.0
    half.epochs[2].loss = 1.0
    save(tmp_path, whole, half, none)
    return write_report(tmp_path, draw=False).path


@pytest.mark.parametrize("width", [1280, 400])
def test_a_run_draws_loss_and_accuracies_over_epochs_and_training_time(
    browser: Browser, trained: Path, width: int
) -> None:
    browser.errors.clear()
    browser.resize(width)
    browser.open(trained)
    open_run(browser, "Report.runs[0].id")
    browser.wait_for("document.querySelector('#run-learning .main-svg')")
    drawn = browser.run(
        "document.getElementById('run-learning').data.map((t) => [t.name, t.x, t.y])"
    )
    loss = [1.0, 0.5, 0.3333]
    accuracy = [0.5, 0.6, 0.7]
    tested = [0.6, 0.7, 0.8]
    assert drawn == [
        ["training loss", [0, 1, 2], loss],
        ["training loss", [4, 8, 10], loss],
        ["training accuracy", [0, 1, 2], accuracy],
        ["test accuracy", [0, 1, 2], tested],
        ["training accuracy", [4, 8, 10], accuracy],
        ["test accuracy", [4, 8, 10], tested],
    ]
    points = browser.run(
        "document.querySelectorAll('#run-learning .scatterlayer .point').length"
    )
    assert points == 18
    assert browser.run(OVERFLOW) == 0
    open_run(browser, "Report.runs[1].id")
    browser.wait_for(
        "document.querySelector('#run-learning .main-svg') && "
        "document.title.includes(Report.runs[1].id)"
    )
    assert browser.run(
        "document.getElementById('run-learning').data.map((t) => t.y)"
    ) == [[2, None, 1], [2, None, 1]]
    open_run(browser, "Report.runs[2].id")
    browser.wait_for("document.title.includes(Report.runs[2].id)")
    assert browser.run("document.getElementById('run-learning')") is None
    assert browser.errors == []


def test_a_run_that_no_figure_draws_links_its_telemetry(
    page: Browser, report: Path
) -> None:
    drawn = timelines(report)
    undrawn = f"(r) => r.status === 'ok' && !{sorted(drawn)}.includes(r.id)"
    open_run(page, f"Report.runs.find({undrawn}).id")
    page.wait_for("document.querySelector('#run h2')")
    text = page.run("document.getElementById('run').textContent")
    assert "it has no timeline here" in text
    assert page.run(
        "[...document.querySelectorAll('#run a')].some((a) => "
        "a.href.endsWith('/telemetry.parquet'))"
    )


def test_an_unknown_run_states_so(page: Browser) -> None:
    open_run(page, "'<b>nobody</b>'")
    assert "This report holds no run <b>nobody</b>." in page.run(
        "document.getElementById('run').textContent"
    )
    assert page.errors == []


def test_hostile_names_stay_text(page: Browser) -> None:
    page.run("document.getElementById('show-all').click()")
    assert (
        page.run("document.getElementById('system-chips').textContent").count(EVIL) == 1
    )
    open_run(page, HOSTILE)
    page.wait_for("document.querySelector('#run-stages .main-svg')")
    text = page.run("document.getElementById('run').textContent")
    assert text.count(EVIL) > 8
    assert page.run("typeof window.hostile") == "undefined"
    assert (
        page.run(
            "document.querySelectorAll('#run img, #run script, #report script, #report "
            "[onerror]').length"
        )
        == 0
    )
    assert page.errors == []


def test_a_script_that_is_not_the_reports_own_is_refused(
    browser: Browser, report: Path, tmp_path: Path
) -> None:
    smuggled = report.read_text().replace(
        "<section id=", "<script>window.hostile = 1</script><section id=", 1
    )
    page = tmp_path / report.name
    page.write_text(smuggled)
    shutil.copytree(folder_of(report), folder_of(page))
    browser.errors.clear()
    browser.open(page)
    browser.wait_for(CHARTED)
    assert browser.run("typeof window.hostile") == "undefined"
    assert any("Content Security Policy" in error for error in browser.errors)


def test_it_can_be_used_with_the_keyboard(page: Browser) -> None:
    page.press("Tab")
    assert page.run("document.activeElement.className") == "skip"
    page.run("document.querySelector('#run-table [data-key=epoch_s]').focus()")
    page.press("Enter")
    times = (
        "[...document.querySelectorAll('#run-table tbody tr')].map((row) => "
        "parseFloat(row.cells[1].textContent)).filter((seconds) => "
        "!Number.isNaN(seconds))"
    )
    ascending = page.run(times)
    assert ascending == sorted(ascending)
    assert len(ascending) > 3
    assert page.run(
        "document.querySelector('#run-table th[aria-sort=ascending]').textContent"
    ).startswith("epoch s")
    page.run("document.querySelector('#run-table [data-key=epoch_s]').focus()")
    page.press("Enter")
    assert page.run(times) == sorted(ascending, reverse=True)
    page.run("document.querySelector('#run-table tbody a').focus()")
    page.press("Enter")
    page.wait_for(
        "document.activeElement.tagName === 'H1' && "
        "!document.getElementById('run').hidden"
    )


def test_every_picture_field_and_table_has_a_name(page: Browser) -> None:
    assert page.run("[...document.images].every((image) => image.alt.length > 10)")
    assert page.run(
        "[...document.querySelectorAll('select, input')].every((field) => "
        "field.labels.length === 1)"
    )
    assert page.run(
        "[...document.querySelectorAll('.scroll')].every((box) => box.tabIndex === 0 "
        "&& box.ariaLabel)"
    )


def test_the_report_of_one_run_opens_with_that_run(
    browser: Browser, tmp_path: Path
) -> None:
    only = make_record("gnndrive", [4.0, 2.0])
    save(tmp_path, only)
    browser.errors.clear()
    browser.open(write_report(tmp_path, draw=False).path)
    browser.wait_for("document.querySelector('#run h1')")
    assert only.run_id in browser.run("document.title")
    browser.run("void (location.hash = '#headline')")
    browser.wait_for("document.getElementById('run').hidden")
    # What no run here touches is one line that opens.
    folded = browser.run("document.getElementById('papers').open")
    assert folded is False and "need other runs" in browser.run(
        "document.querySelector('#papers summary').textContent"
    )
    browser.run("void (location.hash = '#gallery')")
    browser.wait_for("document.getElementById('papers').open")
    assert browser.errors == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_readers_at_any_width_see_all_of_it_and_axe_finds_nothing(
    page: Browser, theme: str
) -> None:
    page.theme(theme)
    page.page.reload()  # charts take their colours as they are drawn
    page.wait_for(CHARTED)
    try:
        assert page.clipped() == []
        assert page.violations() == []
        open_run(page, DRAWN)
        page.wait_for(RUN_CHARTED)
        assert page.violations() == []
        dark = (
            page.run("getComputedStyle(document.body).backgroundColor")
            != "rgb(246, 247, 249)"
        )
        assert dark == (theme == "dark")
    finally:
        page.theme("light")


@pytest.mark.parametrize("width", [400, 1200])
def test_the_table_of_runs_opens_with_system_and_time(
    page: Browser, width: int
) -> None:
    page.resize(width)
    for place in (1, 2):
        right = (
            "document.querySelector('#run-table thead "
            f"th:nth-child({place})').getBoundingClientRect().right"
        )
        assert page.run(right) <= width
    heads = page.run(
        "[...document.querySelectorAll('#run-table thead th')].map((cell) => "
        "cell.textContent)"
    )
    assert heads[:2] == ["system", "epoch s"]
    assert heads[-1].startswith("run")
    assert (
        page.run(
            "getComputedStyle(document.querySelector('#run-table thead "
            "th:nth-child(2)')).textAlign"
        )
        == "right"
    )


def test_marks_in_the_dark_have_outlines_and_pictures_a_softer_white(
    page: Browser,
) -> None:
    outline = "document.getElementById('chart-runs').data[0].marker.line.color"
    insert = (
        "document.querySelector('#gallery').insertAdjacentHTML('beforeend', '<div "
        "class=picture><img></div>')"
    )
    picture = "getComputedStyle(document.querySelector('#gallery .picture img')).filter"
    try:
        found = {}
        for theme in ("light", "dark"):
            page.theme(theme)
            page.page.reload()  # charts take their colours as they are drawn
            page.wait_for(CHARTED)
            page.run(insert)
            found[theme] = (page.run(outline), page.run(picture))
        assert found == {
            "light": ("#1b2430", "none"),
            "dark": ("#e6eaf0", "brightness(0.86)"),
        }
    finally:
        page.theme("light")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Report of six systems at five budgets, one of which ends out of memory at the
    least two."""
    root = tmp_path_factory.mktemp("sweep")
    for step, system in enumerate(
        ("pyg+", "ali+pg", "ginex", "gnndrive", "diskgnn", "in-memory")
    ):
        for budget in (16, 32, 64, 128, 256):
            memory = f"+{budget * 2**20}"
            if system == "in-memory" and budget < 64:
                save(
                    root,
                    make_record(
                        system, [], status="oom", memory=memory, experiment="sweep"
                    ),
                )
            else:
                seconds = (40.0 - 6 * step) * (64 / budget) ** 0.5
                save(
                    root,
                    make_record(
                        system,
                        [seconds, seconds * 1.02],
                        memory=memory,
                        experiment="sweep",
                    ),
                )
    return write_report(root, draw=False).path


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_report_of_a_sweep_fits_any_window_and_axe_finds_nothing(
    browser: Browser, sweep: Path, theme: str
) -> None:
    browser.errors.clear()
    browser.theme(theme)
    browser.open(sweep)
    browser.wait_for("document.querySelector('#chart-runs .main-svg')")
    try:
        browser.run("document.getElementById('show-all').click()")
        assert browser.run(ROWS) == 30
        assert browser.clipped() == []
        assert browser.violations() == []
        assert browser.errors == []
    finally:
        browser.theme("light")
