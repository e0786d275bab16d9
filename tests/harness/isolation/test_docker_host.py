"""The host's files about containers, on hosts unlike this one: cgroup v2, other
layouts, other engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.isolation.base import IoLimit
from harness.isolation.docker.backend import _maps_users
from harness.isolation.docker.cap import readings_of
from harness.isolation.docker.options import throttles
from workloads.errors import HostError

V2_FILES = {
    "memory.stat": "anon 4096000\nfile 9000000\nshmem 1000000\nkernel 300000\n"
    "pgmajfault 7\n"
    "sock 0\n",
    "memory.current": "14000000\n",
    "memory.peak": "15000000\n",
    "memory.max": "16777216\n",
    "memory.events": "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n",
    "io.stat": "254:0 rbytes=8192 wbytes=4096 rios=2 wios=1 dbytes=0 dios=0\n",
    "io.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=55\n",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=66\n",
    "cgroup.procs": "4321\n",
}


def v2_host(folder: Path, group: str = "/system.slice/docker-abc.scope") -> Path:
    """Make /proc of a cgroup v2 host whose engine uses systemd's driver."""
    mount = folder / "cgroup"
    proc = folder / "proc"
    (mount / "system.slice" / "docker-abc.scope").mkdir(parents=True)
    for name, content in V2_FILES.items():
        (mount / "system.slice" / "docker-abc.scope" / name).write_text(content)
    (mount / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    for pid, path in (("self", "/"), ("4321", group)):
        (proc / pid).mkdir(parents=True)
        (proc / pid / "cgroup").write_text(f"0::{path}\n")
    (proc / "self" / "mountinfo").write_text(
        f"30 24 0:26 / {mount} rw - cgroup2 cgroup2 rw\n"
    )
    return proc


def test_a_v2_group_of_systemds_driver_is_found_and_read(tmp_path: Path) -> None:
    groups = readings_of(4321, v2_host(tmp_path))
    now = groups.memory()
    io = groups.io()
    assert (now.anon, now.page_cache, now.shmem, now.kernel) == (
        4096000,
        8000000,
        1000000,
        300000,
    )
    assert (now.usage, now.peak) == (14000000, 15000000)
    assert (now.oom_kills, now.reclaims) == (1, 12)
    assert io is not None
    assert (io.read_bytes, io.read_requests, io.write_bytes) == (8192, 2, 4096)
    assert groups.pressure() == (55, 66)
    assert groups.pids() == [4321]
    groups.release(2)
    assert groups.memory().oom_kills == 2
    assert groups.memory().peak == 15000000
    assert groups.io() == io


@pytest.mark.parametrize("group", ["/", "/../../other", "/docker/gone"])
def test_a_group_that_is_not_to_be_seen_is_refused(tmp_path: Path, group: str) -> None:
    with pytest.raises(HostError, match="cannot be seen from here"):
        readings_of(4321, v2_host(tmp_path, group))


def test_only_v1_is_reported_of_disks_without_a_limit(tmp_path: Path) -> None:
    for name, number in (("vda", "254:0"), ("loop0", "7:0"), ("nvme0n1", "259:0")):
        (tmp_path / "sys" / "block" / name).mkdir(parents=True)
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
        (tmp_path / "sys" / "dev" / "block").mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / "dev" / "block" / number).symlink_to(
            tmp_path / "sys" / "block" / name
        )
    limits = (IoLimit("254:0", read_iops=100, write_bytes_per_s=5),)
    where = {"sys_": tmp_path / "sys", "dev": tmp_path / "dev"}
    vda = str(tmp_path / "dev" / "vda")
    nvme = str(tmp_path / "dev" / "nvme0n1")
    assert throttles(limits, count=False, **where) == {
        "device_read_iops": [{"Path": vda, "Rate": 100}],
        "device_write_bps": [{"Path": vda, "Rate": 5}],
    }
    counted = throttles(limits, count=True, **where)["device_read_iops"]
    assert sorted(counted, key=lambda one: str(one["Path"])) == [
        {"Path": nvme, "Rate": 0},
        {"Path": vda, "Rate": 100},
    ]
    assert throttles((), count=False, **where) == {}


def test_an_engine_that_maps_users_is_known_by_its_options() -> None:
    assert (
        _maps_users(
            {"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}
        )
        == "rootless"
    )
    assert _maps_users({"SecurityOptions": ["name=userns"]}) == "userns"
    assert (
        _maps_users({"SecurityOptions": ["name=seccomp,profile=default"]})
        == _maps_users({})
        == ""
    )
