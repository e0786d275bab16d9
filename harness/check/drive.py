"""Driver of one case: runs a system as the harness does and records an observation."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Generator
from contextlib import closing, suppress
from copy import copy
from pathlib import Path
from typing import cast

import numpy as np
import torch

from harness.check.case import Case, Observation
from harness.check.oracle import make_trainer
from harness.check.stage import Stage, make_workload, note_error, run_epoch
from systems.engine.store.artefacts import finished, unfinished
from systems.interface import Batch, MemoryBudget, System
from systems.loading.epoch_work import EpochWork
from systems.planning import least
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset
from workloads.errors import BudgetError
from workloads.feature_table import SplitTable

_GRACE_S = 3.0


def drive(folder: Path, case: Case, system: type[System]) -> Observation:
    """Run one case; an exception of the system becomes part of the observation."""
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
        "lengths": _lengths,
        "cut": _damaged,
        "cut-late": _cut_late,
        "gone": _damaged,
    }
    # Let libraries start threads and open files that stay until the process ends.
    system.load_libraries()
    torch.from_numpy(np.ones((512, 512), dtype=np.float32)).matmul(torch.ones(512, 512))
    if case.device.startswith("cuda"):
        _warm_up(case.device)
        # Sums in another order; Adam makes small differences of small gradients larger.
        observation.loss_tolerance = 1e-3
    # Exclude earlier objects (libraries, a test session) from every garbage collection,
    # and never ask whether some are excluded already: `gc.get_freeze_count()` walks
    # through all of them.
    gc.freeze()
    before = open_things()
    try:
        stage = Stage(folder, case, system)
        observation.own_oracle = stage.oracle.own
        actions[case.kind](stage, observation)
    except Exception as error:
        note_error(observation, error, stage.dataset if stage else None)
        print(f"case {case.name}:", file=sys.stderr)
        traceback.print_exception(error)
    observation.close_errors = list(dict.fromkeys(stage.close_errors)) if stage else []
    del stage
    observation.threads_left, observation.files_left = left_open(before)
    return observation


def _warm_up(device: str) -> None:
    """Use the device once, so that its driver starts its threads and opens its files,
    which stay."""
    with closing(make_accelerator(device, memory_bytes=1 << 20)) as accelerator:
        table = accelerator.allocate(4, 8, torch.float32)
        staging = accelerator.host_buffer(4096)
        rows = staging.view(torch.float32).view(-1, 8)
        accelerator.copy(table, rows[:4], torch.arange(4)).wait()
        accelerator.gather(SplitTable(table, rows), torch.arange(8))
        ones = torch.ones(64, 64, device=accelerator.torch_device)
        (ones @ ones).sum().item()
        accelerator.free(table)


def _run(
    stage: Stage, seen: Observation, budget: MemoryBudget | None = None, epochs: int = 2
) -> None:
    budget = budget or MemoryBudget(None, stage.device_bytes)
    trainer = None
    with stage.make(budget) as system:
        if stage.case.kind == "loss":
            trainer = make_trainer(stage.workload, system.runtime.accelerator)
        plan = system.plan()
        seen.plan_bytes = {
            "host": plan.total("host"),
            "device": plan.total("device"),
            "disk": plan.total("disk"),
        }
        seen.budget_bytes = {
            "host": budget.host,
            "device": budget.device,
            "disk": budget.disk,
        }
        system.prepare()
        work = EpochWork(system)
        for number in range(epochs):
            work.prepare(number)
            seen.epochs.append(run_epoch(stage, system, number, trainer))
    if trainer is not None:
        for epoch, losses in zip(seen.epochs, stage.oracle.losses(epochs), strict=True):
            epoch.expected_losses = losses


def _smallest(stage: Stage, seen: Observation) -> None:
    """Run three epochs in the smallest host budget that the plan accepts: a slot that
    is not released hangs."""

    def fits(host: int) -> bool:
        with stage.make(MemoryBudget(host, stage.device_bytes)) as system:
            try:
                system.plan()
            except BudgetError:
                return False
            return True

    smallest = least(fits, step=4096) if fits(1 << 30) else None
    if smallest is None:
        raise AssertionError(
            "plan() raises BudgetError with a host budget of 1 GiB for a graph of a "
            "few MB"
        )
    _run(stage, seen, MemoryBudget(smallest, stage.device_bytes), epochs=3)


def _sample_only(stage: Stage, seen: Observation) -> None:
    with stage.ready(stages="sample") as system:
        epoch = run_epoch(stage, system, 0)
    # Without a feature table there are no rows to compare.
    epoch.expected_features = epoch.own_features = epoch.late = epoch.features
    epoch.counters = {}
    seen.epochs.append(epoch)


def _abandon(stage: Stage, seen: Observation) -> None:
    with stage.ready() as system:
        batches = cast("Generator[Batch]", system.epoch(0))
        for _ in range(2):
            next(batches).release()
        batches.close()
        seen.epochs.append(run_epoch(stage, system, 0))


def _close(stage: Stage, seen: Observation) -> None:
    """Close the system while an epoch is under way and a mini-batch is held."""
    with stage.ready() as system:
        batches = cast("Generator[Batch]", system.epoch(0))
        held = next(batches)
        start = time.monotonic()
        stage.close(system, "close() in mid-epoch")
        seen.close_seconds = time.monotonic() - start
        if not stage.close_errors:  # else errors may follow from that
            held.release()
            batches.close()


def _lengths(stage: Stage, seen: Observation) -> None:
    """Prepare trainings of one epoch and of four, each from nothing: what is prepared
    once may not grow."""
    for epochs in (1, 4):
        for folder in (stage.artefacts, stage.scratch):
            shutil.rmtree(folder)
            folder.mkdir()
        with stage.make(epochs=epochs) as system:
            system.plan()
            system.prepare()
            files = [*stage.artefacts.rglob("*"), *stage.scratch.rglob("*")]
            seen.prepared_bytes[epochs] = sum(
                path.stat().st_size for path in files if path.is_file()
            )


def _artefacts(stage: Stage, seen: Observation) -> None:
    """Prepare twice, then for another seed: an artefact may be reused only for the
    workload it was made for."""
    # Artefacts of other cases with the same workload would be reused at once.
    shutil.rmtree(stage.artefacts)
    stage.artefacts.mkdir()
    made: set[Path] = set()
    for seed in (0, 0, 5):
        with stage.ready(seed=seed) as system:
            seen.reused.append(finished(stage.artefacts) == made != set())
            other = copy(stage)
            other.oracle = stage.make_oracle(
                make_workload(stage.dataset, stage.case, seed=seed)
            )
            seen.epochs.append(run_epoch(other, system, 0))
        made = finished(stage.artefacts)
    seen.unfinished = sorted(path.name for path in unfinished(stage.artefacts))
    if not made:
        seen.reused = []


def _own_copy(stage: Stage) -> Stage:
    """Return the stage over a copy of the dataset, which may be damaged."""
    path = stage.dataset.path.with_name(stage.dataset.name + "-damaged")
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(stage.dataset.path, path)
    copied = Stage(
        stage.artefacts.parent, stage.case, stage.system, dataset=Dataset.open(path)
    )
    copied.close_errors = stage.close_errors
    return copied


def _damaged(stage: Stage, seen: Observation) -> None:
    """Run an epoch on a feature file that was truncated to half before the start, or is
    gone."""
    stage = _own_copy(stage)
    seen.expected_failure = True
    features = stage.dataset.file("features")
    if stage.case.kind == "gone":
        features.unlink()
    else:
        os.truncate(features, features.stat().st_size // 2)
    try:
        with stage.ready() as system:
            seen.epochs.append(run_epoch(stage, system, 0))
    except Exception as error:
        note_error(seen, error, stage.dataset)


def _cut_late(stage: Stage, seen: Observation) -> None:
    """Truncate the feature file to 100 bytes of rows in mid-epoch; a system with all
    rows in memory may continue."""
    stage = _own_copy(stage)
    features = stage.dataset.file("features")
    try:
        with stage.ready() as system:
            next(batches := system.epoch(0)).release()
            os.truncate(features, stage.dataset.data_offset("features") + 100)
            for batch in batches:
                batch.release()
            system.prepare_epochs(1)
            seen.epochs.append(run_epoch(stage, system, 1))
    except Exception as error:
        seen.expected_failure = True
        note_error(seen, error, stage.dataset)


def open_things() -> tuple[set[int | None], list[str]]:
    """Return the current threads and open files of this process, mapped files
    included."""
    return {thread.ident for thread in threading.enumerate()}, _files()


def _files() -> list[str]:
    found = []
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{entry}"))  # noqa: PTH115
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.partition("/")[2]
        if path.endswith(".npy") or path.startswith("memfd:outcore"):
            found.append(f"map of /{path}")
    # DGL's libxsmm opens files once per process, at its first computation; a GPU's
    # driver opens its devices as needed.
    return [
        name
        for name in found
        if not any(part in name for part in ("/proc/", "/.libxsmm", "/dev/nvidia"))
    ]


def left_open(before: tuple[set[int | None], list[str]]) -> tuple[list[str], list[str]]:
    """Return the names of new threads and files that are still open after up to 3 s."""
    deadline = time.monotonic() + _GRACE_S
    while True:
        threads = [
            thread.name
            for thread in threading.enumerate()
            if thread.ident not in before[0]
        ]
        files = _files()
        for name in before[1]:
            with suppress(ValueError):
                files.remove(name)
        if (not threads and not files) or time.monotonic() > deadline:
            return threads, files
        # only then: a collection takes longer than the check of a small system
        gc.collect()
        time.sleep(0.05)
