"""Folders and files of the host that hold the code of a worker: libraries, interpreter,
packages and checkout."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

#: Links of the root folder into /usr, on hosts whose /usr holds all programs.
USR_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Files that the loader, Debian's alternatives (BLAS) and the name service read; a run
# can write none.
_ETC = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "passwd",
    "group",
    "nsswitch.conf",
    "localtime",
)
_ROOT = Path(__file__).resolve().parents[3]


def code_folders() -> list[Path]:
    """Return the folders of the interpreter, of its packages and of the checkout."""
    extra = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    code = [
        Path(sys.prefix),
        Path(sys.base_prefix),
        _ROOT,
        *(Path(entry) for entry in [*extra, *sys.path] if entry),
    ]
    return [place for path in code for place in (path.absolute(), path.resolve())]


def code_paths() -> list[Path]:
    """Return `/usr`, parts of `/etc`, the interpreter, its packages and the checkout,
    without paths inside others."""
    found = [Path("/usr"), *(Path("/etc") / name for name in _ETC), *code_folders()]
    kept: list[Path] = []
    for path in sorted(set(found) - {Path("/")}, key=lambda path: len(path.parts)):
        # A path that this user cannot see is of no use to the work either.
        with suppress(OSError):
            if path.exists() and not any(path.is_relative_to(other) for other in kept):
                kept.append(path)
    return kept
