"""What judging a run needs of its workload's trace: a few numbers, found once for all runs and kept beside them.

Sampling a run's epochs again and deciding what the best cache would keep takes longer than many a run.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from harness.calibrate import Cache, fingerprint
from harness.record import RunConfig
from harness.trace import belady_misses, trace_of
from workloads.workload import Workload

# All that decides which nodes a run's mini-batches touch; the code is part of every fingerprint.
_KEYS = (
    "layers", "sampler", "fanout", "replace", "shuffle", "batch_size", "max_batches", "epochs", "ranks", "seed",
)  # fmt: skip


@dataclass(frozen=True)
class EpochFacts:
    """One epoch of a trace.

    Attributes:
        unique_rows: feature rows touched.
        topology_pages: pages of `indices` touched.
        digest: as every faithful system must report it.
    """

    epoch: int
    unique_rows: int
    topology_pages: int
    digest: str


class TraceFacts:
    """The trace of a run's workload, read from the cache or made anew when it is asked for."""

    def __init__(self, workload: Workload, config: RunConfig, cache: Cache | None) -> None:
        self._workload, self._config, self._cache = workload, config, cache
        self._own = f"{workload.dataset.fingerprint}/{workload.partition or ''}/{workload.rank}/{workload.world}"

    def epochs(self) -> list[EpochFacts] | None:
        """Every epoch, in order; None where the trace is too large to be made."""
        kept = self._get("trace", "")
        if kept is None:
            trace = trace_of(self._workload, self._config.epochs)
            kept = {"epochs": []}
            if trace is not None:
                kept["epochs"] = [
                    [epoch, trace.unique_rows[epoch], trace.topology_pages[epoch], trace.digests[epoch]]
                    for epoch, _, _ in trace.epochs
                ]
            self._put("trace", "", kept)
        return [EpochFacts(*entry) for entry in kept["epochs"]] or None

    def belady_misses(self, rows: int) -> dict[int, int] | None:
        """By epoch: rows that even the best cache of so many rows reads; None where the trace is too large."""
        kept = self._get("belady", str(rows))
        if kept is None:
            trace = trace_of(self._workload, self._config.epochs)
            kept = {}
            if trace is not None:
                misses = belady_misses(trace.batches, rows)
                kept = {str(epoch): sum(misses[begin:end]) for epoch, begin, end in trace.epochs}
            self._put("belady", str(rows), kept)
        return {int(epoch): int(count) for epoch, count in kept.items()} or None

    def _key(self, more: str) -> str:
        whole = f"{fingerprint(self._config, _KEYS)}/{self._own}/{more}"
        return hashlib.sha256(whole.encode()).hexdigest()[:16]

    def _get(self, kind: str, more: str) -> dict[str, Any] | None:
        return None if self._cache is None else self._cache.get(kind, self._key(more))

    def _put(self, kind: str, more: str, content: dict[str, Any]) -> None:
        if self._cache is not None:
            self._cache.put(kind, self._key(more), content)
