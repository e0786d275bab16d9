"""The order of all rows by their value for a cache, prepared once as an artefact."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath

import numpy as np

from systems.engine.rank import ranking
from systems.engine.rank.partition import Partitioning
from systems.engine.store.artefacts import identity, prepare
from systems.parts.options import RankingName
from systems.parts.part import Part
from systems.parts.rows import Ids

# Bytes a node for ranking: score and order, with the copies made by sorting.
_NODE_BYTES = 40
# Smallest buffers for reading the graph; PageRank also has windows over the nodes.
_BUFFERS = 3 << 20
_PAGERANK_BUFFERS = 10 << 20
_FILE = "order.npy"
#: Name of the need of a cache in device memory.
CACHE = "device cache"


@dataclass(eq=False)
class Ranked(Part):
    """Rows by descending score. A rank with a partition of its own prefers that
    partition's rows.

    Attributes:
        method: score of a node.
    """

    title = ""
    method: RankingName = "out-degree"

    @property
    def scratch_bytes(self) -> int:
        """Bytes that ranking takes, before any buffer is allocated."""
        buffers = _PAGERANK_BUFFERS if "pagerank" in self.method else _BUFFERS
        return _NODE_BYTES * self.site.table.num_rows + buffers

    def prepare(self) -> None:
        """Rank all nodes within the host budget for a cache with bytes: int32 or int64
        [N], highest score first."""
        if not self.site.granted(CACHE):
            return
        workload = self.site.workload
        runtime = self.site.runtime

        def make(folder: FilePath) -> dict[str, str]:
            scores = ranking.scores(
                workload,
                self.method,
                budget_bytes=self.site.budget.host,
                threads=runtime.cores,
                progress=runtime.progress,
            )
            order = ranking.top(scores, len(scores))
            dtype = np.int32 if len(order) < 2**31 else np.int64
            np.save(folder / _FILE, order.astype(dtype))
            return {"method": self.method}

        key = identity(workload, ranking=self.method)
        self.prepared.append(prepare(runtime.artefacts, "ranking", key, make))

    def first(self, count: int) -> Ids:
        """Return the `count` rows of highest score, this rank's partition first, int64
        [count]."""
        order = np.load(self.prepared[0].path / _FILE, mmap_mode="r")
        workload = self.site.workload
        if workload.partition is None:
            return np.array(order[:count], dtype=np.int64)
        own = np.zeros(workload.dataset.num_nodes, dtype=bool)
        own[Partitioning.load(workload.partition).nodes(workload.rank)] = True
        ranked = np.array(order, dtype=np.int64)
        in_partition = own[ranked]
        return np.concatenate([ranked[in_partition], ranked[~in_partition]])[:count]
