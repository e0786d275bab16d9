"""The layers import only downward: outcore, the public face -> harness -> systems -> workloads."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = ["workloads", "systems", "harness", "outcore"]


def imported_layers(source: str) -> set[str]:
    """Top-level packages of ours that a module's source imports, lazily or not."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.split(".")[0])
    return names & set(ORDER)


@pytest.mark.parametrize("layer", ORDER)
def test_a_layer_imports_nothing_above_it(layer: str) -> None:
    above = set(ORDER[ORDER.index(layer) + 1 :])
    upward = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / layer).rglob("*.py")
        for name in sorted(imported_layers(path.read_text()) & above)
    ]
    assert upward == []


def test_a_system_knows_no_other_system() -> None:
    folders = {path.parent.name for path in (ROOT / "systems").glob("*/__init__.py")} - {"engine", "native"}
    crossing = []
    for folder in sorted(folders):
        for path in (ROOT / "systems" / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("systems."):
                    other = node.module.split(".")[1]
                    # `ginex_pg` may build on `ginex`, whose variant it is.
                    if other in folders - {folder} and not folder.startswith(f"{other}_"):
                        crossing.append(f"{path.relative_to(ROOT)} imports systems.{other}")
    assert crossing == []


def test_the_check_sees_an_upward_import() -> None:
    assert imported_layers("def f():\n    from harness.results.store import load\n") == {"harness"}
