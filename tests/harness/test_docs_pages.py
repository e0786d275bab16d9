"""Generated pages of the docs agree with the code, and paths and links in the docs
exist."""

from __future__ import annotations

import json
import re

import pytest

import outcore
from harness import settings
from harness.check.data_paths import with_paths
from harness.cli import main
from harness.cli.rules import read_on
from harness.judge import page, rules
from harness.records.record import RuleOutcome
from harness.settings import RunSettings
from outcore import reference
from systems.registry import load, names
from tests.harness.records import make_record
from tests.harness.run_tools import REPOSITORY

FOLDERS = "harness|outcore|systems|workloads|tests|benchmarks|scripts|docs|examples|containers"


def test_the_page_of_rules_is_made_from_the_rules() -> None:
    text = (REPOSITORY / "docs" / "methodology.md").read_text(encoding="utf-8")
    assert text == page.page(), (
        "run `python -m harness.judge.page > docs/methodology.md`"
    )
    assert all(f"`{rule.name}`" in text for rule in rules())


def test_every_rule_that_the_docs_name_leads_to_its_entry() -> None:
    text = (REPOSITORY / "docs" / "methodology.md").read_text(encoding="utf-8")
    # An anchor is a heading's words, as the docs site and GitHub make it.
    headings = (
        re.sub(r"[^\w -]", "", line).strip().lower()
        for line in re.findall("^##+(.*)", text, re.MULTILINE)
    )
    anchors = {heading.replace(" ", "-") for heading in headings}
    assert anchors >= {rule.name for rule in rules()} | {
        f"rule-{rule.number}" for rule in rules()
    }
    unlinked = []
    lost = []
    for page_ in [
        REPOSITORY / "README.md",
        *sorted((REPOSITORY / "docs").glob("*.md")),
    ]:
        text = page_.read_text(encoding="utf-8")
        place = "" if page_.name == "methodology.md" else r"(?:docs/)?methodology\.md"
        links = re.findall(rf"\]\({place}#([\w-]+)\)", text)
        lost += [f"{page_.name}: {link}" for link in links if link not in anchors]
        outside = re.sub(r"(?m)\[[^]]*\]\([^)]*\)|`[^`]*`|^#.*$", "", text)
        unlinked += [
            f"{page_.name}: {found}" for found in re.findall(r"[Rr]ules? \d+", outside)
        ]
    assert (unlinked, lost) == ([], [])


def test_a_rule_is_printed_by_its_number_and_by_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def message(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["rules", *arguments])
        assert ended.value.code == (2 if arguments == ("77",) else 0)
        return "".join(capsys.readouterr())

    of_nine = [rule.name for rule in rules() if rule.number == "9"]
    assert len(of_nine) > 1
    assert all(f"rule 9 {name} " in message("9") for name in of_nine)
    assert message("started_cold").startswith(
        "rule 2 started_cold (INVALID if broken)\n\nPages cached by another program"
    )
    assert [entry["name"] for entry in json.loads(message("--json"))["rules"]] == [
        rule.name for rule in rules()
    ]
    assert (
        message("77") == "outcore: there is no rule '77'; `outcore rules` lists them\n"
    )


def test_a_run_with_broken_rules_states_where_they_are_explained() -> None:
    record = make_record("gnndrive", [1.0])
    broken = [
        RuleOutcome(rule=rule.number, name=rule.name, ok=rule.number != "9", detail="")
        for rule in rules()
    ]
    record.verdict_rules = [
        *broken,
        RuleOutcome(rule="?", name="of another version", ok=False, detail=""),
    ]
    assert read_on(record) == ["  why, and how it is judged: outcore rules 9"]
    record.verdict_rules = [one for one in broken if one.ok]
    assert read_on(record) == []


def test_the_page_of_metrics_is_made_from_the_metrics() -> None:
    text = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert text == page.metrics_page(), (
        "run `python -m harness.judge.page metrics > docs/metrics.md`"
    )


def test_the_page_of_settings_is_made_from_the_settings() -> None:
    text = (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8")
    assert text == settings.page(), (
        "run `python -m harness.settings > docs/settings.md`"
    )
    assert all(f"| `{name}` |" in text for name in RunSettings.model_fields)


def test_the_section_of_each_system_begins_with_the_parts_of_its_data_path() -> None:
    text = (REPOSITORY / "docs" / "systems.md").read_text(encoding="utf-8")
    assert text == with_paths(text), (
        "run `python -m harness.check.data_paths docs/systems.md`"
    )
    built_in = {name for name in names() if load(name).__module__.startswith("systems")}
    missing = [name for name in built_in if f"## `{name}`\n\n**Path:** " not in text]
    assert missing == []


def test_the_reference_has_every_public_name_once_with_its_file() -> None:
    text = (REPOSITORY / "docs" / "reference.md").read_text(encoding="utf-8")
    assert text == reference.page(), (
        "run `python -m outcore.reference > docs/reference.md`"
    )
    headings = re.findall("^### `outcore\\.(\\w+)`\n\n`([\\w/]+\\.py)`\n", text, re.M)
    assert sorted(name for name, _ in headings) == sorted(outcore.__all__)
    assert all((REPOSITORY / file).is_file() for _, file in headings)


def test_every_path_and_link_in_the_docs_exists() -> None:
    """Check paths in backticks that begin with one of our folders, and relative
    links."""
    gone = []
    for page_ in [
        REPOSITORY / "README.md",
        *sorted((REPOSITORY / "docs").glob("*.md")),
    ]:
        text = page_.read_text(encoding="utf-8")
        paths = re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", text)
        gone += [
            f"{page_.name}: {path}"
            for path in paths
            if not (REPOSITORY / path).exists()
        ]
        links = [
            link.partition("#")[0]
            for link in re.findall(r"\]\(([^)\s]+)\)", text)
            if "://" not in link
        ]
        gone += [
            f"{page_.name}: {link}"
            for link in links
            if link and not (page_.parent / link).exists()
        ]
    assert gone == []
