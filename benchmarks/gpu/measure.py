"""Phase `measure`: rates of copies, pinning, zero-copy reads and gathers beside what
the machine can do, a training step beside PyG's, utilisation by events beside NVML's,
and a profile of the device."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from _outcore import outcore

from gpu.steps import Result, Setting, Step, target
from harness.results.store import runs_folder
from workloads.accelerator import Accelerator, aligned_host_tensor
from workloads.accelerators.calibrate import to_toml
from workloads.accelerators.emulated import EmulatedAccelerator
from workloads.accelerators.make import make_accelerator
from workloads.accelerators.profile import profile_of
from workloads.feature_table import SplitTable

KIB = 1 << 10
MIB = 1 << 20
REPEATS = 5
#: Row bytes of gathers; the papers' datasets have 512 and 4096.
ROW_BYTES = (64, 100 * 4, 512, 1024, 4096)
COPIES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
PROFILE = "profile.toml"
GRAPH = "--kind kronecker --nodes 200k --edges 4M --dim 128 --train-fraction 0.1"
#: Runs of the utilisation and of `compare`, with host memory for half of the rows.
SETTINGS: dict[str, Any] = {
    "fanout": [10, 10],
    "batch_size": 500,
    "max_batches": 20,
    "epochs": 3,
    "warmup": 1,
    "memory": "+48MiB",
    "timeout": "100s",
}


def jobs() -> int:
    """Return the steps that run at once: a measurement runs alone."""
    return 1


def steps(setting: Setting) -> list[Step]:
    """Return the steps, the profile first: `compare` needs it."""
    return [
        Step("profile", profile, 180.0),
        Step("copies", copies, 90.0),
        Step("pinning", pinning, 60.0),
        Step("zero-copy", zero_copy, 120.0),
        Step("gather", gather, 60.0),
        Step("training step", training_step, 120.0),
        Step("utilisation", utilisation, 150.0),
    ]


def profile(setting: Setting) -> Result:
    """Calibrate the device, as `outcore device calibrate` does; keep the profile in the
    folder of the results."""
    path = setting.folder / PROFILE
    path.unlink(missing_ok=True)
    if setting.real:
        return outcore(
            setting.folder,
            "device",
            "calibrate",
            "here",
            "--device",
            setting.device,
            "--out",
            str(path),
        )
    # An emulated device cannot be measured, its profile is known.
    known = profile_of(setting.device)
    assert known is not None
    path.write_text(to_toml(known))
    return {
        "path": str(path),
        "coefficients": {
            key: one.model_dump() for key, one in known.coefficients().items()
        },
    }


def _device(setting: Setting) -> Accelerator:
    return make_accelerator(
        setting.device, memory_bytes=None if setting.real else 256 * MIB, touch=False
    )


def _seconds(accelerator: Accelerator, action: Callable[[], object]) -> float:
    """Return the least seconds of an action until the device is idle, after one that
    warms up."""
    action()
    times = []
    for _ in range(REPEATS):
        accelerator.synchronize()
        began = time.perf_counter()
        action()
        accelerator.synchronize()
        times.append(time.perf_counter() - began)
    return min(times)


def _bus_rate(accelerator: Accelerator, nbytes: int) -> float:
    """Return the bytes a second of torch's own pinned copies of this size, many in a
    row: the bus at its best."""
    if isinstance(accelerator, EmulatedAccelerator):
        return nbytes / accelerator.profile.copy_seconds(nbytes)
    source = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True).fill_(1)
    there = torch.empty(nbytes, dtype=torch.uint8, device=accelerator.torch_device)
    count = _count(nbytes)

    def queue() -> None:
        for _ in range(count):
            there.copy_(source, non_blocking=True)

    return count * nbytes / _seconds(accelerator, queue)


def _count(nbytes: int) -> int:
    """Return the copies of one measurement: 256 MiB in all, at most 256."""
    return max(1, min(256, 256 * MIB // nbytes))


def copies(setting: Setting) -> Result:
    """Measure the copies that systems make, by size: of rows in order, and to rows by
    their numbers."""
    found = []
    targets = []
    with closing(_device(setting)) as accelerator:
        for nbytes in COPIES:
            rows = nbytes // 512
            count = _count(nbytes)
            table = accelerator.allocate(2 * rows, 128, torch.float32)
            source = (
                accelerator.host_buffer(nbytes)
                .fill_(1)
                .view(torch.float32)
                .view(rows, 128)
            )
            places = torch.randperm(2 * rows)[:rows]

            def rate(
                to: torch.Tensor | None,
                table: torch.Tensor = table,
                source: torch.Tensor = source,
                count: int = count,
            ) -> float:
                def queue() -> None:
                    for event in [
                        accelerator.copy(table, source, to) for _ in range(count)
                    ]:
                        event.wait()

                return count * source.nbytes / _seconds(accelerator, queue)

            best = _bus_rate(accelerator, nbytes)
            rates = {"in order": rate(None), "by number": rate(places)}
            found.append({"bytes": nbytes, "bus": best, **rates})
            if (
                setting.real and nbytes >= MIB
            ):  # an emulated device copies at this processor's speed at most
                what = (
                    f"copies of {nbytes // MIB} MiB by row number, over the bus's rate"
                )
                targets.append(target(what, rates["by number"] / best, least=0.9))
            accelerator.free(table)
        result: Result = {"copies": found, "targets": targets}
        if setting.real:
            result["pageable"] = _pageable(accelerator, 64 * MIB)
    return result


def _pageable(accelerator: Accelerator, nbytes: int) -> float:
    source = torch.ones(nbytes, dtype=torch.uint8)
    there = torch.empty(nbytes, dtype=torch.uint8)
    there = there.to(accelerator.torch_device)
    return nbytes / _seconds(accelerator, lambda: there.copy_(source))


def pinning(setting: Setting) -> Result:
    """Measure how fast host memory is pinned: torch's own pinned memory, and pages that
    exist, pinned and unpinned."""
    nbytes = (1024 if setting.real else 64) * MIB
    with closing(_device(setting)) as accelerator:
        buffer = aligned_host_tensor(nbytes).fill_(1)
        seconds = {}
        for name, call in (("pin", "pin"), ("unpin", "free_host")):
            action = getattr(accelerator, call)
            began = time.perf_counter()
            action(buffer)
            seconds[name] = time.perf_counter() - began
        if setting.real:
            began = time.perf_counter()
            torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
            seconds["torch's pinned memory"] = time.perf_counter() - began
    return {"bytes": nbytes, "seconds": seconds}


def _gather_rate(accelerator: Accelerator, table: SplitTable, count: int) -> float:
    """Return bytes a second of gathers of random rows of one of the two parts."""
    own = table.host.shape[0] == 1
    rows = torch.randint(
        0, table.device.shape[0] if own else table.host.shape[0], (count,)
    )
    row_bytes = table.shape[1] * table.dtype.itemsize

    def work() -> None:
        accelerator.gather(table, rows)
        if isinstance(
            accelerator, EmulatedAccelerator
        ):  # its gathers are part of a step
            on_device, by_zero_copy = accelerator.read_seconds(
                count * own, count * (not own), row_bytes
            )
            accelerator.compute(on_device + by_zero_copy, bus_seconds=by_zero_copy)

    return count * row_bytes / _seconds(accelerator, work)


def zero_copy(setting: Setting) -> Result:
    """Measure gathers of random rows in host memory by the device's own loads, by bytes
    of a row."""
    found: list[Result] = []
    targets = []
    table_bytes, gathered = (
        (2048 * MIB, 128 * MIB) if setting.real else (64 * MIB, 4 * MIB)
    )
    with closing(_device(setting)) as accelerator:
        best = _bus_rate(accelerator, 64 * MIB)
        buffer = accelerator.host_buffer(table_bytes).fill_(1)
        for row_bytes in ROW_BYTES:
            for dtype in (torch.float32, torch.float16):
                dim = row_bytes // dtype.itemsize
                rows = table_bytes // row_bytes
                host = buffer[: rows * row_bytes].view(dtype).view(rows, dim)
                own = accelerator.allocate(0, dim, dtype)
                rate = _gather_rate(
                    accelerator, SplitTable(own, host), gathered // row_bytes
                )
                found.append(
                    {
                        "row_bytes": row_bytes,
                        "dtype": str(dtype),
                        "rate": rate,
                        "of_bus": rate / best,
                    }
                )
        # An emulated device reads at its profile's rate, which says nothing about a
        # kernel.
        if setting.real:
            share = next(one["of_bus"] for one in found if one["row_bytes"] == 512)
            targets.append(
                target(
                    "zero-copy gather of 512-byte rows, over the bus's rate",
                    share,
                    least=0.8,
                )
            )
        notes = accelerator.notes()
    return {"bus": best, "rows": found, "notes": notes, "targets": targets}


def gather(setting: Setting) -> Result:
    """Measure gathers of random rows in device memory beside a copy inside the device
    (bytes read plus written)."""
    found = []
    with closing(_device(setting)) as accelerator:
        table_bytes = (
            min(4096 * MIB, (accelerator.memory_bytes or 0) // 8)
            if setting.real
            else 64 * MIB
        )
        gathered = table_bytes // 16
        for row_bytes in ROW_BYTES:
            dim = row_bytes // 4
            rows = table_bytes // row_bytes
            own = accelerator.allocate(rows, dim, torch.float32)
            host = (
                accelerator.host_buffer(4096)[:row_bytes]
                .view(torch.float32)
                .view(1, dim)
            )
            rate = 2 * _gather_rate(
                accelerator, SplitTable(own, host), gathered // row_bytes
            )
            found.append({"row_bytes": row_bytes, "rate": rate})
            accelerator.free(own)
            del own, host
        result: Result = {"rows": found}
        if setting.real:
            first, second = (
                torch.ones(gathered, dtype=torch.uint8, device=setting.device)
                for _ in range(2)
            )
            result["copy"] = (
                2 * gathered / _seconds(accelerator, lambda: second.copy_(first))
            )
    return result


def training_step(setting: Setting) -> Result:
    """Run `benchmarks/training_step.py` on the device: each model's step by our kernels
    and by PyG's."""
    script = Path(__file__).parents[1] / "training_step.py"
    device = setting.device if setting.real else "cpu"
    sizes = (
        ["--seeds", "1000"]
        if setting.real
        else ["--seeds", "50", "--nodes", "20000", "--rounds", "3"]
    )
    done = subprocess.run(
        [sys.executable, "-P", str(script), "--device", device, *sizes],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        found: Result = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(done.stderr.strip()[-2000:] or "no output") from None
    models = found["models"]
    faults = [
        f"{name} computes something else, or holds too much memory"
        for name in models
        if not models[name]["ok"]
    ]
    # A step of PyG that takes less time than ours is a fault of ours; sizes without a
    # GPU are too small to judge.
    targets = [
        target(f"{name}: time of {side}, over ours", ratio, least=1.0)
        for name, one in models.items()
        for side, ratio in one["time_ratio"].items()
    ]
    return found | {"targets": targets if setting.real else [], "faults": faults}


def graph(folder: Path) -> str:
    """Make the dataset of the runs, unless it is there; return its name."""
    outcore(folder, "data", "make", "gpu-graph", *GRAPH.split())
    return "gpu-graph"


def run(
    folder: Path, system: str, device: str, device_bytes: int, *more: str
) -> dict[str, Any]:
    """Run a system on the graph, with `more` options; return its record."""
    where = [
        "--dataset",
        graph(folder),
        "--device",
        device,
        "--device-memory",
        f"{device_bytes}B",
    ]
    given = {**SETTINGS, "fanout": ",".join(map(str, SETTINGS["fanout"]))}
    words = [
        word
        for name, value in given.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return outcore(folder, "run", system, *where, *words, *more)


def utilisation(setting: Setting) -> Result:
    """Run gnndrive; return the share of time in which the device's lanes were busy by
    events, and NVML's readings."""
    record = run(setting.folder, "gnndrive", setting.device, 512 * MIB)
    folder = runs_folder(setting.folder / "results") / record["run_id"]
    telemetry = pd.read_parquet(folder / "telemetry.parquet")
    measured = telemetry[telemetry["epoch"] >= record["config"]["warmup"]]
    columns = [name for name in measured.columns if name.startswith("gpu_")]
    means = {
        name: float(measured[name].mean())
        for name in columns
        if measured[name].notna().any()
    }
    faults = (
        []
        if record["status"] == "ok"
        else [f"the run ended as {record['status']}: {record['reason']}"]
    )
    if "gpu_percent" not in means:
        faults.append("the busy share of the device's lanes was not recorded")
    summary = record["summary"]
    kept = {
        name: summary[name]
        for name in ("accelerator_utilisation", "epoch_s")
        if name in summary
    }
    return {
        "run": record["run_id"],
        "verdict": record["verdict"],
        "means": means,
        "summary": kept,
        "faults": faults,
    }
