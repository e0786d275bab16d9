"""Arrays for the native code: views of ids as int64 and of tables as rows of bytes, and
copies of rows by many threads.

A table is never copied whole. Threads copy rows in memory or memory-mapped ones, so
that their page faults overlap.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from systems import _native
from workloads.errors import DataIOError

Array = NDArray[Any]


def torch_dtype(dtype: np.dtype[np.generic]) -> torch.dtype:
    """Convert numpy's float32 or float16 to torch's dtype."""
    return {"float32": torch.float32, "float16": torch.float16}[dtype.name]


def as_ids(ids: Array | torch.Tensor) -> NDArray[np.int64]:
    """Return `ids` as a contiguous int64 array; copies only if its dtype or layout
    differs."""
    array = ids.numpy() if isinstance(ids, torch.Tensor) else ids
    return np.ascontiguousarray(array, dtype=np.int64)


def as_rows(
    table: Array | torch.Tensor, row_bytes: int | None = None
) -> NDArray[np.uint8]:
    """View `table` as uint8 [rows, row_bytes] over the same memory.

    Args:
        table: contiguous; its first dimension counts rows, unless `row_bytes` cuts flat
            memory into rows.

    Raises:
        ValueError: the table is not contiguous, or not a whole number of rows.
    """
    if isinstance(table, torch.Tensor):
        table = (
            table.view(torch.uint8).numpy()
            if table.dtype == torch.bfloat16
            else table.numpy()
        )
    if not table.flags.c_contiguous:
        raise ValueError("the table is not contiguous")
    if row_bytes is None:
        row_bytes = table.nbytes // table.shape[0] if table.shape[0] else table.itemsize
    # np.memmap slows indexing; the base class shares its memory and keeps it alive.
    flat = table.view(np.ndarray).reshape(-1).view(np.uint8)
    return flat.reshape(-1, row_bytes)


def _mapped_file(table: Array | torch.Tensor) -> tuple[Path, int] | None:
    """Return the file behind a memory map and the offset of the table's first byte in
    it, or None."""
    base: Any = table
    while isinstance(base, np.ndarray):
        if (
            isinstance(base, np.memmap)
            and base.filename is not None
            and not isinstance(base.base, np.ndarray)
        ):
            start = base.__array_interface__["data"][0]
            inside: int = table.__array_interface__["data"][0] - start  # type: ignore[union-attr]
            return Path(base.filename), base.offset + inside
        base = base.base
    return None


def order_bytes(rows: int) -> int:
    """Return the bytes of working memory for gathering `rows` rows of a memory map."""
    return 4 * rows


def gather(
    table: Array | torch.Tensor,
    rows: Array | torch.Tensor,
    out: Array | torch.Tensor,
    threads: int,
) -> None:
    """Copy row `rows[i]` of `table` to `out[i]`, on `threads` threads including the
    caller's.

    The GIL is released. For a memory-mapped table use more threads than cores: each
    waits for one page at a time.

    Args:
        table: contiguous, [N, …]; a memory map or memory.
        rows: int64 [n].
        out: contiguous, at least n rows of the same bytes.

    Raises:
        DataIOError: the mapped file was truncated, before or during the call, or its
            device failed.
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
    fault = _native.gather(
        source,
        as_ids(rows),
        as_rows(out, source.shape[1]),
        max(1, threads),
        place is not None,
    )
    if fault >= 0:
        path, offset = place or (Path("a memory map"), 0)
        raise _cut(path, offset + fault)


def _cut(path: Path, offset: int) -> DataIOError:
    message = (
        f"reading {path} failed at offset {offset}: the file ends there, or its device "
        "cannot read it"
    )
    return DataIOError(
        message,
        path=str(path),
        offset=offset,
        fix="verify the dataset with `outcore data verify`",
    )
