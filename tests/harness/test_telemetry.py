"""Telemetry records what happened, survives the end of the cap, and samples on a fixed
grid."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.isolation import Limits
from harness.isolation.base import MemoryStats
from harness.ssd.device import block_device
from harness.telemetry.frame import (
    COLUMNS,
    DiskSample,
    Sample,
    align,
    at_peak,
    to_frame,
    with_busy_lanes,
)
from harness.telemetry.gpu import GpuSample, GpuSource, cuda_uuids
from harness.telemetry.recorder import CpuSource, DiskSource, Recorder, parse_cpu
from tests.harness.cap_tools import (
    CAPPING,
    MIB,
    cold_file,
    needs_cap,
    on_disk,
    python,
    run_in,
)

STAT = (
    b"cpu  100 20 30 800 50 5 5 90 7 1\ncpu0 60 20 10 400 10 5 5 50 7 1\ncpu1 40 "
    b"0 20 400 40 0 0 40 0 0\n"
    b"intr 99 1 2 3\nctxt 4242\nbtime 1\nprocesses 7\n"
)


def sample(at: float, **changed: object) -> Sample:
    plain: dict[str, object] = {
        "monotonic": at,
        "cpu": np.zeros((3, 3), np.int64),
        "switches": 0,
        "memory": None,
        "psi_io": None,
        "psi_memory": None,
        "disk": None,
        "gpu": None,
    }
    return Sample(**{**plain, **changed})  # type: ignore[arg-type]


def test_cpu_times_are_those_of_proc_stat() -> None:
    times, switches = parse_cpu(STAT)
    # busy = user + nice + system + irq + softirq; guest time is in user already, steal
    # is another machine's.
    assert times.tolist() == [[160, 50, 1100], [100, 10, 560], [60, 40, 540]]
    assert switches == 4242


OFFLINE = (
    b"cpu  160 20 40 900 60 5 5 90 0 0\ncpu0 100 20 20 450 20 5 5 50 0 0\nintr 99\n"
    b"ctxt 4250\n"
)
SPARSE = b"cpu  5 0 0 5\ncpu0 1 0 0 2\ncpu3 4 0 0 3\nctxt 1\n"


def test_a_processor_that_goes_offline_and_returns_is_unknown_meanwhile_and_no_record_is_lost() -> (
    None
):
    parsed = [
        parse_cpu(text)[0]
        for text in (STAT, OFFLINE, STAT, STAT.replace(b"cpu1 40 0", b"cpu1 50 0"))
    ]
    assert len(parsed[1]) == 2
    frame = to_frame([sample(at, cpu=cpu) for at, cpu in enumerate(parsed)])
    assert np.isnan(frame["cpu1_percent"][1])
    assert np.isnan(frame["cpu1_percent"][2])
    assert frame["cpu1_percent"][3] == 100.0
    assert frame["cpu_percent"][1] == pytest.approx(100 * 70 / 180)
    assert frame["cpu0_percent"][1] == pytest.approx(100 * 50 / 110)


def test_a_processor_whose_number_leaves_a_gap_and_columns_of_an_old_kernel_are_read() -> (
    None
):
    times, _ = parse_cpu(SPARSE)
    assert times[[0, 1, 4]].tolist() == [[5, 0, 10], [1, 0, 3], [4, 0, 7]]
    assert np.isnan(times[[2, 3]]).all()


def test_iowait_and_idle_that_the_kernel_takes_back_are_no_negative_share() -> None:
    def ticks(busy: int, waiting: int, total: int) -> np.ndarray:
        return np.array([[busy, waiting, total]], np.float64)

    # Busy 10, iowait 3 back, idle 3; then busy 10, iowait 5, idle 20 back.
    cpus = [ticks(0, 50, 100), ticks(10, 47, 110), ticks(20, 52, 105)]
    frame = to_frame([sample(at, cpu=cpu) for at, cpu in enumerate(cpus)])
    assert frame["iowait_percent"][1:].tolist() == [0.0, pytest.approx(100 * 5 / 15)]
    assert frame["cpu_percent"][1:].tolist() == [
        pytest.approx(100 * 10 / 13),
        pytest.approx(100 * 10 / 15),
    ]


def test_a_disk_that_is_unplugged_or_begins_anew_is_unknown_and_not_negative(
    tmp_path: Path,
) -> None:
    stats = [tmp_path / "dev/block" / number / "stat" for number in ("8:0", "8:16")]
    for stat in stats:
        stat.parent.mkdir(parents=True)
        stat.write_text("10 0 80 5 0 0 0 0 0 5 5\n")
    source = DiskSource(["8:0", "8:16"], tmp_path)
    assert source.read() == DiskSample(20, 160, 10, 10)
    stats[1].write_text("")  # as read from a disk that is gone
    assert source.read() is None
    source.close()
    disks = [
        DiskSample(20, 160),
        None,
        DiskSample(15, 100),
        DiskSample(1, 8),
        DiskSample(3, 24),
    ]
    frame = to_frame([sample(at, disk=disk) for at, disk in enumerate(disks)])
    assert frame["disk_read_bytes"].fillna(-1).tolist() == [-1, -1, -1, -1, 16 * 512]


def test_a_disk_line_of_a_later_kernel_has_more_columns(tmp_path: Path) -> None:
    stat = tmp_path / "dev/block/8:0/stat"
    stat.parent.mkdir(parents=True)
    stat.write_text("10 0 80 5 1 2 3 4 0 6 7 8 9 10 11 12 13 14 15\n")
    assert DiskSource(["8:0"], tmp_path).read() == DiskSample(10, 80, 5, 7)


def test_every_processor_has_a_column_and_every_promised_column_is_there() -> None:
    with_all = Recorder(None, None).start().stop()
    assert set(COLUMNS) <= set(with_all.columns)
    assert {f"cpu{index}_percent" for index in range(os.cpu_count() or 1)} <= set(
        with_all.columns
    )
    assert len(with_all) == 2


def test_nothing_sampled_is_an_empty_table_with_its_columns() -> None:
    empty = to_frame([])
    assert list(empty.columns) == list(COLUMNS)
    assert empty.empty


def test_differences_are_taken_between_neighbouring_samples() -> None:
    frame = to_frame(
        [
            sample(
                10.0,
                switches=5,
                disk=DiskSample(10, 100, 4, 50),
                psi_io=0,
                memory=MemoryStats(usage=7),
            ),
            sample(
                10.5,
                cpu=np.array([[50, 10, 100], [50, 0, 50], [0, 10, 50]]),
                switches=25,
                disk=DiskSample(14, 180, 12, 300),
                psi_io=100_000,
                memory=MemoryStats(usage=9, major_faults=3),
            ),
        ]
    )
    assert frame["t"].tolist() == [0.0, 0.5]
    assert frame["epoch"].tolist() == [-1, -1]
    row = frame.iloc[1]
    assert (
        row.cpu_percent,
        row.iowait_percent,
        row.cpu0_percent,
        row.cpu1_percent,
    ) == (50, 10, 100, 0)
    assert (row.ctx_switches, row.major_faults, row.mem_usage) == (20, 3, 9)
    assert (row.disk_read_requests, row.disk_read_bytes) == (4, 80 * 512)
    assert row.disk_queue == pytest.approx(0.25 / 0.5)
    assert row.disk_latency_s == pytest.approx(0.002)
    assert row.psi_io == pytest.approx(20.0)
    assert np.isnan(row.psi_memory)
    assert np.isnan(row.gpu_percent)
    assert np.isnan(frame.iloc[0].cpu_percent)


def test_epochs_and_zero_are_those_of_the_run() -> None:
    rows = [sample(100 + step / 10) for step in range(40)]
    frame = align(to_frame(rows), 101.0, [(0, 101.0, 102.0), (1, 102.0, 103.0)])
    assert frame["t"].iloc[10] == pytest.approx(0.0)
    assert frame["epoch"].value_counts().to_dict() == {-1: 20, 0: 10, 1: 10}
    assert frame.loc[frame["epoch"] == 0, "t"].between(0, 1.0001).all()


spans_of = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 80)), max_size=12)


@given(spans_of)
def test_busy_share_equals_counting_every_moment(spans: list[tuple[int, int]]) -> None:
    frame = to_frame([sample(step / 2) for step in range(9)])
    lanes = [(start / 100, (start + length) / 100) for start, length in spans]
    found = with_busy_lanes(frame, lanes)["gpu_percent"].to_numpy()[1:]
    # A moment is busy when any span covers it: count hundredths of a second.
    busy = np.zeros(500, bool)
    for start, length in spans:
        busy[start : start + length] = True
    expected = [busy[step * 50 : step * 50 + 50].sum() * 2.0 for step in range(8)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_peak_is_the_row_of_the_highest_usage() -> None:
    rows = [
        sample(index, memory=MemoryStats(usage=use, anon=use // 2))
        for index, use in enumerate([1, 9, 4])
    ]
    assert at_peak(to_frame(rows))["mem_usage"] == 9
    assert at_peak(to_frame(rows))["mem_anon"] == 4
    assert at_peak(to_frame([sample(0)])) == {}


def test_disk_reads_show_as_bytes_requests_and_latency() -> None:
    for folder in on_disk():
        file = cold_file(folder, 16 * MIB)
        device = block_device(file).number
        if not device:
            pytest.skip("no disk under the tests")
        recorder = Recorder(None, device).start()
        fd = os.open(file, os.O_RDONLY | os.O_DIRECT)
        import mmap

        with mmap.mmap(-1, MIB) as buffer:
            for block in range(16):
                os.preadv(fd, [buffer], block * MIB)
        os.close(fd)
        time.sleep(0.15)
        frame = recorder.stop()
        assert frame["disk_read_bytes"].sum() >= 16 * MIB
        assert frame["disk_read_requests"].sum() >= 1
        assert frame["disk_latency_s"].max() > 0
        assert DiskSource(["999:99"]).read() is None


@needs_cap
def test_telemetry_outlives_a_cap_that_was_ended_by_oom() -> None:
    with CAPPING[0]().create("telemetry", Limits(64 * MIB)) as cap:
        recorder = Recorder(cap, None, hz=50).start()
        done = run_in(
            cap,
            "import time; a=bytearray(20<<20); time.sleep(0.3); b=bytearray(100<<20)",
        )
        assert done.returncode == -signal.SIGKILL
        time.sleep(0.1)
        cap.close()
        time.sleep(0.1)
        frame = recorder.stop()
    assert frame["mem_usage"].max() > 20 * MIB
    assert frame["t"].is_monotonic_increasing
    assert frame["t"].iloc[-1] > 0.4


@needs_cap
def test_major_faults_of_the_cap_are_seen() -> None:
    code = (
        "import mmap,sys,time\nf=open(sys.argv[1],'rb')\n"
        "m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\n"
        "m.madvise(mmap.MADV_RANDOM)\nfor i in range(0,len(m),4096): "
        "m[i]\ntime.sleep(0.2)"
    )
    for folder in on_disk():
        file = cold_file(folder, 4 * MIB)
        with CAPPING[0]().create("faults", Limits(64 * MIB)) as cap:
            recorder = Recorder(cap, None).start()
            subprocess.run(cap.command(python(code, str(file))), check=True)
            frame = recorder.stop()
        assert 1024 <= frame["major_faults"].sum() < 1600


def test_samples_lie_on_a_fixed_grid() -> None:
    recorder = Recorder(None, None, hz=20).start()
    time.sleep(1.0)
    frame = recorder.stop()
    assert 18 <= len(frame) <= 23


def test_stopping_ends_the_thread_and_closes_every_file() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    recorder = Recorder(None, None).start()
    recorder.stop()
    again = recorder.stop()
    assert len(again) == 2
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert "telemetry" not in {thread.name for thread in threading.enumerate()}


def test_a_gpu_that_is_not_there_is_unknown_and_not_idle() -> None:
    gpu = GpuSource(["00000000-0000-0000-0000-000000000000"])
    assert not gpu.present
    assert gpu.read() is None
    gpu.close()
    row = to_frame([sample(1.0), sample(2.0)]).iloc[-1]
    assert row[[name for name in COLUMNS if name.startswith("gpu")]].isna().all()
    assert cuda_uuids("libnone.so.1") == []


def test_gpu_readings_are_columns_beside_the_busy_share_of_events() -> None:
    readings = GpuSample(
        kernel_percent=100.0,
        memory_bytes=5.0,
        energy_j=7.0,
        sm_percent=30.0,
        pcie_in=2.0,
    )
    later = dataclasses.replace(readings, energy_j=9.5)
    frame = to_frame([sample(1.0, gpu=readings), sample(2.0, gpu=later)])
    row = with_busy_lanes(frame, [(1.0, 1.25)]).iloc[-1]
    assert (row.gpu_percent, row.gpu_kernel_percent, row.gpu_sm_percent) == (
        25.0,
        100.0,
        30.0,
    )
    assert (row.gpu_energy_j, row.gpu_pcie_in_bytes_s, row.gpu_memory_bytes) == (
        2.5,
        2.0,
        5.0,
    )
    assert np.isnan(row.gpu_pcie_out_bytes_s)


def test_the_processors_of_this_host_are_found() -> None:
    source = CpuSource()
    times, switches = source.read()
    source.close()
    assert len(times) == 1 + len(
        [
            line
            for line in Path("/proc/stat").read_text().splitlines()
            if line[3:4].isdigit()
        ]
    )
    assert (times >= 0).all()
    assert switches > 0


def test_it_samples_on_its_grid_and_no_oftener() -> None:
    """A benchmark measures the cost of a sample, on a quiet machine."""
    recorder = Recorder(
        None, block_device(Path("/var/tmp")).number or None, hz=20.0
    ).start()
    time.sleep(1.0)
    moments = recorder.stop()["t"]
    assert 2 <= len(moments) <= 3 + 20 * (moments.iloc[-1] - moments.iloc[0])
