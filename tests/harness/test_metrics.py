"""A metric is one entry of a table, which records, their table, the commands, the docs
and the report follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import outcore
from harness.cli.run_tables import print_headline, summary_lines
from harness.judge import page
from harness.judge.metrics import METRICS, RunNumbers, metric, summarise
from harness.judge.registry import context_of
from harness.records.record import Record, Summary
from harness.report.runs import table_of
from harness.results import store
from harness.results.table import load
from tests.harness.records import make_record, save


@pytest.fixture
def record() -> Iterator[Record]:
    """Make a record while one more metric is registered."""

    @metric("last epoch s", unit="s", better="lower", column="last")
    def last_epoch_s(run: RunNumbers) -> float:
        """Seconds of the last epoch."""
        return run.measured[-1].seconds

    made = make_record("ginex", [1.0, 1.25])
    made.summary, _ = summarise(made, context_of(made))
    yield made
    METRICS.pop()


def test_one_entry_is_in_records_tables_commands_docs_and_report(
    record: Record,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save(tmp_path, record)
    read = store.read_record(tmp_path / "runs" / record.run_id)
    assert read.to_json()["summary"]["last_epoch_s"] == 1.25
    assert load(tmp_path)["summary.last_epoch_s"].tolist() == [1.25]
    assert outcore.results(str(tmp_path))["summary.last_epoch_s"].tolist() == [1.25]
    assert any("last epoch s 1.25" in line for line in summary_lines(read))
    monkeypatch.setenv("COLUMNS", "400")
    print_headline([read], "t", wide=True)
    text = capsys.readouterr().out
    assert "last epoch s" in text
    assert "1.25" in text
    assert (
        "| `last_epoch_s` | last epoch s | s | lower | Seconds of the last epoch. |"
        in page.metrics_page()
    )
    table = table_of([read.to_json()])
    assert table["rows"][0][table["columns"].index("last")] == 1.25


def test_a_record_without_a_metric_shows_a_dash(record: Record) -> None:
    old = make_record("ginex", [1.0])
    assert any("last epoch s –" in line for line in summary_lines(old))
    assert len(table_of([old.to_json(), record.to_json()])["rows"]) == 2


def test_a_metric_is_a_number() -> None:
    with pytest.raises(ValueError, match="last_epoch_s"):
        Summary.model_validate({"last_epoch_s": "fast"})
    assert {metric.name for metric in METRICS} | {
        "epoch_s",
        "stages_s",
        "extra",
    } == set(Summary.model_fields)
