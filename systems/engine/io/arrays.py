"""Views of arrays for the native code: ids as int64, tables as rows of bytes, never a copy of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]


def as_ids(ids: Array | torch.Tensor) -> NDArray[np.int64]:
    """Return `ids` as a contiguous int64 array; copies only if its dtype or layout differs."""
    array = ids.numpy() if isinstance(ids, torch.Tensor) else ids
    return np.ascontiguousarray(array, dtype=np.int64)


def as_rows(table: Array | torch.Tensor, row_bytes: int | None = None) -> NDArray[np.uint8]:
    """View `table` as uint8 [rows, row_bytes] over the same memory.

    Args:
        table: contiguous; its first dimension counts rows, unless `row_bytes` cuts flat memory into rows.

    Raises:
        ValueError: the table is not contiguous, or not a whole number of rows.
    """
    if isinstance(table, torch.Tensor):
        table = table.view(torch.uint8).numpy() if table.dtype == torch.bfloat16 else table.numpy()
    if not table.flags.c_contiguous:
        raise ValueError("the table is not contiguous")
    if row_bytes is None:
        row_bytes = table.nbytes // table.shape[0] if table.shape[0] else table.itemsize
    # np.memmap slows indexing; the base class shares its memory and keeps it alive.
    flat = table.view(np.ndarray).reshape(-1).view(np.uint8)
    return flat.reshape(-1, row_bytes)
