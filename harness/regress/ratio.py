"""Ratio of head to base of a noisy metric: Student's interval and p-value of the mean
log-ratio, and Holm's correction of many p-values.

`benchmarks/gate_power.py` compares this judgement with those by the median, the
trimmed mean and the Hodges-Lehmann estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# Fewer samples have no interval (methodology rule 15) and stay undecided.
LEAST_SAMPLES = 5
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """Ratio of head's geometric mean to base's.

    Attributes:
        low, high: ends of the 95 % interval; below five samples, smallest and largest
            ratio of two single values.
        p: two-sided p-value of the hypothesis that the ratio is 1; None below five
            samples.
        samples: number of samples of the smaller side.
    """

    value: float
    low: float
    high: float
    p: float | None
    samples: int
    kind: Literal["t95", "range"]

    @property
    def half_width(self) -> float:
        """Relative half width of the interval: 0.015 is 1.5 %; infinite without a
        p-value."""
        if self.p is None:
            return math.inf
        return math.sqrt(self.high / self.low) - 1.0


def ratio_of_means(
    base: Sequence[float], head: Sequence[float], *, paired: bool
) -> Ratio:
    """Return the ratio of the geometric means of positive samples, head over base.

    Pairs are judged by Student's t of their log-ratios, so that drift over the session
    affects both sides; two separate sides by Welch's t of their logarithms (Biometrika
    34(1-2), 1947).

    Args:
        base, head: one value a run, greater than 0.
        paired: whether the i-th values form a pair, on equally long sides.

    Raises:
        ValueError: a side has no samples, a value is not positive, or paired sides
            differ in length.
    """
    import numpy as np
    from scipy import stats

    a = np.asarray(base, dtype=np.float64)
    b = np.asarray(head, dtype=np.float64)
    if not len(a) or not len(b) or (a <= 0).any() or (b <= 0).any():
        raise ValueError("a ratio needs positive samples on both sides")
    if paired and len(a) != len(b):
        raise ValueError("pairs need as many samples on both sides")
    before = np.log(a)
    after = np.log(b)
    mean = float(after.mean() - before.mean())
    count = min(len(a), len(b))
    if count < LEAST_SAMPLES:
        low = float(b.min() / a.max())
        high = float(b.max() / a.min())
        return Ratio(math.exp(mean), low, high, None, count, "range")
    parts = [after - before] if paired else [before, after]
    error, freedom = _standard_error(parts)
    reach = float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom)) * error
    p = float(mean == 0.0)
    if error > 0.0:
        p = float(2 * stats.t.sf(abs(mean) / error, freedom))
    low = math.exp(mean - reach)
    high = math.exp(mean + reach)
    return Ratio(math.exp(mean), low, high, p, count, "t95")


def _standard_error(parts: Sequence[Floats]) -> tuple[float, float]:
    """Return the standard error of the difference of independent parts' means, and its
    degrees of freedom by Welch and Satterthwaite."""
    squares = [float(part.var(ddof=1)) / len(part) for part in parts]
    total = sum(squares)
    freedoms = [len(part) - 1 for part in parts]
    shares = sum(s**2 / f for s, f in zip(squares, freedoms, strict=True))
    freedom = total**2 / shares if shares > 0.0 else float(sum(freedoms))
    return math.sqrt(total), freedom


def holm(p_values: Floats, weights: Floats) -> Floats:
    """Return adjusted p-values, in the given order; they bound the family-wise error
    under any dependence.

    Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal
    of Statistics 6(2), 1979: the weighted procedure of its section 4.

    Args:
        p_values: float64 of shape [..., hypotheses]; each row is a family of its own.
        weights: share of the error rate that each hypothesis may use first, greater
            than 0, of shape [hypotheses]; equal weights are Holm's usual procedure.
    """
    import numpy as np

    scaled = np.asarray(p_values, dtype=np.float64) / weights
    order = np.argsort(scaled, axis=-1, kind="stable")
    ranked = np.take_along_axis(scaled, order, axis=-1)
    ordered_weights = np.asarray(weights)[order]
    remaining = np.cumsum(ordered_weights[..., ::-1], axis=-1)[..., ::-1]
    rising = np.maximum.accumulate(ranked * remaining, axis=-1)
    adjusted: Floats = np.empty_like(scaled)
    np.put_along_axis(adjusted, order, np.minimum(rising, 1.0), axis=-1)
    return adjusted


def weights_of(names: Sequence[str]) -> Floats:
    """Return the weight of each metric in Holm's correction: half of the error rate is
    for epochs, half for all other metrics together.

    An epoch's time is the metric that a comparison is made for; the offline work, the
    warm-up and the memory beside it must not take its power.
    """
    import numpy as np

    is_epoch = np.asarray([name == "epoch" for name in names])
    epochs = int(is_epoch.sum())
    others = len(names) - epochs
    if not epochs or not others:
        return np.full(len(names), 1.0 / max(1, len(names)))
    return np.where(is_epoch, 0.5 / epochs, 0.5 / others)
