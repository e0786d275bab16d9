"""Predictions from counters: their sums, and predicted orders of systems that
measurements contradict."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from harness.compare.order import inversions
from harness.judge.metrics import RunNumbers
from harness.judge.predict import at_depth, predict
from harness.judge.registry import RunContext
from harness.records.record import EpochRecord
from systems.interface import DiskPoint, DiskProfile
from tests.harness.records import make_record

PROFILE = DiskProfile(
    (
        DiskPoint(512, 256, 40_000.0, 512 * 40_000.0),
        DiskPoint(4096, 256, 20_000.0, 4096 * 20_000.0),
        DiskPoint(1 << 20, 16, 200.0, 200.0 * (1 << 20), "sequential"),
    )
)


def _epoch(
    device_bytes: int | None, device_requests: int | None, sizes: dict[str, int]
) -> EpochRecord:
    return EpochRecord(
        epoch=1,
        warmup=False,
        seconds=1.0,
        device_bytes=device_bytes,
        device_requests=device_requests,
        counters={"requests_by_size": sizes},
    )


def test_own_reads_and_pages_share_the_device() -> None:
    own = 40_000
    pages = 10_000
    found = predict(
        _epoch(own * 512 + pages * 4096, own + pages, {"512": own}), PROFILE, 0.25
    )
    assert found is not None
    assert found.own_s == pytest.approx(1.0)
    assert found.page_cache_s == pytest.approx(0.5)
    assert found.seconds == pytest.approx(1.5)
    assert found.bound == "device"


def test_training_counts_where_it_is_longer() -> None:
    found = predict(_epoch(512 * 4_000, 4_000, {"512": 4_000}), PROFILE, 3.0)
    assert found is not None
    assert (found.seconds, found.bound) == (3.0, "training")


def test_large_requests_that_the_kernel_split_are_not_pages() -> None:
    """Two hundred reads of 1 MiB are eight hundred requests to the device, and no page
    cache at all."""
    found = predict(_epoch(200 << 20, 800, {str(1 << 20): 200}), PROFILE, None)
    assert found is not None
    assert found.page_cache_s == 0.0
    assert found.own_s == pytest.approx(1.0)


def test_pages_come_as_fast_as_the_threads_that_wait_for_them() -> None:
    """One read at a time takes 200 us, so two threads get 10,000 a second of a device
    that could do twice that."""
    alone = dataclasses.replace(
        PROFILE, points=(*PROFILE.points, DiskPoint(4096, 1, 5_000.0, 4096 * 5_000.0))
    )

    def seconds(faults: int, page: int = 4096) -> float:
        pages = at_depth(alone, faults) if faults else None
        found = predict(_epoch(10_000 * page, 10_000, {}), alone, None, pages=pages)
        assert found is not None
        return found.page_cache_s

    assert seconds(2) == pytest.approx(1.0)
    assert seconds(8) == seconds(0) == pytest.approx(0.5)
    assert seconds(2, 128 << 10) == seconds(0, 128 << 10)  # read ahead


def test_writes_take_turns_with_reads_and_use_up_the_budget_of_a_class_that_has_one_for_both() -> (
    None
):
    epoch = _epoch(512 * 40_000, 40_000, {"512": 40_000})
    epoch.counters["bytes_written"] = 100 << 20
    epoch.device_written_bytes = 90 << 20

    def seconds(profile: DiskProfile) -> float:
        found = predict(epoch, profile, None)
        assert found is not None
        return found.own_s

    assert seconds(PROFILE) == pytest.approx(1.0 + 0.5)
    apart = dataclasses.replace(
        PROFILE, limited=(40_000.0, 200.0 * (1 << 20)), write_cost=0.0
    )
    assert seconds(apart) == pytest.approx(1.0)
    # The requests of a second read 20 of its 200 MiB; the epoch writes 180 MiB, and
    # then 400 MiB more.
    epoch.counters["bytes_written"] = 180 << 20
    assert seconds(dataclasses.replace(apart, write_cost=1.0)) == pytest.approx(
        1.0, rel=0.01
    )
    epoch.device_written_bytes = 580 << 20
    assert seconds(dataclasses.replace(apart, write_cost=1.0)) == pytest.approx(
        3.0, rel=0.01
    )
    epoch.device_written_bytes = 290 << 20
    assert seconds(dataclasses.replace(apart, write_cost=2.0)) == pytest.approx(
        3.0, rel=0.01
    )


def test_without_profile_or_device_counters_there_is_none() -> None:
    assert predict(_epoch(1, 1, {}), DiskProfile(), None) is None
    assert predict(_epoch(None, None, {"512": 3}), PROFILE, None) is None
    record = make_record("ginex", [1.0]).model_copy(
        update={"epochs": [_epoch(4096, 1, {})]}
    )
    assert RunNumbers(record, RunContext()).predicted_s() is None


def _record(system: str, predicted: float, measured: float, **config: Any) -> object:
    record = make_record(system, [measured, measured], **config)
    return record.model_copy(
        update={"summary": record.summary.model_copy(update={"predicted_s": predicted})}
    )


def test_an_order_that_turned_round_is_reported_and_noise_is_not() -> None:
    records = [
        _record("ginex", 10.0, 14.0),
        _record("gnndrive", 11.0, 10.0),
        _record("pyg+", 12.0, 13.0),
    ]
    found = inversions(records)  # type: ignore[arg-type]
    assert found == ["ginex was predicted 1.10x as fast as gnndrive, measured 0.71x"]


def test_an_order_is_of_two_systems_over_all_seeds_and_a_tie_has_none() -> None:
    sets = [
        _record("ginex", 10.0, 14.0, options={"a": 1}),
        _record("ginex", 11.0, 2.0, options={"a": 2}),
    ]
    seeds = [_record("pyg+", 12.0, seconds, seed=seconds) for seconds in (1, 10, 11)]
    tie = _record("gnndrive", 10.001, 1.0)
    found = inversions([*sets, *seeds, tie])  # type: ignore[list-item]
    assert found == [
        "ginex a=1 was predicted 1.20x as fast as pyg+, measured 0.71x",
        *found[1:],
    ]
    assert all("ginex a=1 was predicted 1.00x" not in line for line in found)
    assert not any(line.count("ginex") > 1 or line.count("pyg+") > 1 for line in found)


@pytest.mark.parametrize("verdict", ["INVALID", "SPOILT"])
def test_failed_and_invalid_runs_are_not_compared(verdict: str) -> None:
    ended = make_record("in-memory", [], status="oom")
    invalid = make_record("ginex", [9.0], verdict=verdict)
    assert inversions([ended, invalid, _record("pyg+", 1.0, 99.0)]) == []  # type: ignore[list-item]


def test_reads_before_the_first_step_come_on_top_of_training() -> None:
    epoch = _epoch(200 << 20, 200, {str(1 << 20): 200})
    beside, first = (
        predict(epoch, PROFILE, 3.0, reads_first=value) for value in (False, True)
    )
    assert beside is not None
    assert first is not None
    assert beside.seconds == max(beside.own_s, 3.0)
    assert first.seconds == pytest.approx(first.own_s + 3.0)
