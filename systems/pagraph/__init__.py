"""`pagraph`: a static cache of out-degree in device memory, pipelined loading (Bai et al., TPDS 2021)."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from systems.engine.loading.cached_system import CachedSystem, CacheOptions, Ids, highest
from systems.engine.rank.partition import Partitioning
from systems.engine.store.artefacts import Prepared
from systems.interface import SystemInfo


class PaGraphOptions(CacheOptions):
    """Options of `pagraph`."""

    pipeline: bool = Field(True, description="load a mini-batch while others are trained (Section 3.3)")
    device_buffers: float = Field(
        0,
        ge=0,
        le=64,
        description="largest mini-batches that the device holds beside the cache, at least one; 0: two, or one where "
        "two take more than a quarter of the device",
    )


class PaGraph(CachedSystem):
    """PaGraph of its paper. Several ranks share graph and features on the host; each caches for its own device.

    With `--partition self-reliant` a rank trains the nodes of its partition (Section 3.2) and prefers to cache nodes
    that its partition can reach, which are fewer than those of the whole graph.
    """

    info = SystemInfo(
        name="pagraph",
        paper="pagraph",
        summary="static out-degree cache in device memory, misses copied from host memory while training goes on",
        options=PaGraphOptions,
        data_parallel=True,
    )
    options: PaGraphOptions

    @property
    def _ahead(self) -> int:
        # One trained, one ready, one copied and two gathered; the ring of rows and the staging buffers limit them.
        return 5 if self.options.pipeline else 1

    def _cached_rows(self, order: Prepared | None, k: int) -> Ids:
        """Return the `k` rows of highest score, this rank's partition first."""
        if order is None or self.workload.partition is None:
            return super()._cached_rows(order, k)
        own = np.zeros(self.workload.dataset.num_nodes, dtype=bool)
        own[Partitioning.load(self.workload.partition).nodes(self.workload.rank)] = True
        ranked = highest(order, len(own))
        return np.concatenate([ranked[own[ranked]], ranked[~own[ranked]]])[:k]

    @property
    def _buffers(self) -> float:
        return self.options.device_buffers if self.options.pipeline else 1


SYSTEM = PaGraph
