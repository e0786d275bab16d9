"""How long a run will take, before it runs: a rough model, scaled by what earlier runs of the system took."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from harness.record import Record

if TYPE_CHECKING:
    from harness.datasets import Recipe
    from harness.experiment import PlannedRun

# What a run costs beside its epochs: start, eviction, calibration spread over its runs (seconds).
FIXED_S = 8.0
# Rows a second that a middling device reads one by one, and that memory gives.
DISK_ROWS_PER_S = 90_000.0
MEMORY_ROWS_PER_S = 3_000_000.0
# Draws of a mini-batch that bring a node nobody drew before, where many are drawn from a skewed graph.
DISTINCT = 0.5


def modelled_s(
    *,
    epochs: int,
    batches: int,
    batch_size: int,
    fanout: Sequence[int],
    num_nodes: int,
    memory: str,
    stages: str = "all",
) -> float:
    """Seconds of a run, whatever the system: rows of all epochs over a rate, and what every run costs."""
    expansion, rows = 1, 1
    for count in fanout:
        expansion *= max(1, count)
        rows += expansion
    asked = epochs * batches * min(num_nodes, DISTINCT * batch_size * rows)
    rate = MEMORY_ROWS_PER_S if memory == "none" or stages == "sample" else DISK_ROWS_PER_S
    return FIXED_S + asked / rate


class CostModel:
    """The model, and how far off it was for each system so far.

    Args:
        records: earlier runs; those that did not end are left out.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        found: dict[tuple[str, bool], list[float]] = {}
        written: dict[str, list[float]] = {}
        for record in records:
            config = record.config
            if record.status != "ok" or not record.duration_s:
                continue
            features = config.dataset.num_nodes * config.dataset.dim * (2 if config.dataset.dtype == "float16" else 4)
            written.setdefault(record.system, []).append(record.preprocess.bytes_written / max(1, features))
            batches = config.max_batches or max(1, config.dataset.train_nodes // config.batch_size)
            expected = modelled_s(
                epochs=config.epochs,
                batches=batches,
                batch_size=config.batch_size,
                fanout=config.fanout,
                num_nodes=config.dataset.num_nodes,
                memory=config.memory,
                stages=config.stages,
            )
            found.setdefault((record.system, config.memory == "none"), []).append(record.duration_s / expected)
        self._factors = {key: statistics.median(values) for key, values in found.items()}
        # The mean, not the median: most runs use again what one of them wrote.
        self._written = {system: statistics.fmean(values) for system, values in written.items()}

    def knows(self, cell: PlannedRun) -> bool:
        """Whether the system was measured before, under a cap or without one as here."""
        return (cell.system, cell.settings.memory == "none") in self._factors

    def seconds(self, cell: PlannedRun, recipe: Recipe | None) -> float:
        """Expected seconds of one run."""
        settings = cell.settings
        nodes = recipe.num_nodes() if recipe else 1_000_000
        trained = (nodes or 1_000_000) * (recipe.train_fraction if recipe else 0.01)
        batches = settings.max_batches or max(1, round(trained / settings.batch_size))
        expected = modelled_s(
            epochs=settings.epochs,
            batches=batches,
            batch_size=settings.batch_size,
            fanout=settings.fanout,
            num_nodes=nodes or 1_000_000,
            memory=settings.memory,
            stages=settings.stages,
        )
        return expected * self._factors.get((cell.system, settings.memory == "none"), 1.0)

    def artefact_bytes(self, cell: PlannedRun, recipe: Recipe | None) -> int:
        """Bytes that preparing the run may leave on disk: as earlier runs of the system did, or as it says itself."""
        from systems.registry import load

        share = self._written.get(cell.system)
        if share is None:
            # An image of somebody's own says nothing of it.
            share = 0.0 if ":" in cell.system else load(cell.system).info.artefact_share
        return round(share * recipe.feature_bytes()) if recipe else 0
