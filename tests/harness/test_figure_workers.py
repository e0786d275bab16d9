"""Figures that other processes draw are the same, and a process that is killed leaves
its figures to the caller."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness.compare.evidence import load_evidence
from harness.figures import render as module
from harness.figures.base import chosen
from harness.figures.render import Rendered, render
from tests.harness.test_figures import fill

IDS = "gnndrive-fig8,gnndrive-fig9,gnndrive-fig10,outcore-gate"


def die(task: tuple[str, str]) -> None:
    """End a worker as the kernel does when memory runs out."""
    os._exit(9)


def drawn(root: Path, out: Path) -> list[Rendered]:
    return render(chosen(IDS), load_evidence(root), out)


@pytest.fixture
def two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIGURES_A_WORKER", 1)
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda process: {0, 1})


@pytest.mark.slow("harness/figures", "harness/compare")
def test_figures_drawn_by_workers_are_as_any_other(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    alone = drawn(tmp_path, tmp_path / "alone")
    request.getfixturevalue("two_workers")
    by_workers = drawn(tmp_path, tmp_path / "workers")
    assert [one.status for one in alone] == ["drawn", "drawn", "drawn", "not drawn"]
    for one, other in zip(alone, by_workers, strict=True):
        assert replace(other, files=[], seconds=0.0) == replace(
            one, files=[], seconds=0.0
        )
        assert [file.name for file in other.files] == [file.name for file in one.files]
        assert all(
            a.read_bytes() == b.read_bytes()
            for a, b in zip(one.files[2:], other.files[2:], strict=True)
        )


def test_figures_are_drawn_even_if_every_worker_is_killed(
    tmp_path: Path, two_workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    monkeypatch.setattr(module, "_draw_in_worker", die)
    assert [one.status for one in drawn(tmp_path, tmp_path / "figures")] == [
        "drawn",
        "drawn",
        "drawn",
        "not drawn",
    ]
