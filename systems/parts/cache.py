"""The interface of a cache: which rows are kept near the trainer."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.cache.static_cache import Lookup, look_up
from systems.parts.part import Part
from systems.parts.rows import Rows

Ids = npt.NDArray[np.int64]


@dataclass(eq=False)
class Cache(Part):
    """A cache of rows in front of a copy's buffers, so that one alias list points into
    both.

    The base looks each mini-batch up, reads the misses, and asks the copy for memory. A
    cache whose `late` is True is filled once the first mini-batch has been trained,
    which shows how much memory training takes.

    Attributes:
        capacity: rows held now.
        late: whether the cache is still to be filled.
        slot_of: int32 [N], the cache row of each node, -1 if not cached; None for an
            empty cache.
    """

    capacity: int = field(init=False, default=0)
    late: bool = field(init=False, default=False)
    slot_of: npt.NDArray[np.int32] | None = field(init=False, repr=False, default=None)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes planned for the cache."""

    def look_up(self, ids: Ids) -> Lookup:
        """Find the cached rows among a mini-batch's (int64 [n])."""
        return look_up(self.slot_of, ids)

    @abstractmethod
    def choose(self) -> Ids:
        """Return the rows to hold, int64 [capacity]."""

    @abstractmethod
    def fill(self, chosen: Ids, front: torch.Tensor, rows: Rows) -> None:
        """Fill the memory in front of the copy's buffers.

        Args:
            chosen: int64 [capacity], of `choose`.
            front: [capacity, dim], on the device or on the host.
            rows: the path's rows.
        """
