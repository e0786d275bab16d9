"""Registry of systems: `systems/<name>/` (or `<name>.py`) whose `__init__` exports `SYSTEM`.

Nothing is listed by hand, and importing one system imports no other.
"""

from __future__ import annotations

import difflib
import importlib
import re
from functools import cache
from pathlib import Path

from systems.interface import System, SystemInfo
from workloads.errors import InputError

_FOLDER = Path(__file__).resolve().parent


def module_name(name: str) -> str:
    """Return the module of a system: `pyg+` -> `pyg_plus`, `ali+pg` -> `ali_plus_pg`, `in-memory` -> `in_memory`."""
    return "_plus_".join(name.replace("-", "_").split("+")).rstrip("_")


@cache
def _modules() -> tuple[str, ...]:
    """List the modules beside this one that assign or import `SYSTEM`, found by reading their source."""
    exports = re.compile(r"^(SYSTEM\b|from \S+ import .*\bSYSTEM\b)", re.MULTILINE)
    paths = {path.stem: path for path in _FOLDER.glob("*.py")} | {
        path.parent.name: path for path in _FOLDER.glob("*/__init__.py")
    }
    return tuple(sorted(name for name, path in paths.items() if exports.search(path.read_text(encoding="utf-8"))))


def names() -> list[str]:
    """List the names of all built-in systems, sorted; imports each system, since its class holds the name."""
    return sorted(_load_module(f"systems.{module}").info.name for module in _modules())


def load(name: str) -> type[System]:
    """Return the class of a system: one of `names()`, or `package.module:Class` for a user's own system.

    Raises:
        InputError: no system has this name (suggests the nearest), or the object is not a `System`.
    """
    if ":" in name:
        return _load_class(name)
    module = module_name(name)
    if module in _modules():
        system = _load_module(f"systems.{module}")
        if system.info.name == name:
            return system
    known = names()
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}"
    raise InputError(f"there is no system {name!r}", hint)


def _load_module(module: str) -> type[System]:
    return _checked(importlib.import_module(module).SYSTEM, module)


def _load_class(name: str) -> type[System]:
    module, _, attribute = name.partition(":")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise InputError(f"there is no module {module!r} for system {name!r}", "check PYTHONPATH") from error
    if not hasattr(loaded, attribute):
        near = difflib.get_close_matches(attribute, dir(loaded), n=1)
        raise InputError(
            f"module {module!r} has no {attribute!r}", f"did you mean {near[0]!r}?" if near else "name its System class"
        )
    return _checked(getattr(loaded, attribute), name)


def _checked(system: object, name: str) -> type[System]:
    if not (isinstance(system, type) and issubclass(system, System)):
        raise InputError(f"{name!r} is not a System class", "derive it from systems.interface.System")
    if not isinstance(getattr(system, "info", None), SystemInfo):
        fix = "give it `info = SystemInfo(name=..., summary=..., options=Options)`"
        raise InputError(f"class {name!r} has no `info`", fix)
    return system
