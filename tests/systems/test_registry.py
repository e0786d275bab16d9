"""Systems are found by their folders and loaded one at a time; a missing name offers
the nearest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from systems import registry
from systems.interface import System
from systems.parts import PathSystem
from workloads.errors import InputError


def test_every_folder_with_a_system_is_listed() -> None:
    assert {"in-memory", "pyg+", "gnndrive"} <= set(registry.names())


@pytest.mark.parametrize("name", registry.names())
def test_a_listed_system_loads_under_its_own_name(name: str) -> None:
    assert registry.load(name).info.name == name


@pytest.mark.parametrize("name", registry.names())
def test_no_system_inherits_from_another(name: str) -> None:
    """A system's own file shows its data path: what systems share is functions and
    parts."""
    bases = registry.load(name).__mro__[1:]
    assert [base.__name__ for base in bases if "info" in vars(base)] == []


@pytest.mark.parametrize("name", registry.names())
def test_a_system_is_one_step_from_its_interface(name: str) -> None:
    """Nothing of a data path stands in a base class between them."""
    assert registry.load(name).__bases__ in ((System,), (PathSystem,))


@pytest.mark.parametrize(
    ("name", "module"),
    [("pyg+", "pyg_plus"), ("in-memory", "in_memory"), ("dgl+pp", "dgl_plus_pp")],
)
def test_names_become_module_names(name: str, module: str) -> None:
    assert registry.module_name(name) == module


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'gnndrive'"):
        registry.load("gnndriv")


def test_a_module_name_is_not_a_system_name() -> None:
    with pytest.raises(InputError, match=r"pyg_plus.*pyg\+"):
        registry.load("pyg_plus")


@pytest.mark.parametrize("name", ["my-tiering", "hot-rows", "uvx-cache", "cached_rows"])
def test_a_module_outside_the_current_folder_names_the_folder_searched(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of these is near enough to a system's name to be a misspelling of it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        registry.load(name)
    module = registry.module_name(name)
    assert f"nor {module}.py or {module}/__init__.py in {tmp_path}" in str(caught.value)
    assert "did you mean" not in str(caught.value)


def test_a_module_that_assigns_no_system_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hot_rows.py").write_text("class HotRows: ...\n")
    with pytest.raises(
        InputError, match=r"hot_rows\.py assigns no SYSTEM; end it with"
    ):
        registry.load("hot-rows")


@pytest.mark.parametrize("given", ["elsewhere/hot_rows", "./elsewhere/hot_rows/"])
def test_a_path_to_a_systems_folder_is_answered_by_the_folder_to_go_to(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "elsewhere" / "hot_rows"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("SYSTEM = None\n")
    with pytest.raises(
        InputError, match=rf"this is a path; go to {folder.parent} and give hot_rows"
    ):
        registry.load(given)


def test_a_missing_module_of_a_class_names_the_folder_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InputError,
        match=f"no module 'hot_rows' for system 'hot_rows:HotRows' in {tmp_path} or "
        "among",
    ):
        registry.load("hot_rows:HotRows")


def test_anyones_class_can_be_loaded() -> None:
    loaded = registry.load("systems.pyg_plus:PygPlus")
    assert issubclass(loaded, System)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.such.module:Thing", "there is no module"),
        ("systems.pyg_plus:PygPlu", "did you mean 'PygPlus'"),
        ("systems.interface:Options", "is not a System class"),
        (
            "./mine/hot_rows.py:HotRows",
            "names no module; write it like package.module:Class",
        ),
        (".hot_rows:HotRows", "names no module; write it like package.module:Class"),
        (":HotRows", "names no module"),
    ],
)
def test_a_wrong_class_is_one_sentence(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        registry.load(name)


@pytest.mark.slow("systems", seconds=6)
def test_loading_one_system_imports_no_other() -> None:
    code = (
        "import sys; from systems.registry import load; load('in-memory'); print([m "
        "for m in sys.modules if m.startswith(('systems.pyg_plus', "
        "'systems.gnndrive'))])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == "[]"
