"""The interface of a sample: which mini-batches, on how many threads, how far ahead."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from systems.engine.io.reader import ReadStats
from systems.parts.part import Part
from systems.parts.topology import Topology
from workloads.sampling.batch import SampledBatch
from workloads.sampling.bounds import Bounds
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]


@dataclass(eq=False)
class Sample(Part):
    """Mini-batches of a path. The base runs `draw` on `workers` threads and puts the
    results back in order.

    Attributes:
        inline: whether the thread that extracts rows draws too, a mini-batch at a time.
        topology: the graph.
        workers: threads that sample.
        prefetch: sampled mini-batches that may wait for each worker.
    """

    inline: ClassVar[bool] = False
    topology: Topology
    workers: int
    prefetch: int

    @property
    def waiting(self) -> int:
        """Sampled mini-batches that may wait for extraction."""
        return self.prefetch * self.workers

    def inner(self) -> Sequence[Part]:
        """List the topology."""
        return (self.topology,)

    @abstractmethod
    def bounds(self, workload: Workload) -> Bounds:
        """Return the bounds of the mini-batches that `draw` returns."""

    def more_workers(self) -> int:
        """Return the workers that the sample would rather have once a plan fits; 0: no
        more."""
        return 0

    def start(self, epoch: int) -> ReadStats | None:
        """Get ready for some of the epoch's mini-batches; no thread draws meanwhile.

        Returns:
            the counts of the reads that this takes; None: nothing is read.
        """
        return None

    @abstractmethod
    def draw(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """Sample mini-batch `index` of an epoch from its seed nodes (int64 [n]). Any
        worker may call it at any time.

        Raises:
            DataIOError: a file of the graph is damaged.
        """
