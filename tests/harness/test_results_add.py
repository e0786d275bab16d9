"""Times of other code are listed and drawn hollow beside ours; no order, claim or gate
sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from harness.compare.evidence import load_evidence
from harness.compare.plan import grid
from harness.compare.verdicts import NotDrawn
from harness.figures.base import catalogue
from harness.figures.draw.bars import HOLLOW
from harness.figures.draw.charts import Axis, bars, curves, lines
from harness.figures.render import render
from harness.records.foreign import FOREIGN, read_foreign
from harness.report.headline import who_is_ahead
from harness.report.standings import settings_of
from harness.report.write import write_report
from harness.results.table import load
from tests.harness.records import make_record, save
from tests.harness.test_results_verbs import Answer

SETTING = (
    "--dataset",
    "kron-d128",
    "--memory",
    "+64MiB",
    "--batch-size",
    "50",
    "--device",
    "emulated:a10g",
)
SETTING += ("--device-memory", "32MiB", "--disk-class", "aws-nvme/16")
HOW = "its own script under systemd-run, epochs 2 and 3"


def add(
    root: Path, capsys: Any, *more: str, name: str = "Ginex", seconds: str = "0.5,0.7"
) -> Answer:
    reported = ("--version", "a09d7ca", "--seconds", seconds, "--how", HOW)
    return Answer(root, capsys, "add", name, *reported, *SETTING, *more)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two of our systems in one setting, both slower than the other code that tests
    add."""
    save(
        tmp_path,
        make_record("ginex", [2.0, 2.2], experiment="quick"),
        make_record("gnndrive", [1.0, 1.2]),
    )
    return tmp_path


def test_added_times_are_listed_apart_and_marked(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = add(root, capsys, "--counter", "rows=120", "--host", "their lab", "--json")
    assert made.code == 0
    assert made.json["foreign"]["added"] is True
    again = add(root, capsys, "--counter", "rows=120", "--host", "their lab", "--json")
    assert again.json["foreign"] == {**made.json["foreign"], "added": False}
    listed = Answer(root, capsys, "list", "--json").json
    assert len(listed["runs"]) == 2
    assert {run["system"] for run in listed["runs"]} == {"ginex", "gnndrive"}
    (reported,) = listed["foreign"]
    assert reported["verdict"] == "FOREIGN"
    assert reported["seconds"] == [0.5, 0.7]
    assert reported["counters"] == {"rows": 120.0}
    text = Answer(root, capsys, "list").out
    assert "never judged, in no order, claim or gate" in text
    assert "Ginex a09d7ca (other code)" in text
    assert "VALID" not in text.partition("never judged")[2]
    assert (
        "never judged" not in Answer(root, capsys, "list", "--system", "gnndrive").out
    )
    assert "never judged" not in Answer(root, capsys, "list", "--verdict", "VALID").out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("--seconds", "fast"),
            "--seconds is 'fast', and 'fast' is no number; write it like 12.1,12.4",
        ),
        (("--seconds", "3,12_3"), "--seconds is '3,12_3', and '12_3' is no number"),
        *[
            (("--seconds", text), "an epoch takes from 1e-6 to 1e9 s")
            for text in ("0", "nan", "1e400", "3,1e308")
        ],
        (("--how", " "), "how"),
        (("--version", ""), "version"),
        (("--dataset", " "), "dataset is ' '; name one, or its folder"),
        (
            ("--fanout", "a,b"),
            "a whole number of neighbours for each hop, like 10,10,10, but is 'a,b'",
        ),
        (("--memory", "much"), "much"),
        (
            ("--counter", "rows=many"),
            "--counter is 'rows=many', and 'many' is no number; write it like "
            "rows=1200000",
        ),
        (("--counter", "rows"), "--counter is 'rows', and '' is no number"),
        *[
            (("--counter", f"rows={text}"), "counters.rows: input should be")
            for text in ("-5", "nan", "inf", "1e400")
        ],
        (
            ("--counter", "hits=5"),
            "--counter 'hits=5' is not a known counter; choose one of batches, ",
        ),
        (
            ("--counter", "rows=5", "--counter", "rows=6"),
            "--counter rows is given twice; give each once",
        ),
        (
            ("--counter", "rows=5", "--counter", "misses=6"),
            "misses are 6, more than the 5 rows",
        ),
        (("--layers", "7"), "layers is 7"),
    ],
)
def test_wrong_input_is_one_sentence_and_nothing_is_written(
    root: Path,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, ...],
    message: str,
) -> None:
    ended = add(root, capsys, *change)
    assert ended.code == 2
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert not (root / FOREIGN).exists()


def test_added_times_in_other_settings_differ_in_their_rows(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(root, capsys, "--hidden", "64")
    add(root, capsys, "--hidden", "128")
    monkeypatch.setenv("COLUMNS", "300")
    text = Answer(root, capsys, "list").out
    assert "hidden 64" in text
    assert "hidden 128" in text


def test_a_blank_name_and_a_results_root_that_is_a_file_are_refused(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = add(root, capsys, name="  ")
    assert ended.code == 2
    assert "system: " in ended.err
    assert not (root / FOREIGN).exists()
    (root / "file").write_text("")
    ended = add(root / "file", capsys)
    assert ended.code == 2
    assert ended.err.endswith("Not a directory; choose another place\n")


def test_a_damaged_file_is_written_again(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(add(root, capsys, "--json").json["foreign"]["path"])
    whole = json.loads(path.read_text())
    path.write_text(path.read_text()[:-20])
    assert add(root, capsys, "--json").json["foreign"]["added"] is True
    assert {**json.loads(path.read_text()), "added_at": ""} == {**whole, "added_at": ""}
    assert len(read_foreign(root)) == 1


def test_no_order_claim_gate_or_table_of_runs_sees_them(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def standings() -> Any:
        evidence = load_evidence(root)
        settings = settings_of(evidence.records, ["quick"])
        ahead = who_is_ahead(evidence.records, "quick")
        cells = evidence.cells(
            "outcore-roofline-test",
            lambda profile: grid(_shared(profile), ["ginex", "gnndrive"], {1: {}}),
            least=1,
        )
        return (
            settings,
            ahead,
            cells.medians().to_dict("records"),
            list(load(root)["run_id"]),
        )

    before = standings()
    add(root, capsys)
    assert standings() == before
    assert before[1][0].startswith("gnndrive takes 1.1")


def _shared(profile: Any) -> Any:
    keys = {
        "name": "kron-d128",
        "memory": "+64MiB",
        "batch_size": 50,
        "device": "emulated:a10g",
    }
    run = {key: value for key, value in keys.items() if key != "name"}
    run |= {
        "device_memory": "32MiB",
        "disk_class": "aws-nvme/16",
        "dataset": keys["name"],
    }
    recipe = next(iter(profile["datasets"].values()))
    return {**profile, "run": run, "grid": {}, "datasets": {"kron-d128": recipe}}


def drawn(root: Path, draw: Any) -> Any:
    """Draw the cells of two systems over one axis, of the records of `root`; return the
    drawing."""
    mpl.use("Agg")

    def plan(profile: Any) -> Any:
        axis = {50: {}, 60: {"batch_size": 60}}
        return grid(_shared(profile), ["ginex", "gnndrive"], axis)

    return draw(load_evidence(root).cells("outcore-roofline-test", plan))


AXIS = Axis("batch")


@pytest.fixture
def two_places(root: Path) -> Path:
    save(
        root,
        make_record("ginex", [3.0], batch_size=60),
        make_record("gnndrive", [1.5], batch_size=60),
    )
    return root


def test_bars_of_other_code_are_hollow_and_their_rows_state_so(
    two_places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = drawn(two_places, lambda cells: bars(cells, AXIS, title="t"))
    add(two_places, capsys)
    add(two_places, capsys, name="Elsewhere", seconds="9.0")
    with_theirs = drawn(two_places, lambda cells: bars(cells, AXIS, title="t"))
    (axes,) = with_theirs.canvas.axes
    hollow = [
        patch for patch in axes.patches if patch.get_linestyle() == HOLLOW["linestyle"]
    ]
    assert sorted(patch.get_height() for patch in hollow) == [0.6, 9.0]
    assert all(patch.get_facecolor()[3] == 0.0 for patch in hollow)
    full = [patch for patch in axes.patches if patch not in hollow]
    assert sorted(patch.get_height() for patch in full) == [1.1, 1.5, 2.1, 3.0]
    colors = {patch.get_facecolor() for patch in plain.canvas.axes[0].patches}
    assert {patch.get_facecolor() for patch in full} == colors  # ours keep their looks
    for name in ("Ginex a09d7ca (other code)", "Elsewhere a09d7ca (other code)"):
        assert (
            name
            in with_theirs.caption.partition("reported by others and not judged: ")[2]
        )
    assert "reported by others" not in plain.caption
    theirs = with_theirs.data[with_theirs.data["verdict"] == "FOREIGN"]
    assert list(theirs["x"]) == [50, 50]
    assert set(theirs["run"]) == {""}
    assert with_theirs.runs == plain.runs


@pytest.mark.parametrize("kind", [lines, curves])
def test_lines_of_other_code_are_hollow(
    two_places: Path, capsys: pytest.CaptureFixture[str], kind: Any
) -> None:
    add(two_places, capsys)
    more = {"title": "t"} if kind is lines else {}
    drawing = drawn(two_places, lambda cells: kind(cells, AXIS, **more))
    (axes,) = [one for one in drawing.canvas.axes if one.get_visible()]
    hollow = [
        line for line in axes.lines if line.get_label() == "Ginex a09d7ca (other code)"
    ]
    assert [list(line.get_ydata()) for line in hollow] == [[0.6]]
    assert hollow[0].get_markerfacecolor() == "none"


def test_a_record_in_another_setting_is_not_drawn(
    two_places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(two_places, capsys, "--hidden", "64")
    drawing = drawn(two_places, lambda cells: bars(cells, AXIS, title="t"))
    assert "hollow" not in drawing.data
    assert "reported by others" not in drawing.caption


def test_an_added_time_makes_figures_stale_and_a_changed_file_is_named(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = [catalogue()["outcore-roofline"]]
    first = render(figure, load_evidence(root), root / "figures", draw=False)
    add(root, capsys)
    evidence = load_evidence(root)
    assert len(evidence.foreign) == 1
    assert first[0].inputs == ""
    (path,) = (root / FOREIGN).glob("*.json")
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "seconds": [0.1]}))
    assert read_foreign(root) == []
    listed = Answer(root, capsys, "list")
    assert "was changed after it was added" in listed.err
    assert "Ginex" not in listed.out


def test_the_report_shows_them_apart(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(root, capsys, name="<b>Ginex</b>")
    text = write_report(root, root / "out.html", draw=False).path.read_text(
        encoding="utf-8"
    )
    assert "never judged, in no order" in text
    assert "&lt;b&gt;Ginex&lt;/b&gt; a09d7ca (other code)" in text
    assert "<b>Ginex</b>" not in text


def test_the_fidelity_table_sets_reimplementations_beside_their_originals(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = catalogue()["outcore-fidelity"]
    with pytest.raises(NotDrawn, match="no reimplementation and its original"):
        figure.draw(load_evidence(root))
    add(
        root,
        capsys,
        "--counter",
        "rows=500",
        "--counter",
        "batches=50",
        "--counter",
        "misses=100",
        seconds="4.0,4.4",
    )
    add(root, capsys, "--hidden", "64", seconds="1.0")  # another setting
    save(
        root,
        make_record("pyg+", [2.0, 2.0]),
        make_record("env:pyg", [6.0]),
        make_record("env:dgl", [1.0]),
    )
    save(root, make_record("dgl", [1.0], verdict="INVALID"))
    table = figure.draw(load_evidence(root))
    shown = table.shown.set_index("system")
    ginex = shown.loc["ginex"]
    pyg = shown.loc["pyg+"]
    assert (ginex["original"], ginex["epoch (s)"], ginex["its epoch (s)"]) == (
        "Ginex a09d7ca (other code)",
        "2.1",
        "4.2",
    )
    assert ginex["times as fast"] == "2.00"
    assert ginex["rows"] == "0 / 10"
    assert ginex["hits"] == "0.0 % / 80.0 %"
    assert (pyg["original"], pyg["times as fast"], pyg["rows"]) == (
        "env:pyg",
        "3.00",
        "0 / 0",
    )
    rest = shown.drop(index=["ginex", "pyg+"])
    assert set(rest["its epoch (s)"]) == {"not measured"}
    assert "dgl" in rest.index
    assert (
        table.finding
        == "Times as fast as the originals: pyg+ 3, ginex 2; 6 not measured"
    )
    assert len(shown) == 8
    assert all(shown["differs by design"] != "–")
    assert sorted(run.rpartition("-")[2] for run in table.runs) == [
        "env:pyg",
        "ginex",
        "pyg+",
    ]


def test_rows_in_a_memory_map_are_no_hits(root: Path) -> None:
    # Their counters have no misses: the kernel alone knows which rows it read, and says
    # so where faults were counted.
    reported = make_record("pyg+", [2.0])
    silent = make_record("dgl", [2.0])
    for epoch in (*reported.epochs, *silent.epochs):
        epoch.counters |= {"rows": 100, "hits": {"page_cache": 100}, "misses": 0}
    for epoch in reported.epochs:
        epoch.counters["observed"] = {"page_cache_miss_ratio": 0.25}
    save(
        root,
        reported,
        silent,
        make_record("env:pyg", [6.0]),
        make_record("env:dgl", [1.0]),
    )
    shown = (
        catalogue()["outcore-fidelity"]
        .draw(load_evidence(root))
        .shown.set_index("system")
    )
    assert shown.loc["pyg+", "hits"].startswith("75.0 % /")
    assert shown.loc["dgl", "hits"].startswith("– /")
