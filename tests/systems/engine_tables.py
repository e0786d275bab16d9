"""Tables on a real disk for the engine's tests, and child processes for its fault
tests."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from systems.engine.io.reader import RowReader

HEADER = 4096


def write_table(path: Path, table: np.ndarray, header: int = HEADER) -> Path:
    """Write `table`'s bytes after a header and sync them to the disk."""
    with path.open("wb") as file:
        file.write(b"\xa5" * header)
        table.tofile(file)
        file.flush()
        os.fsync(file.fileno())
    return path


def random_table(rows: int, dim: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Return a table of random bits, NaNs among them, in which no two rows are
    equal."""
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 256, rows * dim * np.dtype(dtype).itemsize, dtype=np.uint8)
        .view(dtype)
        .reshape(rows, dim)
    )


def open_reader(
    path: Path, table: np.ndarray, header: int = HEADER, **options: Any
) -> RowReader:
    return RowReader(
        path,
        data_offset=header,
        num_rows=len(table),
        row_bytes=table.dtype.itemsize * table.shape[1],
        **options,
    )


def same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes()


def run_child(code: str, *arguments: object, env: dict[str, str] | None = None) -> str:
    """Run Python code, which sees `arguments` as `sys.argv[1:]`, in a new process and
    return its stdout."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
