"""Loading without copies: the device reads cold rows from host memory itself, hot rows from its own.

In `uva` and `data-tiering`, a mini-batch needs only its node alias list into a table split between the two memories.
Memory-mapped rows must be resident when the device reads them, so their pages are touched first. Where the device can
read beside training, it gathers a mini-batch's rows into a buffer while the one before is trained, as GraphBolt does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from systems.engine.loading.cached_system import CachedSystem, GatheredBatch
from systems.engine.loading.pipeline import Channel
from systems.engine.loading.row_tiers import HostFeatures
from systems.engine.loading.sized import LoadingRun
from systems.interface import Batch, PlanItem
from workloads.feature_table import SplitTable, Table
from workloads.sampling.batch import SampledBatch

_TOUCH_BYTES = 1 << 20
_GATHERED_BYTES = 6 << 20
# Alias lists made ahead of training; they hold no device memory.
_AHEAD = 4


class ZeroCopySystem(CachedSystem):
    """System with features in host memory that the device reads by zero-copy."""

    @property
    def _largest_on_device(self) -> int:
        return self._bounds.max_nodes if self._gathers_ahead else 0

    @property
    def _buffers(self) -> float:
        return 0  # as many as useful

    @property
    def _gathers_ahead(self) -> bool:
        return self.runtime.accelerator.gathers_ahead

    @property
    def _ahead(self) -> int:
        return _AHEAD

    def _staging_items(self) -> tuple[PlanItem, ...]:
        touched = (PlanItem("touched rows", _TOUCH_BYTES),) if self._mapped else ()
        # The processor reads a split table by copies: a piece at a time to digest it, a whole mini-batch to train.
        largest = self._bounds.max_nodes * self._rows.row_bytes
        whole = largest if self.runtime.accelerator.kind == "cpu" else 0
        return (*touched, PlanItem("gathered rows", whole + min(_GATHERED_BYTES, 2 * largest)))

    def _make_features(self) -> HostFeatures:
        return HostFeatures(self._rows, self._store, reads_itself=self.runtime.accelerator)

    def _prepare_gathering(self) -> None:
        step = max(1, _TOUCH_BYTES // max(1, self._rows.row_bytes)) if self._mapped else 0
        self._touched = np.empty((step, self._rows.dim), self._rows.dtype)

    def _gathered(
        self, run: LoadingRun, sampled: Iterator[SampledBatch], turns: Channel[int]
    ) -> Iterator[GatheredBatch]:
        """Yield every mini-batch with its cache lookup and without rows; touches the pages of mapped cold rows."""
        cache, features = self._cache, self._features
        assert cache is not None and features is not None
        while True:
            turns.get()
            structure = next(sampled, None)
            if structure is None:
                return
            rows = structure.nodes if structure.local is None else structure.local
            found = cache.lookup(rows)
            if len(self._touched):
                with self.clock.stage("extract", structure.index):
                    cold = rows[found.misses]
                    for begin in range(0, len(cold), len(self._touched)):
                        features.gather(cold[begin : begin + len(self._touched)], self._touched, self._threads)
            yield GatheredBatch(structure, found, None)

    def _place(self, item: GatheredBatch) -> tuple[Table, torch.Tensor | None, int | None]:
        """Return a split table: the cache's rows, then those of the host."""
        assert self._cache is not None and self._features is not None
        hot, host = self._cache.rows, self._features.tensor
        own = self._cache.table[:hot]
        if item.sampled.local is not None:
            # Reordered: the lowest ids are on the device, so an id is its row in the table.
            return SplitTable(own, host[hot:]), torch.from_numpy(item.sampled.local), None
        if not hot:
            return SplitTable(own, host), torch.from_numpy(item.sampled.nodes), None
        alias, misses = item.found.slots, item.found.misses
        alias[misses] = hot + item.sampled.nodes[misses]
        return SplitTable(own, host), torch.from_numpy(alias), None

    def _transfer(self, item: GatheredBatch, turns: Channel[int]) -> Batch:
        """Return the batch on its split table or, where the device gathers ahead, on a buffer that is being filled."""
        batch = super()._transfer(item, turns)
        if not self._gathers_ahead:
            return batch
        assert self._cache is not None and batch.table is not None and batch.rows is not None
        ring, count = self._ring, batch.sampled.num_nodes
        start = ring.take(count)
        out = self._cache.buffer(start, count)
        gathered = self.runtime.accelerator.gather_ahead(out, batch.table, batch.rows, batch=batch.sampled.index)

        def give_back() -> None:
            gathered.wait()  # also of a mini-batch that is never trained
            ring.give_back(start, count)
            batch.release()

        return Batch(batch.sampled, out, ready=gathered.wait, on_release=give_back)

    def notes(self) -> dict[str, str]:
        """Return the base's notes, with the device cache as hot rows."""
        ahead = ", one mini-batch ahead of training" if self._gathers_ahead else ""
        found = {**super().notes(), "loading": f"cold rows are read by the device itself (zero-copy){ahead}"}
        if "device_cache" in found:
            found["hot_rows"] = found.pop("device_cache")
        return found
