"""Latency histograms of records: merged exactly, percentiles as HdrHistogram counts
them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records.latency import all_sizes, merged, percentile_s, rows
from harness.wire.protocol import EpochDone

LATENCIES_NS = st.lists(st.integers(1, 10**9), min_size=1, max_size=200)


def histogram(latencies_ns: list[int]) -> str:
    values, counts = np.unique(latencies_ns, return_counts=True)
    return " ".join(f"{v}:{n}" for v, n in zip(values, counts, strict=True))


@given(LATENCIES_NS, st.sampled_from([50.0, 90.0, 99.0, 99.9, 100.0]))
def test_a_percentile_is_the_least_latency_that_so_many_requests_kept(
    latencies_ns: list[int], percent: float
) -> None:
    needed = math.ceil(percent * len(latencies_ns) / 100)
    expected = sorted(latencies_ns)[needed - 1] * 1e-9
    found = percentile_s(histogram(latencies_ns), percent)
    assert found == pytest.approx(expected)


@given(LATENCIES_NS, LATENCIES_NS)
def test_merged_parts_are_the_histogram_of_all_their_requests(
    first: list[int], second: list[int]
) -> None:
    parts = [
        {"read": {"512": histogram(first)}},
        {"read": {"512": histogram(second), "larger": histogram(first)}},
    ]
    joined = merged(parts)
    assert joined["read"]["512"] == histogram(first + second)
    assert list(joined["read"]) == ["512", "larger"]
    assert all_sizes(joined, "read") == histogram(first + second + first)


def test_a_row_of_the_table_has_size_requests_percentiles_and_the_longest() -> None:
    latencies = {"read": {"4096": "1000:98 5000:1 9000:1"}}
    (row,) = rows(latencies)
    assert (row.direction, row.size, row.requests) == ("read", "4096", 100)
    assert row.percentiles_s["p50"] == pytest.approx(1e-6)
    assert row.percentiles_s["p99"] == pytest.approx(5e-6)
    assert row.percentiles_s["p99.99"] == pytest.approx(9e-6)
    assert row.longest_s == pytest.approx(9e-6)
    assert percentile_s("", 50.0) is None


@pytest.mark.parametrize("text", ["", "1:x", "1:2,3:4", "-1:2", "1:2 "])
def test_a_worker_sends_pairs_of_numbers_or_nothing(text: str) -> None:
    known = {
        "epoch": 0,
        "start": 0.0,
        "end": 1.0,
        "batches": 1,
        "digest": "",
        "feature_digest": None,
        "loss": None,
        "counters": {},
        "stages_s": {},
        "accuracy": None,
    }
    EpochDone.model_validate({**known, "latencies": {"read": {"512": "1:2 3:4"}}})
    with pytest.raises(ValueError, match="latencies"):
        EpochDone.model_validate({**known, "latencies": {"read": {"512": text}}})
