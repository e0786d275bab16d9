"""Rows that stay in their slots for a whole run that replays its first epoch.

Within an epoch Belady's rule keeps what saves most reads, but begins with empty slots: every row is read once an
epoch at least. Where each epoch is the same, a row that is never given up is not read again at all: the rows used most
get slots of their own, as many as leave the rest with the fewest reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from systems import _native

Ids: TypeAlias = npt.NDArray[np.int64]
Nodes: TypeAlias = npt.NDArray[np.uint32]
# Shares of the slots beyond those that the mini-batches under way need.
_SHARES = (0.0, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True)
class Uses:
    """The rows that successive mini-batches ask for.

    Attributes:
        nodes: of all of them, one after the other.
        offsets: int64 [n + 1], where each begins.
        seeds: int64 [n], of each the first so many are seed nodes, in any order.
    """

    nodes: Nodes
    offsets: Ids
    seeds: Ids

    def batch(self, i: int) -> Nodes:
        """Of one mini-batch."""
        return self.nodes[int(self.offsets[i]) : int(self.offsets[i + 1])]


class Pins:
    """Some rows with a slot each.

    Args:
        ids: uint32 [p], ascending.
        slots: int32 [p], the slot of each: 0 to p - 1, the row used most first.
    """

    def __init__(self, ids: Nodes, slots: npt.NDArray[np.int32]) -> None:
        self.ids, self.slots = ids, slots

    def __len__(self) -> int:
        return len(self.ids)

    def _places(self, nodes: Nodes) -> tuple[Ids, npt.NDArray[np.bool_]]:
        places = np.searchsorted(self.ids, nodes)
        places[places == len(self.ids)] = 0
        return places, self.ids[places] == nodes

    def without(self, uses: Uses) -> Uses:
        """The uses of all other rows."""
        if not len(self):
            return uses
        kept, offsets, seeds = [], np.zeros_like(uses.offsets), np.zeros_like(uses.seeds)
        for i in range(len(uses.seeds)):
            nodes = uses.batch(i)
            others = ~self._places(nodes)[1]
            kept.append(nodes[others])
            seeds[i] = np.count_nonzero(others[: int(uses.seeds[i])])
            offsets[i + 1] = offsets[i] + len(kept[-1])
        return Uses(np.concatenate(kept), offsets, seeds)

    def slots_of(self, nodes: Nodes, others: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Slots of a mini-batch's rows (int32 [len(nodes)]), given those of its rows that have none here."""
        if not len(self):
            return others
        places, pinned = self._places(nodes)
        found = np.empty(len(nodes), dtype=np.int32)
        found[pinned] = self.slots[places[pinned]]
        found[~pinned] = others + np.int32(len(self))
        return found


def choose(uses: Uses, slots: int, window: int) -> Pins:
    """The rows to pin of a table of `slots` rows; none where Belady's rule alone reads less.

    Raises:
        ValueError: the rows of `window` mini-batches do not fit the slots.
    """
    ids, counts = _counted(uses.nodes)
    order = np.argsort(-counts, kind="stable")
    under_way = uses.offsets[window:] - uses.offsets[:-window] if window < len(uses.offsets) else uses.offsets[-1:]
    spare = max(0, slots - int(under_way.max()))
    best, fewest = Pins(ids[:0], np.empty(0, dtype=np.int32)), None
    for share in _SHARES:
        count = min(int(share * spare), len(ids))
        ranks = np.argsort(ids[order[:count]])
        pins = Pins(ids[order[:count]][ranks], ranks.astype(np.int32))
        planner = _native.SlotPlanner(slots - count, window, True)
        rest = pins.without(uses)
        planner.plan(rest.nodes, rest.offsets, rest.seeds)
        misses = len(rest.nodes) - planner.hits
        del planner, rest  # before the next ones are made
        if fewest is None or misses < fewest:
            best, fewest = pins, misses
    return best


def _counted(nodes: Nodes) -> tuple[Nodes, npt.NDArray[np.int32]]:
    """Each node once, ascending, and how often it is there."""
    ordered = np.sort(nodes)
    firsts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else np.empty(0, int)
    return ordered[firsts], np.diff(np.append(firsts, len(ordered))).astype(np.int32)
