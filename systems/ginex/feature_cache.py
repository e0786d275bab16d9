"""The feature cache's memory: all of it in the main loop, the rows that stay while superbatches are sampled."""

from __future__ import annotations

import torch

from systems.engine.gather_loader import torch_dtype
from systems.engine.memory import aligned_empty, madvise
from systems.engine.regions import padded
from systems.engine.topology import row_bytes
from workloads.workload import Workload


class FeatureCache:
    """`capacity` rows, whose pages exist once they are filled.

    Attributes:
        rows: [capacity, dim].
    """

    def __init__(self, workload: Workload, capacity: int, kept: int) -> None:
        dataset = workload.dataset
        self._memory = aligned_empty(capacity * row_bytes(workload))
        self._kept_bytes = kept * row_bytes(workload)
        table = torch.from_numpy(self._memory).view(torch_dtype(dataset.feature_dtype))
        self.rows = table.view(capacity, dataset.dim)

    def shrink(self) -> None:
        """Give the memory behind the rows that stay back to the kernel."""
        madvise(self._memory[padded(self._kept_bytes) :], "dontneed")
