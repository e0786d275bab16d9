"""Pages of docs that are made from code are what the code says."""

from __future__ import annotations

from harness import settings
from harness.settings import RunSettings
from harness.verdict import page, rules
from tests.harness.run_tools import REPOSITORY


def test_the_page_of_rules_is_made_from_the_rules() -> None:
    text = (REPOSITORY / "docs" / "methodology.md").read_text(encoding="utf-8")
    assert text == page.page(), "run `python -m harness.verdict.page > docs/methodology.md`"
    assert all(f"`{rule.name}`" in text for rule in rules())


def test_the_page_of_settings_is_made_from_the_settings() -> None:
    text = (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8")
    assert text == settings.page(), "run `python -m harness.settings > docs/settings.md`"
    assert all(f"| `{name}` |" in text for name in RunSettings.model_fields)
