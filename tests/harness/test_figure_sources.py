"""A figure is drawn again when anything that draws it changes: its module, its helpers, styles, published values."""

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


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the sources, so that tests may alter them; digests are taken of the copy."""
    for package in sources.PACKAGES:
        for path in [path for kind in ("py", "csv", "yaml") for path in (CHECKOUT / package).rglob(f"*.{kind}")]:
            target = tmp_path / "tree" / path.relative_to(CHECKOUT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    monkeypatch.setattr(sources, "ROOT", tmp_path / "tree")
    return tmp_path / "tree"


@pytest.mark.parametrize(
    ("figure", "file"),
    [
        ("gnndrive-fig8", "harness/figures/gnndrive/epochs.py"),
        ("gnndrive-fig8", "harness/figures/grids.py"),
        ("gnndrive-fig8", "harness/figures/gnndrive/epochs.yaml"),
        ("gnndrive-fig8", "harness/figures/draw/style.yaml"),
        ("gnndrive-fig8", "harness/figures/draw/kinds.py"),
        ("gnndrive-fig8", "harness/figures/draw/curves.py"),
        ("gnndrive-fig8", "harness/figures/draw/style.py"),
        ("gnndrive-fig8", "harness/compare/comparable.py"),
        ("gnndrive-fig8", "harness/records/record.py"),
        ("gnndrive-fig8", "harness/figures/render.py"),
        ("diskgnn-fig10", "harness/figures/draw/bars.py"),
        ("diskgnn-fig10", "harness/figures/draw/style.py"),
        ("diskgnn-fig10", "harness/figures/draw/panels.py"),
        ("ginex-fig14", "harness/figures/draw/breakdown.py"),
        ("ginex-fig14", "harness/published/ginex-fig14.csv"),
        ("tiering-fig8", "harness/published/tiering-fig8.csv"),
        ("ginex-fig5", "harness/studies/accesses.py"),
    ],
)
@pytest.mark.slow("harness/figures", "harness/compare")
def test_a_change_of_whatever_draws_a_figure_draws_it_again(tree: Path, tmp_path: Path, figure: str, file: str) -> None:
    chosen, evidence = [catalogue()[figure]], load_evidence(tmp_path / "none")
    first, again = (render(chosen, evidence, tmp_path / "out")[0] for _ in range(2))
    assert first == again, "nothing has changed"
    with (tree / file).open("a") as stream:
        stream.write("# changed\n")
    assert render(chosen, evidence, tmp_path / "out")[0].inputs != first.inputs


def test_a_change_of_its_catalogue_row_draws_a_figure_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, evidence = [catalogue()["gnndrive-fig8"]], load_evidence(tmp_path / "none")
    first = render(chosen, evidence, tmp_path / "out")[0]
    changed = {**rows(), "gnndrive-fig8": {**rows()["gnndrive-fig8"], "title": "Another title"}}
    monkeypatch.setattr(base, "rows", lambda: changed)
    again = render(chosen, evidence, tmp_path / "out")[0]
    assert (again.title, again.inputs != first.inputs) == ("Another title", True)


def test_what_no_figure_imports_leaves_it_as_it_is(tree: Path) -> None:
    module = "harness.figures.gnndrive.epochs"
    before = sources.digest_of_sources(module)
    for file in ("harness/figures/pagraph/studies.py", "harness/cli/bench.py", "harness/published/claims.csv"):
        (tree / file).write_text("changed\n")
    assert sources.digest_of_sources(module) == before


def test_every_figure_module_is_among_its_own_sources() -> None:
    for figure in catalogue().values():
        for module in (figure.draw.__module__, figure.needs.__module__):
            names = {path.stem for path in sources.files_of(module)}
            assert {module.rsplit(".", 1)[-1], "points", "base"} <= names, figure.id
