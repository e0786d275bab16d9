"""Header of a text edge list: comment lines, column names, and the direction of the
edges by them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from workloads.errors import InputError, require

_SOURCES = {
    "src",
    "source",
    "from",
    "fromnodeid",
    "fromnode",
    "fromid",
    "sourceid",
    "srcid",
}
_TARGETS = {
    "dst",
    "dest",
    "destination",
    "target",
    "to",
    "tonodeid",
    "tonode",
    "toid",
    "targetid",
    "dstid",
}
# of triples, whose second column is a relation
_ENDS = {"head", "tail", "subject", "object"}
_LOOKED_AT_BYTES = 20_000  # of edges, for lines of unequal length
_WORD = re.compile(r"[^\W\d][\w .:/()-]*")
_ID = re.compile(r"[ \t]*[0-9]+[ \t]*([,;]?)")
_NO = r"""["']?\s*(?:[:=]\s*(?:false|no|0)\b|false\b)"""
_UNDIRECTED = re.compile(
    rf"(?:un-?|non-?)directed\b|(?<![a-z])directed{_NO}", re.IGNORECASE
)
_DIRECTED = re.compile(
    rf"(?<![a-z])(?<!un-)(?<!non-)(?<!bi-)directed\b(?!{_NO})", re.IGNORECASE
)
_UNCLEAR = re.compile(
    r"\bunordered pairs?\b|\bsymmetric\b|\bbi-?directed\b|\bbi-?directional\b",
    re.IGNORECASE,
)
_KONECT = re.compile(r"%\s*(sym|asym|bip)\b", re.IGNORECASE)
_NEGATED = re.compile(r"\b(?:not|no longer|whether)\b.*directed", re.IGNORECASE)


@dataclass
class EdgeHeader:
    """Lines before the first edge of a text edge list."""

    # lines that begin with `#` or `%`
    comments: list[str] = field(default_factory=list)
    # names of the columns, if a line of names stands there
    columns: list[str] = field(default_factory=list)
    columns_at: int = -1  # offset in bytes of that line; -1: there is none
    whole: bool = False  # whether a line follows that is neither a comment nor names
    first_edge: str = ""  # that line
    separator: str = ""  # `,` or `;`; empty: blanks and tabs


def read_header(text: bytes, path: Path) -> EdgeHeader:
    """Read the header of an edge list that begins with `text`, whole lines; raises
    InputError for another format, and for column names other than source and
    destination, in this order."""
    header = EdgeHeader()
    offset = 0
    for raw in text.splitlines(keepends=True):
        line = raw.decode("utf-8", "backslashreplace").strip()
        _check_format(line, path, first=offset == 0)
        if line.startswith(("#", "%")):
            header.comments.append(line)
        elif line:
            found = _ID.match(line)
            names = _column_names(line)
            if found or header.columns or not names:
                header.separator = found[1] if found else ""
                header.whole = True
                header.first_edge = line
                break
            header.columns = names
            header.columns_at = offset
        offset += len(raw)
    _check_lists(text[offset:], header.separator, path)
    for line in header.comments:
        names = re.split(r"[\s,;]+", line.lstrip("#% "))
        if (
            len(names) > 1
            and {_plain(name) for name in names[:2]} <= _SOURCES | _TARGETS
        ):
            _check_order(names, line, path)
    if header.columns:
        _check_order(header.columns, ", ".join(header.columns), path)
    return header


def direction(
    header: EdgeHeader, symmetric: bool | None, path: Path
) -> tuple[bool, list[str]]:
    """Return whether every edge stands for both directions, and notes on the reason.

    `symmetric` is the user's statement; None: the header decides, and where it states
    nothing, an edge is directed. Raises InputError where there is no statement and the
    header is not clear, and for a list of two sorts of nodes.
    """
    undirected = ""
    directed = ""
    unclear = ""
    for line in header.comments:
        konect = _KONECT.match(line)
        kind = konect[1].lower() if konect else ""
        fix = (
            "add the number of the left nodes to the ids of the right, and remove this "
            "line"
        )
        fault = (
            f"{path} numbers two sorts of nodes apart: it has the line {_shown(line)}"
        )
        require(kind != "bip", fault, fix)
        if kind == "sym" or _UNDIRECTED.search(line):
            undirected = undirected or line
        if kind == "asym" or _DIRECTED.search(line):
            directed = directed or line
        # SNAP writes "Directed graph (each unordered pair of nodes is saved once)" over
        # every directed graph.
        both = _UNCLEAR.search(line) and not _DIRECTED.search(line)
        if both or _NEGATED.search(line):
            unclear = unclear or line
    if undirected and directed:
        unclear = unclear or directed
    # a column of types, as Gephi writes, which may differ
    if _UNDIRECTED.search(header.first_edge):
        unclear = unclear or header.first_edge
    stated = _shown(unclear or undirected or directed)
    if symmetric is not None:
        contrary = unclear or (directed if symmetric else undirected)
        option = "--symmetric" if symmetric else "--directed"
        return symmetric, [
            f"{option} was given; the file has the line {stated}"
        ] if contrary else []
    fault = (
        f"{path} does not make clear whether its edges are directed: it has the line "
        f"{stated}"
    )
    fix = (
        "give --symmetric to take every edge both ways, or --directed (of a base "
        "graph: import it first, with either)"
    )
    require(not unclear, fault, fix)
    if undirected:
        return True, [f"undirected, since the file has the line {stated}"]
    reason = f", since the file has the line {stated}" if directed else ""
    return False, [f"each line taken as one directed edge{reason}"]


def _shown(line: str) -> str:
    return repr(line[:60])


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _column_names(line: str) -> list[str]:
    """Return the names of columns in a line; none if its first two fields are no
    names."""
    separator = next((sign for sign in (",", ";", "\t") if sign in line), None)
    names = [name.strip().strip("\"'") for name in line.split(separator)]
    # An empty first name is that of a row number, which would be taken for a source.
    named = len(names) >= 2 and all(_WORD.fullmatch(name) for name in names[:2])
    return names if named else []


def _check_lists(text: bytes, separator: str, path: Path) -> None:
    """Raise InputError where lines are lists of neighbours: ids alone, in numbers that
    differ, some four or more."""
    lengths = set()
    for line in text[:_LOOKED_AT_BYTES].splitlines():
        fields = line.split(separator.encode() or None)
        if line.lstrip().startswith((b"#", b"%")):
            continue
        if not all(field.strip().isdigit() for field in fields):
            return
        lengths.add(len(fields))
    lengths.discard(0)
    fault = (
        f"{path} has lines of {min(lengths, default=0)} to {max(lengths, default=0)} "
        "ids, like lists of neighbours"
    )
    valid = len(lengths) < 2 or max(lengths) < 4
    require(valid, fault, "write one edge a line, two ids")


def _check_order(names: list[str], shown: str, path: Path) -> None:
    """Raise InputError where names of the columns place source or destination elsewhere
    than first and second."""
    plain = [_plain(name) for name in names]
    sources = [at for at, name in enumerate(plain) if name in _SOURCES]
    targets = [at for at, name in enumerate(plain) if name in _TARGETS]
    triple = any(name in _ENDS for name in plain[2:])
    sound = (
        (not sources or 0 in sources) and (not targets or 1 in targets) and not triple
    )
    fault = f"{path} has the columns {shown[:80]!r}"
    require(
        sound,
        fault,
        "write the source first, the destination second, and remove or rename the "
        "header",
    )


def _check_format(line: str, path: Path, first: bool) -> None:
    """Raise InputError where the line is of another format that also holds edges as
    text."""
    kinds = {
        "%%matrixmarket": (
            "a matrix in MatrixMarket's format",
            "remove its first lines up to that of the matrix's size, and give "
            "--symmetric if it is symmetric",
        ),
        "*vertices": (
            "a graph in Pajek's format",
            "write the pairs below *Arcs alone, or those below *Edges and give "
            "--symmetric",
        ),
        "<": ("XML", "write two ids a line"),
        "{": ("JSON", "write two ids a line"),
        "[": ("JSON", "write two ids a line"),
        "graph [": ("a graph in GML", "write two ids a line"),
    }
    lower = line.lower()
    for begin, (kind, fix) in kinds.items():
        if lower.startswith(begin) and (first or begin == "*vertices"):
            fault = f"{path} is {kind}, not a list of edges"
            raise InputError(fault, fix)
