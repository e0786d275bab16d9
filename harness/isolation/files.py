"""Small control files of the kernel, read through descriptors that stay open, so that
sampling them is cheap."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_CHUNK = 1 << 16


class KernelFile:
    """File of /proc or of a cgroup, opened once and read again from its start; empty
    once its cgroup is removed."""

    def __init__(self, path: Path | str) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    @property
    def present(self) -> bool:
        """Whether the kernel has the file."""
        return self._fd >= 0

    def read(self) -> bytes:
        """Read the whole content, empty where the kernel has none."""
        with suppress(OSError):  # also without a descriptor
            data = os.pread(self._fd, _CHUNK, 0)
            # /proc returns one page at a time where lines would be split, so a short
            # read is not yet the end.
            while data and (more := os.pread(self._fd, _CHUNK, len(data))):
                data += more
            return data
        return b""

    def number(self) -> int | None:
        """Read the content as a number; None for `max`, for nothing and for text."""
        return as_number(self.read())

    def close(self) -> None:
        """Close the descriptor; later reads return nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def as_number(data: bytes) -> int | None:
    """Return `b"4096\\n"` as 4096; None for anything that is not one number."""
    text = data.strip()
    return int(text) if text.isdigit() else None


def flat_keyed(data: bytes) -> dict[bytes, int]:
    """Parse `key value` lines (memory.stat, memory.events) into a mapping; lines of
    another form are left out."""
    lines = (line.split() for line in data.splitlines())
    return {
        line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()
    }


def read_text(path: Path) -> str:
    """Return the file's text, empty where it cannot be read."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def first_text(folder: Path, *names: str) -> str:
    """Return the text of the first of these files that has one; empty without any."""
    texts = (read_text(folder / name).strip().strip("\0") for name in names)
    return next((text for text in texts if text), "")


def write_text(path: Path, text: str) -> None:
    """Write one value to a control file in one call, as the kernel requires. Raises
    OSError: the kernel refuses."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def write_if_possible(path: Path, text: str) -> bool:
    """Write one value to a control file; return False where the kernel has no such file
    or refuses the value."""
    try:
        write_text(path, text)
    except OSError:
        return False
    return True


def psi_some_total(data: bytes) -> int | None:
    """Return microseconds since boot in which at least one task stalled, from a
    `pressure` file."""
    for line in data.splitlines():
        kind, *fields = line.split() or [b""]
        values = dict(field.split(b"=", 1) for field in fields if b"=" in field)
        if kind == b"some":
            return as_number(values.get(b"total", b""))
    return None


def numbered(processors: Iterable[int]) -> str:
    """Return processors as the kernel takes them, like `0,2,3`."""
    return ",".join(map(str, processors))
