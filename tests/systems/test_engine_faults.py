"""Real faults: cut files, failing devices, forbidden io_uring, short reads. Reads
return right bytes or raise."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import RowReader
from tests.systems.engine_tables import (
    open_reader,
    random_table,
    run_child,
    same_bytes,
    write_table,
)
from workloads.errors import DataIOError

MODES = ["auto", "pread"]

_READ_AND_COMPARE = """
import sys
import numpy as np
from pathlib import Path
from systems.engine.io.reader import RowReader
path, mode = Path(sys.argv[1]), sys.argv[2]
table = np.fromfile(path, dtype=np.float32, offset=4096).reshape(-1, 100)
reader = RowReader(path, data_offset=4096, num_rows=len(table), row_bytes=400, mode=mode)
ids = np.random.default_rng(0).integers(0, len(table), 700)
out = np.zeros((700, 100), np.float32)
stats = reader.read(ids, out)
assert out.tobytes() == table[ids].tobytes(), "wrong bytes"
print(reader.mode)
print(stats.requests, stats.bytes_read)
"""


def read_here(path: Path, mode: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines that `_READ_AND_COMPARE` prints in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["", str(path), mode])
        exec(_READ_AND_COMPARE, {})
    return capsys.readouterr().out.splitlines()


# Makes io_uring_setup (425 on every architecture) fail with EPERM, as a container's
# seccomp profile does.
_FORBID_IO_URING = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
program = b"".join(struct.pack("HBBI", *step) for step in [
    (0x20, 0, 0, 0),              # load the call's number
    (0x15, 0, 1, 425),            # io_uring_setup?
    (0x06, 0, 0, 0x00050000 | 1), # errno EPERM
    (0x06, 0, 0, 0x7FFF0000),     # allow
])
memory = ctypes.create_string_buffer(program, len(program))
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]
rule = Filter(4, ctypes.addressof(memory))
assert libc.prctl(38, 1, 0, 0, 0) == 0                       # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.byref(rule), 0, 0) == 0      # PR_SET_SECCOMP, filter
"""

# Drops CAP_IPC_LOCK and sets a memlock limit below the size of the bounce buffer.
_LITTLE_MEMLOCK = """
import ctypes, resource, struct
libc = ctypes.CDLL(None, use_errno=True)
header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0), 8)
data = ctypes.create_string_buffer(24)
assert libc.capget(header, data) == 0
caps = list(struct.unpack("6I", data.raw))
for i in range(3):
    caps[i] &= ~(1 << 14)
data = ctypes.create_string_buffer(struct.pack("6I", *caps), 24)
assert libc.capset(header, data) == 0
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
"""


@pytest.fixture
def table_file(tmp_path: Path) -> tuple[Path, np.ndarray]:
    table = random_table(3000, 100, "float32")
    return write_table(tmp_path / "features.npy", table), table


@pytest.mark.parametrize("mode", MODES)
def test_a_truncated_file_raises_with_file_and_offset(
    table_file: tuple[Path, np.ndarray], mode: str
) -> None:
    path, table = table_file
    reader = open_reader(path, table, mode=mode, depth=32)
    os.truncate(path, 4096 + 1000 * 400 + 100)  # in the middle of row 1000
    out = np.zeros((1, 100), "float32")
    reader.read(np.array([999]), out)
    assert same_bytes(out, table[[999]]), "rows before the cut are still read"
    with pytest.raises(DataIOError) as caught:
        reader.read(np.arange(900, 1100), np.zeros((200, 100), "float32"))
    assert caught.value.path == str(path)
    assert caught.value.offset == 4096 + 1000 * 400 + 100
    assert str(path) in str(caught.value)
    assert str(caught.value.offset) in str(caught.value)
    with pytest.raises(DataIOError):
        reader.read(np.array([2999]), out)
    # The next read sees nothing of the failed one.
    ids = np.random.default_rng(0).integers(0, 999, 500)
    out = np.zeros((500, 100), "float32")
    reader.read(ids, out)
    assert same_bytes(out, table[ids])


def test_a_file_truncated_while_it_is_read_raises(
    table_file: tuple[Path, np.ndarray],
) -> None:
    path, table = table_file
    reader = open_reader(path, table, depth=4)
    groups = reader.read_groups(np.arange(3000), aligned_empty(64 * 400), 16)
    for _ in range(3):
        group = next(groups)
        assert same_bytes(group.rows.view(np.float32), table[group.positions])
        group.release()
    os.truncate(path, 4096 + 400 * 1500)
    with pytest.raises(DataIOError):
        for group in groups:
            group.release()


def test_the_last_row_may_end_inside_a_block(tmp_path: Path) -> None:
    table = random_table(7, 3, "float32")
    path = write_table(tmp_path / "t", table)
    assert path.stat().st_size % 512 != 0
    for mode in MODES:
        reader = open_reader(path, table, mode=mode)
        out = np.zeros((1, 3), "float32")
        assert reader.read(np.array([6]), out).bytes_read == path.stat().st_size - 4096
        assert same_bytes(out, table[[6]])


@pytest.mark.parametrize("missing", ["gone", "folder"])
def test_a_file_that_cannot_be_opened_raises(tmp_path: Path, missing: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataIOError, match=missing):
        reader = RowReader(
            tmp_path / missing, data_offset=0, num_rows=10, row_bytes=512
        )
        reader.read(np.array([1]), np.zeros((1, 512), np.uint8))


@pytest.mark.parametrize("mode", MODES)
def test_a_device_error_raises_with_its_offset(tmp_path: Path, mode: str) -> None:
    # A loop device returns EIO for blocks missing from its backing file.
    if os.geteuid() != 0 or shutil.which("losetup") is None:
        pytest.skip("needs root and losetup")
    table = random_table(2048, 512, "uint8")
    path = write_table(tmp_path / "backing", table, header=0)
    made = subprocess.run(
        ["losetup", "--find", "--show", path],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"no loop device: {made.stderr.strip()}")
    device = made.stdout.strip()
    try:
        reader = RowReader(
            device, data_offset=0, num_rows=2048, row_bytes=512, depth=16, mode=mode
        )  # type: ignore[arg-type]
        out = np.zeros((64, 512), np.uint8)
        reader.read(np.arange(64), out)
        assert same_bytes(out, table[:64])
        os.truncate(path, 1024 * 512)
        with pytest.raises(DataIOError) as caught:
            reader.read(np.arange(1000, 1064, 3), out)
        assert caught.value.path == device
        assert caught.value.errno == 5
        assert 1024 * 512 <= caught.value.offset < 1064 * 512
        reader.close()
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


@pytest.mark.slow("systems/engine/io", "systems/native")
def test_forbidden_io_uring_falls_back_to_the_pread_pool_unless_insisted_on(
    table_file: tuple[Path, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    insist = """
from workloads.errors import HostError
try:
    RowReader(path, data_offset=4096, num_rows=1, row_bytes=400, mode="io_uring")
except HostError as error:
    print(error)
"""
    path, _ = table_file
    allowed = read_here(path, "auto", capsys)
    mode, counts, reported = run_child(
        _FORBID_IO_URING + _READ_AND_COMPARE + insist, path, "auto"
    ).splitlines()
    assert mode.startswith("pread pool (")
    assert "Operation not permitted" in mode
    assert counts == allowed[1], "the counters depend on the backend"
    assert "Operation not permitted" in reported


@pytest.mark.slow("systems/engine/io", "systems/native", seconds=8)
def test_a_memlock_limit_leaves_the_buffers_unregistered_and_states_so(
    table_file: tuple[Path, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = table_file
    free = read_here(path, "auto", capsys)
    if not free[0].startswith("io_uring"):
        pytest.skip(f"no io_uring here: {free[0]}")
    limited = run_child(_LITTLE_MEMLOCK + _READ_AND_COMPARE, path, "auto").splitlines()
    assert limited[0] == "io_uring unregistered (memlock limit 64 KiB)"
    assert limited[1] == free[1]


@pytest.mark.slow("systems/engine/io", "systems/native", seconds=8)
def test_short_reads_are_finished(
    table_file: tuple[Path, np.ndarray],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The kernel rarely returns fewer bytes than asked from a disk file; a preloaded
    # library makes every pread short.
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source = tmp_path / "short.c"
    source.write_text(
        """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <errno.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/types.h>
        static unsigned cut;
        __attribute__((destructor)) static void tell(void) {
            FILE *file = fopen(getenv("SHORT_READS"), "w");
            fprintf(file, "%u", cut);
            fclose(file);
        }
        static ssize_t little(const char *name, int fd, void *to, size_t n, off_t at) {
            static __thread unsigned calls;
            ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, name);
            if (++calls % 5 == 0) { errno = EINTR; return -1; }
            ssize_t got = real(fd, to, n, at);
            ssize_t most = calls % 2 ? 512 : 700;   /* not only whole blocks */
            if (got > most) __atomic_fetch_add(&cut, 1, __ATOMIC_RELAXED);
            return got > most ? most : got;
        }
        ssize_t pread(int fd, void *to, size_t n, off_t at) { return little("pread", fd, to, n, at); }
        ssize_t pread64(int fd, void *to, size_t n, off_t at) { return little("pread64", fd, to, n, at); }
        """
    )
    library = tmp_path / "short.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True
    )
    path, _ = table_file
    whole = read_here(path, "pread", capsys)
    reported = tmp_path / "reported"
    env = {"LD_PRELOAD": str(library), "SHORT_READS": str(reported)}
    assert run_child(_READ_AND_COMPARE, path, "pread", env=env).splitlines() == whole
    assert int(reported.read_text()) > 100, (
        "no read was cut short: the test proved nothing"
    )


def test_a_file_system_without_direct_io_is_read_buffered_and_states_so() -> None:
    folder = Path("/dev/shm")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        pytest.skip("needs /dev/shm")
    table = random_table(500, 33, "float32")
    path = folder / f"outcore-test-{os.getpid()}"
    try:
        write_table(path, table)
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
            direct = True  # newer kernels accept the flag on tmpfs
        except OSError:
            direct = False
        for mode in MODES:
            reader = open_reader(path, table, mode=mode)
            ids = np.random.default_rng(0).integers(0, 500, 300)
            out = np.zeros((300, 33), "float32")
            reader.read(ids, out)
            assert same_bytes(out, table[ids])
            assert direct or "buffered" in reader.mode
    finally:
        path.unlink(missing_ok=True)


def test_a_destination_that_cannot_be_written_raises_and_the_reader_still_works(
    tmp_path: Path,
) -> None:
    table = random_table(64, 16384, "uint8")
    path = write_table(tmp_path / "t", table)
    reader = open_reader(path, table)
    out = aligned_empty(64 * 16384).reshape(64, 16384)
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.c_void_p(out.__array_interface__["data"][0] + 8 * 16384)
    assert libc.mprotect(address, ctypes.c_size_t(16384), 1) == 0  # row 8 read-only
    with pytest.raises(DataIOError, match="Bad address"):
        reader.read(np.arange(0, 64, 2), out[:32])
    assert libc.mprotect(address, ctypes.c_size_t(16384), 3) == 0
    reader.read(np.arange(64), out)
    assert same_bytes(out, table)
