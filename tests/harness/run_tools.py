"""Helpers for tests of runs: configurations, the command, shared caches, and a search
for what runs leave behind."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from harness.cli import main
from harness.isolation import mounts
from harness.plan.experiment import PlannedRun, resolve
from harness.records.record import RunConfig
from harness.run.series import Series
from harness.settings import RunSettings
from harness.ssd.profile import quick_profile
from tests.support import made_once
from workloads.errors import HostError

REPOSITORY = Path(__file__).resolve().parents[2]
MISBEHAVING = "tests.harness.misbehaving:Misbehaving"
SETTINGS: dict[str, Any] = {
    "dataset": "tiny",
    "fanout": [3, 3],
    "batch_size": 40,
    "max_batches": 4,
    "epochs": 2,
    "warmup": 1,
    "hidden": 16,
    "device": "emulated:null",
    "device_memory": "1MiB",
    "timeout": 60.0,
}


def config(
    series: Series, system: str = MISBEHAVING, round_: int = 0, **changes: Any
) -> RunConfig:
    """Return a resolved configuration over the tiny dataset."""
    settings = RunSettings.model_validate({**SETTINGS, **changes})
    return resolve(
        PlannedRun(system, settings, round=round_),
        series.data_root,
        series.isolation.name,
    )


def share_cache(results: Path, factory: pytest.TempPathFactory) -> None:
    """Share device profiles and calibrations, so that they are measured once a session,
    not once a root or process."""
    shared = made_once(factory, "shared-cache", _profile)
    for profile in shared.glob("profile-*.json"):
        with suppress(FileNotFoundError):  # a run of another process beat it
            _keep(profile)
    results.mkdir(parents=True)
    (results / "cache").symlink_to(shared)


def _profile(shared: Path) -> None:
    """Measure the device for two seconds only: it is never quiet while tests run in
    parallel."""
    file = shared / "profiled"
    file.write_bytes(os.urandom(64 << 20))
    profile_briefly(file, shared)
    file.unlink()


def profile_briefly(file: Path, cache: Path) -> None:
    """Measure the device under a file in a moment, and keep the profile for the series
    of a test."""
    with suppress(HostError), patch("harness.ssd.profile.WAITS_S", ()):
        quick_profile(file, cache=cache, seconds=0.1)
    for profile in cache.glob("profile-*.json"):
        _keep(profile)


def _keep(profile: Path) -> None:
    """Mark a profile as measured just now and undisturbed; otherwise every test would
    measure it again."""
    content = json.loads(profile.read_text())
    content["measured_at"] = time.time()
    for point in (*content["points"], *(content.get("first_read") or ())):
        point["others_disk"] = point["others_cpu"] = None
    fresh = profile.with_suffix(f".{os.getpid()}.fresh")
    fresh.write_text(json.dumps(content))
    fresh.replace(profile)


def outcore(
    *arguments: str, data: Path, results: Path, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    return subprocess.run(
        command(*arguments),
        env=environment(data, results),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **more,
    )


def outcore_here(
    *arguments: str, data: Path, results: Path
) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, which saves seconds of imports."""
    out = io.StringIO()
    err = io.StringIO()
    ours = {
        number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    with (
        patch.dict(os.environ, environment(data, results)),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            for number, handler in ours.items():
                signal.signal(number, handler)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def command(*arguments: str) -> list[str]:
    """Return the command line of `outcore` with these arguments."""
    return [sys.executable, "-c", "from harness.cli import main; main()", *arguments]


def environment(data: Path, results: Path) -> dict[str, str]:
    """Return the environment in which the command finds data, results and the tests'
    own systems."""
    return {
        **os.environ,
        "OUTCORE_DATA": str(data),
        "OUTCORE_RESULTS": str(results),
        "PYTHONPATH": str(REPOSITORY),
    }


def caps_of(run_id_part: str = "") -> list[str]:
    """Return the names of caps that exist now, under any hierarchy."""
    found = []
    for hierarchy in (mounts.v1("memory"), mounts.v2()):
        if hierarchy is None:
            continue
        for base in hierarchy.bases():
            folder = base / "outcore"
            found += (
                [path.name for path in folder.glob("run_*") if run_id_part in path.name]
                if folder.is_dir()
                else []
            )
    return found


def workers_of(results_or_data: Path, *, holders: bool = True) -> list[int]:
    """Return ids of workers whose command line or environment names a folder of this
    test, and with `holders` of the holders too; the holder of an open series lives
    until the series is closed."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            around = (entry / "environ").read_bytes()
        except OSError:
            continue
        if b"harness.run.holder" in line and not holders:
            continue
        if b"harness." in line and (str(results_or_data).encode() in line + around):
            found.append(int(entry.name))
    return found


def left_behind(series: Series) -> list[str]:
    """Return scratch folders and half-written runs that should be gone."""
    scratch = [path.name for path in series.scratch_root.iterdir()]
    runs = series.results_root / "runs"
    return scratch + (
        [path.name for path in runs.glob(".partial-*")] if runs.is_dir() else []
    )
