"""Formats of cgroup v2 and systemd, which not every host has: files as the kernel
writes them, and command lines.

`test_isolation_cap.py` tests caps on the real kernel.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.isolation import (
    IoLimit,
    IoStats,
    cgroup1,
    cgroup2,
    groups,
    mounts,
    systemd,
)
from harness.isolation.files import KernelFile, flat_keyed, psi_some_total
from harness.isolation.processes import (
    cap_name,
    is_left_over,
    pid_namespace,
    start_time,
)
from workloads.errors import HostError

V2_STAT = b"""anon 104857600
file 52428800
kernel 4194304
kernel_stack 262144
pagetables 1048576
percpu 4096
sock 8192
shmem 10485760
file_mapped 4096
slab 2097152
pgfault 60000
pgmajfault 1234
workingset_refault_file 77
"""
V2_EVENTS = b"low 0\nhigh 0\nmax 42\noom 2\noom_kill 3\noom_group_kill 1\n"
V2_IO = (
    b"259:0 rbytes=409600 wbytes=8192 rios=100 wios=2 dbytes=0 dios=0\n"
    b"8:16 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n"
    b"7:0 \n"
)
V1_BLKIO = (
    b"254:0 Read 4096\n254:0 Write 512\n254:0 Sync 4608\n254:0 Total 4608\n8:0 Read "
    b"100\nTotal 4708\n"
)
PRESSURE = (
    b"some avg10=1.50 avg60=0.20 avg300=0.05 total=123456\nfull avg10=0.00 "
    b"avg60=0.00 avg300=0.00 total=99\n"
)


def test_v2_io_adds_up_the_devices() -> None:
    assert cgroup2.parse_io_stat(V2_IO) == IoStats(413696, 101, 8192, 2)
    assert cgroup2.parse_io_stat(b"") == IoStats()


@pytest.mark.parametrize(
    "data",
    [
        b"7:7 7:6 254:0 rbytes=4096 wbytes=8 rios=1 wios=2 dbytes=0 dios=0\n",
        b"254:0 rbytes=4096 wbytes=8 rios=1 wios=2 dbytes=0 dios=0 "
        b"cost.vrate=100.00\n7:7 7:6 \n",
        b"7:7 \n254:0 7:6 254:0 rbytes=4096 wbytes=8 rios=1 wios=2 cost.usage=12\n",
    ],
    ids=["before", "after, cost model", "between"],
)
def test_devices_without_counters_on_a_line_hide_no_counters_of_another(
    data: bytes,
) -> None:
    found = cgroup2.parse_io_stat(data)
    assert found == IoStats(4096, 1, 8, 2)
    assert list(found.by_disk) == ["254:0"]


@pytest.mark.parametrize(
    "flags", [os.O_RDONLY, os.O_RDWR], ids=["before 6.12", "since 6.12"]
)
def test_a_cap_reports_whether_its_peak_was_reset(
    tmp_path: Path, flags: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernel before 6.12 lets nobody open `memory.peak` for writing.
    monkeypatch.setattr(cgroup2, "_open_read_write", lambda path: os.open(path, flags))
    (tmp_path / "memory.peak").write_text("4096\n")
    cap = cgroup2.Cgroup2Cap(tmp_path)
    assert cap.reset_peak() is (flags == os.O_RDWR)
    cap.release()


def test_without_memory_peak_the_highest_reading_begins_anew(tmp_path: Path) -> None:
    cap = cgroup2.Cgroup2Cap(tmp_path)
    assert cap.reset_peak()
    cap.release()


def test_lines_that_a_later_kernel_may_add_are_left_out() -> None:
    stat = b"anon 4096\nnuma N0=1 N1=2\nshare 0.5\nlonely\nfile 8192\n"
    assert flat_keyed(stat) == {b"anon": 4096, b"file": 8192}
    assert (
        psi_some_total(b"some avg10=0.00 total=77 max=9\nfull avg10=0.00 total=1\n")
        == 77
    )


def test_v1_io_counts_reads_and_writes_of_all_devices_once() -> None:
    found = cgroup1.parse_blkio(
        V1_BLKIO, b"254:0 Read 2\n254:0 Write 1\n8:0 Read 1\nTotal 4\n"
    )
    assert found == IoStats(4196, 3, 512, 1)


@pytest.mark.parametrize(
    "found", [cgroup2.parse_io_stat(V2_IO), cgroup1.parse_blkio(V1_BLKIO, b"")]
)
def test_io_of_one_disk_leaves_the_others_out(found: IoStats) -> None:
    disk = max(found.by_disk, key=lambda name: found.by_disk[name].read_bytes)
    assert found.of([disk]) == found.by_disk[disk] != found
    assert found.of([]) == found
    assert found.of(["1:1"]) == IoStats()


def test_pressure_is_the_total_of_some() -> None:
    assert psi_some_total(PRESSURE) == 123456
    assert psi_some_total(b"") is None


def test_limits_are_written_as_each_kernel_interface_wants_them() -> None:
    limit = IoLimit("259:0", read_iops=39062, read_bytes_per_s=187_500_000)
    assert (
        cgroup2.io_max_line(limit)
        == "259:0 riops=39062 rbps=187500000 wiops=max wbps=max"
    )
    assert cgroup1.throttle_lines(limit) == [
        ("blkio.throttle.read_iops_device", "259:0 39062"),
        ("blkio.throttle.read_bps_device", "259:0 187500000"),
        ("blkio.throttle.write_iops_device", "259:0 0"),
        ("blkio.throttle.write_bps_device", "259:0 0"),
    ]
    assert systemd.io_properties([limit]) == [
        "IOReadIOPSMax=/dev/block/259:0 39062",
        "IOReadBandwidthMax=/dev/block/259:0 187500000",
    ]


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """Make a folder with the files of a v2 group."""
    files = {
        "memory.stat": V2_STAT,
        "memory.current": b"162000000\n",
        "memory.max": b"max\n",
        "memory.swap.max": b"max\n",
        "memory.events": V2_EVENTS,
        "memory.peak": b"170000000\n",
        "memory.oom.group": b"0\n",
        "io.max": b"",
        "io.stat": V2_IO,
        "io.pressure": PRESSURE,
        "memory.pressure": PRESSURE,
        "cgroup.procs": b"",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_v2_memory_tells_page_cache_from_shared_memory(group: Path) -> None:
    found = cgroup2.V2Readings(group).memory()
    assert (found.anon, found.page_cache, found.shmem) == (
        104857600,
        52428800 - 10485760,
        10485760,
    )
    assert found.kernel == 4194304 + 8192
    assert (found.usage, found.peak) == (162_000_000, 170_000_000)
    assert (found.oom_kills, found.reclaims, found.major_faults) == (3, 42, 1234)


def test_v2_kernel_memory_is_summed_where_the_kernel_gives_no_total(
    group: Path,
) -> None:
    old = b"\n".join(
        line for line in V2_STAT.splitlines() if not line.startswith(b"kernel ")
    )
    (group / "memory.stat").write_bytes(old)
    assert (
        cgroup2.V2Readings(group).memory().kernel
        == 262144 + 1048576 + 4096 + 2097152 + 8192
    )


def test_a_v2_cap_writes_every_limit_and_reads_every_counter(group: Path) -> None:
    cap = cgroup2.Cgroup2Cap(group)
    cap.set_memory(1 << 28)
    cap.end_together()
    cap.set_io([IoLimit("259:0", read_iops=5)])
    written = {
        name: (group / name).read_text()
        for name in ("memory.max", "memory.swap.max", "memory.oom.group", "io.max")
    }
    # A control file is written at its start; a plain file keeps its content beyond
    # that.
    assert written["memory.max"].startswith("268435456")
    assert written["memory.swap.max"].startswith("0")
    assert written["memory.oom.group"].startswith("1")
    assert written["io.max"] == "259:0 riops=5 rbps=max wiops=max wbps=max"
    assert cap.memory().oom_kills == 3
    assert cap.memory().peak == 170_000_000
    assert cap.io() == IoStats(413696, 101, 8192, 2)
    assert cap.pressure() == (123456, 123456)
    assert cap.command(["work", "a"])[-2:] == ["work", "a"]
    assert str(group / "cgroup.procs") in cap.command(["work"])
    cap.release()


def test_a_v2_cap_that_is_gone_repeats_its_last_reading(group: Path) -> None:
    cap = cgroup2.Cgroup2Cap(group)
    before = cap.memory()
    cap.release()
    assert cap.memory() == before
    assert cap.io() is None
    assert cap.pressure() == (None, None)


def test_the_kernel_joins_and_ends_a_v2_group_even_where_it_holds_no_controller() -> (
    None
):
    hierarchy = mounts.v2()
    group = hierarchy.mount / cap_name("v2") if hierarchy else None
    try:
        assert group is not None
        group.mkdir()
    except (AssertionError, OSError) as error:
        pytest.skip(f"no writable cgroup v2 here ({error})")
    cap = cgroup2.Cgroup2Cap(group)
    code = (
        "import os,time; os.fork(); print(open('/proc/self/cgroup').read(), "
        "flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        cap.command([sys.executable, "-S", "-c", code]),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    while f"/{group.name}" not in child.stdout.readline():
        pass
    deadline = time.monotonic() + 5
    while len(cap.pids()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert child.pid in cap.pids()
    assert len(cap.pids()) == 2
    io, memory = cap.pressure()
    assert io is None or (io >= 0 and memory is not None)
    cap.close()
    assert child.wait(timeout=5) == -signal.SIGKILL
    assert not group.exists()


def test_a_refused_limit_names_it(group: Path) -> None:
    cap = cgroup2.Cgroup2Cap(group)
    (group / "io.max").unlink()
    with pytest.raises(HostError, match=r"259:0 .*io\.max"):
        cap.set_io([IoLimit("259:0", read_iops=5)])
    cap.release()


def _proc(folder: Path, cgroup: str, mountinfo: str) -> Path:
    (folder / "self").mkdir(parents=True)
    (folder / "self/cgroup").write_text(cgroup)
    (folder / "self/mountinfo").write_text(mountinfo)
    return folder


def test_a_pure_v2_host_is_recognised_and_the_own_group_is_found(
    tmp_path: Path,
) -> None:
    mount = tmp_path / "cg"
    own = mount / "user.slice/session-1.scope"
    own.mkdir(parents=True)
    (mount / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    proc = _proc(
        tmp_path / "proc",
        "0::/user.slice/session-1.scope\n",
        f"30 20 0:26 / {mount} rw - cgroup2 cgroup2 rw\n",
    )
    found = mounts.v2(proc)
    assert found is not None
    assert found.own == own
    assert "memory" in found.controllers
    assert mounts.version(proc) == "v2"
    assert mounts.v1("memory", proc) is None


def test_a_container_that_sees_part_of_the_hierarchy_finds_its_own_group(
    tmp_path: Path,
) -> None:
    mount = tmp_path / "cg/memory"
    mount.mkdir(parents=True)
    proc = _proc(
        tmp_path / "proc",
        "5:memory:/docker/abc\n",
        f"30 20 0:26 /docker/abc {mount} ro - cgroup cgroup rw,memory\n",
    )
    found = mounts.v1("memory", proc)
    assert found is not None
    assert found.own == mount
    assert found.bases() == [mount]
    assert mounts.version(proc) == "v1"


def test_a_v2_hierarchy_without_memory_is_passed_over_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "v2", lambda: mounts.Hierarchy(tmp_path, tmp_path, ()))
    found = cgroup2.Cgroup2.available()
    assert not found.ok
    assert "memory controller" in found.reason
    assert found.fix


def test_a_v2_group_that_gives_no_memory_is_passed_over_for_the_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "user.slice"
    own.mkdir()
    (tmp_path / "cgroup.subtree_control").write_text("memory io")
    monkeypatch.setattr(
        mounts, "v2", lambda: mounts.Hierarchy(tmp_path, own, ("memory", "io"))
    )
    found = cgroup2.Cgroup2.available()
    # A plain folder has no control files for the new group, so it is refused, with the
    # kernel's own reason.
    assert not found.ok
    assert "children no memory" in found.reason
    assert not (tmp_path / "outcore").exists()


def test_systemd_starts_the_work_in_a_scope_of_the_caps_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    command = systemd.scope_command("run_1_2_3_x.abc", ["python", "work.py"])
    assert command[:4] == ["systemd-run", "--user", "--scope", "--quiet"]
    assert "--slice=outcore-run_1_2_3_x.abc.slice" in command
    assert command[command.index("--") + 1 :] == ["python", "work.py"]
    assert systemd.memory_properties(1 << 20) == [
        "MemoryMax=1048576",
        "MemorySwapMax=0",
    ]
    assert systemd.memory_properties(None)[0] == "MemoryMax=infinity"


def test_systemd_slices_of_dead_owners_are_found_in_the_listing() -> None:
    mine = cap_name("mine")
    dead = f"run_{pid_namespace()}_{os.getpid()}_1_old.abcdef"
    listing = (
        f"outcore-{mine}.slice loaded active active Slice /outcore/{mine}\n"
        f"outcore-{dead}.slice loaded active active Slice\n"
        "outcore-other.slice loaded active active Slice\n"
    )
    assert systemd.left_over_slices(listing) == [dead]


def test_a_systemd_slice_that_does_not_stop_leaves_the_others_to_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, dead = (
        f"run_{pid_namespace()}_{os.getpid()}_1_{name}.abcdef"
        for name in ("stuck", "dead")
    )
    program = tmp_path / "systemctl"
    program.write_text(
        f"""#!/bin/sh
        case "$*" in
        *list-units*) printf 'outcore-{stuck}.slice x\\noutcore-{dead}.slice x\\n' ;;
        *stop*{stuck}*) exit 1 ;;
        esac
        """
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(systemd, "_RUNNING", tmp_path)
    assert systemd.Systemd.sweep() == [dead]


def test_a_cap_name_reports_its_owner_and_is_safe_everywhere() -> None:
    name = cap_name("gnndrive/64 MiB-α")
    assert not is_left_over(name)
    assert "-" not in name
    assert "/" not in name
    assert " " not in name
    assert name.isascii()
    assert cap_name("x") != cap_name("x")
    assert start_time(os.getpid())
    assert start_time(2**22 + 1) is None


def test_the_sweep_passes_over_groups_that_another_orchestrator_removes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = [tmp_path / base / groups.PARENT for base in "ab"]
    for parent in parents:
        (parent / "run").mkdir(parents=True)

    def of_another(name: str) -> bool:
        for parent in parents:
            if (parent / name).exists():
                (parent / name).rmdir()
                parent.rmdir()
        return True

    monkeypatch.setattr(groups, "is_left_over", of_another)
    assert groups.sweep_below(tmp_path) == ["run"]
    assert not any(parent.exists() for parent in parents)


def test_a_v2_group_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "v2", lambda: True)
    monkeypatch.setattr(cgroup2, "_parent", lambda hierarchy: (tmp_path / "gone", ""))
    with pytest.raises(HostError, match="gone/run cannot be made"):
        cgroup2._make("run")


def test_a_kernel_file_that_is_missing_or_closed_reads_as_nothing(
    tmp_path: Path,
) -> None:
    file = KernelFile(tmp_path / "none")
    assert not file.present
    assert file.read() == b""
    assert file.number() is None
    file.close()
    own = KernelFile("/proc/self/stat")
    assert own.read()
    own.close()
    assert own.read() == b""
