"""MariusGNN for node classification: train on the partitions in memory, change them
between epochs.

Before the first epoch the graph is cut into partitions and edge buckets
(`systems/mariusgnn/partitioned.py`). Each epoch begins by filling the buffer (stage
`data_prep`): partitions of training nodes stay, the others follow the ordering. Then
nothing is read: mini-batches are sampled among the buffered nodes alone, which saves
reads and costs accuracy (GNNDrive, Sections 2 and 5.4; DiskGNN, Section 7).
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.store import artefacts
from systems.interface import SystemInfo
from systems.mariusgnn.options import NAME, MariusOptions
from systems.mariusgnn.partitioned import COUNTS, Layout, Partitions, count_buckets
from systems.mariusgnn.parts import BufferedNeighbours, BufferedPartitions, BufferedRows
from systems.mariusgnn.sizes import partitions_for
from systems.parts import Path, PathSystem, Tables
from workloads.errors import BudgetError

#: Edges by bucket, int64 [p, p], of the layouts that this process has counted, by key.
_COUNTED: dict[str, npt.NDArray[np.int64]] = {}
_COUNT_BYTES = 64 << 20  # most bytes of edges in memory while they are counted


class MariusGnn(PathSystem):
    """MariusGNN: partition buffer, edge buckets, sampling inside the buffer."""

    info = SystemInfo(
        name=NAME,
        paper="gnndrive",
        summary="partitions buffered in memory; sampling only among them",
        faithful=False,
        options=MariusOptions,
        artefact_share=1.2,
    )
    options: MariusOptions

    def path(self) -> Path:
        """Mini-batches and rows from the partitions in memory, as many as the budget
        holds; one of two tables."""
        return self._path(self._capacity())

    def _path(self, capacity: int) -> Path:
        options = self.options
        graph = BufferedPartitions(
            layout=self._layout,
            options=options,
            capacity=capacity,
            key=self._key,
            assign=self._assign,
        )
        return Path(
            sample=BufferedNeighbours(graph, self.workers, options.prefetch),
            rows=BufferedRows(graph=graph, threads=options.gather_threads),
            copy=Tables(),
            fix="lower buffer, or leave it to the budget (0)"
            if options.buffer
            else "raise memory",
        )

    def _capacity(self) -> int:
        """Return the partitions in memory at once: as asked for, or the most that the
        budget holds.

        Raises:
            BudgetError: the buffer asked for leaves no partition to change.
        """
        parts = self._parts
        wanted = self.options.buffer
        host = self.budget.host
        least = min(parts.count, parts.pinned + 1)
        if wanted:
            capacity = min(wanted, parts.count)
            if capacity < least:
                raise BudgetError(
                    f"{NAME}: a buffer of {capacity} partitions is too small for the "
                    f"{parts.pinned} that hold training nodes and one more",
                    f"raise buffer to {least}",
                )
            return capacity
        # All partitions may fit where one fewer does not: their mini-batches need no
        # slack.
        if host is None or self._host_bytes(parts.count) <= host:
            return parts.count
        fewer = range(least, parts.count)
        fitting = bisect_right(fewer, host, key=self._host_bytes)
        return max(least, least + fitting - 1)

    def _host_bytes(self, capacity: int) -> int:
        path = self._path(capacity)
        fixed_bytes = self.fixed_bytes(path)
        assert isinstance(path.sample, BufferedNeighbours)
        return fixed_bytes + path.sample.topology.row_bytes

    @cached_property
    def _parts(self) -> Partitions:
        return Partitions.of(
            self.workload,
            self.options.partitions or partitions_for(self.workload, self.budget),
        )

    @cached_property
    def _key(self) -> dict[str, Any]:
        # Without the sampler: the same partitions serve all samplers.
        workload = self.workload
        size = self._parts.size
        return {
            "dataset": workload.dataset.content,
            "seed": workload.seed,
            "size": size,
            "format": 2,
        }

    @cached_property
    def _layout(self) -> Layout:
        """Layout of the partition files, which follows from the number of edges in each
        bucket, counted once."""
        found = artefacts.find(self.runtime.artefacts, NAME, self._key)
        if found is not None:
            return Layout(self._parts, np.load(found.path / COUNTS))
        key = repr(self._key)
        if (
            key not in _COUNTED
        ):  # plans within other budgets of the same process ask again
            memory = min(_COUNT_BYTES, max(1 << 20, (self.budget.host or 1 << 62) // 4))
            _COUNTED[key] = count_buckets(
                self.workload, self._parts, self._assign(), memory_bytes=memory
            )
        return Layout(self._parts, _COUNTED[key])

    def _assign(self) -> npt.NDArray[np.uint8]:
        return self._parts.assign(
            self.workload.dataset.load("train"), self.workload.seed
        )
