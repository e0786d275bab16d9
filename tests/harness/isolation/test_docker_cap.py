"""A container keeps its promises: each is tried on a real engine, from inside and from
the host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

import pytest

from harness.isolation import IoLimit, Limits
from harness.isolation.docker.backend import Docker
from harness.isolation.docker.cap import DockerCap, readings_of
from harness.isolation.docker.options import throttles
from harness.isolation.probe import probe
from harness.isolation.walls.needs import Needs
from harness.isolation.walls.syscalls import Sockets
from harness.ssd.device import block_device
from tests.harness.cap_tools import (
    MIB,
    REPOSITORY,
    alive,
    cold_file,
    holds_within,
    limit_of,
    on_disk,
    python,
    run_in,
    start_in,
)
from tests.harness.isolation.docker_tools import containers, needs_docker
from workloads.errors import HostError, InputError

pytestmark = [needs_docker, pytest.mark.usefixtures("engine_alone")]
HOLD = (
    "import sys,time; x=bytearray(int(sys.argv[1])); print('held', flush=True); "
    "time.sleep(60)"
)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    yield from on_disk()


def limit_in(cap: DockerCap) -> int | None:
    """Return the memory limit that the kernel has for a container."""
    readings = readings_of(cap.first_pid)
    readings.release()
    return limit_of(readings.folders[0])


def test_memory_past_the_limit_ends_the_container_and_is_counted() -> None:
    with Docker().create("oom", Limits(48 * MIB)) as cap:
        bystander = start_in(cap, HOLD, "1000")
        assert limit_in(cap) == 48 * MIB
        assert run_in(cap, "x = bytearray(96 << 20)").returncode == -signal.SIGKILL
        # A process that waits for the killed one would wait forever.
        assert bystander.wait(timeout=10) == -signal.SIGKILL
        assert cap.memory().oom_kills >= 1
        assert 46 * MIB < cap.memory().peak <= 48 * MIB
        assert cap.ending() == ""
        assert cap.pids() == []
        # The engine learns of the kill by an event of its own, which may come after the
        # kernel's.
        assert holds_within(
            10, lambda: containers("oom")[0].attrs["State"]["OOMKilled"]
        )


def test_what_runs_inside_is_counted_on_the_host() -> None:
    with Docker().create("counted", Limits(96 * MIB)) as cap:
        assert cap.memory().usage == 0
        assert cap.io() is None
        child = start_in(cap, HOLD, str(32 * MIB))
        now = cap.memory()
        assert 32 * MIB <= now.anon < 48 * MIB
        assert now.oom_kills == 0
        (inside,) = cap.pids()
        assert alive(inside)
        assert child.poll() is None
        cap.reset_peak()
        assert now.peak >= 32 * MIB
    assert cap.memory().peak >= 32 * MIB
    assert containers("counted") == []


def test_the_probe_proves_a_container() -> None:
    for folder in on_disk():
        found = probe(Docker(), folder)
        assert found.proven and not found.escapes, found
        assert list(folder.iterdir()) == []


SOCKETS = """
import socket
for family in (socket.AF_UNIX, socket.AF_INET):
    try:
        socket.socket(family).close()
        print("made")
    except OSError as error:
        print(error.strerror)
"""
REFUSED = "Operation not permitted"


@pytest.mark.parametrize(
    ("sockets", "message"),
    [
        ("none", [REFUSED, REFUSED]),
        ("unix", ["made", REFUSED]),
        ("loopback", ["made", "made"]),
    ],
)
def test_a_container_has_the_sockets_that_its_work_needs(
    sockets: Sockets, message: list[str]
) -> None:
    with Docker().create("sockets", Limits(64 * MIB)) as cap:
        cap.bring(Needs(sockets=sockets))
        assert run_in(cap, SOCKETS).stdout.splitlines() == message


#: Programs of which a container refuses the system call, as a sandbox does, and the
#: error of each.
REFUSED_CALLS = {
    "add_key(2)": "libc.syscall(ctypes.c_long(248), b'user', b'k', b'v', 1, -2)",
    "ptrace": "libc.ptrace(16, 1, 0, 0)",
    "a user space by clone": "libc.syscall(ctypes.c_long(56), 0x10000000 | 17, 0, "
    "0, 0, 0)",
    "reserved huge pages": "libc.syscall(ctypes.c_long(319), b'pages', 0x4)",
}


@pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="numbers of system calls are those of x86_64"
)
@pytest.mark.parametrize("what", REFUSED_CALLS)
def test_a_container_refuses_the_calls_of_a_sandbox(what: str) -> None:
    call = REFUSED_CALLS[what]
    code = (
        f"import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nprint({call}, "
        "os.strerror(ctypes.get_errno()))"
    )
    with Docker().create("refused", Limits(64 * MIB)) as cap:
        assert run_in(cap, code).stdout.strip() == f"-1 {REFUSED}"


def test_the_limit_can_be_changed_while_it_runs() -> None:
    with Docker().create("change", Limits(32 * MIB)) as cap:
        start_in(cap, HOLD, "1000")
        cap.set_memory(96 * MIB)
        assert run_in(cap, "x = bytearray(48 << 20)").returncode == 0
        cap.set_memory(None)
        assert limit_in(cap) is None
        cap.set_memory(32 * MIB)
        assert run_in(cap, "x = bytearray(48 << 20)").returncode == -signal.SIGKILL


def test_nothing_can_be_written_but_what_was_brought(folder: Path) -> None:
    data = folder / "data"
    scratch = folder / "scratch"
    data.mkdir(exist_ok=True), scratch.mkdir(exist_ok=True)
    (data / "features").write_text("1")
    code = (
        "import sys\nfor path in sys.argv[1:]:\n"
        " try:\n  open(path, 'w').close(); print('written')\n except OSError as e: "
        "print(e.strerror)\n"
    )
    with Docker().create("write", Limits(64 * MIB)) as cap:
        cap.bring(Needs(read_only=(data,), writable=(scratch,)))
        asked = [
            str(data / "features"),
            str(data / "new"),
            "/new",
            "/usr/new",
            str(REPOSITORY / "new"),
        ]
        message = run_in(
            cap, code, *asked, str(scratch / "new"), "/tmp/new"
        ).stdout.splitlines()
    assert message == ["Read-only file system"] * 5 + ["written"] * 2
    assert (data / "features").read_text() == "1"
    assert (scratch / "new").exists()
    assert (scratch / "new").stat().st_uid == os.geteuid()


def test_no_network_no_privilege_no_other_process_and_the_callers_uid() -> None:
    code = (
        "import os,re,socket\nprint(os.getuid(), "
        "os.getgid())\nprint(sorted(os.listdir('/sys/class/net')))\n"
        "s = dict(re.findall(r'^(\\w+):\\s*(.*)$', "
        "open('/proc/self/status').read(), re.M))\n"
        "print(s['CapEff'], s['CapBnd'], s['NoNewPrivs'], s['Seccomp'])\n"
        "print(len([p for p in os.listdir('/proc') if p.isdigit()]))\n"
        "try: os.chown('/tmp', 5, 5)\nexcept OSError as e: print(e.strerror)\n"
        "print(sorted(os.sched_getaffinity(0)))\n"
    )
    with Docker().create("alone", Limits(64 * MIB)) as cap:
        message = run_in(cap, code).stdout.splitlines()
    # Root inside keeps one capability: locking memory, which registered buffers need.
    left = f"{1 << 14:016x}" if os.geteuid() == 0 else "0" * 16
    assert message[0] == f"{os.geteuid()} {os.getegid()}"
    assert message[1] == "['lo']"
    assert (
        message[2]
        == f"{left} {left if os.geteuid() == 0 else message[2].split()[1]} 1 2"
    )
    assert message[3] == "2"  # the container's waiting first process, and this one
    assert message[4] == "Operation not permitted"
    assert message[5] == str(sorted(os.sched_getaffinity(0)))


def test_input_output_arguments_and_status_are_the_commands_own() -> None:
    code = (
        "import sys; print(repr(sys.argv[1:]), input()); print('bad', "
        "file=sys.stderr); sys.exit(7)"
    )
    with Docker().create("words", Limits(64 * MIB)) as cap:
        argv = cap.command(python(code, "a b", "--", "$HOME", "'", ""))
        done = subprocess.run(
            argv,
            input="said\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.stdout == f"{['a b', '--', '$HOME', chr(39), '']!r} said\n"
        assert done.stderr == "bad\n"
        assert done.returncode == 7
        assert (
            run_in(
                cap, "import os,signal; os.kill(os.getpid(), signal.SIGSEGV)"
            ).returncode
            == -signal.SIGSEGV
        )


@pytest.mark.skipif(
    not Docker.available().io_limits, reason="this engine cannot limit a device"
)
def test_the_device_is_limited_and_counted(folder: Path) -> None:
    file = cold_file(folder, 32 * MIB)
    number = block_device(file).number
    code = (
        "import mmap,os,random,sys,time\n"
        "fd=os.open(sys.argv[1],os.O_RDONLY|os.O_DIRECT)\nb=mmap.mmap(-1,4096);n=0\n"
        "t=time.monotonic()\nwhile time.monotonic()<t+1.5: "
        "os.preadv(fd,[b],random.randrange(8192)*4096);n+=1\n"
        "print(n,time.monotonic()-t)"
    )
    for limit in (100, None):
        limits = Limits(64 * MIB, (IoLimit(number, read_iops=limit),) if limit else ())
        with Docker().create("iops", limits) as cap:
            cap.bring(Needs(read_only=(file,)))
            requests, seconds = (
                float(word) for word in run_in(cap, code, str(file)).stdout.split()
            )
            charged = cap.io()
        assert charged is not None
        assert charged.read_requests >= requests
        assert (requests / seconds < 125) == bool(limit)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(HostError, match="999:0"):
        throttles((IoLimit("999:0", read_iops=1),), count=True)


def test_a_folder_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with Docker().create("missing", Limits(64 * MIB)) as cap:
        cap.bring(Needs(read_only=(tmp_path / "gone",)))
        with pytest.raises(InputError, match="gone, which is not there"):
            cap.command(["true"])
    assert containers("missing") == []


def test_a_container_that_somebody_else_ends_states_so() -> None:
    with Docker().create("killed", Limits(64 * MIB)) as cap:
        child = start_in(cap, HOLD, "1000")
        (container,) = containers("killed")
        container.kill()
        assert child.wait(timeout=10) == -signal.SIGKILL
        assert "ended from outside" in cap.ending()
        with pytest.raises(HostError, match="ended already"):
            cap.command(["true"])


@pytest.mark.alone  # the start of any other run sweeps, too
def test_a_killed_orchestrator_takes_its_container_along_and_the_next_removes_it() -> (
    None
):
    code = (
        "import subprocess, time\nfrom harness.isolation import Limits\n"
        "from harness.isolation.docker.backend import Docker\n"
        "cap = Docker().create('abandoned', Limits(64 << 20))\n"
        "child = subprocess.Popen(cap.command(['sleep', '300']))\n"
        "while not cap.pids(): time.sleep(0.01)\n"
        "print(cap.pids()[0], flush=True)\ntime.sleep(300)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert owner.stdout is not None
    inside = int(owner.stdout.readline())
    with Docker().create("living", Limits(64 * MIB)) as living:
        kept = start_in(living, HOLD, "1000")
        assert not [name for name in Docker.sweep() if "abandoned" in name]
        assert alive(inside)
        owner.kill()
        owner.wait()
        deadline = time.monotonic() + 10
        while alive(inside) and time.monotonic() < deadline:
            time.sleep(0.01)
        # Nothing inside outlives the orchestrator, even before a sweep.
        assert not alive(inside)
        swept = Docker.sweep()
        assert len([name for name in swept if "_abandoned." in name]) == 1
        assert kept.poll() is None
    assert containers("abandoned") == []


@pytest.mark.slow(
    "containers", "harness/isolation/docker", "systems/engine/io", seconds=8
)
def test_without_room_to_lock_memory_the_reader_states_that_its_buffers_are_unregistered(
    folder: Path,
) -> None:
    file = cold_file(folder, 4 * MIB)
    code = (
        "import sys\nfrom pathlib import Path\nfrom systems.engine.io.reader "
        "import RowReader\n"
        "r = RowReader(Path(sys.argv[1]), data_offset=0, num_rows=8192, "
        "row_bytes=512, depth=64)\n"
        "print(r.mode)\nr.close()"
    )
    message = {}
    for locked in (None, 1 << 14):
        with Docker(memlock_bytes=locked).create("lock", Limits()) as cap:
            cap.bring(Needs(read_only=(file,)))
            argv = cap.command([sys.executable, "-c", code, str(file)])
            done = subprocess.run(
                argv, capture_output=True, text=True, check=False, timeout=120
            )
            message[locked] = done.stdout.strip() or done.stderr
    assert message[None] == "io_uring registered"
    assert message[1 << 14].startswith(("io_uring unregistered", "pread pool"))


@pytest.mark.slow("containers", "harness/isolation/docker", seconds=8)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_user_of_the_engines_group_has_a_proven_cap_without_root(
    folder: Path,
) -> None:
    socket = Path(
        urlparse(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")).path
    )
    group = socket.stat().st_gid
    if not socket.stat().st_mode & 0o020 or group == 0:
        pytest.skip("this engine's socket is for root alone")
    theirs = folder / "theirs"
    theirs.mkdir()
    folder.chmod(0o755)
    os.chown(theirs, 65534, 65534)
    code = (
        "import json, os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from harness.isolation import Limits\n"
        "from harness.isolation.docker.backend import Docker\n"
        "from harness.isolation.probe import probe\n"
        "with Docker().create('user', Limits(64 << 20)) as cap:\n"
        " said = subprocess.run(cap.command([sys.executable, '-S', '-c', 'import os; "
        "print(os.getuid())']), capture_output=True, text=True)\n"
        "print(json.dumps([os.geteuid(), probe(Docker(), Path(sys.argv[1])).proven, "
        "said.stdout, cap.caveats]))"
    )
    # The tests' interpreter may lie in root's home; the host's, of the same version,
    # reads the same packages.
    python = f"/usr/bin/python3.{sys.version_info.minor}"
    done = subprocess.run(
        [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            f"--groups={group}",
            python if Path(python).exists() else sys.executable,
            "-c",
            code,
            str(theirs),
        ],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
        env={
            "PYTHONPATH": f"{REPOSITORY}:{sysconfig.get_path('purelib')}",
            "DOCKER_HOST": f"unix://{socket}",
        },
    )
    if "Permission denied" in done.stderr and "docker" not in done.stderr.lower():
        pytest.skip("the checkout cannot be read by another user")
    assert done.returncode == 0, done.stderr
    user, proven, inside, caveats = json.loads(done.stdout)
    assert (user, proven, inside) == (65534, True, "65534\n")
    # Root inside may lock by a capability; anyone else by a limit, which this engine
    # may or may not raise.
    assert all("memlock" in caveat for caveat in caveats)
