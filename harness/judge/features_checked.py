"""Check of the feature rows used in training against the dataset (methodology rule 26), after a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.cache import Cache
from harness.judge.trace_facts import TraceFacts
from harness.records.record import FeatureCheck, RunConfig
from harness.wire.protocol import EpochDone
from harness.wire.spots import VALUES, Spot, chosen, positions, rows_digest
from workloads.dataset import Dataset
from workloads.workload import Workload

# A warm-up epoch with more bytes of feature rows than this is checked by its spots only.
WHOLE_BYTES = 8 << 30
# Neighbour lists up to this size are read whole: single pages, however few, would each wait for the disk.
_IN_MEMORY_BYTES = 2 << 30


def check_features(
    workload: Workload,
    config: RunConfig,
    faithful: bool,
    epochs: Sequence[EpochDone],
    spots: Sequence[Spot],
    nonces: dict[int, bytes],
    cache: Cache | None,
) -> tuple[list[FeatureCheck], str]:
    """Return the checks made, and the reason why an epoch has none; empty if all epochs have one.

    Args:
        workload, config: workload and configuration of the run.
        faithful: whether the mini-batches have to equal the workload's; if not, rows are compared by the nodes that
            the worker reports.
        epochs: epochs as the worker reported them; the first one's `feature_digest` is compared if it is a warm-up.
        spots, nonces: feature rows reported for spot checks, and the number that decides the rows, by epoch.
        cache: cache of trace facts; None: without one.
    """
    if config.stages == "sample" or not epochs:
        return [], ""
    found: list[FeatureCheck] = []
    reader = _Reader(workload)
    if faithful and config.ranks == 1 and epochs[0].feature_digest and config.warmup:
        found += _whole(workload, config, epochs[0], reader, cache)
    for epoch in epochs:
        mine = [spot for spot in spots if spot.epoch == epoch.epoch]
        nonce = nonces.get(epoch.epoch)
        if nonce is not None and mine:
            found += _spots(workload, epoch.epoch, nonce, mine, faithful, reader)
    left = [str(epoch.epoch) for epoch in epochs if not any(check.epoch == epoch.epoch for check in found)]
    return found, f"no row was checked in epoch {', '.join(left)}" if left else ""


def _whole(
    workload: Workload, config: RunConfig, epoch: EpochDone, reader: _Reader, cache: Cache | None
) -> list[FeatureCheck]:
    facts = TraceFacts(workload, config, cache)
    table = workload.dataset.memmap("features")
    wanted = facts.feature_digest(epoch.epoch, lambda nodes: np.asarray(table[nodes]), WHOLE_BYTES)
    if wanted is None:
        return []
    ok = wanted == epoch.feature_digest
    detail = "" if ok else "the rows of its mini-batches are not the dataset's"
    return [FeatureCheck(epoch=epoch.epoch, whole=True, ok=ok, detail=detail)]


def _spots(
    workload: Workload, epoch: int, nonce: bytes, spots: Sequence[Spot], faithful: bool, reader: _Reader
) -> list[FeatureCheck]:
    """Check the spots of one epoch; a chosen mini-batch that a faithful system does not report counts as wrong."""
    world = workload.world
    found = []
    told = {spot.batch: spot for spot in spots}
    per_rank = reader.num_batches
    for index in sorted(chosen(nonce, epoch, per_rank)):
        for rank in range(world):
            number = index * world + rank
            spot = told.get(number)
            if spot is None:
                # A system that draws its own mini-batches may train fewer of them.
                if faithful:
                    found.append(FeatureCheck(epoch=epoch, batch=number, ok=False, detail="its rows were not told"))
                continue
            nodes = np.array(spot.nodes, dtype=np.int64)
            if faithful:
                batch = reader.batch(epoch, index, rank)
                nodes = batch[positions(nonce, epoch, index, len(batch))]
            detail = _compare(spot, nodes, reader)
            found.append(FeatureCheck(epoch=epoch, batch=number, rows=len(nodes), ok=not detail, detail=detail))
    return found


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
        from workloads.sampling.make import make_seed_plan

        self._workload = workload
        self.dataset: Dataset = workload.dataset
        self._plans = [make_seed_plan(replace(workload, rank=rank)) for rank in range(workload.world)]
        self._samplers: list[Any] = []
        self.num_batches = self._plans[0].num_batches

    def batch(self, epoch: int, index: int, rank: int) -> npt.NDArray[np.int64]:
        """Return the nodes of one mini-batch."""
        if not self._samplers:
            self._samplers = [
                _sampler(replace(self._workload, rank=rank), self.dataset) for rank in range(self._workload.world)
            ]
        seeds = self._plans[rank].batches(epoch)[index]
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


def _sampler(workload: Workload, dataset: Dataset) -> Any:
    from workloads.sampling.make import make_sampler

    key = (dataset.fingerprint, dataset.topology_bytes)
    if dataset.topology_bytes > _IN_MEMORY_BYTES:
        return make_sampler(workload)
    if key not in _KEPT:
        # The runs of a series use one dataset, so the last dataset's lists suffice.
        _KEPT.clear()
        _KEPT[key] = {"indptr": dataset.load("indptr"), "indices": dataset.load("indices")}
    return make_sampler(workload, **_KEPT[key])
