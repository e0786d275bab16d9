"""Sentences over an axis name every part of it: ties, changes of the first system, and
systems without a value."""

from __future__ import annotations

import pandas as pd
import pytest

from harness.figures.over_axis import (
    PanelPlaces,
    Places,
    by_panel,
    changes,
    fastest,
    missing,
    over_base,
    over_each,
)

NAN = float("nan")
SIZES = Places([64, 128, 256], "{} MiB".format)
Cell = tuple[float, float, float] | str


def cells(**systems: list[Cell]) -> pd.DataFrame:
    """Return rows of systems at 64, 128 and 256: value and interval, or a status."""
    rows = []
    for system, values in systems.items():
        for x, cell in zip(SIZES.every, values, strict=False):
            failed = isinstance(cell, str)
            value, low, high = (NAN, NAN, NAN) if isinstance(cell, str) else cell
            row = {"system": system, "x": x, "value": value, "low": low, "high": high}
            rows.append({**row, "status": cell if failed else "ok", "panel": ""})
    return pd.DataFrame(rows)


def exact(*values: float) -> list[Cell]:
    return [(value, value, value) for value in values]


def test_the_first_is_named_for_each_part_of_the_axis() -> None:
    rows = cells(a=exact(1, 1, 3), b=exact(2, 2, 2))
    assert fastest(rows, SIZES) == "Fastest: a at 64 MiB and 128 MiB, b at 256 MiB"
    assert changes(rows)


def test_one_first_system_is_first_throughout() -> None:
    rows = cells(a=exact(1, 1, 1), b=exact(2, 2, 2))
    assert fastest(rows, SIZES) == "Fastest: a throughout"
    assert not changes(rows)


def test_overlapping_intervals_are_a_tie() -> None:
    rows = cells(a=[(1.0, 0.9, 1.6), (1.0, 0.9, 1.1)], b=[(1.5, 1.4, 1.6)] * 2)
    places = Places([64, 128])
    assert fastest(rows, places) == "Fastest: a and b alike at 64, a at 128"


def test_less_than_a_twentieth_is_a_tie_even_without_an_interval() -> None:
    rows = cells(a=exact(1.0), b=exact(1.04))
    assert fastest(rows, Places([64])) == "Fastest: a and b alike throughout"
    rows = cells(a=exact(1.0), b=exact(1.06))
    assert fastest(rows, Places([64])) == "Fastest: a throughout"


def test_the_only_one_that_ends_well_is_marked_and_the_others_are_named() -> None:
    rows = cells(a=exact(1, 1), b=["oom", (2, 2, 2)], c=["oom", "oom"])
    places = Places([64, 128])
    assert fastest(rows, places) == "Fastest: a at 64 (alone), a at 128"
    assert missing(rows, places) == ("b runs out of memory at 64, c runs out of memory")


def test_without_two_systems_at_one_value_nobody_is_first() -> None:
    assert fastest(cells(a=exact(1, 2, 3)), SIZES) == ""
    assert fastest(cells(a=exact(1.0), b=["oom"]), SIZES) == ""


def test_systems_with_one_fate_share_a_clause() -> None:
    rows = cells(a=["oom", (1, 1, 1), "timeout"], b=["oom", (1, 1, 1), (1, 1, 1)])
    assert missing(rows, SIZES) == (
        "a and b run out of memory at 64 MiB, a exceeds the time limit at 256 MiB"
    )
    assert missing(cells(a=exact(1, 2, 3)), SIZES) == ""


def test_a_speed_names_where_it_is_slower_and_where_there_is_no_difference() -> None:
    base: list[Cell] = [(2, 2, 2), (2, 2, 2), (2, 1.5, 2.5)]
    rows = cells(base=base, a=exact(1, 4, 1.9), b=exact(1, 1, 1))
    assert over_base(rows, ["a", "b", "c"], "base", SIZES) == (
        "a is 0.5 to 2 times as fast as base (slower at 128 MiB, no difference at 256 "
        "MiB), b 2"
    )
    assert over_each(rows, "a", ["base", "b", "c"], SIZES) == (
        "a is 0.5 to 2 times as fast as base (slower at 128 MiB, no difference at 256 "
        "MiB), 0.25 to 1 times as b (slower at 128 MiB and 256 MiB, no difference at "
        "64 MiB)"
    )


def test_a_system_that_never_shares_a_value_is_left_out() -> None:
    rows = cells(base=["oom", (1, 1, 1)], a=[(1, 1, 1), "oom"])
    assert over_base(rows, ["a"], "base", Places([64, 128])) == ""
    assert over_each(rows, "a", ["base"], Places([64, 128])) == ""


@pytest.mark.parametrize(
    ("xs", "text"),
    [
        ([1], " at 1"),
        ([4, 1], " at 1 and 4"),
        ([1, 2, 3], " at 1 to 3"),
        ([1, 2, 3, 5], " at 1 to 3 and 5"),
        ([1, 2, 3, 4, 5], ""),
    ],
)
def test_neighbours_are_a_range_and_all_values_need_no_words(
    xs: list[int], text: str
) -> None:
    assert Places([1, 2, 3, 4, 5])(xs) == text


def test_panels_are_named_where_they_differ() -> None:
    rows = pd.DataFrame({"panel": ["GCN", "GCN", "GAT"], "x": [64, 128, 64]})
    places = PanelPlaces(list(by_panel(rows).x))
    assert places([("GCN", 64)]) == " at 64 with GCN"
    assert places([("GCN", 64), ("GAT", 64)]) == " at 64"
    assert places([("GCN", 128)]) == " at 128"
