"""`outcore doctor --ci` reports settings that make times noisy, with the command that
sets each; a record keeps them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.doctor_ci import CHECKS, diagnose
from harness.records.environment import describe
from harness.records.steady import neighbours, settings
from tests.harness.run_tools import outcore_here

QUIET = {"busy": 0.0, "stolen": 0.0}
STEADY = {
    "devices/system/cpu/intel_pstate/no_turbo": "1",
    "devices/system/cpu/smt/active": "0",
    "devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
    "devices/system/cpu/cpu0/cpuidle/state0/latency": "0",
    "devices/system/cpu/cpu0/cpuidle/state0/disable": "0",
    "devices/system/cpu/cpu0/cpuidle/state1/latency": "133",
    "devices/system/cpu/cpu0/cpuidle/state1/disable": "1",
    "kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
}


def _system(folder: Path, **changed: str) -> Path:
    """Write the files of /sys of a steady host; `changed`: end of a name -> content."""
    for name, text in STEADY.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        last = name.replace("/", "_")
        wanted = [value for end, value in changed.items() if last.endswith(end)]
        file.write_text((wanted[0] if wanted else text) + "\n")
    return folder


def _states(folder: Path, **changed: str) -> dict[str, str]:
    found = settings(_system(folder, **changed)) | {"swap_bytes": 0}
    return {finding.name: finding.status for finding in diagnose(found, QUIET)}


def test_a_steady_host_has_nothing_to_set(tmp_path: Path) -> None:
    assert set(_states(tmp_path).values()) == {"ok"}


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"no_turbo": "0"}, "turbo"),
        ({"smt_active": "1"}, "SMT"),
        ({"state1_disable": "0"}, "idle states"),
        ({"scaling_governor": "powersave"}, "governor"),
        ({"hugepage_enabled": "[always] madvise never"}, "huge pages"),
    ],
)
def test_each_setting_alone_is_found(
    changed: dict[str, str], name: str, tmp_path: Path
) -> None:
    states = _states(tmp_path, **changed)
    assert [key for key, state in states.items() if state != "ok"] == [name]


def test_swap_and_neighbours_are_found(tmp_path: Path) -> None:
    found = settings(_system(tmp_path)) | {"swap_bytes": 1 << 30}
    for shares in ({"busy": 0.3, "stolen": 0.0}, {"busy": 0.0, "stolen": 0.3}):
        states = {one.name: one for one in diagnose(found, shares)}
        assert states["swap"].fix == "sudo swapoff -a"
        assert states["neighbours"].status == "degraded"
        assert "30 %" in states["neighbours"].detail


def test_what_the_kernel_hides_is_not_called_steady(tmp_path: Path) -> None:
    states = {one.name: one for one in diagnose(settings(tmp_path), QUIET)}
    for name in ("turbo", "SMT", "idle states", "governor"):
        assert states[name].status == "degraded"
        assert "virtual machine" in states[name].fix
    assert states["huge pages"].status == "ok"


def test_the_command_reports_this_host_with_a_fix_for_each_fault() -> None:
    here = Path("/var/tmp")
    done = outcore_here("doctor", "--ci", "--json", data=here, results=here)
    assert done.returncode == 0
    checks = json.loads(done.stdout)["checks"]
    assert [check["name"] for check in checks] == [*CHECKS, "neighbours"]
    assert all(bool(check["fix"]) == (check["status"] != "ok") for check in checks)


def test_a_program_beside_is_a_neighbour_and_this_process_is_none() -> None:
    import subprocess
    import sys

    spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        shares = neighbours(0.5)
    finally:
        spin.kill()
        spin.wait()
    assert shares["busy"] > 0.1


def test_a_record_keeps_the_settings() -> None:
    kept = describe(Path("/var/tmp"))["steady"]
    assert set(kept) == set(settings())
    assert kept["swap_bytes"] >= 0
