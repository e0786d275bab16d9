"""Made-up drive profiles and run records."""

from __future__ import annotations

from typing import Any

from harness.records.record import EpochRecord, Record
from harness.ssd.device import Identity
from harness.ssd.drive import Condition, Drive, Point
from harness.ssd.fio import SteadyState
from tests.harness.records import make_record

GIB = 1 << 30
LATENCY = {"50": 80e-6, "90": 100e-6, "99": 150e-6, "99.9": 400e-6, "99.99": 900e-6}


def make_drive(
    name: str = "fast",
    *,
    iops: float = 100_000.0,
    bandwidth: float = 2e9,
    **identity: Any,
) -> Drive:
    """Make a drive that gives `iops` up to its bandwidth, and a tenth of that at queue
    depth 1."""
    points = [
        Point(
            pattern="random",
            block_bytes=size,
            depth=depth,
            iops=min(iops, bandwidth / size) * share,
            bytes_per_s=min(iops * size, bandwidth) * share,
            latency_s=LATENCY,
            cpu_s_per_request=5e-6,
        )
        for size in (512, 4096, 65536)
        for depth, share in ((1, 0.1), (64, 1.0), (256, 1.0))
    ]
    points.append(
        Point(
            pattern="sequential",
            block_bytes=1 << 20,
            depth=32,
            iops=bandwidth / (1 << 20),
            bytes_per_s=bandwidth,
        )
    )
    who = {
        "name": "sda",
        "model": f"MODEL {name}",
        "capacity_bytes": 100 * GIB,
        "file_system": "ext4",
        **identity,
    }
    steady = SteadyState(
        attained=True, within=0.1, deviation=0.02, seconds=5.0, iops=[1.0, 1.0]
    )
    condition = Condition(fill=0.25, file_bytes=GIB, steady=steady)
    return Drive(
        name=name,
        mode="quick",
        measured_at="2026-01-01T00:00:00+00:00",
        fio="fio-3.33 io_uring",
        identity=Identity(**who),
        condition=condition,
        points=points,
    )


def counted(
    system: str,
    seconds: float,
    *,
    disk_class: str = "aws-nvme/16",
    reads: int = 100_000,
    size: int = 4096,
    train_s: float = 0.1,
    depth: int = 256,
    **config: Any,
) -> Record:
    """Make a run of one measured epoch with `reads` reads of `size` bytes."""
    record = make_record(system, [seconds], disk_class=disk_class, **config)
    epoch = EpochRecord(
        epoch=1,
        warmup=False,
        seconds=seconds,
        device_bytes=reads * size,
        device_requests=reads,
        counters={"requests_by_size": {str(size): reads}, "queue_depth": depth},
    )
    summary = record.summary.model_copy(update={"read_amplification": 1.5})
    return record.model_copy(
        update={
            "epochs": [epoch],
            "compute": {"train_s": {"1": train_s}},
            "summary": summary,
        }
    )
