"""Pictures and tables of README and docs, made from reference results.

`python -m harness.report.readme [FOLDER]` writes them; with `--check` it exits with 1
if they differ.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import harness
from harness.compare.evidence import load_evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.base import chosen
from harness.figures.render import DATA, Rendered, render
from harness.report.memory_table import table_of
from harness.report.setting_words import listed
from harness.results.reference import FOLDER, references, unpacked
from workloads.errors import InputError, OutcoreError

ROOT = Path(harness.__file__).parent.parent
HERE = ROOT / "results" / FOLDER
#: Pages with the table, between its marks, and pictures by their figures; a picture's
#: text is its figure's finding.
PAGES = ("README.md", "docs/frontier.md")
PICTURES = ("outcore-training", "outcore-frontier", "outcore-roofline")
COMMAND = "python -m harness.report.readme"
_BEGIN = f"<!-- `{COMMAND}` writes this from reference results -->"
_END = "<!-- end of reference results -->"
_BLOCK = re.compile(f"{re.escape(_BEGIN)}\n\n(.*?){re.escape(_END)}", re.DOTALL)


def differing(folder: Path, root: Path = ROOT, *, write: bool = False) -> list[str]:
    """Return the pages and pictures that differ from reference results, and write them
    where `write` says so.

    Raises:
        InputError: the reference results are invalid or lack a figure, or a page has no
            marks.
        DataIOError: a file cannot be written.
    """
    reference = unpacked(folder)
    evidence = load_evidence(folder)
    try:
        block = table_of(evidence, reference)
    except NotDrawn as reason:
        raise InputError(
            f"{folder} has no runs by memory: {reason}", "make them, and archive again"
        ) from reason
    found = []
    for name in PAGES:
        text = (root / name).read_text(encoding="utf-8")
        kept = _BLOCK.search(text)
        if kept is None:
            raise InputError(
                f"{name} has no place for the table",
                f"put it between {_BEGIN} and {_END}",
            )
        new = f"{text[: kept.start(1)]}{block}{text[kept.end(1) :]}"
        if _replaced(root / name, new, write=write):
            found.append(name)
    for one in render(chosen(",".join(PICTURES)), evidence, folder / "figures"):
        if one.status != "drawn":
            raise InputError(
                f"{folder} has no {one.id}: {one.reason}",
                "make its runs, and archive again",
            )
        found += _described(root, one, write=write)
        picture = root / "docs" / "img" / f"{one.id}.png"
        if _content_of(picture) != _content_of(one.files[0]):
            found.append(str(picture.relative_to(root)))
            if write:
                picture.write_bytes(one.files[0].read_bytes())
    return list(dict.fromkeys(found))


def _replaced(page: Path, new: str, *, write: bool) -> bool:
    """Return whether a page differs from its new text, and write this where `write`."""
    differs = page.read_text(encoding="utf-8") != new
    if differs and write:
        page.write_text(new, encoding="utf-8")
    return differs


def _described(root: Path, figure: Rendered, *, write: bool) -> list[str]:
    """Return the pages that show a picture with another text than its finding, and
    correct them where `write`."""
    image = re.compile(rf"!\[[^\]]*\](\((?:docs/)?img/{figure.id}\.png\))")
    text = f"![{figure.finding or figure.title}]"
    found = []
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        new = image.sub(lambda match: text + match[1], page.read_text(encoding="utf-8"))
        if _replaced(page, new, write=write):
            found.append(str(page.relative_to(root)))
    return found


def _content_of(picture: Path) -> list[str | None] | None:
    """Return the digest of the data behind a picture, and its finding and caption; None
    without a picture."""
    from PIL import Image

    if not picture.is_file():
        return None
    with Image.open(picture) as image:
        return [image.info.get(key) for key in (DATA, "Description")]


def main(argv: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    """Write or check the pages and pictures; return the exit code."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        help="reference results (default: the first of the repository)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing, exit with 1 where something differs",
    )
    given = parser.parse_args(argv)
    folder = given.folder or next(iter(references(HERE)), None)
    if folder is None:
        say(f"skipped: {HERE.relative_to(ROOT)} holds no reference results")
        return 0
    try:
        found = differing(folder, write=not given.check)
    except OutcoreError as error:
        say(f"{COMMAND}: {error}")
        return error.exit_code
    if given.check and found:
        say(f"{listed(found)} differ from {folder}: run `{COMMAND}`")
        return 1
    say("\n".join(found) or f"all as in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
