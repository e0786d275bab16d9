"""Registry of systems: built-in ones, those of installed packages, and those of the
current folder.

A built-in system is `systems/<name>/` (or `<name>.py`) whose `__init__` exports
`SYSTEM`; one of the current folder likewise. A package installs one by an entry point
of the group `outcore.systems`: `name = "package.module:Class"`. Nothing is listed by
hand, and importing one system imports no other.
"""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from systems.interface import System, SystemInfo
from workloads.errors import InputError

_FOLDER = Path(__file__).resolve().parent
_EXPORTS = re.compile(r"^(SYSTEM\b|from \S+ import .*\bSYSTEM\b)", re.MULTILINE)
ENTRY_POINTS = "outcore.systems"


def module_name(name: str) -> str:
    """Return the module of a system: `pyg+` -> `pyg_plus`, `ali+pg` -> `ali_plus_pg`,
    `in-memory` -> `in_memory`."""
    return "_plus_".join(name.replace("-", "_").split("+")).rstrip("_")


@cache
def _modules() -> tuple[str, ...]:
    """List the modules beside this one that assign or import `SYSTEM`, found by reading
    their source."""
    paths = {path.stem: path for path in _FOLDER.glob("*.py")} | {
        path.parent.name: path for path in _FOLDER.glob("*/__init__.py")
    }
    return tuple(sorted(name for name, path in paths.items() if _exports(path)))


def _exports(path: Path) -> bool:
    """Return whether a module exists and assigns or imports `SYSTEM`."""
    return (
        path.is_file() and _EXPORTS.search(path.read_text(encoding="utf-8")) is not None
    )


def installed() -> dict[str, str]:
    """Return the systems of installed packages: name -> `package.module:Class`."""
    return dict(_installed(tuple(sys.path)))


@cache
def _installed(path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Read the entry points from the metadata of every package, once for each value of
    `sys.path`, given as `path`."""
    return tuple(
        (entry.name, entry.value) for entry in entry_points(group=ENTRY_POINTS)
    )


def names() -> list[str]:
    """List the names of all built-in and installed systems, sorted; imports each
    built-in one, whose class holds its name."""
    return sorted(
        {_load_module(f"systems.{module}").info.name for module in _modules()}
        | installed().keys()
    )


def load(name: str) -> type[System]:
    """Return the class of a system: one of `names()`, a module of the current folder
    that exports `SYSTEM`, or `package.module:Class`.

    Raises:
        InputError: no system has this name (names the folder searched, suggests a near
            name), or the object is not a `System`.
    """
    if ":" in name:
        return _load_class(name)
    if "/" in name:
        raise _path_given(name)
    module = module_name(name)
    if module in _modules():
        system = _load_module(f"systems.{module}")
        if system.info.name == name:
            return system
    if (place := installed().get(name)) is not None:
        return _load_class(place)
    if _exports(Path(module, "__init__.py")) or _exports(Path(f"{module}.py")):
        return _load_class(f"{module}:SYSTEM")
    raise _unknown(name, module)


def _unknown(name: str, module: str) -> InputError:
    """Return the error for a name without a system: the places searched, and the
    nearest name or a module's folder."""
    here = Path.cwd()
    missing = f"there is no system {name!r}"
    for path in (here / module / "__init__.py", here / f"{module}.py"):
        if path.is_file():
            return InputError(
                f"{missing}: {path} assigns no SYSTEM",
                "end it with `SYSTEM = <its class>`",
            )
    searched = (
        f"{missing} among those of `outcore systems`, nor {module}.py or "
        f"{module}/__init__.py in {here}"
    )
    near = _near(name)
    fix = "go to the folder that holds its module, or install its package"
    return InputError(searched, f"did you mean {near!r}? Else {fix}" if near else fix)


def _path_given(name: str) -> InputError:
    """Return the error for a path given as a system, with the folder to go to where its
    module is there."""
    given = Path(name)
    fix = "go to the folder that holds its module, and give the module's name"
    if _exports(given / "__init__.py"):
        folder = given.resolve()
        fix = f"go to {folder.parent} and give {folder.name}"
    elif given.suffix == ".py" and _exports(given):
        fix = f"go to {given.resolve().parent} and give {given.stem}"
    return InputError(
        f"there is no system {name!r}: a system is named, and this is a path", fix
    )


def _near(name: str) -> str | None:
    """Return the name nearest to a misspelt one, or that of the module `name`; None if
    none is near."""
    spelt = {module_name(each): each for each in names()}
    spelt |= {each: each for each in names()}
    near = difflib.get_close_matches(name, spelt, n=1, cutoff=0.75)
    return spelt[near[0]] if near else None


def _load_module(module: str) -> type[System]:
    return _checked(importlib.import_module(module).SYSTEM, module)


def _load_class(name: str) -> type[System]:
    module, _, attribute = name.partition(":")
    if "/" in module or not all(module.split(".")):
        raise InputError(
            f"system {name!r} names no module",
            "write it like package.module:Class, in its folder",
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # a worker, started by `python -m`, has it too
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (
            module == error.name or module.startswith(f"{error.name}.")
        ):
            raise
        searched = (
            f"there is no module {module!r} for system {name!r} in {here} or among the "
            "installed packages"
        )
        raise InputError(
            searched, "go to the folder of its package, or install it"
        ) from error
    if not hasattr(loaded, attribute):
        near = difflib.get_close_matches(attribute, dir(loaded), n=1)
        raise InputError(
            f"module {module!r} has no {attribute!r}",
            f"did you mean {near[0]!r}?" if near else "name its System class",
        )
    return _checked(getattr(loaded, attribute), name)


def _checked(system: object, name: str) -> type[System]:
    if not (isinstance(system, type) and issubclass(system, System)):
        raise InputError(
            f"{name!r} is not a System class", "derive it from outcore.System"
        )
    if not isinstance(getattr(system, "info", None), SystemInfo):
        raise InputError(
            f"class {name!r} has no `info`", "give it `info = outcore.SystemInfo(…)`"
        )
    return system
