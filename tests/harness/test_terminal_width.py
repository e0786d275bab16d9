"""Text on a terminal of 80 columns fits its lines."""

from __future__ import annotations

import pytest

from harness.cli.advise import _one_line
from harness.cli.table import print_prose
from harness.judge.page import reason_of
from harness.judge.registry import rules


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_reasons_of_rules_fold_at_words_and_lose_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for rule in rules():
        print_prose(reason_of(rule))
        printed = capsys.readouterr().out
        assert printed.split() == reason_of(rule).split()
        assert max(map(len, printed.splitlines())) <= 80


def test_a_refusal_is_one_line() -> None:
    assert _one_line("ginex: has no GPU") == "ginex: has no GPU"
    assert len(_one_line("ginex: " + "needs more memory " * 20)) <= 80
