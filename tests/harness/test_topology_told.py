"""Every table marks runs whose budget does not hold the graph, which are not in the
papers' setting."""

from __future__ import annotations

import pytest

from harness.cli.run_tables import print_headline, summary_lines
from harness.judge import rules
from harness.judge.registry import context_of
from harness.records.record import Record, class_of
from harness.report.headline import headline
from harness.report.standings import settings_of
from tests.harness.records import make_record

LABEL = "storage-bound, topology outside"


def record_with(ratio: float | None, system: str = "ginex") -> Record:
    record = make_record(system, [1.0, 1.1, 1.2])
    record.memory.budget_bytes = 64 << 20
    record.summary.topology_over_budget = ratio
    return record


@pytest.mark.parametrize(
    ("ratio", "ok", "message"),
    [
        (2.6, True, "graph 2.60 x the host budget: not the papers' setting"),
        (0.2, True, "graph 0.20 x the host budget: the papers' setting"),
        (None, False, "storage-bound"),
    ],
)
def test_the_rule_names_the_graph_and_is_broken_only_where_its_size_is_unknown(
    ratio: float | None, ok: bool, message: str
) -> None:
    (rule,) = (entry for entry in rules() if entry.name == "class_is_known")
    record = record_with(ratio)
    finding = rule.check(record, context_of(record))
    assert finding is not None
    assert finding.ok is ok
    assert message in finding.detail
    record.memory.budget_bytes = None
    unlimited = rule.check(record, context_of(record))
    assert unlimited is not None
    assert unlimited.ok


def test_every_table_names_it_and_none_does_where_the_graph_fits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outside = record_with(2.6)
    inside = record_with(0.2, "gnndrive")
    assert outside.class_label == class_of(outside.to_json()) == LABEL
    assert inside.class_label == class_of(inside.to_json()) == "storage-bound"
    assert any(
        LABEL in line and "topology 2.60 x host budget" in line
        for line in summary_lines(outside)
    )
    for record, times in ((outside, 1), (inside, 0)):
        print_headline([record], "t", wide=True)
        assert capsys.readouterr().out.count(LABEL) == times
        plain = [record.to_json()]
        reported = headline(settings_of(plain), plain).first
        assert reported is not None
        assert (
            sum("The graph is 2.6 x the host budget" in note for note in reported.notes)
            == times
        )
        assert [row.storage == LABEL for row in reported.rows] == [times == 1]
