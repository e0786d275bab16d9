"""The spec of a run's worker, made in one place: for runs, for their calibration and
for advice. Self-reliant partitions of the training nodes are made once for each
dataset, hops and ranks, outside cap and clock; the cache keeps the seconds spent, for
the record of every run that uses it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.foreign.systems import answers_challenge
from harness.progress import during
from harness.records.code import code_of
from harness.records.record import RunConfig
from harness.run import calibrate
from harness.run.series import Progress, Series
from harness.wire.protocol import WorkerSpec
from harness.worker.build import workload_of
from systems.engine.rank.partition import partition_training_nodes
from workloads.accelerators.pool import DevicePool
from workloads.dataset import Dataset
from workloads.workload import Workload

#: Environment variable `module:argument` with the stage clock of all runs, set by a
#: test of the measurement: the worker uses `module.stage_clock(argument)`, and the
#: record has it as a fact, so that the run is INVALID (rule 23).
TEST_CLOCK_VARIABLE = "OUTCORE_TEST_CLOCK"


@dataclass(frozen=True)
class MadePartition:
    """A partition file (`Workload.partition`), the seconds spent on making it, and
    whether it existed before."""

    path: Path
    seconds: float
    reused: bool


def partition(
    series: Series, config: RunConfig, dataset: Dataset
) -> MadePartition | None:
    """Return the partition of the training nodes among ranks, made if missing; None
    without a partition. A file without its seconds, left by a process killed between
    the two writes, is made again."""
    if config.partition == "none":
        return None
    key = f"{dataset.fingerprint.replace(':', '-')}-{len(config.fanout)}-{config.ranks}"
    file = series.results_root.absolute() / "cache" / f"partition-{key}.npz"
    known = (series.cache.get("partition", key) or {}).get("seconds")
    if file.exists() and isinstance(known, float):
        return MadePartition(file, known, reused=True)
    series.progress("partitioning the training nodes")
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{os.getpid()}-{file.name}")
    began = time.monotonic()
    partition_training_nodes(
        workload_of(config, dataset), config.ranks, hops=len(config.fanout)
    ).save(partial)
    seconds = time.monotonic() - began
    partial.rename(file)
    series.cache.put("partition", key, {"seconds": seconds})
    return MadePartition(file, seconds, reused=False)


def workload_of_run(series: Series, config: RunConfig, dataset: Dataset) -> Workload:
    """Return the workload of a run, as its worker builds it."""
    made = partition(series, config, dataset)
    return workload_of(config, dataset, partition=None if made is None else made.path)


def setting_of(series: Series, config: RunConfig) -> dict[str, Any]:
    """Return all that changes the cost of a run's preparation but not its content, as
    `artefacts.work_under` takes it.

    The cap as it was asked for, since its bytes differ a little from one calibration to
    the next.
    """
    held = {
        "isolation": series.isolation.name,
        "disk": [asdict(limit) for limit in series.limits(config)],
    }
    return {**held, "memory": config.memory, "cores": config.cores}


@contextmanager
def worker_spec(
    series: Series,
    config: RunConfig,
    dataset: Dataset,
    folder: Path,
    name: str,
    progress: Progress = lambda text: None,
) -> Iterator[tuple[WorkerSpec, list[DevicePool]]]:
    """Yield the spec of a run's worker without its host budget, and the memory of its
    emulated devices.

    Args:
        series, config, dataset: host, configuration and opened dataset of the run.
        folder, name: scratch folder of the run, and a name of its shared memory that is
            unique on the host.
        progress: called with a text for each step.
    """
    workload = workload_of_run(series, config, dataset)
    with during(progress, "sampling every mini-batch for the largest"):
        bounds = calibrate.batch_bounds(config, workload, series.cache)
    scratch = folder / "scratch"
    scratch.mkdir()
    emulated = config.ranks if config.device.startswith("emulated:") else 0
    size = config.device_memory_bytes or 0
    with ExitStack() as stack:
        # Allocated and touched outside the cap, for each run.
        pools = [
            stack.enter_context(DevicePool.create(size, f"{name}-{rank}"))
            for rank in range(emulated)
        ]
        spec = WorkerSpec(
            mode="run",
            config=config,
            dataset=str(dataset.path),
            artefacts=str(series.artefacts(config.system)),
            scratch=str(scratch),
            budget_host=None,
            budget_device=config.device_memory_bytes,
            pools=[pool.name for pool in pools],
            disk=series.disk_record(config)["limited"] or {},
            bounds=bounds,
            partition=None if workload.partition is None else str(workload.partition),
            setting=setting_of(series, config),
            code=code_of(config.system, config.sampler).system,
            challenge=answers_challenge(config.system),
            test_clock=os.environ.get(TEST_CLOCK_VARIABLE, ""),
        )
        yield spec, pools
