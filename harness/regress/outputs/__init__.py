"""Output formats of a comparison: a function from a comparison to text, or to several files' names and texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.atomic import whole_file
from harness.regress.decision import Comparison
from harness.regress.outputs import junit, markdown, trackers
from workloads.errors import InputError

KINDS: dict[str, Callable[[Comparison], str | dict[str, str]]] = {
    "markdown": markdown.render,
    "junit": junit.render,
    "json": trackers.plain,
    "github-benchmark": trackers.github_benchmark,
    "bmf": trackers.bencher,
    "asv": trackers.asv,
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
    made = KINDS[kind](found)
    for name, text in made.items() if isinstance(made, dict) else [("", made)]:
        with whole_file(path / name, "the comparison") as partial:
            partial.write_text(text, encoding="utf-8")
