"""Graphs in memory, and graphs behind a memory map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.io.topology import DatasetFiles, indptr_item, loaded, map_item
from systems.interface import PlanItem
from systems.parts.options import HostStore
from systems.parts.sizes import Follower, Need, fixed
from systems.parts.source import Source
from systems.parts.topology import Graph, Topology
from workloads.dataset import Dataset
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
