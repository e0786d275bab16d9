"""The newest release has one version and one day, in the package, the changelog and the
citation."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from workloads.parsing import parse_yaml

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def citation() -> dict[str, str]:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    return {key: str(value) for key, value in parse_yaml(text).items()}


def test_the_citation_names_the_newest_release(citation: dict[str, str]) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+) \((\S+)\)$", changelog, re.MULTILINE)
    assert newest is not None
    assert newest.groups() == (citation["version"], citation["date-released"])


def test_the_package_has_the_version_of_the_citation(citation: dict[str, str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    assert project["version"] == citation["version"]
