"""Digest of the content of an import's source, so that a changed source is never taken
for the old one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import xxhash

from workloads.importers.seen import files_in
from workloads.making.progress import Progress, no_progress
from workloads.npyfile import file_digest

Stamp = tuple[int, int, int]
"""Inode, bytes and time of the last change (ns) of a file."""


def source_digest(source: Path, progress: Progress = no_progress) -> str:
    """Return the XXH3 of a file, or of the names and contents of all files in a folder,
    16 hexadecimal digits.

    Each byte is read, since a file may change while its size and time stay (`cp -p`, an
    edit in place). Links are followed, to folders too. Raises OSError where a file
    cannot be read.
    """
    if source.is_file():
        progress("reading the source", 0.0)
        return file_digest(source)
    files = sorted(_files(source))
    total = sum(status.st_size for _, status in files)
    digest = xxhash.xxh3_64()
    done = 0
    for name, status in files:
        progress("reading the source", done / max(1, total))
        kind = stat.S_IFMT(status.st_mode)
        content = file_digest(source / name) if stat.S_ISREG(kind) else f"kind {kind}"
        digest.update(os.fsencode(name) + b"\0" + content.encode() + b"\0")
        done += status.st_size
    return digest.hexdigest()


def source_stamp(source: Path) -> dict[str, Stamp]:
    """Return a stamp for each file of the source, by its name, that changes where the
    file is written or replaced; raises OSError."""
    found = [("", source.stat())] if source.is_file() else _files(source)
    return {
        name: (status.st_ino, status.st_size, status.st_mtime_ns)
        for name, status in found
    }


def _files(source: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path within the folder `source`, and the status, of each file in it (of
    a broken link its own)."""
    for name in files_in(source):
        path = source / name
        yield name, path.stat() if path.exists() else path.lstat()
