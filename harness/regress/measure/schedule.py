"""Order of runs: pairs in A B B A order, cells shuffled by seed, until intervals are
narrow or the time is up.

If both sides support it, their epochs alternate within a pair: the speed of a shared
machine changes within seconds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from harness.progress import Reading, during
from harness.regress.decision import Rules
from harness.regress.ratio import ratio_of_means
from harness.regress.samples import LEAST_OFFLINE_S, OFFLINE, RunSample, paired

# Metrics whose intervals have to become narrow.
TIMED = ("epoch", *OFFLINE, "peak memory")


@dataclass
class Pairs:
    """Runs of one cell so far; the i-th runs of both sides form a pair."""

    base: list[RunSample] = field(default_factory=list)
    head: list[RunSample] = field(default_factory=list)

    def is_complete(self, rules: Rules) -> bool:
        """Return whether the cell needs no more pairs: a run failed, or every
        interval's half width is at most half the least effect."""
        runs = [*self.base, *self.head]
        if any(run.status != "ok" for run in runs):
            return True
        for name in TIMED:
            if all(name in run.noisy for run in runs):
                base, head = zip(*paired(self.base, self.head, name), strict=True)
                ratio = ratio_of_means(base, head, paired=True)
                compared = name not in OFFLINE or max(*base, *head) >= LEAST_OFFLINE_S
                if compared and ratio.half_width > rules.min_effect / 2:
                    return False
        return True


class Budget:
    """Limit in seconds on the monotonic clock, so that setting the system clock has no
    effect."""

    def __init__(
        self, seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self._now = now
        self._begin = now()

    @property
    def spent(self) -> float:
        """Seconds since the budget was made."""
        return self._now() - self._begin

    def allows(self, seconds: float) -> bool:
        """Return whether `seconds` more fit into the budget."""
        return self.spent + seconds <= self.seconds


Run = Callable[[str, Sequence[int], int], list[RunSample]]
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
    """Run pairs of every cell on both sides until each cell needs no more pairs or the
    budget is spent.

    Args:
        cells: system of each cell; a chunk holds no system twice, since records are
            assigned to cells by system.
        run: (`base` or `head`, indices of cells, number of the pair) -> one sample
            each.
        budget: after the first pair of every cell, a pair starts only if it is expected
            to fit.
        chunk: maximum number of cells per call; more saves start-up time, fewer bring
            the two sides closer in time.
        most: maximum number of pairs per cell.
        together: (indices of cells, number of the pair, order of the sides) -> samples
            of both sides with alternating epochs. The first pair uses `run`, so that
            both sides find filled caches (the device's profile among them).

    Returns:
        The pairs of each cell, in the order of `cells`.
    """
    pairs = [Pairs() for _ in cells]
    shuffle = random.Random(rules.seed)
    took: dict[tuple[int, ...], float] = {}
    slowest = 0.0
    for round_ in range(most):
        open_ = [
            i
            for i, pair in enumerate(pairs)
            if round_ == 0 or not pair.is_complete(rules)
        ]
        shuffle.shuffle(open_)
        ran = False
        for number, part in enumerate(_chunks(open_, cells, chunk)):
            expected = took.get(tuple(sorted(part)), slowest)
            if round_ > 0 and not budget.allows(expected):
                continue
            # A B, B A, A B, ...: drift that is linear in time hits both alike.
            order = ("base", "head") if (round_ + number) % 2 == 0 else ("head", "base")
            begin = budget.spent
            what = (
                f"pair {round_ + 1} of at most {most}, "
                f"{', '.join(cells[index] for index in part)}"
            )
            progress(what)
            with during(progress, partial(_spent, what, budget)):
                if together is None or round_ == 0:
                    found = {side: run(side, part, round_) for side in order}
                else:
                    found = together(part, round_, order)
            for index, base, head in zip(
                part, found["base"], found["head"], strict=True
            ):
                pairs[index].base.append(base)
                pairs[index].head.append(head)
            took[tuple(sorted(part))] = budget.spent - begin
            slowest = max(slowest, budget.spent - begin)
            ran = True
        if not ran:
            break
    return pairs


def _spent(what: str, budget: Budget) -> Reading:
    return Reading(f"{what}: time budget", budget.spent, budget.seconds)


def _chunks(open_: Sequence[int], cells: Sequence[str], size: int) -> list[list[int]]:
    chunks: list[list[int]] = []
    for index in open_:
        for chunk in chunks:
            if len(chunk) < size and cells[index] not in {
                cells[other] for other in chunk
            }:
                chunk.append(index)
                break
        else:
            chunks.append([index])
    return chunks
