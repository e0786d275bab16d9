"""fio, device profiles and SSD classes: measured on a real file, or refused in one
sentence."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.isolation import IoLimit, Limits
from harness.isolation.blocks import whole_disks
from harness.isolation.mounts import mount_of
from harness.ssd.classes import load_classes, parse_disk_class
from harness.ssd.device import block_device, direct_block_bytes
from harness.ssd.fio import FioJob, best_engine, fio_path, parse_fio, run_fio
from harness.ssd.profile import IN_PROCESS, quick_profile
from systems.readings import DiskPoint, DiskProfile
from tests.harness.cap_tools import (
    CAPPING,
    MIB,
    cold_file,
    needs_cap,
    needs_io,
    on_disk,
)
from workloads.errors import HostError, InputError

needs_fio = pytest.mark.skipif(fio_path() is None, reason="fio is not installed")


@pytest.fixture(scope="module")
def file() -> Iterator[Path]:
    for folder in on_disk():
        yield cold_file(folder, 64 * MIB)


@needs_fio
def test_fio_reads_the_file_and_states_how_fast(file: Path) -> None:
    before = (file.stat().st_mtime_ns, file.stat().st_size)
    (result,) = run_fio(
        [
            FioJob(
                file=file, block_bytes=4096, depth=16, seconds=0.4, engine=best_engine()
            )
        ]
    )
    assert result.iops > 0
    assert result.bytes_per_s == pytest.approx(result.iops * 4096)
    assert result.requests * 4096 == pytest.approx(result.bytes_read, rel=0.05)
    assert 0 < result.latency_s[50.0] <= result.latency_s[99.0]
    assert 0 < result.cpu < 2
    assert (file.stat().st_mtime_ns, file.stat().st_size) == before
    assert list(Path("/").glob("*verify.state")) == []


@needs_fio
def test_jobs_run_one_after_the_other_and_keep_their_order(file: Path) -> None:
    jobs = [
        FioJob(
            file=file,
            block_bytes=size,
            depth=4,
            seconds=0.2,
            engine=best_engine(),
            pattern=pattern,
        )
        for size, pattern in ((4096, "random"), (MIB, "sequential"))
    ]
    begin = time.monotonic()
    results = run_fio(jobs)
    assert [result.job for result in results] == jobs
    assert time.monotonic() - begin > 0.4


@needs_fio
def test_a_file_name_with_a_colon_is_read(file: Path) -> None:
    odd = file.with_name("a:b c")
    odd.symlink_to(file)
    assert (
        run_fio(
            [FioJob(file=odd, block_bytes=4096, depth=1, seconds=0.1, engine="psync")]
        )[0].requests
        > 0
    )
    odd.unlink()


@needs_fio
def test_a_relative_path_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    job = FioJob(
        file=Path(file.name), block_bytes=4096, depth=1, seconds=0.1, engine="psync"
    )
    assert run_fio([job])[0].requests > 0


def test_a_missing_file_is_refused_and_not_made(file: Path) -> None:
    missing = file.with_name("missing")
    with pytest.raises(HostError, match="missing"):
        run_fio([FioJob(file=missing, block_bytes=4096)])
    assert not missing.exists()


@needs_fio
def test_what_fio_refuses_is_passed_on_in_a_sentence(file: Path) -> None:
    # 100 bytes are no block of any device, so a direct read of them fails in the
    # kernel.
    with pytest.raises(HostError, match=r"fio failed on .*cold"):
        run_fio(
            [FioJob(file=file, block_bytes=100, depth=1, seconds=0.1, engine="psync")]
        )


def test_without_fio_the_error_states_how_to_get_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostError, match="apt-get install fio"):
        run_fio([FioJob(file=file, block_bytes=4096)])


def test_broken_output_is_no_result(file: Path) -> None:
    jobs = [FioJob(file=file, block_bytes=4096)]
    assert parse_fio("", jobs) == []
    assert parse_fio('{"jobs": [', jobs) == []
    assert parse_fio('note\n{"jobs": [{"error": 5}]}', jobs) == []


def test_an_unknown_key_of_a_job_is_refused(file: Path) -> None:
    with pytest.raises(ValueError, match="iodepth"):
        FioJob(file=file, block_bytes=4096, iodepth=3)  # type: ignore[call-arg]


def test_the_profile_has_every_size_and_states_its_tool(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "harness.ssd.profile.WAITS_S", ()
    )  # other tests run beside it, so no point is ever quiet
    profile = quick_profile(file, depths=(8,), seconds=0.2)
    random = {
        point.block_bytes for point in profile.points if point.pattern == "random"
    }
    assert random == {max(512, profile.logical_block_bytes), 4096, 65536}
    assert profile.sequential_bytes_per_s() > MIB
    assert profile.request_seconds(4096) > 0
    assert (4096, 1) in {(point.block_bytes, point.depth) for point in profile.points}
    assert profile.tool.startswith("fio" if fio_path() else IN_PROCESS)
    assert all(point.iops > 0 for point in profile.points)


def test_a_profile_is_reused_for_an_hour_and_measured_again_for_other_depths(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "PATH", "/nowhere"
    )  # fio takes most of a second to start each job
    first = quick_profile(file, depths=(4,), seconds=0.1, cache=tmp_path)
    (kept,) = tmp_path.glob("profile-*.json")
    kept.write_text(kept.read_text().replace(first.tool, "the kept one"))
    assert quick_profile(file, depths=(4,), seconds=0.1, cache=tmp_path) == replace(
        first, tool="the kept one"
    )
    quick_profile(file, depths=(8,), seconds=0.1, cache=tmp_path)
    assert len(list(tmp_path.glob("profile-*.json"))) == 2
    old = json.loads(kept.read_text())
    kept.write_text(json.dumps(old | {"measured_at": time.time() - 3601}))
    assert quick_profile(file, depths=(4,), seconds=0.1, cache=tmp_path) != first
    kept.write_text("{half")
    assert quick_profile(file, depths=(4,), seconds=0.1, cache=tmp_path).points


def test_without_fio_the_device_is_measured_all_the_same(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    profile = quick_profile(file, depths=(4,), seconds=0.2)
    assert profile.tool == IN_PROCESS
    kinds = {
        (point.block_bytes, point.depth, point.pattern) for point in profile.points
    }
    assert len(profile.points) == len(kinds) >= 4
    assert all(point.iops > 0 for point in profile.points)


def test_a_device_that_completes_no_read_is_refused_and_not_kept(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rate of 0 would predict an endless epoch."""
    monkeypatch.setenv("PATH", "/nowhere")
    points = (
        DiskPoint(4096, 8, 900.0, 900.0 * 4096, "random"),
        DiskPoint(65536, 8, 0.0, 0.0, "random"),
    )
    monkeypatch.setattr(
        "harness.ssd.profile._by_threads", lambda *given: DiskProfile(points)
    )
    with pytest.raises(HostError, match=r"no read of 64.0 KiB was completed in 0.1 s"):
        quick_profile(file, seconds=0.1, cache=tmp_path)
    assert not list(tmp_path.glob("profile-*.json"))


@needs_cap
@needs_io
@pytest.mark.parametrize(
    "tool",
    [pytest.param("fio", marks=pytest.mark.slow("harness/ssd", seconds=10)), "threads"],
)
def test_a_profile_under_limits_stays_within_them(
    file: Path, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tool == "threads":
        monkeypatch.setenv("PATH", "/nowhere")
    elif fio_path() is None:
        pytest.skip("fio is not installed")
    limits = Limits(
        io=(
            IoLimit(
                block_device(file).number, read_iops=300, read_bytes_per_s=16 * MIB
            ),
        )
    )
    profile = quick_profile(file, limits, (8,), isolation=CAPPING[0](), seconds=0.4)
    for point in profile.points:
        # Linux throttles by slices of 0.1 s: a window of 0.4 s may take two more than
        # its own, and a full queue. No lower bound: the machine may be busy with
        # something else.
        assert 0 < point.iops <= (300 * 0.6 + point.depth) / 0.4
        assert (
            point.bytes_per_s
            <= (16 * MIB * 0.6 + point.depth * point.block_bytes) / 0.4
        )


def test_a_file_on_memory_or_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises((HostError, OSError)):
        quick_profile(tmp_path / "missing")


def test_the_disk_under_a_path_is_the_whole_disk(file: Path) -> None:
    device = block_device(file)
    if not device.number:
        pytest.skip("no disk under the tests")
    folder = Path("/sys/dev/block") / device.number
    assert folder.exists()
    assert not (folder / "partition").exists()
    assert device.logical_block_bytes in (512, 4096)
    assert device.file_system == mount_of(file).kind
    assert block_device(file.parent / "not/yet/there").number == device.number
    assert device.size_bytes >= os.statvfs(file).f_blocks * os.statvfs(file).f_frsize


def test_a_partition_and_a_volume_lead_to_their_disks(tmp_path: Path) -> None:
    devices = tmp_path / "devices"
    for name, number in (
        ("sda", "8:0"),
        ("sda/sda1", "8:1"),
        ("sdb", "8:16"),
        ("dm-0", "253:0"),
    ):
        (devices / name).mkdir(parents=True)
        (devices / name / "dev").write_text(number + "\n")
    (devices / "sda/sda1/partition").write_text("1")
    (devices / "dm-0/slaves").mkdir()
    (devices / "dm-0/slaves/sda1").symlink_to(devices / "sda/sda1")
    (devices / "dm-0/slaves/sdb").symlink_to(devices / "sdb")
    (tmp_path / "dev/block").mkdir(parents=True)
    for name, number in (
        ("sda", "8:0"),
        ("sda/sda1", "8:1"),
        ("sdb", "8:16"),
        ("dm-0", "253:0"),
    ):
        (tmp_path / "dev/block" / number).symlink_to(devices / name)
    assert [disk.name for disk in whole_disks("8:1", tmp_path)] == ["sda"]
    assert [disk.name for disk in whole_disks("253:0", tmp_path)] == ["sda", "sdb"]
    assert whole_disks("0:42", tmp_path) == []


def test_a_file_system_in_memory_has_no_disk_to_limit() -> None:
    memory = Path("/dev/shm")
    if mount_of(memory).kind != "tmpfs":
        pytest.skip("no tmpfs here")
    device = block_device(memory)
    assert device.number == ""
    assert device.numbers == ()
    disk_class = parse_disk_class("aws-nvme")
    assert disk_class is not None
    with pytest.raises(HostError, match="tmpfs"):
        disk_class.limits(device)


def test_the_direct_block_is_the_smallest_that_the_kernel_reads(file: Path) -> None:
    block = direct_block_bytes(file)
    assert block is not None
    assert block >= block_device(file).logical_block_bytes
    assert direct_block_bytes(Path("/proc/self/status")) is None


def test_a_class_is_divided_as_a_whole() -> None:
    whole = parse_disk_class("aws-nvme")
    part = parse_disk_class("aws-nvme/16")
    assert whole is not None
    assert part is not None
    assert (whole.read_iops, whole.read_bytes_per_s) == (625_000, 3_000_000_000)
    assert (part.read_iops, part.read_bytes_per_s) == (39_062, 187_500_000)
    assert part.name == "aws-nvme/16"
    assert parse_disk_class("none") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("aws-nvm/16", "did you mean aws-nvme"),
        ("aws-nvme/0", "above 0"),
        ("aws-nvme/x", "above 0"),
        ("aws-nvme/-2", "above 0"),
        ("", "known: none"),
        ("samsung-pm833", "did you mean samsung-pm883"),
    ],
)
def test_a_wrong_class_is_refused_with_the_nearest(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_disk_class(text)


def test_every_class_has_a_source() -> None:
    for disk_class in load_classes().values():
        assert disk_class.source
        assert disk_class.read_iops
        assert disk_class.read_bytes_per_s


def test_classes_of_the_users_own_are_read_and_their_mistakes_named(
    tmp_path: Path,
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("mine: {read_iops: 100, source: measured here}\n")
    mine = parse_disk_class("mine/2", own)
    assert mine is not None
    assert mine.read_iops == 50
    for text, message in (
        ("mine: {reed_iops: 1, source: x}", "reed_iops"),
        ("mine: {read_iops: -1, source: x}", "read_iops"),
        ("mine: 3", "not a mapping"),
        ("- a", "no disk classes"),
        ("a: [", "not YAML"),
        ("mine: {read_iops: 1}", "source"),
        ("mine: {name: other, source: x}", "name"),
    ):
        own.write_text(text)
        with pytest.raises(InputError, match=message):
            parse_disk_class("mine", own)
    with pytest.raises(InputError, match="cannot be read"):
        parse_disk_class("mine", tmp_path / "missing.yaml")


def test_an_arrays_members_share_the_class() -> None:
    device = replace(block_device(Path("/var/tmp")), numbers=("8:0", "8:16"))
    disk_class = parse_disk_class("aws-gp3")
    assert disk_class is not None
    limits = disk_class.limits(device)
    assert [limit.device for limit in limits] == ["8:0", "8:16"]
    assert sum(limit.read_iops or 0 for limit in limits) == 16_000


def test_a_class_of_ones_own_comes_from_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("my-drive: {read_iops: 5000, source: its data sheet}\n")
    monkeypatch.setenv("OUTCORE_DISK_CLASSES", str(mine))
    found = parse_disk_class("my-drive/5")
    assert found is not None
    assert found.read_iops == 1000
    assert parse_disk_class("aws-nvme") is not None


def test_in_a_chroot_the_file_itself_reports_its_disk(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(
        "30 20 0:5 / /elsewhere rw - proc proc rw\n"
    )
    inside = block_device(Path("/var/tmp"), proc=tmp_path)
    assert inside.numbers == block_device(Path("/var/tmp")).numbers
