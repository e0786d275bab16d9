"""Source files behind a figure: its module, its imports from this project, their declarations, published values."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import matplotlib
import numpy
import pandas

import harness

ROOT = Path(harness.__file__).parent.parent
# Only these packages determine a drawing; systems and native code only make the records.
PACKAGES = ("harness", "workloads")


def digest_of_sources(*modules: str, salt: str = "") -> str:
    """Return a digest of the files of `files_of`, by name and content, and of the drawing libraries' versions."""
    digest = hashlib.sha256(salt.encode())
    for library in (matplotlib, numpy, pandas):
        digest.update(f"{library.__name__} {library.__version__}\n".encode())
    for path in files_of(*modules):
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def files_of(*modules: str) -> list[Path]:
    """Return the files of modules, of all their imports from this project, and of published values.

    Declarations (the YAML file of a module's name) count with the module.
    """
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        path = None if name in found else _file_of(name)
        if path is not None:
            found[name] = path
            beside = path.with_suffix(".yaml")
            if beside.is_file():
                found[f"{name} (declarations)"] = beside
            status = path.stat()
            waiting += _imports(path, status.st_mtime_ns, status.st_size)
    published = ROOT.joinpath("harness", "published").glob("*.csv")
    return sorted([*found.values(), *(path for path in published if path.name != "claims.csv")])


def _file_of(name: str) -> Path | None:
    if name.split(".")[0] not in PACKAGES:
        return None
    path = ROOT.joinpath(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@cache
def _imports(path: Path, changed_ns: int, size: int) -> tuple[str, ...]:
    """Return the modules that a file imports, also within functions; time and size key the cache to its content."""
    names: dict[str, None] = {}
    for node in _executed(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names[node.module] = None
            # `from harness.figures.draw import style` imports a module, not a name of the package.
            names.update(dict.fromkeys(f"{node.module}.{alias.name}" for alias in node.names))
    return tuple(names)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every node but those under `if TYPE_CHECKING:`, which never run."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from _executed(node)
