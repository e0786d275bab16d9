"""The files that a path reads: the dataset's own, or those that preparation makes of
it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from systems.engine.io.row_reads import RowTable
from systems.parts.part import Part
from workloads.dataset import Dataset

Ids = npt.NDArray[np.int64]


@dataclass(eq=False)
class Source(Part):
    """The dataset as it is. Other sources prepare files of their own: aggregates of
    rows, a reordered dataset.

    Attributes:
        aggregated: whether the rows hold the first layer's aggregates instead of
            features.
    """

    title = ""
    aggregated: ClassVar[bool] = False

    @property
    def dataset(self) -> Dataset:
        """The dataset whose graph is sampled."""
        return self.site.workload.dataset

    @property
    def table(self) -> RowTable:
        """The table of the rows that mini-batches are made of."""
        return RowTable.of(self.dataset)

    @property
    def names(self) -> Ids | None:
        """The workload's ids of the dataset's nodes, int64 [N]; None: they are the
        same."""
        return None
