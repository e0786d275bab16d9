"""Phase `compare`: systems with little memory on the GPU beside the same on its
emulated profile, interleaved: the emulator's error by system. `measure` writes the
profile."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from contextlib import suppress
from typing import Any

from _outcore import command

from gpu.measure import MIB, PROFILE, SETTINGS, graph, run
from gpu.steps import LIMIT, Result, Setting, Step, target
from harness.records.code import is_current
from harness.results.store import records
from workloads.errors import HostError, require

SYSTEMS = ("pyg+", "ginex", "gnndrive", "diskgnn", "outcore")
NAME = "gpu-compare"  # of the experiment
TABLES = 64 * MIB  # device memory for tables: two thirds of all rows
ROUNDS = 2
MOST_ERROR = 0.15
KINDS = ("real", "emulated")
LAST_S = 15.0  # seconds to end a sweep and to read its records


def jobs() -> int:
    """Return the steps that run at once: a measurement runs alone."""
    return 1


def steps(setting: Setting) -> list[Step]:
    """Return the steps: the memory of training, and all systems on both devices."""
    return [Step("training", training, 180.0), Step("systems", systems, 540.0)]


def training(setting: Setting) -> Result:
    """Measure the device memory that training takes: a GPU gets it beside the tables,
    an emulated device needs none."""
    record = run(
        setting.folder, "pyg+", setting.device, 512 * MIB, "--max-batches", "5"
    )
    faults = (
        []
        if record["status"] == "ok"
        else [f"it ended as {record['status']}: {record['reason']}"]
    )
    return {
        "device_bytes": record["memory"].get("training_device_bytes", 0),
        "faults": faults,
    }


def systems(setting: Setting) -> Result:
    """Run every system on the device and on its profile, by turns, with the same memory
    for tables, as one experiment, which goes on where an earlier call was cut off;
    return the emulator's errors."""
    profile = setting.folder / PROFILE
    require(
        profile.is_file(),
        f"{profile} is not there",
        "run scripts/gpu measure first",
        HostError,
    )
    before: dict[str, Result] = {}
    with suppress(OSError, ValueError):
        before = json.loads((setting.folder / "compare.json").read_text())["steps"]
    beside = before.get("training", {}).get("result", {}).get("device_bytes")
    fix = "run scripts/gpu compare --only training"
    require(beside is not None, "the step `training` has no result", fix, HostError)
    devices = {
        "real": (setting.device, TABLES + (beside or 0)),
        "emulated": (f"emulated:{profile}", TABLES),
    }
    experiment = {
        "name": NAME,
        "run": {**SETTINGS, "dataset": graph(setting.folder)},
        "systems": [
            {"name": system, "run": {"device": device, "device_memory": f"{nbytes}B"}}
            for system in SYSTEMS
            for device, nbytes in devices.values()
        ],
        "rounds": ROUNDS,
    }
    path = setting.folder / f"{NAME}.yaml"
    path.write_text(json.dumps(experiment, indent=1))  # JSON is YAML
    call, environment = command(setting.folder, "bench", str(path), "--figures", "none")
    with subprocess.Popen(call, env=environment) as sweep:
        try:
            sweep.wait(max(1.0, float(os.environ.get(LIMIT, "inf")) - LAST_S))
        except subprocess.TimeoutExpired:
            sweep.terminate()
    return _compared(setting, {device: kind for kind, (device, _) in devices.items()})


def _compared(setting: Setting, kinds: dict[str, str]) -> Result:
    """Return each system's epochs on both devices by the records of the experiment, and
    the errors of the emulated."""
    found: dict[str, dict[str, list[Any]]] = {
        system: {kind: [] for kind in KINDS} for system in SYSTEMS
    }
    faults = []
    for record in records(setting.folder / "results"):
        kind = kinds.get(record.config.device)
        config = record.config
        if (
            config.experiment != NAME
            or kind is None
            or not is_current(record.code, config.system, config.sampler)
        ):
            continue
        if record.status != "ok":
            faults.append(
                f"{config.system} on the {kind} device ended as {record.status}: "
                f"{record.reason}"
            )
            continue
        measured = [epoch for epoch in record.epochs if not epoch.warmup]
        kept = {
            "run_id": record.run_id,
            "verdict": record.verdict,
            "epoch_s": [one.seconds for one in measured],
        }
        found[config.system][kind].append(
            kept | {"stages_s": [one.stages_s for one in measured]}
        )
    errors = {}
    for system, sides in found.items():
        real, emulated = (
            [second for run in sides[kind] for second in run["epoch_s"]]
            for kind in KINDS
        )
        if real and emulated:
            errors[system] = statistics.median(emulated) / statistics.median(real) - 1
        done = [len(sides[kind]) for kind in KINDS]
        if min(done) < ROUNDS:
            faults.append(
                f"{system}: {done[0]} real and {done[1]} emulated of {ROUNDS} runs "
                "each; run the phase again"
            )
    median = (
        statistics.median(abs(error) for error in errors.values()) if errors else None
    )
    # Of an emulated device beside itself it is the noise of this host.
    targets = (
        [target("median error of the emulated epochs", median, most=MOST_ERROR)]
        if setting.real
        else []
    )
    return {
        "error": errors,
        "median": median,
        "runs": found,
        "targets": targets,
        "faults": faults,
    }
