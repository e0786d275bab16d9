"""Output formats of a comparison: one module per format, each with a function from a comparison to text."""

from __future__ import annotations

import importlib
from pathlib import Path

from harness.atomic import whole_file
from harness.regress.decision import Comparison
from workloads.errors import InputError

# Format -> module of this package.
KINDS = {
    "markdown": "markdown",
    "junit": "junit",
    "json": "plain",
    "github-benchmark": "github_benchmark",
    "bmf": "bencher",
    "asv": "asv",
}


def write(kind: str, path: Path, found: Comparison) -> None:
    """Write a comparison in one format, each file whole or not at all.

    Args:
        kind: one of KINDS.
        path: the file; for `asv` the results folder.

    Raises:
        InputError: unknown format, or `asv` for a comparison of folders.
        DataIOError: a file cannot be written.
    """
    if kind not in KINDS:
        raise InputError(f"there is no output {kind!r}", f"choose one of {', '.join(KINDS)}")
    module = importlib.import_module(f"{__name__}.{KINDS[kind]}")
    if hasattr(module, "files"):
        for name, text in module.files(found).items():
            _put(path / name, text)
        return
    _put(path, module.render(found))


def _put(path: Path, text: str) -> None:
    with whole_file(path, "the comparison") as partial:
        partial.write_text(text, encoding="utf-8")
