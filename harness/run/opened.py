"""Files on disks that a run's processes have open or mapped, by inode, so that a file
whose name was removed is found too; and what their sockets hold. Files that are small
even together are left out."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import re
import stat
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.isolation.blocks import whole_disks
from harness.isolation.files import read_text

_LEAST_BYTES = (
    1 << 20
)  # files that are smaller, all small ones together, are not a run's data
_STATX_BTIME = 0x800
# Databases of the C library, files of the kernel, and memory, of which a sandbox shows
# none but the run's own.
_NO_DATA = (
    "/usr/lib/locale/",
    "/proc/",
    "/sys/",
    "/dev/",
    "/memfd:",
    "/SYSV",
    "/anon_hugepage",
)
# Folders of libraries, which no worker may write to.
_LIBRARIES = tuple(
    f"{sysconfig.get_path(kind)}/" for kind in ("stdlib", "platlib", "purelib")
)


@dataclass(frozen=True)
class OpenFile:
    """A data file that a process has open or mapped: the path at which this process can
    open it, its name as the kernel reports it, its device and inode, and its size."""

    path: Path
    name: str
    key: tuple[int, int]
    nbytes: int


def open_files(pids: Iterable[int]) -> list[OpenFile]:
    """Return the data files that processes have open or mapped, sorted by name: any
    file but code mapped as such."""
    found: dict[tuple[int, int], OpenFile] = {}
    code = set[tuple[int, int]]()
    for link, name, runs in (
        entry for pid in pids for entry in (*_descriptors(pid), *_mappings(pid))
    ):
        path, status = _status(link, Path(name))
        if link.parent.name == "fd" and is_another(link, name):
            continue  # its number was used again meanwhile
        if status is None or not stat.S_ISREG(status.st_mode):
            continue
        key = status.st_dev, status.st_ino
        if runs and _is_elf(path, key):
            code.add(key)
        found.setdefault(key, OpenFile(path, name, key, status.st_size))
    files = sorted(
        (one for one in found.values() if one.key not in code), key=lambda one: one.name
    )
    large = [one for one in files if one.nbytes >= _LEAST_BYTES]
    return (
        files
        if sum(one.nbytes for one in files if one not in large) >= _LEAST_BYTES
        else large
    )


def _descriptors(pid: int) -> Iterator[tuple[Path, str, bool]]:
    """Yield the link to each open file of a process, its name, and whether it may be a
    library's code."""
    # The process may end, or close a file, meanwhile, or belong to another user: the
    # others count.
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                name = str(link.readlink())
                if name.startswith("/") and not name.startswith(_NO_DATA):
                    # A library is opened before it is mapped as code.
                    yield link, name, name.startswith(_LIBRARIES)


def _mappings(pid: int) -> Iterator[tuple[Path, str, bool]]:
    """Yield the link to each mapped file of a process, its name, and whether it is
    mapped as code."""
    seen = set[tuple[str, bool]]()
    for line in read_text(Path(f"/proc/{pid}/maps")).splitlines():
        place, rights, _, _, _, *named = line.split(maxsplit=5)
        name = named[0] if named else ""
        runs = "x" in rights
        if (
            name.startswith("/")
            and not name.startswith(_NO_DATA)
            and (name, runs) not in seen
        ):
            seen.add((name, runs))
            begin, end = (int(address, 16) for address in place.split("-"))
            yield Path(f"/proc/{pid}/map_files/{begin:x}-{end:x}"), name, runs


def is_another(link: Path, name: str) -> bool:
    """Return whether a descriptor is no longer that of the file `name`."""
    with suppress(OSError):
        return str(link.readlink()) != name
    return True


def _status(link: Path, name: Path) -> tuple[Path, os.stat_result | None]:
    """Return the path at which a file can be opened, its name where it still has it,
    and its status; None: gone."""
    status: os.stat_result | None = None
    with suppress(OSError):  # only root may follow the links of maps
        status = link.stat()
    with suppress(OSError):
        named = name.stat()
        if status is None or os.path.samestat(status, named):
            return name, named
    return link, status


def queued_bytes(pids: Collection[int]) -> int:
    """Return the bytes in the queues of a run's TCP, UDP and netlink sockets, which
    cgroup v1 charges to no cap. Its processes share one network space, so any of them
    shows all sockets."""
    own = Path("/proc/self/ns/net").stat().st_ino
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/ns/net").stat().st_ino != own:
                tables = [
                    read_text(Path(f"/proc/{pid}/net/{name}"))
                    for name in ("tcp", "tcp6", "udp", "udp6")
                ]
                queues = re.findall(
                    r" ([0-9A-F]{8}):([0-9A-F]{8}) \d\d:", "\n".join(tables)
                )
                netlink = read_text(Path(f"/proc/{pid}/net/netlink")).splitlines()[1:]
                received = sum(int(line.split()[4]) for line in netlink)
                return received + sum(
                    int(sent, 16) + int(unread, 16) for sent, unread in queues
                )
    return 0


def on_other_disk(file: OpenFile, disks: Collection[str]) -> bool:
    """Return whether a file lies on known disks, none of which is of `disks`
    (`major:minor`)."""
    device = f"{os.major(file.key[0])}:{os.minor(file.key[0])}"
    known = {read_text(folder / "dev").strip() for folder in whole_disks(device)}
    return bool(disks and known) and not known & set(disks)


def born(path: Path) -> float:
    """Return the Unix seconds of a file's creation, or of its last change where the
    file system does not keep them."""
    found = ctypes.create_string_buffer(256)
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx and statx(-100, os.fsencode(path), 0, _STATX_BTIME, found) == 0:
        mask, seconds, nanoseconds = (
            int.from_bytes(found.raw[at : at + 4], sys.byteorder) for at in (0, 80, 88)
        )
        if mask & _STATX_BTIME:
            return seconds + nanoseconds / 1e9
    with suppress(OSError):
        return path.stat().st_mtime
    return math.inf


@functools.cache
def _is_elf(path: Path, key: tuple[int, int]) -> bool:
    """Return whether a file is code; `key`, its device and inode, since other files may
    get its path."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
    return False
