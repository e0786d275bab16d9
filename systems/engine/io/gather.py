"""Copies of table rows, in memory or memory-mapped, by many threads so that their page faults overlap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from systems import _native
from systems.engine.io.arrays import Array, as_ids, as_rows
from workloads.errors import DataIOError


def _mapped_file(table: Array | torch.Tensor) -> tuple[Path, int] | None:
    """Return the file behind a memory map and the offset of the table's first byte in it, or None."""
    base: Any = table
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.filename is not None and not isinstance(base.base, np.ndarray):
            start = base.__array_interface__["data"][0]
            inside: int = table.__array_interface__["data"][0] - start  # type: ignore[union-attr]
            return Path(base.filename), base.offset + inside
        base = base.base
    return None


def order_bytes(rows: int) -> int:
    """Return the bytes of working memory for gathering `rows` rows of a memory map."""
    return 4 * rows


def gather(table: Array | torch.Tensor, rows: Array | torch.Tensor, out: Array | torch.Tensor, threads: int) -> None:
    """Copy row `rows[i]` of `table` to `out[i]`, on `threads` threads including the caller's.

    The GIL is released. For a memory-mapped table use more threads than cores: each waits for one page at a time.

    Args:
        table: contiguous, [N, …]; a memory map or memory.
        rows: int64 [n].
        out: contiguous, at least n rows of the same bytes.

    Raises:
        DataIOError: the mapped file was truncated, before or during the call, or its device failed.
        IndexError: a row does not exist.
    """
    source = as_rows(table)
    place = _mapped_file(table)
    if place is not None:
        path, offset = place
        size = path.stat().st_size
        if size < offset + source.nbytes:
            raise _cut(path, size)
    # Rows of a map are copied in file order, so that rows of one page cost one fault.
    fault = _native.gather(source, as_ids(rows), as_rows(out, source.shape[1]), max(1, threads), place is not None)
    if fault >= 0:
        path, offset = place or (Path("a memory map"), 0)
        raise _cut(path, offset + fault)


def _cut(path: Path, offset: int) -> DataIOError:
    return DataIOError(
        f"reading {path} failed at offset {offset}: the file ends there, or its device cannot read it",
        path=str(path),
        offset=offset,
        fix="verify the dataset with `outcore data verify`",
    )
