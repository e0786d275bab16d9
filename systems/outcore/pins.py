"""Pinned rows: feature rows that keep their slots for a whole run that replays its
first epoch.

Within an epoch Belady's rule keeps the rows that save most reads, but it begins with
empty slots: every row is read at least once an epoch. Where all epochs are the same, a
pinned row is read once in the run: the most used rows get slots of their own, as many
as leave the fewest reads in all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.passes.preparer import Uses

Ids = npt.NDArray[np.int64]
Nodes = npt.NDArray[np.uint32]
# Shares of pinned rows that are tried, in the slots that the mini-batches under way
# leave free.
_SHARES = (0.0, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True, eq=False)
class Pins:
    """Pinned rows, each with a slot of its own.

    Attributes:
        ids: uint32 [p], ids of the rows, ascending.
        slots: int32 [p], slot of each row: 0 to p - 1, the row used most first.
    """

    ids: Nodes
    slots: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)

    def _places(self, nodes: Nodes) -> tuple[Ids, npt.NDArray[np.bool_]]:
        places = np.searchsorted(self.ids, nodes)
        places[places == len(self.ids)] = 0
        return places, self.ids[places] == nodes

    def without(self, uses: Uses) -> Uses:
        """Return the uses of all rows that are not pinned."""
        if not len(self):
            return uses
        kept = []
        offsets = np.zeros_like(uses.offsets)
        seeds = np.zeros_like(uses.seeds)
        for i in range(len(uses.seeds)):
            nodes = uses.batch(i)
            others = ~self._places(nodes)[1]
            kept.append(nodes[others])
            seeds[i] = np.count_nonzero(others[: int(uses.seeds[i])])
            offsets[i + 1] = offsets[i] + len(kept[-1])
        return Uses(np.concatenate(kept), offsets, seeds)

    def slots_of(
        self, nodes: Nodes, others: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.int32]:
        """Return each row's slot, int32 [len(nodes)]; `others` are the slots of rows
        not pinned, numbered from 0."""
        if not len(self):
            return others
        places, pinned = self._places(nodes)
        found = np.empty(len(nodes), dtype=np.int32)
        found[pinned] = self.slots[places[pinned]]
        found[~pinned] = others + np.int32(len(self))
        return found


def choose(uses: Uses, slots: int, window: int) -> Pins:
    """Choose the rows to pin in a table of `slots` rows; none where Belady's rule alone
    reads fewer rows.

    Raises:
        ValueError: the rows of `window` mini-batches do not fit the slots.
    """
    ids, counts = np.unique(uses.nodes, return_counts=True)
    order = np.argsort(-counts.astype(np.int32), kind="stable")
    del counts
    under_way = (
        uses.offsets[window:] - uses.offsets[:-window]
        if window < len(uses.offsets)
        else uses.offsets[-1:]
    )
    spare = max(0, slots - int(under_way.max()))
    best: Pins | None = None
    fewest = 0
    for share in _SHARES:
        count = min(int(share * spare), len(ids))
        ranks = np.argsort(ids[order[:count]])
        pins = Pins(ids[order[:count]][ranks], ranks.astype(np.int32))
        planner = _native.SlotPlanner(slots - count, window, True)
        rest = pins.without(uses)
        planner.plan(rest.nodes, rest.offsets, rest.seeds)
        misses = len(rest.nodes) - planner.hits
        del planner, rest  # frees their memory before the next pair is allocated
        if best is None or misses < fewest:
            best = pins
            fewest = misses
    assert best is not None
    return best
