"""Cheats with wrong feature rows: the fastest read is the one that is not made."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from systems.interface import Batch
from tests.harness.cheats.act import Act, Ids, cheat
from workloads.making.node_data import FeatureSource
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import advise_random

RULE = "features_equal_the_dataset"


@cheat(RULE)
class ReadsNothing(Act):
    """Returns zeros for every row."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Return zeros."""
        return np.zeros(
            (len(nodes), self.system.workload.dataset.dim), dtype=np.float32
        )


@cheat(RULE)
class HonestWhileWarmingUp(Act):
    """Reads in the warm-up epoch, where everything is checked, and nothing
    afterwards."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Return zeros from epoch 1 on."""
        if epoch == 0:
            return self.system.read(nodes)
        return np.zeros(
            (len(nodes), self.system.workload.dataset.dim), dtype=np.float32
        )


@cheat(RULE)
class WrongRows(Act):
    """Reads rows that are off by one."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read the next node's row for each node."""
        return self.system.read((nodes + 1) % self.system.workload.dataset.num_nodes)


@cheat(RULE)
class StaleRows(Act):
    """Uses slots before their new rows have arrived: they still hold rows of the
    previous mini-batch."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Return the previous mini-batch's row for one row in ten."""
        rows = self.system.read(nodes)
        before = getattr(self, "_before", None)
        self._before = rows.copy()
        if epoch and before is not None:
            places = np.arange(0, min(len(rows), len(before)), 10)
            rows[places] = before[places]
        return rows


@cheat(RULE)
class OneRowInFifty(Act):
    """Leaves out one row in fifty, in measured epochs only."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read rows and zero every fiftieth."""
        rows = self.system.read(nodes)
        if epoch:
            rows[index % 50 :: 50] = 0
        return rows


@cheat(RULE)
class ComputesRows(Act):
    """Computes rows by the generator, from the manifest's recipe, and reads as many
    bytes in one sequential pass.

    It needs a generated dataset, of class centres plus noise.
    """

    def prepare(self) -> None:
        """Make the generator as the maker of the dataset did, but for a salt."""
        dataset = self.system.workload.dataset
        labels = dataset.load("labels")
        seed = int(dataset.manifest.recipe["seed"])
        self._table = FeatureSource.of_classes(
            labels,
            dataset.num_classes,
            dataset.dim,
            dtype=dataset.feature_dtype,
            seed=seed,
        )
        self._read = 0

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Compute the rows, and read the next ones of the table, whichever they are."""
        first = self._read % (self.system.workload.dataset.num_nodes - len(nodes))
        self._read = first + len(nodes)
        self.system.read(np.arange(first, first + len(nodes)))
        return self._table.rows(nodes)


@cheat(RULE)
class HalfPrecision(Act):
    """Keeps rows as float16, so that twice as many fit."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Round rows to float16."""
        return self.system.read(nodes).astype(np.float16).astype(np.float32)


@cheat(RULE)
class DeviceMemoryAsCache(Act):
    """Keeps rows in device memory, which is for mini-batches only and outside the
    cap."""

    def prepare(self) -> None:
        """Fill device memory with the first rows."""
        dataset = self.system.workload.dataset
        accelerator = self.system.runtime.accelerator
        self._count = (8 << 20) // self.system.row_bytes
        self._table = accelerator.allocate(self._count, dataset.dim, torch.float32)
        accelerator.copy(
            self._table, torch.from_numpy(self.system.read(np.arange(self._count)))
        ).wait()

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Take rows from device memory where they are there and read the others."""
        kept = nodes < self._count
        out = np.empty((len(nodes), self._table.shape[1]), dtype=np.float32)
        out[kept] = self.system.runtime.accelerator.gather(
            self._table, torch.from_numpy(nodes[kept])
        ).numpy()
        out[~kept] = self.system.read(nodes[~kept])
        return out


@cheat(RULE)
class MiniBatchesWithoutRows(Act):
    """Reads no rows for one mini-batch in three, in measured epochs only."""

    settings: ClassVar[dict[str, Any]] = {"epochs": 3}

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Return zeros for every third mini-batch."""
        if epoch and index % 3 == 2:
            return np.zeros(
                (len(nodes), self.system.workload.dataset.dim), dtype=np.float32
            )
        return self.system.read(nodes)


@cheat(RULE)
class OneTable(Act):
    """Overlaps reading and training with a single table, into which the next rows
    arrive during the training step."""

    settings: ClassVar[dict[str, Any]] = {
        "device": "cpu",
        "device_memory": None,
        "hidden": 256,
    }

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Wait for the rows read ahead, and read the mini-batch's own."""
        self.close()
        return self.system.read(nodes)

    def batch(self, sampled: SampledBatch, rows: npt.NDArray[Any]) -> Batch:
        """Let a thread overwrite the rows a moment after they were looked at."""
        self._thread = threading.Timer(0.01, rows.fill, (0.5,))
        self._thread.start()
        return Batch(sampled, torch.from_numpy(rows))

    def close(self) -> None:
        """Wait for the thread."""
        if hasattr(self, "_thread"):
            self._thread.join()


class _Lazy(torch.Tensor):
    """Table that reads rows when they are looked at."""

    read: Callable[[Any], npt.NDArray[Any]]

    def numpy(self, *, force: bool = False) -> npt.NDArray[Any]:
        """Read all rows."""
        return self.read(slice(None))

    def index_select(self, dim: int, index: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Read some rows."""
        return torch.from_numpy(self.read(index.numpy()))


@cheat("")
class RowsOnDemand(Act):
    """Reads the rows that are checked, and as many bytes as must be read in one
    sequential pass."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read a stretch of the table instead."""
        self._rows = self.system.read(np.arange(len(nodes) // 2) + index * 512)
        return np.zeros(
            (len(nodes), self.system.workload.dataset.dim), dtype=np.float32
        )

    def batch(self, sampled: SampledBatch, rows: npt.NDArray[Any]) -> Batch:
        """Return a table without rows."""
        table = torch.from_numpy(rows).as_subclass(_Lazy)
        table.read = lambda which: self.system.read(sampled.nodes[which])
        return Batch(sampled, table)


@cheat("")
class NoTable(Act):
    """Gives the emulated device no table in measured epochs: it computes nothing, so it
    misses none."""

    def batch(self, sampled: SampledBatch, rows: npt.NDArray[Any]) -> Batch:
        """Return a batch without rows."""
        return (
            super().batch(sampled, rows) if sampled.epoch == 0 else Batch(sampled, None)
        )


@cheat("")
class HandsOutTheMap(Act):
    """Gives the emulated device the mapped file as its table, of which it computes
    nothing and so reads no row."""

    def prepare(self) -> None:
        """Map the features."""
        features = self.system.workload.dataset.memmap("features")
        advise_random(features)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of read-only maps
            self._table = torch.from_numpy(features)

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read nothing."""
        return np.empty((0, 0), dtype=np.float32)

    def batch(self, sampled: SampledBatch, rows: npt.NDArray[Any]) -> Batch:
        """Return the map, with node ids as rows."""
        return Batch(sampled, self._table, torch.from_numpy(sampled.nodes))
