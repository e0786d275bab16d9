"""Driver of one case: runs a system as the harness does and records an observation."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, cast

import numpy as np

from harness.check.case import Case, Epoch, Observation
from harness.check.data import make_dataset
from harness.check.oracle import Oracle, make_trainer
from harness.check.own import OwnBatches
from systems.interface import Batch, DiskProfile, MemoryBudget, Runtime, StageClock, StagesWanted, System
from workloads.accelerator import Accelerator
from workloads.accelerators.emulated import EmulatedAccelerator
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.errors import BudgetError
from workloads.sampling.digest import EpochDigest, structure_digest
from workloads.sampling.listing import find
from workloads.workload import ModelSpec, SamplerSpec, Workload

_GRACE_S = 3.0


class Stage:
    """Environment of one case: dataset, workload, oracle, device, folders."""

    def __init__(self, folder: Path, case: Case, system: type[System], *, dataset: Dataset | None = None) -> None:
        self.case = case
        self.system = system
        self.dataset = dataset or make_dataset(folder / "data", case)
        self.workload = make_workload(self.dataset, case)
        self.oracle = self.make_oracle(self.workload)
        self.artefacts = folder / "artefacts"
        self.scratch = folder / "scratch"
        for path in (self.artefacts, self.scratch):
            path.mkdir(parents=True, exist_ok=True)

    def make_oracle(self, workload: Workload) -> Oracle:
        """Return the oracle of a workload: the expected mini-batches."""
        options = self.system.info.options.model_validate(self.case.options)
        return Oracle(workload, self.system.oracle(workload, options))

    def own_batches(self) -> OwnBatches | None:
        """Return the checks of an unfaithful system's mini-batches; None where an oracle compares the workload's."""
        if self.system.is_faithful(self.system.info.options.model_validate(self.case.options)) and not self.oracle.own:
            return None
        return OwnBatches(self.oracle.features, self.oracle.indptr, self.oracle.indices)

    @property
    def device_bytes(self) -> int | None:
        """Bytes of device memory: rows of 12 largest mini-batches or, if fewer, of all nodes twice; None on the CPU."""
        if self.case.device == "cpu":
            return None
        row = int(self.oracle.features.shape[1]) * self.oracle.features.itemsize
        return (min(12 * self.oracle.largest_nodes, 2 * self.dataset.num_nodes) * row // 4096 + 8) * 4096

    @contextmanager
    def make(
        self, budget: MemoryBudget | None = None, *, stages: StagesWanted = "all", seed: int = 0, **options: Any
    ) -> Iterator[System]:
        """Make a system and its device; close both at the end."""
        accelerator = make_accelerator(self.case.device, memory_bytes=self.device_bytes)
        try:
            system = self._build(accelerator, budget, stages, seed, options)
            try:
                yield system
            finally:
                system.close()
                system.close()  # a second call has to be harmless
        finally:
            accelerator.close()

    @contextmanager
    def ready(self, **wanted: Any) -> Iterator[System]:
        """Make a system as `make` does, planned and prepared."""
        with self.make(**wanted) as system:
            system.plan()
            system.prepare()
            yield system

    def _build(
        self,
        accelerator: Accelerator,
        budget: MemoryBudget | None,
        stages: StagesWanted,
        seed: int,
        options: dict[str, Any],
    ) -> System:
        runtime = Runtime(
            accelerator=accelerator,
            disk=DiskProfile(),
            artefacts=self.artefacts,
            scratch=self.scratch,
            cores=self.case.cores,
            stages=stages,
            keep_order=self.case.keep_order,
        )
        chosen = self.system.info.options.model_validate({**self.case.options, **options})
        workload = self.workload if seed == 0 else make_workload(self.dataset, self.case, seed=seed)
        return self.system(workload, runtime, budget or MemoryBudget(None, self.device_bytes), chosen, StageClock())


def make_workload(dataset: Dataset, case: Case, *, seed: int = 0) -> Workload:
    """Return the workload of a case."""
    sampler = SamplerSpec(case.sampler, fanout=case.fanout, replace=case.replace, batch_size=case.batch_size)
    layers = 3 if find(case.sampler).one_subgraph else len(case.fanout)
    return Workload(dataset, sampler, ModelSpec(layers=layers, hidden=16), seed=seed)


def drive(folder: Path, case: Case, system: type[System]) -> Observation:
    """Run one case; an exception of the system becomes part of the observation."""
    from harness.check import faults

    observation = Observation(case.name, case.kind)
    stage: Stage | None = None
    actions = {
        "run": _run,
        "loss": _run,
        "smallest": _smallest,
        "sample-only": _sample_only,
        "abandon": _abandon,
        "close": _close,
        "artefacts": _artefacts,
        "cut": faults.cut,
        "cut-late": faults.cut_late,
        "gone": faults.gone,
    }
    _warm_up(system)
    # Exclude earlier objects (libraries, a test session) from every garbage collection, and never ask whether some are
    # excluded already: `gc.get_freeze_count()` walks through all of them.
    gc.freeze()
    before = open_things()
    try:
        stage = Stage(folder, case, system)
        observation.own_oracle = stage.oracle.own
        actions[case.kind](stage, observation)
    except Exception as error:
        note_error(observation, error, stage.dataset if stage else None)
    del stage
    observation.threads_left, observation.files_left = left_open(before)
    return observation


def note_error(observation: Observation, error: BaseException, dataset: Dataset | None) -> None:
    """Record an exception, and whether it names the feature file and an offset."""
    observation.error = str(error)[:600]
    observation.error_type = type(error).__name__
    if dataset is not None:
        observation.error_file = str(dataset.file("features")) in str(error)
    observation.error_offset = "offset" in str(error) and getattr(error, "offset", -1) >= 0


def _run(stage: Stage, seen: Observation) -> None:
    budget = MemoryBudget(None, stage.device_bytes)
    with stage.make(budget) as system:
        _note_plan(seen, system, budget)
        system.prepare()
        trainer = make_trainer(stage.workload) if stage.case.kind == "loss" else None
        for number in range(2):
            seen.epochs.append(run_epoch(stage, system, number, trainer))
    if trainer is not None:
        for epoch, losses in zip(seen.epochs, stage.oracle.losses(2), strict=True):
            epoch.expected_losses = losses


def _note_plan(seen: Observation, system: System, budget: MemoryBudget) -> None:
    plan = system.plan()
    seen.plan_bytes = {"host": plan.total("host"), "device": plan.total("device"), "disk": plan.total("disk")}
    seen.budget_bytes = {"host": budget.host, "device": budget.device, "disk": budget.disk}


def run_epoch(stage: Stage, system: System, number: int, trainer: Any = None) -> Epoch:
    """Run one epoch as the worker does; check each mini-batch on arrival and again before its release.

    Args:
        number: number of the epoch.
        trainer: trains on each mini-batch and records its loss; None: no training.
    """
    accelerator = system.runtime.accelerator
    if isinstance(accelerator, EmulatedAccelerator) and not accelerator.keeps_rows:
        accelerator.pool.overwrite()
    expected = stage.oracle.expected(number)
    result = Epoch(
        expected_structure=expected.structure, expected_features=expected.features, expected_batches=expected.batches
    )
    structure, features, late = EpochDigest(), EpochDigest(), EpochDigest()
    own = stage.own_batches()
    seeds: list[int] = []
    for batch in system.epoch(number):
        if batch.ready is not None:
            batch.ready()
        structure.add(structure_digest(batch.sampled))
        result.indices.append(batch.sampled.index)
        result.rows += batch.sampled.num_nodes
        seeds.extend(batch.sampled.nodes[: batch.sampled.num_seeds].tolist())
        if batch.table is not None and (stage.oracle.own or not batch.first_layer_aggregated):
            features.add(stage.oracle.digest(batch))
            if trainer is not None:
                step = trainer.step(batch.sampled, batch.table, batch.rows, batch.first_layer_aggregated)
                result.losses.append(step.loss)
            # Time for the system to fill its other buffers; these rows must stay unchanged.
            time.sleep(0.002)
            late.add(stage.oracle.digest(batch))
        if own is not None:
            own.add(batch.sampled, rows=batch.table is not None and not batch.first_layer_aggregated)
        batch.release()
    result.structure, result.features, result.late = structure.hexdigest(), features.hexdigest(), late.hexdigest()
    if own is not None:
        result.own_features, result.strangers = own.features.hexdigest(), own.strangers
    result.seeds_once = len(seeds) == len(set(seeds)) and set(seeds) == stage.oracle.train
    result.counters = system.counters().as_dict()
    return result


def _smallest(stage: Stage, seen: Observation) -> None:
    """Run three epochs in the smallest host budget that the plan accepts: a slot that is not released hangs."""

    def fits(host: int) -> bool:
        with stage.make(MemoryBudget(host, stage.device_bytes)) as system:
            try:
                system.plan()
            except BudgetError:
                return False
            return True

    low, high = -1, 1 << 30
    if not fits(high):
        raise AssertionError("plan() raises BudgetError with a host budget of 1 GiB for a graph of a few MB")
    while high - low > 4096:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    budget = MemoryBudget(high, stage.device_bytes)
    with stage.make(budget) as system:
        _note_plan(seen, system, budget)
        system.prepare()
        for number in range(3):
            seen.epochs.append(run_epoch(stage, system, number))


def _sample_only(stage: Stage, seen: Observation) -> None:
    with stage.ready(stages="sample") as system:
        epoch = run_epoch(stage, system, 0)
    # Without a feature table there are no rows to compare.
    epoch.expected_features = epoch.features
    epoch.late = epoch.features
    epoch.counters = {}
    seen.epochs.append(epoch)


def _abandon(stage: Stage, seen: Observation) -> None:
    with stage.ready() as system:
        batches = _begun(system)
        for _ in range(2):
            next(batches).release()
        batches.close()
        seen.epochs.append(run_epoch(stage, system, 0))


def _close(stage: Stage, seen: Observation) -> None:
    """Close the system while an epoch is under way and a mini-batch is held."""
    with stage.ready() as system:
        batches = _begun(system)
        held = next(batches)
        start = time.monotonic()
        system.close()
        seen.close_seconds = time.monotonic() - start
        held.release()
        batches.close()


def _begun(system: System) -> Generator[Batch]:
    """Begin the first epoch; every system's mini-batches come from a generator, which can be closed."""
    return cast("Generator[Batch]", system.epoch(0))


def _artefacts(stage: Stage, seen: Observation) -> None:
    """Prepare twice, then for another seed: an artefact may be reused only for the workload it was made for."""
    # Artefacts of other cases with the same workload would be reused at once.
    shutil.rmtree(stage.artefacts)
    stage.artefacts.mkdir()
    for seed in (0, 0, 5):
        with stage.ready(seed=seed) as system:
            seen.reused.append(system.facts().prepared_reused is True)
            if seed == 0:
                seen.epochs.append(run_epoch(stage, system, 0))
            else:
                other = copy(stage)
                other.oracle = stage.make_oracle(make_workload(stage.dataset, stage.case, seed=seed))
                seen.epochs.append(run_epoch(other, system, 0))
    if not any(path.is_file() for path in stage.artefacts.rglob("*")):
        seen.reused = []


def open_things() -> tuple[set[int | None], list[str]]:
    """Return the current threads and open files of this process, mapped files included."""
    threads = {thread.ident for thread in threading.enumerate()}
    return threads, _files()


def _files() -> list[str]:
    found = []
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            found.append(os.readlink(f"/proc/self/fd/{entry}"))  # noqa: PTH115
        except OSError:
            continue
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.partition("/")[2]
        if path.endswith(".npy") or path.startswith("memfd:outcore"):
            found.append(f"map of /{path}")
    # DGL's libxsmm opens files once per process, at its first computation.
    return [name for name in found if "/proc/" not in name and "/.libxsmm" not in name]


def left_open(before: tuple[set[int | None], list[str]]) -> tuple[list[str], list[str]]:
    """Return the names of new threads and files that are still open after up to 3 s."""
    deadline = time.monotonic() + _GRACE_S
    while True:
        threads = [thread.name for thread in threading.enumerate() if thread.ident not in before[0]]
        files = _files()
        for name in before[1]:
            if name in files:
                files.remove(name)
        if (not threads and not files) or time.monotonic() > deadline:
            return threads, files
        gc.collect()  # only then: a collection takes longer than the check of a small system
        time.sleep(0.05)


def _warm_up(system: type[System]) -> None:
    """Let libraries start threads and open files that stay until the process ends."""
    import torch

    system.load_libraries()
    torch.from_numpy(np.ones((512, 512), dtype=np.float32)).matmul(torch.ones(512, 512))
