"""The interface of a copy: the memory of mini-batches in flight, and how their rows
reach the trainer."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from systems.engine.cache.static_cache import Lookup
from systems.engine.pipeline import Pipeline
from systems.interface import Batch
from systems.parts.part import Part
from workloads.sampling.batch import SampledBatch


@dataclass
class Load:
    """A mini-batch between sampling and training.

    Attributes:
        sampled: the mini-batch.
        place: memory that `Copy.take` reserved for it.
        found: its cache hits and misses.
        rows: [m, dim], the rows of its misses; None where nothing was read.
        start: first row of a ring's piece.
        alias: int64 [n], the table row of each node; None: the order of the nodes.
    """

    sampled: SampledBatch
    place: Any
    found: Lookup
    rows: torch.Tensor | None = None
    start: int = 0
    alias: torch.Tensor | None = None


@dataclass(eq=False)
class Copy(Part):
    """Way of the rows to the trainer. The base calls `take`, `room` and `settle` on a
    thread that extracts, then `move` on the thread that transfers or, where `moves` is
    False, on the same one.

    Attributes:
        extractors: mini-batches extracted beside each other.
        near: tier of cache hits in `Counters.hits`: `host`, or `device` where hits need
            no copy.
        counts_loaded: whether misses count as bytes loaded.
    """

    near: ClassVar[str] = "host"
    counts_loaded: ClassVar[bool] = False
    extractors: int = 1

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Mini-batches between the queue of sampled ones and the end of training, for
        the plan."""

    @property
    def moves(self) -> bool:
        """Whether a thread of its own calls `move`."""
        return True

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers that lie behind a cache in one table; 0 without such a
        table."""
        return 0

    @abstractmethod
    def front(self, rows: int) -> torch.Tensor:
        """Allocate the buffers again with room for `rows` cached rows in front; return
        that room, [rows, dim]."""

    @abstractmethod
    def start(self, pipe: Pipeline) -> None:
        """Make the channels and rings of another run of mini-batches; they end with the
        pipeline."""

    @abstractmethod
    def take(self) -> Any:
        """Wait for the memory of the next mini-batch; called in the order of the
        mini-batches."""

    @abstractmethod
    def room(self, load: Load) -> torch.Tensor | None:
        """Return host memory [m, dim] for the rows of the misses; None: the rows are
        lent, or not read."""

    def settle(self, load: Load) -> None:
        """Finish the extraction of a mini-batch whose rows were read, for example by
        copying cache hits beside them."""

    @abstractmethod
    def move(self, load: Load) -> Batch:
        """Bring the rows to the device and return the batch, whose release gives the
        memory back."""
