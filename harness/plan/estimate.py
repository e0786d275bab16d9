"""Estimated duration of a run: a rough model, scaled by the durations of the system's earlier runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.records.record import Record
from harness.settings import SharedSettings

if TYPE_CHECKING:
    from harness.plan.datasets import Recipe
    from harness.plan.experiment import PlannedRun

# Seconds of a run outside its epochs: start, eviction, its share of the calibration.
FIXED_S = 8.0
# Rows a second read one by one from a medium device, and from memory.
DISK_ROWS_PER_S = 90_000.0
MEMORY_ROWS_PER_S = 3_000_000.0
# Share of a mini-batch's draws that reach a new node, for many draws from a skewed graph.
DISTINCT = 0.5


def modelled_s(settings: SharedSettings, train_nodes: float, num_nodes: int) -> float:
    """Return a run's seconds without regard to the system: rows of all epochs over a rate, plus a fixed cost."""
    batches = settings.max_batches or max(1, round(train_nodes / settings.batch_size))
    expansion, rows = 1, 1
    for count in settings.fanout:
        expansion *= max(1, count)
        rows += expansion
    asked = settings.epochs * batches * min(num_nodes, DISTINCT * settings.batch_size * rows)
    rate = MEMORY_ROWS_PER_S if settings.memory == "none" or settings.stages == "sample" else DISK_ROWS_PER_S
    return FIXED_S + asked / rate


class CostModel:
    """The duration of earlier runs of a cell, else a model with a correction factor for each system from earlier runs.

    Only runs with status `ok` count.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        found: dict[tuple[str, bool], list[float]] = {}
        written: dict[str, list[float]] = {}
        measured: dict[str, list[float]] = {}
        for record in records:
            config = record.config
            if record.status != "ok" or not record.duration_s:
                continue
            measured.setdefault(record.cell.key, []).append(record.duration_s)
            written.setdefault(record.system, []).append(
                record.preprocess.bytes_written / max(1, config.dataset.feature_bytes)
            )
            expected = modelled_s(config, config.dataset.train_nodes, config.dataset.num_nodes)
            found.setdefault((record.system, config.memory == "none"), []).append(record.duration_s / expected)
        self._factors = {key: statistics.median(values) for key, values in found.items()}
        self._measured = {key: statistics.median(values) for key, values in measured.items()}
        # The mean, not the median: most runs reuse artefacts that one run wrote.
        self._written = {system: statistics.fmean(values) for system, values in written.items()}

    def knows(self, cell: PlannedRun) -> bool:
        """Return whether the system was measured before, under a cap or without one as in `cell`."""
        return (cell.system, cell.settings.memory == "none") in self._factors

    def seconds(self, cell: PlannedRun, recipe: Recipe | None) -> float:
        """Return the expected seconds of one run."""
        if (measured := self._measured.get(cell.key)) is not None:
            return measured
        nodes = (recipe.num_nodes() if recipe else 0) or 1_000_000
        expected = modelled_s(cell.settings, nodes * (recipe.train_fraction if recipe else 0.01), nodes)
        return expected * self._factors.get((cell.system, cell.settings.memory == "none"), 1.0)

    def artefact_bytes(self, cell: PlannedRun, recipe: Recipe | None) -> int:
        """Return the expected bytes of artefacts on disk, from the system's earlier runs or its declared share."""
        from systems.registry import load

        share = self._written.get(cell.system)
        if share is None:
            # A foreign image declares no share.
            share = 0.0 if ":" in cell.system else load(cell.system).info.artefact_share
        return round(share * recipe.feature_bytes()) if recipe else 0
