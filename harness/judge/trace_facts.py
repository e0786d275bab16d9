"""Facts of a workload's trace for judging runs: a few numbers an epoch, derived once for all runs and cached.

Sampling an epoch again may take longer than a run, so each workload is sampled once and each epoch cached at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from harness.cache import Cache, fingerprint
from harness.judge.trace import EpochTrace, batches_of, trace_epochs
from harness.records.record import RunConfig
from workloads.sampling.digest import EpochDigest, feature_digest
from workloads.workload import Workload

# Settings that decide the nodes of an epoch's mini-batches; the code is part of every fingerprint.
_KEYS = ("layers", "sampler", "fanout", "replace", "shuffle", "batch_size", "max_batches", "ranks", "seed")
# Traces known to this process, since rules and metrics of a run ask repeatedly, with or without a cache.
_KNOWN: dict[str, EpochTrace] = {}
_TRACE = TypeAdapter(EpochTrace)


class TraceFacts:
    """Traces of a run's workload by epoch, read from the cache or derived on demand."""

    def __init__(self, workload: Workload, config: RunConfig, cache: Cache | None) -> None:
        own = f"{workload.dataset.fingerprint}/{workload.partition or ''}/{workload.rank}/{workload.world}"
        self.workload, self.config, self._cache = workload, config, cache
        self._own = f"{fingerprint(config, _KEYS)}/{own}"

    def epoch(self, epoch: int) -> EpochTrace:
        """Return the trace of one epoch; if it is unknown, sample all unknown epochs of the run again."""
        if (found := self._kept(epoch)) is not None:
            return found
        missing = [entry for entry in range(self.config.epochs) if self._kept(entry) is None]
        for found in trace_epochs(self.workload, missing if epoch in missing else [epoch]):
            _KNOWN[self._key(found.epoch)] = found
            if self._cache is not None:
                self._cache.put("trace", self._key(found.epoch), asdict(found))
        return _KNOWN[self._key(epoch)]

    def epochs(self) -> list[EpochTrace]:
        """Return the traces of all epochs, in order."""
        return [self.epoch(epoch) for epoch in range(self.config.epochs)]

    def feature_digest(
        self, epoch: int, rows: Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]], most_bytes: int
    ) -> str | None:
        """Return the digest over an epoch's feature rows that every faithful system must report.

        `rows` reads rows of the dataset; return None if the mini-batches together use more than `most_bytes` of them.
        """
        dataset = self.workload.dataset
        uses = sum(times * count for times, count in self.epoch(epoch).uses)
        if uses * dataset.dim * dataset.feature_dtype.itemsize > most_bytes:
            return None
        key = hashlib.sha256(f"{self._key(epoch)}/features".encode()).hexdigest()[:16]
        kept = self._cache.get("features", key) if self._cache is not None else None
        if kept is None:
            digest = EpochDigest()
            for batch in batches_of(self.workload, epoch):
                digest.add(feature_digest(batch, rows(batch.nodes)))
            kept = {"digest": digest.hexdigest()}
            if self._cache is not None:
                self._cache.put("features", key, kept)
        return str(kept["digest"])

    def _kept(self, epoch: int) -> EpochTrace | None:
        key = self._key(epoch)
        if key not in _KNOWN and self._cache is not None and (kept := self._cache.get("trace", key)) is not None:
            try:
                _KNOWN[key] = _TRACE.validate_python(kept)
            except ValueError:
                return None  # damaged: sampled again
        return _KNOWN.get(key)

    def _key(self, epoch: int) -> str:
        return hashlib.sha256(f"{self._own}/{epoch}".encode()).hexdigest()[:16]
