"""DiskGNN under real faults: killed while preparing, a full disk, a damaged chunk,
artefacts of another workload."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from harness.check.case import Case
from harness.check.stage import make_dataset
from tests.systems.support_systems import reference, run, workload_of
from tests.systems.test_diskgnn import prepared
from workloads.errors import DataIOError
from workloads.workload import Workload

CASE = Case("faults", nodes=3000, edges=30000, train=300, dim=127)
OPTIONS = {"host_cache": "64KiB"}


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    return workload_of(make_dataset(tmp_path / "data", CASE), batch_size=10)


def packed(root: Path) -> list[Path]:
    return sorted((root / "artefacts").glob("diskgnn-*"))


# A preparation that reports when packing has begun and then sleeps, so that it can be
# killed half-way.
_CHILD = """
    import sys, time
    from pathlib import Path
    from systems.engine.store.packed_writer import PackedWriter
    from tests.systems.support_systems import workload_of
    from tests.systems.test_diskgnn import prepared
    from workloads.dataset import Dataset

    after = int(sys.argv[3])
    plain = PackedWriter.append
    def append(self, *arguments):
        plain(self, *arguments)
        self.appended = getattr(self, "appended", 0) + 1
        if self.appended == after:
            print("half-way", flush=True)
            time.sleep(60)
    PackedWriter.append = append
    workload = workload_of(Dataset.open(Path(sys.argv[1])), batch_size=10)
    with prepared(workload, Path(sys.argv[2]), host_cache="64KiB"):
        print("prepared", flush=True)
"""


@pytest.mark.slow(
    "systems/diskgnn", "systems/engine/store", "systems/native", seconds=8
)
def test_a_preparation_killed_half_way_is_started_anew(
    workload: Workload, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(_CHILD),
        str(workload.dataset.path),
        str(tmp_path),
        "7",
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "half-way\n"
        left = list((tmp_path / "artefacts").iterdir())
        assert left
        assert any(path.name == "packed.bin" for path in left[0].iterdir())
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert not packed(tmp_path)
    with prepared(workload, tmp_path, **OPTIONS) as system:
        assert system.notes()["prepared"] == "made"
        assert run(system)[:2] == reference(workload)
    assert [path.name for path in (tmp_path / "artefacts").iterdir()] == [
        packed(tmp_path)[0].name
    ]


def test_artefacts_of_other_options_or_another_dataset_are_not_used(
    workload: Workload, tmp_path: Path
) -> None:
    def kept(chosen: Workload, **options: object) -> str:
        with prepared(chosen, tmp_path, **{**OPTIONS, **options}) as system:
            assert run(system)[:2] == reference(chosen)
            return system.notes()["prepared"]

    assert [kept(workload), kept(workload)] == ["made", "reused"]
    assert kept(workload, segment=4) == "made"
    assert kept(workload, segment=4, hashes=0) == "made"
    assert kept(workload, host_cache="32KiB") == "made"
    assert kept(workload, packing="off") == "made"
    assert (
        kept(workload, readers=1, queue=2) == "reused"
    )  # options that do not change the layout
    other = workload_of(
        make_dataset(
            tmp_path / "data",
            Case("other", nodes=3000, edges=30001, train=300, dim=127),
        )
    )
    assert kept(other) == "made"


def test_a_folder_that_lost_a_file_is_made_anew(
    workload: Workload, tmp_path: Path
) -> None:
    with prepared(workload, tmp_path, **OPTIONS):
        pass
    (packed(tmp_path)[0] / "device_cache.rows").unlink()
    with prepared(workload, tmp_path, **OPTIONS) as system:
        assert system.notes()["prepared"] == "made"


def _damage(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0xFF]))


@pytest.mark.parametrize("pipeline", [True, False])
def test_a_corrupted_chunk_is_found_and_named(
    pipeline: bool, workload: Workload, tmp_path: Path
) -> None:
    with prepared(workload, tmp_path, **OPTIONS, pipeline=pipeline):
        pass
    path = packed(tmp_path)[0] / "packed.bin"
    _damage(path, path.stat().st_size // 2)
    with prepared(workload, tmp_path, **OPTIONS, pipeline=pipeline) as system:
        assert system.notes()["prepared"] == "reused"
        with pytest.raises(
            DataIOError, match=r"mini-batch \d+ in .*packed\.bin.* offset \d+"
        ):
            run(system)


def test_a_corrupted_cache_is_found_and_named(
    workload: Workload, tmp_path: Path
) -> None:
    with prepared(workload, tmp_path, **OPTIONS):
        pass
    _damage(packed(tmp_path)[0] / "device_cache.rows", 5000)
    with (
        pytest.raises(DataIOError, match=r"device_cache\.rows is corrupted"),
        prepared(workload, tmp_path, **OPTIONS),
    ):
        pass


def test_a_chunk_file_cut_while_running_is_reported(
    workload: Workload, tmp_path: Path
) -> None:
    with prepared(workload, tmp_path, **OPTIONS) as system:
        os.truncate(packed(tmp_path)[0] / "packed.bin", 200_000)
        with pytest.raises(DataIOError, match=r"packed\.bin"):
            run(system)


@pytest.mark.parametrize("largest", [10 * 4096, 171 * 4096])
def test_a_disk_that_fills_up_is_reported_and_leaves_nothing(
    largest: int, workload: Workload, tmp_path: Path
) -> None:
    """A limit on file size stops the writing of samples, or of chunks, as a full disk
    does (EFBIG for ENOSPC)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
    try:
        with (
            pytest.raises(DataIOError, match=r"the file is larger than the"),
            prepared(workload, tmp_path, **OPTIONS),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list((tmp_path / "artefacts").iterdir()) == []
    with prepared(workload, tmp_path, **OPTIONS) as system:
        assert run(system)[:2] == reference(workload)


def test_features_cut_before_packing_are_named(
    workload: Workload, tmp_path: Path
) -> None:
    features = workload.dataset.file("features")
    os.truncate(features, features.stat().st_size // 2)
    with (
        pytest.raises(DataIOError, match=r"features\.npy"),
        prepared(workload, tmp_path, **OPTIONS),
    ):
        pass
