"""The statistics of the gate: a bootstrapped ratio of medians for few samples, and Holm's correction over all of them.

The interval is the bootstrap-t kind that Hesterberg gives for small samples (The American Statistician 69(4), 2015,
"What Teachers Should Know About the Bootstrap", on narrowness bias): the bootstrap's standard error, widened by
sqrt(n / (n - 1)), times Student's quantile at n - 1 degrees of freedom. Plain percentiles of five or six samples are
too narrow, and a gate built on them cries wolf.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# Below this a sample has no bootstrap interval (methodology rule 15), and nothing is decided on it.
LEAST_SAMPLES = 5
DRAWS = 4000


@dataclass(frozen=True)
class Ratio:
    """Head over base.

    Attributes:
        value: ratio of the two medians.
        low, high: of the 95 % interval; of the range over all pairs below five samples.
        p: two-sided, of the hypothesis that the ratio is 1; None where there are too few samples to say.
        samples: of the side that has fewer.
        kind: of the interval.
    """

    value: float
    low: float
    high: float
    p: float | None
    samples: int
    kind: Literal["bootstrap95", "range"]

    @property
    def half_width(self) -> float:
        """Half the interval's width, relative: 0.015 is 1.5 %; infinite where nothing can be decided."""
        return math.inf if self.p is None else math.sqrt(self.high / self.low) - 1.0


def ratio_of_medians(base: Sequence[float], head: Sequence[float], *, paired: bool, seed: int = 0) -> Ratio:
    """Ratio of the medians of positive samples, head over base.

    Args:
        base, head: one value a run, greater than 0.
        paired: the i-th values were measured beside each other: pairs are resampled whole, so that what drifts over
            the session moves both. Both sides then have as many values.
        seed: of the resampling.

    Raises:
        ValueError: no samples, a value that is not positive, or pairs that are none.
    """
    import numpy as np

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
    low, high = interval(value, error, count, 0.95)
    return Ratio(value, low, high, p_value(value, error, count), count, "bootstrap95")


def interval(value: float, error: float, count: int, level: float) -> tuple[float, float]:
    """Of a ratio whose logarithm has the standard error `error`, from `count` samples."""
    from scipy import stats

    reach = float(stats.t.ppf(0.5 + level / 2, count - 1)) * error
    return value * math.exp(-reach), value * math.exp(reach)


def p_value(value: float, error: float, count: int) -> float:
    """Two-sided, of the hypothesis that a ratio is 1."""
    from scipy import stats

    distance = abs(math.log(value))
    if error == 0.0:
        return 1.0 if distance == 0.0 else 0.0
    return float(2 * stats.t.sf(distance / error, count - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given: the family-wise error holds whatever depends on what.

    Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics 6(2), 1979.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
