"""A graph behind a memory map, with the neighbour lists of important nodes in memory
(AliGraph's cache)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from systems.engine.cache import neighbour_cache
from systems.engine.cache.neighbour_cache import NeighbourCachePlan
from systems.engine.io.tally import Tally
from systems.engine.io.topology import CachedLists
from systems.parts.kinds.graphs import Mapped
from systems.parts.part import Part
from systems.parts.topology import Graph
from workloads.dataset import Dataset
from workloads.sampling.batch import SampledBatch


class ListShare(Part):
    """Decision on the memory of a neighbour cache; the system's own."""

    @property
    @abstractmethod
    def lists(self) -> NeighbourCachePlan:
        """Size of the neighbour cache, once prepared."""

    @property
    @abstractmethod
    def indptr(self) -> npt.NDArray[np.int64]:
        """Index pointers of the graph, int64 [N + 1], loaded in preparation."""


@dataclass(eq=False)
class NeighbourLists(Mapped):
    """Lists of the nodes of highest out-degree / in-degree in memory, the others
    through the page cache.

    Attributes:
        share: decides the cache's memory.
    """

    title = "mapped graph, lists of important nodes in memory"
    share: ListShare = field(kw_only=True)
    _tally: Tally = field(init=False, repr=False, default_factory=Tally)
    _held: tuple[int, int] = field(init=False, repr=False, default=(0, 0))

    def inner(self) -> Sequence[Part]:
        """List the source and the share."""
        return (self.source, self.share)

    def prepare(self) -> None:
        """Build the cache on disk, unless an earlier run did."""
        if not self.share.lists.nodes:
            return
        site = self.site
        made = neighbour_cache.build(
            site.workload,
            site.runtime.artefacts,
            self.share.lists,
            indptr=self.share.indptr,
            disk_budget=site.budget.disk,
        )
        self.prepared.append(made)
        self._held = int(made.facts["nodes"]), int(made.facts["entries"])

    def graph(self) -> Graph:
        """Map the lists, and load the cached ones."""
        dataset = self.source.dataset
        indices, labels = self.mapped_arrays()
        return Graph(self.share.indptr, indices, labels, self._cached(dataset))

    def _cached(self, dataset: Dataset) -> CachedLists | None:
        if not self.prepared:
            return None
        return neighbour_cache.load(dataset, self.prepared[0])

    def begin(self, epoch: int) -> None:
        """Restart the counts."""
        self._tally.restart()

    def count(self, sampled: SampledBatch) -> None:
        """Count the lists that a mini-batch read, and those found in the cache."""
        self._tally.add(list_reads=sampled.list_reads, list_hits=sampled.list_hits)

    def observed(self) -> dict[str, float]:
        """Return the lists read and found."""
        return self._tally.observed("list_reads", "list_hits")

    def notes(self) -> dict[str, str]:
        """Return the contents of the cache."""
        nodes, entries = self._held
        return {
            "neighbour_cache": f"{nodes} nodes, {entries} of "
            f"{self.source.dataset.num_edges} entries"
        }
