from __future__ import annotations

import math

import numpy as np
import pytest

from harness.regress.judge import LEAST_SAMPLES, holm, ratio_of_medians


def _pairs(rng, count: int, noise: float, effect: float = 0.0, drift: float = 0.0):
    shared = np.linspace(0.0, drift, count)
    base = 3.0 * np.exp(shared + rng.normal(0, noise, count))
    return base, 3.0 * (1 + effect) * np.exp(shared + rng.normal(0, noise, count))


def test_the_ratio_is_of_the_medians_and_the_interval_holds_it():
    found = ratio_of_medians(
        [1.0, 1.1, 0.9, 1.0, 1.05], [2.0, 2.2, 1.8, 2.0, 2.1], paired=True
    )
    assert found.value == pytest.approx(2.0)
    assert found.low <= 2.0 <= found.high
    assert found.p is not None
    assert found.p < 1e-3


def test_below_five_samples_there_is_a_range_and_no_decision():
    found = ratio_of_medians(
        [1.0] * (LEAST_SAMPLES - 1), [9.0] * (LEAST_SAMPLES - 1), paired=True
    )
    assert (found.kind, found.p) == ("range", None)
    assert math.isinf(found.half_width)


@pytest.mark.parametrize("count", [5, 8, 12])
def test_the_interval_holds_the_truth_in_at_least_95_of_100_small_samples(count):
    rng = np.random.default_rng(count)
    held = 0
    for _ in range(400):
        found = ratio_of_medians(
            *_pairs(rng, count, 0.02, 0.05),
            paired=True,
            seed=int(rng.integers(1 << 30)),
        )
        held += found.low <= 1.05 <= found.high
    assert held >= 0.93 * 400  # two standard errors of 95 % over 400 samples


def test_drift_that_pairs_share_does_not_count_as_a_difference():
    rng = np.random.default_rng(3)
    false = 0
    for _ in range(200):
        p = ratio_of_medians(*_pairs(rng, 10, 0.005, drift=0.5), paired=True, seed=1).p
        false += p is not None and p < 0.05
    assert false <= 0.05 * 200


def test_equal_samples_are_equal_and_a_constant_shift_is_certain():
    assert ratio_of_medians([2.0] * 6, [2.0] * 6, paired=True).p == 1.0
    assert ratio_of_medians([2.0] * 6, [2.1] * 6, paired=True).p == 0.0


@pytest.mark.parametrize(
    "bad", [([], [1.0]), ([1.0, 0.0], [1.0, 1.0]), ([1.0], [1.0, 2.0])]
)
def test_samples_that_have_no_ratio_are_refused(bad):
    with pytest.raises(ValueError):
        ratio_of_medians(*bad, paired=True)


def test_the_same_seed_gives_the_same_interval():
    rng = np.random.default_rng(5)
    pairs = _pairs(rng, 9, 0.05)
    assert ratio_of_medians(*pairs, paired=True, seed=4) == ratio_of_medians(
        *pairs, paired=True, seed=4
    )


def test_holm_by_hand():
    # Three hypotheses: 3 x 0.01, 2 x 0.02, 1 x 0.5, each no smaller than the one
    # before.
    assert holm([0.02, 0.5, 0.01]) == pytest.approx([0.04, 0.5, 0.03])
    assert holm([0.01, 0.011]) == pytest.approx([0.02, 0.02])
    assert holm([]) == []


def test_holm_never_makes_a_p_value_smaller_nor_larger_than_bonferroni():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p_values = list(rng.random(rng.integers(1, 20)))
        for adjusted, p in zip(holm(p_values), p_values, strict=True):
            assert p <= adjusted <= min(1.0, len(p_values) * p) + 1e-12
