"""Files that are written whole or not at all: under a temporary name in the same folder, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workloads.errors import DataIOError


@contextmanager
def whole_file(out: Path, what: str) -> Iterator[Path]:
    """Yields the temporary path to write to; it becomes `out` if the body ends well, else it goes.

    Args:
        out: the file; its folder is made.
        what: names it in messages, like `the trace`.

    Raises:
        DataIOError: it cannot be written (no room, no permission, no such folder).
    """
    partial = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(out)
    except OSError as error:
        raise DataIOError(
            f"{what} could not be written to {out}: {error.strerror or error}",
            path=str(out),
            errno=error.errno or 0,
            fix="free some space, or choose another place",
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()
