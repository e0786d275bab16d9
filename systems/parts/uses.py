"""The uses of a path's parts in an epoch: buffers, rows, hits and reads of each, for
`outcore systems show`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from systems.engine.io.tally import Tally
from systems.interface import Counters, PartUse
from systems.parts.part import Part
from systems.parts.path import Path

Counts = dict[str, float]


def names_of(parts: Sequence[Part]) -> list[PartUse]:
    """Return the parts without buffers and counts, before an epoch."""
    return [PartUse(name=part.described) for part in parts if part.described]


def uses_of(
    path: Path, parts: Sequence[Part], tally: Tally, row_bytes: int
) -> list[PartUse]:
    """Return the parts in their order.

    Args:
        path: the path, planned.
        parts: its parts, in the order of preparation.
        tally: counts of the epoch, as `Loop` adds them.
        row_bytes: bytes of a row.
    """
    counted = dict(_counts(path, tally, row_bytes))
    found = []
    buffers: list[str] = []
    for part in parts:
        buffers += [need.name for need in part.needs()]
        if not part.described:
            continue
        counts = {**counted.get(part, {}), **part.observed()}
        use = PartUse(name=part.described, buffers=tuple(buffers), counts=counts)
        found.append(use)
        buffers = []
    return found


def cache_use(name: str, buffers: Sequence[str], counters: Counters) -> PartUse:
    """Return the use of a system's one cache of rows."""
    hits = sum(counters.hits.values())
    counts: Counts = {"rows": counters.rows, "hits": hits}
    return PartUse(name=name, buffers=tuple(buffers), counts=counts)


def reads_use(name: str, buffers: Sequence[str], counters: Counters) -> PartUse:
    """Return the use of a system's reads of rows."""
    counts: Counts = {"rows": counters.misses, "requests": counters.io_requests}
    counts["bytes"] = counters.bytes_read
    return PartUse(name=name, buffers=tuple(buffers), counts=counts)


def _counts(path: Path, tally: Tally, row_bytes: int) -> Iterator[tuple[Part, Counts]]:
    """Yield the rows that reach each part, the nearest to the trainer first."""
    rows = tally["rows"]
    loaded = tally["loaded"]
    yield path.sample, {"rows": rows}
    if path.cache is not None:
        yield path.cache, {"rows": rows, "hits": rows - loaded}
    left = loaded
    for tier in path.changing:
        hits = tally[f"hits of {tier.name}"]
        yield tier, {"rows": left, "hits": hits}
        left -= hits
    reads = tally.reads()
    counts: Counts = {"rows": tally["misses"]}
    if path.rows.found:
        counts["hits"] = path.rows.found
    if reads.requests:
        counts["requests"] = reads.requests
        counts["bytes"] = reads.bytes_read
    yield path.rows, counts
    copied = loaded if path.copy.near == "device" else rows
    yield path.copy, {"rows": copied, "bytes": copied * row_bytes}
