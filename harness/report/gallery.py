"""Gallery and scoreboard: figures with the paper's numbers beside ours, or why none was
drawn, and judged claims."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.claims.judge import Judged, judge_all
from harness.claims.published import VERDICTS
from harness.compare.evidence import Evidence
from harness.figures.base import published
from harness.figures.render import Rendered, read_rendered
from harness.progress import Notice, silent
from harness.results.reference import FOLDER, reference_of
from workloads.errors import OutcoreError

# Column names of a drawing's CSV for a point's series, place and value.
SERIES = ("series", "system", "policy", "name", "variant")
PLACE = ("x", "group", "bar")
VALUE = ("value", "y")
# Rows of a table on the page; the CSV beside the report has all.
SHOWN = 200


@dataclass(frozen=True)
class Scoreboard:
    """All judged claims; `missing` is the reason where there are none."""

    claims: Sequence[Judged]
    missing: str = ""

    @property
    def judged(self) -> Scoreboard | None:
        """The claims that these runs judge; None where there is none."""
        found = [claim for claim in self.claims if claim.verdict != "not run"]
        return Scoreboard(found) if found else None

    @property
    def unjudged(self) -> list[Judged]:
        """The claims without runs."""
        return [claim for claim in self.claims if claim.verdict == "not run"]

    def counts(self) -> list[tuple[str, int]]:
        """Count the claims for each verdict, best first."""
        found = Counter(claim.verdict for claim in self.claims)
        return [(verdict, found[verdict]) for verdict in VERDICTS]

    def by_paper(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """Count the claims of each paper for each verdict, in the order of the
        claims."""
        papers: dict[str, list[Judged]] = {}
        for claim in self.claims:
            papers.setdefault(claim.paper, []).append(claim)
        return [
            (paper, Scoreboard(claims).counts()) for paper, claims in papers.items()
        ]


def judge(evidence: Evidence, progress: Notice = silent) -> Scoreboard:
    """Judge every published claim; where that fails, return the reason as `missing`."""
    try:
        found = judge_all(evidence, progress=progress)
    except OutcoreError as error:
        return Scoreboard([], f"The claims could not be judged: {error}.")
    return Scoreboard(found, "" if found else "There is no published claim to judge.")


@dataclass(frozen=True)
class ShownTable:
    """A table as text."""

    header: list[str]
    rows: list[list[str]]
    left_out: int = 0


@dataclass(frozen=True)
class GalleryEntry(Rendered):
    """One figure or table of the gallery, as it was rendered, and its content.

    Attributes:
        picture: the PNG; None for tables and for undrawn figures.
        image: address of its copy in the folder beside the page; empty without one.
        width, height: of the picture in pixels.
        published: the paper's values beside ours; None where the paper gives no
            numbers.
        judged: claims of the figure.
        links: (kind, address relative to the report) of the files beside it.
        origin: name of the machine of reference results; empty for one's own.
        others: the same figure of reference results.
    """

    picture: Path | None = None
    image: str = ""
    width: int = 0
    height: int = 0
    table: ShownTable | None = None
    published: ShownTable | None = None
    judged: list[Judged] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    origin: str = ""
    others: list[GalleryEntry] = field(default_factory=list)

    @property
    def drawn(self) -> bool:
        """Whether there is an image or a table."""
        return bool(self.image or self.table)


def gallery(
    rendered: Sequence[Rendered],
    board: Scoreboard,
    beside: str,
    references: Sequence[Path] = (),
) -> list[GalleryEntry]:
    """Return the entries of all figures, each paper's drawn ones first.

    Args:
        beside: address of the results root, relative to the report.
        references: folders of reference results in the results root, whose drawn
            figures are put beside those here.
    """
    entries = [_entry(one, board, f"{beside}/figures", "figures") for one in rendered]
    for folder in references:
        origin = reference_of(folder).label
        place = f"{beside}/{FOLDER}/{folder.name}/figures"
        for entry in entries:
            other = read_rendered(folder / "figures", entry.id)
            # A drawing may be of a former archive.
            if (
                other is not None
                and other.status == "drawn"
                and other.caption.startswith(origin)
            ):
                theirs = _entry(other, Scoreboard([]), place, folder.name)
                entry.others.append(replace(theirs, origin=origin))
    papers = list(dict.fromkeys(entry.paper for entry in entries))
    papers.sort(key=lambda paper: paper == "outcore")
    return sorted(
        entries, key=lambda e: (papers.index(e.paper), not e.drawn, _natural(e.id))
    )


def _natural(text: str) -> list[tuple[int, str]]:
    """Split text into a sort key by which `fig2` precedes `fig10`."""
    return [
        (int(part), "") if part.isdigit() else (-1, part)
        for part in re.split(r"(\d+)", text)
    ]


def _entry(
    one: Rendered, board: Scoreboard, beside: str, pictures: str
) -> GalleryEntry:
    """Return a figure's entry; `beside` is the address of its files, `pictures` that of
    pictures in the folder beside the page."""
    by_kind = {file.suffix: file for file in one.files}
    reason = one.reason
    ours = ""
    shown: dict[str, Any] = {}
    try:
        if ".png" in by_kind:
            shown = _image(by_kind[".png"], pictures)
        elif ".md" in by_kind:
            shown = {"table": read_markdown(by_kind[".md"].read_text(encoding="utf-8"))}
        ours = by_kind[".csv"].read_text(encoding="utf-8") if ".csv" in by_kind else ""
    except (
        OSError,
        SyntaxError,
        UnicodeDecodeError,
    ) as error:  # Pillow raises SyntaxError for a damaged PNG
        reason = f"its files cannot be read: {error}"
    judged = [
        claim
        for claim in board.claims
        if claim.figure == one.id or claim.id in one.claims
    ]
    links = [
        (kind[1:].upper(), f"{beside}/{file.name}") for kind, file in by_kind.items()
    ]
    own = {**vars(one), "reason": reason, **shown}
    return GalleryEntry(
        **own, published=_published(one.id, ours), judged=judged, links=links
    )


def _image(path: Path, pictures: str) -> dict[str, Any]:
    """Return a PNG as `picture`, with `image`, `width` and `height`; every byte of it
    is checked."""
    from PIL import Image

    with Image.open(path) as picture:
        width, height = picture.size
        picture.verify()
    return {
        "picture": path,
        "image": f"{pictures}/{path.name}",
        "width": width,
        "height": height,
    }


def read_markdown(text: str) -> ShownTable | None:
    """Return the first table of Markdown by `harness.figures.render.markdown`; None
    where there is none."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [
        [
            cell.replace("\\|", "|").strip()
            for cell in re.split(r"(?<!\\)\|", line)[1:-1]
        ]
        for line in lines
    ]
    return _shortened(cells[0], cells[2:]) if len(lines) > 1 else None


def _shortened(header: list[str], rows: list[list[str]]) -> ShownTable:
    return ShownTable(header, rows[:SHOWN], max(0, len(rows) - SHOWN))


def _published(figure: str, ours: str) -> ShownTable | None:
    """Return the paper's values of a figure, each beside our value of the same series
    and place, where there is one."""
    theirs = published(figure)
    if theirs.empty:
        return None
    mine = _values(ours)
    table = theirs.reindex(columns=["series", "x", "value", "unit", "source"]).map(
        _text
    )
    places = zip(table["series"], table["x"], strict=True)
    table.insert(3, "ours", [mine.get(place, "–") for place in places])
    if "read" in theirs:
        table.loc[theirs["read"] == "plot", "source"] += ", read off a plot"
    if table["ours"].eq("–").all():
        table = table.drop(columns="ours")
    table = table.rename(columns={"value": "paper"})
    return _shortened(table.columns.to_list(), table.to_numpy().tolist())


def _values(text: str) -> dict[tuple[str, str], str]:
    """Return (series, place) -> value of a drawing's CSV; empty where its columns have
    other names."""
    rows = list(csv.DictReader(io.StringIO(text)))
    names = [
        next((name for name in kinds if rows and name in rows[0]), "")
        for kinds in (SERIES, PLACE, VALUE)
    ]
    if not all(names):
        return {}
    found = {}
    for row in rows:
        series, place, value = (_text(row[name]) for name in names)
        if value != "–":
            found[series, place] = value
    return found


def _text(value: object) -> str:
    """Format a value in at most four digits, so that `1.0` and `1` are the same place;
    nothing becomes a dash."""
    if value is None or value != value or value == "":
        return "–"
    try:
        number = float(str(value))
    except ValueError:
        return str(value)
    return f"{number:,.0f}" if abs(number) >= 10_000 else f"{number:.4g}"
