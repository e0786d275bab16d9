"""Files that a run's processes have open or mapped, by inode: a file whose name was removed, and memory of other
processes (memfd, System V, tmpfs), are found too. Files on disks that are small even together are left out."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import re
import stat
import sys
import sysconfig
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.isolation.blocks import whole_disks
from harness.isolation.files import read_text
from harness.isolation.mounts import IN_MEMORY, all_mounts

_LEAST_BYTES = 1 << 20  # files that are smaller, all small ones together, are not a run's data
_STATX_BTIME = 0x800
# Databases of the C library: of locales, users and hosts.
_SYSTEM = ("/usr/lib/locale/", "/var/lib/sss/", "/var/cache/nscd/", "/var/db/nscd/")


@dataclass(frozen=True)
class OpenFile:
    """A file that a process has open or mapped.

    Attributes:
        path: path at which this process can open it, even where its name was removed.
        name: name that the kernel tells.
        key: device and inode.
        nbytes, held_bytes: its size, and the bytes allocated for it.
        in_memory: whether its file system is memory (tmpfs; memfd and System V memory have no other).
        library: whether it lies in a folder of libraries, or is an ELF file mapped as code.
    """

    path: Path
    name: str
    key: tuple[int, int]
    nbytes: int
    held_bytes: int
    in_memory: bool
    library: bool

    @property
    def is_data(self) -> bool:
        """Whether it may hold rows: any file but libraries' code and the C library's databases."""
        return not self.name.startswith(_SYSTEM) and not (self.library and _is_elf(self.path))


def _libraries(packages: Path) -> tuple[str, ...]:
    """Return the folders of libraries, those that an environment's folder of packages links to included. The holder
    keeps libraries resident on purpose, for every run alike."""
    linked = [path.resolve() for path in packages.iterdir() if path.is_symlink() and path.is_dir()]
    folders = {sys.prefix, sys.base_prefix, str(packages), *map(str, linked)}
    return ("/usr/", "/lib", *(f"{folder}/" for folder in sorted(folders)))


_LIBRARIES = _libraries(Path(sysconfig.get_path("purelib")))
# Code in the folders of libraries as maps name it: device and inode, and name. Such files are examined once.
_CODE = set[tuple[str, str]]()


def open_files(pids: Iterable[int]) -> list[OpenFile]:
    """Return the files that processes have open or mapped, without code in the folders of libraries, sorted by name."""
    links: dict[Path, tuple[str, bool, str]] = {}
    for pid in pids:
        # The process may end, or close a file, meanwhile, or belong to another user: the others count.
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    links[link] = str(link.readlink()), False, ""
        seen: dict[str, Path] = {}
        with suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                place, rights, _, device, inode, *path_of = line.rstrip("\n").split(maxsplit=5)
                if not path_of or not path_of[0].startswith("/"):
                    continue
                number = f"{device} {inode}"
                if (number, path_of[0]) in _CODE:
                    continue
                if number not in seen:
                    begin, end = (int(address, 16) for address in place.split("-"))
                    seen[number] = Path(f"/proc/{pid}/map_files/{begin:x}-{end:x}")
                known = links.get(seen[number])
                links[seen[number]] = path_of[0], "x" in rights or (known is not None and known[1]), number
    memory, found = _memory_devices(), dict[tuple[int, int], OpenFile]()
    for link, (name, code, number) in links.items():
        path, status = _status(link, Path(name))
        if status is None or not stat.S_ISREG(status.st_mode) or name.startswith(("/proc/", "/sys/")):
            continue
        library = name.startswith(_LIBRARIES)
        if library and _is_elf(path):
            _CODE.add((number, name))
            continue
        key = status.st_dev, status.st_ino
        before = found.get(key)
        library = library or (code and _is_elf(path)) or (before is not None and before.library)
        sizes = status.st_size, 512 * status.st_blocks
        found[key] = OpenFile(path, name, key, *sizes, status.st_dev in memory, library)
    files = sorted(found.values(), key=lambda one: one.name)
    small = {one.key for one in files if one.nbytes < _LEAST_BYTES and not one.in_memory}
    if sum(one.nbytes for one in files if one.key in small and one.is_data) < _LEAST_BYTES:
        files = [one for one in files if one.key not in small]
    return files


def _status(link: Path, name: Path) -> tuple[Path, os.stat_result | None]:
    """Return the path at which a file can be opened, its name where it still has it, and its status; None: gone."""
    status: os.stat_result | None = None
    with suppress(OSError):  # only root may follow the links of maps
        status = link.stat()
    with suppress(OSError):
        named = name.stat()
        if status is None or os.path.samestat(status, named):
            return name, named
    return link, status


def queued_bytes(pids: Collection[int]) -> int:
    """Return the bytes in the queues of a run's TCP, UDP and netlink sockets, which cgroup v1 charges to no cap. Its
    processes share one network space, so any of them shows all sockets."""
    own = Path("/proc/self/ns/net").stat().st_ino
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/ns/net").stat().st_ino != own:
                tables = [read_text(Path(f"/proc/{pid}/net/{name}")) for name in ("tcp", "tcp6", "udp", "udp6")]
                queues = re.findall(r" ([0-9A-F]{8}):([0-9A-F]{8}) \d\d:", "\n".join(tables))
                netlink = read_text(Path(f"/proc/{pid}/net/netlink")).splitlines()[1:]
                received = sum(int(line.split()[4]) for line in netlink)
                return received + sum(int(sent, 16) + int(unread, 16) for sent, unread in queues)
    return 0


def on_other_disk(file: OpenFile, disks: Collection[str]) -> bool:
    """Return whether a file lies on known disks, none of which is of `disks` (`major:minor`)."""
    device = f"{os.major(file.key[0])}:{os.minor(file.key[0])}"
    known = {read_text(folder / "dev").strip() for folder in whole_disks(device)}
    return bool(disks and known) and not known & set(disks)


def born(path: Path) -> float:
    """Return the Unix seconds of a file's creation, or of its last change where the file system does not keep them."""
    found, statx = ctypes.create_string_buffer(256), getattr(ctypes.CDLL(None), "statx", None)
    if statx and statx(-100, os.fsencode(path), 0, _STATX_BTIME, found) == 0:
        mask, seconds, nanoseconds = (int.from_bytes(found.raw[at : at + 4], sys.byteorder) for at in (0, 80, 88))
        if mask & _STATX_BTIME:
            return seconds + nanoseconds / 1e9
    with suppress(OSError):
        return path.stat().st_mtime
    return math.inf


def own_keys() -> set[tuple[int, int]]:
    """Return device and inode of the files that this process has open: memory among them is the harness's."""
    found = set[tuple[int, int]]()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            status = link.stat()
            found.add((status.st_dev, status.st_ino))
    return found


@functools.cache
def _memory_file_device() -> int:
    descriptor = os.memfd_create("outcore")
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


def _memory_devices() -> set[int]:
    """Return the device numbers of file systems in memory."""
    numbers = (mount.device.split(":") for mount in all_mounts() if mount.kind in IN_MEMORY)
    return {_memory_file_device(), *(os.makedev(*map(int, number)) for number in numbers)}


def _is_elf(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
    return False
