"""Report of 2,000 run records: seconds, peak memory and size, once with all figures redrawn, once with none.

Limits are 60 s, 1 GiB and 15 MB. The records are generated, as large as real ones: systems over dimensions, caps, batch
sizes, models and stages; every fifth has telemetry and stages of a 60 s run, some are damaged.
Run: python benchmarks/report_scale.py [--records 2000] [--folder DIR] [--keep]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import (
    DatasetConfig,
    EpochRecord,
    Memory,
    PlannedBuffer,
    Record,
    RuleOutcome,
    RunConfig,
    Status,
    Summary,
    spread,
)
from harness.telemetry.frame import COLUMNS

LIMIT_S, LIMIT_BYTES, LIMIT_FILE = 60.0, 2**30, 15e6
SYSTEMS = {"pyg+": 40, "ali+pg": 36, "ginex": 30, "mariusgnn": 26, "gnndrive": 24, "diskgnn": 10, "in-memory": 5}
SHARES = {"sample": 0.4, "extract": 0.9, "transfer": 0.1, "train": 0.2, "wait": 0.05}
WITH_TABLES = 5


def configurations() -> Iterator[tuple[Any, ...]]:
    """Yield every cell of a grid like those of the figures, round after round."""
    for round_ in itertools.count():
        grid = (("sage", "gat", "gcn"), (128, 64, 256, 512), (64, 32, 128), (50, 25, 12), ("all", "sample"), SYSTEMS)
        yield from ((round_, *cell) for cell in itertools.product(*grid))


def record(number: int, cell: tuple[Any, ...], rng: np.random.Generator) -> Record:
    """Generate one record, as large as a real one."""
    round_, model, dim, memory, batch, stages, system = cell
    dataset = DatasetConfig(
        name=f"kron-2m-d{dim}",
        fingerprint=f"f{dim}",
        num_nodes=2_000_000,
        num_edges=40_000_000,
        dim=dim,
        dtype="float32",
        num_classes=16,
        train_nodes=20_000,
    )
    config = RunConfig(
        system=system,
        dataset=dataset,
        model=model,
        batch_size=batch,
        max_batches=80,
        memory=f"+{memory}MiB",
        device="emulated:a10g",
        device_memory_bytes=2**25,
        isolation="cgroup1",
        disk_class="aws-nvme/16",
        stages=stages,
        round=round_,
        experiment="quick",
        options={f"option_{k}": k for k in range(8)},
    )
    seconds = SYSTEMS[system] * (dim / 128) ** 0.5 * (64 / memory) ** 0.3 * rng.lognormal(0, 0.03, 3)
    ended: Status = "oom" if system == "in-memory" and memory < 128 else "ok"
    epochs = [
        EpochRecord(
            epoch=k,
            warmup=k == 0,
            seconds=float(value),
            start_s=float(seconds[:k].sum()),
            batches=80,
            digest=f"xxh3:{k:016x}",
            feature_digest=f"xxh3:{k:016x}",
            stages_s={stage: float(value * share) for stage, share in SHARES.items()}
            | ({"inspect": 1.0, "switch": 0.2, "cache_update": 0.1} if system == "ginex" else {}),
            device_bytes=int(value * 1.5e8),
            device_requests=int(value * 3e4),
            diskstats_bytes=int(value * 1.5e8),
            counters={
                "rows": 400_000,
                "hits": {"device": 1000, "host": 90_000},
                "misses": 300_000,
                "io_requests": 290_000,
                "bytes_read": int(value * 1.4e8),
                "bytes_useful": int(value * 1.3e8),
                "requests_by_size": {"512": 280_000, "4096": 10_000},
                "queue_depth": 256,
            },
        )
        for k, value in enumerate(seconds if ended == "ok" else [])
    ]
    points = [
        {"block_bytes": b, "depth": 64, "iops": i, "bytes_per_s": b * i, "pattern": "random"}
        for b, i in ((512, 39_000.0), (4096, 39_000.0), (65536, 2_900.0))
    ]
    rules = [
        RuleOutcome(
            rule=str(k),
            name=f"rule_number_{k}_holds",
            ok=k != 9 or number % 7 > 0,
            detail=f"peak {rng.integers(10**9)} B of the cap",
        )
        for k in range(1, 25)
    ]
    environment = {
        "code": {"commit": "0" * 40, "dirty": False},
        "versions": {f"package{k}": f"1.{k}.0" for k in range(14)},
        "cpu": {"model": "one", "usable": 2 + 62 * (number % 11 == 0)},
        "memory": {"total_bytes": 2**34},
        "kernel": {"release": "6.1", "psi": True, "swappiness": "60"},
        "cgroup": "hybrid",
        "disk": {"model": "nvme", "file_system": "ext4", "size_bytes": 10**12, "scheduler": "none"},
    }
    measured = [epoch.seconds for epoch in epochs if not epoch.warmup]
    record = Record(
        run_id=f"20260101-{number:06d}-{system}-r{round_}",
        config_hash=config.config_hash,
        system=system,
        status=ended,
        verdict="INVALID" if number % 97 == 0 else "CAVEATS" if number % 7 == 0 else "VALID",
        verdict_rules=rules,
        started_at="2026-01-01T00:00:00Z",
        duration_s=70.0,
        config=config,
        environment=environment,
        epochs=epochs,
        memory=Memory(
            cap_bytes=2**28,
            floor_bytes=2**27,
            budget_bytes=memory * 2**20,
            peak_bytes=2**28,
            plan=[PlannedBuffer(name=f"buffer {k}", bytes=int(rng.integers(2**24))) for k in range(8)],
        ),
        summary=Summary(
            epoch_s=spread(measured) if measured else None,
            stages_s=epochs[-1].stages_s if epochs else {},
            read_amplification=2.0,
            accelerator_utilisation=0.2,
            storage_efficiency=0.2,
            engine_efficiency=0.9,
            distance_to_limit=0.4,
            predicted_s=20.0,
            working_set_bytes=2**28,
            working_set_over_budget=2.4,
            extra={"limit_s": 5.0, "engine_efficiency_from": "own requests over extract time"},
        ),
        disk={"limited": {"points": points}, "bare": {"points": points}},
        overhead={"calibrate_s": 1.0, "evict_s": 0.1},
        notes={"io": "io_uring registered"},
    )
    record.class_ = "storage-bound"
    return record


def tables(folder: Path, seconds: float, rng: np.random.Generator) -> None:
    """Write telemetry at 10 Hz, stages of three epochs of 80 mini-batches, and the lanes of the device."""
    rows = int(seconds * 10)
    telemetry = pd.DataFrame({name: rng.random(rows) * 100 for name in COLUMNS})
    telemetry["t"] = np.arange(rows) / 10
    telemetry["epoch"] = np.minimum(2, np.arange(rows) * 3 // rows)
    telemetry["mem_usage"] *= 2e6
    telemetry.to_parquet(folder / "telemetry.parquet", index=False)
    epoch, batch, stage, part = (
        grid.ravel() for grid in np.meshgrid(range(3), range(80), range(len(SHARES) + 1), range(1), indexing="ij")
    )
    start = epoch * seconds / 3 + (batch * 5 + stage + part) * seconds / 3 / 420
    names = np.array([*SHARES, "lane:compute"])[stage]
    spans = pd.DataFrame(
        {"epoch": epoch, "batch": batch, "stage": names, "thread": "t-0", "start": start, "end": start + 0.04}
    )
    spans.to_parquet(folder / "stages.parquet", index=False)


def make(root: Path, count: int) -> None:
    """Write `count` runs under a results root, a few truncated, a few of another schema."""
    rng = np.random.default_rng(1)
    shared = root / "shared"
    shared.mkdir(parents=True)
    tables(shared, 60.0, rng)
    for number, cell in zip(range(count), configurations(), strict=False):
        made = record(number, cell, rng)
        folder = root / "runs" / made.run_id
        folder.mkdir(parents=True)
        text = json.dumps(made.to_json(), indent=1)
        text = (
            text[:4000]
            if number % 400 == 3
            else text.replace('"schema": 1', '"schema": 77', 1)
            if number % 400 == 4
            else text
        )
        (folder / "record.json").write_text(text)
        (folder / "worker.log").write_text("".join(f"line {k} of {made.run_id}\n" for k in range(60)))
        if number % WITH_TABLES == 0 and made.epochs:
            for file in shared.iterdir():
                shutil.copy(file, folder)
    shutil.rmtree(shared)


def measure(root: Path) -> dict[str, Any]:
    """Run `outcore report` in a new process and measure it."""
    begin = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", "from harness.cli import main; main()", "report", "--results-root", str(root), "--json"],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    told = json.loads(child.stdout.read())
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"the report ended with status {status}")
    return {
        **told,
        "seconds": time.perf_counter() - begin,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--keep", action="store_true", help="leave the records and the report there")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="outcore-report-", dir=options.folder))
    try:
        make(root, options.records)
        print(f"{'':>18} {'s':>6} {'cpu s':>6} {'MiB':>6} {'file MB':>8}  runs unread drawn timelines")
        kept = True
        for name in ("figures drawn anew", "figures drawn"):
            found = measure(root)
            kept &= found["seconds"] <= LIMIT_S and found["peak_bytes"] <= LIMIT_BYTES and found["bytes"] <= LIMIT_FILE
            print(
                f"{name:>18} {found['seconds']:6.1f} {found['cpu_s']:6.1f} {found['peak_bytes'] / 2**20:6.0f} "
                f"{found['bytes'] / 1e6:8.2f}  {found['runs']} {found['unreadable']} {found['figures']['drawn']} "
                f"{found['timelines']}"
            )
        print(
            f"at most {LIMIT_S:.0f} s, {LIMIT_BYTES / 2**20:.0f} MiB, {LIMIT_FILE / 1e6:.0f} MB: "
            f"{'kept' if kept else 'NOT kept'}"
        )
        return 0 if kept else 1
    finally:
        if options.keep:
            print(root)
        else:
            shutil.rmtree(root)


if __name__ == "__main__":
    sys.exit(main())
