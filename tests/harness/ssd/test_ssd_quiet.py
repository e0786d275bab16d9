"""fio's best settings, load of other processes meanwhile, and caches below the kernel,
on real files and disks."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ssd import profile as profiles
from harness.ssd.device import block_device
from harness.ssd.fio import FioJob, best_engine, fio_path, parse_fio, run_fio
from harness.ssd.profile import better_of, quick_profile
from harness.ssd.quiet import (
    QUIET_CPU,
    SEEN,
    Meter,
    busiest,
    gain_of,
    is_quiet,
    quietly,
    reread_gain,
    slack,
)
from harness.ssd.ways import Reads, Way, first_ways, search, shared_ways
from systems.interface import DiskPoint, DiskProfile
from tests.harness.cap_tools import MIB, cold_file, needs_root, on_disk
from tests.harness.ssd.loops import mounted_loop

pytestmark = pytest.mark.alone

needs_fio = pytest.mark.skipif(fio_path() is None, reason="fio is not installed")
SHARES = st.one_of(st.none(), st.floats(0, 1))
POINTS = st.builds(
    DiskPoint,
    st.just(4096),
    st.sampled_from([1, 32, 256]),
    st.floats(1, 1e6),
    st.just(0.0),
    others_disk=SHARES,
    others_cpu=SHARES,
)


@pytest.fixture(scope="module")
def file() -> Iterator[Path]:
    for folder in on_disk():
        yield cold_file(folder, 64 * MIB)


@contextmanager
def beside(*code: str) -> Iterator[None]:
    """Run programs meanwhile; each prints a line once it is at work."""
    children = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", text], stdout=subprocess.PIPE, text=True
        )
        for text in code
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline()
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


BURN = "print('at it', flush=True)\nwhile True: pass"


def reader(file: Path) -> str:
    return (
        "import mmap, os, random\n"
        f"fd = os.open({str(file)!r}, os.O_RDONLY | os.O_DIRECT)\n"
        "buffer = mmap.mmap(-1, 1 << 20)\nprint('at it', flush=True)\n"
        "while True: os.preadv(fd, [buffer], "
        f"random.randrange({file.stat().st_size >> 20}) << 20)"
    )


@needs_fio
@pytest.mark.skipif(best_engine() != "io_uring", reason="no io_uring here")
def test_fio_registers_its_buffers_and_hands_in_batches(file: Path) -> None:
    job = FioJob(file=file, block_bytes=4096, depth=64, batch=16, seconds=0.2)
    assert {"--fixedbufs", "--registerfiles", "--iodepth_batch_submit=16"} <= set(
        job.arguments("a")
    )
    (result,) = run_fio([job])
    assert result.job.registered
    assert result.requests > 0


@needs_fio
@needs_root
@pytest.mark.skipif(best_engine() != "io_uring", reason="no io_uring here")
def test_where_no_buffers_can_be_registered_fio_reads_without(file: Path) -> None:
    """Another user with 64 KiB of locked memory: fio's 4 MiB of buffers do not fit."""
    file.parent.chmod(0o755)
    file.chmod(0o644)
    job = FioJob(file=file, block_bytes=65536, depth=64, seconds=0.1)
    lock = resource.RLIMIT_MEMLOCK

    def lower() -> None:
        resource.setrlimit(lock, (65536, 65536))
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    def fio(job: FioJob) -> str:
        command = ["fio", "--output-format=json", *job.arguments("a")]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            preexec_fn=lower,
        )
        return done.stdout if done.returncode == 0 else ""

    if parse_fio(fio(job), [job]):
        pytest.skip("this kernel counts no locked memory")
    assert parse_fio(fio(job.model_copy(update={"registered": False})), [job])


@needs_fio
def test_a_refused_registration_is_done_without(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrapper around fio fails as under a low limit of locked memory."""
    real = fio_path()
    (tmp_path / "fio").write_text(
        '#!/bin/sh\ncase "$*" in *--fixedbufs*) echo "fio: no memory to '
        'register" >&2; exit 1;; esac\n'
        f'exec {real} "$@"\n'
    )
    (tmp_path / "fio").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (result,) = run_fio(
        [FioJob(file=file, block_bytes=4096, depth=8, seconds=0.1, engine="io_uring")]
    )
    assert result.requests > 0
    assert not result.job.registered


@needs_fio
def test_a_job_that_reads_once_reads_each_byte_once(file: Path) -> None:
    job = FioJob(
        file=file,
        block_bytes=MIB,
        depth=4,
        pattern="sequential",
        once=True,
        seconds=20,
        engine=best_engine(),
    )
    assert run_fio([job])[0].bytes_read == file.stat().st_size


def test_ways_differ_in_depth_batch_and_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ways = first_ways(4096)
    if best_engine() != "psync":
        assert {way.depth for way in ways} == {32, 128, 256, 512}
        assert {way.batch > 0 for way in ways} == {True, False}
    assert all(way.depth * 65536 <= 8 * MIB for way in first_ways(65536))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
    assert {(way.depth, way.jobs) for way in shared_ways(Way(256, 64))} == {(256, 4)}
    assert shared_ways(Way(1)) == []


@needs_fio
def test_the_search_has_the_best_first_and_the_profile_records_it(file: Path) -> None:
    found = search(Reads(file), 4096, (4, 16), 0.1)
    assert found == sorted(found, key=lambda point: -point.iops)
    assert {point.batch for point in found} >= {0, 4}
    assert {point.depth for point in found} >= {4, 16}
    assert len({point.jobs for point in found}) == min(2, len(os.sched_getaffinity(0)))


@needs_fio
@pytest.mark.slow("harness/ssd")
def test_a_profile_beside_others_states_so_and_is_kept_for_minutes_alone(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "WAITS_S", (0.0,))
    with beside(*[BURN] * (os.cpu_count() or 1)):
        found = quick_profile(file, depths=(8,), seconds=0.1, cache=tmp_path)
    assert busiest(found)[1] > QUIET_CPU
    assert slack(found) > 1.2
    (kept,) = tmp_path.iterdir()
    again = quick_profile(file, depths=(8,), seconds=0.1, cache=tmp_path)
    assert again.points == found.points
    assert busiest(again)[1] > QUIET_CPU
    content = json.loads(kept.read_text())
    kept.write_text(
        json.dumps(
            {
                **content,
                "measured_at": content["measured_at"] - profiles.DISTURBED_AGE_S,
            }
        )
    )
    assert (
        quick_profile(file, depths=(8,), seconds=0.1, cache=tmp_path).points
        != found.points
    )
    assert {point.block_bytes for point in found.tried} == {4096, 65536}
    assert len({(point.depth, point.batch, point.jobs) for point in found.tried}) >= 3
    assert DiskProfile.from_plain(json.loads(json.dumps(asdict(found)))) == found


def test_profiles_of_older_records_are_read() -> None:
    old = {
        "points": [
            {
                "block_bytes": 512,
                "depth": 256,
                "iops": 9.0,
                "bytes_per_s": 4608.0,
                "pattern": "random",
            }
        ],
        "logical_block_bytes": 512,
        "tool": "fio-3.33 io_uring",
        "limited": None,
    }
    found = DiskProfile.from_plain(old)
    assert found.points[0].jobs == 1
    assert found.tried == ()
    assert slack(found) == 1.0


def test_others_reads_are_reported_from_ones_own(file: Path) -> None:
    disks = block_device(file).numbers
    if not disks:
        pytest.skip("no disk under the tests")
    once = reader(file).replace("while True", "for _ in range(64)")
    with Meter(disks) as alone:
        subprocess.run(
            [sys.executable, "-S", "-c", once], check=True, capture_output=True
        )
    _, _, all_bytes, own_bytes, *_ = alone.grew
    assert 64 * MIB <= own_bytes <= all_bytes
    with beside(reader(file)), Meter(disks) as shared:
        subprocess.run(["sleep", "0.3"], check=True)
    share, _ = shared.shares(4096)
    assert share is not None and share > 0.5, "a child that read nothing has no share"


def test_others_computing_is_seen() -> None:
    with beside(BURN), Meter(()) as meter:
        time.sleep(0.5)
    disk, processors = meter.shares(4096)
    assert disk is None
    assert processors > 0.5 / (os.cpu_count() or 1)


@given(st.lists(POINTS, min_size=4, max_size=4), st.lists(st.just(1.0), max_size=3))
def test_what_is_not_quiet_is_measured_again_while_there_are_waits(
    points: list[DiskPoint], waits: list[float]
) -> None:
    paused: list[float] = []
    given_waits = len(waits)
    coming = iter(points)
    found = quietly(lambda: next(coming), waits, paused.append)
    met = points[: 1 + len(paused)]
    assert found.iops == max(point.iops for point in met)
    assert is_quiet(met[-1]) or len(paused) == given_waits
    assert not any(is_quiet(point) for point in met[:-1])
    assert is_quiet(found) == any(map(is_quiet, met)), "one quiet measurement suffices"


@given(st.lists(POINTS, min_size=1, max_size=4))
def test_slack_is_bounded_and_none_for_a_quiet_profile(points: list[DiskPoint]) -> None:
    profile = DiskProfile(tuple(points))
    assert 1.0 <= slack(profile) <= 3.0
    if all(map(is_quiet, points)):
        assert slack(profile) == 1.0


@given(POINTS, st.floats(0.5, 5.0))
def test_a_faster_trial_of_the_same_size_shows_how_much_faster_the_device_may_be(
    point: DiskPoint, faster: float
) -> None:
    quiet = replace(point, pattern="random", others_disk=0.0, others_cpu=0.0)
    trial = replace(quiet, iops=quiet.iops * faster)
    other = replace(trial, block_bytes=2 * point.block_bytes)
    found = slack(DiskProfile((quiet,), tried=(trial, other)))
    assert found == pytest.approx(min(3.0, max(1.0, faster)))


@needs_fio
@pytest.mark.slow("harness/ssd")
def test_a_cache_below_the_kernel_is_seen_and_the_profile_is_of_blocks_read_before() -> (
    None
):
    """A loop device that reads through the page cache acts as a disk whose second reads
    come from memory."""
    with mounted_loop(96 * MIB, direct=False) as (folder, image):
        table = cold_file(folder, 64 * MIB)
        forget_pages(image)
        assert reread_gain(table) > SEEN
        forget_pages(image)
        found = quick_profile(table, depths=(8,), seconds=0.1)
    gain, first, again = gain_of(found)
    assert first is not None
    assert again is not None
    assert gain > SEEN
    assert first.iops < again.iops
    kept = better_of(found, replace(found, first_read=()))
    assert kept.first_read == found.first_read, (
        "a cache that was seen once stays recorded"
    )


def forget_pages(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
