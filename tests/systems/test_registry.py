"""Systems are found by their folders and loaded one at a time; a missing name offers the nearest."""

from __future__ import annotations

import subprocess
import sys

import pytest

from systems import registry
from systems.interface import System
from workloads.errors import InputError


def test_every_folder_with_a_system_is_listed() -> None:
    assert {"in-memory", "pyg+", "gnndrive"} <= set(registry.names())


@pytest.mark.parametrize("name", registry.names())
def test_a_listed_system_loads_under_its_own_name(name: str) -> None:
    assert registry.load(name).info.name == name


@pytest.mark.parametrize(
    ("name", "module"), [("pyg+", "pyg_plus"), ("in-memory", "in_memory"), ("dgl+pp", "dgl_plus_pp")]
)
def test_names_become_module_names(name: str, module: str) -> None:
    assert registry.module_name(name) == module


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'gnndrive'"):
        registry.load("gnndriv")


def test_a_module_name_is_not_a_system_name() -> None:
    with pytest.raises(InputError, match=r"pyg_plus.*pyg\+"):
        registry.load("pyg_plus")


def test_anyones_class_can_be_loaded() -> None:
    loaded = registry.load("systems.pyg_plus:PygPlus")
    assert issubclass(loaded, System)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.such.module:Thing", "there is no module"),
        ("systems.pyg_plus:PygPlu", "did you mean 'PygPlus'"),
        ("systems.interface:Options", "is not a System class"),
    ],
)
def test_a_wrong_class_is_one_sentence(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        registry.load(name)


@pytest.mark.slow("systems", seconds=6)
def test_loading_one_system_imports_no_other() -> None:
    code = (
        "import sys; from systems.registry import load; load('in-memory'); "
        "print([m for m in sys.modules if m.startswith(('systems.pyg_plus', 'systems.gnndrive'))])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
