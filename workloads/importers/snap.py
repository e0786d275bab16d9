"""SNAP edge lists as text: two ids a line, `#` or `%` comments, plain or gzip, streamed in bounded memory."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

from workloads.distinct import distinct
from workloads.errors import InputError, require
from workloads.importers.source import (
    EDGES_A_CHUNK,
    EdgeChunk,
    GraphSource,
    ImportOptions,
    IntArray,
    reading,
    reason_of,
)
from workloads.manifest import RENUMBERED
from workloads.npyfile import write_all

_LOOKED_AT = 1000  # lines that tell whether there are further columns
_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)


def open_snap(path: Path, options: ImportOptions) -> GraphSource:
    """Read a text edge list; a line `u v` is the edge u -> v, separated by tabs, spaces or a comma.

    Nodes are renumbered without gaps, in the order of their ids, which are kept as `ids`. The text is parsed once, into
    a temporary file of 16 bytes an edge; the table of ids takes up to 12 bytes for each number up to the largest id,
    or, where ids are so sparse that this exceeds `options.max_memory`, 8 bytes a node. Raises DatasetError where the
    file is missing or its gzip data are truncated, InputError where a line, named by its number, is not two whole
    numbers >= 0, or there is no edge.
    """
    binary = options.scratch / "edges.tmp"
    further = _further_columns(path)
    largest = _parse(path, binary, options)
    pairs = np.memmap(binary, dtype=np.int64, mode="r").reshape(-1, 2)
    slices = [(start, start + EDGES_A_CHUNK) for start in range(0, pairs.shape[0], EDGES_A_CHUNK)]
    if (largest + 1) * 12 <= max(options.max_memory, 64 << 20):
        present = np.zeros(largest + 1, dtype=bool)
        for start, stop in slices:
            present[pairs[start:stop].reshape(-1)] = True
        number = np.cumsum(present) - 1
        num_nodes = int(number[-1]) + 1
    else:
        number, names = None, np.empty(0, dtype=np.int64)
        for start, stop in slices:
            names = distinct(np.concatenate([names, pairs[start:stop].reshape(-1)]))
        num_nodes = names.shape[0]

    def edges() -> Iterator[EdgeChunk]:
        for start, stop in slices:
            part = np.asarray(pairs[start:stop])
            fresh = number[part] if number is not None else np.searchsorted(names, part)
            yield fresh[:, 0], fresh[:, 1]

    def ids() -> Iterator[IntArray]:
        if number is None:
            yield names
            return
        for start in range(0, largest + 1, EDGES_A_CHUNK):
            yield start + np.flatnonzero(present[start : start + EDGES_A_CHUNK])

    gaps = largest + 1 - num_nodes
    if not gaps:
        return GraphSource(num_nodes, edges, notes=further)
    note = f"{RENUMBERED} ({gaps} unused up to {largest}); the part ids holds the original ones"
    return GraphSource(num_nodes, edges, notes=[note, *further], ids=ids)


def _further_columns(path: Path) -> list[str]:
    """Return a note of what stands behind the ids in the first lines, if anything does; raises InputError for a matrix
    in MatrixMarket's format."""
    with reading(path, "is truncated or corrupted", _DAMAGE):
        comment, separator = _dialect(path)
        for number, line in enumerate(islice(_lines(path), _LOOKED_AT)):
            matrix = number == 0 and line.startswith("%%MatrixMarket")
            fix = "remove its first lines up to that of the matrix's size"
            require(not matrix, f"{path} is a matrix in MatrixMarket's format, not a list of edges", fix)
            words = [word for word in re.split(separator, line.split(comment)[0].strip()) if word]
            if len(words) > 2:
                return ["columns behind the two ids left out"]
    return []


def _parse(path: Path, binary: Path, options: ImportOptions) -> int:
    """Write all edges as int64 pairs; return the largest id."""
    largest, count = -1, 0
    with reading(path, "is truncated or corrupted", _DAMAGE):
        comment, separator = _dialect(path)
        size = path.stat().st_size
        with path.open("rb") as raw, binary.open("wb", buffering=0) as out:
            text = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            try:
                reader = pd.read_csv(
                    text,
                    sep=separator,
                    comment=comment,
                    header=None,
                    usecols=[0, 1],
                    names=["u", "v"],
                    dtype=np.int64,
                    chunksize=EDGES_A_CHUNK,
                    engine="c",
                    compression=None,
                )
                for frame in reader:
                    part = np.ascontiguousarray(frame.to_numpy())
                    if part.shape[0] and int(part.min()) < 0:
                        raise ValueError("negative id")
                    write_all(out, part)
                    largest = max(largest, int(part.max(initial=-1)))
                    count += part.shape[0]
                    options.progress("reading text", raw.tell() / max(1, size))
            except pd.errors.EmptyDataError:
                pass
            except (ValueError, OverflowError, pd.errors.ParserError) as error:
                if isinstance(error, UnicodeDecodeError) or (bad := _first_bad_line(path, comment)) is None:
                    raise InputError(
                        f"{path} is not a text edge list ({reason_of(error)})", "write two ids a line"
                    ) from None
                raise InputError(f"{path}, line {bad[0]}: {bad[1]!r} is not an edge", "write two ids a line") from None
    require(count != 0, f"{path} holds no edge", "write two ids a line")
    return largest


def _lines(path: Path) -> Iterator[str]:
    with (
        gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file,
        io.TextIOWrapper(file, encoding="utf-8", errors="replace") as text,
    ):
        yield from text


def _dialect(path: Path) -> tuple[str, str]:
    """Detect the comment sign and the separator (a regular expression that pandas reads natively)."""
    comment = "#"
    for line in _lines(path):
        if line.startswith("%"):
            comment = "%"
        elif line.strip() and not line.startswith("#"):
            return comment, "," if "," in line else r"\s+"
    return comment, r"\s+"


def _first_bad_line(path: Path, comment: str) -> tuple[int, str] | None:
    for number, line in enumerate(_lines(path), start=1):
        words = line.split(comment)[0].replace(",", " ").split()
        if words and not (len(words) >= 2 and all(word.isdecimal() and len(word) < 19 for word in words[:2])):
            return number, line.strip()[:60]
    return None
