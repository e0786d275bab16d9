"""The interface of a topology: where neighbour lists come from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from systems.engine.io.topology import CachedLists
from systems.parts.part import Part
from systems.parts.source import Source
from workloads.sampling.batch import SampledBatch


class Graph(NamedTuple):
    """Arrays of a graph in CSC.

    Attributes:
        indptr: int64 [N + 1].
        indices: [E], in-neighbours.
        labels: int64 [N].
        cached: address table and lists of the neighbour lists in memory, as for
            `NeighborSampler`.
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[Any]
    labels: npt.NDArray[np.int64]
    cached: CachedLists | None = None


@dataclass(eq=False)
class Topology(Part):
    """Graph of a path: in memory, memory-mapped, or partly cached.

    Attributes:
        source: files of the graph; the dataset's own unless preparation makes others.
        list_threads: threads that share one mini-batch's neighbour lists.
        in_memory: whether sampling reads nothing from disk.
    """

    in_memory: ClassVar[bool] = False
    source: Source = field(default_factory=Source)
    list_threads: int = 1

    def inner(self) -> Sequence[Part]:
        """List the source of the graph."""
        return (self.source,)

    @abstractmethod
    def graph(self) -> Graph:
        """Return the arrays of the graph, loaded or mapped; called once, after
        `open`."""

    def count(self, sampled: SampledBatch) -> None:
        """Count a mini-batch that was drawn from this graph; any thread may call."""

    def check_files(self) -> None:
        """Check before a mini-batch that mapped files are whole; a map beyond a file's
        end kills the process.

        Raises:
            DataIOError: a file is missing or shorter than its map; names path and
                offset.
        """
