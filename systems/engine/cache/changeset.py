"""Changeset precomputation: a superbatch's mini-batches streamed three times through
the native planner.

Given every access of the superbatch, the planner decides which rows are in the feature
cache at the start and which enter and leave after each mini-batch, by Belady's rule at
the granularity of mini-batches (Ginex, Sections 3.3 and 3.4). It holds 2 bytes an
access (4 from 65,535 mini-batches on) and 4 a node; ids are read when needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.io.arrays import Array, as_ids, as_rows
from workloads.errors import InputError

Ids = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Nodes = npt.NDArray[np.uint32]
#: Node id of an empty slot.
NO_NODE = 0xFFFFFFFF
_NO_NODES = np.empty(0, dtype=np.uint32)
_AHEAD = 2  # mini-batches whose ids are read while another is planned


@dataclass(frozen=True)
class Changeset:
    """Changes of the cache for one mini-batch of `n` nodes.

    Attributes:
        slots: int32 [n], slot of each node's row, -1: a miss.
        in_positions: int32 [m], positions of the nodes whose rows enter the cache after
            the mini-batch is gathered.
        in_slots: int32 [m], slots that these rows enter; the previous rows are evicted.
        hits: number of `slots` that are not -1.
        evictions: evicted rows that are used again.
    """

    slots: Ints
    in_positions: Ints
    in_slots: Ints
    hits: int = 0
    evictions: int = 0


class ChangesetPlan:
    """The changesets of one superbatch, in the order of its mini-batches.

    Args:
        nodes: returns the ids of mini-batch i, int64, unique; called three times for
            each (two if the initial cache fills early), by one thread that reads ahead.
        sizes: nodes of each mini-batch.
        capacity: rows of the cache.
        resident: uint32 [slots], at most `capacity`: node whose row each of the first
            slots already holds (`contents` of an earlier plan); an initial row already
            in a slot stays there.
        prefill: start with the rows used first, as many as fit (the paper's
            initialisation); False: start empty.

    Raises:
        InputError: too many nodes or mini-batches for the planner.
    """

    def __init__(
        self,
        nodes: Callable[[int], Ids],
        sizes: Ids,
        *,
        num_nodes: int,
        capacity: int,
        threads: int = 1,
        resident: Nodes = _NO_NODES,
        prefill: bool = True,
    ) -> None:
        try:
            self._native = _native.ChangesetPlanner(
                num_nodes, max(0, capacity), as_ids(sizes), threads
            )
        except ValueError as error:
            raise InputError(
                f"changesets cannot be planned: {error}", "lower the superbatch size"
            ) from None
        self._nodes = nodes
        self._count = len(sizes)
        self._capacity = max(0, min(capacity, num_nodes))
        self._resident = resident
        self._prefill = prefill

    def look_ahead(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Run the first two passes: find each row's next use, and the initial rows of
        the cache.

        `stop` is called before each mini-batch; True ends the pass with
        `InterruptedError`.
        """
        for batch, nodes in self._stream(range(self._count - 1, -1, -1), stop):
            self._native.look_back(batch, nodes)
        if self._prefill and self._count:
            for batch, nodes in self._stream(range(self._count), stop):
                if self._native.fill(batch, nodes):
                    break
        self._native.begin(self._resident)

    @property
    def filled(self) -> int:
        """Rows in the cache at the start, resident ones included."""
        return self._native.filled

    def initial(self, piece: int = 1 << 16) -> Iterator[tuple[Ids, Ints]]:
        """Yield the nodes whose rows must be read at the start, ascending, and their
        slots, `piece` at a time.

        Call between `look_ahead` and `changesets`.
        """
        for begin in range(0, self._capacity, piece):
            nodes = self._native.held(begin, begin + piece)
            there = self._resident[begin : begin + piece]
            wanted = nodes >= 0
            wanted[: len(there)] &= nodes[: len(there)] != there
            slots = np.flatnonzero(wanted)
            if len(slots):
                yield nodes[slots], (slots + begin).astype(np.int32)

    def contents(self, slots: int, piece: int = 1 << 16) -> Nodes:
        """Return the node in each of the first `slots` slots after the last changeset;
        call after `changesets`."""
        found = np.full(min(slots, self._capacity), NO_NODE, dtype=np.uint32)
        for begin in range(0, len(found), piece):
            held = self._native.held(begin, min(begin + piece, len(found)))
            found[begin : begin + piece] = np.where(held < 0, NO_NODE, held)
        return found

    def changesets(
        self, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Changeset]:
        """Run the third pass: yield one changeset for each mini-batch, in order."""
        for batch, nodes in self._stream(range(self._count), stop):
            yield Changeset(*self._native.advance(batch, nodes))

    @property
    def memory_bytes(self) -> int:
        """Bytes held now."""
        return self._native.memory_bytes

    @staticmethod
    def plan_bytes(
        *, num_nodes: int, capacity: int, batches: int, max_nodes: int
    ) -> int:
        """Return the bytes of planning `batches` mini-batches of at most `max_nodes`
        nodes, ids in flight included."""
        held = _native.ChangesetPlanner.bytes(
            num_nodes, max(0, capacity), batches * max_nodes, batches
        )
        # Ids read ahead (on disk 4 bytes, widened to 8) and one changeset with its list
        # of candidate rows.
        return held + (_AHEAD + 1) * 12 * max_nodes + 16 * max_nodes

    def _stream(
        self, batches: Iterable[int], stop: Callable[[], bool]
    ) -> Iterator[tuple[int, Ids]]:
        """Yield the ids of each mini-batch; a thread reads the next ones meanwhile."""
        numbers = iter(batches)
        waiting: list[tuple[int, Future[Ids]]] = []
        with ThreadPoolExecutor(1, "changeset-read") as pool:
            try:
                while True:
                    for number in islice(numbers, _AHEAD - len(waiting)):
                        waiting.append((number, pool.submit(self._nodes, number)))
                    if not waiting:
                        return
                    number, future = waiting.pop(0)
                    if stop():
                        raise InterruptedError("planning changesets was stopped")
                    yield number, future.result()
            finally:
                pool.shutdown(cancel_futures=True)


def copy_rows(
    source: Array | Any,
    from_rows: Ints,
    target: Array | Any,
    to_rows: Ints,
    threads: int,
) -> None:
    """Copy `target[to_rows] = source[from_rows]` without a temporary, on several
    threads (Ginex, Section 4).

    Args:
        source: contiguous host table.
        from_rows: int32 [n].
        target: contiguous host table of rows of the same bytes, not overlapping
            `source`.
        to_rows: int32 [n], distinct.

    Raises:
        IndexError: a row does not exist.
    """
    _native.scatter(
        as_rows(source), from_rows, as_rows(target), to_rows, max(1, threads)
    )
