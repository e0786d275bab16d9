"""A figure is drawn again when anything that draws it changes: sources, styles,
published values."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.compare.evidence import load_evidence
from harness.figures import base
from harness.figures import render as sources
from harness.figures.base import catalogue, rows
from harness.figures.render import render

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "file",
    [
        "harness/figures/grids.py",
        "harness/published/ginex-fig14.csv",
        "harness/compare/cells.py",
        "workloads/units.py",
    ],
)
def test_a_change_of_a_source_draws_figures_again(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in sources.PACKAGES:
        ignore = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(CHECKOUT / package, tmp_path / "tree" / package, ignore=ignore)
    chosen = [catalogue()["gnndrive-fig8"]]
    evidence = load_evidence(tmp_path / "none")
    digest = sources.digest_of_sources
    monkeypatch.setattr(sources, "digest_of_sources", lambda: digest(tmp_path / "tree"))
    first, again = (render(chosen, evidence, tmp_path / "out")[0] for _ in range(2))
    assert first == again, "nothing has changed"
    with (tmp_path / "tree" / file).open("a") as stream:
        stream.write("# changed\n")
    assert render(chosen, evidence, tmp_path / "out")[0].inputs != first.inputs


def test_a_change_of_its_catalogue_row_draws_a_figure_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [catalogue()["gnndrive-fig8"]]
    evidence = load_evidence(tmp_path / "none")
    first = render(chosen, evidence, tmp_path / "out")[0]
    changed = {
        **rows(),
        "gnndrive-fig8": {**rows()["gnndrive-fig8"], "title": "Another title"},
    }
    monkeypatch.setattr(base, "rows", lambda: changed)
    again = render(chosen, evidence, tmp_path / "out")[0]
    assert (again.title, again.inputs != first.inputs) == ("Another title", True)
