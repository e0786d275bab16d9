"""DGL's loader as parts: its graph, its neighbour sampler, and its gather, driven a
mini-batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.dgl import (
    Drawn,
    MiniBatchSampler,
    NeighborDraw,
    data_loader,
    dgl_graph,
    int64_of,
    require_dgl,
    to_dgl_blocks,
)
from systems.engine.io.reader import ReadStats
from systems.engine.io.topology import DatasetFiles, indptr_item, map_item
from systems.forecast import Forecast, Trace
from systems.interface import PlanItem
from systems.parts.kinds.direct_rows import SingleRows
from systems.parts.kinds.graphs import graph_files
from systems.parts.kinds.host_rows import HostRows
from systems.parts.kinds.neighbours import Neighbours
from systems.parts.options import HostStore
from systems.parts.part import Part
from systems.parts.rows import Ids, Rows
from systems.parts.sample import Sample
from systems.parts.sizes import Follower, Need, fixed
from systems.parts.topology import Graph, Topology
from workloads.errors import BudgetError, require
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import advise_random


@dataclass(eq=False)
class DglGraph(Topology):
    """Graph for DGL's DataLoader, with the 64-bit ids that it needs.

    Attributes:
        store: `memory` or `mapped`.
        dgl_samples: whether DGL samples; if not, it asks a mapped graph only for the
            number of nodes.
        drawn: the mini-batch that DGL's sampler drew last; None where ours draws.
    """

    title = "DGL's graph ({store})"
    store: HostStore = "memory"
    dgl_samples: bool = False
    drawn: Drawn | None = field(init=False, repr=False, default=None)
    _graph: Any = field(init=False, repr=False, default=None)
    _files: DatasetFiles = field(init=False, repr=False)

    @property
    def dgl(self) -> Any:
        """The DGL module. Raises HostError where it is not installed."""
        return require_dgl(self.site.name)

    @property
    def loaded(self) -> Any:
        """DGL's graph."""
        return self._graph

    @property
    def mapped(self) -> bool:
        """Whether the graph is memory-mapped."""
        return self.store == "mapped"

    @property
    def _converted(self) -> bool:
        """Whether DGL samples from a mapped graph of 32-bit ids, which must be
        converted."""
        return (
            self.dgl_samples
            and self.mapped
            and self.source.dataset.index_dtype != np.int64
        )

    def check(self) -> None:
        """Refuse workloads that DGL's sampler does not draw."""
        if not self.dgl_samples:
            return
        name = self.site.name
        own = self.site.workload.sampler.name
        message = (
            f"{name}: sampler=dgl is DGL's neighbour sampler, and the workload's is "
            f"{own}"
        )
        require(own == "neighbor", message, "use sampler=outcore")
        message = f"{name}: sampling alone times our sampler, and sampler is dgl"
        require(not self.site.sampling_only, message, "use sampler=outcore")

    def needs(self) -> Sequence[Need | Follower]:
        """List the graph, DGL's copies of it, and DGL's seed nodes."""
        dataset = self.source.dataset
        ids = 8 * dataset.num_edges
        items = [indptr_item(self.site.workload)]
        if self.mapped:
            items.append(map_item(self.site.workload, features=self.site.maps_rows))
        else:
            items += [
                PlanItem("indices", ids),
                PlanItem("labels", 8 * dataset.num_nodes),
            ]
        items.append(PlanItem("seed nodes of DGL", self._seed_bytes))
        if self.mapped and self.dgl_samples:
            items.append(PlanItem("indptr of DGL", 8 * (dataset.num_nodes + 1)))
        if self._converted:
            items.append(PlanItem("indices of DGL", ids))
        return fixed(items)

    @property
    def _seed_bytes(self) -> int:
        """Bytes of an epoch's seed nodes in DGL's DataLoader: the nodes, their
        positions, and the nodes by position."""
        wanted = self.site.bounds.num_batches * self.site.workload.sampler.batch_size
        return 24 * min(wanted, len(self.source.dataset.memmap("train")))

    def open(self) -> None:
        """Check the files."""
        self._files = graph_files(self)
        self._files.check()

    def graph(self) -> Graph:
        """Load or map the arrays, and make DGL's graph of them."""
        dataset = self.source.dataset
        indptr = dataset.load("indptr")
        if not self.mapped:
            indices = int64_of(dataset.memmap("indices"))
            self._graph = dgl_graph(self.dgl, indptr, indices)
            return Graph(indptr, indices, dataset.load("labels"))
        mapped = dataset.memmap("indices")
        labels = dataset.memmap("labels")
        advise_random(mapped)
        advise_random(labels)
        self._graph = self._mapped_graph()
        return Graph(indptr, mapped, labels)

    def _mapped_graph(self) -> Any:
        dataset = self.source.dataset
        if not self.dgl_samples:
            nothing = torch.empty(0, dtype=torch.int64)
            return self.dgl.graph((nothing, nothing), num_nodes=dataset.num_nodes)
        mapped = dataset.memmap("indices")
        indices = int64_of(mapped) if self._converted else mapped
        return dgl_graph(self.dgl, dataset.load("indptr"), indices)

    def check_files(self) -> None:
        """Check mapped files."""
        if self.mapped:
            self._files.check()

    def close(self) -> None:
        """Drop the graph."""
        self._graph = None
        self.drawn = None


@dataclass(eq=False)
class DglNeighbours(Neighbours):
    """Mini-batches of DGL's own neighbour sampler, whose draws differ from the
    workload's: not faithful.

    DGL's one generator is seeded at the begin of each run of mini-batches; one thread
    draws and gathers.
    """

    title = "DGL's sampler"
    inline = True
    _labels: npt.NDArray[np.int64] | None = field(init=False, repr=False, default=None)
    _dgl_draw: NeighborDraw | None = field(init=False, repr=False, default=None)

    def open(self) -> None:
        """Make DGL's graph."""
        self._labels = self.topology.graph().labels

    def start(self, epoch: int) -> None:
        """Make a new sampler, which seeds DGL's generator on the thread that draws."""
        self._dgl_draw = None

    def draw(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """Sample one mini-batch by DGL."""
        graph = self.topology
        assert isinstance(graph, DglGraph)
        assert self._labels is not None
        if self._dgl_draw is None:
            self._dgl_draw = NeighborDraw(graph.dgl, self.site.workload, epoch)
        drawn = self._dgl_draw(graph.loaded, seeds)
        with self.site.clock.stage("assemble", index):
            graph.drawn = drawn
            sampled = drawn.batch(epoch, index, self._labels)
        most = self.site.bounds.max_nodes
        if sampled.num_nodes > most:
            raise BudgetError(
                f"{self.site.name}: DGL sampled {sampled.num_nodes} nodes, the plan "
                f"holds {most}",
                "use sampler=outcore, whose largest mini-batch is known, or lower the "
                "batch size",
            )
        return sampled

    def close(self) -> None:
        """Drop the labels."""
        super().close()
        self._labels = None


def dgl_sample(graph: DglGraph, workers: int, prefetch: int) -> Sample:
    """Return the sample over DGL's graph: DGL's own sampler, or ours behind its
    DataLoader."""
    kind = DglNeighbours if graph.dgl_samples else Neighbours
    return kind(graph, workers, prefetch)


@dataclass(eq=False)
class DglRows(Rows):
    """Rows that DGL's DataLoader gathers: from a tensor in host memory, or by a read of
    each row.

    Attributes:
        graph: DGL's graph, which the path's sample draws from too.
        held: the rows, in host memory or on disk.
    """

    title = "rows gathered by DGL"
    lends = True
    assembles = True
    graph: DglGraph = field(default_factory=DglGraph)
    held: HostRows | SingleRows = field(default_factory=HostRows)
    _sampler: MiniBatchSampler | None = field(init=False, repr=False, default=None)
    _gathered: Iterator[torch.Tensor] | None = field(
        init=False, repr=False, default=None
    )
    _reads: ReadStats | None = field(init=False, repr=False, default=None)
    _seeds: Sequence[Ids] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        self.source = self.held.source

    def inner(self) -> Sequence[Part]:
        """List the source and the rows."""
        return (self.source, self.held)

    @property
    def mapped(self) -> bool:
        """Whether the rows come through a memory map."""
        return self.held.mapped

    @property
    def tier(self) -> str:
        """Tier of the rows held."""
        return self.held.tier

    @property
    def queue_depth(self) -> int:
        """Reads in flight."""
        return self.held.queue_depth

    def needs(self) -> Sequence[Need | Follower]:
        """List DGL's tensor of gathered rows: torch may hold the previous one, and the
        heap a hole of the same size."""
        if isinstance(self.held, SingleRows):
            return []
        return [Need("rows gathered by DGL", 3 * self.site.table_bytes)]

    def start(self, first: int, seeds: Sequence[Ids]) -> None:
        """Forget the last run's DataLoader; the thread that extracts makes a new
        one."""
        self._gathered = None
        self._seeds = seeds

    def assemble(self, sampled: SampledBatch, ids: Ids) -> None:
        """Convert a mini-batch to DGL's blocks, for its DataLoader to ask for."""
        dgl = self.graph.dgl
        if self._gathered is None:
            self._sampler = MiniBatchSampler(dgl)
            self._gathered = data_loader(
                dgl, self.graph.loaded, self._seeds, self._sampler, self._rows()
            )
        assert self._sampler is not None
        drawn = self.graph.drawn
        if drawn is None:
            seeds = torch.from_numpy(sampled.nodes[: sampled.num_seeds])
            drawn = Drawn(
                torch.from_numpy(sampled.nodes), seeds, to_dgl_blocks(dgl, sampled)
            )
        self._sampler.next = drawn
        self._sampler.ids = torch.from_numpy(ids)

    def _rows(self) -> Any:
        """Return the rows for DGL's DataLoader: a tensor [N, dim], or a function that
        returns those of given ids."""
        return self.held.tensor if isinstance(self.held, HostRows) else self._fetch

    def _fetch(self, ids: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.held, SingleRows)
        rows, self._reads = self.held.read_ids(ids.numpy())
        return rows

    def read(
        self, sampled: SampledBatch, ids: Ids, out: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ReadStats | None]:
        """Let DGL's DataLoader gather the mini-batch that was assembled."""
        assert self._gathered is not None
        self._reads = None
        if self.held.mapped:
            self.site.table.check()
        return next(self._gathered), self._reads

    def gather(self, ids: Ids, out: npt.NDArray[np.generic]) -> None:
        """Copy rows to `out` without DGL."""
        self.held.gather(ids, out)

    def forecast(
        self, trace: Trace, cached_bytes: int, page_cache_bytes: int
    ) -> Forecast:
        """Forecast the reads of the rows held."""
        return self.held.forecast(trace, cached_bytes, page_cache_bytes)

    def notes(self) -> dict[str, str]:
        """Return the sampler used."""
        ours = "our sampler behind DGL's DataLoader"
        return {
            "sampled_by": "DGL's own sampler: not faithful"
            if self.graph.dgl_samples
            else ours
        }

    def close(self) -> None:
        """Drop DGL's DataLoader."""
        self._gathered = None
        self._sampler = None
