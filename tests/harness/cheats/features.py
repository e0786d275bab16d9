"""Wrong rows: the fastest read is the one that is not made."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tests.harness.cheats.act import Act, Ids, cheat

RULE = "features_equal_the_dataset"


@cheat(RULE)
class ReadsNothing(Act):
    """Every row is zero."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Zeros."""
        return np.zeros((len(nodes), self.system.workload.dataset.dim), dtype=np.float32)


@cheat(RULE)
class HonestWhileWarmingUp(Act):
    """Reads in the warm-up epoch, where everything is looked at, and nothing afterwards."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Zeros from epoch 1 on."""
        if epoch == 0:
            return self.system.read(nodes)
        return np.zeros((len(nodes), self.system.workload.dataset.dim), dtype=np.float32)


@cheat(RULE)
class WrongRows(Act):
    """Off by one."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Rows of the nodes behind."""
        return self.system.read((nodes + 1) % self.system.workload.dataset.num_nodes)


@cheat(RULE)
class StaleRows(Act):
    """A slot is used before its new row has arrived: rows of the mini-batch before stand in it."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """One row in ten is the one that stood there."""
        rows = self.system.read(nodes)
        before = getattr(self, "_before", None)
        self._before = rows.copy()
        if epoch and before is not None:
            places = np.arange(0, min(len(rows), len(before)), 10)
            rows[places] = before[places]
        return rows


@cheat(RULE)
class OneRowInFifty(Act):
    """Rows that are used seldom are left out, in measured epochs alone."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Every fiftieth is zero."""
        rows = self.system.read(nodes)
        if epoch:
            rows[index % 50 :: 50] = 0
        return rows


@cheat(RULE)
class HalfPrecision(Act):
    """Keeps half of every number, so that twice as many rows fit."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """By way of float16."""
        return self.system.read(nodes).astype(np.float16).astype(np.float32)


@cheat(RULE)
class DeviceMemoryAsCache(Act):
    """Keeps rows in the memory of a device that holds mini-batches only, outside the cap."""

    def prepare(self) -> None:
        """Fill it with the first rows."""
        dataset, accelerator = self.system.workload.dataset, self.system.runtime.accelerator
        self._count = (8 << 20) // self.system.row_bytes
        self._table = accelerator.allocate(self._count, dataset.dim, torch.float32)
        self._table.copy_(torch.from_numpy(self.system.read(np.arange(self._count))))

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """What is there from there."""
        kept = nodes < self._count
        out = np.empty((len(nodes), self._table.shape[1]), dtype=np.float32)
        out[kept] = self._table.numpy()[nodes[kept]]
        out[~kept] = self.system.read(nodes[~kept])
        return out
