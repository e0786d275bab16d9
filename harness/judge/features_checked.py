"""Check of the feature rows used in training against the dataset (methodology rule 26), after a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.judge.trace import TraceFacts
from harness.records.record import FeatureCheck
from harness.wire.protocol import EpochDone
from harness.wire.spots import VALUES, Spot, chosen, positions, rows_digest
from workloads.dataset import Dataset
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.sampling.neighbor import NeighborSampler
from workloads.workload import Workload

# A warm-up epoch with more bytes of feature rows than this is checked by its spots only.
WHOLE_BYTES = 8 << 30
# Neighbour lists up to this size are read whole: single pages, however few, would each wait for the disk.
_IN_MEMORY_BYTES = 2 << 30


def check_features(
    trace: TraceFacts,
    faithful: bool,
    epochs: Sequence[EpochDone],
    spots: Mapping[int, Sequence[Spot]],
    nonces: Mapping[int, bytes],
) -> tuple[list[FeatureCheck], str]:
    """Return the checks made, and the reason why an epoch has none; empty if all epochs have one.

    Args:
        trace: trace of the run's workload.
        faithful: whether the mini-batches have to equal the workload's; if not, rows are compared by the nodes that
            the worker reports.
        epochs: epochs as the worker reported them; the first one's `feature_digest` is compared if it is a warm-up.
        spots, nonces: feature rows reported for spot checks, and the number that decides the rows, by epoch.
    """
    workload, config = trace.workload, trace.config
    if config.stages == "sample" or not epochs:
        return [], ""
    found: list[FeatureCheck] = []
    reader, first = _Reader(workload), epochs[0]
    if faithful and config.ranks == 1 and first.feature_digest and config.warmup:
        table = workload.dataset.memmap("features")
        wanted = trace.feature_digest(first.epoch, lambda nodes: np.asarray(table[nodes]), WHOLE_BYTES)
        if wanted is not None:
            ok = wanted == first.feature_digest
            detail = "" if ok else "the rows of its mini-batches are not the dataset's"
            found.append(FeatureCheck(epoch=first.epoch, whole=True, ok=ok, detail=detail))
    for epoch in (entry.epoch for entry in epochs):
        told = {spot.batch: spot for spot in spots.get(epoch, ())}
        nonce = nonces.get(epoch)
        if nonce is not None and told:
            found += _spots(epoch, nonce, told, faithful, reader)
    left = [str(epoch.epoch) for epoch in epochs if not any(check.epoch == epoch.epoch for check in found)]
    return found, f"no row was checked in epoch {', '.join(left)}" if left else ""


def _spots(
    epoch: int, nonce: bytes, told: Mapping[int, Spot], faithful: bool, reader: _Reader
) -> Iterator[FeatureCheck]:
    """Check the spots of one epoch; a chosen mini-batch that a faithful system does not report counts as wrong."""
    world = len(reader.plans)
    for index in sorted(chosen(nonce, epoch, reader.plans[0].num_batches)):
        for rank in range(world):
            number = index * world + rank
            spot = told.get(number)
            if spot is not None:
                nodes = np.array(spot.nodes, dtype=np.int64)
                if faithful:
                    batch = reader.batch(epoch, index, rank)
                    nodes = batch[positions(nonce, epoch, index, len(batch))]
                detail = _compare(spot, nodes, reader)
                yield FeatureCheck(epoch=epoch, batch=number, rows=len(nodes), ok=not detail, detail=detail)
            elif faithful:  # a system that draws its own mini-batches may train fewer of them
                yield FeatureCheck(epoch=epoch, batch=number, ok=False, detail="its rows were not told")


def _compare(spot: Spot, nodes: npt.NDArray[np.int64], reader: _Reader) -> str:
    if len(spot.nodes) != len(nodes) or list(spot.nodes) != nodes.tolist():
        return "its nodes are not the mini-batch's"
    if not spot.values:
        return "" if spot.digest == rows_digest(nodes, reader.rows(nodes)) else "its rows are not the dataset's"
    wanted = reader.aggregates(nodes[:VALUES])
    values = np.array(spot.values, dtype=np.float64)
    tolerance = 2e-3 if reader.dataset.feature_dtype == np.float16 else 1e-5
    if values.shape == wanted.shape and np.allclose(values, wanted, rtol=tolerance, atol=tolerance):
        return ""
    return "its aggregated rows are not the dataset's"


class _Reader:
    """Reference for the run's checks: mini-batches sampled again, feature rows by direct reads."""

    def __init__(self, workload: Workload) -> None:
        self._workload, self.dataset = workload, workload.dataset
        self._ranks = [replace(workload, rank=rank) for rank in range(workload.world)]
        self.plans = [make_seed_plan(rank) for rank in self._ranks]

    @cached_property
    def _samplers(self) -> list[NeighborSampler]:
        # Most often the lists of the run before, since the runs of a series use one dataset.
        dataset = self.dataset
        held = _lists(dataset) if dataset.topology_bytes <= _IN_MEMORY_BYTES else {}
        return [make_sampler(rank, **held) for rank in self._ranks]

    def batch(self, epoch: int, index: int, rank: int) -> npt.NDArray[np.int64]:
        """Return the nodes of one mini-batch."""
        seeds = self.plans[rank].batches(epoch)[index]
        return np.asarray(self._samplers[rank].sample(epoch, index, seeds).nodes)

    def rows(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Read feature rows [k, dim] past the page cache."""
        from systems.engine.io.reader import RowReader

        dataset = self.dataset
        out = np.empty((len(nodes), dataset.dim), dtype=dataset.feature_dtype)
        with RowReader(
            dataset.file("features"),
            data_offset=dataset.data_offset("features"),
            num_rows=dataset.num_nodes,
            row_bytes=dataset.dim * dataset.feature_dtype.itemsize,
            depth=64,
        ) as reader:
            reader.read(nodes, out)
        return out

    def aggregates(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the first layer's aggregates over all in-neighbours, [k, width]."""
        from workloads.models import first_layer_rows

        dataset = self.dataset
        rows = first_layer_rows(
            self._workload.model, dataset.memmap("indptr"), dataset.memmap("indices"), dataset.memmap("features"), nodes
        )
        return np.asarray(rows)


_KEPT: dict[tuple[str, int], dict[str, Any]] = {}


def _lists(dataset: Dataset) -> dict[str, Any]:
    key = (dataset.fingerprint, dataset.topology_bytes)
    if key not in _KEPT:
        _KEPT.clear()
        _KEPT[key] = {"indptr": dataset.load("indptr"), "indices": dataset.load("indices")}
    return _KEPT[key]
