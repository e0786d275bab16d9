"""Imports lead downward: outcore -> harness -> systems -> workloads, and from room to
lower room in harness.

Every import counts, whether at the top of a module, inside a function or for type
checking only.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ["workloads", "systems", "harness", "outcore"]
#: Rooms of the harness, lowest first: a module imports from its own room and from those
#: before it.
ROOMS = """
    atomic progress cache isolation foreign ssd settings records wire telemetry worker plan judge results run
    compare studies regress figures claims report advise hosts drives check doctor doctor_ci cli
""".split()
MOST_FILES = 16
#: Folders that are flat lists of one kind.
FLAT_LISTS = {"harness/cli", "harness/studies"}


def modules() -> dict[str, Path]:
    """Return every module of ours by name."""
    files = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in files
    }


def imports(
    name: str, path: Path, known: dict[str, Path], source: str | None = None
) -> set[str]:
    """Return the modules of ours that a module imports: for `from a import b` the
    module `a.b` where there is one."""
    found: set[str] = set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text() if source is None else source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = (
                package.split(".")[: len(package.split(".")) + 1 - node.level]
                if node.level
                else []
            )
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {
                inner if (inner := f"{base}.{alias.name}") in known else base
                for alias in node.names
            }
    return {module for module in found if module.partition(".")[0] in LAYERS} - {name}


@functools.cache
def graph() -> dict[str, set[str]]:
    """Return the imports of every module of ours."""
    known = modules()
    return {name: imports(name, path, known) for name, path in known.items()}


def room_of(module: str) -> int | None:
    """Return the place of a module of the harness in `ROOMS`; None for the package
    itself."""
    _, _, inner = module.partition(".")
    return ROOMS.index(inner.partition(".")[0]) if inner else None


def circles(arrows: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield the strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> Iterator[list[str]]:
        index[node] = low[node] = len(index)
        stack.append(node)
        for after in arrows.get(node, ()):
            if after not in index:
                yield from visit(after)
                low[node] = min(low[node], low[after])
            elif after in stack:
                low[node] = min(low[node], index[after])
        if low[node] == index[node]:
            place = stack.index(node)
            component = stack[place:]
            del stack[place:]
            if len(component) > 1:
                yield sorted(component)

    for node in arrows:
        if node not in index:
            yield from visit(node)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_nothing_above_it(layer: str) -> None:
    above = set(LAYERS[LAYERS.index(layer) + 1 :])
    inside = {
        name: found
        for name, found in graph().items()
        if name.partition(".")[0] == layer
    }
    upward = [
        f"{name} imports {to}"
        for name, found in inside.items()
        for to in found
        if to.partition(".")[0] in above
    ]
    assert upward == []


def test_a_room_of_the_harness_imports_from_no_room_above_it() -> None:
    upward = []
    for name, found in graph().items():
        here = room_of(name) if name.partition(".")[0] == "harness" else None
        for to in sorted(found) if here is not None else ():
            there = room_of(to) if to.partition(".")[0] == "harness" else None
            if there is not None and there > here:
                upward.append(f"{name} imports {to}")
    assert upward == []


def test_modules_import_each_other_in_no_circle() -> None:
    assert list(circles(graph())) == []


def test_no_folder_holds_too_many_sources() -> None:
    folders = {
        path.parent
        for layer in LAYERS
        for path in (ROOT / layer).rglob("*")
        if path.is_dir() or path.suffix
    }
    sizes = {
        str(folder.relative_to(ROOT)): sum(
            path.suffix in (".py", ".cpp", ".hpp") for path in folder.iterdir()
        )
        for folder in folders
    }
    assert {
        name: size
        for name, size in sizes.items()
        if size > MOST_FILES and name not in FLAT_LISTS
    } == {}


def test_a_system_knows_no_other_system() -> None:
    folders = {
        path.parent.name for path in (ROOT / "systems").glob("*/__init__.py")
    } - {"engine", "native", "parts"}
    crossing = []
    for name, found in graph().items():
        folder = name.split(".")[1] if name.startswith("systems.") else ""
        for to in sorted(found) if folder in folders else ():
            other = to.split(".")[1] if to.startswith("systems.") else folder
            # `ginex_pg` may build on `ginex`, whose variant it is.
            if other in folders - {folder} and not folder.startswith(f"{other}_"):
                crossing.append(f"{name} imports {to}")
    assert crossing == []


def test_the_checks_see_imports_wherever_they_are() -> None:
    here = ROOT / "systems" / "registry.py"
    lazy = (
        "def f():\n    from harness.results import store\n    from . import readings\n"
    )
    assert imports("systems.registry", here, modules(), lazy) == {
        "harness.results.store",
        "systems.readings",
    }
    typed = "if TYPE_CHECKING:\n    import harness.run.sweep\n"
    assert imports("systems.registry", here, modules(), typed) == {"harness.run.sweep"}


def test_a_circle_is_found() -> None:
    assert list(circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}})) == [
        ["b", "c"]
    ]
