"""`outcore ssd emulate` with the kernel's real limiter: the class holds, the caller's
user runs, nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.isolation.base import IoLimit
from harness.isolation.cgroup1 import throttle_lines
from harness.isolation.cgroup2 import io_max_line
from harness.ssd.classes import load_classes, parse_disk_class
from harness.ssd.device import block_device
from harness.ssd.emulate import (
    Check,
    caller,
    fitting_factor,
    problem,
    rate,
    resolve_class,
    run_limited,
    verify,
)
from harness.ssd.fio import fio_path
from harness.ssd.measure import limiting
from harness.ssd.profile import expected
from tests.harness.cap_tools import (
    MIB,
    alive,
    cold_file,
    groups_named,
    needs_cap,
    needs_io,
    needs_root,
    on_disk,
)
from workloads.errors import InputError

needs_fio = pytest.mark.skipif(fio_path() is None, reason="fio is not installed")
NOBODY = 65534
# Reads blocks at random places of a file, directly or through the page cache; prints
# the time and its user.
READER = """
import mmap, os, random, sys, time
path, count, direct, block = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "direct", 4096
fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
if not direct:
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
buffer = mmap.mmap(-1, block)
began = time.monotonic()
for place in random.sample(range(os.fstat(fd).st_size // block), count):
    os.preadv(fd, [buffer], place * block)
print(time.monotonic() - began, os.getuid(), os.getgid(), os.getgroups(), os.environ["HOME"])
"""


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    for folder in on_disk():
        if not block_device(folder).number:
            pytest.skip(f"{folder} is on no disk")
        folder.chmod(0o755)
        yield folder


def outcore(*arguments: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        "from harness.cli import main; main()",
        "ssd",
        "emulate",
        *arguments,
    ]


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Define a class of the user's own and return it divided: 500 reads a second."""
    own = tmp_path / "classes.yaml"
    own.write_text(
        "slow: {read_iops: 2000, read_bytes_per_s: 40000000, source: this test}\n"
    )
    monkeypatch.setenv("OUTCORE_DISK_CLASSES", str(own))
    return "slow/4"


@needs_cap
@needs_io
@needs_root
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(
            "direct",
            marks=pytest.mark.slow(
                "harness/ssd/emulate.py", "harness/isolation", seconds=6
            ),
        ),
        "buffered",
    ],
)
def test_a_command_is_held_to_the_class_and_root_is_dropped(
    disk: Path, slow: str, how: str
) -> None:
    file = cold_file(disk, 16 * MIB)
    file.chmod(0o644)
    # The interpreter may be under /root, where the user `nobody` has no access.
    reader = ["/usr/bin/python3", "-S", "-E", "-c", READER, str(file), "500", how]
    if not Path(reader[0]).exists():
        pytest.skip("no system Python for another user to run")
    done = subprocess.run(
        outcore(
            slow,
            "--no-check",
            "--path",
            str(disk),
            "--user",
            "nobody",
            "-q",
            "--",
            *reader,
        ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    seconds, uid, gid = done.stdout.split()[:3]
    assert (int(uid), int(gid)) == (NOBODY, NOBODY)
    assert "[0" not in done.stdout  # not in root's group either
    # 500 reads at 500 a second; the limiter lets a first slice through.
    assert float(seconds) > 0.75


@needs_cap
@needs_io
@needs_root
def test_plain_root_runs_the_command_as_root_without_a_user_option(
    disk: Path, slow: str
) -> None:
    plain = {
        name: value
        for name, value in os.environ.items()
        if name not in ("SUDO_UID", "PKEXEC_UID")
    }
    command = outcore(slow, "--no-check", "--path", str(disk), "--", "id", "-u")
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=plain
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert "runs as root: --user NAME gives it another user" in done.stderr


@pytest.mark.alone
@pytest.mark.slow("harness/ssd/emulate.py", "harness/isolation")
@needs_cap
@needs_io
@needs_root
def test_streams_and_exit_status_are_the_commands_own(disk: Path, slow: str) -> None:
    def run(*command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        flags = [slow, "--no-check", "--path", str(disk), "--user", "root", "-q", "--"]
        return subprocess.run(
            [*outcore(*flags), *command],
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    done = run("sh", "-c", "cat; echo oops >&2; exit 7", text="hello")
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello", "oops\n")
    found = subprocess.run(
        [
            *outcore(
                slow, "--no-check", "--path", str(disk), "--user", "nobody", "-q", "--"
            ),
            "id",
            "-u",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
    )
    assert found.stdout.split() == [str(NOBODY)], found.stderr
    assert run("sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM
    missing = run("no-such-program")
    assert missing.returncode == 127
    assert "no-such-program: No such file" in missing.stderr
    assert "Traceback" not in missing.stderr
    assert groups_named("ssd.emulate") == []


@needs_cap
@needs_io
@needs_root
@pytest.mark.alone  # the start of any other run cleans up, too
def test_what_a_killed_emulation_left_behind_is_cleaned_at_the_next_start(
    disk: Path, slow: str
) -> None:
    flags = [slow, "--no-check", "--path", str(disk), "--user", "root", "-q", "--"]
    command = [*outcore(*flags), "sh", "-c", "echo $$; exec sleep 300"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    inside = int(child.stdout.readline())
    left = groups_named("ssd.emulate")
    assert left
    assert alive(inside)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert alive(inside)
    assert groups_named("ssd.emulate") == left
    limiting()
    assert groups_named("ssd.emulate") == []
    deadline = time.monotonic() + 5
    while alive(inside) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(inside)


@needs_cap
@needs_io
@needs_root
@needs_fio
@pytest.mark.alone
@pytest.mark.slow("harness/ssd", "harness/isolation")
def test_fio_finds_the_limits_and_buffered_reads_are_limited_too(
    disk: Path, slow: str
) -> None:
    chosen = resolve_class("slow", disk)
    limits = chosen.limits(block_device(disk))
    checks = verify(limiting(), limits, disk, seconds=1.5)
    if any(
        check.error < -0.08 for check in checks
    ):  # a busy machine may be slow; a limit is never exceeded
        assert all(check.error < 0.08 for check in checks), checks
        checks = verify(limiting(), limits, disk, seconds=3.0)
    assert {check.name for check in checks} == {
        "randread_4k_iops",
        "randread_512_iops",
        "seqread_bytes_per_s",
        "buffered_reads_per_s",
    }
    # Short windows on a machine that may be busy.
    assert all(abs(check.error) < 0.08 for check in checks), checks


@pytest.mark.slow("harness/ssd", "harness/isolation", seconds=6)
@needs_cap
@needs_io
@needs_fio
@needs_root
def test_a_class_that_the_device_cannot_play_is_refused_with_the_factor_that_fits(
    disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = tmp_path / "classes.yaml"
    own.write_text(
        "dream: {read_iops: 900000000, read_bytes_per_s: 900000000000, source: "
        "this test}\n"
    )
    monkeypatch.setenv("OUTCORE_DISK_CLASSES", str(own))
    for name, value in (("_SECONDS", 0.3), ("_BARE_S", 0.3), ("_RAMP_S", 0.1)):
        monkeypatch.setattr(f"harness.ssd.emulate.{name}", value)
    monkeypatch.setattr("harness.ssd.emulate._MOST_BYTES", 64 * MIB)
    root = ["--results-root", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        flags = ["--path", str(disk), "--user", "root", *root]
        main(["ssd", "emulate", "dream", *flags, "--", "touch", str(tmp_path / "x")])
    assert ended.value.code == 3
    assert "slower than the class: use dream/" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_the_caller_is_who_called_sudo_unless_another_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("SUDO_UID", "SUDO_GID", "PKEXEC_UID"):
        monkeypatch.delenv(name, raising=False)
    assert (
        caller(None) is None
    )  # root logged in directly: the command runs as whoever started it
    monkeypatch.setenv("SUDO_UID", "12345")
    monkeypatch.setenv("SUDO_GID", "23456")
    found = caller(None)
    assert found is not None
    assert (found.pw_uid, found.pw_gid) == (12345, 23456)
    named = caller("nobody")
    assert named is not None
    assert named.pw_uid == NOBODY
    assert caller("root") is None
    with pytest.raises(InputError, match="no user 'nobody-of-this-name'"):
        caller("nobody-of-this-name")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert caller(None) is None


def test_without_a_command_or_a_class_there_is_a_sentence(
    capsys: pytest.CaptureFixture[str], disk: Path
) -> None:
    for arguments, message in (
        (["aws-gp3"], "no command to run"),
        (["aws-gp33", "--verify", "--path", str(disk)], "did you mean aws-gp3"),
        (["none", "--verify", "--path", str(disk)], "limits nothing"),
        (["aws-gp3", "--verify", "--path", "/dev/shm"], "memory and no drive"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["ssd", "emulate", *arguments])
        assert ended.value.code in (2, 3)
        assert message in capsys.readouterr().err


def test_every_class_becomes_lines_of_either_cgroup_version() -> None:
    for disk_class in load_classes().values():
        (limit,) = disk_class.limits(block_device(Path("/var/tmp"))) or [IoLimit("8:0")]
        line = io_max_line(limit).split()
        assert line[0] == limit.device
        assert f"rbps={disk_class.read_bytes_per_s}" in line
        assert f"riops={disk_class.read_iops}" in line
        # Of a budget shared with reads, the kernel enforces at least that writes alone
        # do not exceed it.
        assert f"wiops={disk_class.write_iops or disk_class.read_iops}" in line
        files = dict(throttle_lines(limit))
        assert (
            files["blkio.throttle.read_iops_device"]
            == f"{limit.device} {disk_class.read_iops}"
        )
        assert (
            files["blkio.throttle.write_bps_device"]
            == f"{limit.device} {limit.write_bytes_per_s}"
        )
        assert (
            limit.write_bytes_per_s == disk_class.write_bytes_per_s
            or disk_class.read_bytes_per_s
        )
        apart = disk_class.model_copy(
            update={"mixed": "a budget each", "write_iops": None}
        ).limits(block_device(Path("/var/tmp")))
        assert [entry.write_iops for entry in apart] == [None]
        assert disk_class.mixed_source


def test_what_limits_allow_is_the_lesser_of_count_and_bytes() -> None:
    limits = [IoLimit("8:0", read_iops=1000, read_bytes_per_s=10_000_000)]
    assert expected(limits, 4096) == 1000
    assert expected(limits, 1 << 20) == pytest.approx(10_000_000 / (1 << 20))
    assert expected(limits * 2, 4096) == 2000


def test_rates_three_percent_off_are_reported_and_slower_buffered_reads_are_not() -> (
    None
):
    assert (
        problem(
            [
                Check("randread_4k_iops", 1029.0, 1000.0),
                Check("buffered_reads_per_s", 500.0, 1000.0),
            ]
        )
        == ""
    )
    assert "randread_4k_iops 960 of 1,000 (-4.0%)" in problem(
        [Check("randread_4k_iops", 960.0, 1000.0)]
    )
    assert "buffered" in problem([Check("buffered_reads_per_s", 1100.0, 1000.0)])


def test_a_class_is_divided_by_the_least_power_of_two_that_fits() -> None:
    nvme = parse_disk_class("aws-nvme")
    assert nvme is not None
    bare = {
        "randread_4k_iops": 80_000.0,
        "randread_512_iops": 80_000.0,
        "seqread_bytes_per_s": 3.6e9,
    }
    assert fitting_factor(nvme, bare) == 16  # 625 / 80 = 7.8, and a tenth to spare
    assert fitting_factor(nvme, {key: value * 10 for key, value in bare.items()}) == 1
    gp3 = parse_disk_class("aws-gp3")
    assert gp3 is not None
    assert fitting_factor(gp3, bare) == 1


@needs_cap
@needs_io
@needs_root
def test_what_a_command_starts_is_limited_with_it(disk: Path) -> None:
    limits = (IoLimit(block_device(disk).number, read_iops=1000),)
    script = (
        "for i in 1 2 3; do (cat /proc/self/cgroup | grep -c ssd.emulate) & done; wait"
    )
    out = disk / "groups"
    assert (
        run_limited(limiting(), limits, ["sh", "-c", f"({script}) > {out}"], None) == 0
    )
    assert [int(line) > 0 for line in out.read_text().split()] == [True] * 3


def test_a_rate_is_that_of_the_time_in_which_a_count_grew() -> None:
    # A process starts (0.5 s), reads 1,000 a second in slices of 0.1 s (2 s), and ends
    # (1 s).
    looks = [at * 0.02 for at in range(175)]
    counted = [
        (look, min(max(int((look - 0.5) / 0.1 + 1e-9) * 100, 0), 2000))
        for look in looks
    ]
    found = rate(counted)
    assert found == pytest.approx(1000, rel=0.01)
    late = [*counted[:40], (counted[40][0] + 0.09, counted[44][1]), *counted[45:]]
    assert rate(late) == pytest.approx(1000, rel=0.01)
    assert rate([(look, 7) for look in looks]) is None
    assert rate(counted[:30]) is None
