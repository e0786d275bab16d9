"""Atomic writes of files, under a temporary name in the same folder, then renamed;
locks between processes."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workloads.errors import DataIOError, InputError


@contextmanager
def whole_file(out: Path, what: str) -> Iterator[Path]:
    """Yield a temporary path; rename it to `out` if the body succeeds, else remove it.
    Make the folder of `out`.

    Raises DataIOError: there is no space, or the disk failed; InputError: nothing can
    be written at that place (no permission, a file for a folder). The message calls the
    file `what` (`the trace`).
    """
    partial = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(out)
    except OSError as error:
        message = f"{what} could not be written to {out}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise DataIOError.of(error, message, out) from error
        raise InputError.from_os(error, message, "choose another place") from error
    finally:
        with suppress(OSError):
            partial.unlink()


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Wait until no other process holds the lock of a file, which is made, and hold
    it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(file, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
