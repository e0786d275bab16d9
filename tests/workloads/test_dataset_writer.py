"""Writing is all or nothing: a full disk, a signal, a kill or a bug leaves no
half-written dataset."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support import default_signals, make_tiny, mounted
from workloads.dataset import Dataset
from workloads.errors import DatasetError
from workloads.making.writer import DatasetWriter
from workloads.tempfolder import free_bytes, remove_stale


def leftovers(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a real file system of 8 MiB."""
    with mounted(tmp_path / "disk", "tmpfs", "-o", "size=8m") as disk:
        yield disk


def test_an_existing_dataset_is_refused_and_kept(tmp_path: Path) -> None:
    first = make_tiny(tmp_path / "t", nodes=100, edges=300)
    with pytest.raises(DatasetError, match=r"'t' exists already.*--force"):
        make_tiny(tmp_path / "t", nodes=100, edges=300, seed=1)
    assert Dataset.open(tmp_path / "t").fingerprint == first.fingerprint
    assert leftovers(tmp_path) == ["t"]


def test_replace_keeps_the_old_one_until_the_new_one_is_whole(tmp_path: Path) -> None:
    old = make_tiny(tmp_path / "t", nodes=100, edges=300)
    with (
        pytest.raises(RuntimeError, match="bug"),
        DatasetWriter(tmp_path / "t", replace=True) as writer,
    ):
        writer.write("labels", np.zeros(5, dtype=np.int64))
        raise RuntimeError("bug")
    assert Dataset.open(tmp_path / "t").fingerprint == old.fingerprint
    source = make_tiny(tmp_path / "source", nodes=90, edges=200)
    with DatasetWriter(tmp_path / "t", replace=True) as writer:
        for part in (
            "indptr",
            "indices",
            "features",
            "labels",
            "train",
            "valid",
            "test",
        ):
            writer.write(part, source.load(part))  # type: ignore[arg-type]
        writer.num_classes = 5
    assert Dataset.open(tmp_path / "t").num_nodes == 90
    assert leftovers(tmp_path) == ["source", "t"]


def test_a_dataset_that_lacks_a_part_is_never_committed(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="lacks indptr"),
        DatasetWriter(tmp_path / "t") as writer,
    ):
        writer.write("labels", np.zeros(5, dtype=np.int64))
    assert leftovers(tmp_path) == []


def test_a_part_shorter_or_longer_than_announced_is_refused(tmp_path: Path) -> None:
    for rows in (4, 6):
        with (
            pytest.raises(ValueError, match="announced"),
            DatasetWriter(tmp_path / "t") as writer,
            writer.stream("labels", np.int64, 5) as stream,
        ):
            stream.write(np.zeros(rows, dtype=np.int64))
    assert leftovers(tmp_path) == []


def test_too_little_space_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    free = free_bytes(tmp_path)
    with pytest.raises(DatasetError) as caught, DatasetWriter(tmp_path / "t") as writer:
        writer.require_space(free + 10**12)
    assert caught.value.exit_code == 2
    assert str(free + 10**12 + (1 << 20)) in str(caught.value)
    assert "are free" in str(caught.value)
    assert leftovers(tmp_path) == []


def test_a_disk_full_while_writing_is_one_sentence_and_leaves_nothing(
    small_disk: Path,
) -> None:
    with (
        pytest.raises(
            DatasetError, match=r"no space for dataset 't': it needs .* are free"
        ) as caught,
        DatasetWriter(small_disk / "t") as writer,
    ):
        writer.write("labels", np.zeros(1000, dtype=np.int64))
        writer.write("features", np.zeros((100_000, 32), dtype=np.float32))
    assert caught.value.exit_code == 2
    assert caught.value.__cause__ is None
    assert leftovers(small_disk) == []
    assert make_tiny(small_disk / "t", nodes=100, edges=300).verify() == []


def test_a_disk_filled_by_others_meanwhile_is_one_sentence_too(
    small_disk: Path,
) -> None:
    with (
        pytest.raises(DatasetError, match="no space for dataset 't'"),
        DatasetWriter(small_disk / "t") as writer,
    ):
        writer.require_space(1 << 20)
        with (
            (small_disk / "t-scratch").open("wb", buffering=0) as other,
            pytest.raises(OSError) as full,
        ):
            while True:
                other.write(b"\0" * (1 << 20))
        assert full.value.errno == errno.ENOSPC
        (writer.folder / "scratch.tmp").write_bytes(b"\0" * (1 << 20))
    assert leftovers(small_disk) == ["t-scratch"]


def test_a_root_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(DatasetError, match="cannot be written"),
        DatasetWriter(tmp_path / "file" / "t"),
    ):
        pass


SLOW_WRITER = """
import sys, time
import numpy as np
from workloads.making.writer import DatasetWriter
with DatasetWriter(sys.argv[1]) as writer:
    writer.write("labels", np.zeros(1000, dtype=np.int64))
    print("writing", flush=True)
    time.sleep(60)
"""


def start_writer(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SLOW_WRITER), str(path)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    process = start_writer(tmp_path / "t")
    assert len(leftovers(tmp_path)) == 1
    process.send_signal(number)
    assert process.wait(10) != 0
    assert leftovers(tmp_path) == []


def test_a_killed_writers_folder_is_cleaned_by_the_next_and_a_living_ones_is_not(
    tmp_path: Path,
) -> None:
    killed = start_writer(tmp_path / "killed")
    living = start_writer(tmp_path / "living")
    try:
        assert len(leftovers(tmp_path)) == 2
        killed.send_signal(signal.SIGKILL)
        killed.wait(10)
        assert len(leftovers(tmp_path)) == 2
        make_tiny(tmp_path / "killed", nodes=100, edges=300)
        names = leftovers(tmp_path)
        assert len(names) == 2
        assert "killed" in names
        assert names[0].startswith(".living.outcore-tmp-")
        assert remove_stale(tmp_path) == []
    finally:
        living.terminate()
        living.wait(10)
    assert leftovers(tmp_path) == ["killed"]


def test_two_writers_of_one_name_do_not_mix(tmp_path: Path) -> None:
    source = make_tiny(tmp_path / "source", nodes=100, edges=300)
    with (
        pytest.raises(DatasetError, match="exists already"),
        DatasetWriter(tmp_path / "t") as late,
        DatasetWriter(tmp_path / "t") as early,
    ):
        for writer in (early, late):
            for part in (
                "indptr",
                "indices",
                "features",
                "labels",
                "train",
                "valid",
                "test",
            ):
                writer.write(part, source.load(part))  # type: ignore[arg-type]
            writer.num_classes = 5
    assert Dataset.open(tmp_path / "t").verify() == []
    assert leftovers(tmp_path) == ["source", "t"]


def test_signal_handlers_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    make_tiny(tmp_path / "t", nodes=100, edges=300)
    assert signal.getsignal(signal.SIGTERM) is before
