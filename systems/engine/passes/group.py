"""A group of mini-batches, sampled and then prepared for training, and the rows that it
uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from systems.engine.io.reader import ReadStats
from systems.engine.io.regions import RegionIndex
from systems.engine.io.tally import Tally
from systems.engine.passes.distribute import ChunkIndex, PassStats
from systems.engine.passes.sampling import Ids, Job, Nodes


@dataclass(frozen=True)
class Uses:
    """Feature rows that successive mini-batches use.

    Attributes:
        nodes: uint32, node ids of all mini-batches, one mini-batch after the other.
        offsets: int64 [n + 1], begin of each mini-batch in `nodes`.
        seeds: int64 [n], seed nodes at the front of each mini-batch, in any order.
    """

    nodes: Nodes
    offsets: Ids
    seeds: Ids

    def batch(self, i: int) -> Nodes:
        """Return the node ids of mini-batch `i`."""
        return self.nodes[int(self.offsets[i]) : int(self.offsets[i + 1])]


_NO_IDS = np.empty(0, dtype=np.int64)
NO_USES = Uses(np.empty(0, dtype=np.uint32), _NO_IDS, _NO_IDS)


@dataclass
class Group:
    """A sampled group of mini-batches, then prepared for training.

    Attributes:
        samples, index: file of its mini-batches, and the index of that file.
        used: rows that its mini-batches use; none once their places are planned.
        uses: number of these uses.
        reads: reads for sampling it.
        rows, chunks: file of its chunks, and the index of that file; None where no rows
            are extracted.
        strategy: whether the rows that miss are distributed to chunks or read one by
            one.
        pinned: rows that stay in their slots; they form a chunk before those of the
            mini-batches.
        graph_written: bytes of graphs written during its preparation.
        pack: counts of distributing.
    """

    job: Job
    samples: Path
    index: RegionIndex
    used: Uses
    uses: int
    reads: ReadStats
    rows: Path | None = None
    chunks: ChunkIndex | None = None
    strategy: Literal["distribute", "single"] = "distribute"
    pinned: int = 0
    graph_written: int = 0
    pack: PassStats = field(default_factory=PassStats)

    @property
    def bytes_written(self) -> int:
        """Bytes of graphs, address lists and rows that its preparation wrote."""
        lists = 0 if self.chunks is None else int(self.chunks.lists[:, 1].sum())
        return self.graph_written + lists + self.pack.bytes_written

    def observed(self) -> dict[str, float]:
        """Return the counts of its preparation for `Counters.observed`."""
        return {}

    def count(self, tally: Tally) -> None:
        """Count the reads and writes of its preparation, in the epoch in which it
        began."""
        written = self.bytes_written
        tally.add(self.reads, groups=1, written=written, **self.observed())
        tally.add(self.pack.reads)


G = TypeVar("G", bound=Group)
