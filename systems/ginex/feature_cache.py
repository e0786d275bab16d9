"""Memory of the feature cache: all of it in the main loop, only the rows that stay while superbatches are sampled."""

from __future__ import annotations

import torch

from systems.engine.io.direct_files import padded
from systems.engine.io.memory import aligned_empty, madvise
from systems.engine.io.topology import row_bytes
from systems.engine.loading.gather_loader import torch_dtype
from workloads.workload import Workload


class FeatureCache:
    """Cache of `capacity` feature rows, `rows` [capacity, dim]; pages are allocated as rows are filled in."""

    def __init__(self, workload: Workload, capacity: int, kept: int) -> None:
        dataset = workload.dataset
        self._memory = aligned_empty(capacity * row_bytes(workload))
        self._kept_bytes = kept * row_bytes(workload)
        table = torch.from_numpy(self._memory).view(torch_dtype(dataset.feature_dtype))
        self.rows = table.view(capacity, dataset.dim)

    def shrink(self) -> None:
        """Give the kernel all memory but that of the rows that stay."""
        madvise(self._memory[padded(self._kept_bytes) :], "dontneed")
