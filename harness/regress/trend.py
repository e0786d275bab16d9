"""Steps in a long history: lasting changes of a metric, each with the two commits
around it.

Times, sizes and noisy counts: PELT (Killick, Fearnhead and Eckley, Journal of the
American Statistical Association 107(500), 2012) with a least-squares cost on
logarithms, from the ruptures library (Truong, Oudre and Vayatis, Signal Processing 167,
2020). Spikes are replaced first (Hampel's filter), and the cost of a step grows with
the autocorrelation of the noise; `benchmarks/gate_power.py` counts false steps. Exact
counts need no method: every difference is a step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from harness.regress.history import Entry, History
from harness.regress.samples import COSTS, ConfigSamples

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# A shorter level is no lasting change.
LEAST_SEGMENT = 4
# A series with fewer points has no step.
LEAST_POINTS = 2 * LEAST_SEGMENT
# Cost of a step in units of the noise's variance, times log n.
PENALTY = 3.5
# The same for steps that are certain before the autocorrelation is known.
CERTAIN_PENALTY = 15.0
# Lower bound of the noise of a series: smaller noise is rounding.
LEAST_NOISE = 0.002
# A point is a spike if it is so many standard deviations away from the median of its
# neighbourhood of so many points.
SPIKE_DEVIATIONS = 2.5
NEIGHBOURHOOD = 7
# Stronger autocorrelation cannot be distinguished from steps.
MOST_AUTOCORRELATION = 0.8
# Standard deviation of normal noise over its median absolute value.
_NORMAL = 1.4826


@dataclass(frozen=True)
class Point:
    """One entry of a series. `runs`: number of runs in the entry's cell."""

    commit: str
    recorded_at: int
    value: float
    runs: int


@dataclass(frozen=True)
class Step:
    """A lasting change.

    Attributes:
        after, at: last commit before the step and first commit with it: the cause is a
            commit in (after, at].
        before_value, value: medians of the two segments; for exact counts the two
            counts.
    """

    index: int
    after: str
    at: str
    before_value: float
    value: float

    @property
    def ratio(self) -> float:
        """New value over old value."""
        return self.value / self.before_value

    @property
    def commits(self) -> str:
        """Range of commits in git's notation."""
        return f"{self.after[:12]}..{self.at[:12]}"


@dataclass(frozen=True)
class Series:
    """One metric of one cell on one machine over its commits."""

    host: str
    cell: str
    system: str
    name: str
    points: list[Point]
    steps: list[Step] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON; each step has its `commits` and `ratio`."""
        steps = [
            {**asdict(step), "commits": step.commits, "ratio": step.ratio}
            for step in self.steps
        ]
        return {**asdict(self), "steps": steps}


def trends(
    history: History, *, min_effect: float = 0.03, hosts: Sequence[str] = ()
) -> list[Series]:
    """Return every series of the history with its steps.

    Args:
        min_effect: smallest relative step of a noisy metric.
        hosts: fingerprints of the machines; empty: all machines.
    """
    chosen = hosts or list(dict.fromkeys(entry.host for entry in history.entries))
    found = []
    for host in chosen:
        entries = history.of(host)
        for key in dict.fromkeys(cell.key for entry in entries for cell in entry.cells):
            found += _of_cell(host, entries, key, min_effect)
    return found


def _of_cell(
    host: str, entries: Sequence[Entry], key: str, min_effect: float
) -> list[Series]:
    pairs = [
        (entry, cell) for entry in entries if (cell := entry.cell(key)) is not None
    ]
    newest = pairs[-1][1]
    points: dict[tuple[str, bool], list[Point]] = {}
    for entry, cell in pairs:
        for exact, values in ((False, cell.medians), (True, _totals(cell))):
            for name, value in values.items():
                point = Point(entry.commit, entry.recorded_at, value, len(cell.runs))
                points.setdefault((name, exact), []).append(point)
    return [
        Series(
            host,
            newest.label,
            newest.system,
            name,
            own,
            exact_steps(own) if exact else steps_of(own, min_effect),
        )
        for (name, exact), own in sorted(points.items(), key=lambda item: item[0][1])
    ]


def _totals(cell: ConfigSamples) -> dict[str, float]:
    """Return the newest successful run's exact costs, summed over its epochs; empty if
    counters do not repeat."""
    exact = next(
        (
            run.exact
            for run in reversed(cell.runs)
            if run.status == "ok" and cell.deterministic
        ),
        {},
    )
    return {
        name: float(sum(int(value or 0) for value in exact[name]))
        for name in COSTS
        if name in exact
    }


def steps_of(points: Sequence[Point], min_effect: float) -> list[Step]:
    """Return the steps of a noisy series, oldest first; none below LEAST_POINTS
    points."""
    import numpy as np

    values = np.asarray([point.value for point in points])
    if len(values) < LEAST_POINTS or (values <= 0).any():
        return []
    bounds = _bounds(np.log(values))
    steps = []
    for start, at, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
        before = float(np.median(values[start:at]))
        after = float(np.median(values[at:end]))
        if max(before, after) / min(before, after) >= 1 + min_effect:
            steps.append(
                Step(at, points[at - 1].commit, points[at].commit, before, after)
            )
    return steps


def _bounds(logs: Floats) -> list[int]:
    """Return the first index of each segment of a series of logarithms, and its length.

    Certain steps are removed before the autocorrelation is estimated, which a step
    would raise.
    """
    import numpy as np

    # By differences of neighbours, which steps hardly affect.
    differences = np.abs(np.diff(logs))
    noise = max(float(np.median(differences)) * _NORMAL / math.sqrt(2), LEAST_NOISE)
    clean = _without_spikes(logs, noise)
    certain = _segments(clean / noise, CERTAIN_PENALTY)
    levels = [
        np.full(end - start, clean[start:end].mean())
        for start, end in itertools.pairwise(certain)
    ]
    rho = _autocorrelation(clean - np.concatenate(levels))
    # Standard deviation of a mean of n such points, times sqrt(n): differences of
    # neighbours show only the part 1 - rho of the variance.
    lasting = noise * math.sqrt(1 + rho) / (1 - rho)
    return _segments(clean / lasting, PENALTY)


def _without_spikes(logs: Floats, noise: float) -> Floats:
    """Replace each point far from the median of its neighbourhood by that median."""
    import numpy as np
    from scipy.ndimage import median_filter

    around = median_filter(logs, size=NEIGHBOURHOOD, mode="nearest")
    is_spike = np.abs(logs - around) > SPIKE_DEVIATIONS * noise
    cleaned: Floats = np.where(is_spike, around, logs)
    return cleaned


def _autocorrelation(residuals: Floats) -> float:
    """Return the correlation of neighbours, at least 0, by differences over one and
    over two points: their variances are in the ratio 1 to 1 + rho for first-order
    noise."""
    import numpy as np

    near = float(np.mean(np.diff(residuals) ** 2))
    far = float(np.mean((residuals[2:] - residuals[:-2]) ** 2))
    if near == 0.0:
        return 0.0
    return min(max(far / near - 1.0, 0.0), MOST_AUTOCORRELATION)


def _segments(signal: Floats, penalty: float) -> list[int]:
    """Return the bounds of PELT's segments of a signal in units of its noise."""
    import ruptures

    # The linear kernel's cost is the squared distance to the segment's mean.
    search = ruptures.KernelCPD(kernel="linear", min_size=LEAST_SEGMENT)
    ends = search.fit(signal.reshape(-1, 1)).predict(
        pen=penalty * math.log(len(signal))
    )
    return [0, *map(int, ends)]


def exact_steps(points: Sequence[Point]) -> list[Step]:
    """Return a step wherever an exact count differs from the previous one."""
    return [
        Step(index, before.commit, after.commit, before.value, after.value)
        for index, (before, after) in enumerate(itertools.pairwise(points), start=1)
        if before.value != after.value and before.value > 0
    ]
