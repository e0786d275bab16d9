"""Fingerprints of the sources of systems and harness: the code that a number belongs to
(methodology rule 28).

A module is hashed by its syntax tree without docstrings and names of local variables,
so comments, layout, words and such names change nothing. Its imports, at any depth and
inside functions, are hashed too, except installed libraries; native code by its sources
if present, else by the built module. Of the harness only what measures is hashed: the
edition (`harness/records/edition.py`) stands for what derives and judges.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from harness.records.edition import EDITION
from harness.records.record import Code
from workloads.errors import OutcoreError

_ROOT = Path(__file__).resolve().parents[2]
_OURS = ("harness", "systems", "workloads")
# Modules from which the measuring code is followed.
_MEASURES = (
    "harness.worker.main",
    "harness.worker.calibrate",
    "harness.worker.ranks",
    "harness.run.orchestrator",
    # Run as programs of their own, so no import leads to them.
    "harness.isolation.docker.exec",
    "harness.isolation.probe_child",
)
# Rooms of the harness that are part of it.
_MEASURING = tuple(
    f"harness.{room}" for room in "worker wire telemetry isolation run".split()
)
# Folders of installed code, known by the versions in a record; the last of files that a
# process maps, never modules.
_PACKAGES = {"site-packages", "dist-packages"}
_STDLIB = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
_SHARED = (
    *(f"{prefix}/" for prefix in {sys.prefix, sys.base_prefix}),
    "/usr/",
    "/lib",
    "/opt/",
    "/nix/",
    "/run/",
)
_NATIVE_SOURCES = (".cpp", ".hpp", ".h", ".txt")


class Made(NamedTuple):
    """Host, system, code, id and sampler of a run; ids begin with the time."""

    host: str
    system: str
    code: Code
    run_id: str
    sampler: str = ""


@functools.cache
def code_of(system: str, sampler: str = "") -> Code:
    """Return the fingerprints of a system, a sampler and the harness for the present
    code, 16 hex digits each, and the edition of the rules."""
    return Code(
        system=system_fingerprint(system),
        harness=harness_fingerprint(),
        sampler=code_of_sampler(sampler),
        edition=EDITION,
    )


def code_of_sampler(sampler: str) -> str:
    """Return the fingerprint of a sampler from elsewhere (`package.module:NAME`); empty
    for Outcore's own, whose sources are part of every system."""
    elsewhere, _, name = sampler.partition(":")
    return _digest(_closure([elsewhere])) if name else ""


@functools.cache
def harness_fingerprint() -> str:
    """Return the fingerprint of all code that measures runs, whatever their system."""
    return _digest(_closure(_MEASURES))


@functools.cache
def system_fingerprint(system: str) -> str:
    """Return the fingerprint of a system's sources, including engine and workloads; a
    foreign one's identity hashed."""
    from harness.foreign import is_foreign
    from harness.foreign.systems import identity

    if is_foreign(system):
        return hashlib.sha256(identity(system).encode()).hexdigest()[:16]
    return _digest(_closure(_begins(system)))


def _begins(system: str) -> list[str]:
    """Return the modules from which a system's code is followed: its own and, imported
    by name, all samplers."""
    from systems.registry import load
    from workloads.sampling.listing import names

    return [
        load(system).__module__,
        *(f"workloads.sampling.{name}" for name in names()),
    ]


def loaded() -> list[str]:
    """Return the files of this process's code outside the folders of libraries:
    modules, and files mapped as code."""
    files = {
        getattr(module, "__file__", None) or "" for module in list(sys.modules.values())
    }
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    mapped = [line.split(maxsplit=5) for line in maps.splitlines()]
    files |= {
        line[5]
        for line in mapped
        if len(line) > 5 and "x" in line[1] and not line[5].startswith(_SHARED)
    }
    return sorted(
        file for file in files if file.startswith("/") and not _is_library(Path(file))
    )


def unknown_of(files: Iterable[str], system: str, sampler: str = "") -> list[str]:
    """Return those of the `loaded` files of a run that are in no fingerprint, such as
    modules imported by name."""
    from harness.foreign import is_foreign

    if is_foreign(system):
        return []
    known = {file.resolve() for file in _followed(system, sampler).values()}
    ours = [_ROOT / top for top in (*_OURS, "outcore")]
    return [
        file
        for file in files
        if not {one := Path(file).resolve(), *one.parents} & {*known, *ours}
    ]


def own_sources(system: str, sampler: str = "") -> list[Path]:
    """Return the files of a system and a sampler that belong neither to Outcore nor to
    an installed package, with all that they import."""
    from harness.foreign import is_foreign

    if is_foreign(system):
        return []
    files = {file.resolve() for file in _followed(system, sampler).values()}
    own = [
        file
        for file in files
        if not file.is_relative_to(_ROOT) and not _is_library(file)
    ]
    return sorted(own)


def _followed(system: str, sampler: str) -> dict[str, Path]:
    """Return the modules of a system and a sampler with their imports, by name."""
    elsewhere, _, name = sampler.partition(":")
    return _closure([*_begins(system), *([elsewhere] if name else [])])


def from_same_code(made: Sequence[Made]) -> list[bool]:
    """Mark comparable runs: on each host those of the newest harness and edition, and
    of their system's and sampler's newest code.

    No average or figure spans a change of the measured code.
    """
    harness: dict[str, Made] = {}
    for run in made:
        harness[run.host] = max(
            harness.get(run.host, run), run, key=attrgetter("run_id")
        )
    newest: dict[tuple[str, str, str], Made] = {}
    current = [run for run in made if _measured_alike(run.code, harness[run.host].code)]
    for run in current:
        for part in ("system", "sampler"):
            key = (run.host, part, getattr(run, part))
            newest[key] = max(newest.get(key, run), run, key=attrgetter("run_id"))
    return [
        _measured_alike(run.code, harness[run.host].code)
        and run.code.system == newest[run.host, "system", run.system].code.system
        and run.code.sampler == newest[run.host, "sampler", run.sampler].code.sampler
        for run in made
    ]


def _measured_alike(one: Code, other: Code) -> bool:
    return (one.harness, one.edition) == (other.harness, other.edition)


def is_current(code: Code, system: str, sampler: str) -> bool:
    """Return whether a run of a system with a sampler was made by the present code."""
    try:
        return code == code_of(system, sampler)
    except (OutcoreError, ImportError):
        return False  # the system is not installed here


def _closure(start: Iterable[str]) -> dict[str, Path]:
    """Return modules imported from `start` at any depth, by name: ours, those of the
    packages of `start`, and all that lie in no folder of libraries."""
    tops = dict.fromkeys([*_OURS, *(name.partition(".")[0] for name in start)], True)
    found: dict[str, Path] = {}
    todo = list(start)
    while todo:
        name = todo.pop()
        top = name.partition(".")[0]
        if top == "outcore":
            todo += _public()
            continue
        if top not in tops:
            tops[top] = _lies_elsewhere(top)
        if name.startswith("harness.") and not name.startswith(_MEASURING):
            continue
        if name in found or not tops[top] or (file := _file_of(name)) is None:
            continue
        found[name] = file
        if file.suffix == ".py":
            # A package's own `__init__` runs before the module.
            todo += [name.rpartition(".")[0], *_facts(name, file)[1]]
    return found


def _public() -> list[str]:
    """Return the modules that systems import through the public package, which imports
    them by name."""
    imports = _facts("outcore", _ROOT / "outcore" / "__init__.py")[1]
    return [
        name
        for name in imports
        if name.startswith(("systems.", "workloads.")) and "systems.loading" not in name
    ]


def _file_of(name: str) -> Path | None:
    """Return the source or built file of a module, without importing any; None where
    there is no such module."""
    if name.partition(".")[0] in _OURS:
        base = _ROOT.joinpath(*name.split("."))
        for candidate in (base.with_suffix(".py"), base / "__init__.py"):
            if candidate.is_file():
                return candidate
        if not name.endswith("_native"):
            return None
    spec = _spec_of(name)
    return (
        Path(spec.origin)
        if spec and spec.origin and Path(spec.origin).is_file()
        else None
    )


def _spec_of(name: str) -> ModuleSpec | None:
    """Return the spec of a module without importing it or its package, whose code might
    do anything."""
    top, *inner = name.split(".")
    try:
        spec = importlib.util.find_spec(top) if top else None
        for number in range(len(inner)):
            places = spec.submodule_search_locations if spec else None
            spec = (
                PathFinder.find_spec(".".join((top, *inner[: number + 1])), places)
                if places
                else None
            )
    except (ImportError, ValueError, AttributeError):
        return None
    return spec


def _is_library(file: Path) -> bool:
    return bool(_PACKAGES & {*file.parts}) or str(file).startswith(_STDLIB)


def _lies_elsewhere(top: str) -> bool:
    """Return whether a top-level module lies in no folder of libraries."""
    spec = _spec_of(top)
    places = (
        [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
    )
    return any(
        place and Path(place).exists() and not _is_library(Path(place))
        for place in places
    )


@functools.cache
def _facts(name: str, file: Path) -> tuple[bytes, list[str]]:
    """Return a module's digest and its imports; the cache does not hold the syntax
    tree."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(file.read_bytes())
    for node in ast.iter_child_nodes(tree):
        _number_locals(node, {})
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    imports: list[str] = []
    for node in ast.walk(tree):
        if (
            isinstance(node, documented)
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
        elif isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(filter(None, (above, node.module)))
            imports += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return hashlib.sha256(ast.dump(tree).encode()).digest(), imports


_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def _number_locals(node: ast.AST, numbered: dict[str, str]) -> None:
    """Replace the names of local variables below a node by numbers, in the order of
    their first assignment.

    Parameters keep their names, which calls may use; `numbered`: those of the functions
    around the node.
    """
    if isinstance(node, _Function):
        own = _assigned(node)
        around = {
            name: number
            for name, number in numbered.items()
            if name not in _parameters(node)
        }
        numbered = around | {
            name: f"local {len(around) + at}" for at, name in enumerate(own)
        }
    elif isinstance(node, ast.Name):
        node.id = numbered.get(node.id, node.id)
    for child in ast.iter_child_nodes(node):
        _number_locals(child, numbered)


def _parameters(function: _Function) -> set[str]:
    given = function.args
    plain = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return {one.arg for one in [*plain, given.vararg, given.kwarg] if one is not None}


def _assigned(function: _Function) -> list[str]:
    """Return the variables that a function assigns itself, in order, without its
    parameters and outer variables."""
    outer = _parameters(function)
    found: dict[str, None] = {}
    todo = (
        list(function.body) if not isinstance(function, ast.Lambda) else [function.body]
    )
    while todo:
        node = todo.pop(0)
        if isinstance(node, ast.Global | ast.Nonlocal):
            outer |= set(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
        elif not isinstance(node, _Function | ast.ClassDef):
            todo = [*ast.iter_child_nodes(node), *todo]
    return [name for name in found if name not in outer]


def _digest(modules: dict[str, Path]) -> str:
    digest = hashlib.sha256()
    for name, file in sorted(modules.items()):
        digest.update(name.encode())
        digest.update(
            _native(name, file) if file.suffix != ".py" else _facts(name, file)[0]
        )
    return digest.hexdigest()[:16]


def _native(name: str, file: Path) -> bytes:
    """Return the digest of a built module's sources in a checkout, else of the module
    itself."""
    # Both modules are built from the base, which lies in the lower layer.
    sources = (
        _ROOT / name.partition(".")[0] / "native",
        _ROOT / "workloads" / "native" / "base",
    )
    digest = hashlib.sha256()
    found = {
        path
        for folder in sources
        for path in folder.rglob("*")
        if path.suffix in _NATIVE_SOURCES
    }
    files = sorted(found) if sources[0].is_dir() else [file]
    for path in files:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.digest()
