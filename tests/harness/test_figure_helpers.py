"""Figures that other processes draw are the same, and a process that fails leaves its figures to the caller."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.compare.evidence import load_evidence
from harness.figures import helpers
from harness.figures.base import chosen
from harness.figures.helpers import Helpers
from harness.figures.render import read_rendered, render
from tests.harness.test_figures import fill

IDS = ["gnndrive-fig8", "gnndrive-fig9", "gnndrive-fig10", "outcore-gate"]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start helpers with the first figure, on however many cores."""
    monkeypatch.setattr(helpers, "PATIENCE_S", 0.0)
    monkeypatch.setattr(helpers, "LEAST", 1)
    monkeypatch.setattr(helpers.os, "sched_getaffinity", lambda process: {0, 1})


@pytest.mark.slow("harness/figures", "harness/compare")
def test_a_figure_drawn_by_a_helper_is_as_any_other(tmp_path: Path) -> None:
    fill(tmp_path)
    evidence = load_evidence(tmp_path)
    (tmp_path / "helped").mkdir()
    with Helpers(IDS, evidence, tmp_path / "helped") as found:
        assert not found.drew(IDS[0]), "the caller draws it"
        until = time.monotonic() + 120
        while found._waiting and time.monotonic() < until:
            time.sleep(0.05)
        assert [found.drew(name) for name in IDS[1:]] == [True, True, True]
    alone = render(chosen(",".join(IDS[1:])), evidence, tmp_path / "alone")
    assert [one.status for one in alone] == ["drawn", "drawn", "not drawn"]
    for one in alone:
        other = read_rendered(tmp_path / "helped", one.id)
        assert other is not None and replace(other, files=[], seconds=0.0) == replace(one, files=[], seconds=0.0)
        assert [file.name for file in other.files] == [file.name for file in one.files]
        assert all(a.read_bytes() == b.read_bytes() for a, b in zip(one.files[2:], other.files[2:], strict=True))


def test_figures_are_drawn_even_if_every_helper_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    monkeypatch.setattr(helpers, "_COMMAND", [sys.executable, "-c", "print('ready', flush=True)"])
    found = render(chosen(",".join(IDS[1:])), load_evidence(tmp_path), tmp_path / "figures")
    assert [one.status for one in found] == ["drawn", "drawn", "not drawn"]
    monkeypatch.setattr(helpers, "_COMMAND", ["/nonexistent"])
    again = render(chosen(",".join(IDS[1:])), load_evidence(tmp_path), tmp_path / "figures", again=True)
    assert [replace(one, seconds=0.0) for one in again] == [replace(one, seconds=0.0) for one in found]
