"""Seconds of training steps for a forecast: modelled on an emulated device, else
measured until they are stable."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from systems.forecast import Spread
from workloads.accelerator import Accelerator
from workloads.sampling.batch import SampledBatch
from workloads.training import Trainer
from workloads.workload import Workload

#: Range of measurements, as a share of their median, that counts as stable; no spread
#: is reported as less.
STABLE = 0.1
_LEAST_ROUNDS = 3
_MOST_ROUNDS = 10
_LONGEST_S = 20.0
_REPETITIONS = 3
_SLOW_STEP_S = 1.0


def until_stable(
    measure: Callable[[], float], clock: Callable[[], float] = time.monotonic
) -> list[float]:
    """Repeat a measurement until the range of the results is `STABLE`, at most ten
    times or about 20 s."""
    began = clock()
    found = [measure() for _ in range(_LEAST_ROUNDS)]
    while len(found) < _MOST_ROUNDS and clock() - began < _LONGEST_S:
        if max(found) - min(found) <= STABLE * np.median(found):
            break
        found.append(measure())
    return found


def spread_of(found: Sequence[float]) -> Spread:
    """Return the least and the greatest of measurements as multiples of their median,
    at least `STABLE` apart."""
    middle = float(np.median(found)) or 1.0
    return min(min(found) / middle, 1 - STABLE / 2), max(
        max(found) / middle, 1 + STABLE / 2
    )


class Steps:
    """Training steps of a workload on a device."""

    def __init__(self, workload: Workload, accelerator: Accelerator) -> None:
        dataset = workload.dataset
        self._accelerator = accelerator
        self._trainer = Trainer(
            workload.model, dataset.dim, dataset.num_classes, accelerator, workload.seed
        )
        self._dtype = dataset.feature_dtype
        self._dim = dataset.dim

    def modelled(self, batch: SampledBatch) -> float | None:
        """Return the seconds of a step on an emulated device; None on a real one."""
        return self._trainer.modelled_seconds(batch)

    def measured(self, batches: Sequence[SampledBatch]) -> list[float]:
        """Return seconds a node or edge (a step's time is close to linear in both), of
        repeated measurements.

        A mini-batch's fastest repetition counts, since a disturbance only adds time.
        """
        work = sum(batch.num_nodes + batch.num_edges for batch in batches)
        self._step(batches[0])  # includes one-off costs
        return until_stable(
            lambda: sum(self._fastest(batch) for batch in batches) / work
        )

    def _fastest(self, batch: SampledBatch) -> float:
        best = float("inf")
        for _ in range(_REPETITIONS):
            best = min(best, self._step(batch))
            if best > _SLOW_STEP_S:
                break
        return best

    def _step(self, batch: SampledBatch) -> float:
        import torch

        kind = getattr(torch, str(self._dtype))
        table: Any = torch.zeros(
            (batch.num_nodes, self._dim),
            dtype=kind,
            device=self._accelerator.torch_device,
        )
        start = time.perf_counter()
        self._trainer.step(batch, table)
        self._accelerator.synchronize()
        return time.perf_counter() - start
