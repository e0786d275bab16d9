"""Splits: disjoint, labelled, of the requested shares, and a function of the seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workloads.making.node_data as splits
from workloads.errors import InputError
from workloads.making.node_data import check_fractions, draw_splits


@given(
    nodes=st.integers(1, 400),
    unlabelled=st.integers(0, 5),
    train=st.floats(0.001, 1),
    rest=st.floats(0, 1),
    chunk=st.integers(1, 100),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_shares_hold_whatever_the_chunks(
    nodes: int, unlabelled: int, train: float, rest: float, chunk: int, seed: int
) -> None:
    labels = np.zeros(nodes, dtype=np.int64)
    labels[:: unlabelled + 1] = -1 if unlabelled else 0
    fractions = (train, (1 - train) * rest, (1 - train) * (1 - rest))
    kept = splits._CHUNK
    splits._CHUNK = chunk
    try:
        parts = [
            np.concatenate(part)
            for part in zip(*draw_splits(labels, fractions, seed), strict=True)
        ]
    finally:
        splits._CHUNK = kept
    known = int((labels >= 0).sum())
    everything = np.concatenate(parts)
    assert np.unique(everything).shape[0] == everything.shape[0]
    assert (labels[everything] >= 0).all()
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs(part.shape[0] - fraction * known) <= 3
        assert (np.diff(part) > 0).all()
    assert parts[0].shape[0] >= min(1, known)


def test_the_seed_decides() -> None:
    labels = np.zeros(1000, dtype=np.int64)
    one, same, other = (
        next(draw_splits(labels, (0.1, 0.1, 0.1), seed))[0] for seed in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    "bad", [(0, 0.1, 0.1), (1.5, 0, 0), (0.1, -0.1, 0), (0.5, 0.4, 0.2)]
)
def test_invalid_shares_are_refused(bad: tuple[float, float, float]) -> None:
    with pytest.raises(InputError, match="fraction"):
        check_fractions(*bad)
