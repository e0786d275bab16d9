"""Phase `compare`: systems with little memory on the GPU beside the same on its emulated profile, by turns, which gives
the emulator's error by system. `measure` writes the profile."""

from __future__ import annotations

import json
import statistics
from functools import partial
from typing import Any

from gpu.measure import MIB, PROFILE, run
from gpu.steps import Result, Setting, Step, target
from workloads.errors import HostError, require

SYSTEMS = ("pyg+", "ginex", "gnndrive", "diskgnn", "outcore")
TABLES = 64 * MIB  # device memory for tables: two thirds of all rows
ROUNDS = 1
MOST_ERROR = 0.15


def jobs() -> int:
    """Return the steps that run at once: a measurement runs alone."""
    return 1


def steps(setting: Setting) -> list[Step]:
    """Return the steps: the memory of training, each system on both devices, and the errors."""
    found = [Step("training", training, 180.0)]
    found += [Step(system, partial(both, system), 240.0) for system in SYSTEMS]
    return [*found, Step("errors", errors, 30.0)]


def training(setting: Setting) -> Result:
    """Measure the device memory that training takes: a GPU gets it beside the tables, an emulated device needs none."""
    record = run(setting.folder, "pyg+", setting.device, 512 * MIB, "--max-batches", "5")
    faults = [] if record["status"] == "ok" else [f"it ended as {record['status']}: {record['reason']}"]
    return {"device_bytes": record["memory"].get("training_device_bytes", 0), "faults": faults}


def _done(setting: Setting) -> dict[str, Result]:
    """Return the results of the steps of this phase so far."""
    steps: dict[str, Result] = json.loads((setting.folder / "compare.json").read_text())["steps"]
    return {name: step["result"] for name, step in steps.items() if "result" in step}


def both(system: str, setting: Setting) -> Result:
    """Run a system on the device and on its profile, one after the other, with the same memory for tables."""
    profile = setting.folder / PROFILE
    before = _done(setting).get("training")
    require(profile.is_file(), f"{profile} is not there", "run scripts/gpu measure first", HostError)
    require(before, "the step `training` has no result", "run scripts/gpu compare --only training", HostError)
    assert before is not None
    beside = before["device_bytes"]
    found: dict[str, list[dict[str, Any]]] = {"real": [], "emulated": []}
    for _ in range(ROUNDS):
        for kind, device, nbytes in (
            ("real", setting.device, TABLES + beside),
            ("emulated", f"emulated:{profile}", TABLES),
        ):
            found[kind].append(_kept(run(setting.folder, system, device, nbytes)))
    faults = [
        f"on the {kind} device it ended as {one['status']}: {one['reason']}"
        for kind, runs in found.items()
        for one in runs
        if one["status"] != "ok"
    ]
    return {**found, "faults": faults} if faults else {**found, **_error(found)}


def _kept(record: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a run that are compared."""
    kept: dict[str, Any] = {name: record[name] for name in ("run_id", "status", "reason", "verdict")}
    epochs = [epoch for epoch in record["epochs"] if not epoch["warmup"]]
    kept["epoch_s"] = [epoch["seconds"] for epoch in epochs]
    kept["stages_s"] = [epoch["stages_s"] for epoch in epochs]
    kept["train_s"] = record["compute"].get("train_s")
    return kept


def _error(found: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """Return the emulator's relative error of the median epoch; above 0 where it is too slow."""
    real, emulated = (statistics.median(s for one in found[kind] for s in one["epoch_s"]) for kind in found)
    return {"real_s": real, "emulated_s": emulated, "error": emulated / real - 1}


def errors(setting: Setting) -> Result:
    """Return the error of each system and their median."""
    done = _done(setting)
    found = {system: done[system]["error"] for system in SYSTEMS if "error" in done.get(system, {})}
    faults = [f"{system} has no error: see its step" for system in SYSTEMS if system not in found]
    median = statistics.median(abs(error) for error in found.values()) if found else None
    # Of an emulated device beside itself it is the noise of this host.
    targets = [target("median error of the emulated epochs", median, most=MOST_ERROR)] if setting.real else []
    return {"error": found, "median": median, "targets": targets, "faults": faults}
