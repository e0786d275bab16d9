"""Pinned rows: feature rows that keep their slots for a whole run.

Belady's rule knows the uses of one group and keeps rows by their order. It knows
nothing beyond the group: a row that is idle for a group gives up its slot. Rows that
mini-batches are likely to use in every group are pinned instead, as many as leave the
fewest reads: slot i of the table is for the i-th pinned row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.passes.group import Uses

Nodes = npt.NDArray[np.uint32]
NO_PINS = np.empty(0, dtype=np.uint32)
#: Shares of pinned rows that a replay tries, in the slots that the mini-batches under
#: way leave free.
_SHARES = (0.0, 0.5, 0.75, 0.9, 1.0)


def slot_planner(
    slots: int, window: int, pinned: Nodes, *, belady: bool = True, threads: int = 1
) -> _native.SlotPlanner:
    """Return a planner of `slots` slots, the first of them for the pinned rows."""
    planner = _native.SlotPlanner(slots, window, belady, threads)
    if len(pinned):
        planner.pin(pinned)
    return planner


def misses_of(planner: _native.SlotPlanner, groups: Sequence[Uses]) -> int:
    """Plan successive groups; return the rows that miss in the last one."""
    for uses in groups:
        planner.plan(uses.nodes, uses.offsets, uses.seeds)
    return int(planner.miss_counts().sum())


def choose(uses: Uses, slots: int, window: int) -> Nodes:
    """Choose the rows to pin for a group that all epochs replay, the row used most
    first; none where Belady's rule alone reads fewer rows.

    Args:
        slots: rows of the table.
        window: mini-batches whose rows are in memory together.

    Returns:
        uint32 [p], ids of the rows.

    Raises:
        ValueError: the rows of `window` mini-batches do not fit the slots.
    """
    best: Nodes | None = None
    fewest = 0
    for pinned in _candidates(uses, slots, window):
        planner = slot_planner(slots, window, pinned)
        misses = misses_of(planner, [uses])
        del planner  # frees its memory before the next one is allocated
        if best is None or misses < fewest:
            best = pinned
            fewest = misses
    assert best is not None
    return best


def _candidates(uses: Uses, slots: int, window: int) -> Iterator[Nodes]:
    """Yield the rows to pin for each share."""
    ids, counts = np.unique(uses.nodes, return_counts=True)
    order = np.argsort(-counts.astype(np.int32), kind="stable")
    del counts
    ends = uses.offsets[window:]
    under_way = uses.offsets[-1:]
    if len(ends):
        under_way = ends - uses.offsets[: len(ends)]
    spare = max(0, slots - int(under_way.max()))
    for share in _SHARES:
        count = min(int(share * spare), len(ids))
        yield ids[order[:count]]
