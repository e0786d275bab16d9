"""The report follows from the records alone: the fastest system, the confidence in it,
and missing runs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.claims import Judged
from harness.claims.judge import measured_text, published_text
from harness.compare.sizes import data_sizes, sizes_of
from harness.judge import rules
from harness.judge.metrics import summarised_anew
from harness.records.record import Record
from harness.report import write_report
from harness.report.beside import PLOTLY, RUNS, folder_of
from harness.report.gallery import Scoreboard, gallery, read_markdown
from harness.report.headline import Headline, headline, who_is_ahead
from harness.report.outdated import MARK, is_current, mark_outdated
from harness.report.page import SCRIPTS, TEMPLATES
from harness.report.runs import (
    LOG_TAIL,
    POINTS,
    SPANS,
    log_tail,
    pipeline,
    table_of,
    timeline,
)
from harness.report.standings import settings_of, times_as_fast
from harness.results import store as results
from harness.results.table import load
from tests.harness.records import make_record, save
from tests.harness.report_tools import (
    EVIL,
    HOSTS,
    Page,
    changed,
    disk_study,
    filled_root,
    full_telemetry,
    keep,
    pages_of_runs,
    stages_of,
    timelines,
    written_folder,
)
from workloads.errors import InputError


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled_root(tmp_path_factory)


def plain(*records: Record) -> list[dict[str, Any]]:
    for record in records:
        record.summary = summarised_anew(record)
    return [record.to_json() for record in records]


def reported(*records: Record) -> Headline:
    return headline(settings_of(plain(*records)), plain(*records))


def written(root: Path) -> Page:
    return Page((root / "report.html").read_text())


def embedded(page: Page, name: str) -> Any:
    scripts = [attrs for tag, attrs in page.tags if tag == "script"]
    return json.loads(page.scripts[[attrs.get("id") for attrs in scripts].index(name)])


def test_the_headline_names_the_fastest_by_how_much_and_how_sure() -> None:
    story = reported(
        make_record("gnndrive", [10.0, 10.5, 9.5, 10.0, 10.2]),
        make_record("ginex", [20.0, 21.0, 19.0, 20.0, 20.5]),
        make_record("pyg+", [50.0, 50.0, 50.0, 50.0, 50.0]),
    ).first
    assert story is not None
    assert story.winner == "gnndrive"
    assert "10 s an epoch with all of its work (95 % interval" in story.lead
    assert "2.00 times as fast as ginex, the next" in story.lead
    assert "4.98 times as fast as pyg+, the slowest" in story.lead, "ratios of means"
    assert "With 95 % confidence the ratio to ginex lies between" in story.sure
    assert story.sure.endswith("gnndrive is the faster of the two.")
    assert story.place == "is fastest"
    assert [row.system for row in story.rows] == ["gnndrive", "ginex", "pyg+"]
    assert "EMULATED a10g" in story.setting
    assert "storage" not in story.lead


def test_altered_records_alter_the_headline() -> None:
    for factor, winner in ((1.0, "gnndrive"), (3.0, "ginex")):
        story = reported(
            make_record("gnndrive", [10.0 * factor, 11.0 * factor]),
            make_record("ginex", [20.0, 21.0]),
        ).first
        assert story is not None
        assert story.winner == winner


def test_below_five_epochs_a_range_is_given_and_stated_to_be_one() -> None:
    story = reported(
        make_record("gnndrive", [10.0, 11.0]), make_record("ginex", [20.0, 22.0])
    ).first
    assert story is not None
    assert "between 1.82 and 2.20" in story.sure
    assert "too few for a confidence interval" in story.sure
    assert "every measured epoch of gnndrive was faster" in story.sure


def test_an_order_that_the_epochs_do_not_decide_is_stated_to_be_open() -> None:
    story = reported(
        make_record("gnndrive", [10.0, 30.0]), make_record("ginex", [21.0, 20.0])
    ).first
    assert story is not None
    assert "either of the two may be the faster" in story.sure
    assert story.place == "is ahead, not surely"
    once = reported(make_record("gnndrive", [10.0]), make_record("ginex", [20.0])).first
    assert once is not None
    assert "no confidence estimate" in once.sure
    assert once.place == "is ahead, not surely"


def test_a_system_that_alone_has_a_result_is_not_called_fastest() -> None:
    alone = reported(make_record("gnndrive", [10.0, 10.0])).first
    only = reported(
        make_record("gnndrive", [10.0, 10.0]),
        make_record("in-memory", [], status="oom"),
    ).first
    assert alone is not None
    assert alone.place == "was measured alone"
    assert only is not None
    assert only.place == "is the only one with a result"


def test_the_interval_of_a_ratio_holds_the_true_one() -> None:
    rng = np.random.default_rng(1)
    samples = [
        (10 * rng.lognormal(0, 0.05, 8), 20 * rng.lognormal(0, 0.05, 8))
        for _ in range(50)
    ]
    held = 0
    for fast, slow in samples:
        one, other = settings_of(
            plain(make_record("a", list(fast)), make_record("b", list(slow)))
        )[0].standings
        spread = times_as_fast(one, other)
        assert spread.interval_kind == "bootstrap95"
        assert spread.interval[0] <= spread.median <= spread.interval[1]
        held += spread.interval[0] <= 2.0 <= spread.interval[1]
    assert held >= 42


def test_hosts_devices_and_settings_are_split_never_averaged() -> None:
    records = [
        changed(make_record("gnndrive", [10.0, 10.0]), environment=HOSTS[0]),
        changed(make_record("ginex", [12.0, 12.0]), environment=HOSTS[0]),
        changed(make_record("gnndrive", [1.0, 1.0]), environment=HOSTS[1]),
        changed(
            make_record("gnndrive", [99.0], device="cpu", device_memory_bytes=None),
            environment=HOSTS[0],
        ),
        changed(make_record("gnndrive", [50.0], dim=256), environment=HOSTS[0]),
        changed(make_record("gnndrive", [0.1], stages="sample"), environment=HOSTS[0]),
    ]
    settings = settings_of(plain(*records))
    assert sorted(s.samples[0] for setting in settings for s in setting.standings) == [
        1.0,
        10.0,
        12.0,
        50.0,
        99.0,
    ]
    assert len(settings) == 4, "sampling alone is no epoch time"
    assert [standing.system for standing in settings[0].standings] == [
        "gnndrive",
        "ginex",
    ]


def test_the_report_opens_with_a_storage_bound_setting_of_two_systems_if_there_is_one() -> (
    None
):
    bound = [
        changed(make_record(name, [9.0, 9.0]), class_="storage-bound")
        for name in ("ginex", "gnndrive")
    ]
    fits = [
        changed(make_record(name, [1.0, 1.0, 1.0], memory="8GiB"), class_="fits memory")
        for name in ("ginex", "gnndrive", "pyg+")
    ]
    settings = settings_of(plain(*fits, *bound))
    assert [len(setting.standings) for setting in settings] == [2, 3]
    assert settings[0].storage_bound
    (alone, *_) = settings_of(plain(*fits, bound[0]))
    assert not alone.storage_bound, "one system has no order"


@pytest.mark.parametrize("verdict", ["INVALID", "SPOILT"])
def test_rounds_are_pooled_and_warm_up_and_invalid_runs_left_out(verdict: str) -> None:
    records = [make_record("gnndrive", [1.0 + k, 2.0 + k], round=k) for k in (0, 1)]
    records.append(make_record("pyg+", [0.001], verdict=verdict))
    setting = settings_of(plain(*records))[0]
    assert setting.standings[0].samples == [1.0, 2.0, 2.0, 3.0]
    assert setting.uncounted == [verdict]
    story = reported(*records).first
    reason = {"INVALID": "1 invalid run", "SPOILT": "1 run spoilt by other programs"}[
        verdict
    ]
    assert story is not None
    assert f"{reason} was left out." in story.notes
    assert "No other system was measured" in story.sure


def test_what_speaks_against_the_headline_is_stated() -> None:
    ginex = make_record("ginex", [12.0, 12.0])
    gnndrive = make_record("gnndrive", [10.0, 10.0], verdict="CAVEATS")
    spent = gnndrive.preprocess.model_copy(update={"seconds": 60.0})
    own = [
        epoch.model_copy(update={"digest": "xxh3:own"})
        for epoch in make_record("mariusgnn", [11.0, 11.0]).epochs
    ]
    story = reported(
        ginex,
        make_record("pyg+", [13.0]),
        changed(gnndrive, preprocess=spent),
        changed(make_record("mariusgnn", [11.0, 11.0]), epochs=own),
        make_record("in-memory", [], status="oom"),
        make_record("in-memory", [2.0], memory="none"),
    ).first
    assert story is not None
    notes = " ".join(story.notes)
    assert "in-memory ran out of memory" in notes
    assert (
        "Without a memory cap in-memory takes 2 s an epoch; gnndrive takes 5.00 times "
        "that." in notes
    )
    assert story.trainings == [
        "In a training of E epochs, with all work counted, the least time is that of: "
        "mariusgnn for 1 to 60 epochs, gnndrive from 61 epochs on."
    ]
    assert "mariusgnn trained on mini-batches of its own" in notes
    assert "rule 10 disk class was enforced (gnndrive)" in notes


def test_a_bench_of_several_budgets_states_who_is_ahead_at_each() -> None:
    def at(memory: str, graph: float, ginex: float) -> list[Record]:
        made = [
            make_record("ginex", [ginex], memory=memory),
            make_record("gnndrive", [10.0], memory=memory),
        ]
        return [
            changed(
                r, summary=r.summary.model_copy(update={"topology_over_budget": graph})
            )
            for r in made
        ]

    alone = make_record("in-memory", [1.0], memory="none")
    one = who_is_ahead(plain(*at("+64MiB", 2.0, 20.0), alone), "quick")
    assert one[0].startswith("gnndrive takes 10 s an epoch")
    assert len(one) == 1
    small = at("+64MiB", 2.0, 20.0)
    large = at("+256MiB", 0.5, 5.0)
    lines = who_is_ahead(plain(*small, *large, alone), "quick")
    assert lines[0].startswith("memory 256")
    assert ": ginex takes 5 s" in lines[0]
    assert lines[1].startswith("memory 64")
    assert ": gnndrive takes 10 s" in lines[1]
    assert len(lines) == 2


def test_no_records_and_only_failed_runs_are_reported_in_a_sentence(
    tmp_path: Path,
) -> None:
    written_ = write_report(tmp_path, draw=False)
    assert written_.runs == 0
    assert "There are no run records yet" in written(tmp_path).text
    for status in ("oom", "failed"):
        keep(tmp_path, make_record("gnndrive", [], status=status))
    write_report(tmp_path, draw=False)
    text = written(tmp_path).text
    assert "None of the 2 runs counts as a measurement: 1 failed, 1 oom." in text
    assert "2 without a result" in text


def test_records_that_cannot_be_read_are_counted_and_never_stop_it(
    tmp_path: Path,
) -> None:
    keep(tmp_path, make_record("gnndrive", [1.0, 2.0]), make_record("pyg+", [3.0, 4.0]))
    good = (results.run_folders(tmp_path)[0] / "record.json").read_text()
    damage = {
        "a-cut": good[: len(good) // 2],
        "b-empty": "",
        "c-later": good.replace('"schema": 1', '"schema": 99'),
    }
    for name, text in {**damage, "d-list": "[]", "e-<b>": "{}"}.items():
        (results.runs_folder(tmp_path) / name).mkdir()
        (results.runs_folder(tmp_path) / name / "record.json").write_text(text)
    found = write_report(tmp_path, draw=False)
    assert (found.runs, found.unreadable) == (2, 5)
    page = written(tmp_path)
    assert "5 records were not read" in page.text
    assert "e-<b>" in page.text
    assert "gnndrive is fastest" in page.text


def test_damaged_telemetry_costs_only_its_chart(tmp_path: Path) -> None:
    keep(tmp_path, make_record("gnndrive", [1.0, 2.0]), make_record("pyg+", [3.0, 4.0]))
    first, second = results.run_folders(tmp_path)
    (first / "telemetry.parquet").write_bytes(b"PAR1 cut off")
    (first / "stages.parquet").unlink()
    write_report(tmp_path, draw=False)
    assert timelines(tmp_path / "report.html") == {second.name}


def test_every_value_is_escaped(filled: Path) -> None:
    page = written(filled)
    assert EVIL in page.text, "the name is shown as text"
    tags = {tag for tag, _ in page.tags}
    assert not any("onerror" in attrs for _, attrs in page.tags)
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 1 + len(SCRIPTS), (
        "data and ours"
    )
    assert all("hostile" not in script for script in page.scripts[1:])
    mine = Page((TEMPLATES / "report.html").read_text())
    assert tags <= {tag for tag, _ in mine.tags}, (
        "no value became an element that the template lacks"
    )


def test_the_page_names_nothing_that_would_be_fetched_from_elsewhere(
    filled: Path,
) -> None:
    page = written(filled)
    pictures = 0
    for tag, attrs in page.tags:
        for name in ("srcset", "data", "poster", "action"):
            assert name not in attrs, (tag, attrs)
        if "src" in attrs:
            assert tag == "img"
            assert attrs["loading"] == "lazy"
            assert (filled / str(attrs["src"])).is_file()
            pictures += 1
    assert pictures
    for tag, attrs in page.tags:
        if tag == "link":
            assert str(attrs["href"]).startswith("data:")
        if tag == "a":
            assert not str(attrs["href"]).startswith(
                ("http:", "https:", "//", "javascript:")
            )
    text = (filled / "report.html").read_text()
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    policy = next(
        attrs["content"]
        for tag, attrs in page.tags
        if tag == "meta" and "http-equiv" in attrs
    )
    assert "default-src 'none'" in str(policy)
    assert "connect-src 'none'" in str(policy)


def test_only_runs_that_figures_draw_have_timelines(filled: Path) -> None:
    drawn = set()
    for file in (filled / "figures").glob("*.json"):
        drawn |= set(json.loads(file.read_text())["runs"])
    story = headline(
        settings_of(list(load(filled)["record"]), ["quick"]),
        list(load(filled)["record"]),
    )
    assert story.first is not None
    shown = timelines(filled / "report.html")
    assert shown
    assert shown <= drawn | {row.run for row in story.first.rows}
    assert set(pages_of_runs(filled / "report.html")) == {
        folder.name for folder in results.run_folders(filled)
    }


def test_the_first_page_stays_below_a_megabyte_with_many_runs(tmp_path: Path) -> None:
    for system in ("pyg+", "ginex", "gnndrive", "diskgnn"):
        for budget in range(100):
            memory = f"+{(32 + budget) * 2**20}"
            times = [budget + 1.0, budget + 1.5]
            save(tmp_path, make_record(system, times, memory=memory))
    written = write_report(tmp_path)
    assert written.runs == 400
    assert written.size == written.path.stat().st_size < 1_000_000
    assert written.figures > 0
    assert len(pages_of_runs(written.path)) == 400


def test_a_new_report_replaces_pictures_and_runs_of_the_former_one_alone(
    tmp_path: Path,
) -> None:
    keep(tmp_path, make_record("gnndrive", [1.0, 2.0]))
    page = write_report(tmp_path, draw=False).path
    former = written_folder(page)
    keep(tmp_path, make_record("pyg+", [3.0, 4.0]))
    folder_of(page).joinpath("mine").mkdir()
    write_report(tmp_path, draw=False)
    (place,) = {*folder_of(page).iterdir()} - {folder_of(page) / "mine"}
    assert place != former
    assert place.name in page.read_text()
    assert place.stat().st_mode & 0o777 == 0o755
    assert (place / PLOTLY).stat().st_size > 1_000_000
    assert len(list((place / RUNS).iterdir())) == 2


def test_links_lead_to_the_files_beside_it(filled: Path, tmp_path: Path) -> None:
    from urllib.parse import unquote

    write_report(filled, tmp_path / "elsewhere" / "r.html")
    for out in (filled / "report.html", tmp_path / "elsewhere" / "r.html"):
        page = Page(out.read_text())
        links = [
            str(attrs["href"])
            for tag, attrs in page.tags
            if tag == "a" and "/figures/" in str(attrs.get("href"))
        ]
        assert links
        assert all((out.parent / unquote(link)).is_file() for link in links)
        for run in pages_of_runs(out).values():
            files = run["details"]["files"]
            assert all(
                (out.parent / unquote(address)).is_file() for _, address in files
            )


def test_a_report_is_whole_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a folder"):
        write_report(tmp_path, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"could not be written.*choose another place"):
        write_report(tmp_path, tmp_path / "file" / "report.html")
    assert not list(tmp_path.glob(".*"))


def test_a_page_stays_where_the_folder_beside_it_cannot_be_written(
    tmp_path: Path,
) -> None:
    keep(tmp_path, make_record("gnndrive", [1.0, 2.0]))
    page = write_report(tmp_path, draw=False).path
    before = page.read_bytes()
    folder_of(page).rename(tmp_path / "elsewhere")
    folder_of(page).write_text("a file in place of the folder")
    with pytest.raises(InputError, match=r"could not be written.*choose another place"):
        write_report(tmp_path, draw=False)
    assert page.read_bytes() == before
    assert not list(tmp_path.glob(".*-*"))


def test_a_timeline_is_thinned_to_means_and_keeps_what_is_unknown() -> None:
    t = np.arange(0.0, 120.0, 0.1)
    table = pd.DataFrame(
        {
            "t": t,
            "cpu_percent": t,
            "gpu_percent": np.nan,
            "disk_read_bytes": np.full(len(t), 1e6),
        }
    )
    table.loc[table["t"].between(60, 70), "cpu_percent"] = np.nan
    line = timeline(table)
    assert line is not None
    assert len(line["t"]) == POINTS
    assert "gpu" not in line
    known = [value for value in line["cpu"] if value is not None]
    assert np.isclose(np.mean(known), table["cpu_percent"].mean(), rtol=0.02)
    assert line["cpu"].count(None) == pytest.approx(POINTS / 12, abs=2)
    assert [value for value in line["read"] if value] == pytest.approx(
        [10.0] * POINTS, rel=0.02
    ), "MB/s"
    short = timeline(table.head(50))
    assert short is not None
    assert len(short["t"]) == 50
    assert timeline(table.head(0)) is None


def test_a_pipeline_shows_the_first_measured_epoch_batch_by_batch() -> None:
    record = make_record("gnndrive", [2.0, 3.0])
    shown = pipeline(stages_of(record), record.to_json())
    assert shown is not None
    assert (shown["epoch"], shown["batches"], shown["of"]) == (1, 20, 20)
    assert shown["stages"] == ["sample", "extract", "train"], (
        "lanes of the device are no stages"
    )
    first = [span for span in shown["spans"] if span[1] == 0]
    assert [span[0] for span in first] == [0, 1, 2]
    assert first[0][2] == 0.0
    assert max(span[2] + span[3] for span in shown["spans"]) <= 2000.0
    many = pipeline(stages_of(record, batches=2000), record.to_json())
    assert many is not None
    assert len(many["spans"]) <= SPANS
    assert many["batches"] < many["of"] == 2000


def test_the_page_reads_each_text_of_the_table_of_runs_as_text() -> None:
    """A row has the number of its text; a column that the script takes for one of
    numbers would show this number."""
    table = table_of(plain(make_record("gnndrive", [2.0], max_batches=16)))
    script = (TEMPLATES / "core.js").read_text()
    textual = set(
        re.findall(
            r'"(\w+)"', script[script.index("textual = new Set") : script.index("]);")]
        )
    )
    assert textual <= set(table["columns"])
    row = dict(zip(table["columns"], table["rows"][0], strict=True))
    assert table["texts"][row["part"]].startswith("first 16")
    assert "part" in textual
    assert {
        table["texts"][row[name]] for name in textual if row[name] is not None
    } == set(table["texts"])


def test_timelines_use_the_names_of_the_recorder() -> None:
    from harness.report.runs import LEVELS, RATES
    from harness.telemetry.frame import COLUMNS

    assert set(LEVELS) | set(RATES) <= set(COLUMNS)
    line = timeline(full_telemetry(make_record("gnndrive", [2.0])))
    assert line is not None
    assert set(line) == {
        "t",
        *(name for name, _ in [*LEVELS.values(), *RATES.values()]),
    }


def test_a_log_keeps_its_end_and_no_control_characters(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(1000)]
    keep(
        tmp_path,
        make_record("gnndrive", [1.0]),
        log="\n".join([*lines, "\x1b[31mred\u202eder\x1b[0m", "end"]),
    )
    tail = log_tail(results.run_folders(tmp_path)[0])
    assert tail.startswith("… line ")
    assert tail.endswith("�[31mred�der�[0m\nend")
    assert len(tail) <= LOG_TAIL
    assert log_tail(tmp_path) == ""


def test_a_claim_shows_what_there_is_and_a_dash_for_what_is_not() -> None:
    text = dict.fromkeys(
        (
            "paper",
            "claim",
            "condition",
            "tolerance",
            "read",
            "figure",
            "profile",
            "setting",
        ),
        "",
    )
    known: Any = {**text, "paper_value": "16.9", "unit": "x"}
    number: Any = {
        "measured": 12.345,
        "interval": [11.0, 13.0],
        "interval_kind": "bootstrap95",
    }
    claim = Judged(id="x", verdict="reproduced", **known, **number)
    assert (published_text(claim), measured_text(claim)) == (
        "16.9 x",
        "12.3 x [11–13, 95 %]",
    )
    nothing = Judged(id="y", verdict="not run", **known)
    assert measured_text(nothing) == "–"
    counts = dict(Scoreboard([claim, nothing]).counts())
    assert counts == {
        "reproduced": 1,
        "direction only": 0,
        "not reproduced": 0,
        "emulated": 0,
        "not run": 1,
    }


def test_every_verdict_of_a_claim_has_a_tone_and_a_mark() -> None:
    from harness.claims.published import VERDICTS
    from harness.report import page

    assert set(VERDICTS) == set(page.TONES) == set(page.MARKS)
    css = (page.TEMPLATES / "report.css").read_text()
    assert all(
        f".badge.{tone}" in css for tone in page.TONES.values() if tone != "none"
    )


def test_every_published_claim_is_on_the_scoreboard(filled: Path) -> None:
    import csv

    from harness.figures.base import PUBLISHED

    with (PUBLISHED / "claims.csv").open() as file:
        ids = {row["id"] for row in csv.DictReader(file)}
    text = written(filled).text.split()
    assert ids
    assert ids <= set(text)


@dataclass
class Section:
    """One section's HTML: what is open, and what is folded away."""

    open: str
    folded: str


def sections(root: Path) -> dict[str, Section]:
    """The sections of a report by id."""
    found = {}
    for text in re.split(
        r"(?=<section id=)", (root / "report.html").read_text().partition("</main>")[0]
    )[1:]:
        # The outermost folds; cards of the gallery have folds of their own.
        at = 0
        depth = 0
        parts = ("", "")
        for tag in re.finditer("<details|</details>", text):
            opened, folded = parts
            piece = text[at : tag.start()]
            at = tag.start()
            parts = (opened, folded + piece) if depth else (opened + piece, folded)
            depth += 1 if tag[0] == "<details" else -1
        assert depth == 0
        found[text.split('"')[1]] = Section(parts[0] + text[at:], parts[1])
    return found


def test_claims_and_figures_without_runs_are_folded_away_and_counted(
    tmp_path: Path,
) -> None:
    """One run reproduces nothing: no score, no tile and no heading speaks of claims
    that it cannot judge."""
    keep(tmp_path, make_record("gnndrive", [1.0, 2.0]))
    write_report(tmp_path)
    shown = sections(tmp_path)
    assert (
        "None of the 97 published claims can be judged by these runs"
        in shown["claims"].open
    )
    assert "97 claims have no runs here" in shown["claims"].folded
    assert "claims" not in shown["headline"].open
    assert "not run" not in shown["claims"].open
    assert "<form" not in shown["claims"].open
    assert "gnndrive-fig9" in shown["gallery"].folded
    assert 'id="figure-gnndrive-fig9"' not in shown["gallery"].open


@pytest.mark.slow("harness/report", "harness/claims")
def test_judged_claims_and_drawn_figures_are_open(tmp_path: Path) -> None:
    disk_study(tmp_path)
    write_report(tmp_path)
    shown = sections(tmp_path)
    assert 'id="figure-gnndrive-figB1"' in shown["gallery"].open
    judged = re.findall(r'data-verdict="([a-z ]+)"', shown["claims"].open)
    assert len(judged) == 2
    assert "not run" not in judged
    assert ">gd-27<" in shown["claims"].open
    assert set(re.findall(r'data-verdict="([a-z ]+)"', shown["claims"].folded)) == {
        "not run"
    }
    assert (
        f"<b>{judged.count('reproduced')} of 2</b>judged claims reproduced"
        in shown["headline"].open
    )
    assert "95 claims have no runs here" in shown["claims"].folded


def test_every_rule_that_is_named_leads_to_its_entry(filled: Path) -> None:
    """Rules in the headline's notes and in captions are links, and every link leads to
    an element of the page."""
    page = written(filled)
    ids = {str(attrs["id"]) for _, attrs in page.tags if "id" in attrs}
    links = [str(attrs["href"]) for tag, attrs in page.tags if tag == "a"]
    assert {f"rule-{rule.name}" for rule in rules()} | {
        f"rule-{rule.number}" for rule in rules()
    } <= ids
    to_rules = [link.removeprefix("#") for link in links if link.startswith("#rule-")]
    assert len(to_rules) > 3
    assert set(to_rules) <= ids
    outside = re.sub(
        r"<script.*?</script>|<a [^>]*>.*?</a>|<h3.*?</h3>|alt=\".*?\"",
        "",
        text_of(filled),
        flags=re.DOTALL,
    )
    assert re.findall(r"[Rr]ules? \d+", outside) == []


def text_of(root: Path) -> str:
    return (root / "report.html").read_text().partition("<body>")[2]


@pytest.mark.slow("harness/report", "harness/figures/render.py", "harness/cli/bench.py")
def test_a_report_without_figures_shows_none_of_older_records_and_removes_none(
    tmp_path: Path,
) -> None:
    disk_study(tmp_path)
    first = write_report(tmp_path)
    folder = tmp_path / "figures"
    made = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert first.figures > 0
    assert any(name.endswith(".png") for name in made)
    (finding,) = filter(None, [one["finding"] for one in marks(folder)])
    (image,) = [attrs for tag, attrs in written(tmp_path).tags if tag == "img"]
    assert str(image["alt"]).startswith(f"{finding}. "), (
        "the text of an image opens with what the figure found"
    )
    same = write_report(tmp_path, draw=False)
    assert same.figures == first.figures, "these are of the records"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == made
    keep(
        tmp_path,
        make_record("ginex", [30.0, 31.0], memory=f"+{64 * 2**20}", experiment="quick"),
    )
    later = write_report(tmp_path, draw=False)
    assert later.figures == 0
    assert {path.name for path in folder.iterdir()} == set(made)
    page = (tmp_path / "report.html").read_text()
    assert "data:image/webp" not in page
    assert "out of date: its files show earlier records" in page
    assert first.figures == sum(one["outdated"] for one in marks(folder))
    assert write_report(tmp_path).figures > 0
    assert not any(one["outdated"] for one in marks(folder))


def marks(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in folder.glob("*.json")]


@pytest.mark.slow("harness/report", "harness/figures/render.py", "harness/cli/bench.py")
def test_a_bench_without_figures_removes_nothing_and_names_what_is_out_of_date(
    tmp_path: Path,
) -> None:
    keep(
        tmp_path,
        *(
            make_record(
                "gnndrive", [9.0, 9.1], memory=f"+{m * 2**20}", experiment="quick"
            )
            for m in (32, 64)
        ),
    )
    write_report(tmp_path)
    report = tmp_path / "report.html"
    folder = tmp_path / "figures"
    files = {path.name for path in folder.iterdir()}
    fresh = report.read_text()
    found = mark_outdated(tmp_path)
    assert found.lines(tmp_path) == [] and report.read_text() == fresh, (
        "these are of the records"
    )
    keep(
        tmp_path,
        make_record("pyg+", [30.0, 31.0], memory=f"+{64 * 2**20}", experiment="quick"),
    )
    written_ns = report.stat().st_mtime_ns
    for _ in range(2):
        found = mark_outdated(tmp_path)
        assert found.report == report
        assert found.figures == [one["id"] for one in marks(folder) if one["outdated"]]
        (line,) = found.lines(tmp_path)
        assert line.startswith("out of date: ")
        assert str(report) in line
        assert found.figures[0] in line
        assert {path.name for path in folder.iterdir()} == files
        assert report.read_text() == fresh.replace("<body>", f"<body>\n{MARK}", 1)
        assert report.stat().st_mtime_ns == written_ns, "the mark makes it no newer"
    assert not is_current(report, tmp_path)
    write_report(tmp_path)
    assert MARK not in report.read_text()
    assert mark_outdated(tmp_path).lines(tmp_path) == []


def test_a_table_of_the_catalogue_is_read_back_as_it_was_shown() -> None:
    from harness.figures.base import Sheet
    from harness.figures.render import markdown

    shown = pd.DataFrame({"a|b": ["x|y", None], "n": ["1", "2"]})
    table = read_markdown(markdown(Sheet(shown, shown, "A caption."), "Title"))
    assert table is not None
    assert (table.header, table.rows) == (["a|b", "n"], [["x|y", "1"], ["–", "2"]])


def test_a_figure_that_was_not_drawn_states_why_and_a_lost_image_too(
    tmp_path: Path,
) -> None:
    from harness.figures.render import Rendered

    image = tmp_path / "gnndrive-fig9.png"
    image.write_bytes(b"no image")
    lost, absent = gallery(
        [
            Rendered("b", "p", "B", "not drawn", "no runs yet"),
            Rendered("a", "p", "A", "drawn", files=[image]),
        ],
        Scoreboard([]),
        "results",
    )
    assert (lost.id, lost.drawn, absent.drawn) == ("a", False, False)
    assert absent.reason == "no runs yet"
    assert "cannot be read" in lost.reason


def test_the_command_writes_it_and_states_where(
    filled: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from harness.cli import main

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["report", "--results-root", str(filled), *arguments])
        return int(ended.value.code or 0), capfd.readouterr().out

    out = tmp_path / "r.html"
    assert run("--out", str(out), "-q") == (0, f"report: {out}\n")
    code, text = run("--json")
    emitted = json.loads(text)
    assert code == 0
    assert emitted["report"] == str(filled / "report.html")
    assert emitted["bytes"] < 1e6
    assert emitted["runs"] == len(results.run_folders(filled))
    assert run("--out", str(tmp_path), "--json")[0] == 2
    assert run("--figures", "some")[0] == 2


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [
        (
            ("fits memory", "mixed", "storage-bound"),
            "Across runs, the data ranges from fitting memory to at least twice it",
        ),
        (
            ("fits memory", "mixed"),
            "Across runs, the data ranges from fitting memory to less than twice it",
        ),
        (
            ("mixed", "storage-bound"),
            "Across runs, the data ranges from exceeding memory to at least twice it",
        ),
        (("fits memory",), "In every run the data fits memory: not storage-bound"),
        (
            ("mixed",),
            "In every run the data is between one and two times the memory: not "
            "storage-bound",
        ),
        (("storage-bound",), ""),
        ((), ""),
    ],
)
def test_the_sizes_of_data_beside_memory_are_a_sentence(
    classes: tuple[str, ...], sentence: str
) -> None:
    assert data_sizes(classes) == sentence


def test_a_caption_names_the_sizes_of_data_and_graph_beside_memory() -> None:
    small = {"class": "fits memory", "summary": {"topology_over_budget": 0.2}}
    large = {"class": "storage-bound", "summary": {"topology_over_budget": 1.7}}
    assert sizes_of([]) == sizes_of([{"class": None}]) == ""
    assert sizes_of([small]) == "the data fits memory"
    beyond = "the data is at least twice the memory and the graph alone exceeds it"
    assert sizes_of([large, large]) == beyond
    ranges = "the data ranges from fitting memory to at least twice it"
    assert (
        sizes_of([small, large])
        == f"{ranges} and in 1 of 2 runs the graph alone exceeds it"
    )
