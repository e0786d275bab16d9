"""An error of the operating system is reported with its cause and the fix of that
cause."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support import make_tiny, mounted
from workloads.errors import DataIOError, DatasetError, InputError, fault_of
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.writer import DatasetWriter

EDGES = "0 1\n1 2\n2 3\n3 0\n"
SCARCE = """
import resource, sys
from pathlib import Path
from workloads.errors import OutcoreError
from workloads.making.importing import ImportSpec, import_dataset
spec = ImportSpec("snap")
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), 4096))
try:
    import_dataset(Path(sys.argv[2]), Path(sys.argv[3]), spec)
except OutcoreError as error:
    print(error)
"""


@pytest.mark.parametrize("files", [4, 5, 6, 7])
def test_the_limit_of_open_files_is_named_with_its_fix(
    files: int, tmp_path: Path
) -> None:
    (tmp_path / "edges.txt").write_text(EDGES)
    words = [
        sys.executable,
        "-c",
        SCARCE,
        str(files),
        str(tmp_path / "edges.txt"),
        str(tmp_path / "t"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == 0 and not done.stdout:
        assert files == 7  # enough for this import
        return
    assert (
        f"a process may have {files} here (`ulimit -n`); raise it: `ulimit -n 4096`"
        in done.stdout
    ), done.stderr
    assert "permissions" not in done.stdout
    assert not (tmp_path / "t").exists()


def test_a_read_only_file_system_is_named(tmp_path: Path) -> None:
    source = tmp_path / "edges.txt"
    source.write_text(EDGES)
    with mounted(tmp_path / "disk", "tmpfs", "-o", "ro") as disk:
        with pytest.raises(
            DatasetError,
            match=r"Read-only file system; choose a folder on a file system that is",
        ):
            import_dataset(source, disk / "t", ImportSpec("snap"))
        with pytest.raises(InputError, match="Read-only file system"):
            raise InputError.from_os(
                _failure(disk / "file"), "it cannot be written", "choose another --out"
            )


def test_a_full_disk_is_named_with_its_fix(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "tmpfs", "-o", "size=64k") as disk:
        with pytest.raises(OSError) as full, (disk / "f").open("wb") as file:
            file.write(bytes(1 << 20))
        text = str(
            DataIOError.of(
                full.value, "it could not be written", disk, "choose another --out"
            )
        )
    assert "No space left on device; free some space there" in text


def test_a_file_above_the_limit_of_file_sizes_is_named(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with (
            pytest.raises(OSError) as large,
            (tmp_path / "f").open("wb", buffering=0) as file,
        ):
            file.write(bytes(4096))
            file.write(b"1")
        reason, fix = fault_of(large.value)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "4096 bytes that a process may write (`ulimit -f`)" in reason
    assert fix == "raise that limit"


@pytest.mark.parametrize(
    ("code", "part"),
    [
        (errno.ENFILE, "fs.file-max"),
        (errno.EDQUOT, "quota"),
        (errno.EIO, "dmesg"),
        (errno.ENODEV, "dmesg"),
        (errno.ENOMEM, "locked memory"),
        (errno.ESTALE, "mount the network file system again"),
    ],
)
def test_a_cause_of_the_host_has_its_own_fix_whatever_the_caller_names(
    code: int, part: str
) -> None:
    assert part in fault_of(OSError(code, os.strerror(code)), "choose another --out")[1]


def test_a_wrong_place_has_the_fix_of_the_caller() -> None:
    denied = PermissionError(errno.EACCES, "Permission denied")
    assert fault_of(denied, "choose another --out") == (
        "Permission denied",
        "choose another --out",
    )
    assert "permissions" in fault_of(denied)[1]
    assert (
        fault_of(FileNotFoundError(errno.ENOENT, "No such file"))[1] == "check the path"
    )


def test_a_used_up_quota_is_not_answered_with_the_free_space(tmp_path: Path) -> None:
    with (
        pytest.raises(DatasetError) as refused,
        DatasetWriter(tmp_path / "t") as writer,
    ):
        writer.write("labels", np.zeros(5, dtype=np.int64))
        raise OSError(errno.EDQUOT, "Disk quota exceeded")
    assert "quota" in refused.value.fix
    assert "are free" not in str(refused.value)
    make_tiny(tmp_path / "t", nodes=100, edges=300)  # nothing is left in its way


def _failure(path: Path) -> OSError:
    with pytest.raises(OSError) as failed:
        path.write_text("")
    return failed.value
