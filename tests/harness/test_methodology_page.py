"""The page of rules is what the rules say."""

from __future__ import annotations

from harness.verdict import rules
from harness.verdict.page import page
from tests.harness.run_tools import REPOSITORY


def test_the_page_of_rules_is_made_from_the_rules() -> None:
    text = (REPOSITORY / "docs" / "methodology.md").read_text(encoding="utf-8")
    assert text == page(), "run `python -m harness.verdict.page > docs/methodology.md`"
    assert all(f"`{rule.name}`" in text for rule in rules())
