from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli.regress import print_comparison
from harness.regress.comment import MARKER, answer, sparkline
from harness.regress.decision import Comparison
from harness.regress.judge import compare
from harness.regress.outputs import KINDS, write
from tests.harness.regress.samples_made import cells, made, session
from workloads.errors import InputError

COMMITS = {"base": "a" * 40, "head": "b" * 40}
DETAILS = {
    "commits": COMMITS,
    "seconds": 12.0,
    "range": ["b" * 40, "c" * 40],
    "baselines": {"diskgnn +20MiB": [1.0, 1.01, 1.3], "ginex +20MiB": [2.0] * 9},
    "pairs": [10, 10],
    "host": "0123456789ab",
    "dates": {"base": 1, "head": 2},
    "rules": {"min_effect": 0.03, "alpha": 0.02, "seed": 0, "gate_times": True},
    "links": {"head": "https://github.com/o/r/commit/" + "b" * 40},
}


@pytest.fixture
def found() -> Comparison:
    """Compare runs in which diskgnn is slower with more requests, ginex the same, and
    gnndrive fails."""
    base = cells(
        session(10, seed=1), session(10, seed=3, system="ginex"), [made("gnndrive")]
    )
    head = cells(
        session(10, epoch=1.1, seed=2, requests=5001),
        session(10, seed=4, system="ginex"),
        [made("gnndrive", status="failed", reason="a | b <script> @everyone `x`")],
    )
    compared = compare(base, head, paired=True)
    return replace(
        compared,
        base="aaaaaaa first",
        head="bbbbbbb second | <b>",
        notes=["a note"],
        details=DETAILS,
    )


def _written(found: Comparison, kind: str, tmp_path: Path) -> str:
    write(kind, tmp_path / "out", found)
    return (tmp_path / "out").read_text()


def test_markdown_names_the_regressions_first_with_their_stage_and_links(
    found, tmp_path: Path
):
    text = _written(found, "markdown", tmp_path)
    assert text.rstrip().endswith(MARKER)
    before_fold = text.split("<details>")[0]
    assert "diskgnn +20MiB / epoch" in before_fold
    assert "most of it in extract" in before_fold
    assert "io\\_requests" in before_fold
    assert "ginex" not in before_fold
    assert DETAILS["links"]["head"] in text
    assert "a note" in text


def test_the_first_line_of_a_comment_answers_how_much_where_and_since_when(
    found, tmp_path: Path
):
    first, *_ = _written(found, "markdown", tmp_path).splitlines()
    # A run that fails is worse than a slow one.
    assert first.startswith("### ✗ Regressed: gnndrive +20MiB / status")
    assert "aaaaaaaaa..bbbbbbbbb (2 commits)" in first
    times = [metric for metric in found.metrics if metric.kind != "status"]
    slower = answer(replace(found, metrics=times))
    assert slower.startswith("✗ Regressed: diskgnn +20MiB / epoch +")
    assert " %" in slower
    assert "most of it in extract" in slower
    assert "more), in aaaaaaaaa..bbbbbbbbb (2 commits)" in slower


@pytest.mark.parametrize(
    ("decision", "start"),
    [
        ("same", "= Not regressed, nothing changed, in "),
        ("improved", "✓ Not regressed, improved: diskgnn +20MiB / epoch -"),
        ("undecided", "? Undecided: "),
    ],
)
def test_every_decision_has_an_answer(decision: str, start: str):
    slow = cells(session(6, epoch=1.2, seed=1))
    fast = cells(session(6, seed=2))
    few = cells(session(3, seed=3))
    sides = {"same": (fast, fast), "improved": (slow, fast), "undecided": (few, few)}
    found = compare(*sides[decision], paired=True)
    assert found.decision == decision
    assert answer(found).startswith(start)


def test_a_comment_shows_the_last_baselines_of_what_regressed(found, tmp_path: Path):
    times = [metric for metric in found.metrics if metric.kind != "status"]
    slow = replace(found, metrics=times)
    text = _written(slow, "markdown", tmp_path)
    assert "diskgnn +20MiB epoch in the last 3 baselines: ▁▁█ (1 to 1.3 s" in text
    without = replace(slow, details={**DETAILS, "baselines": {}})
    assert "baselines" not in _written(without, "markdown", tmp_path)


def test_noise_is_no_step_in_a_sparkline():
    assert sparkline([1.0, 1.02, 1.0]) == "▁▂▁"
    assert sparkline([1.0, 2.0, 1.5]) == "▁█▅"
    assert sparkline([3.0, 3.0]) == "▁▁"
    assert sparkline([0.0, 0.0]) == "▁▁"


def test_markdown_of_hostile_text_holds_no_markup_no_mention_and_no_extra_cell(
    found, tmp_path: Path
):
    text = _written(found, "markdown", tmp_path)
    assert "<script>" not in text
    assert "<b>" not in text
    assert "@everyone" not in text
    rows = [
        line
        for line in text.splitlines()
        if line.startswith("| ") and "---" not in line
    ]
    assert {line.replace("\\|", "").count("|") for line in rows} == {7}


def test_junit_fails_what_regressed_and_nothing_else(found, tmp_path: Path):
    root = ET.fromstring(_written(found, "junit", tmp_path))
    (suite,) = root.findall("testsuite")
    regressed = sorted(
        metric.name for metric in found.metrics if metric.decision == "regressed"
    )
    assert (
        sorted(
            case.get("name")
            for case in suite.iter("testcase")
            if case.find("failure") is not None
        )
        == regressed
    )
    assert int(suite.get("failures")) == len(regressed)
    assert int(suite.get("tests")) == len(found.metrics)
    assert int(suite.get("skipped")) == sum(
        case.find("skipped") is not None for case in suite.iter("testcase")
    )


def test_junit_of_a_reason_with_control_characters_is_still_xml(tmp_path: Path):
    bad = compare(
        cells([made()]),
        cells([made(status="failed", reason="\x00\x1b[31m & <")]),
        paired=True,
    )
    assert ET.fromstring(_written(bad, "junit", tmp_path)) is not None


def test_plain_json_is_what_the_command_prints(found, tmp_path: Path):
    content = json.loads(_written(found, "json", tmp_path))
    assert content["decision"] == "regressed"
    assert {"metric", "ratio", "interval", "decision"} <= content["metrics"][0].keys()


def test_github_benchmark_has_heads_numbers_of_which_less_is_better(
    found, tmp_path: Path
):
    entries = json.loads(_written(found, "github-benchmark", tmp_path))
    assert all({"name", "unit", "value"} <= entry.keys() for entry in entries)
    by_name = {entry["name"]: entry for entry in entries}
    assert by_name["diskgnn +20MiB / io_requests"]["value"] == 5001 * 4
    assert by_name["diskgnn +20MiB / epoch"]["unit"] == "s"
    assert not any(
        word in name for name in by_name for word in ("rows", "digest", "status")
    )


def test_bmf_maps_cell_and_measure_to_a_value(found, tmp_path: Path):
    content = json.loads(_written(found, "bmf", tmp_path))
    assert content["diskgnn +20MiB"]["epoch-seconds"]["value"] == pytest.approx(
        1.1, rel=0.02
    )
    assert content["diskgnn +20MiB"]["peak-memory-bytes"] == {"value": float(200 << 20)}


def test_asv_gets_a_file_a_commit_and_refuses_what_is_no_commit(found, tmp_path: Path):
    write("asv", tmp_path / "asv", found)
    for side, commit in COMMITS.items():
        content = json.loads(
            (
                tmp_path
                / "asv"
                / "0123456789ab"
                / f"{commit[:8]}-existing-outcore.json"
            ).read_text()
        )
        assert content["commit_hash"] == commit
        assert content["version"] == 2
        name = "outcore.track_diskgnn_plus_20MiB_io_requests"
        assert content["results"][name][0] == [20000 if side == "base" else 20004]
        assert len(content["results"][name]) == len(content["result_columns"])
    assert (
        json.loads((tmp_path / "asv" / "benchmarks.json").read_text())[name]["type"]
        == "track"
    )
    with pytest.raises(InputError, match="by commit"):
        write("asv", tmp_path / "no", replace(found, details={}))


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_output_is_written_whole_or_not_at_all(found, tmp_path: Path, kind: str):
    write(kind, tmp_path / "folder" / "deep", found)
    left = [path.name for path in (tmp_path / "folder").rglob("*")]
    assert left
    assert not any(name.endswith(".tmp") for name in left)


def test_an_unknown_output_is_reported(found, tmp_path: Path):
    with pytest.raises(InputError, match="no output 'html'"):
        write("html", tmp_path / "x", found)


def test_the_terminal_shows_what_changed_and_the_decision(
    found, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")  # narrower, the reason is folded
    print_comparison(found)
    text = capsys.readouterr().out
    assert "most of it in extract" in text
    assert text.rstrip().endswith("decision: regressed")
    assert "digest" not in text
