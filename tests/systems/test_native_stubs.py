"""A build writes type stubs of the native modules for mypy: every name of a module, and
no other."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def typed(body: list[ast.stmt]) -> set[str]:
    named = {
        node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    named |= {
        node.target.id
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return {name for name in named if not name.startswith("_")}


def there(owner: object) -> set[str]:
    return {name for name in vars(owner) if not name.startswith("_")}


@pytest.mark.parametrize("layer", ["workloads", "systems"])
def test_the_types_are_those_of_the_module(layer: str) -> None:
    module = importlib.import_module(f"{layer}._native")
    types = ROOT / layer / "_native.pyi"
    assert types.is_file(), "scripts/setup --build writes it"
    body = ast.parse(types.read_text("utf-8")).body
    assert typed(body) == there(module)
    for node in body:
        if isinstance(node, ast.ClassDef):
            assert typed(node.body) == there(getattr(module, node.name)), node.name
