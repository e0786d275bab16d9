"""Memory check: a run of the system inside a memory cap of the kernel, judged by methodology rule 4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.check.case import Case
from harness.check.data import make_dataset
from harness.check.rules import CheckResult
from harness.plan.experiment import PlannedRun, resolve
from harness.records.record import Record
from harness.run.launch import PLAN_REFUSED
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.settings import RunSettings, strict
from systems.registry import load
from workloads.errors import HostError, OutcoreError

TITLE = "memory as rule 4 says"
# The feature table is several times the slack of rule 4, so that a system that holds it in memory fails.
_CASE = Case("capped", nodes=240_000, edges=1_000_000, train=2_000, dim=128, batch_size=20)
_SETTINGS = {
    "memory": "+32MiB",
    "fanout": list(_CASE.fanout),
    "batch_size": _CASE.batch_size,
    "max_batches": 60,
    "epochs": 2,
    "warmup": 1,
    "hidden": 16,
    "timeout": "120s",
}


def check_memory(name: str, folder: Path, options: dict[str, Any]) -> CheckResult:
    """Run a system once under a cap, with a budget of 32 MiB for a feature table of 117 MiB, and judge its memory.

    On a host that cannot prove a cap the check passes, with `skipped` and the reason as its detail.
    """
    device = "cpu" if "cpu" in load(name).info.devices else "emulated:instant"
    settings = {**_SETTINGS, "device": device, "options": options}
    if device != "cpu":
        settings["device_memory"] = "16MiB"
    dataset = make_dataset(folder / "capped", _CASE)
    settings["dataset"] = dataset.name
    try:
        with Series(folder / "results", dataset.path.parent) as series:
            if not series.availability.proves_memory:
                return CheckResult(TITLE, True, f"skipped: isolation {series.isolation.name} proves no memory cap")
            config = resolve(
                PlannedRun(name, strict(RunSettings, settings, "")), series.data_root, series.isolation.name
            )
            series.prepare([config], dataset)
            record = execute(series, config, dataset)
    except HostError as error:
        return CheckResult(TITLE, True, f"skipped: {error}")
    except OutcoreError as error:
        return CheckResult(TITLE, False, str(error))
    system = load(name)
    return judge_record(record, loads_everything=system.loads_everything(system.info.options.model_validate(options)))


def judge_record(record: Record, *, loads_everything: bool) -> CheckResult:
    """Judge a run by rule 4; the plan of a system that loads the whole table has to refuse the budget (`oom`)."""
    if loads_everything:
        refused = record.status == "oom" and record.reason.startswith(PLAN_REFUSED)
        return CheckResult(TITLE, refused, f"ended as {record.status}, a plan that refuses is its right answer")
    if record.status != "ok":
        return CheckResult(TITLE, False, f"ended as {record.status}: {record.reason}")
    found = [entry for entry in record.verdict_rules if entry.name == "memory_as_asked"]
    if not found:
        return CheckResult(TITLE, False, "the run has no verdict on its memory")
    return CheckResult(TITLE, found[0].ok, found[0].detail)
