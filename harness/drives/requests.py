"""Requests of a run's first measured epoch, by repeating its reads; written as a job
and logs that plain fio replays.

Systems are deterministic, so an epoch that is repeated without training makes the
requests of the run; their numbers by size class are compared with the run's record.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.atomic import whole_file
from harness.cache import Cache
from harness.records.latency import no_latencies, rows
from harness.records.record import EpochRecord, Record
from harness.run import calibrate
from harness.run.places import Places
from harness.worker.build import workload_of
from systems import _native
from systems.engine.io.latency import size_class
from systems.interface import DiskProfile, Runtime, System
from systems.loading.epoch_work import EpochWork
from systems.planning import Planner
from systems.registry import load
from workloads.accelerator import Accelerator
from workloads.accelerators.make import make_accelerator
from workloads.accelerators.pool import DevicePool
from workloads.dataset import find_dataset
from workloads.errors import require
from workloads.sampling.bounds import BatchBounds, keep_bounds
from workloads.tempfolder import TemporaryFolder

JOB = "replay.fio"
_BYTES = 1


@dataclass(frozen=True)
class Stream:
    """Requests that one ring made of one file: uint64 [n, 3] of offset, bytes, and 1
    for a write; up to `depth` in flight."""

    path: Path
    depth: int
    requests: NDArray[np.uint64]

    @property
    def nbytes(self) -> int:
        """Bytes of all requests."""
        return int(self.requests[:, _BYTES].sum())


def requests_of(record: Record, data_root: Path, cache: Cache) -> list[Stream]:
    """Repeat a run up to its first measured epoch, without training and without a cap,
    and return the requests of that epoch.

    Raises:
        InputError: the run has no such epoch, is of several processes, makes no request
            of its own, or the repeated epoch makes others.
        DatasetError: the dataset is missing, or is another one.
    """
    _check(record)
    (epoch, *_) = record.measured
    with _system(record, data_root, cache) as system:
        system.plan()
        system.prepare()
        work = EpochWork(system)
        for number in range(epoch.epoch):
            work.prepare(number)
            _run(system, number)
        work.prepare(epoch.epoch)
        _native.start_request_log()
        try:
            _run(system, epoch.epoch)
        finally:
            taken = _native.take_request_log()
    streams = [
        Stream(Path(path), depth, flat.reshape(-1, 3)) for path, depth, flat in taken
    ]
    _compare(epoch, streams)
    return streams


def _check(record: Record) -> None:
    fix = "name another run of `outcore results list`"
    named = f"run {record.run_id}"
    require(bool(record.measured), f"{named} has no measured epoch", fix)
    require(record.config.ranks == 1, f"{named} is of several processes", fix)
    first = record.measured[0]
    why = no_latencies(record.system, [first.counters])
    require(bool(first.latencies), f"{named} has no requests to write: {why}", fix)


@contextmanager
def _system(record: Record, data_root: Path, cache: Cache) -> Iterator[System]:
    """Make the system of a run as its worker did, without a cap."""
    config = record.config
    dataset = find_dataset(config.dataset.name, data_root)
    same = dataset.fingerprint == config.dataset.fingerprint
    name = config.dataset.name
    require(same, f"dataset {name} is not that of the run", f"make {name} again")
    workload = workload_of(config, dataset)
    (bounds, *_) = calibrate.batch_bounds(config, workload, cache)
    keep_bounds(workload, BatchBounds.of_plain(bounds))
    kind = load(config.system)
    kind.load_libraries()
    profile = record.disk.get("limited") or record.disk.get("bare") or {}
    places = Places.of(data_root)
    with (
        TemporaryFolder(places.scratch_folder(), "requests") as scratch,
        closing(_accelerator(record)) as accelerator,
    ):
        runtime = Runtime(
            accelerator=accelerator,
            disk=DiskProfile.from_plain(profile),
            artefacts=places.artefacts_of(config.system),
            scratch=Path(scratch),
            cores=config.cores or _cores(),
            stages=config.stages,
            keep_order=config.keep_order,
            epochs=config.epochs,
        )
        options = kind.info.options.model_validate(config.options)
        planner = Planner(kind, workload, runtime, options, config.device)
        host = record.memory.budget_bytes
        with closing(planner.make(host, accelerator.memory_bytes)) as system:
            yield system


def _accelerator(record: Record) -> Accelerator:
    """Make the training device of a run; an emulated one copies in no time."""
    config = record.config
    device = config.device
    nbytes = config.device_memory_bytes
    if not device.startswith("emulated:"):
        return make_accelerator(device, memory_bytes=nbytes)
    pool = DevicePool.create(nbytes or 0, "requests", touch=False, hidden=True)
    return make_accelerator(device, memory_bytes=nbytes, pool=pool)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _run(system: System, epoch: int) -> None:
    """Take and release every mini-batch of an epoch."""
    for batch in system.epoch(epoch):
        if batch.ready is not None:
            batch.ready()
        batch.release()
    system.runtime.accelerator.synchronize()


def _compare(epoch: EpochRecord, streams: list[Stream]) -> None:
    """Raise InputError unless the requests are as many of each direction and size class
    as the epoch's readers and writers counted."""
    found: Counter[tuple[str, str]] = Counter()
    for stream in streams:
        for _, nbytes, write in stream.requests.tolist():
            direction = "write" if write else "read"
            found[direction, size_class(nbytes)] += 1
    expected = {
        (row.direction, row.size): row.requests for row in rows(epoch.latencies)
    }
    require(
        dict(found) == expected,
        f"the repeated epoch makes {found.total():,} requests, the run made "
        f"{sum(expected.values()):,}, or others",
        "repeat the run with this version and on this host, and trace that run",
    )


def write_replay(streams: list[Stream], folder: Path) -> Path:
    """Write `replay.fio` and a log for each stream to a folder; return the job's path.

    fio replays all streams at once, each with its own depth, without the run's pauses.

    Raises:
        InputError: a file that was read is gone (a scratch file of the system), or a
            path has white space, which fio's logs cannot have.
    """
    for stream in streams:
        path = str(stream.path)
        kept = stream.path.is_file() and not any(map(str.isspace, path))
        fix = "trace a run whose files stay, under a path without white space"
        require(kept, f"fio cannot read {path!r}: it is gone, or has white space", fix)
    job = [
        "# Replays the requests of a run's epoch: fio replay.fio, in this folder.",
        "[global]",
        "ioengine=io_uring",
        "direct=1",
        "thread",
        "fixedbufs",
        "group_reporting",
        "invalidate=1",
    ]
    folder.mkdir(parents=True, exist_ok=True)
    for number, stream in enumerate(streams):
        log = f"stream-{number}.log"
        with whole_file(folder / log, "the requests") as partial:
            partial.write_text(_log(stream), encoding="utf-8")
        # (Requests in batches: fio 3.33 never submits the rest of a log.)
        job += [f"[stream-{number}]", f"read_iolog={log}", f"iodepth={stream.depth}"]
    with whole_file(folder / JOB, "the job") as partial:
        partial.write_text("\n".join(job) + "\n", encoding="utf-8")
    return folder / JOB


def _log(stream: Stream) -> str:
    """Return a stream in version 2 of fio's log format."""
    path = stream.path
    lines = ["fio version 2 iolog", f"{path} add", f"{path} open"]
    for offset, nbytes, write in stream.requests.tolist():
        lines.append(f"{path} {'write' if write else 'read'} {offset} {nbytes}")
    return "\n".join([*lines, f"{path} close", ""])
