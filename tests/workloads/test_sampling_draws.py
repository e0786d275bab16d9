"""Draws: Philox as published, and positions that are uniform for every degree."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, islice

import numpy as np
import pytest

from tests.workloads import sampling_reference as reference
from workloads import _native

BIG = [1 << 15, 1 << 16, 1 << 31, 1 << 32]
BIG_DEGREES = [power + step for power in BIG for step in (-1, 0, 1)] + [
    3 << 30,
    3 << 62,
]


def inclusion_statistic(
    degree: int, fanout: int, replace: bool, trials: int
) -> tuple[float, int]:
    """Return the chi-square statistic of the frequencies of positions, and its degrees
    of freedom."""
    drawn = [
        _native.draw_positions(degree, fanout, replace, 11, node=trial, epoch=degree)
        for trial in range(trials)
    ]
    counts = np.bincount(np.concatenate(drawn).astype(np.int64), minlength=degree)
    share = fanout / degree
    if replace:
        return float(
            (((counts - trials * share) ** 2) / (trials * share)).sum()
        ), degree - 1
    # Positions are drawn without repetition, so the counts have the covariance of a
    # uniform subset.
    variance = trials * share * (1 - share) * degree / (degree - 1)
    return float(((counts - trials * share) ** 2).sum() / variance), degree - 1


def assert_uniform(results: Iterable[tuple[float, int]]) -> None:
    """Check that no single statistic is extreme, and that their sum is neither too
    large nor too small."""
    from scipy import stats  # it takes seconds to import

    values = list(results)
    worst = min(
        float(stats.chi2.sf(statistic, freedom)) for statistic, freedom in values
    )
    total, freedom = (sum(column) for column in zip(*values, strict=True))
    assert worst > 1e-3 / len(values), f"one degree is not uniform: p = {worst}"
    assert 1e-3 < stats.chi2.sf(total, freedom) < 1 - 1e-3


@pytest.mark.parametrize(
    ("seed", "counter", "words"),
    [
        (0, [0, 0, 0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (
            (1 << 64) - 1,
            [0xFFFFFFFF] * 4,
            [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
        ),
        (
            0x299F31D0A4093822,
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_known_answers(
    seed: int, counter: list[int], words: list[int]
) -> None:
    assert _native.philox4x32(seed, counter) == words
    assert reference.philox4x32(seed, counter) == words


@pytest.mark.parametrize("replace", [False, True])
def test_every_position_is_equally_likely_for_degrees_1_to_300(replace: bool) -> None:
    degrees = range(1 if replace else 11, 301)
    assert_uniform(
        inclusion_statistic(degree, 10, replace, 40 + 2 * degree)
        for degree in degrees
        if degree > 1
    )


@pytest.mark.parametrize(
    ("degree", "fanout"),
    [(11, 10), (2, 1), (3, 2), (65, 64), (64, 63), (33, 32), (34, 33), (100, 99)],
)
def test_no_position_is_favoured_when_all_but_one_are_taken(
    degree: int, fanout: int
) -> None:
    assert_uniform([inclusion_statistic(degree, fanout, False, 20_000)])


@pytest.mark.parametrize("fanout", [33, 50, 150, 299])
def test_large_fanouts_are_uniform(fanout: int) -> None:
    assert_uniform(
        [
            inclusion_statistic(degree, fanout, False, 2_000)
            for degree in (300, 301, 1000)
        ]
    )


def test_every_subset_is_equally_likely() -> None:
    from scipy import stats  # it takes seconds to import

    index = {subset: i for i, subset in enumerate(combinations(range(6), 3))}
    counts = np.zeros(len(index))
    for trial in range(20_000):
        counts[
            index[tuple(_native.draw_positions(6, 3, False, 5, node=trial).tolist())]
        ] += 1
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("degree", BIG_DEGREES)
def test_huge_lists_are_sampled_uniformly(degree: int, replace: bool) -> None:
    from scipy import stats  # it takes seconds to import

    drawn = [
        _native.draw_positions(degree, 10, replace, 3, node=trial).tolist()
        for trial in range(2_000)
    ]
    positions = [position for ten in drawn for position in ten]
    assert min(positions) >= 0
    assert max(positions) < degree
    for bins, which in (
        (64, lambda p: p * 64 // degree),
        (3, lambda p: p % 3),
        (2, lambda p: p % 2),
    ):
        counts = np.bincount(
            [which(position) for position in positions], minlength=bins
        )
        expected = [len(positions) / bins] * bins  # exact to 64 / 2^15
        assert stats.chisquare(counts, expected).pvalue > 1e-4


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [1, 2, 10, 31, 32, 33, 64, 200])
def test_positions_are_those_of_the_reference(fanout: int, replace: bool) -> None:
    for degree in [*range(0, 140), 199, 200, 201, 255, 256, 1000, *BIG_DEGREES]:
        drawn = _native.draw_positions(
            degree,
            fanout,
            replace,
            99,
            epoch=7,
            batch=5,
            hop=2,
            node=degree % (1 << 48),
        )
        if degree <= fanout and not replace:
            assert drawn.tolist() == list(range(degree))
            continue
        words = reference.stream(99, 7, 5, 2, degree % (1 << 48))
        assert drawn.tolist() == reference.positions(degree, fanout, replace, words)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [1, 10, 31, 32, 33])
def test_lists_drawn_side_by_side_are_drawn_as_alone(
    fanout: int, replace: bool
) -> None:
    nodes = np.arange(1_000_003, 1_000_103)
    # At 3 x 2^30 a third of all draws are rejected and repeated, in every group of
    # lists.
    for degree in [fanout + 1, fanout + 2, 64, 65, 100, 1000, *BIG_DEGREES]:
        rows = _native.draw_positions_of(nodes, degree, fanout, replace, 77)
        alone = [
            _native.draw_positions(degree, fanout, replace, 77, node=int(node))
            for node in nodes
        ]
        assert np.array_equal(rows, np.array(alone))


def test_without_replacement_positions_are_distinct_and_ascending() -> None:
    for degree in [11, 12, 40, 64, 65, 100, 1 << 31, 1 << 40]:
        drawn = np.array(
            [
                _native.draw_positions(degree, 10, False, 1, node=node)
                for node in range(300)
            ]
        )
        assert (np.diff(drawn.astype(np.float64), axis=1) > 0).all()
        assert drawn.max() < degree


def test_no_two_names_share_a_stream() -> None:
    names = [
        (e, b, h, n)
        for e in (0, 1, 65535)
        for b in (0, 1, (1 << 26) - 1)
        for h in (0, 1, 62)
        for n in (0, 1, 1 << 32, (1 << 48) - 1)
    ]
    assert len({tuple(islice(reference.stream(0, *name), 4)) for name in names}) == len(
        names
    )
    drawn = {
        tuple(
            _native.draw_positions(
                1 << 40, 4, False, 0, epoch=e, batch=b, hop=h, node=n
            ).tolist()
        )
        for e, b, h, n in names
    }
    assert len(drawn) == len(names)
