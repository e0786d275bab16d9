"""Tiers of a hyperbatch's rows: the most used ones in device memory, then in host
memory, the others in files.

Each row's uses are counted over the hyperbatch. The rows of one mini-batch's file take
part of a ring of slots in host memory while it trains; the fewer rows are left to
files, the shorter the ring, and the more rows fit beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from systems.engine.passes.group import Uses

Counts = npt.NDArray[np.int32]
_PART = 1 << 16  # nodes at a time
_ROUNDS = 4


class Cut(NamedTuple):
    """Rows in memory: those used more than `uses` times, and those used so often whose
    id is below `end`."""

    uses: int
    end: int
    rows: int

    def has(
        self, counts: Counts, ids: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.bool_]:
        """Return whether rows `ids`, used `counts` times, are in memory."""
        found: npt.NDArray[np.bool_] = (counts > self.uses) | (
            (counts == self.uses) & (ids < self.end)
        )
        return found


@dataclass(frozen=True)
class Tiers:
    """Places of a hyperbatch's rows.

    Attributes:
        places: int32 [num_nodes], slot of each row in memory, -1 for the others.
        kept: uint32 [k], ids of the rows in memory, ascending.
        on_device: number of these in device memory, in the first slots.
        missing: int64 [mini-batches], rows of each one's file.
        ring: slots from `ring_begin` on for the rows of files.
    """

    places: Counts
    kept: npt.NDArray[np.uint32]
    on_device: int
    missing: npt.NDArray[np.int64]
    ring_begin: int
    ring: int

    def lists(
        self, used: Uses
    ) -> Iterator[tuple[npt.NDArray[np.int64], Counts, Counts]]:
        """Yield each mini-batch's ids in its file (ascending), their slots, and the
        slot of each of its nodes."""
        at = 0
        for batch in range(len(self.missing)):
            nodes = used.batch(batch)
            slots = self.places[nodes]
            missing = np.flatnonzero(slots < 0)
            # Behind the seed nodes a mini-batch is a few ascending runs, which a merge
            # sort makes use of.
            missing = missing[np.argsort(nodes[missing], kind="stable")]
            to = (
                (at + np.arange(len(missing))) % max(1, self.ring) + self.ring_begin
            ).astype(np.int32)
            slots[missing] = to
            at = (at + len(missing)) % max(1, self.ring)
            yield nodes[missing].astype(np.int64), to, slots


def place(
    used: Uses,
    *,
    num_nodes: int,
    slots: int,
    device_slots: int,
    window: int,
    least: int,
) -> Tiers:
    """Place the rows of a hyperbatch.

    Args:
        used: rows that its mini-batches use.
        slots, device_slots: rows of the table, and those of them in device memory, the
            first ones.
        window: mini-batches whose rows are in memory together.
        least: least number of uses of a row in memory; 0: the average over the rows
            that are used at all; more than there are mini-batches: no row is in memory.

    Raises:
        ValueError: the rows of `window` mini-batches do not fit the slots.
    """
    batches = len(used.offsets) - 1
    counts = np.zeros(num_nodes, dtype=np.int32)
    for batch in range(batches):
        counts[used.batch(batch)] += 1  # a mini-batch has each node once
    by_uses = np.zeros(batches + 1, dtype=np.int64)
    for begin in range(0, num_nodes, _PART):
        by_uses += np.bincount(counts[begin : begin + _PART], minlength=batches + 1)
    by_uses[0] = 0
    if least == 0:
        least = -(-len(used.nodes) // max(1, int(by_uses.sum())))
    by_uses[:least] = 0

    inside = np.empty(
        num_nodes, dtype=np.bool_
    )  # a byte a node stays in the processor's cache, unlike its count

    def ring_beside(cut: Cut) -> tuple[int, npt.NDArray[np.int64]]:
        """Return the slots for files' rows beside these rows in memory, and each
        mini-batch's number of such rows."""
        for begin in range(0, num_nodes, _PART):
            part = counts[begin : begin + _PART]
            inside[begin : begin + _PART] = cut.has(
                part, np.arange(begin, begin + len(part))
            )
        missing = np.array(
            [
                len(ids) - np.count_nonzero(inside[ids])
                for ids in map(used.batch, range(batches))
            ]
        )
        sums = np.concatenate([[0], np.cumsum(missing)])
        step = min(window, batches)
        return int((sums[step:] - sums[:-step]).max()), missing

    cut = _cut(counts, by_uses, slots)
    ring, missing = ring_beside(cut)
    if max(cut.rows, device_slots) + ring > slots:
        # Fewer rows in memory lengthen the ring, so approach from the longest one.
        ring, _ = ring_beside(_cut(counts, by_uses, 0))
        for _ in range(_ROUNDS):
            if ring > slots - device_slots:
                raise ValueError(
                    f"{window} mini-batches use {ring} rows outside the device's memory"
                )
            cut = _cut(counts, by_uses, slots - ring)
            before, (ring, missing) = ring, ring_beside(cut)
            if ring == before:
                break
    first = _cut(counts, by_uses, min(device_slots, cut.rows))
    kept = np.empty(cut.rows, dtype=np.uint32)
    at = 0
    on_device = 0
    for begin in range(0, num_nodes, _PART):
        part = counts[begin : begin + _PART]
        ids = np.arange(begin, begin + len(part))
        chosen = cut.has(part, ids)
        device = first.has(part, ids)
        here = np.flatnonzero(chosen & ~device)
        there = np.flatnonzero(device)
        host = at - on_device
        kept[at : at + len(here) + len(there)] = begin + np.flatnonzero(chosen)
        at += len(here) + len(there)
        part[:] = -1
        part[there] = on_device + np.arange(len(there))
        part[here] = device_slots + host + np.arange(len(here))
        on_device += len(there)
    return Tiers(
        counts, kept, on_device, missing, device_slots + cut.rows - on_device, ring
    )


def _cut(counts: Counts, by_uses: npt.NDArray[np.int64], room: int) -> Cut:
    """Return the most used rows that fit `room`, of those used so often that `by_uses`
    counts them; ties by id."""
    eligible = np.flatnonzero(by_uses)[::-1].tolist()
    left = room
    for uses in eligible:
        count = int(by_uses[uses])
        if count > left:
            return Cut(uses, _end(counts, uses, left), room)
        left -= count
    return Cut(eligible[-1] - 1 if eligible else len(by_uses), 0, room - left)


def _end(counts: Counts, uses: int, count: int) -> int:
    """Return the id behind the `count`-th row that is used so often."""
    for begin in range(0, len(counts) if count else 0, _PART):
        found = np.flatnonzero(counts[begin : begin + _PART] == uses)
        if len(found) >= count:
            return begin + int(found[count - 1]) + 1
        count -= len(found)
    return 0
