"""Latency histograms of records: merged exactly, percentiles as HdrHistogram counts
them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.run_tables import print_epochs
from harness.drives.compare import compare
from harness.drives.whatif import device_of
from harness.judge.metrics import summarise
from harness.judge.registry import context_of
from harness.records.latency import all_sizes, merged, percentile_s, rows
from harness.records.record import Record
from harness.report.runs import details_of
from harness.wire.protocol import EpochDone
from systems.readings import Latencies
from tests.harness.records import make_record
from tests.harness.ssd.drives import counted

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


def measured(system: str, latencies: Latencies, **counters: Any) -> Record:
    """Return a run whose two measured epochs have these latencies."""
    made = make_record(system, [1.0, 1.5], disk_class="aws-nvme/16")
    for epoch in made.measured:
        epoch.latencies = latencies
        epoch.counters = counters
    made.summary, _ = summarise(made, context_of(made))
    return made


READS: Latencies = {"read": {"512": "2000:99 7000:1", "4096": "90000:100"}}


def test_a_run_shows_the_latency_of_its_requests_by_size(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = measured("ginex", READS, io_requests=200, rows=1000)
    assert run.summary.model_dump()["read_p50_s"] == pytest.approx(7e-6)
    assert run.summary.model_dump()["read_p99_s"] == pytest.approx(90e-6)
    print_epochs(run, wide=False)
    text = capsys.readouterr().out
    line = next(line for line in text.splitlines() if "512 B" in line)
    assert line.split() == ["read", "512", "B", "200", *"2 2 2 7 7 7".split()]
    shown = details_of(run.to_json(), tmp_path, "")["latencies"]
    assert shown["rows"][0] == ["read", "512 B", 200, 2, 2, 2, 7, 7, 7]
    assert shown["why"] == ""


@pytest.mark.parametrize(
    ("system", "counters", "why"),
    [
        ("pyg+", {"observed": {"major_faults": 9.0}}, "pages fault"),
        ("image:other", {"io_requests": 9}, "not made by"),
        ("in_memory", {}, "no request"),
    ],
)
def test_a_run_without_latencies_states_why(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    system: str,
    counters: dict[str, Any],
    why: str,
) -> None:
    run = measured(system, {}, **counters)
    assert run.summary.model_dump()["read_p99_s"] is None
    print_epochs(run, wide=False)
    assert why in capsys.readouterr().out
    assert why in details_of(run.to_json(), tmp_path, "")["latencies"]["why"]


def test_drives_are_compared_by_the_latency_of_the_runs_reads() -> None:
    runs = [
        counted("ginex", 1.0, disk_class="aws-nvme/16"),
        counted("ginex", 2.0, disk_class="aws-gp3/16"),
    ]
    for epoch in runs[0].epochs:
        epoch.latencies = READS
    classes = [
        device_of(f"aws-{name}/16", Path("/nowhere")) for name in ("nvme", "gp3")
    ]
    first, second = compare(classes, runs).cells
    assert first.read_p99_s == pytest.approx(90e-6)
    assert second.read_p99_s is None


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


def test_the_processor_time_of_a_row_is_shown_for_each_epoch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = measured("ginex", {}, rows=1000)
    for epoch, user_s in zip(run.measured, (0.002, 0.004), strict=True):
        epoch.user_s = user_s
        epoch.system_s = 0.001
    run.summary, _ = summarise(run, context_of(run))
    assert run.summary.model_dump()["user_s_per_row"] == pytest.approx(3e-6)
    assert run.summary.model_dump()["system_s_per_row"] == pytest.approx(1e-6)
    monkeypatch.setenv("COLUMNS", "200")
    print_epochs(run, wide=False)
    text = capsys.readouterr().out
    heads = next(line for line in text.splitlines() if "user µs/row" in line)
    last = next(line for line in text.splitlines() if line.startswith("2 "))
    assert "system µs/row" in heads
    assert last.split()[-4:-2] == ["4.0", "1.0"]
