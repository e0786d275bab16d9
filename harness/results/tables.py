"""The three tables of a run folder from the worker's events and telemetry, with one zero for all times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.results.store import BATCH_COLUMNS, STAGE_COLUMNS
from harness.wire.protocol import EpochDone
from systems.interface import StageSpan

if TYPE_CHECKING:
    import pandas as pd

Spans = Sequence[tuple[int, StageSpan]]


def run_tables(
    batches: Sequence[tuple[Any, ...]],
    spans: Spans,
    lanes: Spans,
    telemetry: pd.DataFrame | None,
    epochs: Sequence[EpochDone],
    zero: float,
    device_bytes: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Return the tables `stages`, `batches` and, if recorded, `telemetry`.

    Args:
        batches: rows of `BATCH_COLUMNS`, `released_at` on the monotonic clock.
        spans: (epoch, span) of every stage.
        lanes: (epoch, span) of busy lanes of an emulated device; stages `lane:copy`, … in the table.
        telemetry: table of the recorder.
        epochs: completed epochs.
        zero: monotonic seconds of the tables' time 0.
        device_bytes: memory of an emulated device.
    """
    import pandas as pd

    batch_table = pd.DataFrame(list(batches), columns=list(BATCH_COLUMNS))
    batch_table["released_at"] = batch_table["released_at"].astype(float) - zero
    batch_table["loss"] = batch_table["loss"].astype(float)
    rows = [(epoch, s.batch, s.stage, s.thread, s.start - zero, s.end - zero) for epoch, s in spans]
    rows += [(epoch, s.batch, f"lane:{s.stage}", s.thread, s.start - zero, s.end - zero) for epoch, s in lanes]
    tables = {"stages": pd.DataFrame(rows, columns=list(STAGE_COLUMNS)), "batches": batch_table}
    if telemetry is not None and len(telemetry):
        from harness.telemetry import align, with_busy_lanes

        table = align(telemetry, zero, [(epoch.epoch, epoch.start, epoch.end) for epoch in epochs])
        if lanes:
            table = with_busy_lanes(table, [(span.start, span.end) for _, span in lanes], device_bytes)
        tables["telemetry"] = table
    return tables
