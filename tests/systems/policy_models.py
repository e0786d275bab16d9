"""Cache policies written as simply as possible: the reference for the native
simulator."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def lru(batches: Sequence[Sequence[int]], size: int) -> int:
    cache: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for row in (row for batch in batches for row in batch):
        if row in cache:
            cache.move_to_end(row)
            continue
        misses += 1
        if size:
            if len(cache) == size:
                cache.popitem(last=False)
            cache[row] = None
    return misses


def fifo(batches: Sequence[Sequence[int]], size: int) -> int:
    cache: deque[int] = deque(maxlen=size)
    misses = 0
    for row in (row for batch in batches for row in batch):
        if row not in cache:
            misses += 1
            cache.append(row)
    return misses


def lfu(batches: Sequence[Sequence[int]], size: int) -> int:
    uses: dict[int, tuple[int, int]] = {}
    cache: set[int] = set()
    misses = 0
    for time, row in enumerate(row for batch in batches for row in batch):
        uses[row] = (uses.get(row, (0, 0))[0] + 1, time)
        if row not in cache:
            misses += 1
            if size:
                if len(cache) == size:
                    cache.remove(min(cache, key=lambda kept: uses[kept]))
                cache.add(row)
    return misses


def clock(batches: Sequence[Sequence[int]], size: int) -> int:
    queue: list[int] = []
    used: set[int] = set()
    misses = 0
    for row in (row for batch in batches for row in batch):
        if row in queue:
            used.add(row)
            continue
        misses += 1
        if size:
            while len(queue) == size:
                oldest = queue.pop(0)
                if oldest in used:
                    used.remove(oldest)
                    queue.append(oldest)
            queue.append(row)
    return misses


def sieve(batches: Sequence[Sequence[int]], size: int) -> int:
    queue: list[int] = []  # oldest first
    used: set[int] = set()
    hand = 0
    misses = 0
    for row in (row for batch in batches for row in batch):
        if row in queue:
            used.add(row)
            continue
        misses += 1
        if size:
            if len(queue) == size:
                hand %= size
                while queue[hand] in used:
                    used.remove(queue[hand])
                    hand = (hand + 1) % size
                queue.pop(hand)
                # Past the newest row the hand returns to the oldest; it does not wait
                # for later rows.
                hand = 0 if hand == size - 1 else hand
            queue.append(row)
    return misses


def s3_fifo(batches: Sequence[Sequence[int]], size: int) -> int:
    small_places = max(1, size // 10)
    main_places = size - small_places
    small: deque[int] = deque()
    main: deque[int] = deque()
    ghosts: deque[int] = deque(maxlen=max(0, main_places))
    uses: dict[int, int] = {}
    misses = 0

    def evict_main() -> None:
        while main:
            row = main.popleft()
            if uses[row] == 0:
                return
            uses[row] -= 1
            main.append(row)

    def evict_small() -> None:
        while small:
            row = small.popleft()
            if uses[row] > 1 and main_places:
                if len(main) >= main_places:
                    evict_main()
                uses[row] = 0
                main.append(row)
            else:
                ghosts.append(row)
                return

    for row in (row for batch in batches for row in batch):
        if row in small or row in main:
            uses[row] = min(3, uses[row] + 1)
            continue
        misses += 1
        if size:
            while len(small) + len(main) >= size:
                (evict_small if len(small) >= small_places else evict_main)()
            if row in ghosts:
                # The row keeps its place in the ghost queue until the queue drops it.
                ghosts[ghosts.index(row)] = -1
                main.append(row)
            else:
                small.append(row)
            uses[row] = 0
    return misses


def belady(batches: Sequence[Sequence[int]], size: int) -> int:
    cache: set[int] = set()
    misses = 0
    wanted = [set(batch) for batch in batches]
    for number, batch in enumerate(batches):
        misses += len(set(batch) - cache)
        later: dict[int, int] = {}
        for row in cache | set(batch):
            for ahead in range(number + 1, len(batches)):
                if row in wanted[ahead]:
                    later[row] = ahead
                    break
        cache = set(sorted(later, key=lambda row: later[row])[:size])
    return misses


MODELS = {
    "lru": lru,
    "fifo": fifo,
    "lfu": lfu,
    "clock": clock,
    "sieve": sieve,
    "s3-fifo": s3_fifo,
    "belady": belady,
}


def belady_misses(batches: Sequence[npt.NDArray[np.int64]], capacity: int) -> list[int]:
    """Count the misses of each batch under Belady's rule at batch granularity, with
    bypass, from an empty cache.

    After each batch the cache keeps, of its rows and the batch's, the `capacity` rows
    used again soonest (Belady 1966; Ginex section 3.3). Rows are unique within a batch.
    """
    if not batches:
        return []
    rows = np.concatenate(batches)
    owner = np.repeat(
        np.arange(len(batches), dtype=np.int64), [len(batch) for batch in batches]
    )
    never = len(batches)
    order = np.argsort(rows, kind="stable")
    following = np.full(len(rows), never, dtype=np.int64)
    same = rows[order][1:] == rows[order][:-1]
    following[order[:-1][same]] = owner[order[1:][same]]

    cached = np.zeros(int(rows.max()) + 1 if len(rows) else 1, dtype=bool)
    kept = np.empty(0, dtype=np.int64)
    kept_next = np.empty(0, dtype=np.int64)
    misses: list[int] = []
    position = 0
    for batch in batches:
        upcoming = following[position : position + len(batch)]
        position += len(batch)
        misses.append(int(len(batch) - cached[batch].sum()))
        cached[kept] = False
        cached[batch] = True
        fresh = ~cached[kept]
        cached[batch] = False
        candidates = np.concatenate([kept[fresh], batch])
        nexts = np.concatenate([kept_next[fresh], upcoming])
        again = nexts < never
        candidates = candidates[again]
        nexts = nexts[again]
        if len(candidates) > capacity:
            soonest = (
                np.argpartition(nexts, capacity - 1)[:capacity]
                if capacity > 0
                else np.empty(0, dtype=np.int64)
            )
            candidates = candidates[soonest]
            nexts = nexts[soonest]
        kept = candidates
        kept_next = nexts
        cached[kept] = True
    return misses
