"""Shared tools of the system tests: one system on one small workload, driven by
hand."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from systems.interface import (
    DiskProfile,
    MemoryBudget,
    Progress,
    Runtime,
    StageClock,
    StagesWanted,
    System,
    silent,
)
from systems.registry import load
from workloads.accelerator import Accelerator
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.errors import BudgetError
from workloads.feature_table import batch_feature_digest
from workloads.sampling.digest import EpochDigest, feature_digest, structure_digest
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import ModelSpec, SamplerSpec, Workload


def workload_of(
    dataset: Dataset,
    batch_size: int = 20,
    fanout: tuple[int, ...] = (5, 5),
    **sampler: Any,
) -> Workload:
    return Workload(
        dataset,
        SamplerSpec(fanout=fanout, batch_size=batch_size, **sampler),
        ModelSpec(layers=len(fanout)),
    )


@contextmanager
def running(
    name: str,
    workload: Workload,
    *,
    device: str | Accelerator = "cpu",
    device_bytes: int = 64 << 20,
    budget: MemoryBudget | None = None,
    disk: DiskProfile | None = None,
    root: Path | None = None,
    cores: int = 2,
    stages: StagesWanted = "all",
    keep_order: bool = False,
    epochs: int = 0,
    prepare: bool = True,
    progress: Progress = silent,
    **options: Any,
) -> Iterator[System]:
    """Yield a planned and prepared system, closed at the end; its files are in `root`,
    else in a temporary folder."""
    if isinstance(device, str):
        device = make_accelerator(
            device, memory_bytes=None if device == "cpu" else device_bytes
        )
    with tempfile.TemporaryDirectory() as temporary:
        folder = root or Path(temporary)
        runtime = Runtime(
            device,
            disk or DiskProfile(),
            folder / "artefacts",
            folder / "scratch",
            cores,
            stages,
            keep_order,
            epochs=epochs,
            progress=progress,
        )
        system_class = load(name)
        chosen = system_class.info.options(**options)
        system = system_class(
            workload, runtime, budget or MemoryBudget(None), chosen, StageClock()
        )
        try:
            system.plan()
            if prepare:
                system.prepare()
                system.prepare_epochs(0)
            yield system
        finally:
            system.close()
            device.close()


def assert_refused(
    message: str, name: str, workload: Workload, **arguments: Any
) -> None:
    """Check that planning raises a BudgetError whose text matches `message`."""
    with (
        pytest.raises(BudgetError, match=message),
        running(name, workload, **arguments),
    ):
        pass


def run(system: System, epoch: int = 0) -> tuple[str, str, list[int]]:
    """Run an epoch; return its structure digest, feature digest and order of
    mini-batches."""
    structure = EpochDigest()
    features = EpochDigest()
    order = []
    for batch in system.epoch(epoch):
        structure.add(structure_digest(batch.sampled))
        assert batch.table is not None
        features.add(batch_feature_digest(batch.sampled, batch.table, batch.rows))
        order.append(batch.sampled.index)
        batch.release()
    return structure.hexdigest(), features.hexdigest(), order


def reference(workload: Workload, epoch: int = 0) -> tuple[str, str]:
    """Compute the digests that `run` must return, by the simplest code."""
    structure = EpochDigest()
    features = EpochDigest()
    sampler = make_sampler(workload)
    table = workload.dataset.load("features")
    for index, seeds in enumerate(make_seed_plan(workload).batches(epoch)):
        batch = sampler.sample(epoch, index, seeds)
        structure.add(structure_digest(batch))
        features.add(feature_digest(batch, table, batch.nodes))
    return structure.hexdigest(), features.hexdigest()
