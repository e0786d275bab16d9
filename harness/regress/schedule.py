"""What runs next: pairs in A B B A order, the cells shuffled by seed, until intervals are narrow or the time is up.

Where both sides can, their epochs take turns within a pair: a shared machine changes its pace within seconds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness.regress.decision import Rules
from harness.regress.judge import narrow_enough
from harness.regress.samples import LEAST_PREPARE_S, RunSample, paired
from harness.regress.statistics import ratio_of_medians

# Metrics whose intervals are waited for.
TIMED = ("epoch", "preprocess", "peak memory")


@dataclass
class Pairs:
    """The runs of one cell so far; the i-th of both sides stood beside each other."""

    base: list[RunSample] = field(default_factory=list)
    head: list[RunSample] = field(default_factory=list)

    def is_settled(self, rules: Rules) -> bool:
        """Whether more pairs would not change what is said: every interval is narrow enough, or a side fails."""
        if any(run.status != "ok" for run in (*self.base, *self.head)):
            return True
        for name in TIMED:
            if any(name not in run.noisy for run in (*self.base, *self.head)):
                continue
            both = paired(self.base, self.head, name)
            sides = [[pair[0] for pair in both], [pair[1] for pair in both]]
            if name == "preprocess" and max(max(side) for side in sides) < LEAST_PREPARE_S:
                continue
            if not narrow_enough(ratio_of_medians(*sides, paired=True, seed=rules.seed), rules):
                return False
        return True


@dataclass
class Budget:
    """Seconds that may be spent, on the monotonic clock: a clock that is set changes nothing."""

    seconds: float
    now: Callable[[], float] = time.monotonic
    _begin: float = field(init=False)

    def __post_init__(self) -> None:
        self._begin = self.now()

    @property
    def spent(self) -> float:
        """Seconds since it began."""
        return self.now() - self._begin

    def allows(self, seconds: float) -> bool:
        """Whether so many more fit."""
        return self.spent + seconds <= self.seconds


Run = Callable[[str, Sequence[int]], list[RunSample]]
Together = Callable[[Sequence[int], int, tuple[str, str]], dict[str, list[RunSample]]]


def interleave(
    cells: Sequence[str],
    run: Run,
    rules: Rules,
    budget: Budget,
    *,
    chunk: int = 4,
    most: int = 60,
    progress: Callable[[str], None] = lambda text: None,
    together: Together | None = None,
) -> list[Pairs]:
    """Run every cell on both sides, again and again.

    Args:
        cells: the system of each cell; a chunk never holds one system twice, since records are told apart by it.
        run: (`base` or `head`, indices of cells) -> one sample each.
        budget: after the first pair of every cell no pair begins that would not fit.
        chunk: cells that one call runs; more saves start-up time, fewer bring the two sides nearer to each other.
        most: pairs a cell at most.
        together: (indices of cells, number of the pair, which side goes first) -> both sides' samples, from the second
            pair on: their epochs take turns. The first pair is made one side after the other, so that what it leaves
            in caches (the device's profile among it) is there for both.

    Returns:
        The pairs of each cell, in the order of `cells`.
    """
    pairs = [Pairs() for _ in cells]
    shuffle = random.Random(rules.seed)
    took: dict[tuple[int, ...], float] = {}
    slowest = 0.0
    for round_ in range(most):
        open_ = [i for i, pair in enumerate(pairs) if round_ == 0 or not pair.is_settled(rules)]
        shuffle.shuffle(open_)
        ran = False
        for number, part in enumerate(_chunks(open_, cells, chunk)):
            expected = took.get(tuple(sorted(part)), slowest)
            if round_ > 0 and not budget.allows(expected):
                continue
            # A B, B A, A B, ...: drift that is linear in time hits both alike.
            order = ("base", "head") if (round_ + number) % 2 == 0 else ("head", "base")
            begin = budget.spent
            progress(f"pair {round_ + 1}: {', '.join(cells[index] for index in part)}")
            if together is None or round_ == 0:
                found = {side: run(side, part) for side in order}
            else:
                found = together(part, round_, order)
            for index, base, head in zip(part, found["base"], found["head"], strict=True):
                pairs[index].base.append(base)
                pairs[index].head.append(head)
            took[tuple(sorted(part))] = budget.spent - begin
            slowest = max(slowest, budget.spent - begin)
            ran = True
        if not ran:
            break
    return pairs


def _chunks(open_: Sequence[int], cells: Sequence[str], size: int) -> list[list[int]]:
    chunks: list[list[int]] = []
    for index in open_:
        for chunk in chunks:
            if len(chunk) < size and cells[index] not in {cells[other] for other in chunk}:
                chunk.append(index)
                break
        else:
            chunks.append([index])
    return chunks
