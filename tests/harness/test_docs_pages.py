"""Generated pages of the docs agree with the code, and paths and links in the docs exist."""

from __future__ import annotations

import re

from harness import settings
from harness.judge import page, rules
from harness.settings import RunSettings
from tests.harness.run_tools import REPOSITORY

FOLDERS = "harness|outcore|systems|workloads|tests|benchmarks|scripts|docs|examples|containers"


def test_the_page_of_rules_is_made_from_the_rules() -> None:
    text = (REPOSITORY / "docs" / "methodology.md").read_text(encoding="utf-8")
    assert text == page.page(), "run `python -m harness.judge.page > docs/methodology.md`"
    assert all(f"`{rule.name}`" in text for rule in rules())


def test_the_page_of_metrics_is_made_from_the_metrics() -> None:
    text = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert text == page.metrics_page(), "run `python -m harness.judge.page metrics > docs/metrics.md`"


def test_the_page_of_settings_is_made_from_the_settings() -> None:
    text = (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8")
    assert text == settings.page(), "run `python -m harness.settings > docs/settings.md`"
    assert all(f"| `{name}` |" in text for name in RunSettings.model_fields)


def test_every_path_and_link_in_the_docs_exists() -> None:
    """Check paths in backticks that begin with one of our folders, and relative links."""
    gone = []
    for page_ in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]:
        text = page_.read_text(encoding="utf-8")
        paths = re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", text)
        gone += [f"{page_.name}: {path}" for path in paths if not (REPOSITORY / path).exists()]
        links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
        gone += [f"{page_.name}: {link}" for link in links if link and not (page_.parent / link).exists()]
    assert gone == []
