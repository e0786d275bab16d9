"""Steps in a long history: lasting changes of a metric, each with the two commits
around it.

Times, sizes and noisy counts: PELT (Killick, Fearnhead and Eckley, Journal of the
American Statistical Association 107(500), 2012) with a least-squares cost on
logarithms, from the ruptures library (Truong, Oudre and Vayatis, Signal Processing 167,
2020). Exact counts need no method: every difference is a step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from harness.regress.history import Entry, History
from harness.regress.samples import COSTS, ConfigSamples

# A series with fewer points has no step.
LEAST_POINTS = 6
# Cost of a step in units of the noise's variance, times log n.
PENALTY = 4.0
# Lower bound of the noise of a series: smaller noise is rounding.
LEAST_NOISE = 0.002


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
    import ruptures
    from scipy.ndimage import median_filter

    logs = np.log(values)
    # A median of three neighbours keeps the position of steps and removes single
    # outliers.
    smooth = median_filter(logs, size=3, mode="nearest")
    # The noise's standard deviation by differences of neighbours, which steps hardly
    # affect.
    noise = float(np.median(np.abs(np.diff(logs)))) / (0.6745 * math.sqrt(2))
    signal = (smooth / max(noise, LEAST_NOISE)).reshape(-1, 1)
    found = (
        ruptures.Pelt(model="l2", min_size=2, jump=1)
        .fit(signal)
        .predict(pen=PENALTY * math.log(len(values)))
    )
    bounds = [0, *found]
    steps = []
    for start, at, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
        before = float(np.median(values[start:at]))
        after = float(np.median(values[at:end]))
        if max(before, after) / min(before, after) >= 1 + min_effect:
            steps.append(
                Step(at, points[at - 1].commit, points[at].commit, before, after)
            )
    return steps


def exact_steps(points: Sequence[Point]) -> list[Step]:
    """Return a step wherever an exact count differs from the previous one."""
    return [
        Step(index, before.commit, after.commit, before.value, after.value)
        for index, (before, after) in enumerate(itertools.pairwise(points), start=1)
        if before.value != after.value and before.value > 0
    ]
