"""Prediction of epochs on any drive from the counters of runs made elsewhere and the
drive's profile."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Literal

from harness.compare.comparable import workload_key
from harness.isolation.base import IoLimit
from harness.judge.metrics import usable_processors
from harness.judge.predict import Prediction, at_depth, predict
from harness.records.hosts import host_fingerprint, host_name
from harness.records.record import COUNTED, Record
from harness.ssd.classes import DiskClass, load_classes, parse_disk_class
from harness.ssd.drive import Drive, drive_path, read_drive, saved_drives
from harness.ssd.identity import same_drive
from harness.ssd.profile import better_of, expected
from systems.readings import DiskPoint, DiskProfile
from workloads.errors import InputError, OutcoreError

# A class known by its limits alone is a device that reaches them at any depth.
_CLASS_DEPTH = 256
_CLASS_SIZES = (512, 4096, 16384, 65536, 262144, 1 << 20)


@dataclass(frozen=True)
class Device:
    """Drive as predictions use it. `source` of the rates: `profile` (fio), `limits` (of
    a class, so without latency) or `limits, runs` (of a class; few reads in flight as
    on the device of the runs, see `behind`). `host`: name of the only host whose runs
    count as runs on it; None for any."""

    name: str
    profile: DiskProfile
    source: Literal["profile", "limits", "limits, runs"]
    drive: Drive | None = None
    disk_class: str = ""
    host: str | None = None

    @property
    def limited(self) -> bool:
        """Whether the limits of a class hold."""
        return self.disk_class not in ("", "none")


@dataclass(frozen=True)
class EpochForecast:
    """Predicted epoch of one system on a device: the median over the epochs with
    counters; device, training and the `bound` that the epoch waits for are of the epoch
    nearest to it. `runs` and `counted_on`: ids and disk classes of the runs whose
    counters were used. `measured_s`: median epoch of runs on this very drive or class,
    None without any.
    """

    system: str
    workload: str
    device: str
    seconds: float
    device_s: float
    train_s: float
    bound: str
    runs: tuple[str, ...]
    counted_on: tuple[str, ...]
    measured_s: float | None = None
    options: str = ""

    @property
    def error(self) -> float | None:
        """Share by which the prediction is off, None where nothing was measured."""
        return None if self.measured_s is None else self.seconds / self.measured_s - 1.0


def device_of(text: str, results_root: Path) -> Device:
    """Return a device by the name of a saved profile, the path of a profile's file, or
    a class `NAME[/k]`. Raises InputError: `text` is none of these."""
    path = Path(text)
    if path.suffix == ".json" and path.is_file():
        return device_from(read_drive(path))
    saved, _ = saved_drives(results_root)
    for drive in saved:
        if text in (drive.name, drive_path(results_root, drive.name).stem):
            return device_from(drive)
    if text.partition("/")[0] in load_classes():
        found = parse_disk_class(text)
        assert found is not None
        return Device(found.name, class_profile(found), "limits", None, found.name)
    if path.suffix == ".json":
        raise InputError(
            f"{text} does not exist",
            "give the file of a profile, made by `outcore ssd profile`",
        )
    known = [drive.name for drive in saved] + list(load_classes())
    raise InputError(
        f"there is no drive {text!r}",
        f"known: {', '.join(known)}, or the file of a profile",
    )


def class_profile(
    disk_class: DiskClass, bare: DiskProfile | None = None
) -> DiskProfile:
    """Return a class as a profile: the rates that its limits allow at each block size.
    `bare`, the device that is limited to the class, bounds the rates with few reads in
    flight where it is known."""
    requests = disk_class.read_iops
    bandwidth = disk_class.read_bytes_per_s
    limits = [IoLimit("", requests, bandwidth)]
    points = []
    for size in _CLASS_SIZES:
        rate = expected(limits, size)
        if math.isfinite(rate):
            points.append(DiskPoint(size, _CLASS_DEPTH, rate, rate * size))
    for point in bare.points if bare else ():
        if point.pattern == "random" and point.depth < _CLASS_DEPTH:
            size = point.block_bytes
            iops = min(point.iops, expected(limits, size))
            points.append(DiskPoint(size, point.depth, iops, iops * size))
    if bandwidth:
        points.append(
            DiskPoint(1 << 20, 8, bandwidth / (1 << 20), float(bandwidth), "sequential")
        )
    limited = (float(requests or 0), float(bandwidth or 0))
    return DiskProfile(
        tuple(points),
        512,
        "limits of the class",
        limited,
        write_cost=disk_class.write_cost,
    )


def bare_of(records: Iterable[Record]) -> DiskProfile | None:
    """Return the device without limits, each point at its best rate over the records'
    profiles; None without any. A virtual device has slow moments, and a run's profile
    may have been taken in one."""
    profiles = [
        DiskProfile(points) for record in records if (points := _bare_points(record))
    ]
    return functools.reduce(better_of, profiles) if profiles else None


def _bare_points(record: Record) -> tuple[DiskPoint, ...]:
    return tuple(
        DiskPoint(**point)
        for point in (record.disk.get("bare") or {}).get("points", [])
    )


def behind(device: Device, records: Iterable[Record]) -> Device:
    """Return a class known by its limits alone, with few reads in flight as slow as on
    the device of the runs. A class is emulated by limiting that device, so its latency
    stays. Runs of the most frequent kind of host count. A device with a profile of its
    own, or without such runs, is returned unchanged."""
    limits = parse_disk_class(device.disk_class) if device.source == "limits" else None
    if limits is None:
        return device
    hosts: dict[str, list[Record]] = {}
    for record in records:
        shallow = [
            point
            for point in _bare_points(record)
            if (point.pattern, point.depth) == ("random", 1)
        ]
        if shallow and usable(record):
            hosts.setdefault(host_fingerprint(record.environment), []).append(record)
    most: list[Record] = max(hosts.values(), key=len, default=[])
    bare = bare_of(most)
    if bare is None:
        return device
    return replace(device, profile=class_profile(limits, bare), source="limits, runs")


def workload_name(record: Record) -> str:
    """Return a workload in words, without the system."""
    config = record.config
    batches = f" x {config.max_batches}" if config.max_batches else ""
    return (
        f"{config.dataset.name}, {config.model}, {config.sampler}, batch "
        f"{config.batch_size}{batches}, memory {config.memory}, {config.device}"
    )


def usable(record: Record) -> bool:
    """Return whether a run ended and counts, was made under a cap, and had its I/O
    counted by the kernel."""
    return (
        record.status == "ok"
        and record.verdict in COUNTED
        and record.config.memory != "none"
        and record.config.stages == "all"
        and any(epoch.device_bytes is not None for epoch in record.measured)
    )


def ran_on(record: Record, device: Device) -> bool:
    """Return whether a run's data were on this device: of the same class, or on the
    same bare drive. Where the run or the profile names no drive (older versions), equal
    model and capacity suffice, see `only_alike`. A profile of a labelled host counts
    for runs of that label alone."""
    if device.host is not None and device.host != host_name(record.environment):
        return False
    labels = [record.environment.get("host_label")]
    if device.drive is not None:
        labels.append(device.drive.host_label)
    if len(set(filter(None, labels))) > 1:
        return False
    if device.limited:
        return record.config.disk_class == device.disk_class
    if record.config.disk_class != "none" or device.drive is None:
        return False
    disk = record.environment.get("disk") or {}
    identity = device.drive.identity
    same = _same_drive(record, device.drive)
    alike = (disk.get("model"), disk.get("size_bytes")) == (
        identity.model,
        identity.capacity_bytes,
    )
    return alike if same is None else same


def on_each_host(device: Device, records: Iterable[Record]) -> list[Device]:
    """Return a device for each host with usable runs on it, named after both, so that
    hosts are never averaged; the device itself where one host or none has any."""
    made_on = [
        host_name(record.environment)
        for record in records
        if usable(record) and ran_on(record, device)
    ]
    hosts = sorted(set(made_on))
    if len(hosts) < 2:
        return [device]
    return [
        replace(device, name=f"{device.name} on {host or 'unknown'}", host=host)
        for host in hosts
    ]


def only_alike(record: Record, device: Device) -> bool:
    """Return whether a run counts as one on a bare drive by model and capacity
    alone."""
    bare = None if device.limited else device.drive
    return (
        bare is not None
        and ran_on(record, device)
        and _same_drive(record, bare) is None
    )


def _same_drive(record: Record, drive: Drive) -> bool | None:
    disk = record.environment.get("disk") or {}
    return same_drive(disk, drive.identity.model_dump())


def counts_for(record: Record, device: Device) -> bool:
    """Return whether the run's counters hold for the system's reads on that device
    (`SystemInfo.reads_by_device`)."""
    from systems.registry import load

    if ran_on(record, device):
        return True
    try:
        return not load(record.system).info.reads_by_device
    except OutcoreError:
        return True  # a user's own system that is not installed


def left_out(records: Iterable[Record], device: Device) -> list[str]:
    """Return the systems that `forecasts` omits although they were run: none of their
    counters hold for the device."""
    runs = [record for record in records if usable(record)]
    known = {record.system for record in runs if counts_for(record, device)}
    return sorted({record.system for record in runs} - known)


def train_seconds(record: Record, epoch: int) -> float | None:
    """Return the recorded seconds of an epoch's training steps alone; None without a
    record."""
    value = (record.compute.get("train_s") or {}).get(str(epoch))
    return float(value) if value is not None else None


def predict_record(record: Record, profile: DiskProfile) -> list[Prediction]:
    """Predict each measured epoch of a run on a device with that profile."""
    first = record.facts.reads_in == ("data_prep",)
    faults = usable_processors(record)
    pages = at_depth(profile, faults) if faults else None
    made = []
    for epoch in record.measured:
        depth = int(epoch.counters.get("queue_depth") or 0)
        seen = at_depth(profile, depth) if depth else profile
        prediction = predict(
            epoch,
            seen,
            train_seconds(record, epoch.epoch),
            reads_first=first,
            pages=pages,
        )
        if prediction is not None:
            made.append(prediction)
    return made


def typical(made: Sequence[Prediction]) -> tuple[float, Prediction]:
    """Return the median of predicted seconds, and the prediction nearest to it."""
    middle = statistics.median(entry.seconds for entry in made)
    return middle, min(made, key=lambda entry: abs(entry.seconds - middle))


def forecasts(records: Iterable[Record], device: Device) -> list[EpochForecast]:
    """Return one forecast per system and workload with usable runs, fastest first
    within a workload."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if usable(record) and counts_for(record, device):
            groups.setdefault(workload_key(record.config), []).append(record)
    found = [_forecast(group, device) for group in groups.values()]
    return sorted(filter(None, found), key=attrgetter("workload", "seconds"))


def _forecast(runs: Sequence[Record], device: Device) -> EpochForecast | None:
    """Return the forecast of runs of one system and workload; None without counters."""
    predicted = [(run, predict_record(run, device.profile)) for run in runs]
    known = [run for run, predictions in predicted if predictions]
    if not known:
        return None
    seconds, nearest = typical(
        [entry for _, predictions in predicted for entry in predictions]
    )
    measured = [
        epoch.seconds for run in runs if ran_on(run, device) for epoch in run.measured
    ]
    options = sorted(runs[0].config.options.items())
    return EpochForecast(
        system=runs[0].system,
        workload=workload_name(runs[0]),
        device=device.name,
        seconds=seconds,
        device_s=nearest.own_s + nearest.page_cache_s,
        train_s=nearest.train_s,
        bound=nearest.bound,
        runs=tuple(run.run_id for run in known),
        counted_on=tuple(dict.fromkeys(run.config.disk_class for run in known)),
        measured_s=statistics.median(measured) if measured else None,
        options=", ".join(f"{key}={value}" for key, value in options),
    )


def device_from(drive: Drive) -> Device:
    """Return a measured drive as a device."""
    return Device(
        drive.name, drive.disk_profile(), "profile", drive, drive.disk_class or "none"
    )


def read_records(roots: Sequence[Path]) -> list[Record]:
    """Read the run records of some results roots that were made by the newest code on
    each machine."""
    from harness.regress.history import of_newest_code
    from harness.results.store import scan

    return of_newest_code([record for root in roots for _, record in scan(root)])
