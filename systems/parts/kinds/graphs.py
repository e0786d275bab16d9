"""Graphs in memory, behind a memory map, or behind one with the neighbour lists of
important nodes in memory (AliGraph's cache)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.cache import neighbour_cache
from systems.engine.cache.neighbour_cache import NeighbourCachePlan
from systems.engine.io.tally import Tally
from systems.engine.io.topology import (
    CachedLists,
    DatasetFiles,
    indptr_item,
    loaded,
    map_item,
)
from systems.interface import PlanItem
from systems.parts.options import HostStore
from systems.parts.part import Part
from systems.parts.sizes import Follower, Need, fixed
from systems.parts.source import Source
from systems.parts.topology import Graph, Topology
from workloads.dataset import Dataset
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import advise_random


@dataclass(eq=False)
class Loaded(Topology):
    """Graph and labels loaded into memory, one copy for all ranks of a run."""

    title = "graph in memory"
    in_memory = True

    def needs(self) -> Sequence[Need | Follower]:
        """List index pointers, neighbour lists and labels."""
        dataset = self.source.dataset
        indices = PlanItem("indices", dataset.topology_bytes)
        labels = PlanItem("labels", 8 * dataset.num_nodes)
        return fixed([indptr_item(self.site.workload), indices, labels])

    def open(self) -> None:
        """Check the files."""
        graph_files(self).check()

    def graph(self) -> Graph:
        """Load the arrays."""
        dataset = self.source.dataset
        group = self.site.runtime.group
        indptr = loaded(dataset, "indptr", group)
        indices = loaded(dataset, "indices", group)
        return Graph(indptr, indices, loaded(dataset, "labels", group))


@dataclass(eq=False)
class Mapped(Topology):
    """Index pointers in memory; neighbour lists and labels memory-mapped, so that the
    page cache decides.

    Attributes:
        read_ahead: leave the kernel's read-ahead on.
    """

    title = "graph behind a memory map"
    read_ahead: bool = False
    _files: DatasetFiles = field(init=False, repr=False)

    def needs(self) -> Sequence[Need | Follower]:
        """List index pointers and page tables, those of mapped rows too."""
        tables = map_item(self.site.workload, features=self.site.maps_rows)
        return fixed([indptr_item(self.site.workload), tables])

    def open(self) -> None:
        """Check the files."""
        self._files = graph_files(self)
        self._files.check()

    def graph(self) -> Graph:
        """Load the index pointers and map the rest."""
        indices, labels = self.mapped_arrays()
        indptr = loaded(self.source.dataset, "indptr", self.site.runtime.group)
        return Graph(indptr, indices, labels)

    def mapped_arrays(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Map neighbour lists and labels."""
        dataset = self.source.dataset
        indices = dataset.memmap("indices")
        labels = dataset.memmap("labels")
        if not self.read_ahead:
            advise_random(indices)
            advise_random(labels)
        return indices, labels

    def check_files(self) -> None:
        """Check the mapped files."""
        self._files.check()


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


def graph_files(topology: Topology) -> DatasetFiles:
    """Return the check of a graph's files."""
    dataset: Dataset = topology.source.dataset
    workload = replace(topology.site.workload, dataset=dataset)
    return DatasetFiles(workload, ["indices", "labels"])


def host_graph(store: HostStore, source: Source | None = None) -> Topology:
    """Return the graph of the option `host_store`; `source`: its files, by default the
    dataset's own."""
    files = source or Source()
    return Mapped(files) if store == "mapped" else Loaded(files)
