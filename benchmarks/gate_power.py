"""How sure is the regression gate's judgement, by the kind of noise?

`python benchmarks/gate_power.py` simulates checks and histories whose answer is known,
by a seed, in seconds. A check has three systems, each with an epoch time and four other
noisy metrics; the table compares four ways to judge the log-ratios of its pairs. A
history has no step, or one in its middle. `--root DIR` judges the kept pairs of
`benchmarks.gate_proof collect` in the same four ways. Exit code 1: the gate's own
judgement misses a bound of `benchmarks.gate_proof` at seven pairs under normal noise.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from gate_proof import LEAST_CAUGHT, MOST_FALSE, Block, read
from numpy.typing import NDArray
from scipy import stats

from harness.regress.decision import Rules
from harness.regress.ratio import holm, weights_of
from harness.regress.samples import paired
from harness.regress.trend import Point, steps_of

Floats = NDArray[np.float64]
#: Estimate of the log-ratio, its standard error and the degrees of freedom, from
#: log-ratios of shape [..., pairs].
Judged = tuple[Floats, Floats, int]
Noise = Callable[[np.random.Generator, tuple[int, ...]], Floats]

SYSTEMS = 3
METRICS = ("epoch", "once", "each", "warm-up", "peak memory")
PAIRS = (5, 7)
SLOWED = (0.03, 0.05, 0.10)
CHECKS = 2000
RESAMPLES = 200
SERIES = 1000
LENGTHS = (30, 60)
#: Standard deviation of a pair's log-ratio, and of a history's logarithms.
SPREAD = 0.02
#: Share of spikes and their factor.
SPIKES = 0.05
SPIKE = 1.5
AUTOCORRELATION = 0.5
MOST_FALSE_STEPS = 0.05
#: A step is found if it is at most so many commits from where it was made.
NEAR = 3


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw normal noise."""
    return rng.normal(0.0, SPREAD, shape)


def heavy_tails(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw noise of Student's distribution with three degrees of freedom and the same
    standard deviation."""
    return rng.standard_t(3, shape) * SPREAD / math.sqrt(3)


def spikes(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw normal noise in which one value in twenty is 1.5 times as long, on either
    side of a pair."""
    either = np.where(rng.random(shape) < 0.5, -1.0, 1.0)
    return normal(rng, shape) + either * _spikes(rng, shape)


def spiky(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw normal noise in which one value in twenty is 1.5 times as long."""
    return normal(rng, shape) + _spikes(rng, shape)


def autocorrelated(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw first-order autoregressive noise of correlation 0.5, along the last axis."""
    drawn = normal(rng, shape)
    fresh = math.sqrt(1 - AUTOCORRELATION**2)
    for index in range(1, shape[-1]):
        kept = AUTOCORRELATION * drawn[..., index - 1]
        drawn[..., index] = kept + fresh * drawn[..., index]
    return drawn


def _spikes(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    is_spike = rng.random(shape) < SPIKES
    return np.where(is_spike, math.log(SPIKE), 0.0)


PAIR_NOISE: dict[str, Noise] = {
    "normal": normal,
    "heavy tails": heavy_tails,
    "spikes": spikes,
}
SERIES_NOISE: dict[str, Noise] = {
    "normal": normal,
    "spiky": spiky,
    "autocorrelated": autocorrelated,
}


def mean(logs: Floats) -> Judged:
    """Judge by the mean and Student's t, as the gate does (`ratio_of_means`)."""
    count = logs.shape[-1]
    error = logs.std(axis=-1, ddof=1) / math.sqrt(count)
    return logs.mean(axis=-1), error, count - 1


def trimmed_mean(logs: Floats) -> Judged:
    """Judge by the mean without the smallest and the largest value, its error by the
    winsorized variance (Yuen, Biometrika 61(1), 1974)."""
    count = logs.shape[-1]
    kept = count - 2
    inner = np.sort(logs, axis=-1)[..., 1:-1]
    ends = (inner[..., :1], inner, inner[..., -1:])
    winsorized = np.concatenate(ends, axis=-1)
    spread = winsorized.std(axis=-1, ddof=1)
    error = spread * math.sqrt((count - 1) / (kept * (kept - 1)))
    return inner.mean(axis=-1), error, kept - 1


def hodges_lehmann(logs: Floats) -> Judged:
    """Judge by the median of the means of two values, its error by the bootstrap."""
    return _bootstrapped(logs, _middle_of_means)


def median(logs: Floats) -> Judged:
    """Judge by the median, its error by the bootstrap."""
    return _bootstrapped(logs, lambda drawn: np.median(drawn, axis=-1))


def _middle_of_means(logs: Floats) -> Floats:
    first, second = np.triu_indices(logs.shape[-1])
    means = (logs[..., first] + logs[..., second]) / 2
    middle: Floats = np.median(means, axis=-1)
    return middle


def _bootstrapped(logs: Floats, estimate: Callable[[Floats], Floats]) -> Judged:
    """Judge by an estimate and its bootstrapped error, widened for few values
    (Hesterberg, The American Statistician 69(4), 2015)."""
    count = logs.shape[-1]
    drawn = np.random.default_rng(0).integers(0, count, (RESAMPLES, count))
    rows = logs.reshape(-1, count)
    parts = np.array_split(rows, max(1, len(rows) // 500))
    spread = [estimate(part[:, drawn]).std(axis=-1, ddof=1) for part in parts]
    widened = np.concatenate(spread) * math.sqrt(count / (count - 1))
    return estimate(logs), widened.reshape(logs.shape[:-1]), count - 1


ESTIMATORS: dict[str, Callable[[Floats], Judged]] = {
    "median, bootstrap": median,
    "trimmed mean, t": trimmed_mean,
    "Hodges-Lehmann, bootstrap": hodges_lehmann,
    "mean, t (the gate's)": mean,
}
OWN = "mean, t (the gate's)"


def share_regressed(judged: Judged, names: Sequence[str], added: Floats) -> float:
    """Return the share of checks that the gate's rules call regressed.

    Args:
        judged: estimates and errors of shape [checks, metrics].
        names: name of each metric.
        added: log-ratio added to each metric, of shape [metrics].
    """
    rules = Rules()
    estimates, errors, freedom = judged
    moved = estimates + added
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.nan_to_num(np.abs(moved) / errors)
    p_values = 2 * stats.t.sf(distance, freedom)
    adjusted = holm(p_values, weights_of(names))
    regressed = (adjusted < rules.alpha) & (moved >= math.log1p(rules.min_effect))
    return float(regressed.any(axis=-1).mean())


def power(judged: Judged, names: Sequence[str], systems: int) -> list[float]:
    """Return the share of checks called regressed: unchanged, then for each slowdown
    with the epochs of all systems slowed and with those of one."""
    unchanged = np.zeros(len(names))
    shares = [share_regressed(judged, names, unchanged)]
    is_epoch = np.asarray([name == "epoch" for name in names])
    for level in SLOWED:
        for slowed in (systems, 1):
            added = np.where(is_epoch & (is_epoch.cumsum() <= slowed), 1.0, 0.0)
            shares.append(share_regressed(judged, names, added * math.log1p(level)))
    return shares


def _print_row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def _percent(shares: Sequence[float]) -> list[str]:
    return [f"{100 * share:.1f}" for share in shares]


def _print_heads(first: Sequence[str]) -> None:
    levels = [f"{100 * level:g} %" for level in SLOWED]
    columns = [name for level in levels for name in (level, f"{level}, one")]
    _print_row([*first, "false", *columns])
    _print_row(["---"] * len(first) + ["--:"] * (1 + len(columns)))


def simulate_checks() -> bool:
    """Print the table of false alarms and power; return whether the gate's own
    judgement keeps its bounds."""
    names = list(METRICS) * SYSTEMS
    print(
        f"\nShare of {CHECKS} simulated checks called regressed, in %; `one`: only one "
        f"of {SYSTEMS} systems is slower.\n"
    )
    _print_heads(["noise", "pairs", "judged by"])
    kept = True
    for noise, draw in PAIR_NOISE.items():
        for pairs in PAIRS:
            rng = np.random.default_rng(pairs)
            logs = draw(rng, (CHECKS, len(names), pairs))
            for name, judge in ESTIMATORS.items():
                shares = power(judge(logs), names, SYSTEMS)
                _print_row([noise, str(pairs), name, *_percent(shares)])
                if name == OWN:
                    kept = kept and _keeps_bounds(shares, noise, pairs)
    return kept


def _keeps_bounds(shares: Sequence[float], noise: str, pairs: int) -> bool:
    """Return whether a row is within the bounds that concern it."""
    if shares[0] > MOST_FALSE:
        return False
    if noise != "normal" or pairs != max(PAIRS):
        return True
    of_all = dict(zip(SLOWED, shares[1::2], strict=True))
    of_one = dict(zip(SLOWED, shares[2::2], strict=True))
    return all(
        min(of_all[level], of_one[level]) >= least
        for level, least in LEAST_CAUGHT.items()
    )


def false_steps(noise: str, length: int, count: int = SERIES) -> float:
    """Return the share of simulated histories without a step in which one is found."""
    rng = np.random.default_rng(length)
    drawn = SERIES_NOISE[noise](rng, (count, length))
    found = [bool(steps_of(_points(logs), Rules().min_effect)) for logs in drawn]
    return float(np.mean(found))


def found_steps(level: float, length: int, count: int = SERIES) -> float:
    """Return the share of simulated histories, slower by `level` from their middle on,
    in which the step is found there; normal noise."""
    rng = np.random.default_rng(length)
    middle = length // 2
    drawn = normal(rng, (count, length))
    drawn[:, middle:] += math.log1p(level)
    found = [
        any(
            abs(step.index - middle) <= NEAR
            for step in steps_of(_points(logs), Rules().min_effect)
        )
        for logs in drawn
    ]
    return float(np.mean(found))


def _points(logs: Floats) -> list[Point]:
    values = np.exp(logs)
    return [Point(f"{k:040x}", k, float(value), 3) for k, value in enumerate(values)]


def simulate_histories() -> bool:
    """Print the table of false and found steps; return whether false steps keep their
    bound under normal and spiky noise."""
    print(
        f"\nShare of {SERIES} simulated histories in which `trend` finds a step, in %; "
        "`step`: one was made, under normal noise.\n"
    )
    made = [f"step of {100 * level:g} %" for level in SLOWED[1:]]
    _print_row(["commits", *SERIES_NOISE, *made])
    _print_row(["--:"] * (1 + len(SERIES_NOISE) + len(made)))
    kept = True
    for length in LENGTHS:
        false = {noise: false_steps(noise, length) for noise in SERIES_NOISE}
        found = [found_steps(level, length) for level in SLOWED[1:]]
        _print_row([str(length), *_percent([*false.values(), *found])])
        kept = kept and max(false["normal"], false["spiky"]) <= MOST_FALSE_STEPS
    return kept


def judge_kept(root: Path) -> None:
    """Print the table of the kept pairs of `gate_proof`, epochs alone, each system's
    drawn with replacement."""
    blocks, _ = read(root)
    systems = sorted({system for system, _ in blocks[0]})
    kept = np.asarray([_log_ratios(blocks, system) for system in systems])
    spread = ", ".join(
        f"{system} {100 * logs.std(ddof=1):.1f} %"
        for system, logs in zip(systems, kept, strict=True)
    )
    print(
        f"\nShare of {CHECKS} checks called regressed, in %, by {kept.shape[1]} kept "
        f"pairs of unchanged epochs (spread of a pair: {spread}).\n"
    )
    _print_heads(["pairs", "judged by"])
    names = ["epoch"] * len(systems)
    for pairs in PAIRS:
        rng = np.random.default_rng(pairs)
        drawn = rng.integers(0, kept.shape[1], (CHECKS, len(systems), pairs))
        flipped = np.where(rng.random(drawn.shape) < 0.5, -1.0, 1.0)
        logs = np.take_along_axis(kept[None, :, :], drawn, axis=-1) * flipped
        for name, judge in ESTIMATORS.items():
            shares = power(judge(logs), names, len(systems))
            _print_row([str(pairs), name, *_percent(shares)])


def _log_ratios(blocks: Sequence[Block], system: str) -> list[float]:
    """Return the log-ratio of the unchanged epochs of each block."""
    base = [block[system, "0"] for block in blocks]
    head = [block[system, "0b"] for block in blocks]
    return [math.log(b / a) for a, b in paired(base, head, "epoch")]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", type=Path, help="also judge the kept pairs of gate_proof in it"
    )
    options = parser.parse_args()
    if options.root is not None:
        judge_kept(options.root)
    checks = simulate_checks()
    histories = simulate_histories()
    print("\nbounds kept" if checks and histories else "\na bound is missed")
    return 0 if checks and histories else 1


if __name__ == "__main__":
    sys.exit(main())
