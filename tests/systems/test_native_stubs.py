"""The types of the native modules that are checked in are those that the built modules give."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("layer", ["workloads", "systems"])
def test_the_stub_is_what_the_module_gives(layer: str, tmp_path: Path):
    built = Path(str(importlib.import_module(f"{layer}._native").__file__))
    newest = max(path.stat().st_mtime for path in (ROOT / layer / "native").rglob("bind_*.cpp"))
    if built.stat().st_mtime < newest:
        pytest.skip(f"{layer}._native was built before its bindings were last edited: scripts/build-native {layer}")
    stubgen = [
        sys.executable,
        "-m",
        "nanobind.stubgen",
        "-q",
        "-m",
        f"{layer}._native",
        "-o",
        str(tmp_path / "made.pyi"),
    ]
    if subprocess.run(stubgen, cwd=ROOT).returncode != 0:
        pytest.skip("nanobind's stubgen does not run here")
    # Layout is the formatter's; it rewrites no type.
    for path in (tmp_path / "made.pyi", ROOT / layer / "_native.pyi"):
        (tmp_path / path.name).write_text(path.read_text("utf-8"), "utf-8")
        subprocess.run([sys.executable, "-m", "ruff", "format", "-q", str(tmp_path / path.name)], cwd=ROOT, check=True)
    made, kept = (tmp_path / "made.pyi").read_text("utf-8"), (tmp_path / "_native.pyi").read_text("utf-8")
    assert kept == made, "scripts/stubs writes the types anew"
