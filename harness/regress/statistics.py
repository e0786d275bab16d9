"""The statistics of the gate: a bootstrapped ratio of medians for few samples, and Holm's correction over all of them.

The interval is the bootstrap-t kind that Hesterberg gives for small samples (The American Statistician 69(4), 2015,
"What Teachers Should Know About the Bootstrap", on narrowness bias): the bootstrap's standard error, widened by
sqrt(n / (n - 1)), times Student's quantile at n - 1 degrees of freedom. Plain percentiles of five or six samples are
too narrow and lead to false decisions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# Fewer samples have no bootstrap interval (methodology rule 15) and stay undecided.
LEAST_SAMPLES = 5
DRAWS = 4000


@dataclass(frozen=True)
class Ratio:
    """Ratio of head's median to base's median.

    Attributes:
        low, high: ends of the 95 % interval; below five samples, smallest and largest ratio of two single values.
        p: two-sided p-value of the hypothesis that the ratio is 1; None below five samples.
        samples: number of samples of the smaller side.
    """

    value: float
    low: float
    high: float
    p: float | None
    samples: int
    kind: Literal["bootstrap95", "range"]

    @property
    def half_width(self) -> float:
        """Relative half width of the interval: 0.015 is 1.5 %; infinite without a p-value."""
        return math.inf if self.p is None else math.sqrt(self.high / self.low) - 1.0


def ratio_of_medians(base: Sequence[float], head: Sequence[float], *, paired: bool, seed: int = 0) -> Ratio:
    """Return the ratio of the medians of positive samples, head over base.

    Args:
        base, head: one value a run, greater than 0.
        paired: whether the i-th values form a pair, on equally long sides. Pairs are resampled whole, so that drift
            over the session affects both sides.
        seed: seed of the resampling.

    Raises:
        ValueError: a side has no samples, a value is not positive, or paired sides differ in length.
    """
    import numpy as np
    from scipy import stats

    a, b = np.asarray(base, dtype=np.float64), np.asarray(head, dtype=np.float64)
    if not len(a) or not len(b) or (a <= 0).any() or (b <= 0).any():
        raise ValueError("a ratio needs positive samples on both sides")
    if paired and len(a) != len(b):
        raise ValueError("pairs need as many samples on both sides")
    value = float(np.median(b) / np.median(a))
    count = min(len(a), len(b))
    if count < LEAST_SAMPLES:
        return Ratio(value, float(b.min() / a.max()), float(b.max() / a.min()), None, count, "range")
    rng = np.random.default_rng(seed)
    over = rng.integers(0, len(b), size=(DRAWS, len(b)))
    under = over if paired else rng.integers(0, len(a), size=(DRAWS, len(a)))
    logs = np.log(np.median(b[over], axis=1)) - np.log(np.median(a[under], axis=1))
    error = float(logs.std(ddof=1)) * math.sqrt(count / (count - 1))
    # Of the ratio's logarithm, by Student's distribution.
    reach, distance = float(stats.t.ppf(0.975, count - 1)) * error, abs(math.log(value))
    p = float(2 * stats.t.sf(distance / error, count - 1)) if error else float(distance == 0.0)
    return Ratio(value, value * math.exp(-reach), value * math.exp(reach), p, count, "bootstrap95")


def holm(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p-values, in the given order; they bound the family-wise error under any dependence.

    Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics 6(2), 1979.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
