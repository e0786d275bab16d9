from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.regress.measure.instructions import PARTS, compare_counts, count, is_there


@pytest.mark.slow("harness/regress", "systems/native", "workloads/native", seconds=140)
@pytest.mark.skipif(not is_there(), reason="valgrind is not installed")
def test_instructions_of_every_native_part_are_counted_and_repeat():
    first, second = (count(Path(sys.executable)) for _ in range(2))
    assert tuple(first) == PARTS
    assert min(first.values()) > 100_000
    assert all(metric.decision == "same" for metric in compare_counts(first, second))


def test_a_percent_more_regresses_a_percent_less_improves_and_a_missing_part_is_undecided():
    base = {
        "sampler": 1_000_000,
        "reader": 1_000_000,
        "gather": 1_000_000,
        "packing": 5,
    }
    head = {
        "sampler": 1_011_000,
        "reader": 980_000,
        "gather": 1_009_000,
        "changeset": 5,
    }
    found = {
        metric.name.split()[0]: metric.decision for metric in compare_counts(base, head)
    }
    assert found.pop("packing") == found.pop("changeset") == "undecided"
    assert found == {"sampler": "regressed", "reader": "improved", "gather": "same"}
