"""The harness's log of an epoch: whole and in order after the wire, sent in bounded
parts, and part of the floor."""

from __future__ import annotations

import tracemalloc

from harness.wire.protocol import CHUNK_ROWS, Batches, EpochDone, Spans
from harness.worker.calibrate import LANES, STAGES, usual_report
from harness.worker.epoch_report import EpochReport, events


def test_the_reports_of_two_ranks_are_joined_in_order_of_time_and_in_bounded_parts() -> (
    None
):
    reports = [usual_report(700) for _ in range(2)]
    sent = list(events(3, reports))
    batches = [
        row for event in sent if isinstance(event, Batches) for row in event.rows
    ]
    assert [row[0] for row in batches] == [*range(0, 1400, 2), *range(1, 1400, 2)]
    parts = [event for event in sent if isinstance(event, Spans)]
    assert max(len(part.rows) for part in parts) == CHUNK_ROWS
    stages = [row for part in parts if part.kind != "lane" for row in part.rows]
    assert len(stages) == 2 * STAGES * 700
    assert [row[3] for row in stages] == sorted(row[3] for row in stages)
    assert {row[2].split()[1] for row in stages} == {"0", "1"}
    assert (
        sum(len(part.rows) for part in parts if part.kind == "lane") == 2 * LANES * 700
    )
    done = sent[-1]
    assert isinstance(done, EpochDone)
    assert done.batches == 1400


def test_sending_a_report_takes_little_memory_beside_it() -> None:
    # Whole copies of its tables took more than the report, out of a system's budget.
    tracemalloc.start()
    try:
        report: EpochReport = usual_report(8000)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for event in events(0, [report]):
            event.model_dump_json()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * held
