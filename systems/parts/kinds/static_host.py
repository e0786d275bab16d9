"""A static cache in host memory: rows of highest out-degree, read once by direct reads
in file order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from systems.engine.cache.static_cache import StaticCache
from systems.engine.rank.ranking import out_degrees, top
from systems.parts.cache import Cache
from systems.parts.part import Part
from systems.parts.rows import Ids, Rows


class RowShare(Part):
    """Decision on the memory of a row cache; the system's own."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Rows of the cache, once prepared."""

    @property
    @abstractmethod
    def cache_bytes(self) -> int:
        """Bytes planned for the cache and all that shares its memory."""


@dataclass(eq=False)
class StaticHost(Cache):
    """Static cache in front of the mini-batches' tables.

    Attributes:
        share: decides the cache's memory.
    """

    title = "static cache in host memory by out-degree"
    share: RowShare = field(kw_only=True)

    def inner(self) -> Sequence[Part]:
        """List the share."""
        return (self.share,)

    @property
    def nbytes(self) -> int:
        """Bytes of the cache and all that shares its memory."""
        return self.share.cache_bytes

    def choose(self) -> Ids:
        """Return the rows of highest out-degree."""
        if not self.share.rows:
            return np.empty(0, dtype=np.int64)
        workload = self.site.workload
        return top(
            out_degrees(workload, ranking_bytes(workload.dataset.num_nodes)),
            self.share.rows,
        )

    def fill(self, chosen: Ids, front: torch.Tensor, rows: Rows) -> None:
        """Read the rows in file order."""
        cache = StaticCache.build(self.site.workload, chosen, front)
        self.slot_of = cache.slot_of
        self.capacity = cache.capacity

    def notes(self) -> dict[str, str]:
        """Return the size of the cache."""
        return {
            "feature_cache": f"{self.share.rows} of "
            f"{self.site.workload.dataset.num_nodes} rows"
        }

    def close(self) -> None:
        """Drop the map; the copy frees the rows."""
        self.slot_of = None


def ranking_bytes(num_nodes: int) -> int:
    """Return the bytes within which out-degrees are counted: counts, and 4 MiB of read
    buffers."""
    return 8 * num_nodes + (4 << 20)
