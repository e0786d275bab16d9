"""A cap holds: every promise is tried on the kernel of this host, under each backend
that works here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.isolation import IoLimit, Isolation, Limits
from harness.isolation.base import MemoryStats
from harness.isolation.groups import GroupCap
from harness.isolation.processes import is_left_over
from harness.ssd.device import block_device
from tests.harness.cap_tools import (
    CAPPING,
    MIB,
    REPOSITORY,
    alive,
    cold_file,
    groups_named,
    limit_of,
    needs_cap,
    needs_io,
    on_disk,
    python,
    run_in,
    start_in,
)
from workloads.errors import HostError

pytestmark = needs_cap
HOLD = (
    "import sys,time; x=bytearray(int(sys.argv[1])); print('held', flush=True); "
    "time.sleep(60)"
)


@pytest.fixture(params=CAPPING, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Isolation:
    return request.param()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    yield from on_disk()


def test_memory_past_the_limit_ends_the_process_and_is_counted(
    backend: Isolation,
) -> None:
    with backend.create("oom", Limits(32 * MIB)) as cap:
        done = run_in(cap, "x = bytearray(64 << 20)")
        assert done.returncode == -signal.SIGKILL
        assert cap.memory().oom_kills == 1
        assert limit_of(cap.folders[0]) == 32 * MIB
        assert 31 * MIB < cap.memory().peak <= 32 * MIB


TAKE_ALL = (
    "import os; os.sched_setaffinity(0, range(os.cpu_count())); "
    "print(*sorted(os.sched_getaffinity(0)))"
)


def test_processes_cannot_leave_the_processors_of_their_cap(backend: Isolation) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    for processors in ((allowed[-1],), tuple(allowed)):
        with backend.create(
            "processors", Limits(64 * MIB, processors=processors)
        ) as cap:
            assert run_in(cap, TAKE_ALL).stdout.split() == [
                str(number) for number in processors
            ]
    with backend.create("processors", Limits(64 * MIB)) as cap:
        assert len(run_in(cap, TAKE_ALL).stdout.split()) >= len(allowed)


def test_processors_that_the_host_lacks_are_refused(backend: Isolation) -> None:
    with pytest.raises(HostError, match="the kernel refuses processors 5000"):
        backend.create("processors", Limits(64 * MIB, processors=(5000,)))
    assert not groups_named("processors")


def test_memory_below_the_limit_is_left_alone(backend: Isolation) -> None:
    with backend.create("fits", Limits(64 * MIB)) as cap:
        child = start_in(cap, HOLD, str(24 * MIB))
        assert 24 * MIB <= cap.memory().anon < 40 * MIB
        assert cap.memory().oom_kills == 0
        assert child.poll() is None


def test_processor_time_of_ended_processes_counts_in_user_mode_and_in_the_kernel(
    backend: Isolation,
) -> None:
    copy = (
        "import os\nwith open('/dev/zero', 'rb', 0) as file:\n while "
        "sum(os.times()[:2]) < 0.5: file.read(1 << 20)\n"
    )
    with backend.create("spent", Limits(64 * MIB)) as cap:
        done = run_in(cap, f"{copy}print(*os.times()[:2])")
        reported = [float(seconds) for seconds in done.stdout.split()]
        spent = cap.processor_s()
    if spent is None:
        pytest.skip(f"{backend.name} has no counters of processor time")
    # cgroup v1 samples a hundred times a second and leaves out what other virtual
    # machines take: a busy host loses a third of it. What a counter without ended
    # processes shows is nothing at all.
    assert spent.user_s > 0.0
    assert spent.system_s > 0.0
    assert sum(spent) >= 0.25 * sum(reported)


def test_swap_is_off_inside(backend: Isolation) -> None:
    with backend.create("swap", Limits(32 * MIB)) as cap:
        assert done_ok(run_in(cap, "print(open('/proc/self/cgroup').read())"))
        group = next((g for g in groups_named("_swap.") if "blkio" not in str(g)), None)
        assert group is not None
        if backend.name == "cgroup1":
            assert (group / "memory.swappiness").read_text().strip() == "0"
            memsw = group / "memory.memsw.limit_in_bytes"
            assert not memsw.exists() or int(memsw.read_text()) <= 34 * MIB
        else:
            assert (group / "memory.swap.max").read_text().strip() == "0"


def test_page_cache_is_charged_and_reclaimed_at_the_limit(
    backend: Isolation, folder: Path
) -> None:
    file = cold_file(folder, 96 * MIB)
    code = (
        "import sys\nwith open(sys.argv[1],'rb',0) as f:\n while f.read(1<<20): pass\n"
        "print('read', flush=True)\ninput()"
    )
    with backend.create("cache", Limits(48 * MIB)) as cap:
        child = subprocess.Popen(
            cap.command(python(code, str(file))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "read\n"
        now = cap.memory()
        assert child.poll() is None
        assert now.page_cache > 24 * MIB
        assert now.usage <= 48 * MIB
        assert now.peak <= 48 * MIB
        assert now.reclaims > 0
        assert now.oom_kills == 0
        child.communicate("\n")


def test_the_work_is_in_every_group_from_its_first_instruction(
    backend: Isolation,
) -> None:
    with backend.create("join", Limits(64 * MIB, _all_disks())) as cap:
        child = subprocess.Popen(
            cap.command(
                python(
                    "import os; print(os.getpid()); "
                    "print(open('/proc/self/cgroup').read())"
                )
            ),
            stdout=subprocess.PIPE,
            text=True,
        )
        message, _ = child.communicate()
        # exec keeps the pid: signals and waits of the orchestrator reach the work
        # itself.
        assert int(message.splitlines()[0]) == child.pid
        joined = [
            line
            for line in message.splitlines()
            if ".join." not in line and "_join." in line
        ]
        controllers = {
            name for line in joined for name in line.split(":")[1].split(",")
        }
        assert controllers >= (
            {"memory", "blkio"} if backend.name == "cgroup1" else {""}
        )


def test_descriptors_and_arguments_reach_the_work_unchanged(backend: Isolation) -> None:
    read, write = os.pipe()
    with backend.create("fds", Limits(64 * MIB)) as cap:
        argv = python(
            f"import os,sys; os.write({write}, repr(sys.argv[1:]).encode())",
            "a b",
            "--",
            "$HOME",
            "'",
            "",
        )
        subprocess.run(cap.command(argv), pass_fds=[write], check=True)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == repr(["a b", "--", "$HOME", "'", ""])


def test_work_that_cannot_join_does_not_run(backend: Isolation) -> None:
    cap = backend.create("late", Limits(64 * MIB))
    argv = cap.command(python("print('ran')"))
    cap.close()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert done.stdout == ""
    assert "cannot join" in done.stderr


def test_on_oom_every_process_of_the_cap_ends(backend: Isolation) -> None:
    with backend.create("together", Limits(48 * MIB)) as cap:
        bystander = start_in(cap, HOLD, "1000")
        assert run_in(cap, "x = bytearray(96 << 20)").returncode == -signal.SIGKILL
        assert bystander.wait(timeout=5) == -signal.SIGKILL
        assert cap.pids() == []


def test_orphans_are_ended_with_the_cap(backend: Isolation) -> None:
    # The grandchild leaves the session and outlives its parent, as a forgotten
    # data-loader worker does.
    code = (
        "import os,time\nif os.fork()==0:\n os.setsid()\n print(os.getpid(), "
        "flush=True)\n time.sleep(60)"
    )
    cap = backend.create("orphans", Limits(64 * MIB))
    child = subprocess.Popen(
        cap.command(python(code)), stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    orphan = int(child.stdout.readline())
    child.wait()
    assert cap.pids() == [orphan]
    cap.close()
    assert not alive(orphan)


def test_closing_leaves_no_group_and_keeps_the_last_reading(backend: Isolation) -> None:
    cap = backend.create("gone", Limits(32 * MIB, _all_disks()))
    start_in(cap, HOLD, str(8 * MIB))
    cap.close()
    cap.close()
    assert groups_named("_gone.") == []
    # It would be removed beneath another orchestrator that makes a cap in it.
    assert all(folder.parent.is_dir() for folder in cap.folders)  # type: ignore[attr-defined]
    assert cap.memory().peak >= 8 * MIB
    assert cap.pids() == []


def test_a_cap_has_all_its_groups_though_others_look_for_a_place(
    backend: Isolation,
) -> None:
    with backend.create("quiet", Limits(None)) as cap:
        groups = len(cap.folders)
        caveats = cap.caveats
    kind = type(backend)
    code = (
        f"from {kind.__module__} import {kind.__name__}\n"
        f"while True: {kind.__name__}.available()"
    )
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    try:
        deadline = time.monotonic() + 3.0
        made = 0
        while made < 100 or time.monotonic() < deadline:
            with backend.create("race", Limits(None)) as cap:
                assert len(cap.folders) == groups
                assert cap.caveats == caveats
            made += 1
    finally:
        for other in others:
            other.kill()
            other.wait()
        kind.sweep()


def test_a_group_removed_while_it_is_read_leaves_the_last_reading(
    backend: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    cap = backend.create("torn", Limits(64 * MIB))
    assert done_ok(run_in(cap, "pass"))
    whole = cap.memory()
    assert whole.peak > 0
    assert isinstance(cap, GroupCap)
    read = cap._read_memory

    def removed_first(stat: bytes) -> MemoryStats:
        for folder in cap.folders:
            folder.rmdir()
        return read(stat)

    monkeypatch.setattr(cap, "_read_memory", removed_first)
    assert cap.memory() == whole
    cap.close()


def test_the_limit_can_be_raised_and_lowered_and_the_peak_forgotten(
    backend: Isolation,
) -> None:
    with backend.create("change", Limits(32 * MIB)) as cap:
        cap.set_memory(96 * MIB)
        assert run_in(cap, "x = bytearray(48 << 20)").returncode == 0
        assert cap.memory().peak > 48 * MIB
        cap.set_memory(32 * MIB)
        assert run_in(cap, "x = bytearray(48 << 20)").returncode == -signal.SIGKILL
        cap.set_memory(None)
        assert limit_of(cap.folders[0]) is None
        cap.reset_peak()
        if backend.name == "cgroup1":
            assert cap.memory().peak < 32 * MIB


def test_a_device_the_kernel_does_not_know_is_refused_and_leaves_nothing(
    backend: Isolation,
) -> None:
    if not backend.available().io_limits:
        pytest.skip("no device limits here")
    with pytest.raises(HostError, match=r"999:0"):
        backend.create("nodevice", Limits(32 * MIB, (IoLimit("999:0", read_iops=1),)))
    assert groups_named("_nodevice.") == []


@needs_io
@pytest.mark.parametrize("how", ["direct", "mapped"])
def test_the_request_limit_holds(backend: Isolation, folder: Path, how: str) -> None:
    file = cold_file(folder, 32 * MIB)
    limit = 100  # low, so that even a busy machine would exceed it
    number = block_device(file).number
    with backend.create(
        "iops", Limits(64 * MIB, (IoLimit(number, read_iops=limit),))
    ) as cap:
        done = run_in(cap, READERS[how], str(file), "1.5")
        requests, seconds = (float(word) for word in done.stdout.split())
        charged = cap.io()
    assert charged is not None
    # The throttle's first slice may start early, and the machine may be busy with
    # something else.
    assert 0 < requests / seconds < 1.25 * limit
    assert charged.read_requests >= requests
    assert charged.read_bytes >= 4096 * requests


@needs_io
def test_the_bandwidth_limit_holds_for_a_sequential_read(
    backend: Isolation, folder: Path
) -> None:
    file = cold_file(folder, 32 * MIB)
    rate = 16 * MIB
    limits = Limits(
        64 * MIB, (IoLimit(block_device(file).number, read_bytes_per_s=rate),)
    )
    with backend.create("bandwidth", limits) as cap:
        code = (
            "import sys,time\nt=time.monotonic()\nwith open(sys.argv[1],'rb',0) as f:\n"
            " while f.read(1<<20): pass\nprint(time.monotonic()-t)"
        )
        seconds = float(run_in(cap, code, str(file)).stdout)
    assert 0 < 32 * MIB / seconds < 1.2 * rate


@needs_io
def test_the_bandwidth_limit_holds_for_direct_writes(
    backend: Isolation, folder: Path
) -> None:
    rate = 8 * MIB
    limits = Limits(
        64 * MIB, (IoLimit(block_device(folder).number, write_bytes_per_s=rate),)
    )
    code = (
        "import mmap,os,sys,time\n"
        "fd=os.open(sys.argv[1],os.O_WRONLY|os.O_CREAT|os.O_DIRECT)\n"
        "b=mmap.mmap(-1,1<<20)\n"
        "t=time.monotonic()\nfor i in range(8): "
        "os.pwrite(fd,b,i<<20)\nprint(time.monotonic()-t)"
    )
    with backend.create("writes", limits) as cap:
        seconds = float(run_in(cap, code, str(folder / "written")).stdout)
        charged = cap.io()
    assert 0 < 8 * MIB / seconds < 1.4 * rate
    assert charged is not None
    assert charged.write_bytes >= 8 * MIB


@needs_io
def test_device_reads_are_counted_without_any_limit(
    backend: Isolation, folder: Path
) -> None:
    file = cold_file(folder, 8 * MIB)
    with backend.create("count", Limits(64 * MIB)) as cap:
        run_in(cap, READERS["direct"], str(file), "0.2")
        charged = cap.io()
    assert charged is not None
    assert charged.read_requests >= 10


def test_a_cap_inside_a_cap_is_held_by_both(backend: Isolation) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); sys.path[1:1] = "
        f"{sys.path!r}\n"
        "import subprocess\nfrom harness.isolation import Limits\n"
        f"from harness.isolation.{backend.name} import {type(backend).__name__} as B\n"
        "with B().create('inner', Limits(512 << 20)) as cap:\n"
        "    argv = cap.command([sys.executable, '-S', '-c', 'x = bytearray(160 << "
        "20)'])\n"
        "    print(subprocess.run(argv).returncode)\n"
    )
    if backend.name == "cgroup2":
        pytest.skip(
            "cgroup v2 makes the inner cap beside the outer one: a group with "
            "processes cannot have children"
        )
    with backend.create("outer", Limits(128 * MIB)) as cap:
        done = subprocess.run(
            cap.command([sys.executable, "-c", code]),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.strip() == str(-signal.SIGKILL), done.stderr
    assert groups_named("_inner.") == []


@pytest.mark.alone  # the start of any other run sweeps, too
def test_what_a_killed_owner_left_is_swept_and_the_living_are_spared(
    backend: Isolation,
) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\nimport subprocess, "
        "time\n"
        "from harness.isolation import Limits\n"
        f"from harness.isolation.{backend.name} import {type(backend).__name__} as B\n"
        "cap = B().create('abandoned', Limits(64 << 20))\n"
        "child = subprocess.Popen(cap.command(['sleep', '300']))\n"
        "while child.pid not in cap.pids(): time.sleep(0.01)\n"
        "print(child.pid, flush=True)\ntime.sleep(300)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    inside = int(owner.stdout.readline())
    with backend.create("living", Limits(32 * MIB)) as living:
        kept = start_in(living, HOLD, "1000")
        assert not [name for name in backend.sweep() if "abandoned" in name]
        assert alive(inside)
        owner.kill()
        owner.wait()
        assert alive(inside)
        swept = backend.sweep()
        assert len([name for name in swept if "_abandoned." in name]) == 1
        assert kept.poll() is None
    deadline = time.monotonic() + 5
    while alive(inside) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(inside)
    assert groups_named("_abandoned.") == []


def test_only_names_of_dead_owners_of_this_pid_namespace_are_left_over() -> None:
    assert not is_left_over("system.slice")
    assert not is_left_over("run_1_1_1_x.abc")


def done_ok(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 0


def _all_disks() -> tuple[IoLimit, ...]:
    number = block_device(Path("/var/tmp")).number
    return (IoLimit(number, read_iops=1_000_000),) if number else ()


READERS = {
    "direct": """
import mmap, os, random, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT); size = os.fstat(fd).st_size
buffer = mmap.mmap(-1, 4096); n = 0; start = time.monotonic(); end = start + float(sys.argv[2])
while time.monotonic() < end:
    os.preadv(fd, [buffer], random.randrange(size // 4096) * 4096); n += 1
print(n, time.monotonic() - start)
""",
    "mapped": """
import mmap, os, random, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY); size = os.fstat(fd).st_size
pages = mmap.mmap(fd, 0, prot=mmap.PROT_READ); pages.madvise(mmap.MADV_RANDOM)
order = list(range(size // 4096)); random.shuffle(order); n = 0
start = time.monotonic(); end = start + float(sys.argv[2])
while time.monotonic() < end:
    pages[order[n] * 4096]; n += 1
print(n, time.monotonic() - start)
""",
}
