"""Parser of text edge lists: two ids a line, parsed exactly, every line accounted for,
in bounded memory."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.arraytypes import Int64Array, UInt8Array
from workloads.errors import InputError
from workloads.importers.edge_header import EdgeHeader, read_header
from workloads.importers.packed import DAMAGE, unpacked
from workloads.importers.source import EDGES_A_CHUNK, EdgeChunk, reading
from workloads.making.progress import Progress, no_progress

Bytes = UInt8Array
MAX_ID = (1 << 63) - 1
_BLOCK_BYTES = 1 << 18  # arrays of a block's lines stay in the processor's cache
_LONGEST_LINE = 1 << 20
_LONGEST_HEADER = 1 << 20
_MOST_DIGITS = 19  # of an id below 2^63
_NEWLINE, _BLANK, _TAB, _ZERO = (np.uint8(ord(sign)) for sign in "\n \t0")
_ENCODINGS = (  # UTF-32 first: its mark begins like that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# A comment with the word, or a whole column of it, as Gephi writes for each edge.
_UNDIRECTED = re.compile(
    rb"""^(?:[ \t]*[#%].*\bundirected\b|.*[\t,;]["']?undirected["']?(?=[\t,;]|$)).*""",
    re.IGNORECASE | re.MULTILINE,
)
_ENDS_LINE = np.isin(np.arange(256), list(b"#%\n"))  # by character


@dataclass
class EdgeText:
    """A text edge list and, once `pairs` is exhausted, what it held."""

    path: Path
    header: EdgeHeader
    num_lines: int = 0
    num_edges: int = 0
    num_wide: int = 0  # lines of more than two columns
    further: str = ""  # text behind the ids in the first of these lines
    largest: int = -1  # largest id
    # first line that states an undirected edge or graph: a comment, or a column of
    # types
    undirected: str = ""

    @classmethod
    def open(cls, path: Path) -> EdgeText:
        """Read the header; raises DatasetError where the file is missing or damaged,
        InputError where it is packed in a way that cannot be read or is of another
        format."""
        begin = b""
        header = EdgeHeader()
        with _opened(path) as raw:
            for block in _line_blocks(unpacked(raw, path), path):
                begin += block
                header = read_header(begin, path)
                if header.whole or len(begin) > _LONGEST_HEADER:
                    break
        return cls(path, header)

    def pairs(self, progress: Progress = no_progress) -> Iterator[Int64Array]:
        """Yield the edges, int64 [n, 2], in the order of their lines.

        Raises DatasetError for damaged compression, InputError with the number of the
        first line that is neither an edge, a comment nor empty: an id is digits alone,
        at most `MAX_ID`.
        """
        self.num_lines = self.num_edges = self.num_wide = 0
        offset = 0
        with _opened(self.path) as raw:
            size = max(1, self.path.stat().st_size)
            for block in _line_blocks(unpacked(raw, self.path), self.path):
                at = self.header.columns_at - offset
                offset += len(block)
                self.undirected = self.undirected or _undirected_line(block)
                if 0 <= at < len(block):
                    # the names of the columns: a comment
                    block = block[:at] + b"#" + block[at + 1 :]
                found = self._parse(block)
                if len(found):
                    self.largest = max(self.largest, int(found.max()))
                    yield found
                progress("reading text", raw.tell() / size)

    def notes(self) -> list[str]:
        """Return notes on the lines that are no edges, and on columns that were left
        out."""
        found = []
        if self.header.columns:
            found.append(
                f"edges lead from column {self.header.columns[0]} to column "
                f"{self.header.columns[1]}"
            )
        if self.num_wide:
            names = ", ".join(self.header.columns[2:])
            named = f" ({names[:100]})" if names else ""
            note = (
                f"columns behind the two ids left out{named}: {self.further!r} and the "
                f"like in {self.num_wide} lines"
            )
            weights = re.match(
                r"-?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?(?=[\s,;]|$)", self.further
            )
            found.append(
                f"{note}; to keep weights, import arrays or parquet"
                if weights
                else note
            )
        return found

    def _parse(self, block: bytes) -> Int64Array:
        """Return the edges of whole lines, int64 [n, 2], and count lines, edges and
        wide lines."""
        text = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero(text == _NEWLINE)
        begins = _skip_blanks(text, np.concatenate([[0], ends[:-1] + 1]))
        # neither empty nor comments
        lines = np.flatnonzero(~_ENDS_LINE.take(text.take(begins)))
        source, at, source_sound = _numbers(text, begins[lines])
        behind = _skip_blanks(text, at)
        if self.header.separator:
            separated = text.take(behind) == ord(self.header.separator)
            behind = _skip_blanks(text, behind + separated)
        else:
            separated = behind > at
        target, at, target_sound = _numbers(text, behind)
        behind = _skip_blanks(text, at)
        ended = _ENDS_LINE.take(text.take(behind))
        if self.header.separator:
            wide = text.take(behind) == ord(self.header.separator)
        else:
            wide = ~ended & (behind > at)
        sound = source_sound & separated & target_sound & (ended | wide)
        if not sound.all():
            line = int(lines[np.argmin(sound)])
            begin = int(ends[line - 1]) + 1 if line else 0
            self._refuse(block[begin : int(ends[line])], self.num_lines + line + 1)
        if not self.num_wide and wide.any():
            first = int(np.argmax(wide))
            rest = block[int(behind[first]) : int(ends[lines[first]])]
            self.further = rest.decode("utf-8", "backslashreplace").strip(" \t,;")[:40]
        self.num_lines += len(ends)
        self.num_edges += len(lines)
        self.num_wide += int(np.count_nonzero(wide))
        return np.stack([source, target], axis=1)

    def _refuse(self, line: bytes, number: int) -> None:
        """Raise InputError for a line that is not an edge."""
        shown = line[:60].decode("utf-8", "replace").strip()
        if "\ufffd" in shown or not shown.replace("\t", "").isprintable():
            fault = f"{self.path}, line {number} is not text"
            raise InputError(fault, "write two ids a line, as UTF-8 text")
        separator = {"": "blanks", ",": "commas", ";": "semicolons"}[
            self.header.separator
        ]
        fix = (
            f"write two ids a line, of digits 0 to 9 alone, separated by {separator} "
            "as in the first line"
        )
        if re.search(rb"[0-9]{19}", line):
            fix = (
                f"write two ids a line, each of at most {_MOST_DIGITS} digits and at "
                f"most {MAX_ID}"
            )
        fault = f"{self.path}, line {number}: {shown!r} is not an edge"
        raise InputError(fault, fix)


def _undirected_line(block: bytes) -> str:
    """Return the first line that states an undirected edge or graph; empty without
    one."""
    found = _UNDIRECTED.search(block) if b"undirected" in block.lower() else None
    return found[0].decode("utf-8", "backslashreplace").strip() if found else ""


def edge_chunks(path: Path, fix: str = "give two ids a line") -> Iterator[EdgeChunk]:
    """Yield the edges of a file of two columns without header in chunks of
    `EDGES_A_CHUNK`; raises the errors of `EdgeText`, and InputError with `fix` for
    further columns or a header."""
    text = EdgeText.open(path)
    if text.header.columns:
        raise InputError(f"{path} begins with the names of columns", "remove this line")
    kept: list[Int64Array] = []
    for pairs in text.pairs():
        if text.num_wide:
            fault = f"{path} has more than two columns, such as {text.further!r}"
            raise InputError(fault, fix)
        kept.append(pairs)
        if sum(map(len, kept)) >= EDGES_A_CHUNK:
            whole = np.concatenate(kept)
            yield whole[:EDGES_A_CHUNK, 0], whole[:EDGES_A_CHUNK, 1]
            kept = [whole[EDGES_A_CHUNK:]]
    whole = np.concatenate([np.empty((0, 2), dtype=np.int64), *kept])
    if len(whole):
        yield whole[:, 0], whole[:, 1]


@contextmanager
def _opened(path: Path) -> Iterator[io.FileIO]:
    """Open the file; errors of reading it within the block become DatasetErrors."""
    with (
        reading(path, "is truncated or corrupted", DAMAGE),
        path.open("rb", buffering=0) as raw,
    ):
        yield raw


def _line_blocks(stream: io.BufferedReader[Any], path: Path) -> Iterator[bytes]:
    """Yield the text in blocks of whole lines, UTF-8 and each line ended by a newline.

    Raises InputError for a line longer than `_LONGEST_LINE`, and for UTF-16 or UTF-32
    that is not whole.
    """
    mark = stream.peek(4)
    encoding = next((name for begin, name in _ENCODINGS if mark.startswith(begin)), "")
    decode = codecs.getincrementaldecoder(encoding)().decode if encoding else None
    if mark.startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))
    rest = b""
    ended = False
    while not ended:
        data = stream.read(_BLOCK_BYTES)
        ended = not data
        if decode is not None:
            try:
                data = decode(data, ended).encode()
            except UnicodeError:
                fault = f"{path} is not whole {encoding.upper()} text"
                raise InputError(fault, "save it as UTF-8") from None
        text = rest + data
        # A carriage return at the very end may be half of a line's end.
        cut = len(text)
        if not ended:
            newline = text.rfind(b"\n")
            # A carriage return at the very end may be the first half of a line's end.
            carriage = text.rfind(b"\r", 0, len(text) - 1)
            cut = max(newline, carriage) + 1
        block = text[:cut]
        rest = text[cut:]
        if len(rest) > _LONGEST_LINE:
            fault = f"{path} has a line of more than {_LONGEST_LINE} bytes"
            raise InputError(fault, "write two ids a line")
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if block and not block.endswith(b"\n"):
            block += b"\n"
        if block:
            yield block


def _skip_blanks(text: Bytes, at: Int64Array) -> Int64Array:
    """Return the first positions from `at` on that hold no blank or tab."""
    while True:
        signs = text.take(at)
        blank = (signs == _BLANK) | (signs == _TAB)
        if not blank.any():
            return at
        at = at + blank


def _numbers(
    text: Bytes, begins: Int64Array
) -> tuple[Int64Array, Int64Array, npt.NDArray[np.bool_]]:
    """Parse the digits that begin at each position: values, positions behind them, and
    whether each is an id."""
    values = np.zeros(len(begins), dtype=np.int64)
    at = begins.copy()
    for _ in range(_MOST_DIGITS + 1):
        digits = text.take(at) - _ZERO  # wraps: other characters become 10 or more
        is_digit = (digits < 10).view(np.uint8)
        if not is_digit.any():
            break
        values *= 1 + 9 * is_digit
        values += digits * is_digit
        at += is_digit
    lengths = at - begins
    # Nineteen digits from 2^63 on wrap to a negative number.
    sound = (lengths > 0) & (lengths <= _MOST_DIGITS) & (values >= 0)
    return values, at, sound
