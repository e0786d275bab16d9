from __future__ import annotations

import math

import numpy as np
import pytest

from harness.regress.ratio import LEAST_SAMPLES, holm, ratio_of_means, weights_of


def _pairs(rng, count: int, noise: float, effect: float = 0.0, drift: float = 0.0):
    shared = np.linspace(0.0, drift, count)
    base = 3.0 * np.exp(shared + rng.normal(0, noise, count))
    return base, 3.0 * (1 + effect) * np.exp(shared + rng.normal(0, noise, count))


def test_the_ratio_is_of_the_geometric_means_and_the_interval_holds_it():
    found = ratio_of_means(
        [1.0, 1.1, 0.9, 1.0, 1.05], [2.0, 2.2, 1.8, 2.0, 2.1], paired=True
    )
    assert found.value == pytest.approx(2.0)
    assert found.low <= 2.0 <= found.high
    assert found.p is not None
    assert found.p < 1e-3


def test_below_five_samples_there_is_a_range_and_no_decision():
    found = ratio_of_means(
        [1.0] * (LEAST_SAMPLES - 1), [9.0] * (LEAST_SAMPLES - 1), paired=True
    )
    assert (found.kind, found.p) == ("range", None)
    assert math.isinf(found.half_width)


@pytest.mark.parametrize("count", [5, 8, 12])
def test_the_interval_holds_the_truth_in_at_least_95_of_100_small_samples(count):
    rng = np.random.default_rng(count)
    held = 0
    for _ in range(400):
        found = ratio_of_means(*_pairs(rng, count, 0.02, 0.05), paired=True)
        held += found.low <= 1.05 <= found.high
    assert held >= 0.93 * 400  # two standard errors of 95 % over 400 samples


def test_drift_that_pairs_share_does_not_count_as_a_difference():
    rng = np.random.default_rng(3)
    false = 0
    for _ in range(2000):
        p = ratio_of_means(*_pairs(rng, 10, 0.005, drift=0.5), paired=True).p
        false += p is not None and p < 0.05
    assert false <= 0.065 * 2000  # three standard errors above 5 %


def test_equal_samples_are_equal_and_a_constant_shift_is_certain():
    assert ratio_of_means([2.0] * 6, [2.0] * 6, paired=True).p == 1.0
    assert ratio_of_means([2.0] * 6, [2.1] * 6, paired=True).p < 1e-9


@pytest.mark.parametrize(
    "bad", [([], [1.0]), ([1.0, 0.0], [1.0, 1.0]), ([1.0], [1.0, 2.0])]
)
def test_samples_that_have_no_ratio_are_refused(bad):
    with pytest.raises(ValueError):
        ratio_of_means(*bad, paired=True)


def test_the_judgement_is_scipys_paired_and_welchs_t_of_the_logarithms():
    from scipy import stats

    rng = np.random.default_rng(5)
    base, head = _pairs(rng, 9, 0.05, 0.02)
    logs = np.log(base), np.log(head)
    found = ratio_of_means(base, head, paired=True)
    expected = stats.ttest_rel(logs[1], logs[0])
    interval = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue)
    assert np.log([found.low, found.high]) == pytest.approx([*interval])
    apart = ratio_of_means(base[:6], head, paired=False)
    welch = stats.ttest_ind(logs[1], logs[0][:6], equal_var=False)
    assert apart.p == pytest.approx(welch.pvalue)


def _equal(count: int) -> np.ndarray:
    return np.full(count, 1.0 / max(1, count))


def _holm(p_values: list[float]) -> list[float]:
    return holm(np.asarray(p_values), _equal(len(p_values))).tolist()


def test_holm_by_hand():
    # Three hypotheses: 3 x 0.01, 2 x 0.02, 1 x 0.5, each no smaller than the one
    # before.
    assert _holm([0.02, 0.5, 0.01]) == pytest.approx([0.04, 0.5, 0.03])
    assert _holm([0.01, 0.011]) == pytest.approx([0.02, 0.02])
    assert _holm([]) == []


def test_holm_never_makes_a_p_value_smaller_nor_larger_than_bonferroni():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p_values = list(rng.random(rng.integers(1, 20)))
        for adjusted, p in zip(_holm(p_values), p_values, strict=True):
            assert p <= adjusted <= min(1.0, len(p_values) * p) + 1e-12


def test_epochs_have_half_of_the_error_rate():
    names = ["epoch", "once", "warm-up", "peak memory", "epoch"]
    assert weights_of(names).tolist() == pytest.approx(
        [1 / 4, 1 / 6, 1 / 6, 1 / 6, 1 / 4]
    )
    assert weights_of(["epoch", "epoch"]).tolist() == [0.5, 0.5]
    assert weights_of([]).tolist() == []
    # One epoch of two, beside three other metrics: 0.004 x 4, where equal weights
    # would make it 0.004 x 5.
    p_values = np.asarray([0.004, 0.9, 0.9, 0.9, 0.9])
    assert holm(p_values, weights_of(names))[0] == pytest.approx(0.016)


def test_weighted_holm_keeps_the_family_wise_error_rate():
    """All hypotheses are true: one in twenty families may have a p-value below 0.05."""
    rng = np.random.default_rng(2)
    weights = weights_of(["epoch", "epoch", "once", "warm-up", "peak memory"])
    adjusted = holm(rng.random((20_000, 5)), weights)
    false = float((adjusted < 0.05).any(axis=-1).mean())
    assert 0.04 < false < 0.055
