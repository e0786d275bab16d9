"""`outcore doctor` reports what this host can do and how to fix the rest; a record's
environment names no person."""

from __future__ import annotations

import getpass
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from harness.doctor import CHECKS, as_dict, diagnose
from harness.records.environment import code, describe, disk
from harness.ssd.device import block_device
from tests.harness.cap_tools import CAPPING, REPOSITORY, needs_root, on_disk
from tests.harness.run_tools import command, outcore_here

EXPECTED = {
    "memory cap",
    "sandbox",
    "device limits",
    "swap",
    "io_uring",
    "engine",
    "locked memory",
    "direct I/O",
    "page cache",
    "fio",
    "GPU",
    "Docker",
    "disk space",
    "folders",
    "pressure",
}


def test_every_check_has_a_state_and_what_is_wrong_has_a_fix() -> None:
    for folder in on_disk():
        findings = diagnose(folder / "not/yet/there")
        assert {finding.name for finding in findings} == EXPECTED
        for finding in findings:
            assert finding.status in ("ok", "degraded", "missing")
            assert finding.detail
            assert finding.fix == "" or finding.status != "ok"
            if finding.status == "missing":
                assert finding.fix, finding
        assert list(folder.iterdir()) == []


def test_the_cap_is_found_by_trying() -> None:
    (found,) = [
        finding
        for finding in diagnose(Path("/var/tmp"))
        if finding.name == "memory cap"
    ]
    assert (found.status == "ok") == bool(CAPPING) or "systemd" in found.detail


def test_json_is_one_object_with_the_worst_state() -> None:
    done = outcore_here(
        "doctor", "--json", data=Path("/var/tmp"), results=Path("/var/tmp")
    )
    report = json.loads(done.stdout)
    assert {check["name"] for check in report["checks"]} == EXPECTED
    assert set(report["checks"][0]) == {"name", "status", "detail", "fix"}
    states = {check["status"] for check in report["checks"]}
    assert report["status"] == next(
        state for state in ("missing", "degraded", "ok") if state in states
    )
    assert done.returncode == (3 if report["status"] == "missing" else 0)


@pytest.mark.slow(
    "harness/doctor.py", "harness/cli/doctor.py", "harness/isolation", seconds=8
)
@needs_root
def test_an_unprivileged_user_is_reported_what_is_missing() -> None:
    nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        sys.executable,
        "-B",
    ]
    done = subprocess.run(
        [*nobody, *command("doctor", "--json", "--data-root", "/var/tmp")[1:]],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    if "Permission denied" in done.stderr:
        pytest.skip("the checkout cannot be read by another user")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["memory cap"]["status"] == "missing"
    assert checks["memory cap"]["fix"]
    assert done.returncode == 3


def test_data_in_memory_is_not_called_a_disk() -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir():
        pytest.skip("no tmpfs here")
    checks = {finding.name: finding.status for finding in diagnose(memory)}
    assert checks["direct I/O"] != "ok"
    assert checks["page cache"] != "ok"


def test_a_file_on_a_disk_is_found_evictable_every_time() -> None:
    """A read that asks for cached pages alone starts a read-ahead, which a fast disk
    may finish before the answer."""
    for folder in on_disk():
        if not block_device(folder).number:
            pytest.skip(f"{folder} is on no disk")
        assert {CHECKS["page cache"](folder)[0] for _ in range(20)} == {"ok"}


def test_the_worst_state_wins() -> None:
    assert as_dict([])["status"] == "ok"


def test_the_environment_holds_what_rule_23_asks_for() -> None:
    found = describe(Path("/var/tmp"))
    assert found["code"]["commit"] is None or len(found["code"]["commit"]) == 40
    assert found["versions"]["python"]
    assert found["versions"]["torch"]
    assert found["cpu"]["model"]
    assert found["cpu"]["usable"] >= 1
    assert found["memory"]["total_bytes"] > 1 << 28
    assert found["kernel"]["release"]
    assert found["cgroup"] in ("v1", "v2", "hybrid", "none")
    for key in (
        "model",
        "file_system",
        "mount_options",
        "read_ahead_kib",
        "scheduler",
        "logical_block_bytes",
    ):
        assert key in found["disk"]
    assert json.loads(json.dumps(found)) == found


def test_the_environment_names_no_person_and_no_machine() -> None:
    text = json.dumps(describe(Path("/var/tmp")))
    host = socket.gethostname()
    assert len(host) < 4 or host not in text
    assert str(Path.home()) not in text or str(Path.home()) == "/"
    assert str(REPOSITORY) not in text
    user = getpass.getuser()
    assert user == "root" or user not in text


def test_a_change_to_a_tracked_file_makes_the_checkout_dirty(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *arguments],
            check=True,
            capture_output=True,
        )

    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "a")
    assert code(tmp_path)["dirty"] is False
    (tmp_path / "a").write_text("2")
    code.cache_clear()
    assert code(tmp_path)["dirty"] is True
    code.cache_clear()


def test_a_repository_around_an_installed_copy_is_not_its_checkout(
    tmp_path: Path,
) -> None:
    installed = tmp_path / "venv" / "site-packages"
    installed.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    commit = ["commit", "-q", "--allow-empty", "-m", "a project of a user"]
    subprocess.run(["git", "-C", str(tmp_path), *author, *commit], check=True)
    assert code(tmp_path)["commit"]
    assert code(installed)["commit"] is None


def test_no_checkout_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code(tmp_path) == {"commit": None, "dirty": None}
    for reported, commit, dirty in (
        ("a" * 40, "a" * 40, False),
        ("b" * 40 + "-dirty", "b" * 40, True),
        ("v1", None, None),
    ):
        code.cache_clear()
        monkeypatch.setenv("OUTCORE_COMMIT", reported)  # as set when an image is built
        assert code(tmp_path) == {"commit": commit, "dirty": dirty}
    code.cache_clear()


def test_an_unknown_device_is_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "harness.records.environment.block_device", lambda data: (data / "none").stat()
    )
    assert disk(tmp_path) is None
