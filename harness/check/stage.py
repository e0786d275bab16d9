"""Stage of one case: a small graph made by numpy alone, workload, oracle, device and
folders; epochs checked on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.check.case import Case, CheckedEpoch, Observation
from harness.check.oracle import Oracle, OwnBatches
from systems.interface import (
    DiskProfile,
    MemoryBudget,
    Runtime,
    StageClock,
    StagesWanted,
    System,
)
from workloads.accelerators.emulated import EmulatedAccelerator
from workloads.accelerators.make import make_accelerator
from workloads.accelerators.pool import DevicePool
from workloads.dataset import Dataset
from workloads.making.writer import DatasetWriter
from workloads.sampling.digest import EpochDigest, structure_digest
from workloads.sampling.distinct import distinct
from workloads.sampling.listing import find
from workloads.workload import ModelSpec, SamplerSpec, Workload


def make_dataset(folder: Path, case: Case) -> Dataset:
    """Open a case's graph, with hubs, isolated nodes and rows that all differ; make it
    in `folder` at first use."""
    shape = (case.nodes, case.edges, case.train, case.dim, case.dtype, case.index_dtype)
    path = folder / "-".join(str(part) for part in shape)
    if path.is_dir():
        return Dataset.open(path)
    rng = np.random.default_rng(7)
    nodes = case.nodes
    # Squared uniforms make hubs at low ids and leave high ids nearly alone.
    target = (nodes * rng.random(case.edges * 2) ** 2).astype(np.int64)
    source = (nodes * rng.random(case.edges * 2) ** 2).astype(np.int64)
    codes = rng.permutation(distinct(target * nodes + source))[: case.edges]
    codes.sort()
    indptr = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(codes // nodes, minlength=nodes), out=indptr[1:])
    order = rng.permutation(nodes)
    with DatasetWriter(path, recipe={"source": "outcore check"}) as writer:
        writer.write("indptr", indptr)
        writer.write("indices", (codes % nodes).astype(case.index_dtype))
        writer.write(
            "features", rng.standard_normal((nodes, case.dim)).astype(case.dtype)
        )
        writer.write("labels", rng.integers(0, 4, nodes))
        writer.write("train", np.sort(order[: case.train]))
        writer.write("valid", np.sort(order[case.train : case.train + 50]))
        writer.write("test", np.sort(order[case.train + 50 : case.train + 100]))
        writer.num_classes = 4
    return Dataset.open(path)


class Stage:
    """Environment of one case: dataset, workload, oracle, device, folders.

    Attributes:
        close_errors: errors of the system's `close()`, which end no case.
    """

    def __init__(
        self,
        folder: Path,
        case: Case,
        system: type[System],
        *,
        dataset: Dataset | None = None,
    ) -> None:
        self.close_errors: list[str] = []
        self.case = case
        self.system = system
        self.dataset = dataset or make_dataset(folder / "data", case)
        self.workload = make_workload(self.dataset, case)
        self._options = system.info.options.model_validate(case.options)
        self.oracle = self.make_oracle(self.workload)
        self.artefacts = folder / "artefacts"
        self.scratch = folder / "scratch"
        for path in (self.artefacts, self.scratch):
            path.mkdir(parents=True, exist_ok=True)

    def make_oracle(self, workload: Workload) -> Oracle:
        """Return the oracle of a workload: the expected mini-batches."""
        return Oracle(workload, self.system.oracle(workload, self._options))

    def own_batches(self) -> OwnBatches | None:
        """Return the checks of an unfaithful system's mini-batches; None where an
        oracle compares the workload's."""
        if self.system.is_faithful(self._options) and not self.oracle.own:
            return None
        return OwnBatches(self.oracle.features, self.oracle.indptr, self.oracle.indices)

    @property
    def device_bytes(self) -> int | None:
        """Bytes of device memory: rows of 12 largest mini-batches or, if fewer, of all
        nodes twice; None on the CPU."""
        if self.case.device == "cpu":
            return None
        row = int(self.oracle.features.shape[1]) * self.oracle.features.itemsize
        return (
            min(12 * self.oracle.largest_nodes, 2 * self.dataset.num_nodes)
            * row
            // 4096
            + 8
        ) * 4096

    @contextmanager
    def make(
        self,
        budget: MemoryBudget | None = None,
        stages: StagesWanted = "all",
        seed: int = 0,
        epochs: int = 0,
    ) -> Iterator[System]:
        """Make a system, for a training of `epochs` epochs, and its device; close both
        at the end, the system twice."""
        device_bytes = self.device_bytes
        emulated = device_bytes is not None and self.case.device.startswith("emulated")
        pool = (
            DevicePool.create(device_bytes or 0, "check", hidden=True)
            if emulated
            else None
        )
        accelerator = make_accelerator(
            self.case.device, memory_bytes=device_bytes, pool=pool
        )
        runtime = Runtime(
            accelerator=accelerator,
            disk=DiskProfile(),
            artefacts=self.artefacts,
            scratch=self.scratch,
            cores=self.case.cores,
            stages=stages,
            keep_order=self.case.keep_order,
            epochs=epochs,
        )
        workload = (
            self.workload
            if seed == 0
            else make_workload(self.dataset, self.case, seed=seed)
        )
        budget = budget or MemoryBudget(None, device_bytes)
        clock = StageClock()
        with closing(accelerator):
            system = self.system(workload, runtime, budget, self._options, clock)
            try:
                yield system
            finally:
                self.close(system, "close()")
                self.close(system, "close() after close()")

    def close(self, system: System, call: str) -> None:
        """Close a system; keep its error, if it raises one, as that of this `call`."""
        try:
            system.close()
        except Exception as error:
            self.close_errors.append(
                f"{call} raised {type(error).__name__}: {str(error)[:200]}"
            )

    @contextmanager
    def ready(self, **wanted: Any) -> Iterator[System]:
        """Make a system as `make` does, planned and prepared."""
        with self.make(**wanted) as system:
            system.plan()
            system.prepare()
            system.prepare_epochs(0)
            yield system


def make_workload(dataset: Dataset, case: Case, *, seed: int = 0) -> Workload:
    """Return the workload of a case."""
    sampler = SamplerSpec(
        case.sampler,
        fanout=case.fanout,
        replace=case.replace,
        batch_size=case.batch_size,
    )
    layers = 3 if find(case.sampler).one_subgraph else len(case.fanout)
    return Workload(dataset, sampler, ModelSpec(layers=layers, hidden=16), seed=seed)


def run_epoch(
    stage: Stage, system: System, number: int, trainer: Any = None
) -> CheckedEpoch:
    """Run one epoch as the worker does, trained if there is a trainer; check each
    mini-batch on arrival and release."""
    accelerator = system.runtime.accelerator
    if isinstance(accelerator, EmulatedAccelerator) and not accelerator.keeps_rows:
        accelerator.pool.overwrite()
    result = stage.oracle.expected(number)
    structure = EpochDigest()
    features = EpochDigest()
    late = EpochDigest()
    own = stage.own_batches()
    seeds: list[int] = []
    for batch in system.epoch(number):
        if batch.ready is not None:
            batch.ready()
        if batch.table is not None:
            batch = replace(batch, table=accelerator.seen_by_device(batch.table))
        structure.add(structure_digest(batch.sampled))
        result.indices.append(batch.sampled.index)
        result.rows += batch.sampled.num_nodes
        seeds.extend(batch.sampled.nodes[: batch.sampled.num_seeds].tolist())
        if batch.table is not None and (
            stage.oracle.own or not batch.first_layer_aggregated
        ):
            features.add(stage.oracle.digest(batch))
            if trainer is not None:
                step = trainer.step(
                    batch.sampled, batch.table, batch.rows, batch.first_layer_aggregated
                )
                result.losses.append(step.loss)
            # Time for the system to fill its other buffers; these rows must stay
            # unchanged.
            time.sleep(0.002)
            late.add(stage.oracle.digest(batch))
        if own is not None:
            own.add(
                batch.sampled,
                rows=batch.table is not None and not batch.first_layer_aggregated,
            )
        batch.release()
    result.structure = structure.hexdigest()
    result.features = features.hexdigest()
    result.late = late.hexdigest()
    if own is not None:
        result.own_features = own.features.hexdigest()
        result.foreign_edges = own.foreign_edges
    result.seeds_once = (
        len(seeds) == len(set(seeds)) and set(seeds) == stage.oracle.train
    )
    result.counters = system.counters().as_dict()
    return result


def note_error(
    observation: Observation, error: BaseException, dataset: Dataset | None
) -> None:
    """Record an exception, and whether it names the feature file and an offset."""
    observation.error = str(error)[:600]
    observation.error_type = type(error).__name__
    if dataset is not None:
        observation.error_file = str(dataset.file("features")) in str(error)
    observation.error_offset = (
        "offset" in str(error) and getattr(error, "offset", -1) >= 0
    )
