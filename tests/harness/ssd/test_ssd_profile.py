"""`outcore ssd profile` on a real disk: it measures every point, resumes after a kill,
leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.ssd.device import block_device
from harness.ssd.drive import drive_path, read_drive, save_drive
from harness.ssd.fio import (
    FioJob,
    SteadyRule,
    best_engine,
    fio_path,
    parse_fio,
    run_fio,
)
from harness.ssd.measure import (
    FILE_BYTES,
    POINT_S,
    STEADY_S,
    Wanted,
    key_of,
    precondition,
    profile_jobs,
)
from harness.ssd.testfile import check_folder, one_at_a_time, own_file, sweep
from tests.harness.cap_tools import MIB, cold_file, on_disk
from tests.harness.ssd.drives import make_drive
from workloads.errors import HostError, InputError

pytestmark = pytest.mark.alone

needs_fio = pytest.mark.skipif(fio_path() is None, reason="fio is not installed")
SHORT = ["--file-size", "16MiB", "--seconds", "0.2", "--name", "mine"]


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    for folder in on_disk():
        if not block_device(folder).number:
            pytest.skip(f"{folder} is on no disk")
        yield folder


def run_cli(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


class Stopped:
    """A profile that was killed after some points, and the profile that resumed it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "drive"
        self.results = folder / "results"
        self.folder.mkdir()
        self.command = [
            sys.executable,
            "-c",
            "from harness.cli import main; main()",
            "ssd",
            "profile",
            str(self.folder),
            *SHORT,
            "--results-root",
            str(self.results),
            "--json",
        ]
        part = self.results / "ssd" / "mine.part"
        child = subprocess.Popen(
            self.command, start_new_session=True, stdout=subprocess.DEVNULL
        )
        self.first: dict[str, Any] = {}
        deadline = time.monotonic() + 60
        while len(self.first) < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
            if part.exists():
                self.first = json.loads(part.read_text())["points"]
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        self.left_by_the_killed = [path.name for path in self.folder.iterdir()]
        done = subprocess.run(
            self.command, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        self.json = json.loads(done.stdout)
        self.drive = read_drive(drive_path(self.results, "mine"))


@pytest.fixture(scope="module")
def stopped(disk: Path) -> Stopped:
    if fio_path() is None:
        pytest.skip("fio is not installed")
    return Stopped(disk)


@pytest.mark.slow("harness/ssd", seconds=25)
def test_a_killed_profile_is_resumed_and_its_points_are_kept(stopped: Stopped) -> None:
    assert len(stopped.first) >= 3
    kept = [point.model_dump(mode="json") for point in stopped.drive.points]
    assert all(point in kept for point in stopped.first.values())
    assert not (stopped.results / "ssd" / "mine.part").exists()


@pytest.mark.slow("harness/ssd", seconds=25)
def test_the_file_of_a_killed_profile_goes_at_the_next_start_and_none_is_left(
    stopped: Stopped,
) -> None:
    assert [
        name.startswith(".outcore-ssd-") for name in stopped.left_by_the_killed
    ] == [True]
    assert list(stopped.folder.iterdir()) == []


def test_a_stopped_profile_of_another_fio_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for version in ((3, 35), (3, 36)):
        monkeypatch.setattr(
            "harness.ssd.fio.fio_version", lambda path, version=version: version
        )
        found.append(Wanted(tmp_path).settings(make_drive("mine").identity))
    assert found[0] != found[1]


@pytest.mark.slow("harness/ssd")
def test_a_quick_profile_has_every_kind_of_read(stopped: Stopped) -> None:
    points = stopped.drive.points
    file = Path("/")
    assert len(points) == len(
        profile_jobs("quick", file, stopped.drive.identity.logical_block_bytes, 0.2)
    )
    reads = [point for point in points if not point.write_percent]
    kinds = {(point.pattern, point.engine, point.direct) for point in reads}
    random = {
        ("random", engine, direct)
        for engine in ("sync", "async")
        for direct in (True, False)
    }
    assert kinds == random | {("sequential", "async", True)}
    assert {point.in_flight for point in reads} >= {1, 4, 16, 64, 256}
    # With so few reads, processor time may be below the clock's tick, and a starved
    # point may have read nothing.
    assert sum(point.iops > 0 for point in points) >= len(points) - 2
    assert sum(point.cpu_s_per_request > 0 for point in points) >= len(points) // 2
    assert all(
        point.latency_s["50"] <= point.latency_s["99.9"]
        for point in points
        if point.iops
    )
    assert [point.write_iops >= 0 for point in points if point.write_percent] == [True]
    roofline = stopped.drive.disk_profile()
    assert roofline.request_seconds(4096) > 0
    assert roofline.sequential_bytes_per_s() > 0


@pytest.mark.slow("harness/ssd")
def test_the_profile_states_who_and_in_what_condition_the_drive_is(
    stopped: Stopped,
) -> None:
    who = stopped.drive.identity
    condition = stopped.drive.condition
    device = block_device(stopped.folder)
    assert (who.name, who.capacity_bytes, who.file_system) == (
        device.name,
        device.size_bytes,
        device.file_system,
    )
    assert who.layers
    assert who.layers[-1].endswith("(disk)")
    assert 0 < condition.fill < 1
    assert condition.file_bytes == 16 * MIB
    assert condition.steady is not None
    assert condition.steady.iops
    assert not condition.preconditioned
    assert condition.health or "not" in condition.health_missing
    assert stopped.json == stopped.drive.to_json()
    assert who.serial is None


def test_a_profile_serves_as_roofline_by_its_direct_asynchronous_reads() -> None:
    drive = make_drive()
    others = [
        drive.points[0].model_copy(update=one)
        for one in ({"engine": "sync"}, {"direct": False}, {"write_percent": 50})
    ]
    profile = drive.model_copy(
        update={"points": [*drive.points, *others]}
    ).disk_profile()
    assert [(point.block_bytes, point.depth) for point in profile.points] == [
        (point.block_bytes, point.depth) for point in drive.points
    ]
    assert profile.request_seconds(4096) == pytest.approx(1e-5)
    assert profile.sequential_bytes_per_s() == 2e9


@pytest.mark.parametrize(("mode", "most"), [("quick", 60), ("full", 15 * 60)])
def test_a_profile_ends_in_time_on_a_drive_that_writes_300_mb_a_second(
    mode: Any, most: float
) -> None:
    setup_s = 0.5
    ramp_s = 0.2
    points = len(profile_jobs(mode, Path("/"), 512, POINT_S[mode]))
    rest = STEADY_S[mode] + 2 + FILE_BYTES[mode] / 300e6
    assert points * (POINT_S[mode] + ramp_s + setup_s) + rest < most


def test_the_full_grid_has_every_size_and_depth() -> None:
    jobs = profile_jobs("full", Path("/"), 512, 1.0)
    deep = {
        (job.block_bytes, job.depth)
        for job in jobs
        if job.direct and job.engine != "psync"
    }
    assert {(512 << i, 1 << j) for i in range(8) for j in range(9)} <= deep
    assert len({key_of(job) for job in jobs}) == len(jobs)


def test_a_drive_of_large_sectors_is_read_in_those() -> None:
    jobs = profile_jobs("full", Path("/"), 4096, 1.0)
    assert min(job.block_bytes for job in jobs) == 4096
    assert len({key_of(job) for job in jobs}) == len(jobs)


def test_two_profiles_of_a_device_at_once_are_refused(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with one_at_a_time(block_device(disk)):
        code, _, err = run_cli(
            ["ssd", "profile", str(disk), *SHORT, "--results-root", str(disk / "r")],
            capsys,
        )
    assert code == 3
    assert "another outcore measures" in err
    assert not list(disk.glob(".outcore-ssd-*"))


def test_memory_is_reported_from_a_drive(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_cli(["ssd", "profile", "/dev/shm"], capsys)
    assert code == 3
    assert "tmpfs, which is memory and no drive" in err


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("nfs4", "rw,addr=10.0.0.1", "over the network"),
        ("fuse.sshfs", "rw", "over the network"),
        (
            "overlay",
            "rw,lowerdir=/a,upperdir=/nowhere/upper,workdir=/w",
            "upper folder is not visible",
        ),
        ("proc", "rw", "has no block device"),
    ],
)
def test_what_is_no_drive_of_this_host_is_stated_plainly(
    kind: str, options: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(
        f"40 20 0:99 / {tmp_path} rw - {kind} server:/x {options}\n"
    )
    with pytest.raises(HostError, match=message):
        check_folder(tmp_path, tmp_path)


@pytest.mark.parametrize("path", ["/nowhere", "/dev/null", "/etc/passwd"])
def test_a_path_that_is_no_folder_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="not a folder"):
        check_folder(Path(path))


@needs_fio
def test_a_file_that_does_not_fit_is_refused_before_it_is_written(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ["--results-root", str(disk / "r")]
    code, out, _ = run_cli(
        ["ssd", "profile", str(disk), "--file-size", "900TiB", "--json", *root], capsys
    )
    assert code == 3
    error = json.loads(out)["error"]
    assert "free" in error["message"]
    assert "--file-size" in error["fix"]
    assert not list(disk.glob(".outcore-ssd-*"))


def test_without_fio_it_states_how_to_get_it(
    disk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, err = run_cli(
        ["ssd", "profile", str(disk), "--results-root", str(disk / "r")], capsys
    )
    assert code == 3
    assert "apt-get install fio" in err


@needs_fio
def test_the_profile_of_another_drive_is_never_replaced(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_drive(disk / "other", make_drive("mine"))
    root = ["--results-root", str(disk / "other")]
    code, _, err = run_cli(["ssd", "profile", str(disk), *SHORT, *root], capsys)
    assert code == 2
    assert "profile of another drive (MODEL mine)" in err
    assert "--name" in err


@needs_fio
def test_preconditioning_warns_before_it_writes(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with one_at_a_time(block_device(disk)):  # so that the command ends there
        root = ["--results-root", str(disk / "r")]
        _, _, err = run_cli(
            ["ssd", "profile", str(disk), "--precondition", *SHORT, *root], capsys
        )
    warning, refusal = err.splitlines()
    assert "writes up to about 32.0 MiB" in warning
    assert "wears the drive" in warning
    assert "another outcore" in refusal


@needs_fio
def test_preconditioning_writes_over_the_profiles_own_file(disk: Path) -> None:
    with own_file(disk, 2 * MIB) as file:
        before = file.read_bytes()
        written = precondition(Wanted(disk, seconds=0.1), file, lambda text: None)
        assert written > 0
        assert file.read_bytes() != before


def test_only_files_of_the_dead_are_swept(disk: Path) -> None:
    with own_file(disk, MIB) as mine:
        foreign = disk / ".outcore-ssd-notes.bin"
        foreign.write_text("a user's own")
        assert sweep(disk) == []
        assert mine.exists()
        assert foreign.exists()
        foreign.unlink()
    assert not mine.exists()


@needs_fio
def test_a_job_with_a_steady_rate_ends_early_and_states_so(disk: Path) -> None:
    file = cold_file(disk, 16 * MIB)
    # A rule that every rate meets.
    rule = SteadyRule(within=0.99, seconds=2, ramp_seconds=0)
    job = FioJob(
        file=file,
        block_bytes=4096,
        depth=4,
        seconds=30,
        engine=best_engine(),
        steady=rule,
    )
    (result,) = run_fio([job])
    assert result.steady is not None
    assert result.steady.attained
    assert 0 <= result.steady.deviation <= 0.99
    assert len(result.steady.iops) == 2


@needs_fio
def test_reads_never_write_and_mixed_jobs_do(disk: Path) -> None:
    file = cold_file(disk, 2 * MIB)
    before = file.read_bytes()
    shared: dict[str, Any] = {
        "file": file,
        "block_bytes": 4096,
        "depth": 8,
        "engine": best_engine(),
        "seconds": 0.2,
    }
    (result,) = run_fio([FioJob(**shared)])
    assert file.read_bytes() == before
    assert result.write_iops == 0
    (mixed,) = run_fio([FioJob(**shared, write_percent=50)])
    assert file.read_bytes() != before
    assert mixed.write_iops > 0
    assert mixed.iops > 0
    (writes,) = run_fio([FioJob(**shared, write_percent=100)])
    assert writes.iops > 0
    assert writes.latency_s


@needs_fio
def test_a_killed_fio_is_reported_by_its_signal(disk: Path) -> None:
    import threading

    import psutil

    file = cold_file(disk, 2 * MIB)

    def kill() -> None:
        for _ in range(200):
            time.sleep(0.05)
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    # Not the fio that is asked for its version.
                    if (
                        child.name() == "fio"
                        and f"--filename={file}" in child.cmdline()
                    ):
                        child.kill()
                        return

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(HostError, match="SIGKILL"):
        run_fio(
            [FioJob(file=file, block_bytes=4096, depth=1, seconds=20, engine="psync")]
        )
    killer.join()


def test_an_old_fio_is_refused_with_the_version_that_is_needed(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "fio"
    old.write_text("#!/bin/sh\necho fio-2.2.10\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(HostError, match=r"fio 2.2 is too old; install fio 3.0"):
        run_fio([FioJob(file=cold_file(disk, MIB), block_bytes=4096)])


def test_notes_of_fio_before_and_after_its_json_do_no_harm() -> None:
    side = {"iops": 10.0, "total_ios": 10, "io_bytes": 40960, "runtime": 1000}
    report = {
        "fio version": "fio-3.33",
        "jobs": [{"error": 0, "read": side, "usr_cpu": 1.0, "sys_cpu": 2.0}],
    }
    jobs = [FioJob(file=Path("/x"), block_bytes=4096)]
    text = (
        f"fio: note {{not json}}\n{{also}} "
        f"not\n{{\n{json.dumps(report, indent=1)[1:]}\nfio: bye {{}}\n"
    )
    (result,) = parse_fio(text, jobs)
    assert result.iops == 10.0
    assert result.cpu == pytest.approx(0.03)
